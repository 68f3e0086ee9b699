"""The boot of this machine: its id, and the time since. A step of the wall clock changes neither."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

from netdra.ops import files

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def boot_id() -> str:
    """The id of this boot, which no other boot of the machine has.

    Raises:
        TemporaryError: it cannot be read.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError as problem:
        raise files.unreadable(_BOOT_ID, problem) from None


def since_boot() -> float:
    """Seconds since the boot of `boot_id`, with those of a suspension: a leader that slept has lost its lease."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
