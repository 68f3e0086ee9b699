"""Reading sysfs below a root that the caller names: /sys, or a recorded tree. Every read has an answer.

Thousands of files are read, so they are read through joined strings and bare descriptors. Several files of one folder
are read through the folder's own descriptor, for in sysfs every part of a path is a lock. A read yields the text, None
where no such file exists, or an `Unreadable` with the errno; it never raises. Names of files and links are Python's
own (with surrogates for strange bytes), so that they can be opened.
"""

from __future__ import annotations

import errno
import os
import posixpath

from netdra.kernel.closing import Closing
from netdra.kernel.errors import errno_name, from_os_error
from netdra.kernel.liveness import Liveness

_MOST = 4096  # sysfs files are at most a page
_GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR})


def printable(name: str) -> str:
    """A name of a file or link that can be printed: bytes that are not UTF-8 become escapes."""
    return name if name.isascii() else name.encode(errors="surrogateescape").decode(errors="backslashreplace")


class Unreadable:
    """A file that is there but cannot be read; false, so that `read(...) or default` works."""

    __slots__ = ("errno",)

    def __init__(self, number: int) -> None:
        self.errno = number

    def __bool__(self) -> bool:
        return False

    @property
    def reason(self) -> str:
        """The errno's name."""
        return errno_name(self.errno)


