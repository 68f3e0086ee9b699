"""Output for people: tables, messages on stderr, and text without control characters that a terminal would obey.

Used by all commands. Tables are as wide as the terminal, or as PLAIN_WIDTH if stdout is not a terminal. They are laid
out here, because importing a library for it takes longer than all the rest of `netdra discover`.
"""

from __future__ import annotations

import io
import itertools
import os
import re
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, cast

import click

from netdra.model.errors import PermanentError

PLAIN_WIDTH = 240
MAX_WORD = 40
_THOUSAND = 1000
_GAP = "  "
_OBEYED = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"


class _Closed(io.TextIOBase):
    """Stands for a stdout that is closed: click would print nothing there, and no error."""

    def write(self, text: str, /) -> int:
        raise PermanentError(
            "the output cannot be written: standard output is closed",
            hint="redirect it to a file or a pipe",
            code="ND4056",
        )


def replace_closed() -> None:
    """Replace stdout and stderr where they are closed and Python has None for them (`>&-`).

    A write to that stdout is an error, and messages to that stderr are dropped.
    """
    streams: dict[str, TextIO | None] = {"stdout": sys.stdout, "stderr": sys.stderr}
    if streams["stdout"] is None:
        sys.stdout = cast(TextIO, _Closed())
    if streams["stderr"] is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (for the process)


def printable(text: str) -> str:
    r"""The text with control characters, changes of direction and bytes that are not UTF-8 as escapes.

    Lines and tabs stay. The alias of an interface or a name in a file may hold `\x1b[2J`, which clears a terminal.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return re.sub(_OBEYED, lambda match: match[0].encode("unicode-escape").decode(), text)


def path(name: str) -> str:
    """A file's name as it is shown: bytes that are not UTF-8 as escapes."""
    return printable(os.fsencode(name).decode(errors="backslashreplace"))


def tell(message: str) -> None:
    """A message on stderr, beginning with the program's name."""
    click.echo(printable(f"netdra: {message}"), err=True)


@contextmanager
def progress(label: str, total: int, unit: str) -> Iterator[Callable[[], None]]:
    """Report the progress of a long command on stderr: call the function once for each unit that is done.

    It is a bar on a terminal, and elsewhere a line after each thousand.
    """
    counts = itertools.count(1)
    if not sys.stderr.isatty():
        yield lambda: _tell_thousand(next(counts), total, unit)
        return
    with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
        yield lambda: bar.update(1)


def _tell_thousand(count: int, total: int, unit: str) -> None:
    if count % _THOUSAND == 0:
        tell(f"{count} of {total} {unit}")


def print_data(value: Any, output: str, *, apart: bool = False) -> None:
    """A value on stdout.

    Args:
        value: of the model, or plain.
        output: json or yaml.
        apart: whether the items of a list are YAML documents of their own.
    """
    import msgspec

    from netdra.model import documents

    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2))
    else:
        click.echo(documents.to_yaml(value if apart else [value]), nl=False)


def print_report(value: Any, output: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A report on stdout: as a table of these rows, or whole as JSON or YAML."""
    if output == "table":
        print_table(columns, rows)
    else:
        print_data(value, output)


def print_objects(objects: Sequence[Any], output: str) -> None:
    """Objects of Kubernetes on stdout: in JSON a List, as kubectl and these commands read it, in YAML documents."""
    as_list = {"apiVersion": "v1", "kind": "List", "items": objects}
    print_data(as_list if output == "json" else objects, output, apart=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[str] = ()) -> None:
    """A table on stdout; the columns of `right` hold numbers.

    Cells are wrapped between words if the terminal is too narrow. The terminal itself wraps a table whose words alone
    are wider, so that an address can still be copied.
    """
    cells = [[printable(cell) for cell in row] + [""] * (len(columns) - len(row)) for row in rows]
    width = _columns() if sys.stdout.isatty() else PLAIN_WIDTH
    widths = _widths([list(column) for column in zip(columns, *cells, strict=True)], width)
    aligned = [str.rjust if column in right else str.ljust for column in columns]
    for number, row in enumerate([list(columns), *cells]):
        parts = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
        for line in itertools.zip_longest(*parts, fillvalue=""):
            padded = [pad(cell, width - _wide(cell)) for pad, cell, width in zip(aligned, line, widths, strict=True)]
            text = _GAP.join(padded).rstrip()
            click.echo(click.style(text, bold=True) if number == 0 else text)


def _columns() -> int:
    import shutil  # costs the output to a file two milliseconds

    return shutil.get_terminal_size().columns


def _widths(columns: Sequence[Sequence[str]], limit: int) -> list[int]:
    """The width of each column, so that all fit into the limit: the column with the most room to wrap shrinks first."""
    wanted = [max(_cells(line) for cell in column for line in cell.split("\n")) for column in columns]
    least = [min(MAX_WORD, max(_cells(word) for cell in column for word in cell.split() or [""])) for column in columns]
    excess = sum(wanted) + len(_GAP) * (len(columns) - 1) - limit
    while excess > 0:
        room = [width - word for width, word in zip(wanted, least, strict=True)]
        widest = max(room)
        if widest <= 0:
            break
        wanted[room.index(widest)] -= 1
        excess -= 1
    return wanted


def _wrapped(cell: str, width: int) -> list[str]:
    """The cell's lines, none wider than the column."""
    if _cells(cell) <= width and "\n" not in cell:
        return [cell]
    lines = (textwrap.wrap(line, max(1, width - _wide(line)), break_on_hyphens=False) for line in cell.split("\n"))
    return [part for line in lines for part in line or [""]]


def _cells(text: str) -> int:
    """The number of the terminal's columns that a text takes."""
    return len(text) + _wide(text)


def _wide(text: str) -> int:
    """The number of columns by which a text is wider than its number of characters."""
    if text.isascii():
        return 0
    return sum(unicodedata.east_asian_width(character) in "WF" for character in text) - sum(
        map(bool, map(unicodedata.combining, text))
    )
