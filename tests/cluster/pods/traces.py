"""The possible remains of a node on this machine: its processes, mounts, namespaces and cgroups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def traces(name: str) -> dict[str, list[str]]:
    """All that carries a node folder's name."""
    return {
        "processes": sorted(_processes(name)),
        "mounts": sorted(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if name in line),
        "cgroups": sorted(_cgroups(name)),
    }


def namespaces_of(pids: list[int]) -> set[str]:
    """The network and mount namespaces that processes are in (`net:[4026532008]`)."""
    return {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for pid in pids for kind in ("net", "mnt")}


def all_namespaces() -> set[str]:
    """The network and mount namespaces that any process of this machine is in."""
    found: set[str] = set()
    for pid in _pids():
        try:
            found |= namespaces_of([pid])
        except (FileNotFoundError, ProcessLookupError, PermissionError):  # ended, or the machine's own
            continue
    return found


def _cgroups(name: str) -> Iterator[str]:
    # Others of this machine come and go meanwhile, which os.walk passes over.
    for folder, inside, _ in os.walk("/sys/fs/cgroup"):
        yield from (f"{folder}/{each}" for each in inside if each.startswith(f"{name}-"))


def _processes(name: str) -> Iterator[str]:
    for pid in _pids():
        try:
            # A process of the node is in its cgroups, whatever its arguments are.
            mark = Path(f"/proc/{pid}/cgroup").read_text()
            if f"/{name}" in mark:
                yield f"{pid} {Path(f'/proc/{pid}/cmdline').read_text()}"
        except (FileNotFoundError, ProcessLookupError):
            continue


def _pids() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
