"""Whether sockets are still at their paths: a program that cleans a folder up must not cut the node off for good.

Used by `plugin` for the kubelet's sockets and by `netdra.node.registry.service`. A socket without its path serves the
connections that it has, and no client can connect any more.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from netdra.kernel.errors import KernelError
from netdra.kernel.inotify import FolderChanges

log = logging.getLogger(__name__)

WATCHED_SECONDS = 60.0
"""Seconds between two looks without an event, as a check."""
UNWATCHED_SECONDS = 2.0
"""The same where the kernel has no watch for this process."""

Identity = tuple[int, int] | None
"""A file's device and inode, None for no file."""


def identity(path: Path) -> Identity:
    """Which file is at a path now."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def remove_own(path: Path, made: Identity) -> None:
    """Remove a file unless another process has put its own in its place, or the file system does not take it."""
    if identity(path) == made:
        with suppress(OSError):
            path.unlink(missing_ok=True)


async def wait_gone(made: Mapping[Path, Identity]) -> Path:
    """Wait until one of these files is not at its path any more, and return the path."""
    changed = asyncio.Event()
    with ExitStack() as closing:
        is_watched = _watch(made, changed, closing)
        while True:
            changed.clear()
            for path, file in made.items():
                if file is None or identity(path) != file:
                    return path
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCHED_SECONDS if is_watched else UNWATCHED_SECONDS):
                    await changed.wait()


def _watch(made: Mapping[Path, Identity], changed: asyncio.Event, closing: ExitStack) -> bool:
    """Have an event set when something in the files' folders changes; returns whether the kernel watches them all."""

    def notice() -> None:
        changes.take()
        changed.set()

    try:
        changes = closing.enter_context(FolderChanges())
    except KernelError as problem:
        log.warning("%s: sockets are checked every %d s instead", problem, UNWATCHED_SECONDS)
        return False
    loop = asyncio.get_running_loop()
    loop.add_reader(changes, notice)
    closing.callback(loop.remove_reader, changes)
    with ExitStack() as opened:
        folders = []
        for folder in {path.parent for path in made}:
            with suppress(OSError):  # its absence is noticed when the sockets are checked
                folders.append(os.open(folder, os.O_PATH | os.O_CLOEXEC))
                opened.callback(os.close, folders[-1])
        return changes.watch(folders)
