"""Notice when a folder's entries come, go or are written again, which costs nothing until then: inotify(7).

`netdra.node.publishing.plugins` learns from it that a CNI plugin was installed or removed. A node has only so many
instances and watches (fs.inotify.max_user_instances), and other programs may have used them up. A caller that gets none
looks from time to time instead.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from netdra.kernel.closing import Closing
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
_IN_MODIFY, _IN_Q_OVERFLOW, _IN_IGNORED = 0x2, 0x4000, 0x8000
_OF_FOLDER = _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_Q_OVERFLOW | _IN_IGNORED
_EVENT = struct.Struct("=iIII")  # watch, mask, cookie, length of the name
_READ = 64 * 1024

_libc = ctypes.CDLL(None, use_errno=True)


class FolderChanges(Closing):
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

    def fileno(self) -> int:
        """The descriptor that an event loop waits for to be readable."""
        return self._descriptor

    def close(self) -> None:
        """Watch nothing any longer."""
        os.close(self._descriptor)

    def watch(self, folders: Iterable[int], *, written: bool = False) -> bool:
        """Watch these folders, by open descriptors (O_PATH is enough), and no others.

        Args:
            written: each write to a file counts, and not only when the file is closed.

        Returns:
            Whether all of them are watched; the kernel may have no more watches.
        """
        # A folder that is watched already keeps its watch, and none of its changes is lost.
        mask = _CHANGES | (_IN_MODIFY if written else 0)
        watches = [
            _libc.inotify_add_watch(self._descriptor, os.fsencode(f"/proc/self/fd/{folder}"), mask)
            for folder in folders
        ]
        wanted = frozenset(watch for watch in watches if watch >= 0)
        for watch in self._watches - wanted:
            _libc.inotify_rm_watch(self._descriptor, watch)
        self._watches = wanted
        return len(wanted) > 0 and min(watches) >= 0

    def take(self) -> frozenset[str] | None:
        """Read all that is there.

        Returns:
            The names of the entries that changed, in any of the folders; None if a folder itself did, if the kernel
            had no more room for its reports, or if it refuses to hand them out.
        """
        names: set[str] = set()
        is_whole = True
        try:
            while text := os.read(self._descriptor, _READ):
                at = 0
                while at < len(text):
                    _, mask, _, length = _EVENT.unpack_from(text, at)
                    at += _EVENT.size + length
                    name = text[at - length : at].rstrip(b"\0")
                    is_whole = is_whole and bool(name) and not mask & _OF_FOLDER
                    names.add(os.fsdecode(name))
        except BlockingIOError:
            pass  # that was all
        except OSError:  # a kernel without memory
            is_whole = False
        return frozenset(names) if is_whole else None


def changes_of(folder: Path) -> FolderChanges:
    """The changes of a folder's files from now on, each write included.

    Raises:
        KernelError: the kernel does not report any more changes to this user.
        OSError: the folder cannot be opened.
    """
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        changes = FolderChanges()
        if not changes.watch([opened], written=True):
            changes.close()
            raise kernel_error(ctypes.get_errno(), f"cannot watch {folder} (inotify)")
        return changes
    finally:
        os.close(opened)
