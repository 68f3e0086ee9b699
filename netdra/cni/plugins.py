"""Find a plugin's binary by its name in the CNI path, and know it again. Called by `netdra.cni.protocol`.

Follows the CNI specification, "Section 3: Execution" (look up the executable named by `type`). A type is a name, never
a path: what an author of a topology writes must not choose which file of the node runs as root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import PurePath

import msgspec

from netdra.cni.errors import PluginFailure, plugin_error
from netdra.model.errors import InvalidInputError, PermanentError, TemporaryError

DEFAULT_DIRECTORIES = ("/opt/cni/bin",)
MAX_NAME = 128
STORE = ".netdra"
"""In a folder of plugins: the versions of those that netdra installed, by name."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z", re.ASCII)
_SYS_OPENAT2 = 437  # the same on every architecture, as all system calls since Linux 5.1
_RESOLVE_IN_ROOT = 0x10
_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EIO})
"""Errors that say nothing of the file (decision D59)."""


class PluginPath(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where plugins are searched for: the CNI path, in the file system that `root` is the root of.

    `root` is "/" on a bare host and /proc/1/root in the daemon's container, whose plugins must see the host's files
    (decision D7).
    """

    directories: tuple[str, ...] = DEFAULT_DIRECTORIES
    root: str = "/"


class Binary(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's executable file: its path inside the root, and the identity that a replacing file does not have."""

    name: str
    path: str
    root: str
    identity: tuple[int, int, int, int]

    def argv(self) -> tuple[str, ...]:
        """The command that runs it in its root."""
        return (self.path,) if self.root == "/" else (_chroot(), self.root, self.path)


def root_trouble(root: str) -> PermanentError | None:
    """Why plugins cannot run in a root, None if they can.

    A plugin opens the pod's namespace and its own by /proc of its root. From a container without the host's process
    namespace, it is another process there, or none: it would fail with "Statfs /proc/…/ns/net: no such file".
    """
    if root == "/":
        return None
    own = str(os.getpid())
    try:
        there = os.readlink(f"{root}/proc/self")  # noqa: PTH115 (the text of the link counts)
    except OSError as problem:
        what = f"CNI plugins cannot run in {root}: {root}/proc/self: {problem.strerror}"
        return PermanentError(
            what, hint=f"mount the node's root filesystem at {root}, including its submounts", code="ND2254"
        )
    if there == own:
        return None
    return PermanentError(
        f"CNI plugins cannot run in {root}: process {own} has the ID {there} there, so programs do not "
        "find their own /proc",
        hint="set hostPID: true on the pod, or --cni-root / with the node's folders at their own paths (docs/image.md)",
        code="ND2255",
    )


def find(name: str, where: PluginPath) -> Binary:
    """The binary of a plugin: the first regular, executable file of that name in the CNI path.

    Raises:
        InvalidInputError: the name is not a plain name (a path, a dot-dot, a letter that only looks like one).
        PluginPermanentError: no such binary exists.
        TemporaryError: the folders cannot be inspected.
    """
    if not is_name(name):
        raise InvalidInputError(
            f"{name[:MAX_NAME]!r} is not a valid CNI plugin name",
            hint="a plugin's type is the name of its executable: ASCII letters, digits, '-', '_' and '.', "
            "without a path",
            code="ND2256",
        )
    for directory in where.directories:
        binary = _binary(name, directory, where.root)
        if binary is not None:
            return binary
    searched = ":".join(where.directories) + ("" if where.root == "/" else f" under {where.root}")
    failure = PluginFailure(plugin=name, verb="", kind="missing", message=f"executable not found in {searched}")
    raise plugin_error(failure, hint="install the plugin on the node, or add its directory to the CNI path")


def installed(where: PluginPath) -> tuple[Binary, ...]:
    """The plugins in the CNI path, as `find` finds them, by name; a folder that this process may not read has none.

    Raises:
        TemporaryError: the folders cannot be inspected.
    """
    binaries: dict[str, Binary] = {}
    for directory in where.directories:
        for name in _entries(directory, where.root):
            if is_name(name) and name not in binaries:
                binary = _binary(name, directory, where.root)
                binaries |= {name: binary} if binary is not None else {}
    return tuple(binaries[name] for name in sorted(binaries))


@contextmanager
def folders(where: PluginPath) -> Iterator[tuple[int, ...]]:
    """Open descriptors of the folders in which a plugin of the CNI path can come or go, for as long as they are needed.

    The folders of the path, what they are in (a folder can be replaced by another one), and of one that is not there
    what is there of the way to it.
    """
    opened: list[int] = []
    try:
        for directory in where.directories:
            ways = (directory, *map(str, PurePath(directory).parents))
            present = (fd for way in ways if (fd := _folder(way, where.root)) is not None)
            opened += [fd for _, fd in zip(range(2), present, strict=False)]
        yield tuple(opened)
    finally:
        for fd in opened:
            os.close(fd)


def _binary(name: str, directory: str, root: str) -> Binary | None:
    path = os.path.join(directory, name)
    status = _status(path, root)
    if status is None or not _is_program(status):
        return None
    identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    return Binary(name=name, path=path, root=root, identity=identity)


def _folder(path: str, root: str) -> int | None:
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(path, flags) if root == "/" else _open_in_root(path, root, flags)
    except OSError:
        return None


def is_name(name: str) -> bool:
    """Whether a text can be a plugin's name: never a path."""
    return len(name) <= MAX_NAME and _NAME.match(name) is not None


def _is_program(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o111)


def _entries(directory: str, root: str) -> list[str]:
    try:
        if root == "/":
            return os.listdir(directory)  # noqa: PTH208 (names, not paths)
        fd = _open_in_root(directory, root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as problem:
        _check_readable(directory, problem)
        return []
    try:
        return os.listdir(fd)  # noqa: PTH208 (a descriptor is no path)
    finally:
        os.close(fd)


def _status(path: str, root: str) -> os.stat_result | None:
    try:
        return os.stat(path) if root == "/" else _status_in_root(path, root)  # noqa: PTH116 (no Path for each candidate)
    except OSError as problem:
        _check_readable(path, problem)
        return None


def _check_readable(path: str, problem: OSError) -> None:
    """Refuse to take a file that cannot be inspected for one that is not there.

    Raises:
        TemporaryError: the error leaves the state of the file unknown.
    """
    if problem.errno in _SHORT:
        raise TemporaryError(f"CNI plugins: {path} cannot be read: {problem.strerror}", code="ND2257") from None


def _status_in_root(path: str, root: str) -> os.stat_result:
    fd = _open_in_root(path, root, os.O_PATH | os.O_CLOEXEC)
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)


def _open_in_root(path: str, root: str, flags: int) -> int:
    """Open a file as a process with that root would see it: absolute symbolic links stay inside (openat2(2))."""
    base = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        how = (ctypes.c_uint64 * 3)(flags, 0, _RESOLVE_IN_ROOT)
        fd = int(_libc().syscall(_SYS_OPENAT2, base, os.fsencode(path), how, ctypes.sizeof(how)))
    finally:
        os.close(base)
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return fd


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@lru_cache(maxsize=1)
def _chroot() -> str:
    path = shutil.which("chroot", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin")
    if path is None:
        raise PermanentError(
            "the program chroot is not installed; it is required to run plugins in the host's root filesystem",
            hint="install coreutils",
            code="ND2258",
        )
    return path
