"""Files that are read again only when they have changed: what is asked for at each claim and each pod, for all of them.

Used by `checkpoint` and by the node's claims. What another process has written counts at once: a file counts as
unchanged only as long as it is the same one, of the same size, and last written at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

_State = tuple[int, int, int]


class Recollection(Generic[T]):
    """What files of one kind say, decoded. Any thread may ask."""

    def __init__(self, decode: Callable[[bytes, Path], T]) -> None:
        """Begin with nothing.

        Args:
            decode: content and path -> what it says, which nobody changes.
        """
        self._decode = decode
        self._known: dict[str, tuple[_State, T]] = {}

    def of(self, path: Path) -> T:
        """What a file says now.

        Raises:
            OSError: it is not there, or cannot be read. What decoding raises comes through.
        """
        name = str(path)
        known = self._known.get(name)
        if known is not None and known[0] == _state(os.stat(name)):  # noqa: PTH116 (asked for each file, each time)
            return known[1]
        with path.open("rb") as opened:
            # Looked at before it is read: what is appended in between is found the next time.
            state = _state(os.fstat(opened.fileno()))
            found = self._decode(opened.read(), path)
        self._known[name] = state, found
        return found

    def keep(self, folder: Path, names: Iterable[str]) -> None:
        """Forget the files of a folder but for these."""
        kept = {f"{folder}/{name}" for name in names}
        for name in [name for name in list(self._known) if name.rpartition("/")[0] == str(folder) and name not in kept]:
            self._known.pop(name, None)


def _state(found: os.stat_result) -> _State:
    return found.st_ino, found.st_size, found.st_mtime_ns
