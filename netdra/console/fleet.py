"""All nodes: what each node's report counts, a map of them, and a table by pages. Pure.

Kept by `netdra.console.server` for thousands of nodes, so of a NodeNetwork only the numbers are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from netdra.console.frame import STATES, legend, note, page, table
from netdra.console.markup import Markup, PageAddress, element
from netdra.model.device import POOLED
from netdra.model.meta import ObjectMeta

ROWS = 100
"""Nodes of the table on one page."""
MAX_CELLS = 10_000
_COLUMNS = 100
_CELL = 12
_STEPS = 4
GONE = "gone"


class CountedDevice(msgspec.Struct, frozen=True):
    """Whether a claim has a device."""

    allocated: bool = False


class CountedGroup(msgspec.Struct, frozen=True, rename="camel"):
    """Interfaces that are alike, as far as they are counted."""

    count: int = 0
    state: str = ""
    reason: str = ""
    devices: tuple[CountedDevice, ...] = ()
    attributes: Mapping[str, bool | int | str] = {}

    def states(self) -> Iterator[tuple[str, int]]:
        """How many of its devices or interfaces have each state."""
        for device in self.devices:
            yield (GONE if self.state == GONE else "allocated" if device.allocated else "offered"), self.count
        if not self.devices and self.state == GONE:
            yield GONE, self.count
        elif not self.devices and not self.reason.startswith(POOLED):
            yield hidden_state(self.attributes), self.count


def hidden_state(attributes: Mapping[str, object]) -> str:
    """The state of a hidden interface."""
    return "host" if attributes.get("hostUse") or attributes.get("hostUplink") else "hidden"


class CountedSummary(msgspec.Struct, frozen=True):
    """The number of a node's problems."""

    problems: int = 0


class CountedStatus(msgspec.Struct, frozen=True):
    """A node's report, as far as it is counted."""

    summary: CountedSummary = CountedSummary()
    interfaces: tuple[CountedGroup, ...] = ()


class CountedNode(msgspec.Struct, frozen=True):
    """A NodeNetwork, as far as it is counted."""

    metadata: ObjectMeta
    status: CountedStatus | None = None


class NodeCounts(NamedTuple):
    """A node in numbers: how many devices and interfaces have each state, and its problems."""

    name: str
    offered: int = 0
    allocated: int = 0
    host: int = 0
    hidden: int = 0
    gone: int = 0
    problems: int = 0

    @property
    def devices(self) -> int:
        """The number of published devices."""
        return self.offered + self.allocated

    @property
    def words(self) -> str:
        """The node in words."""
        problems = f", {self.problems} problems" if self.problems else ""
        states = (f"{count} {name}" for name, count in zip(STATES, self[1:6], strict=True) if count)
        return f"{self.name}: {', '.join(states) or 'no interfaces'}{problems}"

    @property
    def cell(self) -> str:
        """The class of its cell: the share of its devices that claims have, in steps; `gone` comes first."""
        if self.gone:
            return GONE
        if not self.devices:
            return "none"
        return f"s{-(-self.allocated * _STEPS // self.devices)}"


def count(node: CountedNode) -> NodeCounts:
    """A node in numbers."""
    numbers = dict.fromkeys(STATES, 0)
    status = node.status or CountedStatus()
    for group in status.interfaces:
        for name, number in group.states():
            numbers[name] += number
    return NodeCounts(node.metadata.name, **numbers, problems=status.summary.problems)


class Shown(NamedTuple):
    """The part of the fleet that a page shows: nodes whose names hold a text, with a state, from a page on."""

    text: str = ""
    state: str = ""
    number: int = 1


def fleet_page(nodes: Sequence[NodeCounts], shown: Shown, problem: str = "", version: str = "") -> bytes:
    """The page of all nodes.

    Args:
        nodes: in the order of their names.
        shown: the part of them.
        problem: why the numbers may be old, "" if they are not.
        version: that of the nodes, from which on changes are events.
    """
    chosen = [node for node in nodes if shown.text in node.name and (not shown.state or _has(node, shown.state))]
    rows = islice(chosen, (shown.number - 1) * ROWS, shown.number * ROWS)
    content = (
        note(problem, "problem") if problem else None,
        element("p", _summary(nodes), id="summary"),
        _heat_map(chosen),
        legend(),
        _filter(shown),
        table(f"Nodes: {len(chosen)}", ("Node", *map(str.capitalize, STATES), "Problems"), map(_row, rows)),
        _pages(len(chosen), shown),
    )
    return page("Nodes", content, is_live=True, here="Nodes", version=version)


