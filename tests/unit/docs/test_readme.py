"""The first screen of the README: its commands run, its figures are those of the pages, and it is short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from netdra.cli.main import cli

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST, _, REST = README.partition("<!-- The first page of the site ends here. -->")
LINES = [
    line for block in re.findall(r"^```\n(.*?)^```", FIRST, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]


def test_each_role_has_a_quick_start() -> None:
    roles = re.findall(r"^\*\*(\w+): .*?^```\n", FIRST, re.MULTILINE | re.DOTALL)
    assert roles == ["Telco", "AI", "Platform"]
    assert len(LINES) >= 2 * len(roles)


@pytest.mark.parametrize("line", LINES)
def test_a_quick_start_runs_and_prints(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    program, *arguments = line.split()
    assert program == "netdra"
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) > 2
    assert done.stderr == ""


def test_the_comparison_has_five_lines() -> None:
    section = FIRST.partition("## Why not Multus, why not dranet?\n")[2].partition("\n## ")[0]
    assert len(re.findall(r"^- ", section, re.MULTILINE)) == 5


def test_each_figure_has_its_command_and_is_on_the_page_about_scale() -> None:
    section = FIRST.partition("## Figures\n")[2]
    rows = [row.split(" | ") for row in re.findall(r"^\| [^-|].*$", section, re.MULTILINE)]
    assert len(rows) == 4
    scale = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    for _, measured, command in rows:
        assert command.strip(" |") in scale
        for figure in re.findall(r"\d[\d.]*(?= [a-zA-Z])", measured):
            assert re.search(rf"\b{re.escape(figure)}\b", scale), figure


def test_the_first_screen_has_one_picture_and_the_rest_of_the_page_follows() -> None:
    assert len(re.findall(r"!\[", FIRST)) == 1
    assert "## In a cluster" in REST
