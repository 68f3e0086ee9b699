"""Objects are read again for each request, and together for requests that may share a read."""

from __future__ import annotations

import asyncio
from typing import Any

from netdra.admission.copy import Reads
from netdra.kube.errors import NotFoundError, Status, UnavailableError
from netdra.kube.resources import TOPOLOGIES, Resource


class Server:
    """Answers when the test lets it; a real server cannot be made exactly this slow."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, asyncio.Future[Any]]] = []

    async def get(self, _: Resource[Any], name: str) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.append((name, answer))
        return await answer

    def names(self) -> list[str]:
        return [name for name, _ in self.asked]


async def settle() -> None:
    """Let everything happen that needs no answer."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_requests_during_a_read_wait_for_the_next_read_and_share_it() -> None:
    async def story() -> None:
        server = Server()
        reads = Reads(server)
        early = [asyncio.ensure_future(reads.get(TOPOLOGIES, "net")) for _ in range(3)]
        await settle()
        late = [asyncio.ensure_future(reads.get(TOPOLOGIES, "net")) for _ in range(3)]
        await settle()
        assert server.names() == ["net"]
        server.asked[0][1].set_result("before")
        assert set(map(str, await asyncio.gather(*early))) == {"before"}
        await settle()
        assert server.names() == ["net", "net"]
        assert not any(each.done() for each in late)
        server.asked[1][1].set_result("after")
        assert set(map(str, await asyncio.gather(*late))) == {"after"}
        last = asyncio.ensure_future(reads.get(TOPOLOGIES, "net"))
        await settle()
        assert len(server.asked) == 3
        server.asked[2][1].set_result("now")
        assert str(await last) == "now"

    asyncio.run(story())


def test_different_objects_are_read_side_by_side() -> None:
    async def story() -> None:
        server = Server()
        reads = Reads(server)
        asked = [asyncio.ensure_future(reads.get(TOPOLOGIES, name)) for name in ("a", "b")]
        await settle()
        assert server.names() == ["a", "b"]
        for name, answer in server.asked:
            answer.set_result(name)
        assert [str(each) for each in await asyncio.gather(*asked)] == ["a", "b"]

    asyncio.run(story())


def test_a_failed_read_fails_its_sharers_but_not_the_next_read() -> None:
    async def story() -> None:
        server = Server()
        reads = Reads(server)
        early = [asyncio.ensure_future(reads.get(TOPOLOGIES, "net")) for _ in range(2)]
        await settle()
        late = asyncio.ensure_future(reads.get(TOPOLOGIES, "net"))
        server.asked[0][1].set_exception(UnavailableError("away", Status()))
        found = await asyncio.gather(*early, return_exceptions=True)
        assert all(isinstance(each, UnavailableError) for each in found)
        await settle()
        server.asked[1][1].set_exception(NotFoundError("gone", Status()))
        assert await late is None

    asyncio.run(story())
