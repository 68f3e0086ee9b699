"""gRPC for any program of the node: the daemon's cost for its connections is bounded, and pods go before them.

Used by `netdra.node.registry.service`; the number of connections and their time are bounded by `netdra.ops.bounded`.
The registry shares its event loop with the hooks of pods, and grpclib reads bytes as fast as they come: a program that
only sends pings (RFC 9113, 6.7) would have a pod wait for seconds. Here connections have turns: one small piece of a
connection's bytes is worked on at a time, one connection after the other, for half of the time at most, and none while
a pod waits. A request must end in time. A caller that does not read its answers is not read either.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable
from contextlib import aclosing, asynccontextmanager, nullcontext
from typing import Any, NamedTuple, cast

from google.protobuf.message import Message
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.protocol import AbstractHandler, Connection, H2Protocol
from grpclib.protocol import Stream as H2Stream
from h2.connection import H2Connection
from h2.events import RequestReceived
from h2.settings import SettingCodes, Settings

from netdra.node.kubelet.server import ClosingServer, KnownEvents, Stream, receive
from netdra.node.priority import PriorityGate
from netdra.node.registry.peers import credentials, is_node_root
from netdra.ops.bounded import BoundedConnection, BoundedServer, ConnectionLimits

PIECE = 512
"""Bytes that are worked on at one time: thirty pings, or ten calls."""
BUFFER = 16 * 1024
MAX_REQUEST = 64 * 1024
"""Bytes of a request."""
MAX_TALK = 64
"""Requests of a call that has a stream of them."""
CALLS = 32
"""How many a connection may have at one time, as it is told; all of them are cancelled at once when it is closed."""
SHARE_SECONDS = 0.002
"""For how long turns follow one another; then everything else has as long."""
_WINDOW = 256 * 1024
"""Bytes that a connection's calls may send without being answered."""
_HEADERS = 24 * 1024
"""Bytes of a call's headers: a token has up to 16 KiB."""
_FRAGMENTS = 4
"""Frames that one call's headers may come in; 16 KiB fit into each."""
_CALL_BYTES = 8 * 1024
"""What a call costs, whatever it has sent: its task and its objects, about."""
_FRAME_BYTES = 512
"""What a frame costs that waits for the rest of its message, whatever it holds, about."""
_SETTINGS = {
    SettingCodes.MAX_CONCURRENT_STREAMS: CALLS,
    SettingCodes.INITIAL_WINDOW_SIZE: 128 * 1024,
    SettingCodes.MAX_HEADER_LIST_SIZE: _HEADERS,
}

log = logging.getLogger(__name__)


class Caller(NamedTuple):
    """The process that calls, by the kernel; the token of its call; whether it is root of the node."""

    pid: int
    uid: int
    gid: int
    token: str
    is_root: bool = False


class AnswerSlots:
    """How many answers there may be at one time, of one user and of all."""

    def __init__(self, of_user: int, most: int) -> None:
        self._of_user, self._most = of_user, most
        self._users: Counter[int] = Counter()
        self._freed = asyncio.Condition()

    def is_free(self, uid: int) -> bool:
        """Whether a user may have another one now."""
        return self._users[uid] < self._of_user and self._users.total() < self._most

    @asynccontextmanager
    async def place(self, uid: int) -> AsyncIterator[None]:
        """Wait for a place, and have it while the body runs."""
        async with self._freed:
            await self._freed.wait_for(lambda: self.is_free(uid))
            self._users[uid] += 1
        try:
            yield
        finally:
            self._users[uid] -= 1
            if not self._users[uid]:
                del self._users[uid]
            async with self._freed:
                self._freed.notify_all()


def of_caller(
    takes: type[Message],
    gives: type[Message],
    call: Callable[[Any, Caller], Awaitable[Message]],
    limits: ConnectionLimits,
    places: AnswerSlots | None = None,
) -> Handler:
    """A method with one answer to one request, whose function also gets the caller.

    Args:
        takes, gives: the messages.
        call: makes the answer.
        limits: how long the request and the answer may take on their way.
        places: how many answers may be on their way; without it any number.
    """

    async def answer(stream: Stream) -> None:
        async with _within(limits.request, "the request did not come"):
            request = await receive(takes, stream, MAX_REQUEST)
        caller = _caller(stream)
        async with places.place(caller.uid) if places is not None else nullcontext():
            message = await call(request, caller)
            async with _within(limits.request, "the answer was not read"):
                await stream.send_message(message)

    return Handler(answer, Cardinality.UNARY_UNARY, takes, gives)


def streaming_to_caller(
    takes: type[Message],
    gives: type[Message],
    call: Callable[[Any], AsyncGenerator[Message, None]],
    limits: ConnectionLimits,
    places: AnswerSlots,
) -> Handler:
    """A method with a stream of answers to one request; a call beyond the limit is rejected."""

    async def answer(stream: Stream) -> None:
        uid = _caller(stream).uid
        async with _within(limits.request, "the request did not come"):
            request = await receive(takes, stream, MAX_REQUEST)
        async with _place(places, uid), aclosing(call(request)) as answers:
            async for message in answers:
                async with _within(limits.request, "the answer was not read"):
                    await stream.send_message(message)

    return Handler(answer, Cardinality.UNARY_STREAM, takes, gives)


