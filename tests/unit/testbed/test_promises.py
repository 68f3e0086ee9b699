"""A mistake that breaks a promise is made in a copy, and the verdict on the test is right."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from testbed.promises import rows, trial
from testbed.promises.rows import Edit, MutationError, Promise, digest, record, recorded, unproven
from testbed.promises.trial import BITES, CANNOT_BE_RUN, DOES_NOT_BITE, Copy, Ended, Verdict, attempt, judged
from testbed.suite.results import Outcome

ROOT = Path(__file__).parents[3]
KETTLE = """
LIMIT = 100


def heat(water):
    # Water boils at the limit.
    if water < LIMIT:
        return water + 1
    return water


class Kettle:
    def fill(self, water):
        return water

    def empty(self):
        return 0


if __name__ == "__main__":
    print(heat(20))
"""
TESTS = """
import subprocess, sys, time

import pytest
from kettle.water import heat

def test_water_becomes_warmer(): assert heat(20) == 21

def test_nothing(): heat(20)

def test_it_is_of_the_copy(tmp_path):
    command = (sys.executable, "-m", "kettle.water")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout == "21\\n"

@pytest.fixture
def warm():
    assert heat(20) == 21

def test_its_fixture_fails(warm): pass

def test_it_is_skipped():
    if heat(20) == 20:
        pytest.skip("cold")

@pytest.mark.timeout(1)
def test_it_hangs():
    while heat(20) == 20:
        time.sleep(0.01)

def test_it_always_fails(): assert heat(20) == 22

class TestKettle:
    def test_it_is_in_a_class(self): assert heat(20) == 21
"""
REPORTING = """
import importlib.util, sys
sys.path.append({root!r})
spec = importlib.util.spec_from_file_location("reporting", {root!r} + "/tests/reporting.py")
reporting = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reporting)

def pytest_configure(config):
    reporting.register(config)
"""
COLD = Edit("kettle/water.py", "    return water + 1", "    return water")
BROKEN = Edit("kettle/water.py", "LIMIT = 100", "raise ImportError")
GONE = Edit("kettle/water.py", "LIMIT = 200", "LIMIT = 300")
TEST = "tests/unit/test_water.py"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one module and one file of tests."""
    folder = tmp_path / "project"
    (folder / "kettle").mkdir(parents=True)
    (folder / "tests" / "unit").mkdir(parents=True)
    (folder / "tests" / "promises").mkdir()
    (folder / "kettle" / "__init__.py").touch()
    (folder / "kettle" / "water.py").write_text(KETTLE)
    (folder / TEST).write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (folder / ".gitignore").write_text("__pycache__/\nbuild/\n")
    (folder / "tests" / "conftest.py").write_text(REPORTING.format(root=str(ROOT)))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # most of the time would be their imports
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_timeout -p no:cacheprovider")
    return folder


def promise(test: str, *edits: Edit) -> Promise:
    return Promise("docs/kettle.md", "Water becomes warmer", f"{TEST}::{test}", "the water stays cold", edits)


def tried(project: Path, test: str, *edits: Edit) -> Verdict:
    return attempt(promise(test, *edits), Copy(project, project.parent / "copy"), lambda _: None)


@pytest.mark.parametrize("test", ["test_water_becomes_warmer", "test_it_is_of_the_copy", "test_it_is_in_a_class"])
def test_a_test_that_fails_by_the_mistake_bites_and_the_checkout_is_unchanged(project: Path, test: str) -> None:
    assert tried(project, test, COLD).word == BITES
    assert (project / "kettle" / "water.py").read_text() == KETTLE


def test_a_test_that_passes_in_spite_of_the_mistake_does_not_bite(project: Path) -> None:
    assert tried(project, "test_nothing", COLD) == Verdict(DOES_NOT_BITE)


@pytest.mark.parametrize(
    ("test", "edit", "reason"),
    [
        ("test_its_fixture_fails", COLD, "an error outside the test: assert 20 == 21"),
        ("test_water_becomes_warmer", BROKEN, "an error outside the test: ImportError"),
        ("test_it_is_skipped", COLD, "was skipped"),
        ("test_it_hangs", COLD, "a timeout: "),
        ("test_it_always_fails", COLD, "without the mistake: "),
        ("test_it_does_not_exist", COLD, "does not have a test 'test_it_does_not_exist'"),
        ("test_water_becomes_warmer", GONE, "kettle/water.py contains these lines 0 times, not once:\nLIMIT = 200"),
    ],
)
def test_a_failure_of_another_kind_is_no_bite(project: Path, test: str, edit: Edit, reason: str) -> None:
    verdict = tried(project, test, edit)
    assert verdict.word == CANNOT_BE_RUN
    assert reason in verdict.reason


def test_a_mistake_is_undone_for_the_next_row(project: Path) -> None:
    copy = Copy(project, project.parent / "copy")
    row = promise("test_water_becomes_warmer", COLD)
    assert [attempt(row, copy, lambda _: None).word for _ in range(2)] == [BITES, BITES]


def test_a_run_without_end_is_ended(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "LIMIT_SECONDS", 0.1)
    assert tried(project, "test_nothing", COLD).reason == "without the mistake: it did not end within 0 s"


