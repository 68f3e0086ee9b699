"""Kubernetes' own library for DRA, in each version that tests compare netdra with: a program of the test bed's.

The program (`testbed/dra_program`) reads a container's device metadata and allocates claims, as the library does.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.build import program, programs_of
from testbed.components import COMPONENTS, DRA_VERSIONS, dra_library, minor

MINORS = tuple(map(minor, DRA_VERSIONS))
"""The minor versions, the newest first."""


def is_built(version: str) -> bool:
    """Whether the library of a minor version is built: that of the newest release is, for all tests."""
    (component,) = (known for known in COMPONENTS if known.name == dra_library(version))
    return programs_of(component).is_dir()


def path(version: str) -> Path:
    """The program with the library of a minor version.

    Raises:
        BuildError: it is not built (the text states how).
    """
    return program(dra_library(version))


def read_sequence(text: str) -> list[Any]:
    """The objects of a metadata file, in their order."""
    decoder, objects = json.JSONDecoder(), []
    while text := text.lstrip():
        decoded, end = decoder.raw_decode(text)
        objects.append(decoded)
        text = text[end:]
    return objects


class Library:
    """The library of one version, while the `with` block of `started` runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def play(self, case: Any) -> Sequence[Any]:
        """The outcome of each step of a case: what the library allocated, or how it refused.

        Args:
            case: the node, its slices, the classes and the steps, as `testbed/dra_program/allocate.go` has them.

        Raises:
            EOFError: the program has ended; the text has its last words.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(case), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise EOFError(f"the library has ended: {self._process.communicate()[1]}")
        outcomes: Sequence[Any] = json.loads(answer)
        return outcomes


@contextmanager
def started(version: str) -> Iterator[Library]:
    """The library of a minor version, ready to allocate."""
    pipe = subprocess.PIPE
    command = (str(path(version)), "allocate")
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield Library(process)
        finally:
            process.kill()


def built(versions: Iterable[str] = MINORS) -> list[str]:
    """Those of some minor versions whose library is built."""
    return [version for version in versions if is_built(version)]