def talking(
    takes: type[Message],
    gives: type[Message],
    call: Callable[[Any], Message],
    limits: ConnectionLimits,
    places: AnswerSlots,
) -> Handler:
    """A method with an answer to each request of a stream, up to `MAX_TALK` of them."""

    async def answer(stream: Stream) -> None:
        async with _place(places, _caller(stream).uid):
            for _ in range(MAX_TALK):
                async with _within(limits.request, "the next request did not come"):
                    request = await receive(takes, stream, MAX_REQUEST, may_end=True)
                if request is None:
                    return
                async with _within(limits.request, "the answer was not read"):
                    await stream.send_message(call(request))
            raise GRPCError(Status.RESOURCE_EXHAUSTED, f"more than {MAX_TALK} requests in one call")

    return Handler(answer, Cardinality.STREAM_STREAM, takes, gives)


@asynccontextmanager
async def _place(places: AnswerSlots, uid: int) -> AsyncIterator[None]:
    if not places.is_free(uid):
        raise GRPCError(Status.RESOURCE_EXHAUSTED, "too many calls of this user, or of all, have open streams")
    async with places.place(uid):
        yield


@asynccontextmanager
async def _within(seconds: float, late: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise GRPCError(Status.DEADLINE_EXCEEDED, f"{late} within {seconds:.0f} s") from None


def _caller(stream: Stream) -> Caller:
    transport: Any = stream.peer._transport  # noqa: SLF001 (it tells addresses alone)
    given = stream.metadata.get("authorization", "") if stream.metadata is not None else ""
    kind, _, token = str(given).partition(" ")
    opened = transport.get_extra_info("socket") if transport is not None else None
    if opened is None:
        raise GRPCError(Status.UNAUTHENTICATED, "the caller is unknown")
    token = token.strip() if kind.lower() == "bearer" else ""
    return Caller(*credentials(opened), token, is_node_root(opened))


class ReadingTurns:
    """Pieces of work that can wait, one after the other. One event loop's."""

    def __init__(self, gate: PriorityGate) -> None:
        """Begin without any.

        Args:
            gate: the pods' hooks and calls, which go first.
        """
        self._gate = gate
        self._pieces: deque[Callable[[], None]] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, piece: Callable[[], None]) -> None:
        """Append a piece of work; its turn comes after all others that wait."""
        self._pieces.append(piece)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def end(self) -> None:
        """Forget all pieces of work."""
        self._pieces.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        spent = 0.0
        while self._pieces:
            await self._gate.wait()
            begun = clock()
            self._pieces.popleft()()
            spent += clock() - begun
            # Tasks that this piece began run before the next piece, and so does all other work of the loop.
            await asyncio.sleep(spent if spent >= SHARE_SECONDS else 0)
            spent = 0.0 if spent >= SHARE_SECONDS else spent


async def _refuse_method(_: Stream) -> None:
    raise GRPCError(Status.UNIMPLEMENTED, "method not found")


class _Served(dict[str, Handler]):
    """The methods; another path is a method, too, which is not implemented.

    grpclib's own answer to it has no content-type, without which grpc-go takes it for no answer of gRPC at all.
    """

    def get(self, key: str, _: Any = None) -> Handler:
        return super().get(key, _UNIMPLEMENTED)


_UNIMPLEMENTED = Handler(_refuse_method, Cardinality.UNARY_UNARY, Message, Message)


