"""The page of reports from other products names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_ROW = re.compile(r"^\| \[\w[^|]+\| [^|]+ \| (?P<file>tests/\S+\.py)::(?P<test>\w+) \|$")
_LINES = (ROOT / "docs" / "field-reports.md").read_text().splitlines()
ROWS = [(found["file"], found["test"]) for line in _LINES if (found := _ROW.match(line))]


def test_every_row_has_a_report_and_a_test() -> None:
    rows = [line for line in _LINES if line.startswith("| ") and not line.startswith(("| report", "| ---"))]
    assert len(rows) == len(ROWS) >= 25


@pytest.mark.parametrize(("file", "test"), ROWS, ids=[test for _, test in ROWS])
def test_the_named_test_exists(file: str, test: str) -> None:
    nodes = ast.walk(ast.parse((ROOT / file).read_text()))
    assert test in {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
