"""Follows a hint of a command: a command line with its files, its error, and the same after the hint was followed.

`tests/troubles/commands.yaml` has the cases: the command line (`run`), in a folder with the files of an example (`of`),
further `files`, and empty support `bundles` by the fields of their manifests; a stream that is `closed`, a module that
is `hidden`, the `most` bytes of a file; and the error with its hint and code (`says`). If the hint is another command
(`reads`), its output `shows` the reason. Then comes the act that the hint names: the command line `instead`, and files
and bundles that are written (`write`, `rewrite`). Afterwards the exit code is `exits`, and the output has the text
`prints`: the answer of the command, or the next thing that stops it, such as a cluster that does not exist.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import msgspec

from netdra.bundle import archive
from netdra.bundle.archive import Manifest
from netdra.bundle.recorded import objects_file
from netdra.cli import inputs
from netdra.cli.main import main
from netdra.cli.support_objects import KINDS
from testbed import yaml
from tests.following_why import lines_of

TESTS = Path(__file__).parent
OF_A_NODE = "no such key: rdma; kubectl describe nodenetwork worker-1"
"""A problem of the dashboard, of which no command has an error."""
EXAMPLES = TESTS.parent / "examples"


class WrongCommand(msgspec.Struct, frozen=True):
    """A command line with an error, and the act that its hint names."""

    run: str
    says: str
    of: str = ""
    files: Mapping[str, str] = {}
    bundles: Mapping[str, Mapping[str, Any]] = {}
    closed: str = ""
    hidden: str = ""
    most: int = 0
    instead: str = ""
    write: Mapping[str, str] = {}
    rewrite: Mapping[str, Mapping[str, Any]] = {}
    exits: int = 0
    prints: str = ""
    reads: str = ""
    shows: str = ""


class CommandAnswer(NamedTuple):
    """The exit code of a command, and its output; `error` is what is written to stderr."""

    code: int
    output: str
    error: str

    @property
    def lines(self) -> list[str]:
        """All lines, without the program's name."""
        return [line.removeprefix("netdra: ") for line in (self.output + self.error).splitlines()]


def commands() -> list[WrongCommand]:
    """The cases."""
    return msgspec.convert(yaml.safe_load((TESTS / "troubles" / "commands.yaml").read_text()), list[WrongCommand])


def prepare(case: WrongCommand, folder: Path) -> None:
    """Write the files of a case to a new folder."""
    if case.of:
        shutil.copytree(EXAMPLES / case.of, folder)
    write(folder, case.files)
    _write_bundles(folder, case.bundles)


def follow(case: WrongCommand, folder: Path) -> None:
    """Change the files by the hint."""
    write(folder, case.write)
    _write_bundles(folder, case.rewrite)


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files, each with its folder; bytes that are not UTF-8 are written as `\\xff`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode().replace(rb"\xff", b"\xff"))


def _write_bundles(folder: Path, bundles: Mapping[str, Mapping[str, Any]]) -> None:
    files = {objects_file(kind.plural): b'{"items": []}' for kind in KINDS}
    for name, fields in bundles.items():
        manifest = {"bundle": archive.VERSION, "netdra": "1.0", "created": "2026-11-27T10:00:30Z", "of": "cluster"}
        (folder / name).write_bytes(archive.pack(Manifest(**{**manifest, **fields}), files))


def answer(case: WrongCommand, folder: Path) -> CommandAnswer:
    """The answer to the command line with the error."""
    if case.hidden:
        return _run_without(case.hidden, case.run, folder)
    with mock.patch("netdra.cli.inputs.MAX_BYTES", case.most or inputs.MAX_BYTES):
        return run(case.run, folder, case.closed)


def answer_after(case: WrongCommand, folder: Path) -> CommandAnswer:
    """The answer after the hint was followed."""
    with mock.patch("netdra.cli.inputs.MAX_BYTES", case.most or inputs.MAX_BYTES):
        return run(case.instead or case.run, folder)


def _run_without(module: str, line: str, folder: Path) -> CommandAnswer:
    """The answer of a Python that lacks a module: it has to be a new one."""
    program = f"import sys; sys.modules[{module!r}] = None; sys.argv = {['netdra', *shlex.split(line)]!r}; "
    program += "from netdra.cli.main import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return CommandAnswer(done.returncode, done.stdout, done.stderr)


def run(line: str, folder: Path, closed: str = "") -> CommandAnswer:
    """The answer of netdra in a folder, without a cluster."""
    variables = {"HOME": str(folder), "KUBECONFIG": str(folder / "kubeconfig"), "KUBERNETES_SERVICE_HOST": ""}
    streams: dict[str, io.TextIOWrapper | None] = {
        name: None if name == closed else io.TextIOWrapper(io.BytesIO(), write_through=True)
        for name in ("stdin", "stdout", "stderr")
    }
    fields: dict[str, Any] = {"argv": ["netdra", *shlex.split(line)], **streams}
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, variables),
        mock.patch.multiple(sys, **fields),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    output, error = (_text(streams[name]) for name in ("stdout", "stderr"))
    return CommandAnswer(code if isinstance(code, int) else 0, output, error)


def _text(stream: io.TextIOWrapper | None) -> str:
    if stream is None:
        return ""
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


def said() -> Iterator[str]:
    """The errors with their hints, in the form of a line of `netdra validate`."""
    return (line for says in (*(case.says for case in commands()), OF_A_NODE) for line in lines_of(says))
