"""Mutants of a module each have one small mistake, and the verdict on each is that of the tests that can notice it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from testbed.mutants.lines import RECORDS, Lines, keys
from testbed.mutants.mistakes import PACKAGES, Mutant, Place, mutants, nearest_tests, place, sample
from testbed.suite.changed import dependents

ROOT = Path(__file__).parents[3]
KETTLE = '''
"""Water."""
LIMIT = 100


def heat(water: int) -> int:
    """Make it warmer."""
    assert water >= 0
    if water < LIMIT:
        return water + 1
    return water


def pour(water: int) -> int:
    cups = 0
    while water > 0:
        water -= 1
        cups += 1
    return cups
'''
TESTS = """
import logging
from netdra.rules.kettle import heat, pour

def test_water_becomes_warmer():
    logging.error("the water is cold")
    assert (heat(20), heat(200)) == (21, 200)

def test_water_is_poured():
    assert pour(3) == 3
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one module and one file of tests."""
    for name in (
        "netdra/__init__.py",
        "netdra/rules/__init__.py",
        "netdra/rules/kettle.py",
        "tests/unit/test_kettle.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "netdra/rules/kettle.py").write_text(KETTLE)
    (tmp_path / "tests/unit/test_kettle.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / ".gitignore").write_text("__pycache__/\nbuild/\n")
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # most of the time would be their imports
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_timeout")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*arguments: str) -> tuple[str, ...]:
    return ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "testbed.mutants", *arguments)


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=project, capture_output=True, text=True, check=False)


def mutated(source: str) -> list[str]:
    """The mutants of a module, without empty lines and spaces around them."""
    return [mutant.apply(source).strip() for mutant in mutants("m.py", source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b <= c", ["(a <= b <= c)", "(a < b < c)"]),
        ("a > b >= c", ["(a >= b >= c)", "(a > b > c)"]),
        ("a == b != c", ["(a != b != c)", "(a == b == c)"]),
        ("a in b not in c", ["(a not in b not in c)", "(a in b in c)"]),
        ("a is b is not c", ["(a is not b is not c)", "(a is b is c)"]),
        ("a and b or c", ["((a and b) and c)", "(a or b) or c"]),
        ("not a", ["(a)"]),
        ("7", ["(8)"]),
        ("min(a, b)", ["(max(a, b))"]),
        ("all(a)", ["(any(a))"]),
        ("'ü' + f(1)", ["'ü' + f((2))"]),
        ("a if b else c", ["a if (not (b)) else c"]),
        ("[a for a in b if c]", ["[a for a in b if (not (c))]"]),
        ("a if b == c else d", ["a if (b != c) else d"]),
        ("a if b < c else d", ["a if (not (b < c)) else d", "a if (b <= c) else d"]),
        ("f'{1 < 2}'", []),
        ("True", []),
    ],
)
def test_an_expression_has_these_mutants(source: str, expected: list[str]) -> None:
    assert mutated(f"x = {source}") == [f"x = {each}" for each in expected]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("f(a)", ["pass"]),
        ("a.b = c", ["pass"]),
        ("a[b] = c", ["pass"]),
        ("a = b", []),
        ("a += b", ["pass"]),
        ("del a", ["pass"]),
        ("raise a", ["pass"]),
        ("assert a < b", []),
        ("'a text'", []),
        ("def f(a: A[1]) -> A[1]: return a", ["def f(a: A[1]) -> A[1]: return None"]),
        ("def f(): return None", []),
        ("def f(): return", []),
        ("@f(1)\ndef g(): ...", []),
        ("while True: break", ["while True: pass"]),
        ("match a:\n  case b if c: d = b", ["match a:\n  case b if (not (c)): d = b"]),
    ],
)
def test_a_statement_has_these_mutants(source: str, expected: list[str]) -> None:
    assert mutated(source) == expected


@pytest.mark.parametrize("package", PACKAGES)
def test_every_mutant_of_the_code_differs_in_syntax_and_can_be_compiled(package: str) -> None:
    for path in sorted((ROOT / package).glob("*.py")):
        source = path.read_text(encoding="utf-8")
        for mutant in sample(list(mutants(str(path), source)), 5, 0):
            assert mutant.diff(source)
            compile(mutant.apply(source), path, "exec")


def test_the_lines_of_a_mutant_are_shown_before_and_after() -> None:
    source = "if a:\n    f(\n        b,\n    )\nc = 1\n"
    (mutant,) = [each for each in mutants("m.py", source) if each.kind == "removed statement"]
    assert (mutant.line, mutant.diff(source)) == (2, "-    f(\n-        b,\n-    )\n+    pass")


STATEMENTS = """
def f(
    a=1,
):
    if (a <
            2):
        return g(
            a,
            3)
    match a:
        case 4 if 5: pass
