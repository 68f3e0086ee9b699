"""Why claims do not fit on a node: per device the first reason, with the holders, as data and in words.

Called by `allocator` for claims that the search refused; shown by `netdra simulate`. First each request is tried alone;
where every one can be met alone they are tried in order, each after the first fit of those before it. Devices
with the same reason share a line, and devices left out of a line are counted, so that the text stays short however many
nodes and devices there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import ClassVar, Literal

import msgspec

from netdra.cel import CelEvaluationError
from netdra.model import names, quantity
from netdra.model.suggestions import listed
from netdra.slices import capacity
from netdra.slices.allocator.ledger import Counters, Ledger
from netdra.slices.allocator.pools import Candidate, CounterKey, DeviceKey, Pool, PoolKey
from netdra.slices.allocator.trial import DeviceVerdict, Trial, attribute_of, untolerated
from netdra.slices.allocator.wishes import ClaimTask, Wish, shown
from netdra.slices.capacity import UnusableRequestError

Kind = Literal[
    "capacity", "counters", "in-use", "taint", "constraint", "error", "selectors", "class", "other-node", "granted"
]
MAX_NAMES = 3
MAX_NODES = 3
MAX_OBSTACLES = 6

_SUMMARIES: dict[Kind, str] = {
    "capacity": "too little capacity",
    "counters": "counters exhausted",
    "in-use": "in use",
    "taint": "tainted",
    "constraint": "excluded by a constraint",
    "error": "a selector fails on",
    "selectors": "not selected",
    "class": "not of the class",
    "other-node": "on another node",
    "granted": "already allocated to the claim",
}

_TYPE = names.qualified("type")
# The most informative reasons come first.
_ORDER: tuple[Kind, ...] = (
    "capacity", "counters", "in-use", "granted", "taint", "constraint", "error", "selectors", "class", "other-node",
)  # fmt: skip


class Obstacle(msgspec.Struct, frozen=True, rename="camel"):
    """One reason, and the devices of a node that it keeps from a request, in the order in which they are tried."""

    kind: Kind
    devices: tuple[str, ...]
    text: str


class RequestReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A request (or alternative) that cannot be met on a node.

    Attributes:
        wanted: how many devices, 0 for all of them.
        available: how many of them can be allocated.
        after: the devices given to the claims' other requests before, where only all of them together do not fit.
    """

    claim: str
    request: str
    device_class: str
    wanted: int
    available: int
    obstacles: tuple[Obstacle, ...]
    after: str = ""


class NodeExplanation(msgspec.Struct, frozen=True, rename="camel"):
    """Why the claims do not fit on one node: the pools that lend nothing, and the requests that cannot be met."""

    node: str
    pools: tuple[str, ...]
    requests: tuple[RequestReport, ...]

    def has(self, name: str) -> bool:
        """Whether its texts have a name."""
        texts = (obstacle.text for request in self.requests for obstacle in request.obstacles)
        return any(name in text for text in (*self.pools, *texts, *(request.after for request in self.requests)))


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """Why the claims fit nowhere: a reason that has nothing to do with nodes, or one report per node."""

    reason: str = ""
    nodes: tuple[NodeExplanation, ...] = ()

    def lines(self) -> list[str]:
        """The explanation in words, indented by two blanks a level."""
        if self.reason:
            return [self.reason]
        if not self.nodes:
            return ["no nodes to try"]
        shown = [line for report in self.nodes[:MAX_NODES] for line in _node_lines(report)]
        return shown + list(_rest(self.nodes[MAX_NODES:]))


def _node_lines(report: NodeExplanation) -> Iterator[str]:
    if not report.pools and not report.requests:
        yield (
            f"{report.node}: each request can be allocated alone, but no combination of devices was found "
            "for all of them"
        )
        return
    yield f"{report.node}:"
    for problem in report.pools:
        yield f"  {problem}"
    for request in report.requests:
        yield f"  {_headline(request)}"
        for obstacle in request.obstacles[:MAX_OBSTACLES]:
            yield f"    {_named(obstacle)}: {obstacle.text}"
        hidden = [device for obstacle in request.obstacles[MAX_OBSTACLES:] for device in obstacle.devices]
        if hidden:
            yield f"    {listed(hidden, MAX_NAMES)}: for the same kinds of reasons"


def _headline(request: RequestReport) -> str:
    wanted = f"{request.wanted} device{'s' * (request.wanted != 1)}" if request.wanted else "all devices"
    after = f" after {request.after}" if request.after else ""
    return (
        f'{request.claim}, request "{request.request}": {wanted} of class "{request.device_class}" '
        f"requested, {request.available} available{after}"
    )


def _named(obstacle: Obstacle) -> str:
    if obstacle.kind in ("class", "selectors", "other-node"):
        count = len(obstacle.devices)
        return f"{count} device{'s' * (count != 1)}"
    return listed(obstacle.devices, MAX_NAMES)


