"""How slow the machine is at the moment, measured in units of work, and time limits that are stretched by it.

Used by tests that assert how long something takes at most: the limit is about netdra, and other work on the machine
must neither break it nor be a reason to drop it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

REFERENCE_MS = 4.0
"""What a unit takes on an idle core of the machine on which the limits were set."""
MOST = 10.0
"""A machine that is slower than that is none to measure on."""

# A process of its own: in ours the interpreter's lock would make what is measured part of the measure. A unit is some
# arithmetic and a process that begins and ends; the pauses keep the probe itself below a tenth of a core.
_PROBE = """
import os, sys, time
while True:
    begun = time.perf_counter()
    sum(number * number for number in range(50_000))
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    print((time.perf_counter() - begun) * 1000, flush=True)
    time.sleep(0.04)
"""


@dataclass
class Pace:
    """What was measured while a block ran.

    Attributes:
        units: how long each unit of work took, in milliseconds.
        seconds: how long the block took.
    """

    units: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def slowness(self) -> float:
        """How many times as long as on the idle reference machine work takes; between 1 and `MOST`."""
        return min(max(statistics.median(self.units) / REFERENCE_MS, 1.0), MOST) if self.units else 1.0

    def __str__(self) -> str:
        taken = statistics.median(self.units) if self.units else REFERENCE_MS
        return f"a unit of work took {taken:.1f} ms, {REFERENCE_MS:g} ms on an idle machine"


@contextmanager
def measured() -> Iterator[Pace]:
    """Measure a block's time, and the machine's slowness during it; both are known when the block has ended."""
    pace = Pace()
    command = (sys.executable, "-I", "-S", "-c", _PROBE)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as probe:
        assert probe.stdout is not None
        try:
            pace.units.append(float(probe.stdout.readline()))
            begun = time.monotonic()
            yield pace
        finally:
            pace.seconds = time.monotonic() - begun
            probe.kill()
            # The last line may be cut.
            pace.units += [float(line) for line in probe.stdout.read().splitlines(keepends=True) if line.endswith("\n")]


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Assert that a block takes no longer than that many seconds, stretched by how slow the machine is meanwhile.

    Raises:
        AssertionError: it took longer; the text has the limit, the stretch and what it was measured by.
    """
    with measured() as pace:
        yield
    limit = seconds * pace.slowness
    assert pace.seconds <= limit, (
        f"{what} took {pace.seconds:.2f} s; the limit is {seconds:g} s, stretched to {limit:.2f} s: {pace}"
    )
