"""Start a program, wait until it is ready, and pause, stop or kill it: the processes of a control plane.

Called by `testbed.control_plane`. A program dies with the one that started it, even if that is killed, and stays out of
its process group, so that an interrupt at the terminal ends the tests first and the programs in good order after them.
"""

from __future__ import annotations

import http
import http.client
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from testbed.waiting import waiting

READY_TIMEOUT = 60.0
STOP_TIMEOUT = 5.0
_POLL, _MOST_POLL = 0.05, 1.0
_TIMES_AS_LONG = 3
_TAIL_BYTES = 256 * 1024


class ProcessError(Exception):
    """A program ended or hung before it was ready; the text has its command and the end of its log."""


class Child(Protocol):
    """A running program, as `subprocess.Popen` has it."""

    pid: int

    def poll(self) -> int | None:
        """The exit code, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended."""

    def send_signal(self, sig: int) -> None:
        """Send a signal."""

    def kill(self) -> None:
        """Kill it."""


class Process:
    """A program with a log file, that can be started again with the same command.

    Start it from a thread that lives as long as the program should: the kernel counts the end of that thread as the
    parent's death (prctl(2), PR_SET_PDEATHSIG).
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
        *,
        wrapped: bool = False,
    ) -> None:
        """Prepare, start nothing.

        Args:
            name: what the program is called in errors and reports.
            command: the program and its arguments.
            log: the file that its output is appended to.
            ready: whether it does its work now; called often, so it must return quickly.
            environment: variables on top of our own.
            wrapped: the command is one like nsenter or unshare, which enters namespaces and runs the program as its
                child: then `pid`, `memory` and all signals are that child's.
        """
        self.name = name
        self.command = tuple(command)
        self.log = log
        self._ready = ready
        self._environment = dict(environment or {})
        self._wrapped = wrapped
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """The process id while the program runs (or is paused)."""
        if self._child is None or self._child.poll() is not None:
            return None
        return _only_child(self._child.pid) if self._wrapped else self._child.pid

    def start(self) -> None:
        """Start the program; `wait_ready` waits for it.

        Raises:
            ProcessError: it runs already.
        """
        if self._child is not None and self._child.poll() is None:
            raise ProcessError(f"{self.name} runs already, as process {self._child.pid}")
        self._child = self._spawn()

    def _spawn(self) -> Child:
        # setpriv becomes the program: one exec more, and no Python between fork and exec, which threads would forbid.
        tied = ("setpriv", "--pdeathsig", "KILL", "--", *self.command)
        with self.log.open("ab") as log:
            return subprocess.Popen(
                tied,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self._environment,
                start_new_session=True,
            )

    def wait_ready(self, timeout: float = READY_TIMEOUT) -> None:
        """Wait until the program is ready.

        Raises:
            ProcessError: it ended before, or was not ready in time.
        """
        deadline = time.monotonic() + timeout
        with waiting(f"{self.name} to be ready"):
            while True:
                asked = time.monotonic()
                if self._ready():
                    return
                # Where asking is slow, asking all the time would slow down the program's start.
                code = self._exit_code(min(max(_POLL, _TIMES_AS_LONG * (time.monotonic() - asked)), _MOST_POLL))
                if code is not None:
                    raise ProcessError(self._report(f"ended with code {code} before it was ready"))
                if time.monotonic() > deadline:
                    raise ProcessError(self._report(f"was not ready within {timeout:.0f} s"))

    def stop(self) -> None:
        """Ask the program to end (SIGTERM), and kill it if it does not; no error if it is not running."""
        self._signal(signal.SIGTERM)
        self.resume()
        with waiting(f"{self.name} to end"):
            if self._exit_code(STOP_TIMEOUT) is None:
                self.kill()

    def kill(self) -> None:
        """Kill the program (SIGKILL) and wait for its end; no error if it is not running."""
        self._signal(signal.SIGKILL)
        if self._child is not None:
            self._wake()
            with waiting(f"{self.name} to end"):
                # A wrapper outlives its child by a moment, or has none yet; alone it has nothing more to do.
                with suppress(subprocess.TimeoutExpired):
                    self._child.wait(STOP_TIMEOUT if self._wrapped else None)
                self._child.kill()
                self._child.wait()
            self._child = None

    def pause(self) -> None:
        """Freeze the program (SIGSTOP): its connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused program continue (SIGCONT)."""
        self._signal(signal.SIGCONT)
        self._wake()

    def is_stopped(self) -> bool:
        """Whether the program is paused, by `pause` or by itself ("T" in proc(5))."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return False
        return status.rpartition(")")[2].split()[0] == "T"

    def restart(self) -> None:
        """Stop the program, start it again and wait until it is ready.

        Raises:
            ProcessError: it did not become ready.
        """
        self.stop()
        self.start()
        self.wait_ready()

    def memory(self) -> int:
        """The resident memory in bytes (VmRSS of proc(5)); 0 when it is not running."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            return 0
        return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:")), 0)

    def log_tail(self, lines: int = 40, since: int = 0) -> str:
        """The last lines of the log after a byte offset."""
        try:
            with self.log.open("rb") as log:
                end = log.seek(0, 2)
                log.seek(max(since, end - _TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        if self._child is None:
            return
        if not self._wrapped:
            self._child.send_signal(number)
        elif (pid := self.pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _wake(self) -> None:
        """Let a wrapper continue: nsenter and unshare stop when their child does, and would not see it end."""
        if self._child is not None:
            self._child.send_signal(signal.SIGCONT)

    def _exit_code(self, timeout: float) -> int | None:
        if self._child is None:
            return 0
        with suppress(subprocess.TimeoutExpired):
            return self._child.wait(timeout)
        return None

    def _report(self, what: str) -> str:
        return f"{self.name} {what}\n{' '.join(self.command)}\n--- end of {self.log}:\n{self.log_tail()}"


def _only_child(parent: int) -> int | None:
    with suppress(FileNotFoundError, ProcessLookupError):
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()
        return int(children[0]) if children else None
    return None


def answers(url: str, context: ssl.SSLContext | None = None) -> Callable[[], bool]:
    """A readiness check: whether the URL answers 200 within a second."""
    return lambda: body(url, context) is not None


def body(url: str, context: ssl.SSLContext | None = None, *, seconds: float = 1.0) -> str | None:
    """The text that the URL answers with; None if it answers nothing in time, or with another code than 200."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection: http.client.HTTPConnection
    if parts.scheme == "http":
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=seconds)
    else:
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=seconds, context=context)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}" if parts.query else parts.path)
        answer = connection.getresponse()
        text = answer.read().decode()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return text if answer.status == http.HTTPStatus.OK else None


class Ports:
    """Free ports on one address, held for as long as this object is open.

    A port is held by a socket that is bound and never listens: with SO_REUSEADDR a server can still listen on it,
    while the kernel never assigns it as any free port. So a server that is killed gets its port again.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._holders: list[socket.socket] = []

    def take(self) -> int:
        """A port that no other process uses."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        holder = socket.socket(family, socket.SOCK_STREAM)
        self._holders.append(holder)
        holder.bind((self.address, 0))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port: int = holder.getsockname()[1]
        return port

    def close(self) -> None:
        """Let all ports go."""
        for holder in self._holders:
            holder.close()
        self._holders.clear()
