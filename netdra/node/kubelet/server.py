"""gRPC on a unix socket, by grpclib: services are paths and functions of messages, which know nothing of the wire.

Used by `plugin`, by its services for the shape of their methods, and by `netdra.node.registry`. Unlike grpclib's own
server, this one lets calls end that have begun when it stops, takes no others meanwhile, and closes its connections.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import grpclib.server
from google.protobuf.message import DecodeError, Message
from grpclib.const import Cardinality, Handler, Status
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError
from grpclib.metadata import decode_metadata
from grpclib.protocol import EventsProcessor, H2Protocol
from grpclib.protocol import Stream as H2Stream
from h2.events import Event, RequestReceived
from hyperframe.frame import GoAwayFrame

log = logging.getLogger(__name__)

Methods = Mapping[str, Handler]
"""By their paths: `/package.Service/Method`."""
Stream = grpclib.server.Stream[Any, Any]
MAX_REQUEST = 4 * 1024 * 1024
"""Bytes: the limit of gRPC servers in Go unless they are configured otherwise, as DRA drivers in Go are not."""
_CLOSE_SECONDS = 1.0
_LEAVE_SECONDS = 1.0
_LOOK_SECONDS = 0.005
_GOAWAY = GoAwayFrame(last_stream_id=2**31 - 1).serialize()
"""No more calls, please (RFC 9113, section 6.8): a client without calls then closes the connection."""
_READING_SECONDS = 10.0
_REQUIRED = frozenset({":method", ":path"})
_HEAD = struct.Struct(">?I")


def unary(takes: type[Message], gives: type[Message], call: Callable[[Any], Awaitable[Message]]) -> Handler:
    """A method with one answer to one request."""

    async def answer(stream: Stream) -> None:
        await stream.send_message(await call(await receive(takes, stream)))

    return Handler(answer, Cardinality.UNARY_UNARY, takes, gives)


def streaming(
    takes: type[Message], gives: type[Message], call: Callable[[Any], AsyncGenerator[Message, None]]
) -> Handler:
    """A method with a stream of answers to one request."""

    async def answer(stream: Stream) -> None:
        async with asyncio.timeout(_READING_SECONDS):
            request = await receive(takes, stream)
        async with aclosing(call(request)) as answers:
            async for message in answers:
                await stream.send_message(message)

    return Handler(answer, Cardinality.UNARY_STREAM, takes, gives)


async def receive(
    takes: type[Message], stream: Stream, most: int = MAX_REQUEST, *, may_end: bool = False
) -> Message | None:
    """The request of a call, if it is not too large: grpclib itself takes a request of any size.

    None is the end of a stream of requests, if it `may_end`.

    The framing is gRPC's: whether the message is compressed, its length in four bytes, and the message.
    """
    data = stream._stream  # noqa: SLF001 (its own recv_message has no limit)
    head = await _bytes_of(data, _HEAD.size)
    if not head and may_end:
        return None
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
        return takes.FromString(await _bytes_of(data, length))
    except DecodeError:
        raise GRPCError(Status.INVALID_ARGUMENT, f"the request is no {takes.DESCRIPTOR.full_name}") from None


async def _bytes_of(data: H2Stream, size: int) -> bytes:
    """So many bytes of a call; none at its end."""
    try:
        return await data.recv_data(size)
    except AssertionError:  # grpclib's word for a call that ends before
        raise GRPCError(Status.INTERNAL, "the call ends within its request") from None


class KnownEvents(EventsProcessor):
    """The events of a connection, without unknown frames, which HTTP/2 ignores (RFC 9113, section 4.1)."""

    def process(self, event: Event) -> None:
        """Handle what has come; grpclib would log a defect for an unknown frame, and for a call without its headers.

        Raises:
            ValueError: the headers of a call cannot be used.
        """
        if isinstance(event, RequestReceived):
            headers: Any = event.headers
            missing = _REQUIRED - {name for name, _ in headers}
            if missing:
                raise ValueError(f"a call without {', '.join(sorted(missing))}")
            decode_metadata(headers)
        if type(event) in getattr(self, "processors", ()):
            super().process(event)


class _Connection(H2Protocol):
    """A connection, which ends if what comes on it is not HTTP/2 or no call."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.processor = KnownEvents(self.handler, self.connection)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception as problem:  # noqa: BLE001 (h2 and hpack raise more than grpclib expects)
            log.debug("a connection is closed: %r", problem)
            self.processor.close("bytes that are not HTTP/2")


class ClosingServer(grpclib.server.Server):
    """A server that closes its connections with itself."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connections = WeakSet[H2Protocol]()

    def _protocol_factory(self) -> H2Protocol:
        made = super()._protocol_factory()
        return self.remembered(_Connection(made.handler, made.config, made.h2_config))

    def remembered(self, protocol: H2Protocol) -> H2Protocol:
        """Note a connection, which is then closed with the server, and return it."""
        self._connections.add(protocol)
        return protocol

    async def listen(self, opened: socket.socket) -> None:
        """Serve on a socket that listens already."""
        await self.start(sock=opened)

    async def leave(self) -> None:
        """Let the clients close the connections, for a bounded time.

        A client whose write fails, because the server has closed, does not read an answer that is there already.
        """
        await self._stop_accepting()
        made = [each.connection for each in tuple(self._connections) if hasattr(each, "processor")]
        for connection in made:
            if not connection.is_closing():
                connection._transport.write(_GOAWAY)  # noqa: SLF001 (h2 takes nothing more after its own)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                while not all(connection.is_closing() for connection in made):  # noqa: ASYNC110 (grpclib tells nobody)
                    await asyncio.sleep(_LOOK_SECONDS)

    async def end(self) -> None:
        """Cancel the calls, close the connections, and wait for both."""
        await self._stop_accepting()
        self.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                for connection in tuple(self._connections):
                    while not hasattr(connection, "processor"):  # noqa: ASYNC110 (its transport is being made)
                        await asyncio.sleep(0)
                    connection.processor.close("the driver has ended")
                await self.wait_closed()

    async def _stop_accepting(self) -> None:
        """Accept no more connections, and wait until those that were just accepted are among the others.

        asyncio loses a connection that it has accepted when its server is closed at once.
        """
        for opened in getattr(self._server, "sockets", ()):
            self._loop.remove_reader(opened)
        await asyncio.sleep(0)


class Server:
    """Services on one socket. One event loop's."""

    def __init__(self, methods: Methods, serving: Callable[..., ClosingServer] = ClosingServer) -> None:
        """Begin nothing yet.

        Args:
            methods: the methods to serve.
            serving: makes grpclib's server, of its arguments.
        """
        self._methods = methods
        self._server = serving([self], codec=ProtoCodec())
        self._calls = 0
        self._ending = False
        self._idle = asyncio.Event()
        self._idle.set()

    def __mapping__(self) -> dict[str, Handler]:
        """The methods, by the name that grpclib calls."""
        return {path: method._replace(func=self._counted(method.func)) for path, method in self._methods.items()}

    async def start(self, path: Path | socket.socket) -> None:
        """Make the socket and serve on it, or serve on a socket that listens already.

        Raises:
            OSError: the socket cannot be made.
        """
        if isinstance(path, socket.socket):
            await self._server.listen(path)
        else:
            await self._server.start(path=str(path))

    async def stop(self, grace: float) -> None:
        """Take no more calls, and let the calls end that have begun.

        Args:
            grace: seconds that these calls have; then they are cancelled, and their connections are closed.
        """
        self._ending = True
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._idle.wait()
        if not self._calls:
            await self._server.leave()
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
