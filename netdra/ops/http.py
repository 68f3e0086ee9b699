"""A server of HTTP/1.1 for what is asked about a process: GET and HEAD alone, bounded in size, time and number.

Used by `netdra.ops.server`. The protocol is h11's, which the API client stands on as well: a web framework beside it
would be a seventh of the node daemon's memory, and a fifth of the CPU time of its start.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import NamedTuple

import h11

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 64
"""Past so many, the connection whose last request is longest ago makes room."""
MAX_REQUEST = 64 * 1024
"""Bytes, the body included, which is passed over; a quarter of it for what comes before the body (h11)."""
IDLE_SECONDS = 75.0
"""How long a request may be in coming, the pause before it included."""
WRITE_SECONDS = 10.0
_TEXT = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """What is answered to a request."""

    status: HTTPStatus
    body: bytes
    content_type: str = _TEXT


Respond = Callable[[str, str], Awaitable[Answer | None]]
"""Path and query of a request -> its answer; None if there is nothing of that path."""


def plain(status: HTTPStatus, text: str = "") -> Answer:
    """An answer in words; without any, the status's own."""
    return Answer(status, (text or status.phrase).encode())


@asynccontextmanager
async def listening(where: tuple[str, int], respond: Respond) -> AsyncIterator[None]:
    """Answer requests while entered; what is still being answered at the end is broken off.

    Args:
        where: host ("" for all addresses) and port.
        respond: says what is answered.

    Raises:
        OSError: the address cannot be listened on.
    """
    connections = _Connections(respond)
    server = await asyncio.start_server(connections.take, where[0] or None, where[1])
    try:
        yield
    finally:
        server.close()
        connections.close()


class _Connections:
    """The open connections, by the time of their last requests."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._open: dict[asyncio.Task[None], None] = {}
        self._ended: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        for each in tuple(self._open):
            self._end(each)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task, None)
        self._ended.add(task)
        task.cancel()

    async def take(self, reader: StreamReader, writer: StreamWriter) -> None:
        """One connection, from its first request to its end."""
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= MAX_CONNECTIONS:
            self._end(next(iter(self._open)))
        try:
            with suppress(OSError):
                connection = h11.Connection(h11.SERVER)
                while await self._serve(task, connection, reader, writer):
                    connection.start_next_cycle()
        except asyncio.CancelledError:
            # asyncio would tell of a cancelled connection as of an error, and this one only made room.
            if task not in self._ended:
                raise
        finally:
            self._open.pop(task, None)
            self._ended.discard(task)
            writer.close()

    async def _serve(
        self, task: asyncio.Task[None], connection: h11.Connection, reader: StreamReader, writer: StreamWriter
    ) -> bool:
        """Answer one request, and tell whether another one may follow."""
        self._open.pop(task, None)
        self._open[task] = None
        method = b"GET"
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                request = await _read(connection, reader)
            if request is None:
                return False
            method = request.method
            answer = await self._answer(request)
        except h11.RemoteProtocolError as problem:
            answer = plain(HTTPStatus(problem.error_status_hint), str(problem))
        writer.write(_encoded(connection, method, answer))
        async with asyncio.timeout(WRITE_SECONDS):
            await writer.drain()
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    async def _answer(self, request: h11.Request) -> Answer:
        if request.method not in {b"GET", b"HEAD"}:
            return plain(HTTPStatus.METHOD_NOT_ALLOWED)
        path, _, query = request.target.decode("ascii").partition("?")
        try:
            return await self._respond(path, query) or plain(HTTPStatus.NOT_FOUND)
        except Exception:
            log.exception("GET %s", path)
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR)


async def _read(connection: h11.Connection, reader: StreamReader) -> h11.Request | None:
    """The next request, its body passed over; None if there is none to come.

    Raises:
        h11.RemoteProtocolError: what comes is no request, or too long.
    """
    request, size = None, 0
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif isinstance(event, h11.ConnectionClosed):
            return None
        elif event is h11.NEED_DATA:
            data = await reader.read(4096)
            size += len(data)
            if size > MAX_REQUEST:
                raise h11.RemoteProtocolError("the request is too long", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            connection.receive_data(data)


def _encoded(connection: h11.Connection, method: bytes, answer: Answer) -> bytes:
    headers = [("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body)))]
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers.append(("Allow", "GET, HEAD"))
    if connection.their_state is not h11.DONE:
        headers.append(("Connection", "close"))
    events: list[h11.Event] = [h11.Response(status_code=answer.status, headers=headers)]
    if method != b"HEAD":
        events.append(h11.Data(answer.body))
    return b"".join(connection.send(event) or b"" for event in (*events, h11.EndOfMessage()))
