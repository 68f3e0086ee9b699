"""Mistakes as `tests/mistakes` has them, and the output of `netdra validate`; for unit tests and those with a cluster.

A file has `objects` by name, and `mistakes`: an object `in` which the text `write` is written `as` something else,
or a whole `text`. The text `beside` them is a second file, of correct objects. `by` is who reports a mistake first in a
cluster: `apiserver`, `webhook` (also as a warning), `prepare` (the node, or the controller in a status), or `validate`
alone. `says` are the lines of validate, which always reports it: without the file, and without the expression under a
line. `then` are the texts of errors that it reports after a hint was followed, since the mistake hid them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.testing import CliRunner

from netdra.cli.validate import command


def text_of(written: dict[str, Any], mistake: dict[str, Any]) -> str:
    """The text of a mistake of a file."""
    if "text" in mistake:
        return str(mistake["text"])
    text = str(written["objects"][mistake["in"]])
    assert mistake["write"] in text, mistake
    return text.replace(mistake["write"], mistake["as"], 1)


def lines(folder: Path, text: str, beside: str = "") -> tuple[int, list[str]]:
    """The exit code of validate for a file with a text and one beside it, and the lines that it prints."""
    path, other = folder / "x.yaml", folder / "beside.yaml"
    given = {path: text} | ({other: beside} if beside else {})
    for file, content in given.items():
        file.write_text(content)
    result = CliRunner().invoke(command, [*map(str, given)])
    assert result.exception is None or isinstance(result.exception, SystemExit), text
    printed = [line.replace(str(path), "x.yaml") for line in result.stdout.splitlines() if ".yaml:" in line]
    return result.exit_code, [line.removeprefix("x.yaml:") for line in printed]
