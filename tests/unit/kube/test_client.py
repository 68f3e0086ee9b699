"""Lists of several pages whose moment the server forgets, as a 410 states, and the server's clock by its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from netdra.kube.client import LISTS, Client
from netdra.kube.connection import connect
from netdra.kube.errors import GoneError, NotFoundError
from netdra.kube.kubeconfig import ApiServer, Config
from netdra.kube.resources import NODES

GONE, ABSENT = 410, 404


class Pages:
    """A server of nodes: what it answers in a row, a page or a code; the last error is of repeated."""

    def __init__(self, *answers: tuple[Iterable[str], str] | int) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        found = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append(request.query.get("continue", ""))
        if isinstance(found, int):
            return web.json_response({"code": found, "reason": "Expired", "message": "too old"}, status=found)
        names, continue_ = found
        metadata = {"resourceVersion": "7", "continue": continue_}
        return web.json_response({"metadata": metadata, "items": [{"metadata": {"name": one}} for one in names]})

    def names(self) -> list[str]:
        async def listed() -> list[str]:
            app = web.Application()
            app.router.add_get("/api/v1/nodes", self.answer)
            async with TestServer(app) as server:
                config = Config(cluster=ApiServer(server=str(server.make_url("")).rstrip("/")))
                async with Client(connect(config)) as client:
                    return [node.metadata.name for node in await client.list(NODES)]

        return asyncio.run(listed())


def test_a_list_whose_next_page_is_gone_is_begun_anew_and_has_nothing_twice() -> None:
    server = Pages(("ab", "first"), GONE, ("bc", "second"), ("d", ""))
    assert server.names() == ["b", "c", "d"]
    assert server.asked == ["", "first", "", "second"]


def test_a_list_that_expires_repeatedly_fails_after_a_limited_number_of_attempts() -> None:
    server = Pages(("ab", "first"), GONE, ("ab", "second"), GONE, ("ab", "third"), GONE)
    with pytest.raises(GoneError):
        server.names()
    assert len(server.asked) == 2 * LISTS


def test_another_refusal_is_not_asked_again() -> None:
    server = Pages(("ab", "first"), ABSENT)
    with pytest.raises(NotFoundError):
        server.names()
    assert len(server.asked) == 2


def test_the_servers_clock_is_that_of_its_last_answer_with_a_date() -> None:
    dates = iter(
        ("Sat, 28 Nov 2026 05:00:00 GMT", "nonsense", "Sat, 28 Nov 2026 05:00:00 GMT", "Sat, 28 Nov 2026 03:00:00 GMT")
    )

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="v1", headers={"Date": next(dates)})

    async def clocks() -> list[datetime]:
        app = web.Application()
        app.router.add_get("/version", answer)
        async with TestServer(app) as server:
            config = Config(cluster=ApiServer(server=str(server.make_url("")).rstrip("/")))
            async with Client(connect(config)) as client:
                return [client.now() for _ in range(4) if await client.read("/version", "version")]

    late, early = datetime(2026, 11, 28, 5, tzinfo=UTC), datetime(2026, 11, 28, 3, tzinfo=UTC)
    for now, wanted in zip(asyncio.run(clocks()), (late, late, late, early), strict=True):
        assert wanted <= now < wanted + timedelta(minutes=1)
