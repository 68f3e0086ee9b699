"""A kernel that refuses: an errno, at a system call that netdra's code for pods makes, for some calls in a row.

The calls are replaced where Python has them (`os`, `io`, `fcntl`, sockets, `netdra.kernel.libc`), so every open, read,
request or start of netdra can fail, in any thread; calls of others, such as the event loop and the API client, do
not. Which of netdra's modules a call belongs to is read from the stack.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import io
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import netdra
from netdra.kernel import libc

ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EPERM, errno.EIO)
_HOME = str(Path(netdra.__file__).parent)
_PARTS = tuple(
    f"{_HOME}/{part}/"
    for part in ("chain", "cni", "kernel", "node/cdi", "node/claims", "node/sandboxes", "ops", "steps")
)
_DEEPEST = 8
"""Frames of Python's own library between netdra and a call."""
_NEVER = frozenset({"_come_back", "_go_back", "finish", "_reap"})
"""Functions whose calls must not fail: a thread that cannot leave a pod's namespace ends the process, by design."""
_CALLS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (
        os,
        (
            *("open", "stat", "lstat", "fstat", "access", "listdir", "scandir", "readlink", "read", "pread", "write"),
            *("rename", "link", "symlink", "unlink", "mkdir", "ftruncate", "fsync", "fchmod", "eventfd"),
            *("memfd_create", "pipe", "pidfd_open", "posix_spawn"),
        ),
    ),
    (io, ("open",)),
    (fcntl, ("fcntl", "flock", "ioctl")),
    (socket.socket, ("__init__", "bind", "send", "recv_into", "setsockopt", "getsockopt")),
)


@dataclass
class Refusal:
    """The calls that fail; `first` 0 means no failure. Any thread may count.

    Attributes:
        number: the errno.
        first: the first call that fails, counted from 1.
        length: how many calls fail, in a row.
        calls_of: a part of the path of the modules whose calls count, "" for all.
        calls: how many calls there were.
        refused: the calls that failed, each with the function of netdra that made it.
    """

    number: int = 0
    first: int = 0
    length: int = 1
    calls_of: str = ""
    calls: int = 0
    refused: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fails(self, call: str) -> bool:
        """Count a call; whether it fails."""
        caller = _caller()
        if not caller or self.calls_of not in caller:
            return False
        with self._lock:
            self.calls += 1
            is_refused = bool(self.first) and self.first <= self.calls < self.first + self.length
            if is_refused:
                self.refused.append(f"{call} of {caller}")
            return is_refused

    def __str__(self) -> str:
        seen = ", ".join(self.refused[:4])
        return f"{errno.errorcode.get(self.number)} at calls {self.first}+{self.length} of {self.calls}: {seen}"


@contextmanager
def counting() -> Iterator[Refusal]:
    """Count the calls that could fail."""
    with refusing(Refusal()) as refusal:
        yield refusal


@contextmanager
def refusing(refusal: Refusal) -> Iterator[Refusal]:
    """Have calls fail until the context ends."""

    def failing(call: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            if refusal.fails(call):
                raise OSError(refusal.number, os.strerror(refusal.number))
            return function(*arguments, **named)

        return wrapped

    def setns(descriptor: int, kind: int) -> int:
        if refusal.fails("setns"):
            ctypes.set_errno(refusal.number)
            return -1
        return int(enter(descriptor, kind))

    with ExitStack() as restoring:
        for owner, calls in _CALLS:
            for call in calls:
                restoring.callback(_replaced(owner, call, failing(call, getattr(owner, call))))
        enter = libc._libc.setns
        restoring.callback(_replaced(libc._libc, "setns", setns))
        yield refusal


def _replaced(owner: Any, name: str, new: Any) -> Callable[[], None]:
    """Replace an attribute; returns what restores it, also one that was inherited."""
    own = vars(owner).get(name)
    setattr(owner, name, new)
    return lambda: delattr(owner, name) if own is None else setattr(owner, name, own)


def _caller() -> str:
    """The function of netdra's code for pods that makes a call; "" if another part makes it, or it must not fail."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_DEEPEST):
        if frame is None:
            return ""
        code = frame.f_code
        if code.co_filename.startswith(_HOME) and not code.co_filename.endswith("/libc.py"):
            is_ours = code.co_filename.startswith(_PARTS) and code.co_name not in _NEVER
            return f"{code.co_filename.removeprefix(_HOME)[1:]}:{code.co_name}:{frame.f_lineno}" if is_ours else ""
        frame = frame.f_back
    return ""
