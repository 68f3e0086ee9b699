"""The increase of a counter over a time, from samples with gaps, resets and wraps. Pure.

Called by `netdra.health.watch`. A counter that is smaller than before was reset, or it has 32 bits and began again
after 2^32 - 1: some drivers and the InfiniBand port counters have 32 bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

WRAP = 2**32
NEAR = 2**28
"""How near to its end a counter of 32 bits must have been to count as wrapped, and how near to 0 it must be then."""
MAX_STEPS = 64
"""How many increases of a counter are kept; older ones are joined."""
SHOWN = 4
"""How many of the last values are kept as evidence."""


def increase(before: int, now: int) -> int:
    """The increase between two values of a counter, never more than really happened.

    After a reset, it is the value, which was counted since then.
    """
    if now >= before:
        return now - before
    if before < WRAP and before >= WRAP - NEAR and now < NEAR:
        return now + WRAP - before
    return now


class Counted:
    """The increases of one counter. Times are seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._steps: deque[tuple[float, int]] = deque()
        self._values: deque[tuple[float, int]] = deque(maxlen=SHOWN)

    def add(self, at: float, value: int) -> None:
        """Note a value. The first one is the base: a counter may have counted for years."""
        if self._last is not None and (grown := increase(self._last, value)):
            self._steps.append((at, grown))
            if len(self._steps) > MAX_STEPS:
                (_, first), (later, second) = self._steps.popleft(), self._steps.popleft()
                self._steps.appendleft((later, first + second))
        if not self._values or self._values[-1][1] != value:
            self._values.append((at, value))
        self._last = value

    def within(self, now: float, seconds: float) -> int:
        """The increase in the last so many seconds."""
        return sum(grown for at, grown in self._steps if at > now - seconds)

    def forget(self, before: float) -> None:
        """Forget increases of before that time."""
        while self._steps and self._steps[0][0] <= before:
            self._steps.popleft()

    @property
    def values(self) -> Sequence[tuple[float, int]]:
        """The last different values, each with the time of its first sample."""
        return tuple(self._values)
