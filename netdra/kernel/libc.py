"""System calls that Python 3.11 lacks: namespaces, mounts, prctl(2), pidfd_getfd(2), kcmp(2), openat2(2), statx(2).

Called by `netns`, `reachable` and the lab.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct

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
_OPENAT2, _PIDFD_GETFD = 437, 438  # on all architectures
_KCMP = 312 if platform.machine() == "x86_64" else 272
_KCMP_FILES = 2
_STATX = 332 if platform.machine() == "x86_64" else 291
_STATX_INO = 0x100
_AT_EMPTY_PATH, _AT_STATX_DONT_SYNC = 0x1000, 0x4000
_STATX_FIELDS = struct.Struct("=32xQ96xII112x")  # the inode, and the device's major and minor number
RESOLVE_IN_ROOT = 0x10
RESOLVE_CACHED = 0x20

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


def openat2(folder: int, path: str, flags: int, resolve: int) -> int:
    """A descriptor of a path below a folder, found by the rules of RESOLVE_* alone.

    Raises:
        OSError: the kernel refused; EAGAIN for RESOLVE_CACHED where a file system would have to be asked.
    """
    how = struct.pack("=QQQ", flags, 0, resolve)
    returned = int(_libc.syscall(_OPENAT2, folder, os.fsencode(path), how, len(how)))
    if returned < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return returned


def identify(descriptor: int) -> tuple[int, int]:
    """The device and the inode of an open file, as the kernel knows them: no file system is asked.

    Raises:
        OSError: the kernel refused.
    """
    found = ctypes.create_string_buffer(_STATX_FIELDS.size)
    flags = _AT_EMPTY_PATH | _AT_STATX_DONT_SYNC
    if _libc.syscall(_STATX, descriptor, b"", flags, _STATX_INO, found) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    inode, major, minor = _STATX_FIELDS.unpack(found.raw)
    return os.makedev(major, minor), inode


def same_files(first: int, second: int) -> bool:
    """Whether two threads, by their ids, have one table of descriptors; False also if the kernel does not report it."""
    return int(_libc.syscall(_KCMP, first, second, _KCMP_FILES, 0, 0)) == 0


def _check(returned: int, doing: str) -> None:
    if returned != 0:
        raise kernel_error(ctypes.get_errno(), doing)
