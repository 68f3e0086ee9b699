"""The file by which registrations outlive a restart of the driver and of the node: one grant a line.

Used by `netdra.node.registry.table`, in a thread of its own: an append is on the disk when it returns. The first line
has the version, and how the clocks were. A last line that a crash cut off and a damaged line are skipped. A file of
another version is renamed. None of this keeps the driver from starting.

Leases are counted in seconds since boot, which no step of the wall clock changes. In the file they end by the wall
clock as it was when the process began to write: the first line has the boot's id and the seconds between the two
clocks, so within the boot nothing is lost, and after another one only the wall clock is left.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from netdra.model.errors import UNREADABLE, NetdraError
from netdra.model.registration import Registration
from netdra.ops import files
from netdra.ops.boot import boot_id, since_boot

log = logging.getLogger(__name__)

VERSION = 1
MOST_BYTES = 16 * 1024 * 1024
"""From this size on the file is written anew, with the registrations that hold alone."""
_TIMEOUT = 5.0

Key = tuple[str, str]
"""A provider and a device."""


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """A registration with its lease.

    Attributes:
        registration: what the provider states.
        owner: the caller that registered it.
        ttl: the lease's seconds.
        ends: when the lease ends, in seconds since boot.
    """

    registration: Registration
    owner: str
    ttl: float
    ends: float

    @property
    def key(self) -> Key:
        """The registration's key: a provider has one registration for a device."""
        return self.registration.provider, self.registration.device

    @property
    def size(self) -> int:
        """Bytes of the registration as JSON."""
        return len(msgspec.json.encode(self.registration))


class ProviderOwner(msgspec.Struct, frozen=True):
    """The owner of a provider's name, and until when in seconds since boot, if nothing is registered under it."""

    name: str
    until: float


class JournalLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line: the version, a registration that was granted, one that was taken back, or a name's owner.

    Attributes:
        boot_id: beside the version, the boot in which the file was written.
        wall: beside the version, what the wall clock was ahead of the seconds since that boot.
    """

    version: int | None = None
    boot_id: str = ""
    wall: float = 0.0
    granted: Grant | None = None
    ended: Key | None = None
    provider: str = ""
    owner: ProviderOwner | None = None

    def later(self, seconds: float) -> JournalLine:
        """The line with all of its times so much later."""
        granted, owner = self.granted, self.owner
        if granted is not None:
            granted = msgspec.structs.replace(granted, ends=granted.ends + seconds)
        if owner is not None:
            owner = msgspec.structs.replace(owner, until=owner.until + seconds)
        return msgspec.structs.replace(self, granted=granted, owner=owner)


_decoder = msgspec.json.Decoder(JournalLine)


def _encoded(lines: Iterable[JournalLine]) -> bytes:
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


class RegistrationJournal:
    """The file. For one thread at a time."""

    def __init__(
        self, path: Path, clock: Callable[[], float] = since_boot, wall: Callable[[], float] = time.time
    ) -> None:
        self._path = path
        self._ahead = float(round(wall() - clock()))
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
            files.make_folder(self._path.parent)
            opened = files.open_lockable(place, os.O_RDWR | os.O_CREAT)
        except OSError as problem:
            raise files.unwritable(place, problem) from None
        if files.lock(opened, deadline=0.0):
            self._lock = opened
            return True
        os.close(opened)
        return False

    def read(self) -> list[JournalLine]:
        """The lines that can be read, in order, by this boot's clock; none without a file of this version."""
        try:
            first, *texts = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as problem:
            log.warning("%s cannot be read: %s; providers must register again", self._path, problem.strerror)
            return []
        with suppress(*UNREADABLE):
            header = _decoder.decode(first)
            if header.version == VERSION:
                ahead = header.wall if header.boot_id == boot_id() else self._ahead
                return [line.later(-ahead) for line in self._decoded(texts)]
        try:
            aside = files.put_aside(self._path, "unknown")
            log.warning(
                "%s is of no version that is known: it is kept as %s; providers must register again", self._path, aside
            )
        except NetdraError as problem:
            log.warning("%s", problem)
        return []

    def _decoded(self, texts: list[bytes]) -> list[JournalLine]:
        lines, damaged = [], 0
        for number, text in enumerate(texts, 1):
            try:
                if text:
                    lines.append(_decoder.decode(text))
            except UNREADABLE:
                damaged += number < len(texts)  # a crash cuts off the last one
        if damaged:
            log.warning("%s: %d lines are damaged and passed over", self._path, damaged)
        return lines

    def write(self, grants: Iterable[Grant], owners: Mapping[str, ProviderOwner]) -> None:
        """Write the file again.

        Raises:
            TemporaryError: the file system does not take it; the old file stays.
        """
        header = JournalLine(version=VERSION, boot_id=boot_id(), wall=self._ahead)
        lines = [JournalLine(provider=name, owner=owner) for name, owner in owners.items()]
        lines += [JournalLine(granted=grant) for grant in grants]
        self.close()
        files.replace(self._path, _encoded([header]) + self._encoded(lines), _TIMEOUT)
        try:
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError as problem:
            raise files.unwritable(self._path, problem) from None
        self._size = os.fstat(self._file).st_size

    @property
    def is_long(self) -> bool:
        """Whether it is to be written again."""
        return self._file is None or self._size > MOST_BYTES

    def append(self, lines: Iterable[JournalLine]) -> None:
        """Add lines; they are on the disk when this returns.

        Raises:
            TemporaryError: the file system does not take them; the file is as it was, or is written again next.
        """
        assert self._file is not None  # otherwise the file is written again
        text = self._encoded(lines)
        try:
            files.append(self._file, text)
            os.fdatasync(self._file)
            self._size += len(text)
        except OSError as problem:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise files.unwritable(self._path, problem) from None

    def _encoded(self, lines: Iterable[JournalLine]) -> bytes:
        return _encoded(line.later(self._ahead) for line in lines)

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
