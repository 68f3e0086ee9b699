"""One run of the tests: prepares, runs levels side by side, retries failed tests, and reports the problems.

Called by `python -m testbed.suite`. A level begins as soon as its preparations are ready and a core is free.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.suite import results, retry, summary
from testbed.suite.jobs import Command
from testbed.suite.levels import LEVELS, RESULTS, Call, Level, needed
from testbed.suite.results import Outcome, Report, Run
from testbed.suite.screen import Screen, clock
from testbed.suite.times import slowest

_LOOK_SECONDS = 0.2
# A preparation that took less was there already.
_SILENT_SECONDS = 3.0
_SLOWEST = 10
_LOG_LINES = 30
_LEAST_CORES = 2


class PreparationError(Exception):
    """A preparation failed; the text has the path of its log, and the log's end."""


@dataclass(frozen=True)
class _UnderWay:
    """A level under way."""

    level: Level
    command: Command
    report: Report

    def line(self) -> str:
        """How far it is."""
        self.report.refresh()
        done = f"{len(self.report.outcomes)} of {self.report.collected}" if self.report.collected else "begins"
        failed = len(self.report.of("failed"))
        return f"{self.level.name:10} {done}{f', {failed} failed' if failed else ''}  {clock(self.command.seconds())}"


class Suite:
    """A run of some levels."""

    def __init__(self, levels: Sequence[str], arguments: Sequence[str], screen: Screen, temporary: Path) -> None:
        """Start nothing yet.

        Args:
            levels: which ones.
            arguments: for pytest; all tests of the levels if none exist.
            screen: where it is shown.
            temporary: the folder for the tests' files.
        """
        self._arguments = arguments
        self._screen = screen
        self._temporary = temporary
        self._cores = max(_LEAST_CORES, len(os.sched_getaffinity(0)))
        self._jobs = needed(levels)
        self._levels = [level for name, level in LEVELS.items() if name in levels]
        self._ready: set[str] = set()
        self._preparing: dict[str, Command] = {}
        self._under_way: list[_UnderWay] = []
        self._runs: list[Run] = []
        self._false_starts: dict[str, Outcome] = {}

    def run(self) -> list[Run]:
        """Run everything; the outcomes are also kept in `build/tests.json`.

        Raises:
            PreparationError: a preparation failed.
            KeyboardInterrupt: it was interrupted.
        """
        started = time.monotonic()
        with self._ended_at_last():
            while self._jobs or self._levels or self._preparing or self._under_way:
                self._begin()
                time.sleep(_LOOK_SECONDS)
                self._look()
            self._look_again()
        self._runs.sort(key=lambda run: list(LEVELS).index(run.level))
        results.keep(self._runs, time.monotonic() - started)
        return self._runs

    def _begin(self) -> None:
        """Start what can be started."""
        for job in [each for each in self._jobs if self._ready.issuperset(each.after)]:
            self._jobs.remove(job)
            self._preparing[job.name] = Command(job.command, RESULTS / f"{job.name}.log", {})
        for level in [each for each in self._levels if self._ready.issuperset(each.after)]:
            free = self._free_beside(level)
            taken = {each.level.alone_with for each in self._under_way} - {""}
            waits = level.behind in {each.name for each in self._levels}
            if (free > 0 or level.first) and not waits and level.alone_with not in taken:
                self._levels.remove(level)
                self._start(level, level.cores if level.first else max(1, min(math.ceil(free), level.cores)))

    def _free_beside(self, level: Level) -> float:
        """The cores that neither the levels under way use nor those that come first will use."""
        used = sum(each.command.cores * each.level.load for each in self._under_way)
        return self._cores - used - sum(each.cores * each.load for each in self._levels if each.first and each != level)

    def _start(self, level: Level, cores: int) -> None:
        level.report.unlink(missing_ok=True)
        call = Call(self._arguments, cores, self._temporary / level.name, self._cores)
        command = Command(level.make(call), level.log, level.environment(), cores)
        self._under_way.append(_UnderWay(level, command, Report(level.name, level.report)))

    def _look(self) -> None:
        """See what has ended, and show what has not."""
        for name, command in list(self._preparing.items()):
            code = command.code()
            if code is not None:
                del self._preparing[name]
                self._prepared(name, command, code)
        for each in list(self._under_way):
            code = each.command.code()
            if code is not None:
                self._under_way.remove(each)
                self._ended(each, code)
        shown = [f"{name:10} is being prepared  {clock(each.seconds())}" for name, each in self._preparing.items()]
        self._screen.show([*shown, *(each.line() for each in self._under_way)])

    def _prepared(self, name: str, command: Command, code: int) -> None:
        if code != 0:
            raise PreparationError(f"{name} ended with code {code}: {command.log}\n{command.tail(_LOG_LINES)}")
        self._ready.add(name)
        if command.seconds() > _SILENT_SECONDS:
            self._screen.say(f"{name:10} is ready  {clock(command.seconds())}")

    def _ended(self, ended: _UnderWay, code: int) -> None:
        ended.report.refresh()
        level, command, outcomes = ended.level, ended.command, ended.report.outcomes
        trouble = _trouble(ended.report, code)
        former = self._false_starts.get(level.name)
        if trouble and level.again and not ended.report.collected and former is None:
            self._false_starts[level.name] = retry.false_start(level, command)
            self._screen.say(f"{level.name:10} did not begin, once more: {trouble}")
            self._start(level, command.cores)
            return
        outcomes = [*outcomes, *([former] if former else [])]
        run = Run(level.name, command.seconds(), command.processor, tuple(outcomes), trouble)
        self._runs.append(run)
        self._screen.say(summary.line(run))
        for told in slowest(run, _SLOWEST):
            self._screen.say(f"    {told}")

    def _look_again(self) -> None:
        """Run what failed on a real machine once more, each test alone."""
        judged: dict[str, Outcome] = {}
        for outcome in retry.candidates(self._runs):
            self._screen.say(f"{outcome.level:10} once more, alone: {outcome.test}")
            command = retry.begin(outcome, self._cores, self._temporary / f"again-{len(judged)}")
            self._preparing[outcome.test] = command
            while (code := command.code()) is None:
                time.sleep(_LOOK_SECONDS)
            del self._preparing[outcome.test]
            judged[outcome.test] = retry.judged(outcome, code)
        self._runs = [
            replace(run, outcomes=tuple(judged.get(found.test, found) for found in run.outcomes)) for run in self._runs
        ]

    @contextmanager
    def _ended_at_last(self) -> Iterator[None]:
        """Interrupt all that still runs when the block ends, and wait until it has cleaned up."""
        try:
            yield
        finally:
            self._screen.show([])
            left = [*self._preparing.values(), *(each.command for each in self._under_way)]
            for command in left:
                command.interrupt()
            for command in left:
                command.end()


def _trouble(report: Report, code: int) -> str:
    """The errors in a level beside tests that failed."""
    skipped = report.of("skipped")
    if skipped:
        return f"{len(skipped)} tests were skipped, {skipped[0].test} first: a level that cannot run is a failure"
    if len(report.outcomes) < report.collected:
        return f"{report.collected - len(report.outcomes)} of {report.collected} tests have not ended"
    if code != 0 and not report.of("failed"):
        return f"it ended with code {code}"
    return ""
