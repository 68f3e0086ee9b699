"""The troubles of a cluster, as the start page shows them: each cause once, with its objects and the next step. Pure.

Made by `netdra.console.examination` of the stories of `netdra why` and the verdicts of `netdra doctor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from netdra.console.markup import PageAddress

TroubleKind = Literal["netdra", "pods", "topologies", "policies", "nodes", "devices", "networks", "plugins"]
KINDS: Mapping[TroubleKind, tuple[str, str]] = {
    "netdra": ("part of netdra", "parts of netdra"),
    "pods": ("pod", "pods"),
    "topologies": ("topology", "topologies"),
    "policies": ("policy", "policies"),
    "nodes": ("node", "nodes"),
    "devices": ("device", "devices"),
    "networks": ("network", "networks"),
    "plugins": ("plugin", "plugins"),
}
"""The kinds in the order of the start page, with the words for one object and for several."""
MAX_SUBJECTS = 100
"""Objects of a trouble that are named."""


class TroubleSubject(NamedTuple):
    """An object that is in trouble.

    Attributes:
        page: the first part of its page's path, e.g. `pods`; "" without a page.
        place: its namespace or node, "" without one.
    """

    page: str
    place: str
    name: str

    @property
    def words(self) -> str:
        """How it is called."""
        return f"{self.place}/{self.name}" if self.place else self.name

    @property
    def address(self) -> PageAddress | None:
        """Its page."""
        return PageAddress(*filter(None, (self.page, self.place, self.name))) if self.page else None


class ClusterTrouble(NamedTuple):
    """A cause, and the objects that it affects.

    Attributes:
        kind: the kind of the objects.
        is_error: whether something does not work; else it may not.
        code: one word, such as an event's reason.
        text: the cause.
        next_step: what to do, "" if unknown.
        subjects: the first of the objects.
        affected: how many objects.
        since: since when, in RFC 3339, "" if unknown.
    """

    kind: TroubleKind
    is_error: bool
    code: str
    text: str
    next_step: str = ""
    subjects: tuple[TroubleSubject, ...] = ()
    affected: int = 0
    since: str = ""

    @property
    def counted(self) -> str:
        """How many objects of which kind, in words."""
        one, many = KINDS[self.kind]
        return f"{self.affected} {one if self.affected == 1 else many}"


class ClusterExamination(NamedTuple):
    """The result of an examination of the cluster.

    Attributes:
        troubles: the causes, the worst first.
        checked: when it ended, in RFC 3339; "" before the first one.
        pods, stuck: how many pods have claims, and how many of these wait or have lost their network.
        notes: what could not be examined, and why.
        problem: why the last examination failed, "" if it did not; then the rest is older.
        classes: the names of the DeviceClasses.
        number: counts examinations with different results.
    """

    troubles: Sequence[ClusterTrouble] = ()
    checked: str = ""
    pods: int = 0
    stuck: int = 0
    notes: Sequence[str] = ()
    problem: str = ""
    classes: Sequence[str] = ()
    number: int = 0

    def of_namespaces(self, allowed: Iterable[str]) -> ClusterExamination:
        """Without pods of other namespaces."""
        names = frozenset(allowed)
        return self._replace(troubles=[*filter(None, (_within(trouble, names) for trouble in self.troubles))])


def _within(trouble: ClusterTrouble, namespaces: frozenset[str]) -> ClusterTrouble | None:
    if trouble.kind != "pods":
        return trouble
    left = tuple(subject for subject in trouble.subjects if subject.place in namespaces)
    return trouble._replace(subjects=left, affected=len(left)) if left else None


def stuck_pods(troubles: Iterable[ClusterTrouble]) -> set[TroubleSubject]:
    """The pods that wait or have lost their network."""
    stuck = (trouble for trouble in troubles if trouble.kind == "pods" and trouble.is_error)
    return {subject for trouble in stuck for subject in trouble.subjects if subject.page == "pods"}


def ordered(troubles: Iterable[ClusterTrouble]) -> list[ClusterTrouble]:
    """Errors before warnings, by kind, those with the most objects first; a cause of several kinds is one."""
    order = {kind: at for at, kind in enumerate(KINDS)}
    found: dict[tuple[bool, str, str], ClusterTrouble] = {}
    for trouble in sorted(troubles, key=lambda one: (not one.is_error, order[one.kind], -one.affected)):
        key = trouble.is_error, trouble.code, trouble.text
        known = found.get(key)
        found[key] = trouble if known is None else known._replace(subjects=(*known.subjects, *trouble.subjects))
    return [*found.values()]
