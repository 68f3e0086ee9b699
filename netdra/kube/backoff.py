"""How long to wait before trying again: longer each time, never long, and with jitter, so that clients spread out.

Used by the reflector, the leader election and others that repeat a request. It counts attempts, not time: a clock that
jumps changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from netdra.kube.errors import ApiError
from netdra.model.errors import TemporaryError

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_SECONDS = 0.2
MOST_SECONDS = 3.0
MOST_ASKED_SECONDS = 30.0


class Backoff:
    """Doubles from `first` to `most` seconds and draws each wait from the upper half, so that clients spread out."""

    def __init__(
        self,
        first: float = FIRST_SECONDS,
        most: float = MOST_SECONDS,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Begin with the shortest wait.

        Args:
            first: the first wait's upper bound, in seconds.
            most: the upper bound of all others.
            chance: the source of the jitter: numbers from 0 to below 1.
        """
        self._first = first
        self._most = most
        self._chance = chance
        self._failures = 0

    def next(self, at_least: float = 0.0) -> float:
        """The seconds to wait after one more failure.

        Args:
            at_least: the server's wish (Retry-After); jitter comes on top, so that not all clients come back at once.
        """
        bound = min(self._most, self._first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return min(at_least, MOST_ASKED_SECONDS) + bound * (0.5 + self._chance() / 2)

    def reset(self) -> None:
        """Begin with the shortest wait again, after a success."""
        self._failures = 0


async def patiently(attempt: Callable[[], Awaitable[T]], seconds: float) -> T:
    """An attempt's result, repeated while it fails for a reason that may pass.

    Args:
        attempt: the work.
        seconds: for how long to continue; the time of the last attempt is not counted.

    Raises:
        NetdraError: of the last attempt, or of an attempt that failed for good.
    """
    backoff, clock = Backoff(), asyncio.get_running_loop().time
    deadline = clock() + seconds
    while True:
        try:
            return await attempt()
        except TemporaryError as problem:
            wait = backoff.next(problem.retry_after if isinstance(problem, ApiError) else 0.0)
            if clock() + wait > deadline:
                raise
            log.info("retrying in %.1f s: %s", wait, problem.what)
            await asyncio.sleep(wait)
