"""Each promise has a mistake that its test notices: the rows of `tests/promises`, and the record of proven rows.

A row that differs from the record is tried at once, in a subprocess, if its test is a unit test. For all others, the
command in the failure tries them and writes the record.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.promises import rows
from testbed.promises.rows import Promise
from testbed.promises.trial import BITES, Copy, attempt

ROOT = Path(__file__).parents[3]
ROWS = rows.read(ROOT)
_MOST_LINES = 5
TABLES = ("docs/crashes.md", "docs/security.md")
"""Pages with tables whose last column is the test of a row."""


def name(row: Promise) -> str:
    return row.key


def table(page: str) -> list[list[str]]:
    """The cells of the rows of all tables of a page; the last cell as above where it is "the same"."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    found: list[list[str]] = []
    for line in lines:
        if line.startswith("| "):
            *cells, last = [cell.strip() for cell in line.strip("|").split(" | ")]
            found.append([*cells, found[-1][-1] if last == "the same" else last])
    return found


def with_tests(page: str) -> Iterator[str]:
    """The first cells of the rows of a page, in tables whose last column is "test"."""
    in_table = False
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and in_table and not line.startswith("| ---"):
            yield line.strip("|").split(" | ")[0].strip()
        in_table = line.startswith("| ") and (in_table or line.endswith(" | test |"))


def test_each_row_of_the_page_of_promises_has_one_mistake() -> None:
    page = "docs/mission.md"
    promised = Counter((cells[0], cells[2]) for cells in table(page) if "::" in cells[-1])
    assert Counter((row.text, row.test) for row in ROWS if row.page == page) == promised


@pytest.mark.parametrize("page", TABLES)
def test_each_row_of_a_table_of_tests_has_one_mistake(page: str) -> None:
    assert Counter(row.text for row in ROWS if row.page == page) == Counter(with_tests(page))


def test_no_two_rows_have_one_name() -> None:
    assert [key for key, count in Counter(row.key for row in ROWS).items() if count > 1] == []


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_a_mistake_fits_the_code_and_its_test_is_named_beside_the_promise(row: Promise) -> None:
    named = row.test.split("::")
    beside = [cells[-1] for cells in table(row.page) if cells[0] == row.text]
    assert any(word in cell for word in named for cell in beside), "the page does not name the test beside the promise"
    for path, text in rows.mutated(row.edits, ROOT).items():
        assert text != (ROOT / path).read_text(encoding="utf-8")
        if path.endswith(".py"):
            ast.parse(text)
    assert rows.digest(row, ROOT)
    assert row.level
    assert 1 <= sum(len(edit.new.splitlines()) or 1 for edit in row.edits) <= _MOST_LINES


@pytest.mark.parametrize("row", [row for row in ROWS if row.level == "unit"], ids=name)
def test_a_unit_test_notices_a_changed_mistake(row: Promise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if rows.unproven([row], ROOT):
        for variable in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
            monkeypatch.delenv(variable, raising=False)
        verdict = attempt(row, Copy(ROOT, tmp_path / "copy"), lambda _: None)
        assert verdict.word == BITES, f"{row.mistake}, and {row.test} {verdict.word} {verdict.reason}"


def test_every_other_row_is_proven() -> None:
    left = rows.unproven([row for row in ROWS if row.level != "unit"], ROOT)
    assert not left, "run .venv/bin/python -m testbed.promises --changed, and commit tests/promises/proven.json"
