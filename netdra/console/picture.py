"""A pod's network as a picture: the graph of a topology as SVG, each step with its state. Pure.

The layout is `netdra.drawing`'s. Colours are the style sheet's; each box has its state in words, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netdra.console.markup import Markup, element
from netdra.drawing.layout import Box, Connector, lay_out
from netdra.drawing.terminal import labels
from netdra.topology.graph import Graph

_WIDTH, _HEIGHT, _MARGIN = 8, 19, 16
_MAX_TEXT = 48
"""Characters of a line of a box."""


def picture(graph: Graph, interfaces: Mapping[str, str], states: Mapping[str, str]) -> Markup:
    """The picture of a graph.

    Args:
        graph: the topology's.
        interfaces: by step, the interface that it makes or changes.
        states: by step, its state in one word: done, failed, waiting or unknown.
    """
    texts = {step.name: (*map(_short, labels(step, interfaces)), states[step.name]) for step in graph.steps}
    layout = lay_out(graph, texts)
    width, height = layout.width * _WIDTH + 2 * _MARGIN, layout.height * _HEIGHT + 2 * _MARGIN
    lines = (shape for line in layout.lines for shape in _line(line))
    boxes = (_box(box, states[box.name]) for box in layout.boxes)
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
        role="img",
        aria_label=about,
    )


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def _line(line: Connector) -> Iterator[Markup]:
    moves = " ".join(f"M{_x(x1)} {_y(y1)}L{_x(x2)} {_y(y2)}" for x1, y1, x2, y2 in line.pieces)
    yield element("path", d=moves, class_="line")
    for x, y in line.arrows:
        yield element("path", d=f"M{_x(x) + 8} {_y(y)}l-9 -4.5v9z", class_="arrow")


def _box(box: Box, state: str) -> Markup:
    width, height = (box.width - 1) * _WIDTH, (box.height - 1) * _HEIGHT
    kind = f"{state} device" if box.is_root else state
    texts = (
        element("text", text, x=_x(box.x + 2) - 4, y=_y(box.y + 1 + at) + 4, class_=("name", "type", "word")[at])
        for at, text in enumerate(box.lines)
    )
    return element("g", element("rect", x=_x(box.x), y=_y(box.y), width=width, height=height, rx=6), texts, class_=kind)


def _x(cell: int) -> int:
    """The middle of a cell, in pixels."""
    return _MARGIN + cell * _WIDTH + _WIDTH // 2


def _y(cell: int) -> int:
    return _MARGIN + cell * _HEIGHT + _HEIGHT // 2
