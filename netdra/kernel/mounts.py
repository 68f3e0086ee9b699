"""Tells when something was mounted or unmounted in this process's mount namespace, which costs nothing until then.

A named network namespace is a bind mount (ip-netns(8)), so `netdra.node.pods.namespaces` learns from it when a runtime
may have removed one. The kernel wakes whoever polls a mount table with POLLPRI when the table changed (proc(5),
/proc/pid/mounts; mounts_poll() in fs/proc_namespace.c). Nothing is used up that other programs need, unlike watches of
inotify.
"""

from __future__ import annotations

import os
import select
from typing import Self

from netdra.kernel.errors import from_os_error

_TABLE = "/proc/self/mountinfo"


class MountChanges:
    """A descriptor that is readable for a moment, once, after mounts have changed."""

    def __init__(self) -> None:
        """Open the table.

        Raises:
            KernelError: the table cannot be opened, or the process has too many files open.
        """
        try:
            self._table = os.open(_TABLE, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as problem:
            raise from_os_error(problem, f"cannot open {_TABLE}") from None
        try:
            # A mount table can always be read from, so an event loop that asked for that would spin.
            self._changes = select.epoll()
            self._changes.register(self._table, select.EPOLLPRI | select.EPOLLET)
        except OSError as problem:
            os.close(self._table)
            raise from_os_error(problem, f"cannot poll {_TABLE}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._changes.close()
        os.close(self._table)

    def fileno(self) -> int:
        """What an event loop waits for to be readable; the change is over with that, and nothing is to be read."""
        return self._changes.fileno()
