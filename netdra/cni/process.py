"""Run one program to its end within bounds: time, output, process group. Called by `netdra.cni` alone.

A CNI call is an exec of a few milliseconds, so the way there is short: the input is a memory file (no pipe to feed),
the program is spawned without forking this process, and one poll waits for its output and its end together.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from netdra.cni.confining import spawn

MAX_STDOUT = 1024 * 1024
STDERR_TAIL = 4096
_CHUNK = 65536
_KILL_GRACE_MS = 500


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended, and its output.

    Attributes:
        status: its exit status, or minus the signal that ended it.
        stdout: all that it printed, at most `MAX_STDOUT` bytes.
        stderr: the end of its output there.
        timed_out: it was killed because its time was over.
        stopped: it was killed because the caller asked for that.
        overflowed: it was killed because it printed more than `MAX_STDOUT`.
    """

    status: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    stopped: bool = False
    overflowed: bool = False


Streams = tuple[int, int, int]
"""The descriptors that a program gets as its standard input, output and errors."""


class Child(Protocol):
    """A running program; its descriptor is readable when it has ended."""

    def fileno(self) -> int:
        """For `select`: a pidfd, or the socket on which the confined starter reports the end."""

    def finish(self, *, broken: bool) -> int:
        """End what must be ended, above all if a bound is broken; the exit status, or minus the signal that ended it.

        Raises:
            OSError: it was not started.
        """


def run(
    argv: Sequence[str],
    environment: Mapping[str, str],
    stdin: bytes,
    timeout: float,
    inherited: int = -1,
    stop: int = -1,
) -> Finished:
    """Run a program in a process group of its own, and end the whole group if it fails or its time is up.

    Processes that a successful program leaves running are not ended: some plugins start a daemon. An exception that
    comes from outside, such as KeyboardInterrupt, ends the group too.

    Args:
        argv: the absolute path of the program, and its arguments.
        environment: all of its environment.
        stdin: its input.
        timeout: seconds that it may take.
        inherited: a descriptor that it gets as its fourth, or -1.
        stop: a descriptor that becomes readable when the program is to be ended at once, or -1.

    Raises:
        OSError: it cannot be started.
    """
    descriptors = () if inherited < 0 else (inherited,)

    def start(streams: Streams, closing: contextlib.ExitStack) -> _Spawned:
        return _Spawned(spawn(argv[0], argv, environment, (*streams, *descriptors)), closing)

    return watch(start, stdin, timeout, stop)


def watch(
    start: Callable[[Streams, contextlib.ExitStack], Child], stdin: bytes, timeout: float, stop: int = -1
) -> Finished:
    """Start a program somehow, and end it if its time is up or it prints too much.

    Args:
        start: starts it with these streams; what it puts on the stack is closed when the program has ended.
        stdin: its input.
        timeout: seconds that it may take.
        stop: a descriptor that becomes readable when the program is to be ended at once, or -1.

    Raises:
        OSError: it cannot be started.
    """
    with contextlib.ExitStack() as closing:
        source = _owned(closing, _memory_file(stdin))
        ends = closing.enter_context(contextlib.ExitStack())
        out, out_end = os.pipe()
        _owned(closing, out)
        _owned(ends, out_end)
        err, err_end = os.pipe()
        _owned(closing, err)
        _owned(ends, err_end)
        with ends:
            child = start((source, out_end, err_end), closing)
        watched = _Watch(child, out, err, stop)
        try:
            watched.until(time.monotonic() + timeout)
        except BaseException:
            watched.stopped = True
            watched.finish()
            raise
        return watched.finish()


def _owned(closing: contextlib.ExitStack, fd: int) -> int:
    closing.callback(os.close, fd)
    return fd


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("cni-stdin")
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


class _Spawned:
    """A running program that is a child of this process."""

    def __init__(self, pid: int, closing: contextlib.ExitStack) -> None:
        self._pid = pid
        try:
            self._child = _owned(closing, os.pidfd_open(pid))
        except OSError:  # without a descriptor it cannot be waited for, and must not stay unseen
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise

    def fileno(self) -> int:
        return self._child

    def finish(self, *, broken: bool) -> int:
        if broken or _exit_status(self._child, os.WNOWAIT):
            # Before it is reaped its id cannot belong to anyone else.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGKILL)
        return self._reap()

    def _reap(self) -> int:
        poller = select.poll()
        poller.register(self._child, select.POLLIN)
        if poller.poll(_KILL_GRACE_MS):
            return _exit_status(self._child)
        # Killed, but deep in the kernel: it will end, yet the caller's deadline does not wait for that.
        threading.Thread(target=_exit_status_and_close, args=(os.dup(self._child),), daemon=True).start()
        return -signal.SIGKILL


class _Watch:
    """Reads a running program's output until it ends or breaks a bound."""

    def __init__(self, child: Child, out: int, err: int, stop: int) -> None:
        self._child, self._out, self._err, self._stop = child, out, err, stop
        self._stdout, self._stderr = bytearray(), bytearray()
        self._poll = select.poll()
        for fd in (child.fileno(), out, err, *([stop] if stop >= 0 else [])):
            self._poll.register(fd, select.POLLIN)
        os.set_blocking(out, False)
        os.set_blocking(err, False)
        self.timed_out = self.stopped = self.overflowed = False

    def until(self, deadline: float) -> None:
        """Read until the program ends, the deadline passes, it is to be stopped, or it has printed too much."""
        while not self.overflowed:
            left = deadline - time.monotonic()
            events = self._poll.poll(max(left, 0) * 1000)
            if not events:
                self.timed_out = True
                return
            ready = {fd for fd, _ in events}
            for fd in ready & {self._out, self._err}:
                if not self._take(fd):
                    self._poll.unregister(fd)
            if self._child.fileno() in ready:
                self._drain()
                return
            if self._stop in ready:
                self.stopped = True
                return

    def finish(self) -> Finished:
        """End what must be ended, reap the program, and state how it went."""
        broken = self.timed_out or self.stopped or self.overflowed
        return Finished(
            status=self._child.finish(broken=broken),
            stdout=bytes(self._stdout),
            stderr=bytes(self._stderr),
            timed_out=self.timed_out,
            stopped=self.stopped,
            overflowed=self.overflowed,
        )

    def _take(self, fd: int) -> bool:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return True
        if fd == self._err:
            self._stderr += data
            del self._stderr[:-STDERR_TAIL]
        elif len(self._stdout) + len(data) > MAX_STDOUT:
            self.overflowed = True
        else:
            self._stdout += data
        return bool(data)

    def _drain(self) -> None:
        """Take what the program left in its pipes (no more than one chunk fits); other processes may hold them open."""
        self._take(self._out)
        self._take(self._err)


def _exit_status(child: int, flags: int = 0) -> int:
    ended = os.waitid(os.P_PIDFD, child, os.WEXITED | flags)
    if ended is None:  # not without WNOHANG
        raise AssertionError("a process that ended has no status")
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _exit_status_and_close(child: int) -> None:
    _exit_status(child)
    os.close(child)
