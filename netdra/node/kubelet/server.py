"""gRPC on a unix socket, by grpclib: services are paths and functions of messages, which know nothing of the wire.

Used by `plugin`, by its services for the shape of their methods, and by `netdra.node.registry.service`. Here is what
grpclib's server does not do when it ends: it lets calls end that have begun, takes no others meanwhile, and closes its
connections. And what it does not do for a socket that strangers may open (`Bounds`): it takes no more connections than
it has room for, closes those on which nothing is said, and waits for no request without an end.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

import grpclib.server
from google.protobuf.message import DecodeError, Message
from grpclib.config import Configuration
from grpclib.const import Cardinality, Handler, Status
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError
from grpclib.protocol import H2Protocol

from netdra.node.priority import PriorityGate

Methods = Mapping[str, Handler]
"""By their paths: `/package.Service/Method`."""
Stream = grpclib.server.Stream[Any, Any]


class Caller(NamedTuple):
    """Who is on the other end of a connection, as the kernel says (unix(7), SO_PEERCRED), and the token of a call."""

    pid: int
    uid: int
    gid: int
    token: str


class Bounds(NamedTuple):
    """What a server takes of strangers.

    Attributes:
        connections: at one time, and how many of these one user may have.
        request: bytes of a request.
        first: seconds until something is said on a connection.
        idle: seconds in which nothing is said and nothing is under way.
        reading: seconds from a call's beginning to the end of its request.
        gate: what goes first: nothing more is read of a connection while something is in hand.
    """

    connections: int
    of_user: int
    request: int
    first: float
    idle: float
    reading: float
    gate: PriorityGate | None = None


MAX_REQUEST = 4 * 1024 * 1024
"""Bytes: what gRPC servers in Go take if they are not told otherwise, as DRA drivers in Go are not."""
_CLOSE_SECONDS = 1.0
_READING_SECONDS = 10.0
_HEAD = struct.Struct(">?I")
_CREDENTIALS = struct.Struct("3i")
_STRANGERS = Configuration(http2_connection_window_size=1024 * 1024, http2_stream_window_size=128 * 1024)

log = logging.getLogger(__name__)


def unary(takes: type[Message], gives: type[Message], call: Callable[[Any], Awaitable[Message]]) -> Handler:
    """A method with one answer to one request."""

    async def answer(stream: Stream) -> None:
        await stream.send_message(await call(await _request(takes, stream)))

    return Handler(answer, Cardinality.UNARY_UNARY, takes, gives)


def of_caller(
    takes: type[Message], gives: type[Message], call: Callable[[Any, Caller], Awaitable[Message]], bounds: Bounds
) -> Handler:
    """A method with one answer to one request, that asks who is calling."""

    async def answer(stream: Stream) -> None:
        try:
            async with asyncio.timeout(bounds.reading):
                request = await _request(takes, stream, bounds.request)
        except TimeoutError:
            what = f"the request did not come within {bounds.reading:.0f} s"
            raise GRPCError(Status.DEADLINE_EXCEEDED, what) from None
        await stream.send_message(await call(request, _caller(stream)))

    return Handler(answer, Cardinality.UNARY_UNARY, takes, gives)


def _caller(stream: Stream) -> Caller:
    transport = stream.peer._transport  # noqa: SLF001 (it tells addresses alone)
    given = stream.metadata.get("authorization", "") if stream.metadata is not None else ""
    kind, _, token = str(given).partition(" ")
    return Caller(*_credentials(transport), token.strip() if kind.lower() == "bearer" else "")


def _credentials(transport: Any) -> tuple[int, int, int]:
    opened = transport.get_extra_info("socket") if transport is not None else None
    if opened is None:
        raise GRPCError(Status.UNAUTHENTICATED, "nobody knows who is calling")
    found: tuple[int, int, int] = _CREDENTIALS.unpack(
        opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return found


def streaming(
    takes: type[Message], gives: type[Message], call: Callable[[Any], AsyncGenerator[Message, None]]
) -> Handler:
    """A method whose answers to one request come until they end."""

    async def answer(stream: Stream) -> None:
        async with asyncio.timeout(_READING_SECONDS):
            request = await _request(takes, stream)
        async with aclosing(call(request)) as answers:
            async for each in answers:
                await stream.send_message(each)

    return Handler(answer, Cardinality.UNARY_STREAM, takes, gives)


async def _request(takes: type[Message], stream: Stream, most: int = MAX_REQUEST) -> Message:
    """The request of a call, if it is not too large: grpclib itself takes what comes, whole.

    The framing is gRPC's: whether it is compressed, its length in four bytes, and the message.
    """
    data = stream._stream  # noqa: SLF001 (its own recv_message has no limit)
    head = await data.recv_data(_HEAD.size)
    if len(head) < _HEAD.size:
        raise GRPCError(Status.INTERNAL, "the call has no request")
    compressed, length = _HEAD.unpack(head)
    if compressed:
        raise GRPCError(Status.UNIMPLEMENTED, "the request is compressed")
    if length > most:
        raise GRPCError(
            Status.RESOURCE_EXHAUSTED, f"the request has {length} bytes, more than the {most} that are taken"
        )
    try:
        return takes.FromString(await data.recv_data(length))
    except DecodeError:
        raise GRPCError(Status.INVALID_ARGUMENT, f"the request is no {takes.DESCRIPTOR.full_name}") from None


class Server:
    """Services on one socket. One event loop's."""

    def __init__(self, methods: Methods, bounds: Bounds | None = None) -> None:
        self._methods = methods
        self._server = _Server([self], codec=ProtoCodec(), config=_STRANGERS if bounds else None)
        self._server.bounds = bounds
        self._calls = 0
        self._ending = False
        self._idle = asyncio.Event()
        self._idle.set()

    def __mapping__(self) -> dict[str, Handler]:
        """The methods as grpclib asks for them."""
        return {path: method._replace(func=self._counted(method.func)) for path, method in self._methods.items()}

    async def start(self, path: Path | socket.socket) -> None:
        """Make the socket and serve on it, or on one that listens already.

        Raises:
            OSError: it cannot be made.
        """
        if isinstance(path, socket.socket):
            await self._server.start(sock=path)
        else:
            await self._server.start(path=str(path))

    async def stop(self, grace: float) -> None:
        """Take no more calls, and let those end that have begun.

        Args:
            grace: seconds that they have; then they are cancelled, and their callers find the connection closed.
        """
        self._ending = True
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._idle.wait()
        await self._server.end()

    def _counted(self, method: Callable[[Stream], Awaitable[None]]) -> Callable[[Stream], Awaitable[None]]:
        async def answer(stream: Stream) -> None:
            if self._ending:
                raise GRPCError(Status.UNAVAILABLE, "the driver is ending")
            self._calls += 1
            self._idle.clear()
            try:
                await method(stream)
            finally:
                self._calls -= 1
                if not self._calls:
                    self._idle.set()

        return answer