class Sysfs:
    """A sysfs tree. Paths are relative to its root, without a leading slash ("class/net/eth0/mtu")."""

    __slots__ = ("root",)

    def __init__(self, root: str = "/sys") -> None:
        self.root = root.rstrip("/")

    def read(self, path: str) -> str | Unreadable | None:
        """A file's text without white space around it; None if it is not there."""
        return _read(f"{self.root}/{path}", None)

    def text(self, path: str) -> str:
        """A file's text, "" where it is absent or cannot be read."""
        content = self.read(path)
        return content if isinstance(content, str) else ""

    def number(self, path: str, base: int = 10) -> int | Unreadable | None:
        """A file's text as a number; None where the file is absent; EINVAL where the text is not a number."""
        return _number(self.read(path), base)

    def link_name(self, path: str) -> str | Unreadable | None:
        """The last part of a symbolic link's target, printable, whether that is there or not; None without a link."""
        return _last_part(self.link(path))

    def link(self, path: str) -> str | Unreadable | None:
        """A symbolic link's target, as it is written; None if the path is not a link."""
        return _link(f"{self.root}/{path}", None)

    def folder(self, path: str) -> Folder:
        """A folder, opened to read several of its files: `with sysfs.folder(path) as folder`."""
        return Folder(f"{self.root}/{path}")

    def resolve(self, path: str) -> str:
        """The path behind all symbolic links, relative to the root; parts that do not exist stay as written."""
        real = os.path.realpath(f"{self.root}/{path}")
        root = os.path.realpath(self.root)
        return real[len(root) + 1 :] if real.startswith(f"{root}/") else real

    def behind(self, path: str) -> str:
        """As `resolve` for a path whose last part alone is a link, with one read instead of one a folder.

        The links in bus/*/devices and all of class are so. If it is not a link, or leads elsewhere, `resolve` decides.
        """
        target = self.link(path)
        if isinstance(target, str):
            resolved = posixpath.normpath(f"{path.rpartition('/')[0]}/{target}")
            if resolved.startswith("devices/"):
                return resolved
        return self.resolve(path)

    def listing(self, path: str) -> list[str]:
        """The names in a folder, sorted; none where it is absent, no folder, or cannot be read."""
        entries = self.names(path)
        return entries if isinstance(entries, list) else []

    def names(self, path: str) -> list[str] | Unreadable | None:
        """The names in a folder, sorted; None where no such folder exists."""
        try:
            return sorted(os.listdir(f"{self.root}/{path}"))  # noqa: PTH208
        except OSError as problem:
            return _reason(problem)
        except ValueError:
            return None

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there (behind links)."""
        try:
            return os.access(f"{self.root}/{path}", os.F_OK)
        except ValueError:
            return False

    def liveness(self, path: str) -> Liveness:
        """Whether something is at a path (behind links), in three results."""
        try:
            os.stat(f"{self.root}/{path}")  # noqa: PTH116
        except OSError as problem:
            if problem.errno in _GONE:
                return Liveness("gone")
            return Liveness("unknown", f"cannot read {self.root}/{path}: {errno_name(problem.errno or errno.EIO)}")
        return Liveness("present")

    def is_folder(self, path: str) -> bool:
        """Whether a folder is there (behind links)."""
        return os.path.isdir(f"{self.root}/{path}")  # noqa: PTH112

    def write(self, path: str, value: str) -> None:
        """Write a file.

        Raises:
            KernelMissingError: no such file exists, or its device is gone.
            KernelError: the kernel refused the value.
        """
        try:
            descriptor = os.open(f"{self.root}/{path}", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, value.encode())
            finally:
                os.close(descriptor)
        except OSError as problem:
            raise from_os_error(problem, f'cannot write "{value}" to {self.root}/{path}') from None


class Folder(Closing):
    """An open folder of a tree, behind links; to be closed, which leaving it as a context does.

    Reads are those of `Sysfs`, with paths relative to the folder. The open folder stays this one, also if another one
    gets its name later: when its device goes meanwhile, the files that are not read yet are absent. A folder that is
    not there has no files; files of a folder that cannot be opened cannot be read.
    """

    __slots__ = ("_closed", "_descriptor")

    def __init__(self, path: str) -> None:
        self._descriptor = -1
        self._closed: Unreadable | None = None
        try:
            self._descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as problem:
            self._closed = _reason(problem)
        except ValueError:  # a NUL in the path
            pass

    def close(self) -> None:
        """Close it; closing twice is not an error."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def unreadable(self) -> Unreadable | None:
        """Why the folder could not be opened; None if it is open, or not there."""
        return self._closed

    @property
    def is_open(self) -> bool:
        """Whether the folder is there and was opened."""
        return self._descriptor >= 0

    def read(self, path: str) -> str | Unreadable | None:
        """A file below the open folder, as `Sysfs.read`; the reason or None if the folder is not open."""
        return _read(path, self._descriptor) if self._descriptor >= 0 else self._closed

    def number(self, path: str, base: int = 10) -> int | Unreadable | None:
        """A number in a file below the open folder, with the results of `Sysfs.number`."""
        return _number(self.read(path), base)

    def link_name(self, path: str) -> str | Unreadable | None:
        """The last part of a link's target below the open folder, with the results of `Sysfs.link_name`."""
        return _last_part(_link(path, self._descriptor) if self._descriptor >= 0 else self._closed)

    def exists(self, path: str) -> bool:
        """As `Sysfs.exists`; far cheaper than a read of a file that mostly is not there."""
        return self._descriptor >= 0 and os.access(path, os.F_OK, dir_fd=self._descriptor)


def _read(path: str, folder: int | None) -> str | Unreadable | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
        try:
            data = os.read(descriptor, _MOST)
        finally:
            os.close(descriptor)
    except OSError as problem:
        return _reason(problem)
    except ValueError:  # a NUL in the path
        return None
    return data.decode(errors="backslashreplace").strip("\0 \t\r\n")


def _number(content: str | Unreadable | None, base: int) -> int | Unreadable | None:
    if not isinstance(content, str):
        return content
    try:
        return int(content, base)
    except ValueError:
        return Unreadable(errno.EINVAL)


def _link(path: str, folder: int | None) -> str | Unreadable | None:
    try:
        return os.readlink(path, dir_fd=folder)
    except OSError as problem:
        return None if problem.errno == errno.EINVAL else _reason(problem)
    except ValueError:
        return None


def _last_part(target: str | Unreadable | None) -> str | Unreadable | None:
    return printable(target.rstrip("/").rpartition("/")[2]) if isinstance(target, str) else target


def _reason(problem: OSError) -> Unreadable | None:
    return None if problem.errno in _GONE else Unreadable(problem.errno or errno.EIO)
