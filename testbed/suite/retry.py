"""A test that failed on a real machine is run once more, alone; if it passes then, it is flaky, and both logs are kept.

A flaky test is a defect that must be explained, and never hidden: the run states how many there are, and more
than a few fail it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from testbed.suite.jobs import Command
from testbed.suite.levels import LEVELS, Call, Level
from testbed.suite.results import Outcome, Report, Run

FLAKES = Path("build/flakes")
MOST = 3
"""More failures than that are not an accident."""


def candidates(runs: Sequence[Run]) -> list[Outcome]:
    """The tests to run once more; none if there are too many, or if something failed that is never run again."""
    outcomes = [found for run in runs for found in run.outcomes]
    failed = [found for found in outcomes if found.outcome == "failed"]
    flaky = sum(found.outcome == "flaky" for found in outcomes)
    if len(failed) + flaky > MOST or not all(LEVELS[found.level].again for found in failed):
        return []
    return failed


def begin(outcome: Outcome, cores: int, temporary: Path) -> Command:
    """Run a test once more, with its first failure kept."""
    level, folder = LEVELS[outcome.level], folder_of(outcome)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "first.txt").write_text(f"{outcome.test}\n{outcome.text}\n")
    level.report.unlink(missing_ok=True)
    command = level.make(Call([outcome.test], 1, temporary))
    return Command(command, folder / "second.txt", level.environment(), cores)


def false_start(level: Level, command: Command) -> Outcome:
    """A level of which no test could begin, as a flaky test of its own; its log is kept."""
    outcome = Outcome(level.name, f"the beginning of {level.name}", "flaky", command.seconds(), {}, command.tail(200))
    folder_of(outcome).mkdir(parents=True, exist_ok=True)
    (folder_of(outcome) / "first.txt").write_text(outcome.text + "\n")
    return outcome


def judged(outcome: Outcome, code: int) -> Outcome:
    """A test that was run once more: flaky if it passed, with all else that was run for it, else as it was."""
    level = LEVELS[outcome.level]
    report = Report(outcome.level, level.report)
    report.refresh()
    (folder_of(outcome) / "second.jsonl").write_bytes(level.report.read_bytes() if level.report.exists() else b"")
    passed = code == 0 and outcome.test in {found.test for found in report.of("passed")}
    return replace(outcome, outcome="flaky") if passed else outcome


def folder_of(outcome: Outcome) -> Path:
    """Where both logs of a test are kept."""
    return FLAKES / re.sub(r"[^\w.-]+", "-", outcome.test.removeprefix("tests/"))[-150:]
