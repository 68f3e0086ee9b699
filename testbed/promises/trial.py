"""A trial: a copy of the checkout, one mistake in it, and one test, which must fail.

Called by `python -m testbed.promises`, and by the unit tests for rows that changed. Tests in the copy, and the programs
that they start, run the copied code: PYTHONPATH is the copy.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.promises.rows import Edit, MutationError, Promise, mutated, node_id
from testbed.suite.jobs import Command
from testbed.suite.levels import LEVELS, PREPARATIONS, Call, Job, needed
from testbed.suite.results import Outcome, Report

BITES = "bites"
DOES_NOT_BITE = "does not bite"
CANNOT_BE_RUN = "cannot be run"
LIMIT_SECONDS = 3000.0
_LOOK_SECONDS = 0.1
_TESTS_FAILED = 1
"""pytest's exit code for failed tests."""
_BY_THE_TEST = "(call) "
"""The report of a failure begins with this if the test failed, and none of its fixtures (`tests/reporting.py`)."""
_TIMEOUT = "from pytest-timeout"
_ERROR = "E   "
"""pytest begins the lines of an error with this."""
_REASON = 300
_LOG_BYTES = 2000
_BYTECODE = "bytecode"
_NOT_PREPARED = {"environment", _BYTECODE}
"""The command runs in the environment, and bytecode is that of the copy."""
_IMAGES = {"image", "foreign-image", "former-image"}
_WITH_IMAGES = ("tests/cluster/install/", "tests/upgrade/")
"""Tests with netdra's image; in other folders of their levels no test uses it."""

Tick = Callable[[float], None]
"""Called often while a command runs, with its seconds so far."""


class TrialError(Exception):
    """A preparation of a level failed; the text has its command and the end of its output."""


@dataclass(frozen=True)
class Ended:
    """The end of a run of pytest.

    Attributes:
        code: its exit code; None if it was ended after `LIMIT_SECONDS`.
        outcomes: of the tests that ended.
        tail: the end of its output.
    """

    code: int | None
    outcomes: Sequence[Outcome]
    tail: str = ""


@dataclass(frozen=True)
class Verdict:
    """The result of a row.

    Attributes:
        word: `BITES`, `DOES_NOT_BITE` or `CANNOT_BE_RUN`.
        reason: the error of the test that failed, or why the test cannot be run; empty if the test passed.
    """

    word: str
    reason: str = ""


class Copy:
    """A copy of a checkout, with a link to the virtual environment."""

    def __init__(self, root: Path, folder: Path) -> None:
        """Copy all files but those that git ignores.

        Args:
            root: the checkout.
            folder: the copy; it must not exist.
        """
        self.folder = folder
        ignored = [line.rstrip("/") for line in (root / ".gitignore").read_text(encoding="utf-8").split()]
        shutil.copytree(root, folder, symlinks=True, ignore=shutil.ignore_patterns(".git", *ignored))
        (folder / ".venv").symlink_to(sys.prefix)

    @contextmanager
    def mistaken(self, edits: Sequence[Edit]) -> Iterator[None]:
        """Make the edits, and undo them when the block ends.

        Raises:
            MutationError: an edit does not fit.
        """
        with self.changed(mutated(edits, self.folder)):
            yield

    @contextmanager
    def changed(self, texts: Mapping[str, str]) -> Iterator[None]:
        """Write files, and restore them when the block ends.

        Args:
            texts: file -> its text.
        """
        before = {name: (self.folder / name).read_text(encoding="utf-8") for name in texts}
        try:
            self._write(texts)
            yield
        finally:
            self._write(before)

    def run(self, promise: Promise, tick: Tick) -> Ended:
        """Run the test of a promise on the present code of the copy."""
        level = LEVELS[promise.level]
        report = Report(level.name, self.folder / level.report)
        report.path.unlink(missing_ok=True)
        variables = {**level.variables, "PYTHONPATH": str(self.folder), "NETDRA_REPORT": str(report.path)}
        log = self.folder / "build" / f"{level.name}.log"
        if _BYTECODE in level.after:
            _run(PREPARATIONS[_BYTECODE].command, log, tick, self.folder, variables)
        code = _run(level.make(Call([node_id(promise.test, self.folder)])), log, tick, self.folder, variables)
        report.refresh()
        return Ended(code, tuple(report.outcomes), log.read_text(errors="replace")[-_LOG_BYTES:])

    def _write(self, texts: Mapping[str, str]) -> None:
        for name, text in texts.items():
            path = self.folder / name
            path.write_text(text, encoding="utf-8")
            # Python compares only the size and the whole seconds of a source with its bytecode.
            for bytecode in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
                bytecode.unlink()


