"""The page of promises names code that is there, and tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_ROW = re.compile(r"^\| (?P<promise>[^|]+) \| (?P<module>netdra/\S+\.py) \| (?P<file>tests/\S+\.py)::(?P<test>\w+) \|$")
ROWS = [
    (found["promise"], found["module"], found["file"], found["test"])
    for line in (ROOT / "docs" / "mission.md").read_text().splitlines()
    if (found := _ROW.match(line))
]


def test_every_line_of_a_promise_has_the_form_of_one() -> None:
    lines = (ROOT / "docs" / "mission.md").read_text().partition("## Kept in another way")[0].splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith(("| promise", "| ---"))]
    assert len(rows) == len(ROWS) > 40


@pytest.mark.parametrize(("promise", "module", "file", "test"), ROWS, ids=[row[0] for row in ROWS])
def test_it_names_code_and_a_test(promise: str, module: str, file: str, test: str) -> None:
    assert (ROOT / module).is_file(), promise
    names = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)}
    assert test in names | {node.name for node in _coroutines(ROOT / file)}, promise


def _coroutines(path: Path) -> list[ast.AsyncFunctionDef]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.AsyncFunctionDef)]
