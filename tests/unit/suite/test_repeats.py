"""Tests with the mark `repeats`: left out by `make test`, run by `make explore` and by a command that names one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
FILE = "tests/hardware/real/test_pooled.py"
MARKED = re.findall(r"@pytest\.mark\.repeats\ndef (\w+)", (ROOT / FILE).read_text(encoding="utf-8"))


def collected(*arguments: str, draw: str = "") -> set[str]:
    """The tests that pytest would run."""
    command = (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments)
    environment = {name: value for name, value in os.environ.items() if name != "NETDRA_REPORT"} | {"NETDRA_DRAW": draw}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return set(re.findall(rf"^{re.escape(FILE)}::(\w+)", done.stdout, re.MULTILINE))


def test_a_folder_is_run_without_the_marked_tests_and_explore_runs_all() -> None:
    every = collected(FILE, draw="anew")
    assert every.issuperset(MARKED)
    assert collected(FILE) == every - {*MARKED} != set()
    assert collected(FILE, "-m", "repeats", draw="anew") == {*MARKED} != set()


def test_explore_names_each_file_with_a_marked_test() -> None:
    command = ("make", "--no-print-directory", "--dry-run", "explore")
    explore = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    named = {word.strip("'").removeprefix("ARGS='") for word in explore}
    marked = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if path != Path(__file__) and "mark.repeats" in path.read_text(encoding="utf-8")
    }
    assert FILE in marked
    assert marked - named == set()


def test_a_marked_test_is_run_by_its_name() -> None:
    assert collected(f"{FILE}::{MARKED[0]}") == {MARKED[0]}
