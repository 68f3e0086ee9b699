"""Whose an end of a veth, netkit or vxcan pair is: the node's, a pod's, or not known yet. Pure: callers have the time.

CNI plugins make the pair of a pod in several ways: both ends on the node, then one is moved; both in the pod, then one
comes out; each end where it belongs. So an end may be seen on the node before its other end is in the pod. It is the
node's once its other end has been at one place, which is not a pod's namespace, for `SETTLE_SECONDS`. Until then it is
not offered. An end of the node's that was in a pod and comes back to the same other end is the node's at once.

`netdra.discovery.facts` keeps one `Pairs`. It is filled by `live` and `update`, and read by `assemble` and `watch`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple

from netdra.kernel.link import HERE, Link

SETTLE_SECONDS = 1.0
"""How long the other end of a pair must stay at one place. A CNI plugin moves it within milliseconds."""
MAX_LEFT = 1024
"""How many ends that have left the node are remembered."""
Whose = Literal["node", "pod", "unknown"]


class PairPlace(NamedTuple):
    """Where the other end of a pair is.

    Attributes:
        peer: its ifindex, 0 while the kernel reports none: the pair is just made.
        netns: the id of its namespace, or HERE or UNASSIGNED of `netdra.kernel.link`.
    """

    peer: int
    netns: int

    @property
    def is_known(self) -> bool:
        """Whether the kernel reports the place. A namespace that ends has no id any more."""
        return self.netns >= 0 or (self.netns == HERE and self.peer > 0)


def whose(place: PairPlace, pods: Collection[int] | None, unchanged: float, settle: float = SETTLE_SECONDS) -> Whose:
    """Whose the end of a pair is.

    Args:
        place: where its other end is.
        pods: the ids of pods' namespaces; None if they cannot be read.
        unchanged: for how many seconds the other end has been there.
        settle: after how many seconds it stays there.
    """
    if not place.is_known:
        return "unknown"
    if place.netns != HERE:
        if pods is None:
            return "unknown"
        if place.netns in pods:
            return "pod"
    return "node" if unchanged >= settle else "unknown"


@dataclass(slots=True)
class _End:
    """An end of a pair that is on the node.

    Attributes:
        place: where its other end is.
        since: since when, on the caller's clock; None if that is to be noted.
        whose: the last answer.
        home: the place of its other end when this end was the node's.
    """

    place: PairPlace
    since: float | None = None
    whose: Whose = "unknown"
    home: PairPlace | None = None


class Pairs:
    """The ends of pairs on a node.

    Attributes:
        pods: the indexes of the ends whose other ends are in pods. An end stays a pod's while its other end stays in
            that namespace, also if the namespace loses its name.
        unknown: the indexes of those of which it is not known.
        arriving: those of `unknown` that have to stay where they are for some time yet.
        due: when the first of these has done so, on the caller's clock; None without any.
    """

    def __init__(self, settle: float = SETTLE_SECONDS) -> None:
        """Begin with none.

        Args:
            settle: for how many seconds the other end of a pair must stay at one place.
        """
        self._settle = settle
        self._ends: dict[int, _End] = {}
        self._open: set[int] = set()  # all but those of pods, which are most and stay as they are
        self._left: dict[int, PairPlace] = {}  # of the node's ends that have left it: the places of their other ends
        self.pods: set[int] = set()
        self.unknown: set[int] = set()
        self.arriving: set[int] = set()
        self.due: float | None = None

    def put(self, link: Link) -> None:
        """Add an end as the kernel reports it, or replace its place."""
        place = PairPlace(link.lower, link.lower_netns)
        end = self._ends.get(link.index)
        if end is None:
            self._ends[link.index] = _End(place, home=self._left.pop(link.index, None))
        elif end.place != place:
            end.place, end.since, end.whose = place, None, "unknown"
        else:
            return
        self.pods.discard(link.index)
        self._open.add(link.index)

    def drop(self, index: int, *, moved: bool = False) -> None:
        """Forget one end of a pair: it has left the node.

        Args:
            index: the end.
            moved: whether it is in another namespace now. It may come back, and if its other end was in a third
                namespace, which never changed, that is still there.
        """
        end = self._ends.pop(index, None)
        if moved and end is not None and end.home is not None and end.home.netns != HERE:
            self._left[index] = end.home
            if len(self._left) > MAX_LEFT:
                del self._left[next(iter(self._left))]
        self._open.discard(index)
        self.pods.discard(index)

    def keep(self, indexes: Collection[int]) -> None:
        """Forget the ends that are not among some links: all that are on the node."""
        for index in [index for index in self._ends if index not in indexes]:
            self.drop(index)

    def judge(self, pods: Collection[int] | None, now: float) -> set[int]:
        """Work out whose the ends are; returns the indexes of those of which something else is known now.

        Args:
            pods: the ids of pods' namespaces; None if they cannot be read.
            now: seconds of a clock that never goes back.
        """
        changed: set[int] = set()
        self.unknown, self.arriving, self.due = set(), set(), None
        for index in tuple(self._open):
            end = self._ends[index]
            if end.since is None:
                end.since = now
                changed.add(index)
            stays = self._settle if self._is_back(index, end) else now - end.since
            answer = whose(end.place, pods, stays, self._settle)
            if answer != end.whose:
                changed.add(index)
                end.whose = answer
            if end.whose == "pod":
                self.pods.add(index)
                self._open.discard(index)
            elif end.whose == "unknown":
                self.unknown.add(index)
                self._note_arriving(index, end.since + self._settle, now)
            else:
                end.home = end.place
        return changed

    def overdue(self, now: float) -> set[int]:
        """The ends whose time is over, so that they can be read again and judged."""
        return set(self.arriving) if self.due is not None and self.due <= now else set()

    def _note_arriving(self, index: int, settled: float, now: float) -> None:
        if now < settled:
            self.arriving.add(index)
            self.due = settled if self.due is None else min(self.due, settled)

    def _is_back(self, index: int, end: _End) -> bool:
        """Whether an end of the node's has its other end where that was before: one of the two was in a pod.

        As long as an end lives its other end is the same link.
        """
        if end.place == end.home:
            return True
        other = self._ends.get(end.place.peer) if end.place.netns == HERE else None
        return other is not None and other.home == other.place == PairPlace(index, HERE)
