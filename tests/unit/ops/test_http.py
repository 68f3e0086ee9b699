"""Each client of the port gets answers, and can neither break the server nor take it from others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
from aiohttp import ClientSession
from yarl import URL

from netdra.ops import http
from netdra.ops.http import LIMITS, Answer, HTTPRequest, listening, plain
from testbed.process import Ports

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
ANSWER_SECONDS = 30.0


async def _respond(request: HTTPRequest) -> Answer | None:
    if request.path == "/broken":
        raise ValueError(request.query)
    known = request.path.startswith("/known")
    return plain(HTTPStatus.OK, f"{request.path}?{request.query}") if known else None


@asynccontextmanager
async def _raw(port: int) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def _to_the_end(streams: Streams, sent: bytes) -> bytes:
    """The answer until the server closes the connection."""
    reader, writer = streams
    writer.write(sent)
    async with asyncio.timeout(ANSWER_SECONDS):
        return await reader.read()


def _run(scene: Callable[[int], Awaitable[None]]) -> None:
    async def play(port: int) -> None:
        async with listening(("127.0.0.1", port), _respond):
            await scene(port)

    ports = Ports("127.0.0.1")
    try:
        asyncio.run(play(ports.take()))
    finally:
        ports.close()


def test_requests_of_one_connection_are_answered_in_turn() -> None:
    async def scene(port: int) -> None:
        async with ClientSession(f"http://127.0.0.1:{port}") as session:
            async with session.get("/known/a?b=c&d") as answer:
                assert (answer.status, await answer.text()) == (200, "/known/a?b=c&d")
                assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
            async with session.head("/known") as answer:
                assert (answer.status, answer.headers["Content-Length"], await answer.text()) == (200, "7", "")
            async with session.get("/other") as answer:
                assert (answer.status, await answer.text()) == (404, "Not Found")
            async with session.get(URL(f"http://127.0.0.1:{port}//[?", encoded=True)) as answer:
                assert answer.status == 404
            async with session.post("/known", data=b"x" * 100) as answer:
                assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")

    _run(scene)


def test_a_defect_is_logged_and_the_next_request_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(port: int) -> None:
        async with ClientSession(f"http://127.0.0.1:{port}") as session:
            async with session.get("/broken") as answer:
                assert (answer.status, await answer.text()) == (500, "Internal Server Error")
            async with session.get("/known") as answer:
                assert answer.status == 200

    _run(scene)
    assert "/broken" in caplog.text


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"no request\r\n\r\n", b"400"),
        (b"GET /known HTTP/1.1\r\nHost: a\r\nA: " + b"x" * 20_000, b"400"),
        (b"GET /" + b"x" * 20_000, b"400"),
        (b"GET /known HTTP/1.1\r\n" + b"A: b\r\n" * 1000, b"400"),
        (b"POST /known HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n" + b"x" * 65_536, b"405"),
        (b"POST /known HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: br\r\n\r\n", b"400"),
    ],
)
def test_an_invalid_request_is_rejected_and_the_connection_is_closed(sent: bytes, status: bytes) -> None:
    async def scene(port: int) -> None:
        async with _raw(port) as streams:
            answer = await _to_the_end(streams, sent)
        assert answer.split(b" ", 2)[1] == status
        assert answer.startswith(b"HTTP/1.0 ") or b"connection: close" in answer.lower()

    _run(scene)


def test_an_incomplete_request_times_out_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LIMITS", LIMITS._replace(request=0.2))

    async def scene(port: int) -> None:
        async with _raw(port) as streams:
            assert await _to_the_end(streams, b"GET /known HTTP/1.1\r\n") == b""

    _run(scene)


def test_an_unread_answer_times_out_and_the_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LIMITS", LIMITS._replace(write=0.2))

    async def respond(_: HTTPRequest) -> Answer | None:
        return plain(HTTPStatus.OK, "x" * 64 * 1024 * 1024)

    async def scene(port: int) -> None:
        async with listening(("127.0.0.1", port), respond), _raw(port) as (reader, writer):
            writer.write(b"GET /known HTTP/1.1\r\nHost: a\r\n\r\n")
            await asyncio.sleep(1.0)
            async with asyncio.timeout(ANSWER_SECONDS):
                with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                    await reader.readexactly(64 * 1024 * 1024)

    ports = Ports("127.0.0.1")
    try:
        asyncio.run(scene(ports.take()))
    finally:
        ports.close()


def test_past_the_limit_the_connection_that_was_quiet_longest_makes_room(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http, "LIMITS", LIMITS._replace(connections=2))
    request = b"GET /known HTTP/1.1\r\nHost: a\r\n\r\n"

    async def ask(streams: Streams) -> None:
        streams[1].write(request)
        async with asyncio.timeout(ANSWER_SECONDS):
            assert (await streams[0].readuntil(b"/known?")).startswith(b"HTTP/1.1 200")

    async def scene(port: int) -> None:
        async with _raw(port) as first, _raw(port) as second:
            await ask(first)
            await ask(second)
            await ask(first)
            async with _raw(port) as third:
                await ask(third)
                assert await _to_the_end(second, b"") == b""
                await ask(first)

    _run(scene)
    assert not caplog.records
