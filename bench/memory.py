"""The memory of a process and its children, in MiB: as a container's limit counts it, and as `ps` and `top` list it.

Used by `bench.scale`. A container is charged for each page once. The workers of the webhook are the same program as the
webhook, so most of the code of libraries that is in the memory of one is in the memory of the others, too: the sum of
their resident sizes counts these pages three times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

MIB = 1024
"""KiB, in which proc(5) counts."""

File = tuple[str, str, str]
"""A part of a file that is mapped: where it begins, the file's device and number."""


def charged(pids: list[int]) -> float:
    """The memory that a container of these processes is charged for, without the cache of files that none has mapped.

    Of a part of a file that several have mapped, the pages of the process with the most count: all have read about the
    same ones.
    """
    own, mapped = 0, Counter[File]()
    for pid in pids:
        for file, resident, anonymous in _mappings(Path(f"/proc/{pid}/smaps").read_text()):
            own += anonymous
            mapped[file] = max(mapped[file], resident - anonymous)
    return (own + mapped.total()) / MIB


def resident(pids: list[int]) -> float:
    """The sum of the resident sizes, in which shared pages count for each process."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids) * 4 / MIB


def _mappings(smaps: str) -> Iterator[tuple[File, int, int]]:
    """The mappings of a text of proc(5), smaps: the file, and the KiB that are resident and that are anonymous."""
    file, sizes = ("", "", ""), dict[str, int]()
    for line in smaps.splitlines():
        first, *rest = line.split(maxsplit=5)
        if not first.endswith(":"):
            file = (rest[1], rest[2], rest[3])
        elif first in {"Rss:", "Anonymous:"}:
            sizes[first] = int(rest[0])
            if first == "Anonymous:":
                yield file, sizes["Rss:"], sizes["Anonymous:"]
