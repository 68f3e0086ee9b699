"""The graph of a topology as SVG, in the layout of `netdra graph`: each step with its state and interface. Pure.

Colours are the style sheet's; each box has its state in words, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from netdra.console.frame import TONES
from netdra.console.markup import Markup, PageAddress, element
from netdra.drawing.layout import Box, Connector, lay_out
from netdra.drawing.terminal import labels
from netdra.topology.graph import Graph

_WIDTH, _HEIGHT, _MARGIN = 8, 19, 12
_MAX_TEXT = 40
"""Characters of a line of a box."""


class DrawnStep(NamedTuple):
    """The content of a box beside the step's name and type.

    Attributes:
        interface: that the step makes or changes.
        state: in one word.
        lines: further lines, such as addresses.
        page: the page that the box leads to; None without one.
    """

    interface: str
    state: str
    lines: Sequence[str] = ()
    page: PageAddress | None = None


def picture(graph: Graph, steps: Mapping[str, DrawnStep]) -> Markup:
    """The picture of a graph, with a box for each step."""
    interfaces = {name: step.interface for name, step in steps.items()}
    texts = {
        step.name: (*map(_short, labels(step, interfaces)), *map(_short, drawn.lines), drawn.state)
        for step in graph.steps
        for drawn in (steps[step.name],)
    }
    layout = lay_out(graph, texts)
    width, height = layout.width * _WIDTH + 2 * _MARGIN, layout.height * _HEIGHT + 2 * _MARGIN
    lines = (shape for line in layout.lines for shape in _line(line))
    boxes = (_box(box, steps[box.name]) for box in layout.boxes)
    about = f"The steps of {graph.topology}; the table below has the same."
    return element(
        "svg",
        element("title", about),
        lines,
        boxes,
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        class_="graph",
        role="group",
        aria_label=about,
    )


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def _line(line: Connector) -> Iterator[Markup]:
    moves = " ".join(f"M{_x(x1)} {_y(y1)}L{_x(x2)} {_y(y2)}" for x1, y1, x2, y2 in line.pieces)
    yield element("path", d=moves, class_="line")
    for x, y in line.arrows:
        yield element("path", d=f"M{_x(x) + 8} {_y(y)}l-9 -4.5v9z", class_="arrow")


def _box(box: Box, step: DrawnStep) -> Markup:
    width, height = (box.width - 1) * _WIDTH, (box.height - 1) * _HEIGHT
    tone = TONES.get(step.state, "calm")
    last = len(box.lines) - 1
    texts = (
        element(
            "text",
            text,
            x=_x(box.x + 2) - 4,
            y=_y(box.y + 1 + at) + 4,
            class_="name" if at == 0 else "word" if at == last else "type",
        )
        for at, text in enumerate(box.lines)
    )
    drawn = element("rect", x=_x(box.x), y=_y(box.y), width=width, height=height, rx=8)
    inside = element("a", drawn, texts, href=step.page) if step.page is not None else (drawn, texts)
    return element("g", inside, class_=f"{tone} {step.state}{' device' if box.is_root else ''}")


def _x(cell: int) -> int:
    """The middle of a cell, in pixels."""
    return _MARGIN + cell * _WIDTH + _WIDTH // 2


def _y(cell: int) -> int:
    return _MARGIN + cell * _HEIGHT + _HEIGHT // 2
