"""Names that are removed from folders, as the kernel tells of them (inotify(7)).

What something is mounted on can be watched by its folder alone: taking the mount away is no event, removing the file
under it is one. Used by `netdra.node.pods.namespaces`, which hangs the descriptor on its event loop.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Self

from netdra.kernel import libc

# include/uapi/linux/inotify.h
_MOVED_FROM, _DELETE, _Q_OVERFLOW, _IGNORED, _ONLYDIR = 0x40, 0x200, 0x4000, 0x8000, 0x1000000
_HEADER = struct.Struct("iIII")
_READ = 64 * 1024


class Removals:
    """Folders whose removals are told. `watch` may be called from any thread."""

    def __init__(self) -> None:
        """Open it.

        Raises:
            KernelError: this user has too many already (fs.inotify.max_user_instances).
        """
        self._fd = libc.inotify()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """The descriptor that is readable when there is something to read."""
        return self._fd

    def watch(self, folder: str) -> None:
        """Tell of this folder too; done already is no error.

        Raises:
            KernelError: there is no such folder, or too many are watched.
        """
        libc.inotify_watch(self._fd, folder, _MOVED_FROM | _DELETE | _ONLYDIR)

    def read(self) -> tuple[str, ...] | None:
        """The names that were removed since the last call, of whichever folder; None if some may have gone untold.

        That is so when the kernel's queue ran over, and when a folder was removed itself.
        """
        found: list[str] = []
        complete = True
        with suppress(BlockingIOError):
            while data := os.read(self._fd, _READ):
                for mask, name in _events(data):
                    complete = complete and not mask & (_Q_OVERFLOW | _IGNORED)
                    found.append(name)
        return tuple(found) if complete else None

    def close(self) -> None:
        """Watch nothing any more; closing twice is no error."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _events(data: bytes) -> Iterator[tuple[int, str]]:
    """Mask and name of each event."""
    place = 0
    while place < len(data):
        _, mask, _, length = _HEADER.unpack_from(data, place)
        place += _HEADER.size
        yield mask, os.fsdecode(data[place : place + length].rstrip(b"\0"))
        place += length
