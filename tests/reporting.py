"""The report of a level that `make test` reads while it runs: one line of JSON for each test, with its waits.

A pytest plugin, registered by the top conftest; it writes to the file that NETDRA_REPORT names, and nothing without
one. `testbed.suite.results` reads it. Where tests are spread over processes, the one that spreads them writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.waiting import account

VARIABLE = "NETDRA_REPORT"
_WAITS = "waits"  # an attribute of a report, which travels between processes with it


class Reporter:
    """Adds the lines to a file: a level may be several calls of pytest."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._phases: dict[str, list[pytest.TestReport]] = {}
        self._collected = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tests that run in this process."""
        if session.items:
            self._announce(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: Sequence[str]) -> None:
        """Tests that run in other processes; each of them reports the same ones."""
        self._announce(len(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported is a failure of its own."""
        if report.failed:
            self._write(test=report.nodeid, outcome="failed", seconds=0.0, waits={}, text=report.longreprtext)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather a test's phases, and write when the last one is over."""
        phases = self._phases.setdefault(report.nodeid, [])
        phases.append(report)
        if report.when == "teardown":
            del self._phases[report.nodeid]
            self._write(**_told(phases))

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Report tests that have not ended, such as one whose process died, and the end of the level."""
        for phases in self._phases.values():
            self._write(**_told(phases))
        self._write(exit=int(exitstatus))

    def _announce(self, count: int) -> None:
        if count != self._collected:
            self._collected = count
            self._write(collected=count)

    def _write(self, **line: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def register(config: pytest.Config) -> None:
    """Have the lines written, if they are asked for."""
    config.pluginmanager.register(_Waits())
    named = os.environ.get(VARIABLE)
    if named and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reporter(Path(named)))


class _Waits:
    """Puts what each phase of a test waited for into its report."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        setattr(report, _WAITS, account())
        return report


def _told(phases: Sequence[pytest.TestReport]) -> dict[str, Any]:
    waits: dict[str, float] = {}
    for phase in phases:
        for subject, seconds in getattr(phase, _WAITS, {}).items():
            waits[subject] = waits.get(subject, 0.0) + seconds
    failed = [phase for phase in phases if phase.failed]
    skipped = any(phase.skipped for phase in phases)
    known = [phase.wasxfail for phase in phases if phase.skipped and hasattr(phase, "wasxfail")]
    return {
        "test": phases[0].nodeid,
        "outcome": "failed" if failed else "skipped" if skipped else "passed",
        "seconds": sum(phase.duration for phase in phases),
        "waits": waits,
        "text": "\n".join([*map(_text, failed), *known]),
    }


def _text(phase: pytest.TestReport) -> str:
    sections = "".join(f"\n--- {name}\n{content}" for name, content in phase.sections)
    return f"({phase.when}) {phase.longreprtext}{sections}"
