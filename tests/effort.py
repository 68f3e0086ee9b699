"""The work of a function, as far as no other program on the machine changes it: calls, and CPU time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def calls(work: Callable[[], object]) -> int:
    """How many functions, of Python and of C, and steps of generators, a piece of work calls."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def cpu(work: Callable[[], object], times: int = 5) -> float:
    """The CPU seconds of a piece of work, at its quickest: for loops inside C, which make no calls."""
    seconds = []
    for _ in range(times):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)
