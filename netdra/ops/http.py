"""A server of HTTP/1.1: requests in, answers out, bounded in size, time and number.

Used by `netdra.ops.server` for questions about a process, by `netdra.admission.server` and by
`netdra.console.server`. HTTP is aiohttp's; the limits that it leaves open, how many connections there may be and how
long each may take, is `netdra.ops.bounded`'s. Of aiohttp the server alone is imported, without its framework of routes
and files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Hashable, Mapping
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from traceback import clear_frames
from typing import Any, NamedTuple

from aiohttp.http import HttpProcessingError
from aiohttp.web_exceptions import HTTPException
from aiohttp.web_protocol import RequestPayloadError
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse
from aiohttp.web_server import Server

from netdra.ops.bounded import BoundedConnection, BoundedServer, ConnectionLimits

log = logging.getLogger(__name__)

LIMITS = ConnectionLimits(connections=64, idle=75.0, request=75.0, write=10.0)
"""Where health is asked for, and metrics."""
BODY_SECONDS = 2.0
"""How long the rest of a body is passed over that nobody wants."""
MAX_LINE = 8 * 1024
"""Bytes of a request's first line, and of each header."""
MAX_HEADERS = 64
_END_SECONDS = 0.1
_TEXT = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """The answer to a request.

    Attributes:
        headers: further headers.
        parts: more of the body, sent as it comes and in chunks; the connection is closed after it.
    """

    status: HTTPStatus
    body: bytes
    content_type: str = _TEXT
    headers: Mapping[str, str] = {}
    parts: AsyncGenerator[bytes, None] | None = None


class HTTPRequest(NamedTuple):
    """A request, whose body is not read yet.

    Attributes:
        path, query: as they were sent.
        peer: the client's address.
        trusted: whether the client has shown a certificate that is trusted.
        body: reads the body; raises an error of aiohttp's if the client does not send it.
        method: GET, HEAD or POST.
        headers: by name, in any case; the first of several of one name.
    """

    path: str
    query: str
    peer: str
    trusted: bool
    body: Callable[[], Awaitable[bytes]]
    method: str = "GET"
    headers: Mapping[str, str] = {}


Respond = Callable[[HTTPRequest], Awaitable[Answer | None]]
"""A request's answer; None if there is nothing of its path."""


def plain(status: HTTPStatus, text: str = "") -> Answer:
    """An answer in words; without any, the status's own."""
    return Answer(status, (text or status.phrase).encode())


@asynccontextmanager
async def listening(
    where: tuple[str, int] | Path,
    respond: Respond,
    limits: ConnectionLimits | None = None,
    *,
    posts: Collection[str] = (),
    max_body: int = 0,
    grace: float = 0.0,
    **options: Any,
) -> AsyncIterator[BoundedServer]:
    """Answer requests while entered.

    Args:
        where: host ("" for all addresses) and port, or a unix socket, which replaces one that is there.
        respond: returns the answer.
        limits: how much clients may use; `LIMITS` unless given.
        posts: the paths of POST requests; all others take GET and HEAD alone.
        max_body: bytes of a request's body.
        grace: seconds in which requests may still be answered at the end; then they are broken off.
        options: as of `BoundedServer`.

    Raises:
        OSError: the address cannot be listened on.
    """
    port = _Port(respond, limits or LIMITS, posts, max_body)
    server = BoundedServer(limits or LIMITS, port.connection, **options)
    await server.start(where)
    try:
        yield server
    finally:
        server.close()
        if grace:
            await asyncio.sleep(0)
            port.http.pre_shutdown()
            await port.http.shutdown(grace)
        server.end()
        await port.http.shutdown(_END_SECONDS)


