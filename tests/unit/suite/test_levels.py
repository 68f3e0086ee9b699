"""Which tests `make` runs: each in a level of `make test`, but for those that need what the project does not have."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    ours = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "NETDRA_FIXTURES"}}
    return subprocess.run(("make", *arguments), cwd=ROOT, env=ours, capture_output=True, text=True, check=False)


def test_make_test_runs_the_tests_of_all_folders_but_those_of_recorded_trees() -> None:
    levels = set(re.findall(r"\btests/(\w+)", make("--dry-run", "test").stdout))
    assert levels == {file.relative_to(ROOT / "tests").parts[0] for file in ROOT.glob("tests/**/test_*.py")} - {
        "recorded"
    }


def test_without_recorded_trees_make_says_what_to_set() -> None:
    done = make("test-recorded")
    assert done.returncode != 0
    assert "set NETDRA_FIXTURES to the folder of the recorded trees" in done.stderr
