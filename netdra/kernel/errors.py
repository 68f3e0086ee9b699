"""The kernel's refusals as errors of the model: an errno, the kernel's own words and the object.

Raised by everything in `netdra.kernel`; callers distinguish them by type, or by `errno` where the number matters.
"""

from __future__ import annotations

import errno
import os

from netdra.model.errors import NetdraError, PermanentError, TemporaryError

_MISSING = frozenset({errno.ENODEV, errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ESRCH, errno.EADDRNOTAVAIL})
_USED_UP = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_BUSY = _USED_UP | {errno.EBUSY, errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT}
HINTS = {
    errno.EPERM: "run as root, or with CAP_NET_ADMIN in the namespace's user namespace",
    errno.EACCES: "run as root, or with CAP_NET_ADMIN in the namespace's user namespace",
    errno.EOPNOTSUPP: "not supported by this kernel or driver; check the kernel's configuration for the module",
    errno.EEXIST: "this name or address already exists; use another one",
    errno.EBUSY: "the object is in use; try again after it is released",
    errno.EMFILE: "raise the limit of open files of this process: prlimit --nofile",
    errno.ENFILE: "the system limit of open files is reached; see fs.file-nr, and raise fs.file-max",
}


def errno_name(number: int) -> str:
    """An errno's name as the kernel's sources have it ("EOPNOTSUPP", which Python calls ENOTSUP)."""
    return "EOPNOTSUPP" if number == errno.EOPNOTSUPP else errno.errorcode.get(number, str(number))


class KernelError(NetdraError):
    """The kernel refused.

    Attributes:
        errno: the kernel's error number, positive.
        message: the kernel's extended explanation, or "".
    """

    def __init__(self, number: int, doing: str, message: str = "") -> None:
        detail = f": {message}" if message else ""
        what = f"{doing}: {os.strerror(number)} ({errno_name(number)}){detail}"
        super().__init__(what, hint=HINTS.get(number, ""), code=f"ND9{number if number < 1000 else 0:03}")
        self.errno = number
        self.message = message

    @property
    def is_short(self) -> bool:
        """Whether the kernel was short of files or memory, and reported nothing of the object."""
        return self.errno in _USED_UP

    @property
    def is_unsupported(self) -> bool:
        """Whether the kernel or the driver does not have the feature."""
        return self.errno in (errno.EOPNOTSUPP, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.ENOSYS)


class KernelRefusedError(KernelError, PermanentError):
    """Asking again changes nothing."""


class KernelMissingError(KernelRefusedError):
    """The object is not there (any more): ENODEV, ENOENT, ENOTDIR, ENXIO, ESRCH, EADDRNOTAVAIL."""


class KernelExistsError(KernelRefusedError):
    """An object of that name or value is there already: EEXIST."""


class KernelBusyError(KernelError, TemporaryError):
    """Asking again may help: EBUSY, EAGAIN, EINTR, ENOBUFS, ENOMEM, ETIMEDOUT, EMFILE, ENFILE."""


class KernelInterruptedError(KernelBusyError):
    """Changes interrupted each attempt to list all objects of a kind: EINTR."""


class EventsLostError(TemporaryError):
    """More events came than the event socket's buffer holds; all facts must be read again."""


def kernel_error(number: int, doing: str, message: str = "") -> KernelError:
    """The error for an errno.

    Args:
        number: the errno, positive.
        doing: the request and its object, e.g. `cannot create link "net1" (macvlan)`.
        message: the kernel's extended explanation.
    """
    if number in _MISSING:
        return KernelMissingError(number, doing, message)
    if number == errno.EEXIST:
        return KernelExistsError(number, doing, message)
    if number == errno.EINTR:
        return KernelInterruptedError(number, doing, message)
    if number in _BUSY:
        return KernelBusyError(number, doing, message)
    return KernelRefusedError(number, doing, message)


def is_missing(problem: OSError) -> bool:
    """Whether the kernel reports that the object is not there. Any other error leaves its state unknown."""
    return problem.errno in _MISSING


def from_os_error(problem: OSError, doing: str) -> KernelError:
    """The error for a system call that failed."""
    return kernel_error(problem.errno or errno.EIO, doing)