def _has(node: NodeCounts, name: str) -> bool:
    return name in (*STATES, "problems") and int(getattr(node, name)) > 0


def _summary(nodes: Sequence[NodeCounts]) -> str:
    totals = (f"{sum(int(node[at]) for node in nodes)} {name}" for at, name in enumerate(STATES, 1))
    many = "1 node reports" if len(nodes) == 1 else f"{len(nodes)} nodes report"
    return f"{many}: {', '.join(totals)}."


def _heat_map(nodes: Collection[NodeCounts]) -> Markup:
    """A cell for each node. Its links are in the table too, so the keyboard skips them."""
    drawn = min(len(nodes), MAX_CELLS)
    height = -(-drawn // _COLUMNS) * _CELL
    width = min(drawn, _COLUMNS) * _CELL
    cells = (_cell(node, *divmod(at, _COLUMNS)) for at, node in enumerate(islice(nodes, MAX_CELLS)))
    left = len(nodes) - drawn
    box = f"0 0 {width} {height}"
    drawing = element("svg", cells, viewBox=box, width=width, height=height, class_="heat", aria_hidden="true")
    about = "Each cell is a node, by the share of its devices that are allocated. The table has the numbers."
    return element(
        "figure",
        drawing if drawn else None,
        element("figcaption", about, " A cross marks a node with a device that is gone.", _left(left), _scale()),
    )


def _left(number: int) -> str | None:
    return f" {number} more nodes are not drawn: choose fewer." if number > 0 else None


def _scale() -> Markup:
    words = ("no device", "0 %", "up to 25 %", "up to 50 %", "up to 75 %", "up to 100 %")
    shades = ("none", *(f"s{step}" for step in range(_STEPS + 1)))
    boxes = (
        element(
            "li", element("svg", element("rect", class_=shade, width=12, height=12), width=12, height=12), f" {word}"
        )
        for word, shade in zip(words, shades, strict=True)
    )
    return element("ul", boxes, class_="scale")


def _cell(node: NodeCounts, row: int, column: int) -> Markup:
    x, y = column * _CELL, row * _CELL
    cross = element("path", d=f"M{x + 2} {y + 2}l7 7m0-7l-7 7") if node.gone else None
    return element(
        "a",
        element("title", node.words),
        element("rect", class_=node.cell, x=x, y=y, width=_CELL - 1, height=_CELL - 1),
        cross,
        href=PageAddress("nodes", node.name),
        tabindex=-1,
    )


def _filter(shown: Shown) -> Markup:
    choices = (
        element("option", name or "any state", value=name, selected=name == shown.state)
        for name in ("", *STATES, "problems")
    )
    return element(
        "form",
        element("label", "Name contains ", element("input", name="text", value=shown.text, maxlength=253)),
        element("label", "With ", element("select", choices, name="state")),
        element("button", "Show", type="submit"),
        action=PageAddress(),
        method="get",
        role="search",
    )


def _row(node: NodeCounts) -> tuple[Markup | int, ...]:
    return element("a", node.name, href=PageAddress("nodes", node.name)), *node[1:]


def _pages(nodes: int, shown: Shown) -> Markup | None:
    last = max(1, -(-nodes // ROWS))
    if last == 1:
        return None

    def link(number: int, name: str) -> Markup | None:
        where = PageAddress(text=shown.text, state=shown.state, page=str(number))
        return element("li", element("a", name, href=where)) if 1 <= number <= last else None

    here = element("li", f"page {shown.number} of {last}")
    turns = element("ul", link(shown.number - 1, "Previous"), here, link(shown.number + 1, "Next"))
    return element("nav", turns, aria_label="Pages of nodes")
