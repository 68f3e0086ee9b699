"""`netdra graph`: a topology as a picture, on the terminal or for a document."""

from __future__ import annotations

import shutil
import sys

import click

from netdra.cli import objects, shared, terminal
from netdra.model.errors import InvalidInputError
from netdra.model.topology import NetworkTopology


@click.command(name="graph")
@objects.options()
@shared.option("--topology", "NAME", "Draw only this topology.", "wanted")
@shared.output("terminal", "mermaid", "svg")
def command(given: objects.InputOptions, wanted: str | None, output: str) -> None:
    """Draw the graph of NetworkTopologies: devices with heavy borders, and the steps on top of them.

    PATHs are files, directories, or "-"; other kinds are ignored. A graph that is wider than the terminal is listed
    instead.
    """
    given.check()
    read = given.read((NetworkTopology,))
    topologies = read.require(NetworkTopology)
    if wanted is not None:
        there = f"the topologies are {', '.join(topology.name for topology in topologies)}"
        topologies = [topology for topology in topologies if topology.name == wanted]
        if not topologies:
            raise InvalidInputError(f'{read.source}: NetworkTopology "{wanted}" not found', hint=there, code="ND4020")
    if output == "svg" and len(topologies) > 1:
        names = ", ".join(topology.name for topology in topologies)
        raise InvalidInputError(
            "an SVG file can contain only one topology", hint=f"select one with --topology: {names}", code="ND4021"
        )
    for number, topology in enumerate(topologies):
        if number:
            click.echo()
        click.echo(_picture(topology, output), nl=False)


def _picture(topology: NetworkTopology, output: str) -> str:
    from netdra.drawing import document
    from netdra.drawing.terminal import draw
    from netdra.topology.graph import compile_topology
    from netdra.topology.interfaces import assign

    graph = compile_topology(topology)
    (interfaces,) = assign([graph])
    if output == "mermaid":
        return document.mermaid(graph, interfaces)
    if output == "svg":
        return document.svg(graph, interfaces)
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else terminal.PLAIN_WIDTH
    drawing = draw(graph, interfaces, width=width, ascii_only=not _speaks_unicode())
    name = click.style(graph.topology, bold=True) if on_terminal else graph.topology
    return f"{name}\n\n{drawing}\n"


def _speaks_unicode() -> bool:
    """Whether the signs of the drawing can be written to stdout."""
    try:
        "┏▶·←".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
