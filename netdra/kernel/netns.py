"""Network namespaces: open, make, delete, and run something inside one.

Follows network_namespaces(7) and iproute2's named namespaces (a bind mount below /run/netns). A namespace is entered
by a pooled thread that comes back at once, or for a moment by the thread that asks; a netlink socket opened inside
stays bound to the namespace, so no thread needs to live there. Used by steps, the chain, the lab and tests.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Self, TypeVar

from netdra.kernel import libc
from netdra.kernel.closing import Closing
from netdra.kernel.errors import KernelError, from_os_error, is_missing
from netdra.kernel.netlink import NETLINK_ROUTE, Socket
from netdra.model.errors import InvalidInputError

NAMED = "/run/netns"
_OWN = "/proc/thread-self/ns/net"
WORKERS = 8
"""How many threads enter namespaces for others at most; each is born in the namespace of the thread that needs it."""
_SO_NETNS_COOKIE = 71
_LOST = 70  # EX_SOFTWARE of sysexits.h

T = TypeVar("T")


class Namespace(Closing):
    """An open network namespace: it lives at least as long as this is open.

    Attributes:
        path: the path that it was opened by, "" for a namespace without a name.
        fd: its file descriptor.
    """

    def __init__(self, fd: int, path: str = "") -> None:
        self.fd = fd
        self.path = path

    @classmethod
    def open(cls, path: str) -> Self:
        """Open the namespace that a path names (`/run/netns/x`, `/proc/PID/ns/net`).

        Raises:
            KernelMissingError: the path does not exist.
            KernelError: it cannot be opened.
        """
        try:
            return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path)
        except OSError as problem:
            raise from_os_error(problem, f'cannot open network namespace "{path}"') from None

    @classmethod
    def current(cls) -> Self:
        """The calling thread's own namespace."""
        return cls.open(_OWN)

    @classmethod
    def anonymous(cls) -> Self:
        """A new namespace that is gone when it is closed and nothing else holds it.

        Raises:
            KernelError: the kernel refused.
        """
        return cls(_pool().submit(_make).result())

    @classmethod
    def create(cls, name: str, folder: str = NAMED) -> Self:
        """A new namespace that other processes can open by its path, until `delete`.

        Raises:
            KernelExistsError: the name is taken.
            KernelError: the kernel refused.
        """
        path = f"{folder}/{_checked(name)}"
        _prepare_folder(folder)
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444))
        except OSError as problem:
            raise from_os_error(problem, f'cannot create network namespace "{path}"') from None
        try:
            descriptor = _pool().submit(_make, path).result()
        except BaseException:
            Path(path).unlink()
            raise
        return cls(descriptor, path)

    @property
    def inode(self) -> int:
        """The number by which the kernel distinguishes namespaces while they live."""
        return os.fstat(self.fd).st_ino

    def duplicate(self) -> Self:
        """The same namespace once more, open until it is closed by itself.

        Raises:
            KernelError: the process is short of descriptors.
        """
        try:
            return type(self)(os.dup(self.fd), self.path)
        except OSError as problem:
            raise from_os_error(problem, "cannot keep a network namespace open") from None

    def close(self) -> None:
        """Let go of it; closing twice is not an error."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def run(self, work: Callable[[], T]) -> T:
        """Call `work` in a thread that is in this namespace, and return what it returns.

        The calling thread stays where it is. Files below /proc/sys/net and /proc/thread-self/net are the namespace's;
        /sys is not, for it belongs to the mount.

        Raises:
            KernelError: the namespace cannot be entered. Errors of `work` come through.
        """
        return _pool().submit(_inside, self.fd, work).result()

    def visit(self, work: Callable[[], T]) -> T:
        """Call `work` as `run` does, but in the calling thread if it is not the main one; for work of microseconds.

        So it does not wait for another thread, which on a node that starts many pods takes milliseconds. A thread
        that could not come back would take the pod's namespace for the host's: then the process ends.

        Raises:
            KernelError: the namespace cannot be entered. Errors of `work` come through.
        """
        if threading.current_thread() is threading.main_thread():
            return self.run(work)
        return _inside(self.fd, work, _come_back)

    def socket(self, family: int = NETLINK_ROUTE) -> Socket:
        """A netlink socket of this namespace, to be used and closed by the caller, in any thread.

        Raises:
            KernelError: it cannot be opened.
        """
        return self.run(lambda: Socket(family))


def tour(spaces: Sequence[Namespace], work: Callable[[int], T]) -> list[T | KernelError]:
    """Call `work` once in each of several namespaces, in one thread that goes from one to the next.

    Args:
        spaces: the namespaces.
        work: gets the namespace's place among them.

    Returns:
        the result for each namespace, or its error: the others are visited anyway.
    """
    return _pool().submit(_tour, spaces, work).result()


def inode_at(path: str = _OWN) -> int:
    """The number by which the kernel distinguishes the namespace at a path while it lives; 0 without one.

    The path's file may be there without its mount: a runtime that removes a namespace takes the mount away first.
    Without a path it is the calling thread's namespace.

    Raises:
        KernelError: whether one is there cannot be read.
    """
    status = status_at(path)
    return status.st_ino if status is not None else 0


def status_at(path: str) -> os.stat_result | None:
    """The status of the namespace at a path, with the time when it was made (st_mtime_ns); None where none is.

    Raises:
        KernelError: whether one is there cannot be read.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 (many at once)
    except OSError as problem:
        if is_missing(problem):
            return None
        raise from_os_error(problem, f'cannot access network namespace "{path}"') from None
    return status if status.st_dev == file_system() else None


