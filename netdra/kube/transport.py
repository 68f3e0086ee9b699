"""The connections under the HTTP client: httpcore2's pool on asyncio's own sockets and TLS.

Made by `netdra.kube.connection`. httpx2 brings a transport for several event loops by way of anyio, in which a small
request costs twice the CPU time that it does here, and a burst on a node is fifty of them. Its ways are kept: the
errors are those of httpx2.
"""

# ruff: noqa: ASYNC109 (the methods of a network backend have timeouts)

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore2
import httpx2

MAX_UNREAD = 256 * 1024
"""Bytes that may lie here unread before the peer is made to wait."""
MAX_UNSENT = 64 * 1024
"""Bytes of a request that are gathered before they are sent."""
MOST = 100
"""Connections at one time. All of them are kept: a server that is slow has more requests under way, and would be slower
still if it had to greet new connections as well."""
_CLOSE_SECONDS = 1.0

# What asyncio sets aside for each encrypted connection, of which a node has twenty-five after a burst. By default it is
# four times as much, with which 80 MB are read in the same CPU time.
sslproto.SSLProtocol.max_size = 64 * 1024

SocketOption = tuple[int, int, int]


class Transport(httpx2.AsyncBaseTransport):
    """Sends requests over connections that are kept for the next ones."""

    def __init__(
        self, context: ssl.SSLContext, socket_options: Iterable[SocketOption], keep_idle_seconds: float
    ) -> None:
        """Prepare; it connects when it is used.

        Args:
            context: whom to trust, and who we are.
            socket_options: set on each connection.
            keep_idle_seconds: after how long an unused connection is closed.
        """
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=MOST,
            max_keepalive_connections=MOST,
            keepalive_expiry=keep_idle_seconds,
            socket_options=socket_options,
            network_backend=_Network(),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return its answer when its head is there."""
        url = request.url
        sent = httpcore2.Request(
            request.method,
            httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_httpx2():
            found = await self._pool.handle_async_request(sent)
        return httpx2.Response(found.status, headers=found.headers, stream=_Answer(found), extensions=found.extensions)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _Answer(httpx2.AsyncByteStream):
    """An answer's body; its connection is free again when it is closed."""

    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx2():
            async for chunk in self._answer.stream:  # type: ignore[union-attr]  # an AsyncIterable from this pool
                yield chunk

    async def aclose(self) -> None:
        with _as_httpx2():
            await self._answer.aclose()


@contextmanager
def _as_httpx2() -> Iterator[None]:
    """Errors of httpcore2 as those of httpx2, which have the same names."""
    try:
        yield
    except (
        httpcore2.TimeoutException,
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        httpcore2.UnsupportedProtocol,
    ) as problem:
        raise getattr(httpx2, type(problem).__name__)(str(problem)) from problem


class _Network(httpcore2.AsyncNetworkBackend):
    """Opens connections on the running event loop."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection that is not encrypted yet."""
        with _as_errors(httpcore2.ConnectError, httpcore2.ConnectTimeout):
            async with asyncio.timeout(timeout):
                # One address after the other: cancelled while it tries two, the event loop loses a socket.
                _, stream = await asyncio.get_running_loop().create_connection(
                    _Stream,
                    host,
                    port,
                    local_addr=(local_address, 0) if local_address else None,
                )
            for option in socket_options or ():
                stream.set_option(option)
        return stream

    async def sleep(self, seconds: float) -> None:
        """Wait between tries to connect."""
        await asyncio.sleep(seconds)


class _Stream(asyncio.Protocol, httpcore2.AsyncNetworkStream):
    """One connection, for HTTP/1.1: what is written is sent when the answer is waited for, in one piece."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unsent = bytearray()
        self._unread = bytearray()
        self._paused = False
        self._closed = False
        self._problem: Exception | None = None
        self._readable: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None

    def set_option(self, option: Any) -> None:
        self._transport.get_extra_info("socket").setsockopt(*option)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        try:
            with _as_errors(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                async with asyncio.timeout(timeout):
                    transport = await loop.start_tls(
                        self._transport, self, ssl_context, server_hostname=server_hostname
                    )
                assert transport is not None
                self._transport = transport
        except BaseException:
            await self.aclose()
            raise
        return self

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._unsent += buffer
        if len(self._unsent) > MAX_UNSENT:
            await self._flush(timeout)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._unsent:
            await self._flush(timeout)
        if not self._unread and not self._closed:
            self._readable = asyncio.get_running_loop().create_future()
            with _as_errors(httpcore2.ReadError, httpcore2.ReadTimeout):
                async with asyncio.timeout(timeout):
                    await self._readable
        if self._problem is not None and not self._unread:
            raise httpcore2.ReadError(_text(self._problem))
        chunk = bytes(self._unread[:max_bytes])
        del self._unread[:max_bytes]
        if self._paused and len(self._unread) < MAX_UNREAD:
            self._paused = False
            self._transport.resume_reading()
        return chunk

    async def aclose(self) -> None:
        # HTTP says itself where an answer ends, so nobody waits for the peer's good-bye; but for the event loop's.
        self._transport.abort()
        await asyncio.wait((self._lost,), timeout=_CLOSE_SECONDS)

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # asked of a connection that is idle: then it is of no use any more
            return bool(self._unread) or self._closed or self._transport.is_closing()
        known = {"client_addr": "sockname", "server_addr": "peername"}
        return self._transport.get_extra_info(known.get(info, info))

    async def _flush(self, timeout: float | None) -> None:
        if self._closed:
            raise httpcore2.WriteError(
                "the server closed the connection" if self._problem is None else _text(self._problem)
            )
        self._transport.write(bytes(self._unsent))
        self._unsent.clear()
        if self._writable is not None:
            with _as_errors(httpcore2.WriteError, httpcore2.WriteTimeout):
                async with asyncio.timeout(timeout):
                    await self._writable

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) > MAX_UNREAD and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        _wake(self._readable)

    def eof_received(self) -> None:
        self._closed = True
        _wake(self._readable)

    def connection_lost(self, problem: Exception | None) -> None:
        self._closed, self._problem = True, problem
        _wake(self._lost)
        _wake(self._readable)
        _wake(self._writable)

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        _wake(self._writable)
        self._writable = None


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


@contextmanager
def _as_errors(failed: type[Exception], late: type[Exception]) -> Iterator[None]:
    """Errors of the operating system, and time that is over, as what httpcore2 calls them."""
    try:
        yield
    except TimeoutError as problem:
        raise late("the server did not answer in time") from problem
    except OSError as problem:
        raise failed(_text(problem)) from problem


def _text(problem: Exception) -> str:
    return str(problem) or type(problem).__name__
