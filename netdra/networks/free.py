"""Which addresses of a range are free, as sorted spans: taking, returning and finding one cost a binary search.

A range that fills up stays a few spans, a fragmented one at most as many as there are addresses taken. So a /16 is
filled in linear time, and a /64 needs memory only for the addresses that are taken.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from netdra.networks.ranges import Span


class FreeAddresses:
    """The free addresses of a range as spans: memory grows with the assigned addresses, not with the range."""

    def __init__(self, spans: Iterable[Span]) -> None:
        """Begin with all of them free.

        Args:
            spans: apart from each other, and in order.
        """
        self._spans = tuple(spans)
        self._bounds = [span.first for span in self._spans]
        self._firsts = [span.first for span in self._spans]
        self._lasts = [span.last for span in self._spans]
        self.total = sum(span.size for span in self._spans)
        self.count = self.total

    def __contains__(self, number: int) -> bool:
        """Whether an address is free."""
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def has(self, number: int) -> bool:
        """Whether an address is one of the range's, free or not."""
        at = bisect_right(self._bounds, number) - 1
        return at >= 0 and number <= self._spans[at].last

    def take(self, number: int) -> bool:
        """Take an address; returns whether it was free."""
        at = bisect_right(self._firsts, number) - 1
        if at < 0 or number > self._lasts[at]:
            return False
        first, last = self._firsts[at], self._lasts[at]
        parts = [span for span in (Span(first, number - 1), Span(number + 1, last)) if span.first <= span.last]
        self._firsts[at : at + 1] = [span.first for span in parts]
        self._lasts[at : at + 1] = [span.last for span in parts]
        self.count -= 1
        return True

    def put_back(self, number: int) -> bool:
        """Return an address; returns whether it was taken. One that is not of the range is skipped."""
        if number in self or not self.has(number):
            return False
        at = bisect_right(self._firsts, number)
        joins_before = at > 0 and self._lasts[at - 1] == number - 1
        joins_after = at < len(self._firsts) and self._firsts[at] == number + 1
        first = self._firsts[at - 1] if joins_before else number
        last = self._lasts[at] if joins_after else number
        low, high = at - joins_before, at + joins_after
        self._firsts[low:high], self._lasts[low:high] = [first], [last]
        self.count += 1
        return True

    def after(self, number: int) -> int | None:
        """The next free address behind a number, or else the first of all; None if none is free.

        So an address that was released is the last to be assigned again: neighbours forget it meanwhile.
        """
        if not self._firsts:
            return None
        at = bisect_right(self._firsts, number) - 1
        if at >= 0 and number < self._lasts[at]:
            return number + 1
        return self._firsts[at + 1] if at + 1 < len(self._firsts) else self._firsts[0]
