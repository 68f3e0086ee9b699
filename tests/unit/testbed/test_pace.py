"""A limit is stretched by as much as the machine is slow while it is measured, and the measure leaves no process."""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed import pace
from testbed.pace import MOST, REFERENCE_MS, Pace, measured, stretched, within
from testbed.waiting import until

ROOT = Path(__file__).parents[3]
UNIT = REFERENCE_MS / 1000
BUSY = ("-c", "while True: pass")
MEASURES_FOR_EVER = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from testbed.pace import measured
with measured():
    print("begun", flush=True)
    time.sleep(3600)
"""


def paced(*units: float, pause: float = 0.04) -> Pace:
    """Units of work that took so many times as long as on the idle reference machine, with pauses between them."""
    now, found = 100.0, []
    for unit in units:
        found.append((now, now + unit * UNIT))
        now += unit * UNIT + pause
    return Pace(found)


@contextmanager
def load(processes: int) -> Iterator[None]:
    """As many processes that want a core each."""
    busy = [subprocess.Popen((sys.executable, *BUSY)) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()


def children(process: int | str = "self", thread: int | str = "") -> list[int]:
    """The processes that a thread has started and that have not been waited for, zombies too."""
    thread = thread or threading.get_native_id()
    return [int(child) for child in Path(f"/proc/{process}/task/{thread}/children").read_text().split()]


def slowness_of_a_second() -> float:
    with measured() as found:
        time.sleep(1.0)
    return found.slowness


def test_an_idle_machine_stretches_nothing() -> None:
    assert paced(1.0, 1.0, 1.0).slowness == pytest.approx(1.0)
    assert paced(0.5, 0.8, 0.5).slowness == 1.0
    assert paced(1.0, 1.1, 1.0, 1.3, 1.0, 1.1).slowness < 1.15


def test_half_pace_and_stalls_half_of_the_time_both_count_as_twice_as_slow() -> None:
    assert paced(*[2.0] * 20).slowness == pytest.approx(2.0)
    calm = [1.0] * 50
    stall = 50 * (0.04 + UNIT) / UNIT
    assert paced(*calm, stall, *calm).slowness == pytest.approx(1.5, abs=0.02)
    assert paced(*calm, stall).slowness == pytest.approx(2.0, abs=0.05)


def test_the_stretching_of_limits_is_capped() -> None:
    assert paced(*[1000.0] * 3).slowness == MOST


def test_the_busier_the_machine_the_slower_it_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "MOST", 10_000.0)
    with load(4 * len(os.sched_getaffinity(0))):
        loaded = slowness_of_a_second()
    assert loaded > 1.5
    # Others may work here, too, but not all the time as much.
    until(lambda: slowness_of_a_second() < loaded, "a calmer moment")


def test_an_exceeded_limit_is_reported_with_the_stretch_and_the_unit_of_work() -> None:
    with pytest.raises(AssertionError) as caught, within(0.01, "the kettle"):
        time.sleep(0.02 * MOST)
    number = r"\d+\.\d+"
    told = (
        rf"the kettle took {number} s; the limit is 0\.01 s, stretched {number} times, {number} s: a unit of "
        rf"work took {number} ms, at least {number} and at most {number}, and takes {REFERENCE_MS:g} ms on an idle "
        r"machine"
    )
    assert re.fullmatch(told, str(caught.value))


def test_a_time_out_that_must_run_out_before_is_not_stretched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "REFERENCE_MS", REFERENCE_MS * 1000)
    with within(0.1, "the kettle", after=10.0), within(10.0, "the kettle"):
        pass
    with (
        pytest.raises(AssertionError, match=r"limit is 0\.1 s and 0\.1 s, stretched 1\.00 times, 0\.20 s: "),
        within(0.1, "the kettle", after=0.1),
    ):
        time.sleep(0.3)
    assert stretched(3.0) == 3.0


def test_a_slow_machine_is_given_the_time_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "REFERENCE_MS", REFERENCE_MS / 100)
    with within(0.1, "the kettle") as found:
        time.sleep(0.5)
    assert found.seconds >= 0.5
    assert found.slowness >= 5.0
    assert stretched(3.0) >= 15.0


def test_the_shortest_block_is_between_two_units() -> None:
    with measured() as found:
        begun = time.monotonic()
        ended = time.monotonic()
    assert found.units[0][1] <= begun
    assert found.units[-1][0] >= ended
    assert found.seconds < found.units[-1][1] - found.units[0][0]
    assert found.slowness >= 1.0


def test_the_blocks_own_error_wins_and_no_process_is_left() -> None:
    before = children()
    with measured():
        assert len(children()) == len(before) + 1
    with pytest.raises(ValueError, match="spilt"), within(0.0, "the kettle"):
        raise ValueError("spilt")
    assert children() == before


def test_a_measure_that_was_killed_stretches_nothing() -> None:
    before = set(children())
    with measured() as found:
        for probe in set(children()) - before:
            os.kill(probe, signal.SIGKILL)
    assert (found.slowness, str(found)) == (1.0, "nothing was measured")


def test_the_probe_process_ends_with_its_measuring_process_even_if_killed() -> None:
    with subprocess.Popen((sys.executable, "-c", MEASURES_FOR_EVER), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        (probe,) = children(process.pid, process.pid)
        handle = os.pidfd_open(probe)
        process.kill()
    ended, _, _ = select.select([handle], [], [], 60)
    os.close(handle)
    assert ended


def test_other_coroutines_go_on_while_one_is_measured() -> None:
    async def story() -> Pace:
        steps = []

        async def other() -> None:
            while True:
                steps.append(1)
                await asyncio.sleep(0.01)

        task = asyncio.create_task(other())
        with measured() as found:
            await asyncio.sleep(0.2)
            assert len(steps) > 1
        task.cancel()
        return found

    found = asyncio.run(story())
    assert found.seconds >= 0.2
    assert len(found.units) >= 2
