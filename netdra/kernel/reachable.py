"""All network namespaces of the machine that anything refers to which can be seen, each once.

A namespace lives as long as something refers to it (network_namespaces(7)): a mount of its file in any mount namespace,
a thread, an open descriptor of its file, a socket that was opened in it (SIOCGSKNS in net/socket.c) or a TUN device's
file. Names come first, for they cost least. Seen with CAP_SYS_PTRACE, and with the machine's own PIDs (hostPID).

Not seen: a descriptor on its way in a Unix socket or in io_uring, a mount below another one or in a mount namespace
without a process, a file of a macvtap device, a kernel's own socket (NFS).

A process controls its open files and its mounts: each may be another file a moment later, and a file system of the
process (FUSE) may never answer. So no file is opened, asked or looked up here before it is known to be a namespace, a
socket or a TUN device: descriptors without access (O_PATH), and facts about them that the kernel has by itself.

Called by `netdra.chain.returned` in a thread: a scan takes tens of milliseconds for hundreds of processes. `inhabited`
answers the narrower question whether a process runs in a namespace that has lost its path; `netdra.chain.site` and
`netdra.node.sandboxes.namespaces` ask it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from netdra.kernel import libc
from netdra.kernel.errors import KernelError, from_os_error, is_missing
from netdra.kernel.netns import Namespace, file_system, inode_at

PROC = "/proc"
CACHE_SECONDS = 600.0
"""How long the namespace of a socket is known by the socket's inode. It never changes; inodes come again after 2^32."""

_SIOCGSKNS = 0x894C
_PIDFD_THREAD = os.O_EXCL  # since 6.9
_NET = re.compile(r"net:\[(\d+)\]\Z")
_MOUNTED = re.compile(r" net:\[(\d+)\] (\S+) ")
_ESCAPED = re.compile(r"\\(\d{3})")
_SOCKET = "socket:["
_TUN = "/dev/net/tun"
_OWN = f"{PROC}/self/fd"
_MOST_LETTERS = 200

_GONE = (OSError, ValueError)  # a process that ends, or one that is not to be looked into


def inhabited() -> dict[int, str]:
    """The namespaces that a process runs in, by inode, each by the path of one process: it lasts as long as that.

    Raises:
        KernelError: some process must not be inspected, and no other one is in its namespace.
    """
    found: dict[int, str] = {}
    hidden: dict[str, KernelError] = {}
    for pid in filter(str.isdecimal, _listed(PROC)):
        path = f"{PROC}/{pid}/ns/net"
        try:
            match = _NET.match(os.readlink(path))  # noqa: PTH115
        except OSError as problem:
            if not is_missing(problem):
                hidden[pid] = from_os_error(problem, f"cannot read {path}")
            continue
        if match is not None:
            found.setdefault(int(match[1]), path)
    if hidden:
        known = {_tables(path.split("/")[2]) for path in found.values()}
        for pid, hidden_by in hidden.items():
            if _tables(pid) not in known | {0}:
                raise hidden_by
    return found


def _tables(pid: str) -> int:
    """The number of the tables of a process's namespace, which needs no right to inspect it; 0 if it has ended.

    Each namespace has a file of its own by this name (proc_net_lookup() in fs/proc/proc_net.c).
    """
    try:
        return os.stat(f"{PROC}/{pid}/net/dev").st_ino  # noqa: PTH116
    except OSError as problem:
        if is_missing(problem) or problem.errno == errno.EINVAL:
            return 0
        raise from_os_error(problem, f"cannot read {PROC}/{pid}/net") from None


