"""The dashboard of `netdra top --watch`: the effect of each key, and the lines of the screen. Pure.

Called by `netdra.cli.top_watch`. The screen has at least 40 columns and 8 lines; 80 by 24 shows everything.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from netdra.console.fleet import NodeCounts, sums
from netdra.console.rows import network_state
from netdra.console.times import age
from netdra.console.troubles import ClusterExamination, ClusterTrouble
from netdra.model.pod_network import PodNetwork, PodNetworkStatus

View = Literal["trouble", "nodes", "networks"]
VIEWS: tuple[View, ...] = ("trouble", "nodes", "networks")
_TITLES = {"trouble": "Trouble", "nodes": "Nodes", "networks": "Networks"}
MIN_COLUMNS, MIN_LINES = 40, 8
_BAR = 12
_KEYS = "1-3 view  up/down move  Enter details  / filter  q quit"
_DETAIL_KEYS = "up/down scroll  Esc back  q quit"
_FRAME = 4
"""Lines that are no rows: the summary, the views, the columns, the keys."""


class DashboardData(NamedTuple):
    """A cluster at one time."""

    nodes: Sequence[NodeCounts] = ()
    found: ClusterExamination = ClusterExamination()
    networks: Sequence[PodNetwork] = ()
    now: str = ""
    problem: str = ""


class Line(NamedTuple):
    """A line of the screen: its text, and its style: plain, bold, selected, bad, warn or quiet."""

    text: str
    style: str = "plain"


class Screen(NamedTuple):
    """The state of the dashboard.

    Attributes:
        view: the shown list.
        at: the selected row, from 0 on.
        is_open: whether the details of the row are shown.
        scroll: the first line of the details.
        text: the filter.
        is_typing: whether keys change the filter.
        has_ended: whether the user has quit.
    """

    view: View = "trouble"
    at: int = 0
    is_open: bool = False
    scroll: int = 0
    text: str = ""
    is_typing: bool = False
    has_ended: bool = False


class Entry(NamedTuple):
    """A row of a list: its line, its style, and the lines of its details."""

    line: str
    style: str
    details: Sequence[str]


def press(screen: Screen, key: str, rows: int) -> Screen:
    """The dashboard after a key.

    Args:
        screen: before it.
        key: a character, or `up`, `down`, `pageup`, `pagedown`, `home`, `end`, `enter`, `escape`, `backspace`.
        rows: the number of rows of the list.
    """
    if screen.is_typing:
        return _type(screen, key)
    if key in ("q", "\x03"):
        return screen._replace(has_ended=True)
    if screen.is_open:
        return _scroll(screen, key)
    if key in ("1", "2", "3"):
        return Screen(view=VIEWS[int(key) - 1])
    if key == "tab":
        return Screen(view=VIEWS[(VIEWS.index(screen.view) + 1) % len(VIEWS)])
    if key == "/":
        return screen._replace(is_typing=True, text="", at=0)
    if key == "enter":
        return screen._replace(is_open=rows > 0, scroll=0)
    if key == "escape":
        return screen._replace(text="", at=0)
    return screen._replace(at=_moved(screen.at, key, rows))


def _type(screen: Screen, key: str) -> Screen:
    if key in ("enter", "escape"):
        return screen._replace(is_typing=False, text="" if key == "escape" else screen.text)
    if key == "backspace":
        return screen._replace(text=screen.text[:-1], at=0)
    return screen._replace(text=screen.text + key, at=0) if len(key) == 1 and key.isprintable() else screen


def _scroll(screen: Screen, key: str) -> Screen:
    if key in ("escape", "backspace", "enter"):
        return screen._replace(is_open=False)
    return screen._replace(scroll=_moved(screen.scroll, key, 10_000))


def _moved(at: int, key: str, rows: int) -> int:
    steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10, "pagedown": 10, "home": -rows, "end": rows}
    return max(0, min(at + steps.get(key, 0), rows - 1))


def entries(screen: Screen, shot: DashboardData) -> list[Entry]:
    """The rows of the list, trouble first."""
    if screen.view == "trouble":
        found = [_trouble(trouble) for trouble in shot.found.troubles]
    elif screen.view == "nodes":
        ordered = sorted(shot.nodes, key=lambda node: (not node.is_in_trouble, node.name))
        found = [_node(node, shot.found) for node in ordered]
    else:
        found = [_network(network) for network in sorted(shot.networks, key=lambda network: network.name)]
    return [entry for entry in found if screen.text.lower() in entry.line.lower()]


def _trouble(trouble: ClusterTrouble) -> Entry:
    mark = "!" if trouble.is_error else "-"
    line = f"{mark} {trouble.counted:<14} {trouble.code:<20} {' '.join(trouble.text.split())}"
    details = [f"{trouble.code}: {trouble.counted}", "", trouble.text]
    if trouble.next_step:
        details += ["", f"Next: {trouble.next_step}"]
    details += ["", *(f"  {subject.words}" for subject in trouble.subjects)]
    return Entry(line, "bad" if trouble.is_error else "warn", details)


def _bar(used: int, total: int) -> str:
    filled = -(-used * _BAR // total) if total else 0
    return "#" * min(filled, _BAR) + "." * (_BAR - min(filled, _BAR))


def _node(node: NodeCounts, found: ClusterExamination) -> Entry:
    use = f"{node.allocated}/{node.devices}"
    counts = f"{use:>9} {node.hidden:>6} {node.problems:>8} {node.tainted:>7}"
    line = f"{node.name:<28} {_bar(node.allocated, node.devices)} {counts}"
    causes = [
        text
        for trouble in found.troubles
        if any(subject.page == "nodes" and subject.name == node.name for subject in trouble.subjects)
        for text in ("", f"{trouble.code}: {trouble.text}", f"Next: {trouble.next_step}")
    ]
    return Entry(line, "warn" if node.is_in_trouble else "plain", [node.words, *causes])


def _network(network: PodNetwork) -> Entry:
    status = network.status or PodNetworkStatus()
    free, state = max(status.total - status.used - status.reserved, 0), network_state(network)
    bar = _bar(status.used + status.reserved, status.total)
    line = f"{network.name:<24} {state:<12} {bar} {status.used:>7} {status.reserved:>8} {free:>9}"
    ranges = [f"{entry.cidr}: {entry.used} of {entry.total} used, {entry.reserved} reserved" for entry in status.ranges]
    problems = [f"{condition.type}: {condition.message}" for condition in status.conditions]
    style = "bad" if state in ("Failing", "Full") else "warn" if state == "Nearly full" else "plain"
    return Entry(line, style, [f"PodNetwork {network.name}: {state}", "", *ranges, "", *problems])


_COLUMNS = {
    "trouble": f"  {'OBJECTS':<14} {'CAUSE':<20} TEXT",
    "nodes": f"{'NODE':<28} {'IN USE':<{_BAR}} {'':>9} {'HIDDEN':>6} {'PROBLEMS':>8} {'TAINTED':>7}",
    "networks": f"{'NETWORK':<24} {'STATE':<12} {'ADDRESSES':<{_BAR}} {'USED':>7} {'RESERVED':>8} {'FREE':>9}",
}


def render(screen: Screen, shot: DashboardData, columns: int, lines: int) -> list[Line]:
    """The lines of the screen: `lines` of them, none longer than `columns`."""
    if columns < MIN_COLUMNS or lines < MIN_LINES:
        made = [Line(f"the terminal is smaller than {MIN_COLUMNS} by {MIN_LINES}")]
    else:
        made = [*_head(screen, shot, columns)]
        found = entries(screen, shot)
        room = lines - _FRAME
        if screen.is_open and found:
            made += [Line(""), *_details(found[min(screen.at, len(found) - 1)], screen, columns, room)]
        else:
            made += [Line(_COLUMNS[screen.view], "bold"), *_list(screen, shot, found, room)]
        made += [Line("")] * (lines - 1 - len(made))
        made.append(Line(_foot(screen), "quiet"))
    fitted = [line._replace(text=_fit(line.text, columns)) for line in made[:lines]]
    return [*fitted, *[Line("")] * (lines - len(fitted))]


def _fit(text: str, columns: int) -> str:
    shown = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)
    return shown if len(shown) <= columns else f"{shown[: columns - 1]}…"


def _head(screen: Screen, shot: DashboardData, columns: int) -> Iterator[Line]:
    total, found = sums(shot.nodes), shot.found
    bad = sum(node.is_in_trouble for node in shot.nodes)
    parts = (
        f"netdra  {len(found.troubles)} causes",
        f"{found.stuck}/{found.pods} pods stuck",
        f"{bad}/{len(shot.nodes)} nodes in trouble",
        f"{total.allocated}/{total.devices} devices used",
    )
    yield Line("  ".join(parts), "bad" if any(trouble.is_error for trouble in found.troubles) else "bold")
    views = "  ".join(
        f"[{at} {_TITLES[view]}]" if view == screen.view else f" {at} {_TITLES[view]} "
        for at, view in enumerate(VIEWS, 1)
    )
    old = age(found.checked, shot.now)
    when = shot.problem or found.problem or (f"checked {old} ago" if old else "being checked")
    yield Line(f"{views}{when:>{max(columns - len(views), 0)}}")


def _list(screen: Screen, shot: DashboardData, found: Sequence[Entry], room: int) -> Iterator[Line]:
    if not found:
        yield Line(_empty(screen, shot))
        return
    at = min(screen.at, len(found) - 1)
    first = max(0, min(at - room + 2, len(found) - room)) if at >= room - 1 else 0
    for number, entry in enumerate(found[first : first + room], first):
        yield Line(entry.line, "selected" if number == at else entry.style)


def _empty(screen: Screen, shot: DashboardData) -> str:
    if screen.text:
        return f'no row contains "{screen.text}"'
    if screen.view == "trouble":
        return "Nothing is wrong." if shot.found.checked else "The cluster is being checked."
    return "no node reports" if screen.view == "nodes" else "the cluster has no PodNetworks"


def _details(entry: Entry, screen: Screen, columns: int, room: int) -> list[Line]:
    wrapped = [part for text in entry.details for part in (textwrap.wrap(text, columns - 2) or [""])]
    first = max(0, min(screen.scroll, len(wrapped) - room))
    return [Line(f" {text}") for text in wrapped[first : first + room]]


def _foot(screen: Screen) -> str:
    if screen.is_typing:
        return f"filter: {screen.text}_"
    if screen.is_open:
        return _DETAIL_KEYS
    return f"{_KEYS}{f'  filter: {screen.text}' if screen.text else ''}"
