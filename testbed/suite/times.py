"""Where the time of a run went: its slowest tests with their waits, and two runs side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.suite.results import Outcome, Run
from testbed.suite.screen import clock

_SUBJECTS = 3
_LEAST_WAIT = 0.1
_CHANGED = 20


def slowest(run: Run, count: int) -> Iterator[str]:
    """The slowest tests of a level, a line each."""
    for found in sorted(run.outcomes, key=lambda found: -found.seconds)[:count]:
        yield f"{found.seconds:6.1f} s  {found.test}{_waited(found)}"


def _waited(found: Outcome) -> str:
    longest = sorted(found.waits.items(), key=lambda wait: -wait[1])[:_SUBJECTS]
    told = [f"{seconds:.1f} s for {subject}" for subject, seconds in longest if seconds >= _LEAST_WAIT]
    return f"  (waited {', '.join(told)})" if told else ""


def compared(before: Path, after: Path) -> Iterator[str]:
    """Two kept runs side by side: levels, the tests whose time changed most, and those that only one has.

    Raises:
        FileNotFoundError: one of them is not there.
    """
    old, new = (json.loads(path.read_text()) for path in (before, after))
    yield f"{'':12}{'before':>8} {'after':>8}"
    yield f"{'all':12}{clock(old['seconds']):>8} {clock(new['seconds']):>8}"
    for level in dict.fromkeys((*old["levels"], *new["levels"])):
        sides = [_total(run["levels"].get(level)) for run in (old, new)]
        yield f"{level:12}{sides[0]:>8} {sides[1]:>8}"
    seconds_before, seconds_after = (_tests(run) for run in (old, new))
    common = seconds_before.keys() & seconds_after.keys()
    yield ""
    changes = sorted(common, key=lambda test: -abs(seconds_after[test] - seconds_before[test]))[:_CHANGED]
    for test in changes:
        yield f"{seconds_after[test] - seconds_before[test]:+7.1f} s  {test}"
    for sign, only in (("-", seconds_before.keys() - common), ("+", seconds_after.keys() - common)):
        yield from (f"{sign} {test}" for test in sorted(only))


def _total(level: Mapping[str, Any] | None) -> str:
    return "-" if level is None else clock(level["seconds"])


def _tests(run: Mapping[str, Any]) -> dict[str, float]:
    return {test: float(found["seconds"]) for level in run["levels"].values() for test, found in level["tests"].items()}
