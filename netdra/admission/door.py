"""The webhook's port: how many connections, how long each may take to ask, and how many bytes all of them may hold.

Any host that can route a packet to the port can connect. So a connection has limited time from its first byte until its
request is read, and if there is no room, the address that uses most of it gives way: a flood from one address ends its
own connections, and those of the API server go on. `netdra.admission.server` opens the door and reports each request
that was read and answered; the requests themselves are aiohttp's.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from typing import cast

from aiohttp import web

from netdra.admission import metrics

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 5.0
REQUEST_SECONDS = 5.0
"""From the first byte of a request to its last."""
IDLE_SECONDS = 120.0
"""Without a request; the API server closes its idle connections after 90 s."""
MAX_CONNECTIONS = 256
MAX_HELD = 32 * 1024 * 1024
"""Bytes of unanswered requests, of all connections."""

Handler = Callable[[], asyncio.Protocol]


class Connection(asyncio.Protocol):
    """One connection, between the transport and the handler of its requests.

    Attributes:
        address: the peer's address.
        trusted: whether it has shown a certificate that the door trusts.
        answering: whether its request was read, and waits for the answer.
        gone: whether it no longer counts.
        held: bytes of the request that is being read or answered.
    """

    def __init__(self, door: Door, raw: asyncio.Transport) -> None:
        self._door = door
        self._handler = door.handler()
        self._transport = raw
        self._entered = False
        self._before: list[bytes] = []
        self._ahead = 0
        self._timer: asyncio.TimerHandle | None = None
        self.answering = False
        self.gone = False
        self.held = 0
        self.trusted = False
        peer = raw.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""

    async def enter(self, tls: ssl.SSLContext) -> None:
        """Shake hands, and hand on the bytes that come from now on."""
        loop = asyncio.get_running_loop()
        try:
            made = await loop.start_tls(
                self._transport, self, tls, server_side=True, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        except (OSError, asyncio.CancelledError) as problem:  # an SSLError is an OSError
            log.debug("%s: %s", self.address, problem)
            self._transport.abort()
            self._door.left(self)
            return
        if made is None:  # it went meanwhile
            self._door.left(self)
            return
        self._transport = made
        self._entered = True
        self.trusted = self._door.trusts(made.get_extra_info("peercert"))
        self._handler.connection_made(made)
        self._door.handlers[self._handler] = self
        self._wait(IDLE_SECONDS)
        for data in self._before:
            self.data_received(data)
        self._before.clear()

    def data_received(self, data: bytes) -> None:
        """Count the bytes, and hand them on."""
        if not self._entered:
            self._before.append(data)
            return
        if self.answering:
            self._ahead += len(data)
        elif not self.held:
            self._wait(REQUEST_SECONDS)
        self.held += len(data)
        self._handler.data_received(data)
        self._door.holds(len(data))

    def read(self) -> None:
        """The request is complete; the peer's time no longer runs."""
        self.answering = True
        self._ahead = 0
        self._wait(None)

    def answered(self) -> None:
        """The request is answered, and the next one may come."""
        if self.gone:
            return
        self.answering = False
        self._door.holds(self._ahead - self.held)
        self.held = self._ahead
        self._wait(REQUEST_SECONDS if self.held else IDLE_SECONDS)

    def eof_received(self) -> bool | None:
        """The peer sends no more."""
        return self._handler.eof_received() if self._entered else None

    def connection_lost(self, problem: Exception | None) -> None:
        """The connection is gone."""
        self._wait(None)
        if self._entered:
            self._handler.connection_lost(problem)
        self._door.left(self)

    def pause_writing(self) -> None:
        """The peer reads too slowly."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._handler.resume_writing()

    def end(self, reason: str) -> None:
        """Break the connection off."""
        metrics.CONNECTIONS_ENDED.labels(reason).inc()
        self._transport.abort()

    @property
    def handler(self) -> asyncio.Protocol:
        """The handler of its requests."""
        return self._handler

    def _wait(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = None if seconds is None else loop.call_later(seconds, self.end, "late")


class _Entrance(asyncio.Protocol):
    """A connection before its handshake."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raw = cast(asyncio.Transport, transport)
        raw.pause_reading()  # until the handshake, which reads the bytes
        self._door.came(Connection(self._door, raw))


class Door(web.BaseSite):
    """The port, and all connections to it. It is closed with the runner that it was opened for."""

    def __init__(
        self, runner: web.AppRunner, address: str, port: int, tls: ssl.SSLContext, names: frozenset[str]
    ) -> None:
        """Open nothing yet.

        Args:
            runner: handles requests.
            address: where to listen.
            port: likewise.
            tls: the context to serve with; a client that shows a certificate must show one that it trusts.
            names: the common names of the API server; any name, if none is given.
        """
        super().__init__(runner)
        self._where = (address, port)
        self._tls = tls
        self._names = names
        self._open: dict[Connection, None] = {}
        self._entering: set[asyncio.Task[None]] = set()
        self._held = 0
        self.handlers: dict[object, Connection] = {}

    @property
    def name(self) -> str:
        """The door's URL."""
        return f"https://{self._where[0]}:{self._where[1]}"

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be listened on.
        """
        await super().start()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Entrance(self), *self._where, backlog=MAX_CONNECTIONS)

    def handler(self) -> asyncio.Protocol:
        """A handler of one connection's requests."""
        assert self._runner.server is not None
        return self._runner.server()

    def of(self, request: web.Request) -> Connection | None:
        """The connection of a request; None if it is gone."""
        return self.handlers.get(request.protocol)

    def trusts(self, certificate: dict[str, object] | None) -> bool:
        """Whether a connection is the API server's, by its certificate, which OpenSSL has verified already."""
        return bool(certificate) and (not self._names or not self._names.isdisjoint(_common_names(certificate or {})))

    def came(self, connection: Connection) -> None:
        """A client connected: if there is no room, the address with most connections gives way."""
        self._open[connection] = None
        task = asyncio.get_running_loop().create_task(connection.enter(self._tls))
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)
        if len(self._open) > MAX_CONNECTIONS:
            self._make_room("too many", lambda connection: 1)

    def holds(self, more: int) -> None:
        """The bytes of unanswered requests have become more, or less."""
        self._held += more
        if self._held > MAX_HELD:
            self._make_room("too much", lambda connection: connection.held)

    def left(self, connection: Connection) -> None:
        """A connection is gone."""
        if self._open.pop(connection, 0) is None:
            connection.gone = True
            self.handlers.pop(connection.handler, None)
            self._held -= connection.held

    def _make_room(self, reason: str, share: Callable[[Connection], int]) -> None:
        """End the largest connection of the address that uses most; connections that are being answered stay."""
        waiting = [connection for connection in self._open if not connection.answering and share(connection)]
        if not waiting:
            return
        takes: Counter[tuple[bool, str]] = Counter()
        for connection in waiting:
            takes[not connection.trusted, connection.address] += share(connection)
        most = max(takes, key=lambda client: (client[0], takes[client]))
        ended = max(
            (connection for connection in waiting if (not connection.trusted, connection.address) == most), key=share
        )
        self.left(ended)
        ended.end(reason)


def _common_names(certificate: dict[str, object]) -> Iterator[str]:
    for part in cast(tuple[tuple[tuple[str, str], ...], ...], certificate.get("subject", ())):
        for key, value in part:
            if key == "commonName":
                yield value