class Reachable:
    """Finds namespaces. Keep it for the next scan: the sockets of processes are asked once."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self._sockets: dict[int, tuple[int, float]] = {}

    def scan(self, is_over: Callable[[], bool]) -> Iterator[tuple[Namespace, str]]:
        """Every namespace but the calling thread's, open until the next one, with its referring object in words.

        Args:
            is_over: whether to stop, asked for each process.

        Raises:
            TimeoutError: it was to stop before all was seen.
            KernelError: the kernel is short of memory or descriptors, so some were not seen.
        """
        visited = {inode_at()}
        sockets: dict[int, tuple[int, float]] = {}
        mounts: set[str] = set()
        processes = self._processes()
        # Each way over all processes costs more than the one before, and leaves it fewer namespaces.
        for pid in processes:
            _check(is_over)
            yield from self._of_mounts(pid, mounts, visited)
        for pid in processes:
            _check(is_over)
            yield from self._of_threads(pid, visited)
        for pid in processes:
            _check(is_over)
            yield from self._of_descriptors(pid, visited, sockets)
        self._sockets = sockets

    def _processes(self) -> list[str]:
        return sorted(filter(str.isdecimal, os.listdir(PROC)), key=int)  # noqa: PTH208

    def _of_mounts(self, pid: str, mounts: set[str], visited: set[int]) -> Iterator[tuple[Namespace, str]]:
        try:
            space = _named_mounts(pid)
            if not space or space in mounts:
                return
            with open(f"{PROC}/{pid}/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
        except _GONE as problem:
            _pass_over(problem)
            return
        mounts.add(space)
        is_trusted = space in (_named_mounts("self"), _named_mounts("1"))
        for inode, place in _MOUNTED.findall(text):
            path = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), place)
            if int(inode) not in visited:
                with _at(f"{PROC}/{pid}/root{path}") if is_trusted else _mounted(pid, path) as found:
                    yield from _open(int(inode), found, f'"{plain(path)}"', visited)

    def _of_threads(self, pid: str, visited: set[int]) -> Iterator[tuple[Namespace, str]]:
        for thread in _listed(f"{PROC}/{pid}/task"):
            path = f"{PROC}/{pid}/task/{thread}/ns/net"
            inode = _named(path)
            if inode and inode not in visited:
                with _at(path) as found:
                    yield from _open(inode, found, _called(pid), visited)

    def _of_descriptors(
        self, pid: str, visited: set[int], sockets: dict[int, tuple[int, float]]
    ) -> Iterator[tuple[Namespace, str]]:
        for thread in _listed(f"{PROC}/{pid}/task"):
            # Most threads have their process's descriptors (CLONE_FILES).
            if thread == pid or not libc.same_files(int(pid), int(thread)):
                yield from self._of_table(pid, thread, visited, sockets)

    def _of_table(
        self, pid: str, thread: str, visited: set[int], sockets: dict[int, tuple[int, float]]
    ) -> Iterator[tuple[Namespace, str]]:
        folder = f"{PROC}/{pid}/task/{thread}/fd"
        try:
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except _GONE as problem:
            _pass_over(problem)
            return
        unknown: list[tuple[int, int]] = []
        try:
            for name in _listed(opened):
                try:
                    target = os.readlink(name, dir_fd=opened)
                except _GONE as problem:
                    _pass_over(problem)
                    continue
                if target.startswith(_SOCKET):
                    inode = int(target[len(_SOCKET) : -1])
                    known = self._sockets.get(inode)
                    if known is not None and known[0] in visited and known[1] > time.monotonic():
                        sockets[inode] = known
                    else:
                        unknown.append((int(name), inode))
                elif target == _TUN:
                    unknown.append((int(name), 0))
                elif (match := _NET.match(target)) and int(match[1]) not in visited:
                    with _at(f"{folder}/{name}") as found:
                        yield from _open(int(match[1]), found, _called(pid), visited)
        finally:
            os.close(opened)
        yield from _of_sockets(pid, thread, unknown, visited, sockets)


def _of_sockets(
    pid: str, thread: str, unknown: Sequence[tuple[int, int]], visited: set[int], sockets: dict[int, tuple[int, float]]
) -> Iterator[tuple[Namespace, str]]:
    """The namespaces of sockets, given by descriptor and inode, 0 for a file that is not a socket."""
    if not unknown:
        return
    with _process(pid, thread) as process:
        for descriptor, inode in unknown if process >= 0 else ():
            namespace = _namespace_of(process, descriptor)
            if namespace is None:
                continue
            with namespace:
                if inode:
                    sockets[inode] = (namespace.inode, time.monotonic() + CACHE_SECONDS)
                if namespace.inode not in visited:
                    visited.add(namespace.inode)
                    yield namespace, f"a socket of {_called(pid)}"


def _process(pid: str, thread: str) -> AbstractContextManager[int]:
    """A descriptor of the thread whose files are to be duplicated, -1 if it has ended."""
    return _descriptor(lambda: os.pidfd_open(int(thread), 0 if thread == pid else _PIDFD_THREAD))


def _namespace_of(process: int, descriptor: int) -> Namespace | None:
    try:
        sock = libc.pidfd_getfd(process, descriptor)
    except _GONE as problem:
        _pass_over(problem)
        return None
    try:
        # The process may have put another file there: of this duplicate it is known what it is.
        if os.readlink(f"{_OWN}/{sock}").startswith(_SOCKET) or _is_tun(sock):  # noqa: PTH115
            return Namespace(fcntl.ioctl(sock, _SIOCGSKNS))
    except _GONE as problem:
        _pass_over(problem)
    finally:
        os.close(sock)
    return None


def _is_tun(descriptor: int) -> bool:
    with open(f"{_OWN}info/{descriptor}", "rb") as file:
        return b"\niff:\t" in file.read()


@contextmanager
def _descriptor(open_file: Callable[[], int]) -> Iterator[int]:
    """A descriptor, closed afterwards; -1 if its file is gone."""
    try:
        found = open_file()
    except _GONE as problem:
        _pass_over(problem)
        yield -1
        return
    try:
        yield found
    finally:
        os.close(found)


def _at(path: str) -> AbstractContextManager[int]:
    """A descriptor without access of the file that a link in /proc leads to, -1 without one."""
    return _descriptor(lambda: os.open(path, os.O_PATH | os.O_CLOEXEC))


@contextmanager
def _mounted(pid: str, path: str) -> Iterator[int]:
    """As `_at`, of a mount in the mount namespace of a process that may be a tenant's: no file system is asked.

    The kernel has the path in its cache while it is mounted, except on file systems that confirm each name.
    """
    flags, how = os.O_PATH | os.O_CLOEXEC, libc.RESOLVE_IN_ROOT | libc.RESOLVE_CACHED
    with (
        _at(f"{PROC}/{pid}/root") as root,
        _descriptor(lambda: libc.openat2(root, path.lstrip("/"), flags, how)) as found,
    ):
        yield found


def _open(inode: int, found: int, called: str, visited: set[int]) -> Iterator[tuple[Namespace, str]]:
    """Open the namespace that a descriptor without access is of, unless it is another file by now."""
    try:
        if found < 0 or libc.identify(found) != (file_system(), inode):
            return
        namespace = Namespace(os.open(f"{_OWN}/{found}", os.O_RDONLY | os.O_CLOEXEC))
    except _GONE as problem:
        _pass_over(problem)
        return
    visited.add(inode)
    with namespace:
        yield namespace, called


def plain(text: str) -> str:
    """A text of a tenant for a line of a log."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_MOST_LETTERS])


