"""A run of the tests reports the truth: failed, flaky and skipped tests, and tests that never ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.suite import results, retry, summary
from testbed.suite.levels import Job
from testbed.suite.times import compared
from tests.unit.testbed.suite.conftest import Project

FAILS_ONCE = """
    from pathlib import Path

    def test_it():
        mark = Path("was-here")
        first = not mark.exists()
        mark.touch()
        print("printed by the first" if first else "printed by the second")
        assert not first, "not yet"
"""
TOUCHING = """
import pathlib, time

def test_it():
    pathlib.Path('{level}').touch()
"""
MEETING = """
    end = time.monotonic() + 60
    while not all(pathlib.Path(other).exists() for other in {others!r}):
        assert time.monotonic() < end
        time.sleep(0.02)
"""


def test_passed_tests_are_reported_with_their_wait_times_and_recorded(project: Project) -> None:
    project.test(
        "a",
        """
        import time
        from testbed.waiting import waiting

        def test_waits():
            with waiting("a kettle"):
                time.sleep(0.2)

        def test_does_not():
            pass
        """,
    )
    project.test("b", "def test_it(): pass")
    runs = project.run()
    assert summary.passed(runs)
    assert [len(run.of("passed")) for run in runs] == [2, 1]
    assert "(waited 0.2 s for a kettle)" in project.shown.getvalue()
    kept = json.loads(results.KEPT.read_text())["levels"]["a"]["tests"]["tests/a/test_it.py::test_waits"]
    assert kept["outcome"] == "passed"
    assert kept["seconds"] >= kept["waits"]["a kettle"] >= 0.2  # both are rounded to milliseconds


@pytest.mark.parametrize("name", ["", "a core"])
def test_levels_that_need_a_core_alone_are_not_side_by_side(
    project: Project, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    for level in ("a", "b"):
        alone = "    time.sleep(1)\n    assert not pathlib.Path('b').exists()\n" if name and level == "a" else ""
        beside = "" if name else MEETING.format(others="ab")
        project.test(level, TOUCHING.format(level=level) + beside + alone, alone_with=name)
    assert summary.passed(project.run())


def test_a_level_begins_behind_the_one_that_decides_when_the_run_ends(project: Project) -> None:
    project.test("first", "import time\n\ndef test_it(): time.sleep(1)\n", alone_with="a core")
    project.test("behind", "def test_it(): pass\n", behind="long")
    project.test("long", "def test_it(): pass\n", alone_with="a core")
    assert summary.passed(project.run())
    assert project.began == ["first", "long", "behind"]


def test_a_level_that_mostly_waits_leaves_its_core_to_another_one(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    met = MEETING.format(others="abc") + "    assert not pathlib.Path('d').exists()\n    "
    for level, load in (("a", 1.0), ("b", 0.5), ("c", 0.5)):
        looked = f"pathlib.Path('{level}{level}').touch()\n" + MEETING.format(others=["aa", "bb", "cc"])
        project.test(level, TOUCHING.format(level=level) + met + looked, load=load, again=False)
    project.test("d", TOUCHING.format(level="d"), load=1.0, again=False)
    assert summary.passed(project.run())
    assert project.began == ["a", "b", "c", "d"]


@pytest.mark.parametrize("load", [1.0, 2.0])
def test_a_level_that_decides_when_a_run_ends_has_its_core_kept_and_begins_when_none_is_free(
    project: Project, load: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    preparation = Job("preparation", ("sleep", "1"))
    monkeypatch.setattr("testbed.suite.run.needed", lambda _: [preparation])
    project.test("a", TOUCHING.format(level="a") + MEETING.format(others=["long"]), load=load, again=False)
    project.test("b", "def test_it(): pass", again=False)
    project.test("long", TOUCHING.format(level="long"), first=True, after=("preparation",), again=False)
    assert summary.passed(project.run())
    assert project.began == ["a", "long", "b"]


def test_a_test_that_fails_is_shown_with_the_command_that_runs_it_again(project: Project) -> None:
    project.test("a", "def test_it(): assert 1 == 2", again=False)
    runs = project.run()
    told = project.conclusion(runs)
    assert not summary.passed(runs)
    assert "assert 1 == 2" in told
    assert "FAILED  make test-a ARGS=tests/a/test_it.py::test_it\n        assert 1 == 2" in told


def test_a_test_that_passes_on_retry_is_flaky_and_keeps_both_logs(project: Project) -> None:
    project.test("a", FAILS_ONCE)
    runs = project.run()
    told = project.conclusion(runs)
    assert summary.passed(runs)
    assert "1 flaky" in told
    (folder,) = retry.FLAKES.iterdir()
    assert f"both logs: {folder}" in told
    first, second = ((folder / name).read_text() for name in ("first.txt", "second.txt"))
    assert "not yet" in first
    assert "printed by the first" in first
    assert "1 passed" in second


def test_a_test_that_fails_twice_is_a_failure(project: Project) -> None:
    project.test("a", "def test_it(): assert False")
    runs = project.run()
    assert not summary.passed(runs)
    assert [len(run.of("failed")) for run in runs] == [1]


def test_pure_functions_are_never_tried_again(project: Project) -> None:
    project.test("a", FAILS_ONCE, again=False)
    assert not summary.passed(project.run())
    assert not retry.FLAKES.exists()


def test_more_failures_than_can_be_an_accident_are_not_tried_again(project: Project) -> None:
    once = FAILS_ONCE.replace(
        "def test_it():", "import pytest\n    @pytest.mark.parametrize('x', range(4))\n    def test_it(x):"
    )
    project.test("a", once.replace('"was-here"', 'f"was-here-{x}"'))
    runs = project.run()
    assert not summary.passed(runs)
    assert [len(run.of("failed")) for run in runs] == [4]


def test_flaky_tests_of_all_levels_are_counted_together(project: Project) -> None:
    runs = [results.Run(level, 1.0, 1.0, (results.Outcome(level, "x", "flaky", 1.0, {}),) * 2) for level in ("a", "b")]
    project.test("a", "")
    project.test("b", "")
    assert not summary.passed(runs)
    assert "4 flaky: more than 3 are not an accident" in project.conclusion(runs)


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("import pytest\n\ndef test_it(): pytest.skip('no root')", "1 tests were skipped"),
        (
            "import os\n\ndef test_it(): os._exit(0)\n\ndef test_other(): pass",
            "2 of 2 tests have not ended",
        ),
        ("", "it ended with code 5"),
    ],
)
def test_a_run_with_skipped_unfinished_or_no_tests_does_not_pass(project: Project, text: str, trouble: str) -> None:
    project.test("a", text, again=False)
    runs = project.run()
    assert not summary.passed(runs)
    assert trouble in project.conclusion(runs)


def test_a_file_that_cannot_be_imported_is_a_failure_with_its_reason(project: Project) -> None:
    project.test("a", "import nothing_of_that_name", again=False)
    runs = project.run()
    assert not summary.passed(runs)
    assert "No module named 'nothing_of_that_name'" in project.conclusion(runs)


def test_a_level_that_does_not_begin_is_begun_once_more_and_that_is_flaky(project: Project) -> None:
    project.test("a", "def test_it(): pass")
    make = project.levels["a"].make
    boot = "test -e booted && shift || { touch booted; echo no carrier; exit 1; }"
    project.level("a", lambda call: ("sh", "-c", f'{boot}; exec "$@"', "sh", "x", *make(call)), again=True)
    runs = project.run()
    assert summary.passed(runs)
    assert [found.test for found in runs[0].of("flaky")] == ["the beginning of a"]
    (folder,) = retry.FLAKES.iterdir()
    assert "no carrier" in (folder / "first.txt").read_text()


def test_two_runs_are_compared_by_level_and_by_test(tmp_path: Path) -> None:
    def run(name: str, seconds: dict[str, float]) -> Path:
        outcomes = tuple(results.Outcome("unit", test, "passed", taken, {}) for test, taken in seconds.items())
        results.keep([results.Run("unit", sum(seconds.values()), 0.0, outcomes)], 60.0, tmp_path / name)
        return tmp_path / name

    before, after = run("before", {"slow": 70.0, "gone": 1.0}), run("after", {"slow": 10.0, "new": 2.0})
    told = list(compared(before, after))
    assert "unit            1:11     0:12" in told
    assert "  -60.0 s  slow" in told
    assert told[-2:] == ["- gone", "+ new"]


def test_a_failure_is_shown_with_only_the_last_log_lines(project: Project) -> None:
    project.test(
        "unit",
        """
        import logging

        def test_it():
            for number in range(500):
                logging.error("line %d", number)
            assert 1 == 2, "the reason"
        """,
        again=False,
    )
    told = project.conclusion(project.run())
    assert "AssertionError: the reason" in told
    assert "line 499" in told
    assert "line 200" not in told
