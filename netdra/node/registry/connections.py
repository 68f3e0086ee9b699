"""Connections that any program of the node may open: what they cost the daemon is bounded, and pods go before them.

Used by `netdra.node.registry.service`. The registry shares its event loop with the hooks of pods, and grpclib reads
bytes as fast as they come: a program that only sends pings (RFC 9113, 6.7) would have a pod wait for seconds. Here
connections have turns: one small piece of a connection's bytes is worked on at a time, one connection after the other,
for half of the time at most, and none while a pod waits. The number of connections is bounded. A connection on which
nothing is sent is closed, and a request has to come to its end in time. A caller that does not read its answers is not
read either.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

from google.protobuf.message import Message
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.protocol import Connection, EventsProcessor, H2Protocol
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings

from netdra.node.kubelet.server import ClosingServer, Stream, received
from netdra.node.priority import PriorityGate

PIECE = 512
"""Bytes that are worked on at one time: thirty pings, or ten calls."""
BUFFER = 16 * 1024
CALLS = 32
"""How many a connection may have at one time, as it is told; all of them are cancelled at once when it is closed."""
SHARE_SECONDS = 0.002
"""For how long turns follow one another; then everything else has as long."""
_AGAIN_SECONDS = 1.0
_CREDENTIALS = struct.Struct("3i")
_WINDOW = 1024 * 1024
"""Bytes that a connection's calls may send without being answered."""
_SETTINGS = {
    SettingCodes.MAX_CONCURRENT_STREAMS: CALLS,
    SettingCodes.INITIAL_WINDOW_SIZE: 128 * 1024,
    SettingCodes.MAX_HEADER_LIST_SIZE: H2Connection.DEFAULT_MAX_HEADER_LIST_SIZE,
}

log = logging.getLogger(__name__)


class Caller(NamedTuple):
    """The process on the other end of a connection, by the kernel (unix(7), SO_PEERCRED), and the token of a call."""

    pid: int
    uid: int
    gid: int
    token: str


class Bounds(NamedTuple):
    """How much callers may use.

    Attributes:
        connections, of_user: connections at one time, and how many of these one user may have.
        request: bytes of a request.
        first: seconds until the first bytes of a connection.
        idle: seconds without bytes and without a call under way.
        reading: seconds from a call's beginning to the end of its request.
    """

    connections: int
    of_user: int
    request: int
    first: float
    idle: float
    reading: float


def of_caller(
    takes: type[Message], gives: type[Message], call: Callable[[Any, Caller], Awaitable[Message]], bounds: Bounds
) -> Handler:
    """A method with one answer to one request, whose function also gets the caller."""

    async def answer(stream: Stream) -> None:
        try:
            async with asyncio.timeout(bounds.reading):
                request = await received(takes, stream, bounds.request)
        except TimeoutError:
            what = f"the request did not come within {bounds.reading:.0f} s"
            raise GRPCError(Status.DEADLINE_EXCEEDED, what) from None
        await stream.send_message(await call(request, _caller(stream)))

    return Handler(answer, Cardinality.UNARY_UNARY, takes, gives)


def _caller(stream: Stream) -> Caller:
    transport: Any = stream.peer._transport  # noqa: SLF001 (it tells addresses alone)
    given = stream.metadata.get("authorization", "") if stream.metadata is not None else ""
    kind, _, token = str(given).partition(" ")
    opened = transport.get_extra_info("socket") if transport is not None else None
    if opened is None:
        raise GRPCError(Status.UNAUTHENTICATED, "nobody knows who is calling")
    return Caller(*_credentials(opened), token.strip() if kind.lower() == "bearer" else "")


