"""The decoded content of the files of a folder: decoded again when they change, and inspected only after a change.

Used for the records of claims and for checkpoints. A node has hundreds of both, and each claim and each pod needs all
of them. A daemon follows the folders (`FileCache.follow`): the kernel then names what any process has changed, and
nothing else is inspected. A command that reads a folder once inspects each file.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from netdra.model.errors import NetdraError
from netdra.ops import files

log = logging.getLogger(__name__)

T = TypeVar("T")

_State = tuple[int, int, int]

MOST_CHANGES = 4096
"""How many changes a log keeps; a reader that has missed more begins from the beginning."""
_marks = itertools.count(1)  # of all logs: a mark of another log is of no use


class ChangeLog(Generic[T]):
    """The last changes of something, for readers that keep up with it."""

    def __init__(self) -> None:
        """Begin: former changes are not known."""
        self._begin, self._entries = next(_marks), deque[tuple[int, T]](maxlen=MOST_CHANGES)

    def note(self, changed: Iterable[T]) -> None:
        """These have changed now."""
        for entry in changed:
            if len(self._entries) == MOST_CHANGES:
                self._begin = self._entries[0][0]
            self._entries.append((next(_marks), entry))

    def since(self, mark: int) -> tuple[int, frozenset[T] | None]:
        """The changes since a mark.

        Args:
            mark: the first value of an earlier answer, 0 for none.

        Returns:
            The mark of this answer, and the changes; None if the log does not have all of them.
        """
        now = self._entries[-1][0] if self._entries else self._begin
        if mark < self._begin:
            return now, None
        newer = itertools.takewhile(lambda entry: entry[0] > mark, reversed(self._entries))
        return now, frozenset(entry for _, entry in newer)


class Changes(Protocol):
    """The changes of a folder, as the kernel reports them: `netdra.kernel.inotify`."""

    def take(self) -> frozenset[str] | None:
        """The names of the files that have changed since the last call; None if any may have."""

    def close(self) -> None:
        """Close the kernel's watch; its descriptor is not readable from then on."""


@dataclass
class _Followed(Generic[T]):
    """A folder that is followed.

    Attributes:
        open: begins to report the changes of the folder.
        identity: the folder's device and inode; None before its changes are reported.
        names: the files in it.
        unchanged: the content of those that have not changed since they were decoded.
        log: the names of the files that have changed since the kernel reports changes.
        is_refused: whether the kernel did not report changes the last time; that is logged once.
    """

    open: Callable[[Path], Changes]
    identity: tuple[int, int] | None = None
    changes: Changes | None = None
    names: set[str] = field(default_factory=set)
    unchanged: dict[str, T] = field(default_factory=dict)
    log: ChangeLog[str] = field(default_factory=lambda: ChangeLog[str]())
    is_refused: bool = False

    def close(self) -> None:
        if self.changes is not None:
            self.changes.close()
        self.changes = self.identity = None


