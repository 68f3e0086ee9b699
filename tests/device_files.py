"""Device files for tests, made by mknod in a folder below /dev. Used by tests of the kernel and of real pods."""

from __future__ import annotations

import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCAL = (240, 7)
"""Of the numbers that are for local use: no driver has them."""


@contextmanager
def new_folder() -> Iterator[Path]:
    """A folder for device files, which goes with all that is in it."""
    folder = Path(f"/dev/netdra-test-{uuid.uuid4().hex[:8]}")
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def make(path: Path, number: tuple[int, int] = LOCAL, kind: int = stat.S_IFCHR) -> Path:
    """Make a device file."""
    os.mknod(path, kind | 0o666, os.makedev(*number))
    return path
