"""Answers that stay valid for a while, and a bound on requests: both avoid useless requests to a cloud.

Used by `netdra.neutron.client` and `netdra.neutron.session`. Times are of the monotonic clock. One event loop's.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_LATE_SHARE = 1 / 3
"""After which part of its time limit an answer is late."""


@dataclass
class _Entry(Generic[V]):
    answer: asyncio.Task[V]
    asked_at: float


class Cached(Generic[K, V]):
    """Answers by question; of several callers with the same question at once, one asks and all get its answer.

    An error is raised to all callers that wait, and is not kept.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Know nothing yet.

        Args:
            seconds: how long an answer is good.
            clock: the time in seconds.
        """
        self._seconds, self._clock = seconds, clock
        self._entries: dict[K, _Entry[V]] = {}

    async def get(self, key: K, ask: Callable[[], Awaitable[V]], *, fresh: bool = False) -> V:
        """The answer to a question.

        Args:
            ask: asks again; its errors are raised here.
            fresh: whether an earlier answer does not count; one that is still awaited does.
        """
        entry, now = self._entries.get(key), self._clock()
        is_good = entry is not None and (
            not entry.answer.done() or not (fresh or now >= entry.asked_at + self._seconds)
        )
        if entry is None or not is_good:
            self._forget_old(now)
            entry = self._entries[key] = _Entry(asyncio.ensure_future(_ask(ask)), now)
        try:
            # A cancelled caller does not end the request, because others wait for it.
            return await asyncio.shield(entry.answer)
        except BaseException:
            if entry.answer.done() and self._entries.get(key) is entry:
                del self._entries[key]
            raise

    def forget(self, key: K | None = None) -> None:
        """Ask again next time: one question, or all."""
        if key is None:
            self._entries.clear()
        else:
            self._entries.pop(key, None)

    def has_older(self, seconds: float) -> bool:
        """Whether any answer was asked for longer ago than that."""
        return any(self._clock() - entry.asked_at > seconds for entry in self._entries.values())

    def _forget_old(self, now: float) -> None:
        for key, entry in [*self._entries.items()]:
            if entry.answer.done() and now >= entry.asked_at + self._seconds:
                del self._entries[key]


async def _ask(ask: Callable[[], Awaitable[V]]) -> V:
    return await ask()


class RequestBudget:
    """A bucket of tokens: how many requests may begin at once, and how many a second after that."""

    def __init__(
        self,
        per_second: float,
        at_once: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Begin with a full bucket.

        Args:
            per_second: 0 for no bound.
            at_once: the bucket's size.
            clock, sleep: the time in seconds, and the wait for it.
        """
        self._per_second, self._at_once, self._clock, self._sleep = per_second, at_once, clock, sleep
        self._tokens, self._at = float(at_once), clock()

    async def take(self) -> None:
        """Wait for a token, in the order of arrival."""
        if self._per_second <= 0:
            return
        now = self._clock()
        self._tokens = min(self._at_once, self._tokens + (now - self._at) * self._per_second) - 1
        self._at = now
        if self._tokens < 0:
            await self._sleep(-self._tokens / self._per_second)


class InFlight:
    """How many requests are under way at once: fewer where answers are late, so that none waits for its time limit.

    A server that works on one request at a time answers the last of eight after eight times its time. A late answer
    lowers the number to one that would have been in time; early ones raise it by one for each round of requests.

    Attributes:
        limit: the present number, at least 1.
    """

    def __init__(self, most: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with as many as there may be.

        Args:
            most: how many there may be.
            seconds: how long a request may take.
            clock: the time in seconds.
        """
        self.limit = float(most)
        self._most, self._late, self._clock = most, seconds * _LATE_SHARE, clock
        self._busy = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until another request may begin; it is under way in the block."""
        while self._busy >= int(self.limit):
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(place)
            try:
                await place
            except asyncio.CancelledError:
                self._wake()
                raise
        self._busy += 1
        began, with_it = self._clock(), self._busy
        try:
            yield
        finally:
            self._busy -= 1
            self._note(self._clock() - began, with_it)
            self._wake()

    def _note(self, seconds: float, with_it: int) -> None:
        if seconds < self._late:
            self.limit = min(float(self._most), self.limit + 1 / self.limit)
        else:
            self.limit = max(1.0, min(self.limit, with_it * self._late / seconds))

    def _wake(self) -> None:
        free = int(self.limit) - self._busy
        while self._waiting and free > 0:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                free -= 1
