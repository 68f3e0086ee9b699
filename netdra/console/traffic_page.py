"""The traffic of pods' interfaces just now, as a list with rates and a curve of the last readings. Pure.

The same rates as `netdra top --traffic` (`netdra.story.traffic`); the readings are `netdra.console.traffic`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from netdra.console.frame import PageLife, bar, link, state
from netdra.console.listing import Cell, ListColumn, ListRow, ObjectList, Shown, list_page
from netdra.console.markup import Markup, element
from netdra.story.traffic import HISTORY, InterfaceTraffic

MAX_LINES = 2000
"""Interfaces of one list; a full node has 750."""
_HEIGHT = 24
_UNITS = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")
_THOUSAND = 1000
_BUSY = 0.9
"""The share of a claim's bandwidth from which an interface is marked."""


class PodTraffic(NamedTuple):
    """The rates of pods' interfaces, as far as the drivers could be read.

    Attributes:
        rows: the busiest interface first.
        problem: the reason if no driver could be read, "" if some could.
        next_step: the next step then; without rows, the reason.
        unread: the nodes whose counters are missing, with the reasons.
    """

    rows: Sequence[InterfaceTraffic] = ()
    problem: str = ""
    next_step: str = ""
    unread: Sequence[str] = ()


def traffic_page(found: PodTraffic, shown: Shown, life: PageLife) -> bytes:
    """The HTML of the page "Traffic", encoded; its rows are those of `traffic_list`."""
    return list_page(traffic_list(found, shown), shown, found.problem, life)


def traffic_list(found: PodTraffic, shown: Shown) -> ObjectList:
    """The interfaces of pods with their rates; of more than `MAX_LINES`, the first ones that match the filter."""
    columns = (
        ListColumn("pod", "Pod"),
        ListColumn("interface", "Interface"),
        ListColumn("state", "State"),
        ListColumn("received", "Received", is_number=True),
        ListColumn("sent", "Sent", is_number=True),
        ListColumn("history", "Last readings", is_number=True),
        ListColumn("share", "Bandwidth", is_number=True),
        ListColumn("drops", "Drops/s", is_number=True),
        ListColumn("errors", "Errors/s", is_number=True),
        ListColumn("node", "Node"),
        ListColumn("device", "Device"),
        ListColumn("network", "Network"),
    )
    matching = found.rows
    if len(matching) > MAX_LINES:
        text = shown.text.lower()
        matching = [row for row in matching if text in _text(row) and shown.namespace in ("", row.namespace)]
        matching.sort(key=lambda row: not row.errors)
    left = len(matching) - MAX_LINES
    remark = f"{left} more interfaces match; the busiest are listed. Filter by a name or a node." if left > 0 else ""
    rows = [_row(row) for row in matching[:MAX_LINES]]
    nothing = "No interface matches the filter." if found.rows else found.next_step
    return ObjectList("Traffic", "traffic", columns, rows, remark, found.unread, len(found.rows), nothing)


def _text(row: InterfaceTraffic) -> str:
    """The texts that a filter searches."""
    pod = f"{row.namespace}/{row.pod}"
    return " ".join((pod, row.interface, row.node, row.device, row.network, row.claim)).lower()


def _row(row: InterfaceTraffic) -> ListRow:
    pod = f"{row.namespace}/{row.pod}"
    name = _state(row)
    cells = (
        Cell(link(pod, "pods", row.namespace, row.pod), pod),
        Cell(row.interface or "in user space", row.interface),
        Cell(state(name), name),
        _rate(row.receive_bytes),
        _rate(row.transmit_bytes),
        Cell(curve(row.history), round(max(row.history, default=0.0))),
        _share(row),
        _number(row.drops),
        _number(row.errors),
        Cell(link(row.node, "nodes", row.node), row.node),
        Cell(link(row.device, "devices", row.node, row.device) if row.device else "", row.device),
        Cell(row.network, row.network),
    )
    return ListRow(("pods", row.namespace, row.pod), cells, name, row.namespace, _text(row))


def _state(row: InterfaceTraffic) -> str:
    if row.errors:
        return "Errors"
    if row.drops:
        return "Drops"
    return "Active" if row.receive_bytes or row.transmit_bytes else "Idle"


def _rate(value: float) -> Cell:
    return Cell(element("span", rate(value), title=f"{value:,.0f} B/s", class_="rate"), round(value))


def _number(value: float) -> Cell:
    return Cell(f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}", round(value * _THOUSAND))


def _share(row: InterfaceTraffic) -> Cell:
    if row.share is None:
        return Cell("", -1)
    used = min(round(100 * row.share), 100)
    words = f"{row.share:.0%} of {rate(row.bandwidth)}"
    return Cell(bar([("warn" if row.share >= _BUSY else "busy", used)], 100, words), used)


def rate(value: float) -> str:
    """Bytes per second in three digits, e.g. `1.25 MB/s`."""
    unit = 0
    while value >= _THOUSAND - 0.5 and unit < len(_UNITS) - 1:
        value /= _THOUSAND
        unit += 1
    return f"{value:.{0 if unit == 0 or value >= 100 else 1 if value >= 10 else 2}f} {_UNITS[unit]}"


def curve(history: Sequence[float]) -> Markup | None:
    """The rates of the last readings, the newest at the right end; None of less than two."""
    if len(history) < 2:
        return None
    most = max(history)
    first = HISTORY - len(history)
    points = [
        f"{(first + at) * 100 / (HISTORY - 1):.1f} {_HEIGHT - 2 - (value / most if most else 0.0) * (_HEIGHT - 4):.1f}"
        for at, value in enumerate(history)
    ]
    return element(
        "svg",
        element("path", d="M" + "L".join(points)),
        viewBox=f"0 0 100 {_HEIGHT}",
        preserveAspectRatio="none",
        class_="curve busy",
        role="img",
        aria_label=f"{rate(history[-1])}, at most {rate(most)}",
    )
