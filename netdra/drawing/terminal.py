"""A graph drawn with boxes and lines for a terminal. Called by `netdra graph` and by the lab's demo.

Devices that the scheduler allocates have heavy borders. Where two lines cross, the vertical one is drawn through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from netdra.drawing.layout import Box, Connector, Layout, lay_out
from netdra.model.topology import Step
from netdra.topology.graph import Graph
from netdra.topology.interfaces import has_interface

_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_VERTICAL, _HORIZONTAL = _UP | _DOWN, _LEFT | _RIGHT

_LINES = {
    _VERTICAL: "│",
    _HORIZONTAL: "─",
    _DOWN | _RIGHT: "╭",
    _DOWN | _LEFT: "╮",
    _UP | _RIGHT: "╰",
    _UP | _LEFT: "╯",
    _VERTICAL | _RIGHT: "├",
    _VERTICAL | _LEFT: "┤",
    _HORIZONTAL | _DOWN: "┬",
    _HORIZONTAL | _UP: "┴",
    _VERTICAL | _HORIZONTAL: "┼",
}
# Corners and sides of a box, and the place at its right side where a line leaves.
_LIGHT, _HEAVY = "╭╮╰╯─│├", "┏┓┗┛━┃┠"
_ARROW = "▶"
_ASCII = str.maketrans("│─╭╮╰╯├┤┬┴┼┏┓┗┛━┃┠▶·←", "|-+++++++++++++=||>.<")


def draw(graph: Graph, interfaces: Mapping[str, str], *, width: int = 120, ascii_only: bool = False) -> str:
    """The graph as text, lines ended by newlines but for the last.

    Args:
        interfaces: the interface of each step (`interfaces.assign`).
        width: the available columns; a wider graph is written as a list.
        ascii_only: whether to do without the signs that a terminal without UTF-8 lacks.
    """
    layout = lay_out(graph, {step.name: labels(step, interfaces) for step in graph.steps})
    drawn = "\n".join(_rows(layout)) if layout.width <= width else outline(graph, interfaces)
    return drawn.translate(_ASCII) if ascii_only else drawn


def labels(step: Step, interfaces: Mapping[str, str]) -> tuple[str, str]:
    """The texts of a step's box: the step's name, and its type with its interface."""
    return step.name, f"{step.type} · {interfaces[step.name] if has_interface(step) else 'no interface'}"


def outline(graph: Graph, interfaces: Mapping[str, str]) -> str:
    """The graph as a list of steps in the order in which they run, each with its predecessors."""
    widest = max(len(step.name) for step in graph.steps)
    return "\n".join(
        f"{at:>2}. {step.name:<{widest}}  {labels(step, interfaces)[1]}"
        + (f"  ← {', '.join(step.depend_on)}" if step.depend_on else "")
        for at, step in enumerate(graph.steps, 1)
    )


def _rows(layout: Layout) -> Iterator[str]:
    cells = _line_cells(layout.lines)
    for box in layout.boxes:
        cells |= _box_cells(box, cells)
    for y in range(layout.height):
        yield "".join(cells.get((x, y), " ") for x in range(layout.width)).rstrip()


def _line_cells(lines: Sequence[Connector]) -> dict[tuple[int, int], str]:
    """The sign of each cell that lines go through."""
    ways: dict[tuple[int, int], int] = {}
    for line in lines:
        own: dict[tuple[int, int], int] = {}
        for x1, y1, x2, y2 in line.pieces:
            for x in range(x1, x2):
                own[x, y1] = own.get((x, y1), 0) | _RIGHT
                own[x + 1, y1] = own.get((x + 1, y1), 0) | _LEFT
            for y in range(y1, y2):
                own[x1, y] = own.get((x1, y), 0) | _DOWN
                own[x1, y + 1] = own.get((x1, y + 1), 0) | _UP
        for cell, way in own.items():
            crosses = {ways.get(cell, 0), way} == {_VERTICAL, _HORIZONTAL}
            ways[cell] = _VERTICAL if crosses else ways.get(cell, 0) | way
    signs = {cell: _LINES.get(way, _LINES[_HORIZONTAL]) for cell, way in ways.items()}
    return signs | {arrow: _ARROW for line in lines for arrow in line.arrows}


def _box_cells(box: Box, lines: Mapping[tuple[int, int], str]) -> dict[tuple[int, int], str]:
    """A box's cells; `lines` states where one leaves it."""
    signs = _HEAVY if box.is_root else _LIGHT
    right, bottom = box.x + box.width - 1, box.y + box.height - 1
    inside = [f" {text:<{box.width - 3}}" for text in box.lines]
    inside += [" " * (box.width - 2)] * (box.height - 2 - len(inside))
    edge = signs[4] * (box.width - 2)
    rows = [f"{signs[0]}{edge}{signs[1]}", *(f"{signs[5]}{text}{signs[5]}" for text in inside)]
    rows.append(f"{signs[2]}{edge}{signs[3]}")
    cells = {(box.x + x, box.y + y): sign for y, row in enumerate(rows) for x, sign in enumerate(row)}
    ports = [(right, y) for y in range(box.y + 1, bottom) if (right, y) in lines]
    return cells | dict.fromkeys(ports, signs[6])
