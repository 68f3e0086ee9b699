"""Unpacks archives that the tests made themselves: one call for all versions of Python."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path


def unpack(archive: tarfile.TarFile, target: Path, members: Iterable[tarfile.TarInfo] | None = None) -> None:
    """Extract an archive's members, by default all, as tar does.

    Python before 3.11.4, such as that of Debian 12, has no filters and trusts every member.
    """
    if hasattr(tarfile, "tar_filter"):
        archive.extractall(target, members, filter="tar")
    else:
        archive.extractall(target, members)
