"""File systems that fail: a real ext4 that the kernel makes read-only, a small tmpfs, and errors at the nth write."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_IMAGE_BYTES = 16 * 1024 * 1024
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Disk:
    """A mounted file system.

    Attributes:
        path: where it is mounted.
    """

    path: Path

    def make_read_only(self) -> None:
        """From now on every write fails with EROFS. No file may be open for writing."""
        self._remount("ro")

    def make_writable(self) -> None:
        """Writes succeed again."""
        self._remount("rw")

    def abort(self) -> None:
        """As ext4 does after an error (errors=remount-ro), for good: EROFS, also for files that are open."""
        self._remount("abort")

    def fill(self) -> None:
        """Write until no block and no inode is free."""
        (self.path / "fillers").mkdir(exist_ok=True)
        for size in (4096, 1):
            with (self.path / "filler").open("ab", buffering=0) as file:
                _until_full(lambda file=file, size=size: file.write(b"x" * size))  # type: ignore[misc]
        numbers = iter(range(1_000_000))
        _until_full(lambda: (self.path / "fillers" / str(next(numbers))).touch())

    def empty(self) -> None:
        """Remove what `fill` wrote."""
        (self.path / "filler").unlink()
        for file in (self.path / "fillers").iterdir():
            file.unlink()

    def _remount(self, option: str) -> None:
        subprocess.run(("mount", "-o", f"remount,{option}", str(self.path)), check=True)


def _until_full(write: Callable[[], object]) -> None:
    try:
        while True:
            write()
    except OSError as problem:
        if problem.errno != errno.ENOSPC:
            raise


@contextmanager
def ext4(folder: Path) -> Iterator[Disk]:
    """An ext4 of its own below a folder, unmounted at the end."""
    image = folder / "disk.img"
    with image.open("wb") as file:
        file.truncate(_IMAGE_BYTES)
    subprocess.run(("mkfs.ext4", "-q", "-F", str(image)), check=True)
    with mounted(image) as disk:
        yield disk


@contextmanager
def mounted(image: Path) -> Iterator[Disk]:
    """The ext4 in an image, mounted beside it: if it is the copy of one that is in use, as after a power cut.

    Nothing is written to the image unless a program waits for the disk, so that a copy is of one moment.
    """
    yield from _mounted(image.with_suffix(""), "-o", "loop,commit=600", str(image))


@contextmanager
def tmpfs(folder: Path, *, inodes: int = 256) -> Iterator[Disk]:
    """A tmpfs of 1 MiB below a folder, unmounted at the end."""
    yield from _mounted(folder / "disk", "-t", "tmpfs", "-o", f"size=1m,nr_inodes={inodes}", "tmpfs")


def _mounted(path: Path, *arguments: str) -> Iterator[Disk]:
    path.mkdir()
    subprocess.run(("mount", *arguments, str(path)), check=True)
    try:
        yield Disk(path)
    finally:
        subprocess.run(("umount", "--lazy", str(path)), check=True)


@dataclass
class Faults:
    """Errors of the writes below a folder in this process, from the nth on.

    A write is each call that changes a file or a folder, and for EROFS and EIO also each opening for writing. A
    full disk refuses only calls that need room.

    Attributes:
        folder: where writes fail.
        errno: the error.
        left: how many writes succeed until all fail; None while all succeed.
        count: how many writes there were since `begin`.
        reads: whether opening for reading fails, too, as soon as a write does.
    """

    folder: Path
    errno: int
    left: int | None = None
    count: int = 0
    reads: bool = False

    def begin(self, left: int | None = None, *, reads: bool = False) -> None:
        """Count again, and fail after that many writes; never for None."""
        self.left, self.count, self.reads = left, 0, reads

    def end(self) -> None:
        """All writes succeed from now on."""
        self.begin()

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Have the functions of `os` fail."""
        for name, needs_room, at in (
            ("write", True, 0),
            ("fsync", True, 0),
            ("fdatasync", True, 0),
            ("fchmod", False, 0),
            ("ftruncate", False, 0),
            ("mkdir", True, 0),
            ("rename", False, 0),
            ("unlink", False, 0),
            ("rmdir", False, 0),
            ("link", True, 1),
            ("symlink", True, 1),
        ):
            self._wrap(patch, name, needs_room, at)
        opened = os.open

        def open_(path: Any, flags: int, *rest: Any, **named: Any) -> int:
            makes = flags & (os.O_CREAT | os.O_TMPFILE) and not os.path.isfile(path)  # noqa: PTH113
            is_there = makes or os.path.lexists(path)
            if is_there and self._is_below(path) and (flags & _WRITING or self.reads):
                self._count(needs_room=bool(makes))
            return opened(path, flags, *rest, **named)

        patch.setattr(os, "open", open_)

    def _wrap(self, patch: pytest.MonkeyPatch, name: str, needs_room: bool, at: int) -> None:
        original = getattr(os, name)

        def wrapped(*arguments: Any, **named: Any) -> Any:
            where = arguments[at]
            if self._is_below(f"/proc/self/fd/{where}" if isinstance(where, int) else where):
                self._count(needs_room=needs_room)
            return original(*arguments, **named)

        patch.setattr(os, name, wrapped)

    def _is_below(self, path: Any) -> bool:
        text = os.fsdecode(path)
        if text.startswith("/proc/self/fd/"):
            text = os.readlink(text)  # noqa: PTH115
        return text.startswith(f"{self.folder}/")

    def _count(self, *, needs_room: bool) -> None:
        self.count += 1
        if self.left is None or self.count <= self.left or (self.errno == errno.ENOSPC and not needs_room):
            return
        raise OSError(self.errno, os.strerror(self.errno))
