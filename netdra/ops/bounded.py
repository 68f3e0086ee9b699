"""A server whose peers are not trusted: limits for connections by number, peer, time and memory.

Used by `netdra.ops.http` for health and the webhook, and by `netdra.node.registry.connections`. They state how a
connection reads its peer's protocol (`BoundedConnection`). The cost of a connection before its first request is here:
the accepted socket, the TLS handshake, and the room that it takes from others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
_BACKLOG = 256

Certificate = Mapping[str, object]


class ConnectionLimits(NamedTuple):
    """How much peers may use; times are in seconds.

    Attributes:
        connections: connections at one time.
        idle: without a request.
        request: from the first byte of a request to its last.
        of_peer: connections of one peer, and past them or `connections` a new one is refused; without it a new one is
            accepted, and another makes room.
        first: from the connection to its first request; `idle` without it.
        tls: until the handshake has ended.
        write: how long an answer may lie unread; None for any time.
        held: bytes of unanswered requests, of all connections; None for any number.
        spares_answered: a connection whose request is being answered makes no room.
    """

    connections: int
    idle: float
    request: float
    of_peer: int | None = None
    first: float | None = None
    tls: float = 5.0
    write: float | None = None
    held: int | None = None
    spares_answered: bool = False


class BoundedConnection(asyncio.Protocol):
    """One connection, between the transport and the handler of its data.

    Attributes:
        peer: who has the other end.
        handler: reads what comes, without any limits.
        trusted: whether the peer has shown a certificate that the server trusts.
        answering: whether a request was read, and waits for its answer.
        held: bytes of the request that is being read or answered.
        gone: whether it no longer counts.
    """

    def __init__(self, server: BoundedServer, peer: Hashable, handler: asyncio.Protocol) -> None:
        self.server, self.peer, self.handler = server, peer, handler
        self.limits = server.limits
        self.trusted = self.answering = self.gone = False
        self.held = 0
        self.transport: Any = None
        self._begun = False
        self._before: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """The handshake is over, if there is one; the handler has the transport now."""
        self.wait(self.limits.first or self.limits.idle)

    def receive(self, data: bytes) -> None:
        """Hand bytes on."""
        self.handler.data_received(data)

    def expire(self) -> None:
        """The time that the peer had is over."""
        self.end("late")

    def end(self, reason: str) -> None:
        """Break the connection off."""
        if not self.gone:
            self.server.count_end(reason)
        self.server.remove(self)
        if self.transport is not None:
            self.transport.abort()

    def wait(self, seconds: float | None) -> None:
        """How long the peer may take for its next action; None without one."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.expire)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, with a handshake if the server asks for one."""
        self.transport = transport
        if self.gone:  # it made room while its transport was being made
            self.transport.abort()
        elif self.server.tls is None:
            self._begin()
        else:
            self.transport.pause_reading()  # until the handshake, which reads the bytes
            self.server.run(self._shake_hands(self.server.tls))

    async def _shake_hands(self, tls: ssl.SSLContext) -> None:
        try:
            made = await asyncio.get_running_loop().start_tls(
                self.transport, self, tls, server_side=True, ssl_handshake_timeout=self.limits.tls
            )
        except (OSError, asyncio.CancelledError) as problem:  # an SSLError is an OSError
            log.debug("%s: %s", self.peer, problem)
            self.transport.abort()
            self.server.remove(self)
            return
        if made is None or self.gone:  # it went meanwhile
            self.transport.abort()
            self.server.remove(self)
            return
        self.transport = made
        self.trusted = self.server.trusts(made.get_extra_info("peercert"))
        self._begin()

    def _begin(self) -> None:
        self._begun = True
        self.handler.connection_made(self.transport)
        self.begin()
        for data in self._before:
            self.data_received(data)
        self._before.clear()

    def data_received(self, data: bytes) -> None:
        """Hand bytes on, those that came right after the handshake when the handler has its transport."""
        if not self._begun:
            self._before.append(data)
        elif not self.gone:
            self.receive(data)

    def eof_received(self) -> bool | None:
        """The peer sends no more."""
        return self.handler.eof_received() if self._begun else None

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio, once, when the peer or this side has closed the connection."""
        self.wait(None)
        if self._begun:
            self.handler.connection_lost(exc)
        self.server.remove(self)

    def pause_writing(self) -> None:
        """The peer does not read."""
        self.handler.pause_writing()
        if self.limits.write is not None:
            self.wait(self.limits.write)

    def resume_writing(self) -> None:
        """The peer reads again."""
        self.handler.resume_writing()
        if self.limits.write is not None:
            self.wait(self.limits.request if self.held else self.limits.idle)


def address_of(_: socket.socket, address: Any) -> Hashable:
    """The peer of a connection: its address without the port; "" on a unix socket."""
    return str(address[0]) if isinstance(address, tuple) else ""


class BoundedServer:
    """All connections to some sockets. One event loop's."""

    def __init__(
        self,
        limits: ConnectionLimits,
        connect: Callable[[BoundedServer, Hashable], BoundedConnection],
        *,
        peer_of: Callable[[socket.socket, Any], Hashable] = address_of,
        tls: ssl.SSLContext | None = None,
        trusts: Callable[[Certificate | None], bool] = lambda _: False,
        schedule: Callable[[Callable[[], None]], None] = lambda work: work(),
        count_end: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Listen on nothing yet.

        Args:
            limits: how much peers may use.
            connect: makes the connection of a peer.
            peer_of: the peer of an accepted socket, by which shares are counted.
            tls: the context to serve with; a client that shows a certificate must show one that it trusts.
            trusts: whether a peer is trusted by its certificate, which OpenSSL has verified already.
            schedule: does a piece of work, now or when it is its turn: one accepts one connection.
            count_end: counts a connection that is broken off, by the reason.
        """
        self.limits, self.tls, self.trusts, self.count_end = limits, tls, trusts, count_end
        self.held = 0
        self.connections: dict[BoundedConnection, None] = {}
        self.schedule = schedule
        self._connect, self._peer_of = connect, peer_of
        self._peers: Counter[Hashable] = Counter()
        self._listeners: list[_Listener] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self, where: tuple[str, int] | Path) -> None:
        """Listen on a host ("" for all addresses) and port, or on a unix socket, which replaces one that is there.

        Raises:
            OSError: the address cannot be listened on.
        """
        if isinstance(where, Path):
            opened = [_bind(where)]
        else:
            # asyncio resolves and binds; the sockets themselves are needed to accept one connection at a time.
            bound = await asyncio.get_running_loop().create_server(
                asyncio.Protocol, where[0] or None, where[1], start_serving=False
            )
            opened = [cast(Any, listening).dup() for listening in bound.sockets]
            bound.close()
        try:
            for each in opened:
                each.setblocking(False)
                each.listen(_BACKLOG)
        except OSError:
            for each in opened:
                each.close()
            raise
        for each in opened:
            self.listen(each)

    @property
    def port(self) -> int:
        """The port of the first address that it listens on."""
        return self._listeners[0].port

    def listen(self, opened: socket.socket) -> None:
        """Accept connections of a socket that listens already."""
        self._listeners.append(_Listener(opened, self))

    def close(self) -> None:
        """Accept no more."""
        for listener in self._listeners:
            listener.close()

    async def wait_closed(self) -> None:
        """Wait for the connections that have just been accepted."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def end(self) -> None:
        """Accept no more, and break off all connections."""
        self.close()
        for connection in tuple(self.connections):
            self.remove(connection)
            connection.end("")

    def run(self, work: Any) -> None:
        """Run a connection's coroutine beside the others."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def accept(self, accepted: socket.socket, address: Any) -> None:
        """Take a connection; at the limit, it is refused or the peer with most connections loses one."""
        limits, peer = self.limits, self._peer_of(accepted, address)
        if limits.of_peer is not None and (
            len(self.connections) >= limits.connections or self._peers[peer] >= limits.of_peer
        ):
            accepted.close()
            return
        accepted.setblocking(False)
        connection = self._connect(self, peer)
        self.connections[connection] = None
        self._peers[peer] += 1
        self.run(self._adopt(connection, accepted))
        if len(self.connections) > limits.connections:
            self._make_room("too many", lambda _: 1)

    async def _adopt(self, connection: BoundedConnection, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
        except OSError as problem:
            log.debug("%s: %s", connection.peer, problem)
            self.remove(connection)

    def note(self, connection: BoundedConnection) -> None:
        """A connection's request was read: of its peer's connections it makes room last."""
        if connection in self.connections:
            self.connections[connection] = self.connections.pop(connection)

    def hold(self, more: int) -> None:
        """The bytes of unanswered requests have become more, or less."""
        self.held += more
        if self.limits.held is not None and self.held > self.limits.held:
            self._make_room("too much", lambda connection: connection.held)

    def remove(self, connection: BoundedConnection) -> None:
        """Count a connection no longer."""
        if not connection.gone:
            connection.gone = True
            del self.connections[connection]
            self.held -= connection.held
            self._peers[connection.peer] -= 1
            if not self._peers[connection.peer]:
                del self._peers[connection.peer]

    def _make_room(self, reason: str, share: Callable[[BoundedConnection], int]) -> None:
        """End the largest connection of the peer that uses most, and of equal ones the one that is quiet longest."""
        candidates = [
            connection
            for connection in self.connections
            if share(connection) and not (self.limits.spares_answered and connection.answering)
        ]
        if not candidates:
            return
        uses: Counter[tuple[bool, Hashable]] = Counter()
        for connection in candidates:
            uses[not connection.trusted, connection.peer] += share(connection)
        most = max(uses, key=lambda client: (client[0], uses[client]))
        max((each for each in candidates if (not each.trusted, each.peer) == most), key=share).end(reason)


class _Listener:
    """Accepts one connection at a time."""

    def __init__(self, opened: socket.socket, server: BoundedServer) -> None:
        self._opened, self._server = opened, server
        self._loop = asyncio.get_running_loop()
        self._wait()

    def _wait(self) -> None:
        if self._opened.fileno() >= 0:
            self._loop.add_reader(self._opened.fileno(), self._schedule)

    def _schedule(self) -> None:
        self._loop.remove_reader(self._opened.fileno())
        self._server.schedule(self._accept)

    def _accept(self) -> None:
        try:
            accepted, address = self._opened.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            self._wait()
        except OSError as problem:  # accept(2): there are too many open files
            if self._opened.fileno() >= 0:
                log.warning("%s accepts no connection: %s", self._opened.getsockname(), problem.strerror)
                self._loop.call_later(_AGAIN_SECONDS, self._wait)
        else:
            self._wait()
            self._server.accept(accepted, address)

    @property
    def port(self) -> int:
        return int(self._opened.getsockname()[1])

    def close(self) -> None:
        if self._opened.fileno() >= 0:
            self._loop.remove_reader(self._opened.fileno())
            self._opened.close()


def _bind(where: Path) -> socket.socket:
    """Bind a unix socket that only our own user connects to; it replaces one that a process has left."""
    with suppress(FileNotFoundError):
        where.unlink()
    opened = socket.socket(socket.AF_UNIX)
    try:
        opened.bind(os.fspath(where))
        where.chmod(0o600)
    except OSError:
        opened.close()
        raise
    return opened