def _rest(reports: Sequence[NodeExplanation]) -> Iterator[str]:
    """The nodes that are not shown, by the reasons that exclude their devices and how many."""
    if not reports:
        return
    counts: Counter[Kind] = Counter()
    for report in reports:
        for request in report.requests:
            for obstacle in request.obstacles:
                counts[obstacle.kind] += len(obstacle.devices)
    summary = ", ".join(f"{count} {_SUMMARIES[kind]}" for kind, count in counts.most_common())
    yield f"{len(reports)} more node{'s' * (len(reports) != 1)}: {summary or 'no devices'}"


def node_report(
    node: str, pools: Sequence[Pool], tasks: Sequence[ClaimTask], trial: Trial, ledger: Ledger, counters: Counters
) -> NodeExplanation:
    """Why the tasks do not fit on a node.

    Args:
        node: its name.
        pools: its pools, in order.
        tasks: the claims that were refused there.
        trial: an attempt there that has taken nothing; it is left so.
        ledger: who holds what.
        counters: what is left of the pools' counters.
    """
    view = _View(pools, trial, ledger, counters)
    unusable = (
        *(f"pool {pool.key[1]} is not usable: {pool.problem}" for pool in pools if pool.state != "usable"),
        *(f"pool {pool.key[1]}: {pool.passed_over}" for pool in pools if pool.passed_over),
    )
    wishes = [(number, task, alternatives) for number, task in enumerate(tasks) for alternatives in task.requests]
    reports: list[RequestReport] = []
    for number, task, alternatives in wishes:
        reports += view.unmet(number, task, alternatives, "")
        trial.give_back(0)
    for number, task, alternatives in [] if reports else wishes:
        reports += view.unmet(number, task, alternatives, view.granted())
        if reports:
            break
    trial.give_back(0)
    return NodeExplanation(node, unusable, tuple(reports))


