"""A server of HTTP/1.1 for what is asked about a process: GET and HEAD alone, bounded in size, time and number.

Used by `netdra.ops.server`. HTTP is aiohttp's; here is what it leaves open: how many connections there may be, and how
long each may take to ask and to read what it is answered. Of aiohttp the server alone is imported, without its
framework of routes and files, which a node has no use for.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple, cast

from aiohttp.http import HttpProcessingError
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response
from aiohttp.web_server import Server

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 64
"""Past so many, the connection whose last request is longest ago makes room."""
IDLE_SECONDS = 75.0
"""How long a request may be in coming, the pause before it included."""
WRITE_SECONDS = 10.0
"""How long an answer may lie unread."""
BODY_SECONDS = 2.0
"""How long the rest of a body is passed over that nobody wants."""
MAX_LINE = 8 * 1024
"""Bytes of a request's first line, and of each header."""
MAX_HEADERS = 64
_BUFFER = 16 * 1024
_END_SECONDS = 0.1
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
async def listening(where: tuple[str, int] | Path, respond: Respond) -> AsyncIterator[None]:
    """Answer requests while entered; what is still being answered at the end is broken off.

    Args:
        where: host ("" for all addresses) and port, or a unix socket, which replaces one that is there.
        respond: says what is answered.

    Raises:
        OSError: the address cannot be listened on.
    """
    port, loop = _Port(respond), asyncio.get_running_loop()
    if isinstance(where, Path):
        server = await loop.create_unix_server(lambda: _Connection(port), sock=_bound(where))
    else:
        server = await loop.create_server(lambda: _Connection(port), where[0] or None, where[1])
    try:
        yield
    finally:
        server.close()
        await port.close()


def _bound(where: Path) -> socket.socket:
    """A unix socket that only our own user connects to; it replaces one that a process has left."""
    with suppress(FileNotFoundError):
        where.unlink()
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(where))
    where.chmod(0o600)
    return made


class _Connection(asyncio.Protocol):
    """One connection, between the transport and aiohttp's handler of its requests, on the clock."""

    def __init__(self, port: _Port) -> None:
        self._port = port
        self.handler = port.server()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.handler.connection_made(transport)
        self._port.came(self)
        self.wait(IDLE_SECONDS)

    def data_received(self, data: bytes) -> None:
        self.handler.data_received(data)

    def eof_received(self) -> None:
        self.handler.eof_received()

    def connection_lost(self, problem: Exception | None) -> None:
        self.wait(None)
        self.handler.connection_lost(problem)
        self._port.left(self)

    def pause_writing(self) -> None:
        self.handler.pause_writing()
        self.wait(WRITE_SECONDS)

    def resume_writing(self) -> None:
        self.handler.resume_writing()
        self.wait(IDLE_SECONDS)

    def end(self) -> None:
        """Break it off."""
        if self._transport is not None:
            self._transport.abort()

    def wait(self, seconds: float | None) -> None:
        """How long the other side may take for what it has to do now; None if it has to do nothing."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.end)


class _Port:
    """The open connections, by the time of their last requests."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._open: dict[object, _Connection] = {}
        self.server = Server(
            self._handle,
            access_log=None,
            logger=_of_aiohttp(),
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=BODY_SECONDS,
            max_line_size=MAX_LINE,
            max_field_size=MAX_LINE,
            max_headers=MAX_HEADERS,
            read_bufsize=_BUFFER,
            auto_decompress=False,
        )

    async def close(self) -> None:
        for connection in tuple(self._open.values()):
            connection.end()
        await self.server.shutdown(_END_SECONDS)

    def came(self, connection: _Connection) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            quiet = next(iter(self._open.values()))
            self.left(quiet)
            quiet.end()
        self._open[connection.handler] = connection

    def left(self, connection: _Connection) -> None:
        self._open.pop(connection.handler, None)

    async def _handle(self, request: BaseRequest) -> Response:
        connection = self._open.pop(request.protocol, None)
        if connection is None:
            raise ConnectionResetError("the connection was broken off")
        self._open[request.protocol] = connection
        connection.wait(None)
        answer = await self._answer(request)
        response = Response(status=answer.status, body=answer.body, headers={"Content-Type": answer.content_type})
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            response.headers["Allow"] = "GET, HEAD"
        if request.body_exists:
            response.force_close()
        connection.wait(IDLE_SECONDS)
        return response

    async def _answer(self, request: BaseRequest) -> Answer:
        if request.method not in {"GET", "HEAD"}:
            return plain(HTTPStatus.METHOD_NOT_ALLOWED)
        path, _, query = request.raw_path.partition("?")
        try:
            return await self._respond(path, query) or plain(HTTPStatus.NOT_FOUND)
        except Exception:
            log.exception("GET %s", path)
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _of_aiohttp() -> logging.Logger:
    """Where aiohttp tells of requests: what a client did wrong is no error of the process."""
    chosen = logging.getLogger(f"{__name__}.aiohttp")
    chosen.filters = [
        lambda record: not isinstance((record.exc_info or (None, None))[1], HttpProcessingError | OSError)
    ]
    return chosen