class _Bounded(H2Protocol):
    """A connection that a stranger may have opened."""

    def __init__(self, server: _Server, bounds: Bounds, like: H2Protocol) -> None:
        super().__init__(like.handler, like.config, like.h2_config)
        self._server, self._bounds = server, bounds
        self._uid: int | None = None
        self._transport: Any = None
        self._last = 0.0
        self._paused: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take it, if there is room."""
        super().connection_made(transport)
        _, uid, _ = _credentials(transport)
        users, self._transport = self._server.users, transport
        if users.total() >= self._bounds.connections or users[uid] >= self._bounds.of_user:
            self._transport.abort()
            return
        self._uid = uid
        users[uid] += 1
        self._watch(self._bounds.first)

    def data_received(self, data: bytes) -> None:
        """Something was said; what is no HTTP/2 ends the connection, and so does saying no call for long."""
        self._last = asyncio.get_running_loop().time()
        try:
            super().data_received(data)
        except Exception as problem:  # noqa: BLE001 (h2 and hpack raise more than grpclib expects)
            log.debug("a connection is closed: %r", problem)
            self._transport.abort()
            return
        gate = self._bounds.gate
        if gate is not None and gate.busy and self._paused is None:
            self._transport.pause_reading()
            self._paused = asyncio.get_running_loop().create_task(self._resume(gate))

    async def _resume(self, gate: PriorityGate) -> None:
        await gate.wait()
        self._paused = None
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give its place to others."""
        if self._timer is not None:
            self._timer.cancel()
        if self._paused is not None:
            self._paused.cancel()
        if self._uid is not None:
            self._server.users[self._uid] -= 1
            self._uid = None
        super().connection_lost(exc)

    def _watch(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        quiet = asyncio.get_running_loop().time() - self._last
        connection = self.connection
        called = bool(connection.streams_succeeded or connection.streams_failed)
        if self.processor.streams or (called and quiet < self._bounds.idle):
            self._watch(self._bounds.idle)
        else:
            self._transport.abort()


class _Server(grpclib.server.Server):
    """A server that closes its connections with itself."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connections = WeakSet[H2Protocol]()
        self.bounds: Bounds | None = None
        self.users: Counter[int] = Counter()

    def _protocol_factory(self) -> H2Protocol:
        protocol = super()._protocol_factory()
        if self.bounds is not None:
            protocol = _Bounded(self, self.bounds, protocol)
        self._connections.add(protocol)
        return protocol

    async def end(self) -> None:
        """Cancel the calls, close the connections, and wait for both."""
        self.close()
        await asyncio.sleep(0)  # what has just been accepted is among the others after that
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                for each in tuple(self._connections):
                    while not hasattr(each, "processor"):  # noqa: ASYNC110 (its transport is being made)
                        await asyncio.sleep(0)
                    each.processor.close("the driver has ended")
                await self.wait_closed()
