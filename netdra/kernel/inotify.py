"""Notice when a folder's entries come, go or are written again, which costs nothing until then: inotify(7).

`netdra.node.publishing.plugins` learns from it that a CNI plugin was installed or removed. A node has only so many
instances and watches (fs.inotify.max_user_instances), and other programs may have used them up. A caller that gets none
looks from time to time instead.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Self

from netdra.kernel.errors import kernel_error

# include/uapi/linux/inotify.h
_IN_ATTRIB, _IN_CLOSE_WRITE = 0x4, 0x8
_IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x40, 0x80, 0x100, 0x200
_IN_DELETE_SELF, _IN_MOVE_SELF = 0x400, 0x800
_IN_ONLYDIR = 0x01000000
_CHANGES = (
    _IN_ATTRIB
    | _IN_CLOSE_WRITE
    | _IN_MOVED_FROM
    | _IN_MOVED_TO
    | _IN_CREATE
    | _IN_DELETE
    | _IN_DELETE_SELF
    | _IN_MOVE_SELF
    | _IN_ONLYDIR
)
_READ = 64 * 1024

_libc = ctypes.CDLL(None, use_errno=True)


class FolderChanges:
    """A descriptor that is readable after something in one of the watched folders has changed."""

    def __init__(self) -> None:
        """Open it; nothing is watched yet.

        Raises:
            KernelError: this user, or this process, can open no more.
        """
        self._descriptor = int(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        if self._descriptor < 0:
            raise kernel_error(ctypes.get_errno(), "cannot watch folders (inotify)")
        self._watches: frozenset[int] = frozenset()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def fileno(self) -> int:
        """The descriptor that an event loop waits for to be readable."""
        return self._descriptor

    def watch(self, folders: Iterable[int]) -> bool:
        """Watch these folders, by open descriptors (O_PATH is enough), and no others.

        Returns:
            Whether all of them are watched; the kernel may have no more watches.
        """
        # A folder that is watched already keeps its watch, and none of its changes is lost.
        watches = [
            _libc.inotify_add_watch(self._descriptor, os.fsencode(f"/proc/self/fd/{folder}"), _CHANGES)
            for folder in folders
        ]
        wanted = frozenset(watch for watch in watches if watch >= 0)
        for watch in self._watches - wanted:
            _libc.inotify_rm_watch(self._descriptor, watch)
        self._watches = wanted
        return len(wanted) > 0 and min(watches) >= 0

    def take(self) -> None:
        """Read all that is there and forget it: it only reports that something changed."""
        with suppress(BlockingIOError):
            while os.read(self._descriptor, _READ):
                pass
