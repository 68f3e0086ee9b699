"""Fair turns for clients: one address uses little while others wait, and a costly one leaves room to the others.

Used by `netdra.admission.server` for reviews in its own process, and by `netdra.admission.workers`. One event
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

BUDGET_SECONDS = 5.0
"""How long a client's tasks may take until others that wait are next; half of it is forgotten in `HALF_LIFE`."""
HALF_LIFE = 30.0
WAIT_SECONDS = 1.5
"""How long a client waits for its turn; with the workers' time less than the API server waits (`timeoutSeconds`)."""
SMALL = 16 * 1024
"""Bytes of a request up to which its task is short: what a review takes grows with them."""
MAX_WAITING = 16 * 1024 * 1024
"""Bytes of requests that wait; beyond that, requests of the client with the most bytes are refused."""
MAX_CLIENTS = 1024
"""How many clients' budgets are remembered."""


class NoTurnError(TemporaryError):
    """A client's turn did not come in time, or others needed the memory of its request."""


class _Task:
    """A client's task: the bytes that it keeps meanwhile, its turn, and when that began."""

    def __init__(self, client: str, size: int) -> None:
        self.client, self.size = client, size
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun = 0.0


class ClientTurns:
    """Rooms for tasks.

    A client never has all rooms, and neither have large tasks together. Of clients that wait, those within their budget
    are next, then the one that has used least. The client "" is trusted: it is next before all others, in any room, and
    from its first request on one room is its own.
    """

    def __init__(self, rooms: int, *, wait: float = WAIT_SECONDS) -> None:
        """All rooms are free.

        Args:
            rooms: how many tasks are done at the same time.
            wait: seconds after which a request that waits is refused.
        """
        self._rooms, self._ready, self._wait = rooms, rooms, wait
        self._running: dict[_Task, None] = {}
        self._waiting: dict[str, deque[_Task]] = {}
        self._size = 0
        self._used: dict[str, tuple[float, float]] = {}
        self._reserved = False

    def set_ready(self, rooms: int) -> None:
        """So many of the rooms can be used now."""
        self._ready = rooms
        self._let_in()

    @asynccontextmanager
    async def turn(self, client: str, size: int = 0) -> AsyncIterator[None]:
        """Be in a room while this is entered; the time counts for the client.

        Args:
            client: the client's address, "" for a trusted one.
            size: bytes that are kept while the client waits.

        Raises:
            NoTurnError: no turn is free in time.
        """
        self._reserved = self._reserved or not client
        task = _Task(client, size)
        await self._enter(task)
        try:
            yield
        finally:
            self._leave(task)

    def used(self, client: str) -> float:
        """Seconds that a client has used, and that are not forgotten yet."""
        seconds, at = self._used.get(client, (0.0, 0.0))
        now = time.monotonic()
        running = sum(now - task.begun for task in self._running if task.client == client)
        return running + seconds * math.exp2((at - now) / HALF_LIFE)

    async def _enter(self, task: _Task) -> None:
        if task.client not in self._waiting and self._has_room(task):
            self._begin(task)
            return
        waiting = self._waiting.setdefault(task.client, deque())
        waiting.append(task)
        self._size += task.size
        self._make_room()
        try:
            async with asyncio.timeout(self._wait):
                await task.turn
        except BaseException as problem:
            if task in self._running:  # the turn came at the moment of the end
                self._leave(task)
            self._forget(task)
            if isinstance(problem, TimeoutError):
                raise NoTurnError("too many concurrent requests", hint="try again", code="ND3093") from None
            raise

    def _begin(self, task: _Task) -> None:
        task.begun = time.monotonic()
        self._running[task] = None

    def _has_room(self, task: _Task) -> bool:
        if len(self._running) >= self._ready:
            return False
        if not task.client or self._rooms == 1:
            return True
        others = [running for running in self._running if running.client]
        if sum(running.client == task.client for running in others) >= self._rooms - 1:
            return False
        if self._reserved and len(others) >= self._ready - 1:
            return False
        return task.size <= SMALL or sum(running.size > SMALL for running in others) < self._ready - 1

    def _leave(self, task: _Task) -> None:
        del self._running[task]
        self._spend(task.client, time.monotonic() - task.begun)
        self._let_in()

    def _let_in(self) -> None:
        for client in sorted(self._waiting, key=lambda other: (bool(other), max(self.used(other), BUDGET_SECONDS))):
            while client in self._waiting and (following := self._following(client)) is not None:
                self._forget(following)
                self._begin(following)
                following.turn.set_result(None)

    def _following(self, client: str) -> _Task | None:
        """The first task of a client for which there is room: a small one overtakes a large one."""
        return next((task for task in self._waiting[client] if self._has_room(task)), None)

    def _forget(self, task: _Task) -> None:
        """Count a task no longer among those that wait."""
        waiting = self._waiting.get(task.client, deque())
        if task in waiting:
            waiting.remove(task)
            self._size -= task.size
            if not waiting:
                del self._waiting[task.client]

    def _make_room(self) -> None:
        """Send the last tasks of the clients that hold most away; trusted ones are last."""
        while self._size > MAX_WAITING:
            held = {client: sum(task.size for task in waiting) for client, waiting in self._waiting.items()}
            task = self._waiting[max(held, key=lambda client: (bool(client), held[client]))][-1]
            self._forget(task)
            task.turn.set_exception(
                NoTurnError("the waiting requests use too much memory", hint="try again", code="ND3094")
            )

    def _spend(self, client: str, seconds: float) -> None:
        if not client:
            return
        used = self.used(client) + seconds
        self._used.pop(client, None)
        self._used[client] = used, time.monotonic()
        while len(self._used) > MAX_CLIENTS:
            del self._used[next(iter(self._used))]
