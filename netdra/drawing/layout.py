"""Where the boxes and lines of a graph's picture go, in cells of a character grid. Used by `terminal` and `document`.

A column for each level of the graph, the devices at the left. Lines leave a step's box at the right and arrive at the
left of those that depend on it; those that go farther than the next column pass between its boxes. Different nets of
lines share no cell but where one crosses the other at a right angle, so every line can be followed to its end. A net
leaves at some rows on the left, goes up and down its track, and arrives at some rows on the right: where one leaves at
the row at which another arrives, its track must be the one further left, or both would share cells.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

import msgspec

from netdra.topology.graph import Graph

_SWEEPS = 6


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A step's box: its texts, its upper left cell and its size, borders included."""

    name: str
    lines: tuple[str, ...]
    is_root: bool
    x: int
    y: int
    width: int
    height: int


class Connector(msgspec.Struct, frozen=True):
    """A net of lines.

    Attributes:
        pieces: straight pieces as (x1, y1, x2, y2), from left to right and from top to bottom.
        arrows: the cells before the boxes that it arrives at.
    """

    pieces: tuple[tuple[int, int, int, int], ...]
    arrows: tuple[tuple[int, int], ...] = ()


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """A whole picture; all cells are right of and below 0, 0."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[Connector, ...]


class _Spot:
    """A place in a column: a step's box, or where a line passes (then without texts)."""

    __slots__ = ("arriving", "key", "lines", "y")

    def __init__(self, key: str, lines: tuple[str, ...] = ()) -> None:
        self.key, self.lines = key, lines
        self.arriving: list[_Bundle] = []
        self.y = 0

    def height(self, step: int) -> int:
        """Its rows; `step` is 2 where departures have odd rows and arrivals even ones, else 1."""
        if not self.lines:
            return step
        return max(2 + len(self.lines), 2 + step * len(self.arriving))

    def leave(self, step: int) -> int:
        """The row at which its lines leave."""
        return self.y + (1 if self.lines else step - 1)

    def arrive(self, bundle: _Bundle, step: int) -> int:
        """The row at which the lines of a bundle arrive."""
        return self.y + (step + step * self.arriving.index(bundle) if self.lines else 0)


class _Bundle:
    """Lines of one channel that are drawn as one net: from one spot to several, or from several to one."""

    __slots__ = ("sources", "targets")

    def __init__(self, sources: list[_Spot], targets: list[_Spot]) -> None:
        self.sources, self.targets = sources, targets

    def net(self, step: int) -> Net:
        """The rows that it joins."""
        return Net(
            tuple(spot.leave(step) for spot in self.sources), tuple(spot.arrive(self, step) for spot in self.targets)
        )


Column = list[_Spot]
Links = list[tuple[_Spot, _Spot]]
_Near = dict[_Spot, list[_Spot]]


def lay_out(graph: Graph, labels: Mapping[str, Sequence[str]]) -> Layout:
    """The picture of a graph whose boxes hold the given texts, at least one for each step."""
    columns, links = _columns(graph, labels)
    _order(columns, links)
    channels = [_bundles(columns[at], columns[at + 1], link) for at, link in enumerate(links)]
    # Rows that allow no order of the tracks are rare; then departures and arrivals are kept on rows of their own.
    for step in (1, 2):
        _place(columns, links, step)
        lanes = [tracks([bundle.net(step) for bundle in channel]) for channel in channels]
        if None not in lanes:
            break
    routed = [lane for lane in lanes if lane is not None]
    assert len(routed) == len(channels)
    return _assembled(graph, columns, channels, routed, step)