class _Connection(BoundedConnection):
    """A connection, on the clock."""

    def __init__(self, server: BoundedServer, peer: Hashable, port: _Port) -> None:
        super().__init__(server, peer, port.http())
        self._port = port
        self._ahead = 0

    def begin(self) -> None:
        super().begin()
        self._port.connections[self.handler] = self

    def receive(self, data: bytes) -> None:
        if self.answering:
            self._ahead += len(data)
        elif not self.held:
            self.wait(self.limits.request)
        self.held += len(data)
        super().receive(data)
        self.server.hold(len(data))

    def read(self) -> None:
        """The request is complete; the peer's time no longer runs."""
        self.answering = True
        self._ahead = 0
        self.wait(None)
        self.server.note(self)

    def take_next(self) -> None:
        """The request is answered, and the next one may come."""
        if self.gone:
            return
        self.answering = False
        self.server.hold(self._ahead - self.held)
        self.held = self._ahead
        self.wait(self.limits.request if self.held else self.limits.idle)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._port.connections.pop(self.handler, None)


class _Port:
    """aiohttp's server, and each connection by its handler."""

    def __init__(self, respond: Respond, limits: ConnectionLimits, posts: Collection[str], max_body: int) -> None:
        self._respond, self._posts = respond, posts
        self.connections: dict[object, _Connection] = {}
        loop = asyncio.get_running_loop()

        def request(message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]) -> BaseRequest:
            return BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=max_body)

        self.http = Server(
            self._handle,
            request_factory=request,
            access_log=None,
            logger=_of_aiohttp(),
            keepalive_timeout=limits.idle,
            lingering_time=BODY_SECONDS,
            max_line_size=MAX_LINE,
            max_field_size=MAX_LINE,
            max_headers=MAX_HEADERS,
            auto_decompress=False,
        )

    def connection(self, server: BoundedServer, peer: Hashable) -> _Connection:
        return _Connection(server, peer, self)

    async def _handle(self, request: BaseRequest) -> StreamResponse:
        connection = self.connections.get(request.protocol)
        if connection is None or connection.gone:
            raise ConnectionResetError("the connection was broken off")
        path, _, query = request.raw_path.partition("?")
        posted = path in self._posts
        unread = request.body_exists
        if not posted:
            connection.read()

        async def body() -> bytes:
            nonlocal unread
            try:
                read = await request.read()
            except Exception as problem:
                clear_frames(problem.__traceback__)  # a cut-off request's memory is freed now, not by the next GC
                raise
            unread = False
            connection.read()
            return read

        try:
            methods = ("POST",) if posted else ("GET", "HEAD")
            if request.method not in methods:
                answer = plain(HTTPStatus.METHOD_NOT_ALLOWED)
            else:
                peer, sent = str(connection.peer), request.headers
                asked = HTTPRequest(path, query, peer, connection.trusted, body, request.method, sent)
                answer = await self._answer(asked)
            headers = {"Content-Type": answer.content_type, **answer.headers}
            if answer.parts is not None:
                return await _stream(request, StreamResponse(status=answer.status, headers=headers), answer)
            response = Response(status=answer.status, body=answer.body, headers=headers)
            if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
                response.headers["Allow"] = ", ".join(methods)
            if unread:
                response.force_close()
            return response
        finally:
            connection.take_next()

    async def _answer(self, request: HTTPRequest) -> Answer:
        try:
            return await self._respond(request) or plain(HTTPStatus.NOT_FOUND)
        except RequestPayloadError:
            return plain(HTTPStatus.BAD_REQUEST)
        except (HTTPException, HttpProcessingError, OSError):
            raise
        except Exception:
            log.exception("%s", request.path)
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR)


async def _stream(request: BaseRequest, response: StreamResponse, answer: Answer) -> StreamResponse:
    """Send an answer as its parts come; a client that goes away ends it."""
    assert answer.parts is not None
    response.force_close()
    await response.prepare(request)
    await response.write(answer.body)
    async with aclosing(answer.parts) as parts:
        async for part in parts:
            await response.write(part)
    await response.write_eof()
    return response


def _of_aiohttp() -> logging.Logger:
    """The logger for aiohttp, without a client's faults, which are not errors of the process."""
    chosen = logging.getLogger(f"{__name__}.aiohttp")
    chosen.filters = [
        lambda record: not isinstance((record.exc_info or (None, None))[1], HttpProcessingError | OSError)
    ]
    return chosen
