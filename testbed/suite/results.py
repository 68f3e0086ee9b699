"""The outcomes of tests: read from a level's report while it grows, and kept in `build/tests.json` at the end.

The lines are written by `tests/reporting.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEPT = Path("build/tests.json")
BEFORE = Path("build/tests.before.json")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test.

    Attributes:
        level, test: where it is.
        outcome: `passed`, `failed`, `skipped`, or `flaky`: failed, and passed when it was run again.
        seconds: how long it took, with its fixtures.
        waits: seconds that it waited, by subject.
        text: why it failed, with the log of that time.
    """

    level: str
    test: str
    outcome: str
    seconds: float
    waits: Mapping[str, float]
    text: str = ""


@dataclass
class Report:
    """A level's report, read as far as it goes now.

    Attributes:
        level: which one.
        path: the file; it need not be there yet.
        collected: how many tests there are, as far as that is known.
        outcomes: of those that have ended.
    """

    level: str
    path: Path
    collected: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    _read: int = 0

    def refresh(self) -> None:
        """Read the new lines."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                content = file.read()
        except FileNotFoundError:
            return
        for line in content.splitlines(keepends=True):
            try:
                told = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:  # a machine's share may show a line before all of it is there
                told = None
            if told is None:
                break
            self._read += len(line)
            self._take(told)

    def of(self, outcome: str) -> list[Outcome]:
        """The tests that ended so."""
        return [found for found in self.outcomes if found.outcome == outcome]

    def _take(self, line: Mapping[str, Any]) -> None:
        self.collected += line.get("collected", 0)
        if "test" in line:
            told = {name: line[name] for name in ("test", "outcome", "seconds", "waits", "text")}
            self.outcomes.append(Outcome(level=self.level, **told))


@dataclass(frozen=True)
class Run:
    """A level's end.

    Attributes:
        level: which one.
        seconds: how long it took.
        processor: seconds of processor time that it used.
        outcomes: of its tests.
        trouble: why it failed outside its tests, or "".
    """

    level: str
    seconds: float
    processor: float
    outcomes: tuple[Outcome, ...] = ()
    trouble: str = ""

    @property
    def passed(self) -> bool:
        """Whether all tests have run, and nothing failed."""
        return not self.trouble and all(found.outcome in {"passed", "flaky"} for found in self.outcomes)

    def of(self, outcome: str) -> list[Outcome]:
        """The tests that ended so."""
        return [found for found in self.outcomes if found.outcome == outcome]


def keep(runs: Iterable[Run], seconds: float, path: Path = KEPT) -> None:
    """Write what became of a run, and leave the one before beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    levels = {
        run.level: {
            "seconds": round(run.seconds, 1),
            "processorSeconds": round(run.processor, 1),
            "trouble": run.trouble,
            "tests": {
                found.test: {
                    "outcome": found.outcome,
                    "seconds": round(found.seconds, 3),
                    "waits": {subject: round(waited, 3) for subject, waited in found.waits.items()},
                }
                for found in run.outcomes
            },
        }
        for run in runs
    }
    machine = {"cores": os.cpu_count(), "load": [round(load, 2) for load in os.getloadavg()]}
    path.write_text(json.dumps({"seconds": round(seconds, 1), "machine": machine, "levels": levels}, indent=1) + "\n")