@cache
def file_system() -> int:
    """The device number of nsfs, which has the files of all namespaces: a file of another one is below a mount."""
    try:
        return os.stat(_OWN).st_dev  # noqa: PTH116
    except OSError as problem:
        raise from_os_error(problem, f"cannot access {_OWN}") from None


def delete(name: str, folder: str = NAMED) -> None:
    """Take a namespace's name away; the kernel removes it, with all virtual links in it, when nothing holds it.

    Raises:
        KernelMissingError: none exists of that name.
        KernelError: the kernel refused.
    """
    path = f"{folder}/{_checked(name)}"
    try:
        libc.umount(path)
    except KernelError as problem:
        if not Path(path).exists():
            raise
        if problem.errno != errno.EINVAL:  # EINVAL: nothing is mounted on the file, which was left over
            raise
    try:
        Path(path).unlink()
    except OSError as problem:
        raise from_os_error(problem, f'cannot delete network namespace "{path}"') from None


def names(folder: str = NAMED) -> tuple[str, ...]:
    """The names of the namespaces in a folder, sorted; none where no such folder exists."""
    try:
        return tuple(sorted(os.listdir(folder)))  # noqa: PTH208
    except FileNotFoundError:
        return ()


def enter_user_namespace() -> None:
    """Give this process a user, mount and network namespace of its own in which it is root.

    For unprivileged use, early in a process that has one thread. /run is a fresh, empty tmpfs there, so namespaces can
    have names. It cannot be undone.

    Raises:
        KernelError: user namespaces are not allowed here, or the process has several threads (EINVAL).
    """
    uid, gid = os.geteuid(), os.getegid()
    libc.unshare(libc.CLONE_NEWUSER | libc.CLONE_NEWNET | libc.CLONE_NEWNS)
    try:
        # Without privileges only a process that gave setgroups(2) up may write gid_map (user_namespaces(7)).
        for name, content in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            Path("/proc/self", name).write_text(content)
    except OSError as problem:
        raise from_os_error(problem, "cannot map the user of a user namespace") from None
    libc.mount("none", "/", "", libc.MS_REC | libc.MS_PRIVATE)
    libc.mount("tmpfs", "/run", "tmpfs", 0)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WORKERS, thread_name_prefix="netns")


def _go_back(home: int) -> None:
    """Leave a namespace in a pooled thread: each job enters by itself, so a thread that stays inside harms none."""
    libc.setns(home, libc.CLONE_NEWNET)


def _come_back(home: int) -> None:
    try:
        _go_back(home)
    except KernelError as problem:
        os.write(2, f"netdra: a thread cannot leave a pod's network namespace: {problem.what}\n".encode())
        os._exit(_LOST)


def _inside(descriptor: int, work: Callable[[], T], leave: Callable[[int], None] = _go_back) -> T:
    """In some thread: enter, work, and leave for the namespace that it came from."""
    try:
        home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as problem:
        raise from_os_error(problem, f"cannot open {_OWN}") from None
    try:
        libc.setns(descriptor, libc.CLONE_NEWNET)
        try:
            return work()
        finally:
            leave(home)
    finally:
        os.close(home)


def _tour(spaces: Sequence[Namespace], work: Callable[[int], T]) -> list[T | KernelError]:
    """In a pooled thread: `tour`."""
    results: list[T | KernelError] = []
    with Namespace.current() as home:
        try:
            for place, space in enumerate(spaces):
                try:
                    libc.setns(space.fd, libc.CLONE_NEWNET)
                    results.append(work(place))
                except KernelError as problem:
                    results.append(problem)
        finally:
            _go_back(home.fd)
    return results


def cookie(sock: Socket) -> int:
    """The number of a socket's namespace, which no other one has until the next boot (SO_NETNS_COOKIE).

    Raises:
        KernelError: the kernel is older than 5.14.
    """
    try:
        return int.from_bytes(sock.handle.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8), sys.byteorder)
    except OSError as problem:
        raise from_os_error(problem, "cannot compare network namespaces") from None


def _make(path: str = "") -> int:
    """In a pooled thread: make a namespace, mount it at the path if there is one, come back, return its descriptor."""
    home = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc.unshare(libc.CLONE_NEWNET)
        try:
            if path:
                # /proc/self/ns/net would be the main thread's: unshare(2) moves the calling thread alone.
                libc.mount(f"/proc/self/task/{threading.get_native_id()}/ns/net", path, "", libc.MS_BIND)
            return os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
        finally:
            libc.setns(home, libc.CLONE_NEWNET)
    finally:
        os.close(home)


def _prepare_folder(folder: str) -> None:
    """Make the folder a shared mount as iproute2 does, so namespaces made here are seen in other mount namespaces."""
    Path(folder).mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        libc.mount("", folder, "none", libc.MS_SHARED | libc.MS_REC)
    except KernelError:
        libc.mount(folder, folder, "none", libc.MS_BIND | libc.MS_REC)
        libc.mount("", folder, "none", libc.MS_SHARED | libc.MS_REC)


def _checked(name: str) -> str:
    if not name or "/" in name or name in {".", ".."} or "\0" in name:
        raise InvalidInputError(f'"{name}" is not a valid name of a network namespace', code="ND2245")
    return name