@pytest.mark.parametrize(
    ("test", "with_images"),
    [("tests/cluster/test_x.py::test_y", False), ("tests/cluster/install/test_x.py::test_y", True)],
)
def test_only_the_preparations_of_the_given_tests_are_done(test: str, with_images: bool) -> None:
    jobs = [job.name for job in trial.preparations([replace(promise("test_nothing"), test=test)])]
    assert ("image" in jobs) == with_images
    assert "components" in jobs
    assert "environment" not in jobs
    assert trial.preparations([promise("test_nothing")]) == []


def test_one_case_of_several_is_enough_and_a_skipped_one_is_too_much() -> None:
    passed, failed = (Outcome("unit", "x", word, 0, {}, "(call) E   wrong") for word in ("passed", "failed"))
    skipped = Outcome("unit", "x", "skipped", 0, {})
    assert judged(Ended(1, [passed, failed])).word == BITES
    assert judged(Ended(1, [skipped, failed])).word == CANNOT_BE_RUN
    assert judged(Ended(2, [passed, failed])).word == CANNOT_BE_RUN  # interrupted


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("b\n  c", "x\n  y", "a:\n    x\n      y\nb\n"),
        ("b\n  c", "", "a:\nb\n"),
        ("  b\n    c", "  x", "a:\n    x\nb\n"),
        ("a:", "z:", "z:\n    b\n      c\nb\n"),
    ],
)
def test_lines_are_replaced_with_the_indentation_of_the_file(old: str, new: str, expected: str) -> None:
    assert Edit("f", old, new).apply("a:\n    b\n      c\nb\n") == expected


@pytest.mark.parametrize(("old", "times"), [("x", 2), ("y", 0), ("x\n  x", 0)])
def test_lines_that_do_not_occur_once_are_an_error(old: str, times: int) -> None:
    with pytest.raises(MutationError, match=f"f contains these lines {times} times, not once"):
        Edit("f", old, "z").apply("x\n  x\n" if times else "x\nx\n")


def test_the_digest_follows_the_mistake_the_test_and_the_changed_function_alone(project: Path) -> None:
    def of(old: str, new: str, *, file: str = "kettle/water.py", edit: Edit = COLD) -> str:
        shutil.copytree(project, project.parent / "other", dirs_exist_ok=True)
        path = project.parent / "other" / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        return digest(promise("test_water_becomes_warmer", edit), project.parent / "other")

    present = digest(promise("test_water_becomes_warmer", COLD), project)
    assert of("return 0", "return 1") == present
    assert of("def test_nothing(): heat(20)", "def test_nothing(): heat(30)", file=TEST) == present
    assert of("return water\n\n\nclass", "return water - 0\n\n\nclass") != present
    assert of("== 21\n\ndef test_nothing", "== 1 + 20\n\ndef test_nothing", file=TEST) != present
    fill = Edit("kettle/water.py", "class Kettle:\n    def fill(self, water):", "class Kettle:\n    def fill(self, x):")
    assert of("return 0", "return 1", edit=fill) == digest(promise("test_water_becomes_warmer", fill), project)


def test_rows_that_differ_from_the_record_are_unproven_until_they_are_recorded(project: Path) -> None:
    data = """
        page: docs/kettle.md
        promises:
        - promise: Water becomes warmer
          test: tests/unit/test_water.py::test_water_becomes_warmer
          mistake: the water stays cold
          edits:
          - file: kettle/water.py
            from: "return water + 1"
            to: "return water"
        """
    (project / "tests/promises/kettle.yaml").write_text(dedent(data))
    (project / rows.PROVEN).write_text('{"docs/kettle.md: A promise of the past": "0"}')
    (row,) = unproven(rows.read(project), project)
    record(row, project)
    assert unproven(rows.read(project), project) == []
    assert recorded(project) == {row.key: digest(row, project)}
    (project / TEST).write_text(TESTS.replace("== 21", "== 20 + 1"))
    assert unproven(rows.read(project), project) == [row]


def test_rows_are_chosen_by_words_of_the_promise_the_page_and_the_test() -> None:
    row = promise("test_nothing")
    assert rows.chosen([row], ["WARMER", "kettle.md", "unit"]) == [row]
    assert rows.chosen([row], ["warmer", "colder"]) == []


def test_the_command_prints_each_verdict_and_fails_unless_all_tests_notice(project: Path) -> None:
    entry = """
        - promise: {promise}
          test: tests/unit/test_water.py::{test}
          mistake: the water stays cold
          edits: [{{file: kettle/water.py, from: return water + 1, to: return water}}]
        """
    warm = entry.format(promise="Water becomes warmer", test="test_water_becomes_warmer")
    loose = entry.format(promise="Water is water", test="test_nothing")
    text = dedent(f"page: docs/kettle.md\npromises:\n{dedent(warm)}{dedent(loose)}")
    (project / "tests/promises/kettle.yaml").write_text(text)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "testbed.promises", *arguments)
        return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)

    done = run()
    assert done.returncode == 1, done.stderr
    assert [line.split("  ")[0] for line in done.stdout.splitlines()][:2] == ["bites", "does not bite"]
    assert "1 of 2 tests noticed the mistake" in done.stdout
    assert list(recorded(project)) == ["docs/kettle.md: Water becomes warmer"]
    assert list((project / "build" / "promises").iterdir()) == []

    changed = run("--changed", "--output=json")
    assert changed.returncode == 1
    (found,) = json.loads(changed.stdout)
    assert (found["promise"], found["verdict"]) == ("Water is water", DOES_NOT_BITE)
    assert run("--changed", "warmer").returncode == 0
    assert run("colder").returncode == 2