class FileCache(Generic[T]):
    """The decoded content of files of one kind, read again only when they have changed. Any thread may ask.

    A write of another process counts at once: a file counts as unchanged only as long as it is the same one, of the
    same size, and last written at the same time.
    """

    def __init__(self, decode: Callable[[bytes, Path], T]) -> None:
        """Begin with nothing.

        Args:
            decode: content and path -> the decoded content, which callers must not change.
        """
        self._decode = decode
        self._cache: dict[str, tuple[_State, T]] = {}
        self._followed: dict[Path, _Followed[T]] = {}
        self._following = threading.Lock()

    @contextmanager
    def follow(self, folder: Path, open_changes: Callable[[Path], Changes]) -> Iterator[None]:
        """Have the kernel report the changes of a folder's files until the context ends.

        Args:
            folder: the folder; it need not exist yet.
            open_changes: begins to report the changes of a folder. If the kernel does not, it raises NetdraError, and
                each file is inspected until it does.
        """
        followed: _Followed[T] = _Followed(open_changes)
        with self._following:
            self._followed[folder] = followed
        try:
            yield
        finally:
            with self._following:
                self._followed.pop(folder, None)
                followed.close()

    def listed(self, folder: Path) -> Collection[str]:
        """The names in a folder; none where no such folder exists.

        Raises:
            TemporaryError: the disk cannot be read.
        """
        with self._following:
            followed = self._update(folder)
            return files.listed(folder) if followed is None else tuple(followed.names)

    def of(self, path: Path) -> T:
        """The decoded content of a file as it is now.

        Raises:
            FileNotFoundError: it is not there.
            IsADirectoryError: it is not a file.
            TemporaryError: it cannot be read. Errors of decoding come through.
        """
        name = str(path)
        cached = self._cache.get(name)
        try:
            if cached is not None and cached[0] == _state(os.stat(name)):  # noqa: PTH116 (for each file, each time)
                return cached[1]
            with path.open("rb") as opened:
                # The status is read before the content: lines that are appended in between are found the next time.
                state, text = _state(os.fstat(opened.fileno())), opened.read()
        except (FileNotFoundError, IsADirectoryError):
            raise
        except OSError as problem:
            raise files.unreadable(path, problem) from None
        content = self._decode(text, path)
        self._cache[name] = state, content
        return content

    def unchanged(self, folder: Path, names: Iterable[str]) -> Mapping[str, T]:
        """The decoded content, by name, of those of a folder's files that have not changed since they were last read.

        Files beside these are forgotten. In a folder that is not followed, each file costs a system call.
        """
        with self._following:
            followed = self._update(folder)
            if followed is not None:
                self._inspect(folder, followed, [name for name in names if name not in followed.unchanged])
                return dict(followed.unchanged)
        self.forget_all_but(folder, names)
        return dict(self._unchanged(folder, names))

    def changed(self, folder: Path, mark: int) -> tuple[int, frozenset[str] | None]:
        """The files of a followed folder that have changed since a mark.

        Args:
            folder: the folder.
            mark: the first value of an earlier answer, 0 for none.

        Returns:
            The mark of this answer, and the names; None if any file may have changed: the folder is not followed, or
            was not all the time. A file that is read after this call is at least as new as the mark.

        Raises:
            TemporaryError: the disk cannot be read.
        """
        with self._following:
            followed = self._update(folder)
            return (0, None) if followed is None else followed.log.since(mark)

    def last(self, path: Path) -> T | None:
        """The decoded content of a file as it was last read, for a file that cannot be read any more."""
        cached = self._cache.get(str(path))
        return cached[1] if cached is not None else None

    def remember(self, path: Path, status: os.stat_result, content: T) -> None:
        """Take a file's content from the caller, which has just written it.

        Args:
            path: the file.
            status: its status, as `replace` returned it.
            content: its decoded content.
        """
        self._cache[str(path)] = _state(status), content

    def forget_all_but(self, folder: Path, names: Iterable[str]) -> None:
        """Forget the files of a folder but for these."""
        prefix = f"{folder}/"
        for path in self._cache.keys() - {prefix + name for name in names}:
            if path.startswith(prefix) and "/" not in path[len(prefix) :]:
                self._cache.pop(path, None)

    def _update(self, folder: Path) -> _Followed[T] | None:
        """A followed folder with its names as they are now; None if each file is to be inspected."""
        followed = self._followed.get(folder)
        if followed is None:
            return None
        try:
            status = os.stat(folder)  # noqa: PTH116 (for each claim)
        except OSError:
            followed.close()
            return None
        identity = status.st_dev, status.st_ino
        if followed.changes is None or followed.identity != identity:
            return self._begin(folder, followed, identity)
        changed = followed.changes.take()
        if changed is None:  # the kernel dropped reports, or the folder itself was moved
            return self._begin(folder, followed, identity)
        followed.names -= changed
        for name in changed:
            followed.unchanged.pop(name, None)
        followed.log.note(changed)
        gone = self._inspect(folder, followed, changed)
        for name in gone:
            self._cache.pop(f"{folder}/{name}", None)
        return followed

    def _begin(self, folder: Path, followed: _Followed[T], identity: tuple[int, int]) -> _Followed[T] | None:
        """Follow a folder from now on; None if the kernel does not report its changes."""
        followed.close()
        try:
            followed.changes = followed.open(folder)
            followed.is_refused = False
        except NetdraError as problem:
            if not followed.is_refused:
                log.warning("%s: its files are inspected one by one: %s", folder, problem)
            followed.is_refused = True
            return None
        except OSError:  # it is gone again, or cannot be read
            return None
        try:
            # Changes from here on are reported, so it does not matter whether they are listed already.
            followed.names = set(files.listed(folder))
        except NetdraError:
            followed.close()
            return None
        followed.identity, followed.log = identity, ChangeLog()
        self.forget_all_but(folder, followed.names)
        followed.unchanged = dict(self._unchanged(folder, followed.names))
        return followed

    def _inspect(self, folder: Path, followed: _Followed[T], names: Iterable[str]) -> list[str]:
        """Note which of a followed folder's files are there and unchanged; returns those that are gone."""
        gone = []
        for name in names:
            try:
                state = _state(os.stat(f"{folder}/{name}"))  # noqa: PTH116 (for each claim)
            except FileNotFoundError:
                gone.append(name)
                continue
            except OSError:  # `of` reports it
                followed.names.add(name)
                continue
            followed.names.add(name)
            cached = self._cache.get(f"{folder}/{name}")
            if cached is not None and cached[0] == state:
                followed.unchanged[name] = cached[1]
        return gone

    def _unchanged(self, folder: Path, names: Iterable[str]) -> Iterator[tuple[str, T]]:
        cache, stat, prefix = self._cache, os.stat, f"{folder}/"
        for name in names:
            cached = cache.get(path := prefix + name)
            if cached is None:
                continue
            try:
                status = stat(path)
            except OSError:  # `of` reports it
                continue
            if cached[0] == (status.st_ino, status.st_size, status.st_mtime_ns):
                yield name, cached[1]


def _state(status: os.stat_result) -> _State:
    return status.st_ino, status.st_size, status.st_mtime_ns
