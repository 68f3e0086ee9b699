"""How slow the machine is at the moment, measured in units of work, and time limits that are stretched by it.

Used by tests that assert how long something takes at most: the limit is about netdra, and other work on the machine
must neither break it nor be a reason to drop it. `python -m testbed.pace` prints the present time of a unit.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

REFERENCE_MS = 3.0
"""What a unit takes on an idle core of the machine on which the limits were set.

The least of 18,000, found as `python -m testbed.pace` does: other work only adds to what a unit takes.
"""
MOST = 30.0
"""No limit is stretched further; two cores with thirty processes that want them are about as slow."""
_GLANCE_SECONDS = 0.15
_CALIBRATION_SECONDS = 10.0

# A process of its own: in ours, the interpreter's lock would make the measured work part of the measure. A unit is some
# arithmetic and a process that begins and ends; the pauses keep the probe itself below a tenth of a core. It ends with
# its input, so also with us, and does one unit more: even the shortest block is between two of them.
_PROBE = """
import os, select, sys, time

def unit():
    begun = time.monotonic()
    sum(number * number for number in range(50_000))
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return begun, time.monotonic()

units = [unit()]
print(flush=True)
while not select.select([sys.stdin], [], [], 0.04)[0]:
    units.append(unit())
units.append(unit())
print(*(f"{begun} {ended}" for begun, ended in units), sep="\\n")
"""


@dataclass
class Pace:
    """The measurements of a block; complete when it has ended.

    Attributes:
        units: when each unit of work began and ended, in seconds; one before the block, one after it.
        seconds: how long the block took.
    """

    units: Sequence[tuple[float, float]] = ()
    seconds: float = 0.0

    @property
    def milliseconds(self) -> list[float]:
        """How long each unit took."""
        return [(ended - begun) * 1000 for begun, ended in self.units]

    @property
    def slowness(self) -> float:
        """How many times as long as on the idle reference machine work takes; between 1 and `MOST`.

        Each unit covers the time since the one before. So a machine that works at half its pace and one that stands
        still for half of the time are both twice as slow.
        """
        if not self.units:
            return 1.0
        passed = worked = 0.0
        last = self.units[0][0]
        for (_, ended), taken in zip(self.units, self.milliseconds, strict=True):
            passed += ended - last
            worked += (ended - last) * min(1.0, REFERENCE_MS / taken)
            last = ended
        return min(passed / worked, MOST)

    def __str__(self) -> str:
        if not self.units:
            return "nothing was measured"
        taken = self.milliseconds
        return (
            f"a unit of work took {statistics.median(taken):.1f} ms, at least {min(taken):.1f} and at most "
            f"{max(taken):.1f}, and takes {REFERENCE_MS:g} ms on an idle machine"
        )


@contextmanager
def measured() -> Iterator[Pace]:
    """Measure a block's time, and the machine's slowness during it; both are known when the block has ended.

    It may be a part of a coroutine: only before and after the block it holds the event loop, for some milliseconds.
    """
    command = (sys.executable, "-I", "-S", "-c", _PROBE)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as probe:
        assert probe.stdin is not None
        assert probe.stdout is not None
        probe.stdout.readline()
        pace, begun = Pace(), time.monotonic()
        try:
            yield pace
        finally:
            pace.seconds = time.monotonic() - begun
            probe.stdin.close()
            told = probe.stdout.read()
            # A killed one has reported nothing, or not all.
            if probe.wait() == 0:
                pace.units = [(float(begun), float(ended)) for begun, ended in map(str.split, told.splitlines())]


@contextmanager
def within(seconds: float, what: str, *, after: float = 0.0) -> Iterator[Pace]:
    """Assert that a block takes no longer than that many seconds, stretched by how slow the machine is meanwhile.

    Args:
        seconds: the limit on an idle machine.
        what: what takes the time, in the error.
        after: seconds that pass before on any machine, such as a timeout that must expire.

    Raises:
        AssertionError: it took longer; the text has the limit, the stretch and its measurements.
    """
    with measured() as pace:
        yield pace
    limit = after + seconds * pace.slowness
    first = f"{after:g} s and " if after else ""
    assert pace.seconds <= limit, (
        f"{what} took {pace.seconds:.2f} s; the limit is {first}{seconds:g} s, stretched {pace.slowness:.2f} times, "
        f"{limit:.2f} s: {pace}"
    )


def stretched(seconds: float) -> float:
    """A timeout that a test sets for netdra: ample on an idle machine, stretched by how slow this one is now."""
    with measured() as pace:
        time.sleep(_GLANCE_SECONDS)
    return seconds * pace.slowness


if __name__ == "__main__":
    with measured() as calibration:
        time.sleep(_CALIBRATION_SECONDS)
    print(f"{len(calibration.units)} units, {calibration.slowness:.2f} times as slow: {calibration}")
