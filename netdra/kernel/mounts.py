"""The mounts of this process's namespace: whether /proc/sys takes writes, and when something was mounted or unmounted.

A named network namespace is a bind mount (ip-netns(8)), so `netdra.node.sandboxes.namespaces` learns from changed
mounts, without asking, when a runtime may have removed one. The kernel wakes a process that polls a mount table with
POLLPRI when the table changed (proc(5), /proc/pid/mounts; mounts_poll() in fs/proc_namespace.c). This uses up nothing
that other programs need, unlike watches of inotify.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import Self

from netdra.kernel import libc
from netdra.kernel.errors import KernelError, from_os_error
from netdra.model.errors import PermanentError

_TABLE = "/proc/self/mountinfo"
_SYSCTLS = "/proc/sys"


def sysctl_trouble() -> PermanentError | None:
    """Why this process can set no sysctl, None if it can: container runtimes mount /proc/sys read-only."""
    if not os.statvfs(_SYSCTLS).f_flag & os.ST_RDONLY:
        return None
    return PermanentError(
        f"sysctls cannot be set: {_SYSCTLS} is mounted read-only",
        hint="run netdra node's pod with CAP_SYS_ADMIN without an AppArmor profile, or privileged: true",
        code="ND2244",
    )


def make_sysctls_writable() -> None:
    """Have /proc/sys take writes, in this container alone, if it can be done.

    It is a mount of the container's own, so the node's stays as it was. Files below net/ belong to the pod whose
    namespace the writing thread is in.
    """
    if sysctl_trouble() is not None:
        flags = libc.MS_REMOUNT | libc.MS_BIND | libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC
        with suppress(KernelError):
            libc.mount("none", _SYSCTLS, "", flags)


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
            # A mount table can always be read from, so an event loop that waits for reading would spin.
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
        """The descriptor that an event loop waits for to be readable, once for each change; nothing is to be read."""
        return self._changes.fileno()
