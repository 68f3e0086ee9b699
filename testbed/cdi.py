"""The CDI cache of a runtime with the oldest available library: the library itself, in a program of its own.

Used by tests with a simulated runtime. The library inspects its folder when the kernel reports a change, and caches the
contents: its answer is the devices that a container would get at that moment.
"""

from __future__ import annotations

import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.build import program


class Cache(AbstractContextManager["Cache"]):
    """The cache of one runtime, while its `with` block runs."""

    def __init__(self, folder: Path) -> None:
        """Prepare, start nothing.

        Args:
            folder: where specifications are; it need not be there.
        """
        self._folder = folder

    def __enter__(self) -> Self:
        """Start the program, and wait until it watches.

        Raises:
            BuildError: it is not built.
        """
        command = (str(program("cdi-cache")), str(self._folder))
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._read() == "ready"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the program."""
        with self._process:
            self._process.kill()

    def problem(self, device: str) -> str:
        """Why a container cannot be given a device, by its qualified name (`vendor/class=name`); "" if it can."""
        assert self._process.stdin is not None
        print(device, file=self._process.stdin, flush=True)
        answer = self._read()
        return "" if answer == "ok" else answer

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")
