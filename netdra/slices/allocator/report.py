"""Why claims do not fit, as data and in words.

Made by `explain`, shown by `netdra simulate`. Devices with the same reason share a line, and what is left out of a line
is counted, so that the text stays short however many nodes and devices there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

Kind = Literal[
    "capacity", "counters", "in-use", "taint", "constraint", "error", "selectors", "class", "other-node", "granted"
]
MAX_NAMES = 3
MAX_NODES = 3
MAX_OBSTACLES = 6


class Obstacle(msgspec.Struct, frozen=True, rename="camel"):
    """One reason, and the devices of a node that it keeps from a request, in the order in which they are tried."""

    kind: Kind
    devices: tuple[str, ...]
    text: str


class RequestReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A request (or alternative) that cannot be met on a node.

    Attributes:
        wanted: how many devices, 0 for all of them.
        available: how many of them can be had.
        after: what the claims' other requests were given before, where only all of them together do not fit.
    """

    claim: str
    request: str
    device_class: str
    wanted: int
    available: int
    obstacles: tuple[Obstacle, ...]
    after: str = ""


class NodeReport(msgspec.Struct, frozen=True, rename="camel"):
    """Why the claims do not fit on one node: the pools that lend nothing, and the requests that cannot be met."""

    node: str
    pools: tuple[str, ...]
    requests: tuple[RequestReport, ...]


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """Why the claims fit nowhere: a reason that has nothing to do with nodes, or one report per node."""

    reason: str = ""
    nodes: tuple[NodeReport, ...] = ()

    def lines(self) -> list[str]:
        """The explanation in words, indented by two blanks a level."""
        if self.reason:
            return [self.reason]
        if not self.nodes:
            return ["there is no node to try"]
        shown = [line for report in self.nodes[:MAX_NODES] for line in _node_lines(report)]
        return shown + list(_rest(self.nodes[MAX_NODES:]))


def listed(names: Iterable[str], limit: int = MAX_NAMES) -> str:
    """Names in a row, the rest of them counted: `a, b, c and 5 more`."""
    known = list(dict.fromkeys(names))
    more = len(known) - limit
    return ", ".join(known[:limit]) + (f" and {more} more" if more > 0 else "")


def _node_lines(report: NodeReport) -> Iterator[str]:
    if not report.pools and not report.requests:
        yield f"{report.node}: each request can be met alone, but no choice of devices was found that meets all"
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
            yield f"    {listed(hidden)}: for reasons of the same kinds"


def _headline(request: RequestReport) -> str:
    wanted = f"{request.wanted} device{'s' * (request.wanted != 1)}" if request.wanted else "all devices"
    after = f" after {request.after}" if request.after else ""
    return (
        f'{request.claim}, request "{request.request}": {wanted} of class "{request.device_class}" wanted, '
        f"{request.available} can be had{after}"
    )


def _named(obstacle: Obstacle) -> str:
    if obstacle.kind in ("class", "selectors", "other-node"):
        count = len(obstacle.devices)
        return f"{count} device{'s' * (count != 1)}"
    return listed(obstacle.devices)


def _rest(reports: Sequence[NodeReport]) -> Iterator[str]:
    """The nodes that are not shown, by what keeps how many of their devices away."""
    if not reports:
        return
    counts: Counter[Kind] = Counter()
    for report in reports:
        for request in report.requests:
            for obstacle in request.obstacles:
                counts[obstacle.kind] += len(obstacle.devices)
    summary = ", ".join(f"{count} {_SUMMARIES[kind]}" for kind, count in counts.most_common())
    yield f"{len(reports)} more node{'s' * (len(reports) != 1)}: {summary or 'no devices'}"


_SUMMARIES: dict[Kind, str] = {
    "capacity": "too little capacity",
    "counters": "kept apart by counters",
    "in-use": "in use",
    "taint": "tainted",
    "constraint": "against a constraint",
    "error": "a selector fails on",
    "selectors": "not selected",
    "class": "not of the class",
    "other-node": "of another node",
    "granted": "given to the claim already",
}