def _named_mounts(pid: str) -> str:
    """The mount namespace of a process as /proc names it, "" if it cannot be read."""
    try:
        return os.readlink(f"{PROC}/{pid}/ns/mnt")  # noqa: PTH115
    except _GONE as problem:
        _pass_over(problem)
        return ""


def _named(path: str) -> int:
    """The inode of the namespace that a link in /proc names, 0 if it cannot be read."""
    try:
        match = _NET.match(os.readlink(path))  # noqa: PTH115
    except _GONE as problem:
        _pass_over(problem)
        return 0
    return int(match[1]) if match is not None else 0


def _listed(folder: str | int) -> list[str]:
    """The entries of a folder, which may be an open one; none of a process that has ended."""
    try:
        return os.listdir(folder)  # noqa: PTH208
    except _GONE as problem:
        _pass_over(problem)
        return []


def _pass_over(problem: Exception) -> None:
    """Take a failure for the end of a process, unless the kernel was short of something.

    Raises:
        KernelError: it was; the file that it did not open may be a namespace.
    """
    if isinstance(problem, OSError):
        error = from_os_error(problem, "cannot search the network namespaces of the node")
        if error.is_short:
            raise error from None


def _called(pid: str) -> str:
    try:
        with open(f"{PROC}/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read().strip()
    except _GONE:
        name = "unknown"
    return f"process {pid} ({plain(name)})"


def _check(is_over: Callable[[], bool]) -> None:
    if is_over():
        raise TimeoutError
