"""Runs programs that have no rights: a plugin that is only asked for its versions (decision D45).

Called by `netdra.node.publishing.plugins` through `netdra.cni.protocol`. `netdra.cni.confining` starts them: a process
that is there while something is asked, since this one has threads and must not be forked.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from netdra.cni import process
from netdra.cni.confining import REQUEST_BYTES
from netdra.cni.plugins import Binary
from netdra.cni.process import Finished, Streams

_PROGRAM = Path(__file__).with_name("confining.py")
_STATUS_BYTES = 4096


class ConfinedPrograms:
    """Runs programs without rights; several threads may call it at the same time."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._lock = threading.Lock()
        self._starter: _Starter | None = None
        self._is_closed = False

    def run(self, binary: Binary, environment: Mapping[str, str], stdin: bytes, timeout: float) -> Finished:
        """Run a program as `process.run` does; all that it started is ended with it, also if it succeeds.

        Args:
            binary: the program; it needs to be executable for its owner only.
            environment: all of its environment.
            stdin: what it reads.
            timeout: seconds that it may take.

        Raises:
            OSError: it cannot be started without rights.
        """
        variables = (f"{key}={value}" for key, value in environment.items())
        parts = (binary.root, binary.path, str(math.ceil(timeout) + 1), *variables)
        request = b"\0".join(map(os.fsencode, parts))
        if len(request) > REQUEST_BYTES:
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
        return process.watch(partial(self._start, request), stdin, timeout)

    def rest(self) -> None:
        """End the process that starts programs, until the next one is to be run."""
        with self._lock:
            starter, self._starter = self._starter, None
        if starter is not None:
            starter.close()

    def close(self) -> None:
        """Run no more programs."""
        with self._lock:
            self._is_closed = True
        self.rest()

    def _start(self, request: bytes, streams: Streams, closing: contextlib.ExitStack) -> _Confined:
        status, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        closing.enter_context(status)
        with end:
            self._send(request, (*streams, end.fileno()))
        return _Confined(status)

    def _send(self, request: bytes, descriptors: tuple[int, ...]) -> None:
        """Hand a request on; a process that has ended, as by the kernel for want of memory, is replaced once."""
        with self._lock:
            try:
                self._ensure_starter().ask(request, descriptors)
            except (BrokenPipeError, ConnectionResetError):
                ended, self._starter = self._ensure_starter(), None
                ended.close()
                self._ensure_starter().ask(request, descriptors)

    def _ensure_starter(self) -> _Starter:
        if self._is_closed:
            raise OSError(errno.ESHUTDOWN, os.strerror(errno.ESHUTDOWN))
        self._starter = self._starter or _Starter()
        return self._starter


class _Starter:
    """A process that starts programs, and the socket by which it is asked to."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._pid = os.posix_spawn(
                    sys.executable,
                    (sys.executable, "-I", "-S", str(_PROGRAM)),
                    {},
                    file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)],
                    setpgroup=0,
                    setsigmask=(),
                    setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
                )
            except OSError:
                self._control.close()
                raise

    def ask(self, request: bytes, descriptors: tuple[int, ...]) -> None:
        socket.send_fds(self._control, [request], descriptors)

    def close(self) -> None:
        self._control.close()
        # Of the programs that it started each has a parent of its own.
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


class _Confined:
    """A running program, by the socket for its status: closing it ends the program."""

    def __init__(self, status: socket.socket) -> None:
        self._status = status

    def fileno(self) -> int:
        return self._status.fileno()

    def finish(self, *, broken: bool) -> int:
        if broken:
            return -signal.SIGKILL
        answer = self._status.recv(_STATUS_BYTES).decode()
        number, is_problem, what = answer.partition(" ")
        if is_problem or not answer:
            code = int(number or errno.EIO)
            raise OSError(code, what or os.strerror(code))
        return int(number)
