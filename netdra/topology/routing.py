"""The tracks of lines between two columns of a picture, so that no two lines can be taken for one. Used by `layout`.

A net leaves at some rows on the left, goes up and down its track, and arrives at some rows on the right. Where a net
leaves at the row at which another arrives, its track must be the one further left, or both would share cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class Net(msgspec.Struct, frozen=True):
    """Lines that belong together: the rows at which they leave the left column and arrive at the right one."""

    leaves: tuple[int, ...]
    arrives: tuple[int, ...]

    @property
    def is_straight(self) -> bool:
        """Whether it is a single line without a bend, which needs no track."""
        return self.leaves == self.arrives

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last row of its track."""
        rows = (*self.leaves, *self.arrives)
        return min(rows), max(rows)

    @property
    def inclination(self) -> tuple[bool, int]:
        """What to sort by so that nets cross little: of those that go down the lowest is first, else the highest."""
        down = sum(self.arrives) * len(self.leaves) >= sum(self.leaves) * len(self.arrives)
        return down, -min(self.leaves) if down else max(self.leaves)


def tracks(nets: Sequence[Net]) -> list[int | None] | None:
    """The track of each net, counted from the left, None for a straight one; None instead if the rows allow no order.

    Rows of departure are all different, and so are rows of arrival.
    """
    arriving = {row: at for at, net in enumerate(nets) for row in net.arrives}
    after: dict[int, set[int]] = {at: set() for at, net in enumerate(nets) if not net.is_straight}
    for at, net in enumerate(nets):
        for row in net.leaves:
            other = arriving.get(row)
            if other is not None and other != at:
                after[other].add(at)
    found: dict[int, int] = {}
    waiting = sorted(after, key=lambda at: nets[at].inclination)
    while waiting:
        ready = next((at for at in waiting if after[at] <= found.keys()), None)
        if ready is None:
            return None
        waiting.remove(ready)
        first = 1 + max((found[other] for other in after[ready]), default=-1)
        found[ready] = _free(nets, found, ready, first)
    return [found.get(at) for at in range(len(nets))]


def _free(nets: Sequence[Net], found: Mapping[int, int], at: int, first: int) -> int:
    """The first track from `first` on that no other net uses on the same rows."""
    low, high = nets[at].span
    taken = {track for other, track in found.items() if nets[other].span[0] <= high and low <= nets[other].span[1]}
    while first in taken:
        first += 1
    return first