class RegistryServer(ClosingServer):
    """grpclib's server, whose callers are not trusted."""

    def __init__(self, *args: Any, limits: ConnectionLimits, gate: PriorityGate, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = limits
        self.turns = ReadingTurns(gate)

    async def listen(self, opened: socket.socket) -> None:
        """Accept connections of a socket, one a turn."""
        bounded = BoundedServer(
            self._limits, self._connect, peer_of=lambda accepted, _: credentials(accepted)[1], schedule=self.turns.add
        )
        bounded.listen(opened)
        self._server = cast(asyncio.AbstractServer, bounded)
        self._server_closed_fut = self._loop.create_future()

    def _connect(self, server: BoundedServer, uid: Hashable) -> BoundedConnection:
        like = super()._protocol_factory()
        handler: Any = like.handler
        handler.mapping = _Served(handler.mapping)
        calls = _Calls(like.handler, like.config, like.h2_config)
        self.remembered(calls)
        return _Connection(server, uid, calls)

    async def end(self) -> None:
        """Take no more turns, and close what is open."""
        self.turns.end()
        await super().end()


class _Events(KnownEvents):
    """The events of a connection, with the size of each call's headers."""

    def __init__(self, handler: AbstractHandler, connection: Connection, changed: Callable[[], None]) -> None:
        super().__init__(handler, connection)
        self.headers: dict[int, int] = {}
        self._changed = changed

    def register(self, stream: H2Stream) -> Callable[[], None]:
        """Note a call, which has ended when what this returns is called."""
        release = super().register(stream)

        def end() -> None:
            release()
            self.headers.pop(stream.id or 0, None)
            self._changed()

        return end

    def process_request_received(self, event: RequestReceived) -> None:
        """Begin a call; its headers are kept as text, and once more without what is gRPC's own."""
        self.headers[event.stream_id] = 2 * sum(len(name) + len(value) for name, value in event.headers)
        super().process_request_received(event)


class _Calls(H2Protocol):
    """The calls of a connection, fewer at a time than grpclib allows."""

    processor: _Events
    changed: Callable[[], None]
    """Called when a call has ended."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not as grpclib does it: its first word allows 100 calls at a time, and a client takes it at that.
        http2 = H2Connection(self.h2_config)
        http2.local_settings = Settings(client=False, initial_values=_SETTINGS)
        http2.initiate_connection()
        http2.increment_flow_control_window(_WINDOW - http2.inbound_flow_control_window)
        self.connection = Connection(http2, cast(asyncio.Transport, _Answers(transport)), config=self.config)
        self.connection.flush()
        self.connection.initialize()
        self.processor = _Events(self.handler, self.connection, self.changed)

    @property
    def held(self) -> int:
        """Bytes that its calls use, about: a message of single bytes costs much more than it has."""
        # grpclib and h2 have no public names for these fields.
        size = 0
        for number, stream in self.processor.streams.items():
            frames = stream.buffer._unacked.qsize() + len(stream.buffer._acked)  # noqa: SLF001
            size += _CALL_BYTES + frames * _FRAME_BYTES + stream.buffer._acked_size  # noqa: SLF001
            size += self.processor.headers.get(number, 0)
        http2 = self.connection._connection  # noqa: SLF001
        return size + max(0, _WINDOW - http2.inbound_flow_control_window)

    @property
    def fragments(self) -> int:
        """Frames of headers whose last one has not come."""
        return len(self.connection._connection.incoming_buffer._headers_buffer)  # noqa: SLF001


class _Connection(BoundedConnection, asyncio.BufferedProtocol):
    """A connection that is read in turns, and not while its answers are not read."""

    def __init__(self, server: BoundedServer, uid: Hashable, calls: _Calls) -> None:
        super().__init__(server, uid, calls)
        self._calls = calls
        calls.changed = self._count
        self._buffer = bytearray(BUFFER)
        self._begin_at = self._end_at = 0
        self._unread = False
        self._has_turn = False
        self._last = 0.0

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came; no more are read until these have been worked on."""
        self._last = asyncio.get_running_loop().time()
        self._begin_at, self._end_at = 0, nbytes
        self.transport.pause_reading()
        self._go_on()

    def _go_on(self) -> None:
        """Wait for a turn, or for more bytes; unless the answers are not read."""
        if self._unread or self.transport.is_closing():
            return
        if self._begin_at == self._end_at:
            self.transport.resume_reading()
        elif not self._has_turn:
            self._has_turn = True
            self.server.schedule(self._turn)

    def _turn(self) -> None:
        """Work on a piece of the bytes; bytes that are not HTTP/2 end the connection."""
        self._has_turn = False
        if self.transport.is_closing():
            return
        piece = bytes(self._buffer[self._begin_at : min(self._end_at, self._begin_at + PIECE)])
        self._begin_at += len(piece)
        try:
            self.receive(piece)
        except Exception as problem:  # noqa: BLE001 (h2 and hpack raise more than grpclib expects)
            log.debug("a connection is closed: %r", problem)
            self.transport.abort()
        calls = len(self._calls.processor.streams)
        if calls > CALLS + CALLS // 4 or self._calls.fragments > _FRAGMENTS:
            log.debug("a connection is closed: it has %d calls at a time, or headers in many frames", calls)
            self.transport.abort()
        self._count()
        self._go_on()

    def _count(self) -> None:
        if not self.gone and not self.transport.is_closing():
            before, self.held = self.held, self._calls.held
            self.server.hold(self.held - before)

    def pause_writing(self) -> None:
        """The other end does not read."""
        super().pause_writing()
        self._unread = True

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        self._unread = False
        self._go_on()

    def expire(self) -> None:
        """End a connection that is quiet, or that was never called."""
        quiet = asyncio.get_running_loop().time() - self._last
        connection = self._calls.connection
        called = bool(connection.streams_succeeded or connection.streams_failed)
        if self._calls.processor.streams or (called and quiet < self.limits.idle):
            self.wait(self.limits.idle)
        else:
            super().expire()


class _Answers:
    """A connection's transport for answers: once it is closed they are dropped, without a line in the log for each."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send an answer unless the connection is closed."""
        if not self._transport.is_closing():
            self._transport.write(data)