def _credentials(opened: socket.socket) -> tuple[int, int, int]:
    """The process, user and group on the other end."""
    pid, uid, gid = _CREDENTIALS.unpack(opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid, gid


class Turns:
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


class BoundedServer(ClosingServer):
    """A server whose callers are not trusted."""

    def __init__(self, *args: Any, bounds: Bounds, gate: PriorityGate, **options: Any) -> None:
        super().__init__(*args, **options)
        self._bounds = bounds
        self.turns = Turns(gate)
        self.users: Counter[int] = Counter()

    async def listen(self, opened: socket.socket) -> None:
        """Accept connections of a socket, one a turn."""
        self._server = cast(asyncio.AbstractServer, _Listener(opened, self))
        self._server_closed_fut = self._loop.create_future()

    def has_room(self, uid: int) -> bool:
        """Whether one more connection of a user is taken."""
        return self.users.total() < self._bounds.connections and self.users[uid] < self._bounds.of_user

    def connection(self, uid: int) -> asyncio.Protocol:
        """The protocol of a new connection of a user; the connection counts from now on."""
        self.users[uid] += 1
        return self.remembered(_Connection(self, self._bounds, uid, super()._protocol_factory()))

    async def end(self) -> None:
        """Take no more turns, and close what is open."""
        self.turns.end()
        await super().end()


class _Listener:
    """Accepts one connection a turn; a connection for which there is no room is closed."""

    def __init__(self, opened: socket.socket, server: BoundedServer) -> None:
        self._opened, self._server = opened, server
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._wait()

    def _wait(self) -> None:
        if self._opened.fileno() >= 0:
            self._loop.add_reader(self._opened.fileno(), self._someone_comes)

    def _someone_comes(self) -> None:
        self._loop.remove_reader(self._opened.fileno())
        self._server.turns.add(self._accept)

    def _accept(self) -> None:
        try:
            connected, _ = self._opened.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            self._wait()
            return
        except OSError as problem:  # accept(2): there are too many open files
            log.warning("the device registry accepts no connection: %s", problem.strerror)
            self._loop.call_later(_AGAIN_SECONDS, self._wait)
            return
        self._wait()
        _, uid, _ = _credentials(connected)
        if not self._server.has_room(uid):
            connected.close()
            return
        connected.setblocking(False)
        protocol = self._server.connection(uid)
        task = self._loop.create_task(self._loop.connect_accepted_socket(lambda: protocol, connected))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Accept no more."""
        if self._opened.fileno() >= 0:
            self._loop.remove_reader(self._opened.fileno())
            self._opened.close()

    async def wait_closed(self) -> None:
        """Wait for the connections that have just been accepted."""
        if self._tasks:
            await asyncio.wait(self._tasks)


class _Connection(H2Protocol, asyncio.BufferedProtocol):
    """A connection of a caller that is not trusted."""

    def __init__(self, server: BoundedServer, bounds: Bounds, uid: int, like: H2Protocol) -> None:
        super().__init__(like.handler, like.config, like.h2_config)
        self._server, self._bounds, self._uid = server, bounds, uid
        self._transport: Any = None
        self._buffer = bytearray(BUFFER)
        self._begin = self._end = 0
        self._unread = False
        self._has_turn = False
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first call."""
        self._transport = transport
        # Not as grpclib does it: its first word allows 100 calls at a time, and a client takes it at that.
        http2 = H2Connection(self.h2_config)
        http2.local_settings = Settings(client=False, initial_values=_SETTINGS)
        http2.initiate_connection()
        http2.increment_flow_control_window(_WINDOW - http2.inbound_flow_control_window)
        self.connection = Connection(http2, cast(asyncio.Transport, _Answers(transport)), config=self.config)
        self.connection.flush()
        self.connection.initialize()
        self.processor = EventsProcessor(self.handler, self.connection)
        self._watch(self._bounds.first)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came; no more are read until these have been worked on."""
        self._last = asyncio.get_running_loop().time()
        self._begin, self._end = 0, nbytes
        self._transport.pause_reading()
        self._next()

    def _next(self) -> None:
        """Wait for a turn, unless the answers are not read."""
        if not self._has_turn and not self._unread:
            self._has_turn = True
            self._server.turns.add(self._turn)

    def _turn(self) -> None:
        """Work on a piece of the bytes; bytes that are not HTTP/2 end the connection."""
        self._has_turn = False
        if self._transport.is_closing():
            return
        piece = bytes(self._buffer[self._begin : min(self._end, self._begin + PIECE)])
        self._begin += len(piece)
        try:
            self.data_received(piece)
        except Exception as problem:  # noqa: BLE001 (h2 and hpack raise more than grpclib expects)
            log.debug("a connection is closed: %r", problem)
            self._transport.abort()
        if len(self.processor.streams) > CALLS + CALLS // 4:
            log.debug("a connection is closed: it has %d calls at a time", len(self.processor.streams))
            self._transport.abort()
        if self._transport.is_closing():
            return
        if self._begin < self._end:
            self._next()
        elif not self._unread:
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """The other end does not read."""
        super().pause_writing()
        self._unread = True

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        self._unread = False
        if self._begin < self._end:
            self._next()
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give its place to others."""
        if self._timer is not None:
            self._timer.cancel()
        self._server.users[self._uid] -= 1
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
