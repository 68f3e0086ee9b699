"""Find a plugin's binary by its name in the CNI path, and know it again. Called by `netdra.cni.protocol`.

Follows the CNI specification, "Section 3: Execution" (look up the executable named by `type`). A type is a name, never
a path: what an author of a topology writes must not choose which file of the node runs as root.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import stat
from functools import lru_cache

import msgspec

from netdra.cni.errors import PluginFailure, plugin_error
from netdra.model.errors import InvalidInputError, PermanentError

DEFAULT_DIRECTORIES = ("/opt/cni/bin",)
HOST_ROOT = "/proc/1/root"
MAX_NAME = 128

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z", re.ASCII)
_SYS_OPENAT2 = 437  # the same on every architecture, as all system calls since Linux 5.1
_RESOLVE_IN_ROOT = 0x10


class PluginPath(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where plugins are looked for: the CNI path, in the file system that `root` is the root of.

    `root` is "/" on a bare host and `HOST_ROOT` in the daemon's container, whose plugins must see the host's files
    (decision D7).
    """

    directories: tuple[str, ...] = DEFAULT_DIRECTORIES
    root: str = "/"


class Binary(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's executable file: its path inside the root, and what tells it from the file that replaces it."""

    name: str
    path: str
    root: str
    identity: tuple[int, int, int, int]

    def argv(self) -> tuple[str, ...]:
        """The command that runs it in its root."""
        return (self.path,) if self.root == "/" else (_chroot(), self.root, self.path)


def find(name: str, where: PluginPath) -> Binary:
    """The binary of a plugin: the first regular, executable file of that name in the CNI path.

    Raises:
        InvalidInputError: the name is no plain name (a path, a dot-dot, a letter that only looks like one).
        PluginPermanentError: there is no such binary.
    """
    if len(name) > MAX_NAME or not _NAME.match(name):
        raise InvalidInputError(
            f"CNI plugin {name[:MAX_NAME]!r} is no plugin name",
            hint="a plugin's type is the name of its file: ASCII letters, digits, '-', '_' and '.', no path",
        )
    for directory in where.directories:
        path = os.path.join(directory, name)
        found = _status(path, where.root)
        if found is not None and stat.S_ISREG(found.st_mode) and found.st_mode & 0o111:
            identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            return Binary(name=name, path=path, root=where.root, identity=identity)
    searched = ":".join(where.directories) + ("" if where.root == "/" else f" under {where.root}")
    failure = PluginFailure(plugin=name, verb="", kind="missing", message=f"no executable of that name in {searched}")
    raise plugin_error(failure, hint="install the plugin on the node, or name its directory in the CNI path")


def _status(path: str, root: str) -> os.stat_result | None:
    try:
        return os.stat(path) if root == "/" else _status_in_root(path, root)  # noqa: PTH116 (no Path for each candidate)
    except OSError:
        return None


def _status_in_root(path: str, root: str) -> os.stat_result:
    """A file's status as a process with that root would see it: absolute symbolic links stay inside (openat2(2))."""
    base = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT)
        fd = _libc().syscall(_SYS_OPENAT2, base, os.fsencode(path), how, ctypes.sizeof(how))
    finally:
        os.close(base)
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@lru_cache(maxsize=1)
def _chroot() -> str:
    found = shutil.which("chroot", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin:/bin")
    if found is None:
        raise PermanentError(
            "there is no chroot program, and plugins are to run in the host's root", hint="install coreutils"
        )
    return found
