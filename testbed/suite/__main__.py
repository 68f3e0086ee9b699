"""`python -m testbed.suite [LEVEL ...]` and `python -m testbed.suite --times`: run the tests, or compare runs."""

from __future__ import annotations

import argparse
import fcntl
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testbed.suite import changed, results, summary
from testbed.suite.levels import LEVELS, RESULTS
from testbed.suite.results import Run
from testbed.suite.run import PreparationError, Suite
from testbed.suite.screen import Screen
from testbed.suite.times import compared

_INTERRUPTED = 130


def main() -> int:
    """Parse the arguments, run the levels, and return the exit code."""
    parser = argparse.ArgumentParser(prog="testbed.suite")
    parser.add_argument("levels", nargs="*", metavar="LEVEL", help=f"which ones (all of them: {', '.join(LEVELS)})")
    parser.add_argument("--arguments", default="", help="what pytest is given, for one level: its tests, -k, -x")
    parser.add_argument("--changed", action="store_true", help="lint, and the unit tests that a change can break")
    parser.add_argument("--since", default="", metavar="COMMIT", help="what the change is since (the last commit)")
    parser.add_argument("--times", nargs=2, type=Path, metavar=("BEFORE", "AFTER"), help="compare two runs instead")
    given = parser.parse_args()
    unknown = [name for name in given.levels if name not in LEVELS]
    if unknown:
        parser.error(f"no level {unknown[0]!r}; there are {', '.join(LEVELS)}")
    if given.arguments and len(given.levels) != 1:
        parser.error("arguments for pytest are those of one level; name it")
    if given.times:
        return _compare(*given.times)
    if given.changed:
        return _quick(given.since)
    return _run(given.levels or list(LEVELS), shlex.split(given.arguments))


def _run(levels: list[str], arguments: list[str]) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell has what it runs in the background ignore the first
        signal.signal(number, signal.default_int_handler)
    runs: list[Run] = []
    screen, started = Screen(), time.monotonic()
    temporary = Path(tempfile.mkdtemp(prefix="nt-"))
    try:
        with _alone():
            runs = Suite(levels, arguments, screen, temporary).run()
    except PreparationError as problem:
        screen.say(f"testbed: {problem}")
        return 1
    except KeyboardInterrupt:
        screen.say("testbed: interrupted; everything that was started has ended")
        return _INTERRUPTED
    finally:
        if not _is_kept(temporary, runs):
            shutil.rmtree(temporary, ignore_errors=True)
    for text in summary.conclusion(runs, time.monotonic() - started):
        screen.say(text)
    return 0 if summary.passed(runs) else 1


def _is_kept(temporary: Path, runs: Sequence[Run]) -> bool:
    """Whether the files that tests wrote are worth an inspection."""
    return any(run.of("failed") or run.of("flaky") for run in runs) and any(temporary.iterdir())


def _quick(since: str) -> int:
    try:
        files = changed.files(since)
    except changed.ChangeError as problem:
        print(f"testbed: {problem}", file=sys.stderr)
        return 2
    tests = changed.unit_tests(files)
    status = _run(["lint", *(["unit"] if tests else [])], tests)
    elsewhere = changed.elsewhere(files)
    if elsewhere:
        print(f"not run, for they need root: {' '.join(elsewhere)}")
    return status


def _compare(before: Path, after: Path) -> int:
    try:
        for text in compared(before, after):
            print(text)
    except FileNotFoundError as problem:
        print(f"testbed: {problem.filename} is not there: a run of the tests writes {results.KEPT}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def _alone() -> Iterator[None]:
    """Hold this checkout: a second run in it would overwrite the first one's results.

    Raises:
        PreparationError: there is another run.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PreparationError(
                f"another run of the tests has {RESULTS}; wait for it, or use another clone"
            ) from None
        yield


if __name__ == "__main__":
    sys.exit(main())
