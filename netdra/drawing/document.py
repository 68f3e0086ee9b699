"""A graph as a picture for documents: Mermaid text, or SVG that needs nothing else. Called by `netdra graph`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from netdra.drawing.layout import Box, Connector, Layout, lay_out
from netdra.drawing.terminal import labels
from netdra.topology.graph import Graph

_CELL_WIDTH = 8
_CELL_HEIGHT = 19
_MARGIN = 16
_STYLE = """
  svg { color-scheme: light dark; font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace }
  rect { fill: #f6f8fa; stroke: #57606a; stroke-width: 1.2 }
  rect.device { fill: #ddf4ff; stroke: #0969da; stroke-width: 2.4 }
  path { fill: none; stroke: #57606a; stroke-width: 1.4 }
  path.arrow { fill: #57606a; stroke: none }
  text { fill: #1f2328 }
  text.step { font-weight: 700 }
  @media (prefers-color-scheme: dark) {
    rect { fill: #161b22; stroke: #8b949e } rect.device { fill: #0c2d4d; stroke: #58a6ff }
    path { stroke: #8b949e } path.arrow { fill: #8b949e } text { fill: #e6edf3 }
  }
"""


def mermaid(graph: Graph, interfaces: Mapping[str, str]) -> str:
    """The graph as a Mermaid flowchart; its nodes are numbered, as a step may be called like one of Mermaid's words."""
    number = {step.name: f"s{at}" for at, step in enumerate(graph.steps)}
    rows = ["flowchart LR"]
    for step in graph.steps:
        name, what = labels(step, interfaces)
        kind = ":::device" if step.is_root else ""
        rows.append(f'  {number[step.name]}["<b>{_entity(name)}</b><br/>{_entity(what)}"]{kind}')
    rows += [f"  {number[source]} --> {number[step.name]}" for step in graph.steps for source in step.depend_on]
    return "\n".join([*rows, "  classDef device stroke-width:3px"]) + "\n"


def svg(graph: Graph, interfaces: Mapping[str, str]) -> str:
    """The graph as an SVG document of its own, for light and dark pages."""
    layout = lay_out(graph, {step.name: labels(step, interfaces) for step in graph.steps})
    width = layout.width * _CELL_WIDTH + 2 * _MARGIN
    height = layout.height * _CELL_HEIGHT + 2 * _MARGIN
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    rows = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(graph.topology)}</title>",
        f"<style>{_STYLE}</style>",
        *_elements(layout),
        "</svg>",
    ]
    return "\n".join(rows) + "\n"


def _entity(text: str) -> str:
    """A text in a Mermaid label, where quotes and hashes have a meaning."""
    return escape(text.replace("#", "#35;"), quote=False).replace('"', "#quot;")


def _elements(layout: Layout) -> Iterator[str]:
    for line in layout.lines:
        yield from _line(line)
    for box in layout.boxes:
        yield from _box(box)


def _line(line: Connector) -> Iterator[str]:
    moves = " ".join(f"M{_x(x1)} {_y(y1)}L{_x(x2)} {_y(y2)}" for x1, y1, x2, y2 in line.pieces)
    yield f'<path d="{moves}"/>'
    for x, y in line.arrows:
        yield f'<path class="arrow" d="M{_x(x) + 8} {_y(y)}l-9 -4.5v9z"/>'


def _box(box: Box) -> Iterator[str]:
    kind = ' class="device"' if box.is_root else ""
    width, height = (box.width - 1) * _CELL_WIDTH, (box.height - 1) * _CELL_HEIGHT
    yield f'<rect{kind} x="{_x(box.x)}" y="{_y(box.y)}" width="{width}" height="{height}" rx="6"/>'
    for at, text in enumerate(box.lines):
        kind = ' class="step"' if at == 0 else ""
        yield f'<text{kind} x="{_x(box.x + 2) - 4}" y="{_y(box.y + 1 + at) + 4}">{escape(text)}</text>'


def _x(cell: int) -> int:
    """The middle of a cell, in pixels."""
    return _MARGIN + cell * _CELL_WIDTH + _CELL_WIDTH // 2


def _y(cell: int) -> int:
    return _MARGIN + cell * _CELL_HEIGHT + _CELL_HEIGHT // 2
