"""System calls that Python 3.11 lacks: setns(2), unshare(2), mount(2), umount2(2), prctl(2), pidfd_getfd(2), kcmp(2).

Called by `netns`, `reachable` and the lab.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal

from netdra.kernel.errors import kernel_error

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MS_SHARED = 1 << 20
MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_PIDFD_GETFD = 438  # on all architectures
_KCMP = 312 if platform.machine() == "x86_64" else 272
_KCMP_FILES = 2

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_void_p)
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)


def setns(descriptor: int, kind: int) -> None:
    """Put the calling thread into a namespace.

    Raises:
        KernelError: the kernel refused.
    """
    _check(_libc.setns(descriptor, kind), "cannot enter a namespace")


def unshare(kinds: int) -> None:
    """Give the calling thread namespaces of its own.

    Raises:
        KernelError: the kernel refused.
    """
    _check(_libc.unshare(kinds), "cannot create a namespace")


def mount(source: str, target: str, kind: str, flags: int) -> None:
    """Mount a file system, or one place at another.

    Raises:
        KernelError: the kernel refused.
    """
    done = _libc.mount(os.fsencode(source), os.fsencode(target), os.fsencode(kind), flags, None)
    _check(done, f'cannot mount {kind or source} at "{target}"')


def umount(target: str) -> None:
    """Unmount, now or once no process uses it any more.

    Raises:
        KernelError: the kernel refused.
    """
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f'cannot unmount "{target}"')


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG).

    Raises:
        KernelError: the kernel refused.
    """
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), "cannot tie this process to its parent")


def pidfd_getfd(process: int, descriptor: int) -> int:
    """A duplicate of another process's descriptor, to be closed by the caller.

    Args:
        process: a descriptor of the process (`os.pidfd_open`).
        descriptor: the number of its descriptor.

    Raises:
        OSError: it has no such descriptor, or it must not be traced (PTRACE_MODE_ATTACH_REALCREDS).
    """
    returned = int(_libc.syscall(_PIDFD_GETFD, process, descriptor, 0))
    if returned < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return returned


def same_files(first: int, second: int) -> bool:
    """Whether two threads, by their ids, have one table of descriptors; False also where the kernel does not tell."""
    return int(_libc.syscall(_KCMP, first, second, _KCMP_FILES, 0, 0)) == 0


def _check(returned: int, doing: str) -> None:
    if returned != 0:
        raise kernel_error(ctypes.get_errno(), doing)
