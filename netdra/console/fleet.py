"""All nodes: the counts of each node's report, and a picture of them with a cell for each. Pure.

Kept by `netdra.console.server` for thousands of nodes; `netdra.cluster.fleet` has the types of the reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from netdra.cluster.fleet import CountedNode, CountedStatus
from netdra.console.frame import STATES
from netdra.console.markup import Markup, PageAddress, element

MAX_CELLS = 10_000
FEW, SOME = 40, 600
"""Nodes up to which cells are tiles with names, and up to which they are large."""
_STEPS = 4


def hidden_state(attributes: Mapping[str, object]) -> str:
    """The state of a hidden interface."""
    return "host" if attributes.get("hostUse") or attributes.get("hostUplink") else "hidden"


class NodeCounts(NamedTuple):
    """A node in numbers: how many devices and interfaces have each state, its problems, and its tainted devices."""

    name: str
    offered: int = 0
    allocated: int = 0
    host: int = 0
    hidden: int = 0
    gone: int = 0
    problems: int = 0
    tainted: int = 0

    @property
    def devices(self) -> int:
        """The number of published devices."""
        return self.offered + self.allocated

    @property
    def share(self) -> int:
        """The part of its devices that claims have, in percent."""
        return round(100 * self.allocated / self.devices) if self.devices else 0

    @property
    def is_in_trouble(self) -> bool:
        """Whether something of it is wrong."""
        return bool(self.gone or self.problems or self.tainted)

    @property
    def words(self) -> str:
        """The node in words."""
        problems = f", {self.problems} problem{'s' * (self.problems != 1)}" if self.problems else ""
        tainted = f", {self.tainted} tainted" if self.tainted else ""
        states = (f"{count} {name}" for name, count in zip(STATES, self[1:6], strict=True) if count)
        return f"{self.name}: {', '.join(states) or 'no interfaces'}{tainted}{problems}"

    @property
    def cell(self) -> str:
        """The class of its cell: the share of its devices that claims have, in steps."""
        return cell_of(self.devices, self.allocated)


def cell_of(devices: int, allocated: int) -> str:
    """The class of a cell by a number of devices and how many of them claims have."""
    return f"s{-(-allocated * _STEPS // devices)}" if devices else "none"


def count(node: CountedNode) -> NodeCounts:
    """A node in numbers."""
    numbers = dict.fromkeys(STATES, 0)
    status = node.status or CountedStatus()
    for group in status.interfaces:
        for name, number in group.states():
            numbers[name] += number
    return NodeCounts(node.metadata.name, **numbers, problems=status.summary.problems)


class ClassShare(NamedTuple):
    """How many devices of a node match a DeviceClass, and how many of these claims have."""

    devices: int
    allocated: int


def sums(nodes: Iterable[NodeCounts]) -> NodeCounts:
    """All nodes in numbers."""
    totals = [0] * 7
    for node in nodes:
        totals = [total + int(number) for total, number in zip(totals, node[1:], strict=True)]
    return NodeCounts("", *totals)


def cluster_map(nodes: Sequence[NodeCounts], shares: Mapping[str, ClassShare] | None = None) -> Markup:
    """The picture of all nodes, a cell each. Its links are in the list of nodes, too, so the keyboard skips them.

    Args:
        nodes: in the order of their names.
        shares: by node, the devices of one DeviceClass; None for all devices.
    """
    size = "tiles" if len(nodes) <= FEW else "large" if len(nodes) <= SOME else "small"
    drawn = islice(nodes, MAX_CELLS)
    if shares is None:
        cells: Iterable[Markup] = (_cell(node, size == "tiles") for node in drawn)
    else:
        cells = (_cell_of_class(node, shares.get(node.name, ClassShare(0, 0)), size == "tiles") for node in drawn)
    left = len(nodes) - MAX_CELLS
    return element(
        "figure",
        element("div", cells, class_=f"map {size}") if nodes else None,
        element("p", f"{left} more nodes are not drawn.", class_="quiet") if left > 0 else None,
        element("figcaption", _scale(nodes)),
        class_="fleet",
    )


def _scale(nodes: Collection[NodeCounts]) -> Markup:
    """The scale, in as few words as it takes."""
    counts = Counter(node.is_in_trouble for node in nodes)
    steps = (element("span", class_=f"s{step} box") for step in range(_STEPS + 1))
    return element(
        "p",
        element("span", "0 % allocated ", steps, " 100 %"),
        element("span", element("span", class_="none box"), " no device"),
        element("span", element("span", class_="s0 box trouble"), f" has a problem ({counts[True]})"),
        class_="scale quiet",
    )


@lru_cache(maxsize=MAX_CELLS)
def _cell(node: NodeCounts, is_tile: bool) -> Markup:
    return _drawn(node, node.cell, node.words, f"{node.allocated} / {node.devices}" if is_tile else "")


def _cell_of_class(node: NodeCounts, share: ClassShare, is_tile: bool) -> Markup:
    words = f"{node.name}: {share.allocated} of {share.devices} allocated"
    label = f"{share.allocated} / {share.devices}" if is_tile else ""
    return _drawn(node, cell_of(share.devices, share.allocated), words, label)


def _drawn(node: NodeCounts, shade: str, words: str, label: str) -> Markup:
    inside = (element("b", node.name), element("span", label), _gauge(node)) if label else None
    kind = f"{shade} trouble" if node.is_in_trouble else shade
    return element("a", inside, class_=kind, href=PageAddress("nodes", node.name), tabindex=-1, title=words)


def _gauge(node: NodeCounts) -> Markup | None:
    problems = [
        *([f"{node.problems} problem{'s' * (node.problems != 1)}"] if node.problems else ()),
        *([f"{node.tainted} tainted"] if node.tainted else ()),
        *([f"{node.gone} gone"] if node.gone else ()),
    ]
    return element("i", ", ".join(problems)) if problems else None
