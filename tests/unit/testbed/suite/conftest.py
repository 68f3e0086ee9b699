"""A checkout with tests of its own, on which the run of the tests is tried."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

import pytest

from testbed.suite import levels, summary
from testbed.suite.levels import Call, Level, Make
from testbed.suite.results import Run
from testbed.suite.run import Suite
from testbed.suite.screen import Screen

ROOT = Path(__file__).parents[4]
CONFTEST = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests import reporting

def pytest_configure(config):
    reporting.register(config)
"""


@dataclass
class Project:
    """A checkout: its folder, its levels by name, and the order in which they began."""

    folder: Path
    levels: dict[str, Level]
    began: list[str] = field(default_factory=list)

    def test(self, level: str, text: str, *, again: bool = True, **more: object) -> None:
        """A level with the tests of one file."""
        (self.folder / "tests" / level).mkdir(parents=True)
        (self.folder / "tests" / level / "test_it.py").write_text(dedent(text))
        self.level(level, lambda call: (*_PYTEST, *(call.arguments or [f"tests/{level}"])), again=again, **more)

    def level(self, name: str, make: Make, **more: object) -> None:
        """A level of any command."""

        def noted(call: Call) -> Sequence[str]:
            self.began.append(name)
            return make(call)

        self.levels[name] = Level(name, noted, **{"after": (), **more})  # type: ignore[arg-type]

    def run(self, *arguments: str) -> list[Run]:
        """Run all levels."""
        self.shown = io.StringIO()
        return Suite(list(self.levels), arguments, Screen(self.shown), self.folder / "temporary").run()

    def conclusion(self, runs: list[Run]) -> str:
        """The text at the end of a run."""
        return "\n".join(summary.conclusion(runs, 1.0))


_PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A checkout without levels yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NETDRA_REPORT", raising=False)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    made: dict[str, Level] = {}
    for module in ("levels", "run", "retry", "summary"):
        monkeypatch.setattr(f"testbed.suite.{module}.LEVELS", made)
    assert levels.LEVELS is made
    return Project(tmp_path, made)