def attempt(promise: Promise, copy: Copy, tick: Tick) -> Verdict:
    """Run the test of a promise without the mistake, and with it."""
    try:
        problem = not_passed(copy.run(promise, tick))
        if problem:
            return Verdict(CANNOT_BE_RUN, f"without the mistake: {problem}")
        with copy.mistaken(promise.edits):
            return judged(copy.run(promise, tick))
    except MutationError as error:
        return Verdict(CANNOT_BE_RUN, str(error))


def not_passed(ended: Ended) -> str:
    """Why a run without the mistake failed; empty if all tests passed."""
    problem = _not_run(ended)
    if problem:
        return problem
    failed = [outcome for outcome in ended.outcomes if outcome.outcome != "passed"]
    return f"{failed[0].test} {failed[0].outcome}: {_reason(failed[0].text)}" if failed else ""


def judged(ended: Ended) -> Verdict:
    """The verdict on a run with the mistake: the test itself must fail, by an error that is not a timeout."""
    problem = _not_run(ended)
    if problem:
        return Verdict(CANNOT_BE_RUN, problem)
    failed = [outcome for outcome in ended.outcomes if outcome.outcome == "failed"]
    bites = [outcome for outcome in failed if outcome.text.startswith(_BY_THE_TEST) and _TIMEOUT not in outcome.text]
    if bites and ended.code == _TESTS_FAILED:
        return Verdict(BITES, _reason(bites[0].text))
    if failed:
        cause = "a timeout" if _TIMEOUT in failed[0].text else "an error outside the test"
        return Verdict(CANNOT_BE_RUN, f"{cause}: {_reason(failed[0].text)}")
    return Verdict(DOES_NOT_BITE)


def preparations(promises: Sequence[Promise]) -> list[Job]:
    """The preparations of the tests of some rows, in an order in which they can be done."""
    with_images = any(row.test.startswith(_WITH_IMAGES) for row in promises)
    left_out = _NOT_PREPARED | (set() if with_images else _IMAGES)
    return [job for job in needed(sorted({row.level for row in promises})) if job.name not in left_out]


def prepare(promises: Sequence[Promise], folder: Path, tick: Tick) -> None:
    """Do the preparations of some rows, in the checkout.

    Args:
        promises: the rows.
        folder: where the logs are written.
        tick: called while a preparation runs.

    Raises:
        TrialError: a preparation failed.
    """
    for job in preparations(promises):
        log = folder / f"{job.name}.log"
        if _run(job.command, log, tick, Path(), {}) != 0:
            raise TrialError(f"{' '.join(job.command)} failed:\n{log.read_text(errors='replace')[-_LOG_BYTES:]}")


def _not_run(ended: Ended) -> str:
    """Why no test was run from start to end; empty if tests were run."""
    if ended.code is None:
        return f"it did not end within {LIMIT_SECONDS:.0f} s"
    skipped = [outcome for outcome in ended.outcomes if outcome.outcome == "skipped"]
    if skipped:
        return f"{skipped[0].test} was skipped: {_reason(skipped[0].text)}"
    if not ended.outcomes:
        return f"no test was run (exit code {ended.code}): {ended.tail.strip()}"
    return ""


def _reason(text: str) -> str:
    """The first line of the error in a report of a failure."""
    errors = [line.removeprefix(_ERROR).strip() for line in text.splitlines() if line.startswith(_ERROR)]
    return next(filter(None, errors), text.strip())[:_REASON]


def _run(command: Sequence[str], log: Path, tick: Tick, folder: Path, variables: Mapping[str, str]) -> int | None:
    """Run a command in a folder, and return its exit code; None if it took too long and was ended."""
    running = Command(command, log, variables, folder=folder)
    try:
        while running.code() is None and running.seconds() < LIMIT_SECONDS:
            tick(running.seconds())
            time.sleep(_LOOK_SECONDS)
        return running.code()
    finally:
        if running.code() is None:
            running.interrupt()
        running.end()