def _columns(graph: Graph, labels: Mapping[str, Sequence[str]]) -> tuple[list[Column], list[Links]]:
    """The spots by level, and the lines between each two columns."""
    level = {name: at for at, names in enumerate(graph.levels) for name in names}
    columns = [[_Spot(name, tuple(labels[name])) for name in names] for names in graph.levels]
    spots = {(at, spot.key): spot for at, column in enumerate(columns) for spot in column}
    links: list[Links] = [[] for _ in columns[1:]]
    for step in graph.steps:
        for source in step.depend_on:
            before = spots[level[source], source]
            for at in range(level[source] + 1, level[step.name]):
                key = (at, f"{source} passes")
                if key not in spots:
                    spots[key] = _Spot(source)
                    columns[at].append(spots[key])
                    links[at - 1].append((before, spots[key]))
                before = spots[key]
            links[level[step.name] - 1].append((before, spots[level[step.name], step.name]))
    return columns, links


def _order(columns: list[Column], links: list[Links]) -> None:
    """Order each column by where its neighbours are, and keep the order in which the lines cross least."""
    best = [list(column) for column in columns]
    least = _crossings(columns, links)
    for sweep in range(_SWEEPS):
        for at, other, near in _sweep(columns, links, forward=sweep % 2 == 0):
            places = {spot: place for place, spot in enumerate(columns[other])}
            own = {spot: float(place) for place, spot in enumerate(columns[at])}
            own |= {spot: fmean(places[neighbour] for neighbour in neighbours) for spot, neighbours in near.items()}
            columns[at].sort(key=own.__getitem__)
        if (count := _crossings(columns, links)) < least:
            least, best = count, [list(column) for column in columns]
    columns[:] = best


def _sweep(columns: list[Column], links: list[Links], *, forward: bool) -> Iterator[tuple[int, int, _Near]]:
    """The columns from one end to the other, each with the column before it and the neighbours of its spots there."""
    for at in range(1, len(columns)) if forward else range(len(columns) - 2, -1, -1):
        near: _Near = {}
        for source, target in links[at - 1 if forward else at]:
            spot, neighbour = (target, source) if forward else (source, target)
            near.setdefault(spot, []).append(neighbour)
        yield at, at - 1 if forward else at + 1, near


def _crossings(columns: list[Column], links: list[Links]) -> int:
    count = 0
    for at, between in enumerate(links):
        left = {spot: place for place, spot in enumerate(columns[at])}
        right = {spot: place for place, spot in enumerate(columns[at + 1])}
        seen: list[int] = []
        for place in (right[target] for _, target in sorted(between, key=lambda link: (left[link[0]], right[link[1]]))):
            count += len(seen) - bisect_right(seen, place)
            insort(seen, place)
    return count


def _bundles(left: Column, right: Column, links: Links) -> list[_Bundle]:
    """The nets of a channel: a spot that goes to one place joins those that go to the same, else it fans out."""
    targets = {spot: [target for source, target in links if source is spot] for spot in left}
    joined: dict[_Spot, list[_Spot]] = {spot: [] for spot in right}
    fans: list[_Bundle] = []
    for spot in left:
        if len(targets[spot]) == 1:
            joined[targets[spot][0]].append(spot)
        elif targets[spot]:
            fans.append(_Bundle([spot], targets[spot]))
    bundles = [*fans, *(_Bundle(sources, [target]) for target, sources in joined.items() if sources)]
    places = {spot: at for at, spot in enumerate(left)}
    bundles.sort(key=lambda bundle: places[bundle.sources[0]])
    for bundle in bundles:
        for target in bundle.targets:
            target.arriving.append(bundle)
    return bundles


def _place(columns: list[Column], links: list[Links], step: int) -> None:
    """Give every spot its rows: near its neighbours, in the column's order, without touching others."""
    for column in columns:
        _spread(column, [0.0] * len(column), step)
    for forward in (True, False, True):
        for at, _, near in _sweep(columns, links, forward=forward):
            wanted = [fmean(neighbour.y for neighbour in near.get(spot, [spot])) for spot in columns[at]]
            _spread(columns[at], wanted, step)
    top = min(spot.y for column in columns for spot in column)
    for column in columns:
        for spot in column:
            spot.y -= top


