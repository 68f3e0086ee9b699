"""Whether a path of the node lies in one of some folders, wherever its links lead. Used by the node's permits.

Followed by hand in the root that plugins see, because what is below `/proc/1/root` has absolute links of its own, and
because the last parts of a path may not be there yet: a plugin makes its folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

MAX_LINKS = 40
"""As many as the kernel follows (include/linux/namei.h, MAXSYMLINKS)."""


def lies_in(path: str, folders: Iterable[str], root: str = "/") -> bool:
    """Whether an absolute path is one of the folders or below one, links of both followed; False where that is unclear.

    Args:
        path: as a plugin would be given it.
        folders: absolute paths.
        root: the root of the file system that plugins see.
    """
    real = resolved(path, root)
    if real is None:
        return False
    allowed = (resolved(folder, root) for folder in folders)
    return any(
        folder is not None and (real == folder or real.startswith(f"{folder.rstrip('/')}/")) for folder in allowed
    )


def resolved(path: str, root: str = "/") -> str | None:
    """The path without links and dots as a process with that root sees it; None if it has too many, or is relative."""
    if not path.startswith("/") or "\0" in path:
        return None
    parts, links, found = path.split("/")[::-1], 0, ""
    while parts:
        part = parts.pop()
        if part in ("", "."):
            continue
        if part == "..":
            found = found.rpartition("/")[0]
            continue
        target = _link(f"{root.rstrip('/')}{found}/{part}")
        if target is None:
            found = f"{found}/{part}"
            continue
        links += 1
        if links > MAX_LINKS:
            return None
        parts += target.split("/")[::-1]
        if target.startswith("/"):
            found = ""
    return found or "/"


def _link(path: str) -> str | None:
    """Where a symbolic link leads; None if there is none."""
    try:
        return str(Path(path).readlink())
    except OSError:
        return None