"""


@pytest.mark.parametrize(
    ("number", "lines"), [(1, [2, 3, 4]), (2, [5, 6]), (3, [7, 8, 9]), (5, [11])], ids=["default", "if", "call", "case"]
)
def test_the_lines_of_a_mutant_are_those_of_its_statement_without_the_statements_in_it(
    number: int, lines: list[int]
) -> None:
    found = [each for each in mutants("m.py", STATEMENTS) if each.new == f"({number + 1})"]
    assert [[*place(mutant, STATEMENTS).lines] for mutant in found] == [lines]
    assert [place(mutant, STATEMENTS).in_function for mutant in found] == [number > 1]


def test_a_sample_is_that_of_its_seed_with_the_same_share_of_each_package() -> None:
    members = [
        Mutant(f"netdra/{package}/a.py", line, "", 0, 0, "") for package in ("rules", "chain") for line in range(50)
    ]
    few = sample(members, 10, 1)
    assert few == sample(members, 10, 1)
    assert few != sample(members, 10, 2)
    assert len(set(few)) == 10
    assert Counter(mutant.package for mutant in few) == {"netdra/rules": 5, "netdra/chain": 5}
    assert set(sample(members, 1000, 1)) == set(members)


def test_the_tests_of_a_mutant_are_those_of_the_package_and_the_nearest_with_the_namesake_first() -> None:
    mutant = Mutant("netdra/rules/a.py", 1, "", 0, 0, "")
    dependents = {
        "netdra/rules/a.py": {"netdra/rules/b.py", "tests/unit/other/test_x.py", "tests/kernel/test_k.py"},
        "netdra/rules/b.py": {"netdra/rules/c.py", "tests/unit/rules/test_b.py", "tests/unit/other/test_a.py"},
        "netdra/rules/c.py": {"tests/unit/rules/test_c.py", "tests/unit/other/test_c.py", "netdra/rules/a.py"},
    }
    assert nearest_tests(mutant, dependents) == [
        "tests/unit/other/test_a.py",
        "tests/unit/other/test_x.py",
        "tests/unit/rules/test_b.py",
        "tests/unit/rules/test_c.py",
    ]
    assert nearest_tests(mutant, dependents, "tests/kernel") == ["tests/kernel/test_k.py"]


def line_of(text: str) -> str:
    """The option for the mutants of a line of the module."""
    return f"--module=netdra/rules/kettle.py:{KETTLE.splitlines().index(text) + 1}"


def test_a_mutant_is_killed_if_a_test_fails_and_survives_if_all_pass(project: Path) -> None:
    done = run(project, line_of("    if water < LIMIT:"), "--seed=1", "--output=json")
    assert done.returncode == 0, done.stderr
    found = {each["diff"].splitlines()[1]: (each["verdict"], each["test"]) for each in json.loads(done.stdout)}
    assert found == {
        "+    if (not (water < LIMIT)):": ("killed", "tests/unit/test_kettle.py::test_water_becomes_warmer"),
        "+    if (water <= LIMIT):": ("survived", ""),
    }
    assert "    +    if (water <= LIMIT):" in done.stderr.splitlines()
    assert "netdra/rules             1 of    2 killed" in done.stderr
    assert (project / "netdra/rules/kettle.py").read_text() == KETTLE
    assert [path.name for path in (project / "build/mutants").iterdir()] == ["lines"]


def test_a_mutant_that_loops_is_a_timeout_and_does_not_survive(project: Path) -> None:
    done = run(project, line_of("        water -= 1"), "--seed=1", "--test-seconds=1")
    words = [row.split()[0] for row in done.stdout.splitlines() if "netdra/rules/kettle.py:" in row]
    assert sorted(words) == ["killed", "timeout"], done.stdout + done.stderr
    assert "2 of    2 killed (100%)" in done.stdout


DRAWN = """
from pathlib import Path
from hypothesis import given, strategies as st
from netdra.rules.kettle import heat

@given(st.integers(0, 90))
def test_water_becomes_warmer(water):
    is_warmer = heat(water) == water + 1
    with Path("outcomes").open("a") as file:
        file.write("." if is_warmer else "F")
    assert is_warmer
