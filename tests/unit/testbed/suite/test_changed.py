"""The unit tests that `make quick` runs after a change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed.suite import changed

_FILES = {
    "netdra/core.py": '"""See docs/core.md."""\nLINK = "docs/core.md"\n',
    "netdra/other.py": "",
    "testbed/pages.py": 'from pathlib import Path\nPAGES = Path("docs")\n',
    "testbed/all_pages.py": 'PATTERN = "**/*.md"\n',
    "tests/unit/test_core.py": "import netdra.core\n",
    "tests/unit/test_other.py": "from netdra import other\n",
    "tests/unit/test_pages.py": "from testbed.pages import PAGES\n",
    "tests/unit/test_all_pages.py": "import testbed.all_pages\n",
    "tests/unit/test_one_page.py": 'PAGE = "docs/core.md"\n',
    "tests/unit/test_chart.py": 'VALUES = ("charts", "netdra", "values.yaml")\n',
    "tests/unit/test_words.py": 'TEXT = "read the docs first"\n',
    "tests/unit/test_program.py": "import subprocess\n",
}
_PAGES = ["test_all_pages", "test_one_page", "test_pages"]


@pytest.fixture(autouse=True)
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in _FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["docs/core.md"], _PAGES),
        (["charts/netdra/values.yaml"], ["test_chart"]),
        (["netdra/other.py"], ["test_other", "test_program"]),
        (["netdra/other.py", "docs/new.md"], sorted([*_PAGES, "test_other", "test_program"])),
        (["netdra/core.py"], ["test_core", "test_program"]),
        (["CHANGELOG.md", "LICENSE"], []),
    ],
)
def test_a_change_runs_the_tests_that_import_or_read_the_file(files: Sequence[str], expected: Sequence[str]) -> None:
    assert changed.unit_tests(files) == [f"tests/unit/{name}.py" for name in expected]


@pytest.mark.parametrize("name", ["pyproject.toml", "tests/mistakes/wrong.yaml", "protos/api.proto"])
def test_a_file_whose_readers_are_unknown_runs_all(name: str) -> None:
    assert changed.unit_tests([name, "docs/core.md"]) == ["tests/unit"]
