"""gRPC for any program of the node: the daemon's cost for its connections is bounded, and pods go before them.

Used by `netdra.node.registry.service`; the number of connections and their time are bounded by `netdra.ops.bounded`.
The registry shares its event loop with the hooks of pods, and bytes can be read as fast as they come: a program that
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
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.message import Message

from netdra.grpc.calls import GrpcCall, GrpcError, GrpcStatus, Method, Methods
from netdra.grpc.connection import Connection, GrpcLimits
from netdra.grpc.server import Server
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
_CALL_BYTES = 8 * 1024
"""What a call costs, whatever it has sent: its task and its objects, about."""
_LIMITS = GrpcLimits(calls=CALLS, headers=24 * 1024, window=16 * 1024)
"""A token has up to 16 KiB."""

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
    call: Callable[[Any, Caller], Awaitable[Message]],
    limits: ConnectionLimits,
    places: AnswerSlots | None = None,
) -> Method:
    """A method with one answer to one request, whose function also gets the caller.

    Args:
        takes: the requests.
        call: makes the answer.
        limits: how long the request and the answer may take on their way.
        places: how many answers may be on their way; without it any number.
    """

    async def answer(made: GrpcCall) -> None:
        async with _within(limits.request, "the request did not come"):
            request = await made.receive(takes, MAX_REQUEST)
        caller = _caller(made)
        async with places.place(caller.uid) if places is not None else nullcontext():
            message = await call(request, caller)
            async with _within(limits.request, "the answer was not read"):
                await made.send(message)

    return answer


def streaming_to_caller(
    takes: type[Message],
    call: Callable[[Any], AsyncGenerator[Message, None]],
    limits: ConnectionLimits,
    places: AnswerSlots,
) -> Method:
    """A method with a stream of answers to one request; a call beyond the limit is rejected."""

    async def answer(made: GrpcCall) -> None:
        uid = _caller(made).uid
        async with _within(limits.request, "the request did not come"):
            request = await made.receive(takes, MAX_REQUEST)
        async with _place(places, uid), aclosing(call(request)) as answers:
            async for message in answers:
                async with _within(limits.request, "the answer was not read"):
                    await made.send(message)

    return answer


def talking(
    takes: type[Message],
    call: Callable[[Any], Message],
    limits: ConnectionLimits,
    places: AnswerSlots,
) -> Method:
    """A method with an answer to each request of a stream, up to `MAX_TALK` of them."""

    async def answer(made: GrpcCall) -> None:
        async with _place(places, _caller(made).uid):
            for _ in range(MAX_TALK):
                async with _within(limits.request, "the next request did not come"):
                    request = await made.receive(takes, MAX_REQUEST, may_end=True)
                if request is None:
                    return
                async with _within(limits.request, "the answer was not read"):
                    await made.send(call(request))
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, f"more than {MAX_TALK} requests in one call")

    return answer


@asynccontextmanager
async def _place(places: AnswerSlots, uid: int) -> AsyncIterator[None]:
    if not places.is_free(uid):
        raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, "too many calls of this user, or of all, have open streams")
    async with places.place(uid):
        yield


@asynccontextmanager
async def _within(seconds: float, late: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise GrpcError(GrpcStatus.DEADLINE_EXCEEDED, f"{late} within {seconds:.0f} s") from None


def _caller(made: GrpcCall) -> Caller:
    kind, _, token = made.headers.get("authorization", "").partition(" ")
    opened = made.socket
    if opened is None:
        raise GrpcError(GrpcStatus.UNAUTHENTICATED, "the caller is unknown")
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


class RegistryServer(Server):
    """A server whose callers are not trusted."""

    def __init__(self, methods: Methods, limits: ConnectionLimits, gate: PriorityGate) -> None:
        """Listen on nothing yet.

        Args:
            methods: the methods to serve.
            limits: how many connections there may be, of one user and of all, and for how long.
            gate: the pods' hooks and calls, which go first.
        """
        super().__init__(methods, _LIMITS)
        self.turns = ReadingTurns(gate)
        self._bounded = BoundedServer(
            limits, self._accept, peer_of=lambda accepted, _: credentials(accepted)[1], schedule=self.turns.add
        )

    async def start(self, where: Path | socket.socket) -> None:
        """Accept connections of a socket, one a turn."""
        assert isinstance(where, socket.socket)
        self._bounded.listen(where)

    def _accept(self, server: BoundedServer, uid: Hashable) -> BoundedConnection:
        return _Connection(server, uid, self.connect())

    async def stop_accepting(self) -> None:
        """Accept no more connections, and wait for those that were just accepted."""
        self._bounded.close()
        await self._bounded.wait_closed()

    async def stop(self, grace: float) -> None:
        """Let the calls end, close the connections, and take no more turns."""
        try:
            await super().stop(grace)
        finally:
            self.turns.end()


class _Connection(BoundedConnection, asyncio.BufferedProtocol):
    """A connection that is read in turns, and not while its answers are not read."""

    def __init__(self, server: BoundedServer, uid: Hashable, connection: Connection) -> None:
        super().__init__(server, uid, connection)
        self._connection = connection
        connection.ended, connection.set_reading = self._count, self._read
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
        self.receive(piece)
        self._count()
        self._go_on()

    def _count(self) -> None:
        if not self.gone and not self.transport.is_closing():
            calls = len(self._connection.calls)
            before, self.held = self.held, self._connection.held + calls * _CALL_BYTES
            self.server.hold(self.held - before)

    def _read(self, reads: bool) -> None:
        """Continue to read, or stop: the other end does not read."""
        self._unread = not reads
        if reads:
            self._go_on()

    def expire(self) -> None:
        """End a connection that is quiet, or that was never called."""
        quiet = asyncio.get_running_loop().time() - self._last
        connection = self._connection
        if connection.calls or (connection.called and quiet < self.limits.idle):
            self.wait(self.limits.idle)
        else:
            super().expire()
