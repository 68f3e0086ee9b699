"""A command of a run under way, in a process group of its own: started, inspected, interrupted, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

GRACE_SECONDS = 60.0
"""How long an interrupted command may take to clean up."""


class Command:
    """A command with its log. If the run is killed, it is interrupted as if by the terminal, and cleans up.

    Attributes:
        log: what it printed.
        cores: how many it was given.
        started: when, on the monotonic clock.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        cores: int = 1,
        folder: Path | None = None,
    ) -> None:
        """Start it.

        Args:
            command: the program and its arguments.
            log: the file that it prints to.
            environment: variables on top of our own.
            cores: what to remember.
            folder: where it runs; here if it is None.
        """
        self.log = log
        self.cores = cores
        self.started = time.monotonic()
        self.processor = 0.0
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as target:
            self._child = subprocess.Popen(
                ("setpriv", "--pdeathsig", "INT", "--", *command),
                stdin=subprocess.DEVNULL,
                stdout=target,
                stderr=subprocess.STDOUT,
                env=os.environ | environment,
                cwd=folder,
                start_new_session=True,
            )

    def code(self) -> int | None:
        """The exit code (negative: the signal that ended it), None while it runs."""
        if self._child.returncode is None:
            # As Popen.poll, but with the processor time that it and its children have used.
            pid, status, usage = os.wait4(self._child.pid, os.WNOHANG)
            if pid:
                self._child.returncode = os.waitstatus_to_exitcode(status)
                self.processor = usage.ru_utime + usage.ru_stime
        return self._child.returncode

    def seconds(self) -> float:
        """How long it runs, or ran until it was last asked."""
        return time.monotonic() - self.started

    def interrupt(self) -> None:
        """Ask it and all of its group to end in good order."""
        self._signal(signal.SIGINT)

    def end(self) -> None:
        """Wait until it has ended, and kill it if that takes too long; nothing of its group is left."""
        deadline = time.monotonic() + GRACE_SECONDS
        while self.code() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        self._signal(signal.SIGKILL)
        while self.code() is None:
            time.sleep(0.05)

    def tail(self, lines: int = 30) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child.pid, number)
