"""How many file descriptors a process has and may have: a process without a free one can neither look nor act.

Called by the node daemon at its start and for /readyz, and by `netdra doctor` for the daemon of a node. Prometheus'
names for the two numbers are process_open_fds and process_max_fds.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import resource
from pathlib import Path

import msgspec

log = logging.getLogger(__name__)

RESERVE = 256
"""Descriptors that must be free: ten threads that act on pods have up to sixteen each, a plugin's pipes included, and
connections of the kubelet, the runtime, the API server and the registry come to that."""
MOST = 1 << 20
"""No higher limit is set, as by the kernel's default (fs.nr_open): some plugins close all that they could have open."""
_LIMIT = re.compile(r"^Max open files\s+(\d+|unlimited)", re.MULTILINE)


class Descriptors(msgspec.Struct, frozen=True):
    """The descriptors of a process: how many are open, and how many may be."""

    used: int
    limit: int

    @property
    def is_short(self) -> bool:
        """Whether fewer than RESERVE are free."""
        return self.limit - self.used < RESERVE

    def __str__(self) -> str:
        short = f", fewer than {RESERVE} free: raise the limit of open files (LimitNOFILE of the container runtime)"
        return f"{self.used} of {self.limit} in use{short if self.is_short else ''}"


def read(process: Path = Path("/proc/self")) -> Descriptors | None:
    """The descriptors of a process by its folder in /proc; None if they cannot be read.

    If this process has none free to read them by, all of its own are in use.
    """
    try:
        limit = _LIMIT.search((process / "limits").read_text())
        used = len(os.listdir(process / "fd"))  # noqa: PTH208 (their number alone)
    except OSError as problem:
        if problem.errno != errno.EMFILE:
            return None
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return Descriptors(soft, soft)
    if limit is None:
        return None
    return Descriptors(used, MOST if limit[1] == "unlimited" else int(limit[1]))


def raise_limit() -> None:
    """Let this process have as many descriptors as its hard limit allows; programs that it starts may, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as problem:
        log.warning("the limit of open files stays %d: %s", soft, problem)
