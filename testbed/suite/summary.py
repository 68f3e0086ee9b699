"""The end of a run, in words: each level in a line, and each failed test with the command that runs it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from testbed.suite import retry
from testbed.suite.levels import LEVELS
from testbed.suite.results import Outcome, Run
from testbed.suite.screen import clock

_LINES = 80
_SHOWN = 20
_REASON = 300
_WRONG = "E   "
"""With which pytest begins the lines of an error."""


def line(run: Run) -> str:
    """A level in a line."""
    counts = {word: len(run.of(word)) for word in ("passed", "flaky", "failed", "skipped")}
    told = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)
    verdict = told or ("passed" if run.passed else "failed")
    trouble = f"; {run.trouble}" if run.trouble else ""
    return f"{run.level:10} {verdict}{trouble}  {clock(run.seconds)}, {clock(run.processor)} of processor time"


def conclusion(runs: Sequence[Run], seconds: float) -> Iterator[str]:
    """The last output for the reader."""
    failed = [found for run in runs for found in run.of("failed")]
    flaky = [found for run in runs for found in run.of("flaky")]
    for found in failed[:_SHOWN]:
        yield f"\n=== {found.test}\n{_cut(found.text)}"
    for run in runs:
        if run.trouble:
            log = LEVELS[run.level].log
            yield f"\n=== {run.level}: {run.trouble}; the end of {log}:\n{_tail(log)}"
    yield ""
    yield from map(line, runs)
    for found in failed:
        yield f"FAILED  {again(found)}\n        {_reason(found.text)}"
    for found in flaky:
        yield f"FLAKY   {found.test}: it failed and then passed; both logs: {retry.folder_of(found)}"
    yield f"{'passed' if passed(runs) else 'FAILED'} after {clock(seconds)}{_flakes(len(flaky))}"


def passed(runs: Sequence[Run]) -> bool:
    """Whether a run is green: nothing failed, and no more is flaky than can be an accident."""
    return all(run.passed for run in runs) and sum(len(run.of("flaky")) for run in runs) <= retry.MOST


def again(outcome: Outcome) -> str:
    """The command that runs one test again."""
    return f"make test-{outcome.level} ARGS={shlex.quote(outcome.test)}"


def _cut(text: str) -> str:
    """The end of a long text, and before it what pytest states is wrong, as far as it is not there anyway."""
    lines = text.splitlines()
    half = _LINES // 2
    wrong = max((number for number, text in enumerate(lines) if text.startswith(_WRONG)), default=len(lines)) + 1
    if wrong > len(lines) - half:
        return "\n".join(lines[-_LINES:])
    return "\n".join([*lines[max(0, wrong - half) : wrong], "...", *lines[-half:]])


def _reason(text: str) -> str:
    """The first line of pytest's error: the reason is present even if only the end of a run is kept."""
    wrong = [line.removeprefix(_WRONG).strip() for line in text.splitlines() if line.startswith(_WRONG)]
    return next(filter(None, wrong), "pytest reports no reason")[:_REASON]


def _tail(log: Path) -> str:
    try:
        return _cut(log.read_text(errors="replace"))
    except FileNotFoundError:
        return ""


def _flakes(count: int) -> str:
    if not count:
        return ""
    return f", {count} flaky" + (f": more than {retry.MOST} are not an accident" if count > retry.MOST else "")
