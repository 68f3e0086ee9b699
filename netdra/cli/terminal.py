"""What people read: tables, messages on stderr, and text in which nothing is left that a terminal would obey.

Used by all commands. Tables are as wide as the terminal, or as PLAIN_WIDTH where stdout is none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence

import click

PLAIN_WIDTH = 240
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text with control characters, changes of direction and bytes that are no UTF-8 as escapes.

    Lines and tabs stay. The alias of an interface or a name in a file may hold `\x1b[2J`, which clears a terminal.
    """
    return _OBEYED.sub(lambda found: found[0].encode("unicode-escape").decode(), text)


def path(name: str) -> str:
    """A file's name as it is shown: bytes that are no UTF-8 as escapes."""
    return printable(os.fsencode(name).decode(errors="backslashreplace"))


def tell(message: str) -> None:
    """A message on stderr, beginning with the program's name."""
    click.echo(printable(f"netdra: {message}"), err=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()) -> None:
    """A table on stdout; the columns of `right` hold numbers."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in right else "left")
    for row in rows:
        table.add_row(*map(printable, row))
    console = Console(markup=False, highlight=False)
    console.width = console.width if console.is_terminal else PLAIN_WIDTH
    with console.capture() as printed:  # rich would end the program by itself where nobody reads any more
        console.print(table)
    click.echo(printed.get(), nl=False)
