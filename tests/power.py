"""Power cuts: every state in which a disk may be found after one, by the system calls that were made before it.

A model of POSIX, which is stricter than any one file system: what no fsync has waited for may be there or not, each
name and each file by itself. A file then has its former content, its new one, a part of it, or zeros; a name stands
for any of the files that it stood for since its folder was last synced. ext4 shows a part of these states
(tests/kernel/node/test_power_cuts.py).
"""

from __future__ import annotations

import copy
import itertools
import os
import random
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_MOST_OF_A_CUT = 16
"""A cut with more states than that is sampled."""
_Folder = dict[str, list[int]]
"""By name: the inodes that it stood for since the folder was last synced, 0 for none; the last one is its present."""


@dataclass
class _Cut:
    """The disk at one moment: the folders by inode, and the files' synced and present content."""

    folders: dict[int, _Folder] = field(default_factory=dict)
    synced: dict[int, bytes] = field(default_factory=dict)
    present: dict[int, bytes] = field(default_factory=dict)

    def states(self) -> Iterator[Mapping[str, bytes | None]]:
        """The trees that may be found: the content by relative path, None of a folder."""
        names = [
            (folder, name, set(inodes)) for folder, known in self.folders.items() for name, inodes in known.items()
        ]
        files = [(inode, self._contents(inode)) for inode in self.present]
        choices = [sorted(inodes) for _, _, inodes in names] + [sorted(contents) for _, contents in files]
        for chosen in _product(choices):
            entries: dict[int, dict[str, int]] = {folder: {} for folder in self.folders}
            for (folder, name, _), inode in zip(names, chosen, strict=False):
                if inode:
                    entries[folder][name] = inode
            contents = dict(zip((inode for inode, _ in files), chosen[len(names) :], strict=True))
            yield dict(_tree(next(iter(self.folders)), "", entries, contents))

    def _contents(self, inode: int) -> set[bytes]:
        present = self.present[inode]
        if present == self.synced[inode]:
            return {present}
        return {self.synced[inode], present, present[: len(present) // 2], bytes(len(present))}


def _product(choices: list[list[Any]]) -> Iterator[tuple[Any, ...]]:
    count = 1
    for options in choices:
        count *= len(options)
    if count <= _MOST_OF_A_CUT:
        yield from itertools.product(*choices)
        return
    draw = random.Random(count)
    for _ in range(_MOST_OF_A_CUT):
        yield tuple(draw.choice(options) for options in choices)


def _tree(
    folder: int, path: str, entries: Mapping[int, Mapping[str, int]], contents: Mapping[int, bytes]
) -> Iterator[tuple[str, bytes | None]]:
    for name, inode in entries[folder].items():
        below = f"{path}{name}"
        if inode in entries:
            yield below, None
            yield from _tree(inode, f"{below}/", entries, contents)
        else:
            yield below, contents[inode]


class RecordedDisk:
    """The system calls below a folder in this process, which are made as usual.

    Attributes:
        folder: where calls are recorded.
        note: what a test knows at each moment; kept with each cut.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.note: Any = None
        self._now = _Cut({folder.stat().st_ino: {}})
        self._cuts: list[tuple[_Cut, Any]] = []
        self._lock = threading.RLock()

    def states(self) -> Iterator[tuple[Mapping[str, bytes | None], Any]]:
        """Every state after a cut, with the note of its moment; equal ones once."""
        seen: set[tuple[Any, ...]] = set()
        for cut, note in self._cuts:
            for tree in cut.states():
                key = (tuple(sorted(tree.items(), key=str)), str(note))
                if key not in seen:
                    seen.add(key)
                    yield tree, note

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Record the functions of `os`."""
        opened = os.open

        def open_(path: Any, flags: int, *rest: Any, **named: Any) -> int:
            with self._lock:
                was_there = os.path.lexists(path)
                fd = opened(path, flags, *rest, **named)
                if flags & os.O_TMPFILE == os.O_TMPFILE or not was_there or flags & os.O_TRUNC:
                    self._made(fd, None if flags & os.O_TMPFILE == os.O_TMPFILE else os.fsdecode(path))
                return fd

        patch.setattr(os, "open", open_)
        for name, act in (
            ("write", lambda fd, *_: self._written(fd)),
            ("ftruncate", lambda fd, *_: self._written(fd)),
            ("fsync", self._synced),
            ("fdatasync", self._synced),
            ("mkdir", lambda path, *_: self._named(path)),
            ("link", lambda _, new: self._named(new)),
            ("symlink", lambda _, new: self._named(new)),
            ("unlink", self._named),
            ("rmdir", self._named),
            ("rename", self._renamed),
        ):
            self._wrap(patch, name, act)

    def _wrap(self, patch: pytest.MonkeyPatch, name: str, act: Callable[..., object]) -> None:
        original = getattr(os, name)

        def wrapped(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                result = original(*arguments, **named)
                act(*arguments)
                return result

        patch.setattr(os, name, wrapped)

    def _made(self, fd: int, path: str | None) -> None:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or not self._is_below(Path(f"/proc/self/fd/{fd}").readlink()):
            return
        inode = status.st_ino
        self._now.synced[inode] = self._now.present[inode] = b""
        if path is not None:
            self._named(path)

    def _written(self, fd: int) -> None:
        inode = os.fstat(fd).st_ino
        if inode in self._now.present:
            self._now.present[inode] = Path(f"/proc/self/fd/{fd}").read_bytes()
            self.cut()

    def _synced(self, fd: int) -> None:
        inode = os.fstat(fd).st_ino
        if inode in self._now.folders:
            known = self._now.folders[inode]
            self._now.folders[inode] = {name: inodes[-1:] for name, inodes in known.items() if inodes[-1]}
        elif inode in self._now.present:
            self._now.synced[inode] = self._now.present[inode]
        self.cut()

    def _renamed(self, old: Any, new: Any) -> None:
        self._named(new)
        self._named(old)

    def _named(self, name: Any) -> None:
        """Note the inode that a name has now."""
        path = Path(os.fsdecode(name))
        if not self._is_below(path):
            return
        try:
            status = path.lstat()
        except FileNotFoundError:
            inode = 0
        else:
            inode = status.st_ino
            if stat.S_ISDIR(status.st_mode):
                self._now.folders.setdefault(inode, {})
        self._now.folders[path.parent.stat().st_ino].setdefault(path.name, [0]).append(inode)
        self.cut()

    def _is_below(self, path: Path) -> bool:
        return self.folder in path.parents

    def cut(self) -> None:
        """A call has been made: a power cut may come now."""
        self._cuts.append((copy.deepcopy(self._now), copy.deepcopy(self.note)))


def write(tree: Mapping[str, bytes | None], folder: Path) -> None:
    """Make a folder with this tree."""
    folder.mkdir()
    for name, content in tree.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)