def _spread(column: Column, wanted: Sequence[float], step: int) -> None:
    """Place a column's spots as near as can be to the rows wanted (pool adjacent violators)."""
    offsets = [0]
    for spot in column:
        needed = spot.height(step) + 1
        offsets.append(offsets[-1] + needed + needed % step)
    pools: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=False):
        pools.append((want - offset, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (first, count), (second, more) = pools[-2], pools.pop()
            pools[-1] = ((first * count + second * more) / (count + more), count + more)
    starts = [start for start, count in pools for _ in range(count)]
    for spot, start, offset in zip(column, starts, offsets, strict=False):
        spot.y = step * round(start / step) + offset


def _assembled(
    graph: Graph, columns: list[Column], channels: list[list[_Bundle]], routed: list[list[int | None]], step: int
) -> Layout:
    """All cells, once it is known how wide the columns and the channels between them are."""
    roots = {root.name for root in graph.roots}
    boxes: list[Box] = []
    lines: list[Connector] = []
    x = 0
    for at, column in enumerate(columns):
        width = max((len(text) for spot in column for text in spot.lines), default=0) + 4
        boxes += [_box(spot, x, width, step, is_root=spot.key in roots) for spot in column if spot.lines]
        lines += [_passage(spot, x, x + width - 1, step) for spot in column if not spot.lines]
        x += width
        if at < len(channels):
            gap = 5 + 2 * max((track for track in routed[at] if track is not None), default=-1)
            for bundle, track in zip(channels[at], routed[at], strict=True):
                lines.append(_line(bundle, x - 1, x + gap, x + 1 + 2 * (track or 0), step))
            x += gap
    height = max(spot.y + spot.height(step) for column in columns for spot in column)
    return Layout(width=x, height=height, boxes=tuple(boxes), lines=tuple(lines))


def _box(spot: _Spot, x: int, width: int, step: int, *, is_root: bool) -> Box:
    return Box(name=spot.key, lines=spot.lines, is_root=is_root, x=x, y=spot.y, width=width, height=spot.height(step))


def _passage(spot: _Spot, left: int, right: int, step: int) -> Connector:
    enters, leaves = spot.y, spot.leave(step)
    if enters == leaves:
        return Connector(((left, enters, right, enters),))
    middle = (left + right) // 2
    return Connector(
        ((left, enters, middle, enters), (middle, enters, middle, leaves), (middle, leaves, right, leaves))
    )


def _line(bundle: _Bundle, left: int, right: int, track: int, step: int) -> Connector:
    """A bundle's pieces between the last cell of one column and the first of the next."""
    net = bundle.net(step)
    arrows = tuple((right - 1, row) for spot, row in zip(bundle.targets, net.arrives, strict=True) if spot.lines)
    if net.is_straight:
        return Connector(((left, net.leaves[0], right, net.leaves[0]),), arrows)
    pieces = [(left, row, track, row) for row in net.leaves] + [(track, row, right, row) for row in net.arrives]
    low, high = net.span
    return Connector((*pieces, (track, low, track, high)), arrows)


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
        """The sort key for few crossings of nets: of those that go down the lowest is first, else the highest."""
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
    tracks: dict[int, int] = {}
    waiting = sorted(after, key=lambda at: nets[at].inclination)
    while waiting:
        ready = next((at for at in waiting if after[at] <= tracks.keys()), None)
        if ready is None:
            return None
        waiting.remove(ready)
        first = 1 + max((tracks[other] for other in after[ready]), default=-1)
        tracks[ready] = _free(nets, tracks, ready, first)
    return [tracks.get(at) for at in range(len(nets))]


def _free(nets: Sequence[Net], lanes: Mapping[int, int], at: int, first: int) -> int:
    """The first track from `first` on that no other net uses on the same rows."""
    low, high = nets[at].span
    used = {track for other, track in lanes.items() if nets[other].span[0] <= high and low <= nets[other].span[1]}
    while first in used:
        first += 1
    return first
