"""Answers that are good for a while, and a bound on requests: what keeps a cloud from being asked in vain.

Used by `netdra.neutron.client` and `netdra.neutron.session`. Times are of the monotonic clock. One event loop's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass
class _Entry(Generic[V]):
    answer: asyncio.Task[V]
    asked_at: float


class Cached(Generic[K, V]):
    """Answers by question; of several callers who ask the same at once, one asks and all get its answer.

    An error is given to those who wait for it, and is not kept.
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
            ask: asks anew; its errors are raised here.
            fresh: whether an earlier answer does not count; one that is still awaited does.
        """
        entry, now = self._entries.get(key), self._clock()
        is_good = entry is not None and (
            not entry.answer.done() or not (fresh or now >= entry.asked_at + self._seconds)
        )
        if entry is None or not is_good:
            self._forget_old(now)
            entry = self._entries[key] = _Entry(asyncio.ensure_future(_awaited(ask)), now)
        try:
            # Whoever is cancelled does not end the request that others wait for.
            return await asyncio.shield(entry.answer)
        except BaseException:
            if entry.answer.done() and self._entries.get(key) is entry:
                del self._entries[key]
            raise

    def forget(self, key: K | None = None) -> None:
        """Ask anew next time: one question, or all."""
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


async def _awaited(ask: Callable[[], Awaitable[V]]) -> V:
    return await ask()


class Budget:
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
        """Wait for a token; those who came first get theirs first."""
        if self._per_second <= 0:
            return
        now = self._clock()
        self._tokens = min(self._at_once, self._tokens + (now - self._at) * self._per_second) - 1
        self._at = now
        if self._tokens < 0:
            await self._sleep(-self._tokens / self._per_second)
