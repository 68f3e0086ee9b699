"""The file by which registrations outlive a restart of the driver and of the node: what was granted, line by line.

Used by `netdra.node.registry.leases`, in a thread of its own: an append is on the disk when it returns. The first line
has the version. A last line that a crash cut off and a damaged line are passed over. A file of another version is put
aside. None of this keeps the driver from starting.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from netdra.chain import files
from netdra.model.errors import UNREADABLE, NetdraError
from netdra.node.registry.ledger import OWNED_SECONDS, Entry, Key, Owner

log = logging.getLogger(__name__)

VERSION = 1
MOST_BYTES = 16 * 1024 * 1024
"""From this size on the file is written anew, with the registrations that hold alone."""
_TIMEOUT = 5.0


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line: the version, a registration that was granted, one that was taken back, or a name's owner."""

    version: int | None = None
    granted: Entry | None = None
    ended: Key | None = None
    provider: str = ""
    owner: Owner | None = None


_decoder = msgspec.json.Decoder(Line)


def line(granted: Entry | None = None, ended: Key | None = None) -> bytes:
    """A line as it is appended."""
    return msgspec.json.encode(Line(granted=granted, ended=ended)) + b"\n"


class Journal:
    """The file. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._lock: int | None = None
        self._size = 0

    def lock(self) -> bool:
        """Take the file for this process, for good; False while another process has it.

        Raises:
            TemporaryError: the lock file cannot be made.
        """
        if self._lock is not None:
            return True
        place = self._path.with_suffix(".lock")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=files.FOLDER_MODE)
            opened = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, files.MODE)
        except OSError as problem:
            raise files.unwritable(place, problem) from None
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(opened)
            return False
        self._lock = opened
        return True

    def read(self) -> tuple[dict[Key, Entry], dict[str, Owner]]:
        """What was written: the registrations that were not taken back, and the owners of providers' names."""
        try:
            lines = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return {}, {}
        except OSError as problem:
            log.warning("%s cannot be read: %s; providers must register again", self._path, problem.strerror)
            return {}, {}
        with suppress(*UNREADABLE, IndexError):
            if _decoder.decode(lines[0]).version == VERSION:
                return self._replayed(lines[1:])
        try:
            aside = files.put_aside(self._path, "unknown")
            log.warning(
                "%s is of no version that is known: it is kept as %s; providers must register again", self._path, aside
            )
        except NetdraError as problem:
            log.warning("%s", problem)
        return {}, {}

    def _replayed(self, lines: list[bytes]) -> tuple[dict[Key, Entry], dict[str, Owner]]:
        entries: dict[Key, Entry] = {}
        owners: dict[str, Owner] = {}
        damaged = 0
        for number, text in enumerate(lines):
            if not text:
                continue
            try:
                entry = _decoder.decode(text)
            except UNREADABLE:
                damaged += number < len(lines) - 1
                continue
            if entry.granted is not None:
                entries[entry.granted.key] = entry.granted
                granted = entry.granted
                owners[granted.registration.provider] = Owner(granted.owner, granted.ends + OWNED_SECONDS)
            elif entry.ended is not None:
                entries.pop(entry.ended, None)
            elif entry.owner is not None:
                owners[entry.provider] = entry.owner
        if damaged:
            log.warning("%s: %d lines are damaged and passed over", self._path, damaged)
        return entries, owners

    def write(self, entries: Iterable[Entry], owners: Mapping[str, Owner]) -> None:
        """Write the file anew.

        Raises:
            TemporaryError: the file system does not take it; the old file stays.
        """
        records = [Line(version=VERSION)]
        records += [Line(provider=name, owner=owner) for name, owner in owners.items()]
        records += [Line(granted=entry) for entry in entries]
        text = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
        self.close()
        files.replace(self._path, text, _TIMEOUT)
        self._open()

    @property
    def is_long(self) -> bool:
        """Whether it is to be written anew."""
        return self._file is None or self._size > MOST_BYTES

    def append(self, text: bytes) -> None:
        """Add lines; they are on the disk when this returns.

        Raises:
            TemporaryError: the file system does not take them; the file is as it was, or is written anew next.
        """
        try:
            if self._file is None:
                self._open()
            assert self._file is not None
            files.append(self._file, text)
            os.fdatasync(self._file)
            self._size += len(text)
        except OSError as problem:
            if self._file is not None:
                with suppress(OSError):
                    os.ftruncate(self._file, self._size)
            raise files.unwritable(self._path, problem) from None

    def close(self) -> None:
        """Close the file; the lock stays."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def release(self) -> None:
        """Close the file and let others have it."""
        self.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _open(self) -> None:
        try:
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as problem:
            raise files.unwritable(self._path, problem) from None
        self._size = os.fstat(self._file).st_size
