"""Fair turns for clients: one address uses little while others wait, and a costly one leaves room to the others.

Used by `netdra.admission.server` for what is reviewed in its own process, and by `netdra.admission.workers`. One event
loop's.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from netdra.model.errors import TemporaryError

BUDGET_SECONDS = 1.0
"""How long a client's work may take until it counts as costly; half of what it used is forgotten in `HALF_LIFE`."""
HALF_LIFE = 30.0
WAIT_SECONDS = 1.5
"""How long a client waits for its turn; with the workers' time less than the API server waits (`timeoutSeconds`)."""
MAX_WAITING = 16 * 1024 * 1024
"""Bytes of requests that wait; past them the client with most of them is told to try again."""
MAX_CLIENTS = 1024
"""How many clients' budgets are remembered."""


class BusyError(TemporaryError):
    """A client's turn did not come in time, or others needed the memory of its request."""


class _Waiting:
    """A client's requests that wait, as pairs of size and turn."""

    def __init__(self) -> None:
        self.turns: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.size = 0


class Turns:
    """Rooms for work.

    A client never has all rooms. Those that have used their budget have all rooms but one together, and of clients that
    wait the one that has used least is next. The client "" is trusted: it is next before all others, in any room, and
    from its first request on one room is its own.
    """

    def __init__(self, rooms: int, *, wait: float = WAIT_SECONDS) -> None:
        """All rooms are free.

        Args:
            rooms: how many tasks are done at the same time.
            wait: seconds until a client that waits is told to try again.
        """
        self._rooms, self._wait = rooms, wait
        self._shared = max(1, rooms - 1)
        self._running: dict[str, int] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._size = 0
        self._used: dict[str, tuple[float, float]] = {}
        self._reserved = False

    @asynccontextmanager
    async def turn(self, client: str, size: int = 0) -> AsyncIterator[None]:
        """Be in a room while this is entered; the time counts for the client.

        Args:
            client: the client's address, "" for a trusted one.
            size: bytes that are kept while the client waits.

        Raises:
            BusyError: there is no room in time.
        """
        self._reserved = self._reserved or not client
        await self._enter(client, size)
        begun = time.monotonic()
        try:
            yield
        finally:
            self._spend(client, time.monotonic() - begun)
            self._leave(client)

    def used(self, client: str) -> float:
        """Seconds that a client has used, and that are not forgotten yet."""
        seconds, at = self._used.get(client, (0.0, 0.0))
        return seconds * math.exp2((at - time.monotonic()) / HALF_LIFE)

    async def _enter(self, client: str, size: int) -> None:
        if client not in self._waiting and self._has_room(client):
            self._running[client] = self._running.get(client, 0) + 1
            return
        waiting = self._waiting.setdefault(client, _Waiting())
        entry = size, asyncio.get_running_loop().create_future()
        waiting.turns.append(entry)
        waiting.size += size
        self._size += size
        self._make_room()
        try:
            async with asyncio.timeout(self._wait):
                await entry[1]
        except BaseException as problem:
            if entry[1].done() and not entry[1].cancelled() and entry[1].exception() is None:
                self._leave(client)  # the turn came at the moment of the end
            self._forget(client, entry)
            if isinstance(problem, TimeoutError):
                raise BusyError("too many requests at once", hint="try again") from None
            raise

    def _has_room(self, client: str) -> bool:
        if sum(self._running.values()) >= self._rooms:
            return False
        if not client:
            return True
        if self._running.get(client, 0) >= self._shared:
            return False
        counted = self._running.items()
        if self._reserved and self._rooms > 1 and sum(count for other, count in counted if other) >= self._shared:
            return False
        costly = sum(count for other, count in counted if self._is_costly(other))
        return not self._is_costly(client) or costly < self._shared

    def _is_costly(self, client: str) -> bool:
        return bool(client) and self.used(client) > BUDGET_SECONDS

    def _leave(self, client: str) -> None:
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        for following in sorted(self._waiting, key=lambda other: (bool(other), self.used(other))):
            while following in self._waiting and self._has_room(following):
                entry = self._waiting[following].turns[0]
                self._forget(following, entry)
                self._running[following] = self._running.get(following, 0) + 1
                entry[1].set_result(None)

    def _forget(self, client: str, entry: tuple[int, asyncio.Future[None]]) -> None:
        """Count a request no longer among those that wait."""
        waiting = self._waiting.get(client)
        if waiting is None or entry not in waiting.turns:
            return
        waiting.turns.remove(entry)
        waiting.size -= entry[0]
        self._size -= entry[0]
        if not waiting.turns:
            del self._waiting[client]

    def _make_room(self) -> None:
        """Send the last requests of the clients that hold most away; trusted ones are last."""
        while self._size > MAX_WAITING:
            client = max(self._waiting, key=lambda other: (bool(other), self._waiting[other].size))
            entry = self._waiting[client].turns[-1]
            self._forget(client, entry)
            entry[1].set_exception(BusyError("requests that wait take too much memory", hint="try again"))

    def _spend(self, client: str, seconds: float) -> None:
        if not client:
            return
        used = self.used(client) + seconds
        self._used.pop(client, None)
        self._used[client] = used, time.monotonic()
        while len(self._used) > MAX_CLIENTS:
            del self._used[next(iter(self._used))]
