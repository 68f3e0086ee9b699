"""`netdra lab`: a node and its pods without a cluster. The demo itself is in `netdra.lab.demo`."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time

import click
import msgspec

from netdra.cli import shared, terminal
from netdra.lab import demo, isolation
from netdra.lab.chapters import Chapter, epilogue
from netdra.model.errors import PermanentError


@click.group(name="lab")
def command() -> None:
    """Run a node and its pods without a cluster, in network namespaces that are removed afterwards."""


@command.command(name="demo", short_help="Show all steps in the terminal.")
@shared.output("story", "json")
def run_demo(output: str) -> None:
    """Show the way from an interface to a pod's network and back: discover, expose, publish, allocate, attach, undo.

    A cluster is not required, and root is not required if user namespaces are allowed.
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
        terminal.print_data({chapter.name: chapter.data for chapter in chapters}, output)
    if left != isolation.Traces():
        raise PermanentError(
            "the demo did not clean up completely", hint="see the last chapter, and report the problem", code="ND4031"
        )


def _tell(chapter: Chapter, number: int) -> None:
    click.echo()
    click.secho(f"{number}. {chapter.title}", fg="cyan", bold=True)
    click.secho(_paragraph(chapter.text), dim=True)
    if chapter.drawing:
        click.echo(chapter.drawing)
    if chapter.rows:
        terminal.print_table(chapter.columns, chapter.rows)


def _paragraph(text: str) -> str:
    """A text in lines as long as the terminal is wide; unchanged without a terminal."""
    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(textwrap.fill(line, width, break_on_hyphens=False) for line in text.split("\n"))
