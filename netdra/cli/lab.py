"""`netdra lab`: a node and its pods without a cluster. The story itself is told by `netdra.lab.demo`."""

from __future__ import annotations

import sys
import time
from typing import Any

import click
import msgspec

from netdra.lab import demo, isolation
from netdra.lab.chapters import Chapter, epilogue
from netdra.model.errors import PermanentError


@click.group(name="lab")
def command() -> None:
    """A node and its pods without a cluster, in network namespaces that are gone afterwards."""


@command.command(name="demo", short_help="Show the whole way, in a story.")
@click.option("--output", "-o", type=click.Choice(["story", "json"]), default="story", show_default=True)
def run_demo(output: str) -> None:
    """From a node's interfaces to a pod's network and back: discover, expose, publish, allocate, attach, undo.

    It needs no cluster, and no root where user namespaces are allowed.
    """
    started = time.monotonic()
    chapters = []
    for raw in isolation.run(demo.run):
        chapter = msgspec.json.decode(raw, type=Chapter)
        chapters.append(chapter)
        if output == "story":
            _tell(chapter, len(chapters))
    left = demo.traces()
    chapters.append(epilogue(left, time.monotonic() - started))
    if output == "story":
        _tell(chapters[-1], len(chapters))
    else:
        data: dict[str, Any] = {chapter.name: chapter.data for chapter in chapters}
        click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2))
    if left != isolation.Traces():
        raise PermanentError("the demo left something behind", hint="see the last chapter, and report it")


def _tell(chapter: Chapter, number: int) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    console.print()
    console.print(f"[bold cyan]{number}. {chapter.title}[/]")
    console.print(chapter.text, style="dim")
    if chapter.drawing:
        console.print(chapter.drawing, markup=False)
    if chapter.rows:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for column in chapter.columns:
            table.add_column(column, overflow="fold")
        for row in chapter.rows:
            table.add_row(*row)
        console.print(table)
