"""A process that is stopping is not ready first, finishes what has begun, then ends; a second signal ends at once.

Each is a Python process of its own, as signals are.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
WITHIN = 60.0

PROGRAM = """
import asyncio, sys
from netdra.model.errors import TemporaryError
from netdra.ops.process import Bounds, Process

def say(text):
    print(text, flush=True)

async def main():
    process = Process("test")

    async def hook():
        with process.in_hand():
            say("begun")
            while not process.stopping:
                await asyncio.sleep(0.01)
            say(f"ready: {process.health.readiness().trouble}")
            await asyncio.sleep(LASTS)
            say("finished")

    async def work():
        hooks = asyncio.create_task(hook())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            say("cancelled")
            if STUBBORN:
                await asyncio.sleep(3600)
            raise

    try:
        await process.run(work, Bounds(drain=0.0, finish=FINISH))
    except TemporaryError as problem:
        say(problem)
        raise SystemExit(4)

asyncio.run(main())
say("ended")
"""


def start(lasts: float = 0.2, finish: float = 30.0, *, stubborn: bool = False) -> subprocess.Popen[str]:
    """The program, when its work has begun."""
    code = PROGRAM.replace("LASTS", str(lasts)).replace("FINISH", str(finish)).replace("STUBBORN", str(stubborn))
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_work_in_progress_finishes_before_cancellation_at_shutdown(number: signal.Signals) -> None:
    process = start()
    process.send_signal(number)
    said, _ = process.communicate(timeout=WITHIN)
    assert said.splitlines() == ["ready: stopping: stopping", "finished", "cancelled", "ended"]
    assert process.returncode == 0


def test_work_that_takes_too_long_is_cancelled_at_shutdown() -> None:
    process = start(lasts=3600, finish=0.2)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=WITHIN)
    assert said.splitlines() == ["ready: stopping: stopping", "cancelled", "ended"]
    assert process.returncode == 0


def test_work_that_does_not_end_is_broken_off_with_an_error() -> None:
    process = start(finish=0.2, lasts=0.0, stubborn=True)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=WITHIN)
    assert "netdra test did not end within 0.2 s and was broken off" in said
    assert process.returncode == 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(number: signal.Signals) -> None:
    process = start(lasts=3600, finish=3600)
    assert process.stdout is not None
    process.send_signal(number)
    assert process.stdout.readline() == "ready: stopping: stopping\n"
    process.send_signal(number)
    said, _ = process.communicate(timeout=WITHIN)
    assert said == ""
    assert process.returncode == -number


def test_the_garbage_collector_skips_loaded_objects() -> None:
    code = (
        "import gc, asyncio; from netdra.ops.process import spare_what_is_loaded; "
        "spare_what_is_loaded(); print(len(gc.get_objects()) < 100 < gc.get_freeze_count())"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout == "True\n"


def test_code_that_only_the_start_ran_is_not_in_memory_and_runs_again_when_it_is_called() -> None:
    code = """
        import re
        from pathlib import Path
        from netdra.cel import compile_selector
        from netdra.ops.process import spare_what_is_loaded

        def files() -> int:
            return int(re.search(r"RssFile:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

        compile_selector("device.driver == 'a'")
        before = files()
        spare_what_is_loaded()
        after = files()
        compile_selector("device.driver == 'b' && 'c'.matches('[a-z]+')")
        print(after < before / 2, files() > after)
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("True True\n", "")