class _View:
    """A node as the attempt finds it, with words for its state."""

    def __init__(self, pools: Sequence[Pool], trial: Trial, ledger: Ledger, counters: Counters) -> None:
        self._pools: dict[PoolKey, Pool] = {pool.key: pool for pool in pools}
        self._candidates = [candidate for pool in pools if pool.state == "usable" for candidate in pool.candidates]
        self._trial = trial
        self._ledger = ledger
        self._counters = counters

    def granted(self) -> str:
        """The devices that the trial has given to the requests so far."""
        given = (f'request "{taken.wish.name}" got {_label(taken.candidate)}' for taken in self._trial.taken)
        return listed(given, MAX_NAMES)

    def unmet(self, claim: int, task: ClaimTask, alternatives: Sequence[Wish], after: str) -> list[RequestReport]:
        """A report for each alternative, if none can be met by first fit; what is met stays taken."""
        reports: list[RequestReport] = []
        for wish in alternatives:
            before = len(self._trial.taken)
            report = self._try(claim, task, wish, after)
            if report is None:
                return []
            reports.append(report)
            self._trial.give_back(before)
        return reports

    def _try(self, claim: int, task: ClaimTask, wish: Wish, after: str) -> RequestReport | None:
        taken = 0
        passed: list[tuple[Candidate, Kind, str]] = []
        for candidate in self._candidates:
            if not wish.everything and taken == wish.count:
                return None
            reason = self._reason(claim, wish, candidate)
            if reason is None:
                taken += 1
            else:
                passed.append((candidate, *reason))
        if wish.everything and taken and not any(self._means(wish, entry) for entry, _, _ in passed):
            return None
        if not wish.everything and taken == wish.count:
            return None
        return RequestReport(
            claim=shown(task.key),
            request=wish.name,
            device_class=wish.device_class.metadata.name,
            wanted=0 if wish.everything else wish.count,
            available=taken,
            obstacles=tuple(self._grouped(passed)),
            after=after,
        )

    def _means(self, wish: Wish, candidate: Candidate) -> bool:
        """Whether a wish for all devices is for this one too."""
        try:
            return self._trial.listable(wish, candidate)
        except UnusableRequestError:
            return True

    def _grouped(self, passed: Sequence[tuple[Candidate, Kind, str]]) -> Iterator[Obstacle]:
        """Devices with the same reason together; all that are in use together, with their holders."""
        groups: dict[tuple[Kind, str], list[Candidate]] = {}
        for candidate, kind, text in passed:
            groups.setdefault((kind, "" if kind == "in-use" else text), []).append(candidate)
        for (kind, text), candidates in sorted(groups.items(), key=lambda group: _ORDER.index(group[0][0])):
            words = text or self._held(candidate.key for candidate in candidates) or "in use"
            yield Obstacle(kind, tuple(_label(candidate) for candidate in candidates), words)

    def _reason(self, claim: int, wish: Wish, candidate: Candidate) -> tuple[Kind, str] | None:
        """Why a device cannot be taken; if it can, it is."""
        try:
            failing = wish.selectors.first_false(candidate)
            if failing >= 0:
                return _unselected(wish, failing)
            verdict = self._trial.take(claim, wish, candidate)
        except (CelEvaluationError, UnusableRequestError) as problem:
            return "error", str(problem)
        words = self._words.get(verdict)
        return None if words is None else words(self, claim, wish, candidate)

    def _in_use(self, claim: int, wish: Wish, candidate: Candidate) -> tuple[Kind, str]:
        for taken in self._trial.taken:
            if taken.candidate is candidate:
                return "granted", f'is already allocated to request "{taken.wish.name}"'
        return "in-use", ""

    def _short_capacity(self, claim: int, wish: Wish, candidate: Candidate) -> tuple[Kind, str]:
        consumed = self._trial.wanted(wish, candidate)
        if consumed is None:
            lacking = self._trial.lacking(wish, candidate)
            return "capacity", f"does not have the capacity {', '.join(lacking)}"
        in_use = self._trial.consumed(candidate)
        name = capacity.shortage(consumed, candidate.capacity, in_use) or ""
        used = in_use.get(name, Decimal(0))
        text = capacity.describe(consumed[name], candidate.capacity[name], used)
        # Claims that have the rest are only named if the amount would be available without them.
        in_the_way = capacity.shortage(consumed, candidate.capacity, {}) != name
        takers = listed(self._takers(candidate), MAX_NAMES) if in_the_way else ""
        return "capacity", f"{text}: {takers}" if takers else text

    def _takers(self, candidate: Candidate) -> Iterator[str]:
        """The holders of shares of a device: other claims, and requests of the trial."""
        if held := self._held([candidate.key]):
            yield held
        for taken in self._trial.taken:
            if taken.candidate is candidate:
                yield f'allocated to request "{taken.wish.name}"'

    def _short_counter(self, claim: int, wish: Wish, candidate: Candidate) -> tuple[Kind, str]:
        pool = self._pools[candidate.pool]
        counter = self._trial.short_counter(candidate) or ("", "")
        left = self._counters.balance(pool).left[counter] - self._trial.drawn(pool.key).get(counter, Decimal(0))
        name, drawers = counter[1], listed(self._drawers(pool, counter), MAX_NAMES)
        if left < 0:  # of any counter, whether the device draws on it or not
            text = f"pool {pool.key[1]}: {name} is exceeded by {quantity.render(-left)}"
            return "counters", f"{text}: {drawers}" if drawers else text
        needed, free = quantity.render(candidate.consumes[counter]), quantity.render(left)
        if drawers:
            return "counters", f"requires {name} {needed}, {free} available: {drawers}"
        return "counters", f"requires {name} {needed}, but the pool has only {free} in total"

    def _drawers(self, pool: Pool, counter: CounterKey) -> Iterator[str]:
        """The holders of the devices that draw on the counter."""
        granted = {taken.candidate.key: taken.wish.name for taken in self._trial.taken}
        for consumer in pool.consumers:
            if not consumer.consumes.get(counter):
                continue
            if self._ledger.in_use(consumer.key):
                yield f"{_label(consumer)} is {self._held([consumer.key])}"
            elif consumer.key in granted:
                yield f'{_label(consumer)} is allocated to request "{granted[consumer.key]}"'

    def _taint(self, claim: int, wish: Wish, candidate: Candidate) -> tuple[Kind, str]:
        taint = untolerated(candidate.taints, wish.tolerations)
        text = "" if taint is None else f" {taint.key}{'=' * bool(taint.value)}{taint.value}:{taint.effect}"
        return "taint", f"has the taint{text}, which the request does not tolerate"

    def _constraint(self, claim: int, wish: Wish, candidate: Candidate) -> tuple[Kind, str]:
        broken = self._trial.broken_constraint(claim, wish, candidate)
        return "constraint", "violates a constraint" if broken is None else broken.describe(candidate)

    def _elsewhere(self, claim: int, wish: Wish, candidate: Candidate) -> tuple[Kind, str]:
        return "other-node", "are on other nodes"

    def _held(self, devices: Iterator[DeviceKey] | Sequence[DeviceKey]) -> str:
        holders = list(dict.fromkeys(shown(holder) for device in devices for holder in self._ledger.holders(device)))
        return f"held by claim{'s' * (len(holders) != 1)} {listed(holders, MAX_NAMES)}" if holders else ""

    _words: ClassVar[dict[DeviceVerdict, Callable[[_View, int, Wish, Candidate], tuple[Kind, str]]]] = {
        DeviceVerdict.IN_USE: _in_use,
        DeviceVerdict.OTHER_NODE: _elsewhere,
        DeviceVerdict.NO_CAPACITY: _short_capacity,
        DeviceVerdict.NO_COUNTERS: _short_counter,
        DeviceVerdict.TAINTED: _taint,
        DeviceVerdict.CONSTRAINED: _constraint,
    }


def _unselected(wish: Wish, failing: int) -> tuple[Kind, str]:
    if failing < wish.of_class:
        return "class", f'not of class "{wish.device_class.metadata.name}"'
    return "selectors", f"not selected by the request's expression {failing - wish.of_class + 1}"


def _label(candidate: Candidate) -> str:
    """A device's name, with PF or VF where it is one."""
    kind = attribute_of(candidate, _TYPE)
    name = candidate.key[2]
    return f"{kind.string.upper()} {name}" if kind is not None and kind.string in ("pf", "vf") else name
