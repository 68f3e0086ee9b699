"""`python -m testbed.promises [WORD ...]`: break promises of the documentation, and see that their tests fail."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from testbed.promises import rows
from testbed.promises.rows import MutationError, Promise
from testbed.promises.trial import BITES, CANNOT_BE_RUN, Copy, TrialError, Verdict, attempt, prepare
from testbed.suite.levels import LEVELS
from testbed.suite.screen import Screen, clock

ROOT = Path()
COPIES = Path("build/promises")
_WIDTH = max(map(len, (BITES, CANNOT_BE_RUN, "does not bite")))
_INTERRUPTED = 130


def main() -> int:
    """Parse the arguments, try the rows, and return the exit code."""
    parser = argparse.ArgumentParser(prog="testbed.promises", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only rows that contain each word (default: all rows)")
    parser.add_argument("--changed", action="store_true", help="only rows that differ from the record")
    parser.add_argument("--level", choices=LEVELS, action="append", help="only rows with a test of this level")
    parser.add_argument("--list", action="store_true", help="print the rows, and run nothing")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="the form of the results")
    given = parser.parse_args()
    screen = Screen(sys.stderr if given.output == "json" else sys.stdout)
    try:
        wanted = [row for row in rows.chosen(rows.read(ROOT), given.words) if row.level in (given.level or LEVELS)]
        wanted = rows.unproven(wanted, ROOT) if given.changed else wanted
    except MutationError as error:
        screen.say(f"testbed: {error}")
        return 2
    if not wanted:
        screen.say("testbed: every row is as recorded" if given.changed else "testbed: no row contains these words")
        return 0 if given.changed else 2
    if given.list:
        print("\n".join(f"{row.level:8} {row.key}" for row in wanted))
        return 0
    return _tried(wanted, screen, as_json=given.output == "json")


def _tried(wanted: Sequence[Promise], screen: Screen, *, as_json: bool) -> int:
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.default_int_handler)
    COPIES.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=COPIES.absolute(), prefix="p"))
    found: list[tuple[Promise, Verdict, float]] = []
    try:
        prepare(wanted, folder, lambda seconds: screen.show([f"the levels are being prepared  {clock(seconds)}"]))
        copy = Copy(ROOT.absolute(), folder / "c")
        for number, row in enumerate(wanted, 1):
            found.append((row, *_timed(row, copy, screen, f"{number} of {len(wanted)}  {row.text}")))
    except TrialError as error:
        screen.say(f"testbed: {error}")
        return 1
    except KeyboardInterrupt:
        screen.say("testbed: interrupted; every program of the tests was ended")
        return _INTERRUPTED
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        print(json.dumps([_entry(*each) for each in found], indent=1))
    bites = sum(verdict.word == BITES for _, verdict, _ in found)
    screen.say(f"{bites} of {len(found)} tests noticed the mistake")
    return 0 if bites == len(found) else 1


def _timed(row: Promise, copy: Copy, screen: Screen, progress: str) -> tuple[Verdict, float]:
    """Try a row, report it, and record it if its test notices the mistake."""
    started = time.monotonic()

    def tick(_seconds: float) -> None:
        screen.show([f"{progress}  {clock(time.monotonic() - started)}"])

    verdict = attempt(row, copy, tick)
    seconds = time.monotonic() - started
    if verdict.word == BITES:
        rows.record(row, ROOT)
    screen.say(f"{verdict.word:{_WIDTH}}  {row.level:8}  {clock(seconds)}  {row.text}")
    if verdict.word != BITES:
        screen.say(f"    mistake: {row.mistake}\n    {row.test}\n    {verdict.reason or 'passed'}")
    return verdict, seconds


def _entry(row: Promise, verdict: Verdict, seconds: float) -> dict[str, object]:
    return {
        "page": row.page,
        "promise": row.text,
        "test": row.test,
        "mistake": row.mistake,
        "verdict": verdict.word,
        "reason": verdict.reason,
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