"""


def test_a_property_ends_with_the_first_example_that_fails(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_timeout -p hypothesispytest")
    (project / "tests/unit/test_kettle.py").write_text(DRAWN.replace('"outcomes"', repr(str(project / "outcomes"))))
    done = run(project, line_of("        return water + 1"), "--seed=1", "--count=1")
    assert "killed " in done.stdout, done.stdout + done.stderr
    outcomes = (project / "outcomes").read_text()
    assert 1 <= outcomes.count("F") <= 3, "no shorter example is searched"


def test_a_test_that_fails_without_the_mistake_is_an_error(project: Path) -> None:
    (project / "tests/unit/test_kettle.py").write_text(f"from pathlib import Path\n{TESTS}    Path('ran').mkdir()\n")
    done = run(project, line_of("    while water > 0:"), "--count=1")
    assert done.returncode == 1, done.stderr
    assert "tests fail without a mistake, too, so the results are not valid" in done.stdout
    assert "FileExistsError" in done.stdout


def recorded(project: Path, line: str, tests: str) -> list[str]:
    """The recorded tests that execute a line of the module."""
    file = "tests/unit/test_kettle.py"
    (project / file).write_text(tests)
    done = run(project, line_of(line), "--count=1")
    assert done.returncode == 0, done.stdout + done.stderr
    number = KETTLE.splitlines().index(line) + 1
    lines = Lines(RECORDS, keys([file], dependents()))
    return sorted(
        test.partition("::")[2]
        for test in lines.tests("netdra/rules/kettle.py", Place(range(number, number + 1), False), [], 60.0)
    )


POURED = """
import pytest
from netdra.rules.kettle import heat, pour

@pytest.fixture(scope="module")
def cups(): return pour(3)

@pytest.mark.parametrize("water", [0, 3])
def test_water_is_poured(water): assert pour(water) == water

def test_water_is_in_cups(cups): assert cups == 3

def test_water_is_in_all_cups(cups): assert cups > 0

def test_water_becomes_warmer(): assert heat(20) == 21

def test_water_is_lost(): assert pour(3) == 2
"""


def test_the_tests_of_a_line_are_those_that_execute_it_themselves_or_by_a_fixture_and_pass(project: Path) -> None:
    assert recorded(project, "        cups += 1", POURED) == [
        "test_water_is_in_all_cups",
        "test_water_is_in_cups",
        "test_water_is_poured[3]",
    ]


CACHED = """
import functools
import netdra.rules.kettle as kettle

def test_water_is_poured(): assert kettle.poured() == 3

def test_water_is_poured_again(): assert kettle.poured() == 3
"""


def test_a_result_that_an_earlier_test_left_in_a_cache_does_not_hide_a_line(project: Path) -> None:
    module = project / "netdra/rules/kettle.py"
    module.write_text(KETTLE + "\nimport functools\n\n@functools.cache\ndef poured():\n    return pour(3)\n")
    assert recorded(project, "        cups += 1", CACHED) == ["test_water_is_poured", "test_water_is_poured_again"]


def test_a_line_that_imports_execute_has_the_tests_of_its_module(project: Path) -> None:
    assert recorded(project, "LIMIT = 100", TESTS) == ["test_water_becomes_warmer", "test_water_is_poured"]


def test_a_file_of_tests_is_recorded_again_only_after_a_change(project: Path) -> None:
    def recordings() -> list[str]:
        done = run(project, line_of("    if water < LIMIT:"), "--seed=1", "--count=1")
        assert done.returncode == 0, done.stdout + done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith("recording")]

    other = project / "tests/unit/test_pot.py"
    other.write_text(TESTS)
    assert recordings() == ["recording which lines are executed by the tests of 2 files"]
    other.write_text(TESTS + "\n")
    assert recordings() == ["recording which lines are executed by the tests of 1 files"]
    (project / "netdra/rules/kettle.py").write_text(KETTLE + "\n")
    assert recordings() == ["recording which lines are executed by the tests of 2 files"]
    assert recordings() == []


def test_a_module_without_mutants_is_an_error(project: Path) -> None:
    done = run(project, "--module=netdra/rules/pot.py")
    assert done.returncode == 2
    assert "'netdra/rules/pot.py' does not contain code that can be mutated" in done.stdout


def test_an_interrupted_run_reports_the_results_so_far(project: Path) -> None:
    with subprocess.Popen(command("--seed=1"), cwd=project, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        lines = iter(running.stdout.readline, "")
        assert any("kettle.py:" in line for line in lines)
        os.kill(running.pid, signal.SIGINT)
        rest = list(lines)
    assert running.returncode == 130
    assert any(" killed (" in line for line in rest)
    assert [path.name for path in (project / "build/mutants").iterdir()] == ["lines"]
