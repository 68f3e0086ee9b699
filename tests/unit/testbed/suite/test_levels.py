"""Which tests are run: each in a level of `make test`, but for those that need what the project does not have."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from testbed.suite.levels import LEVELS, PREPARATIONS, Call, needed

ROOT = Path(__file__).parents[4]


BEYOND = {"recorded", "release"}
"""Tests of recorded servers, and of the folder that `make release` wrote."""


def commands(*arguments: str) -> list[str]:
    """The commands of the levels of tests."""
    return [" ".join(level.make(Call(arguments))) for level in LEVELS.values()]


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    ours = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "NETDRA_FIXTURES"}}
    return subprocess.run(("make", *arguments), cwd=ROOT, env=ours, capture_output=True, text=True, check=False)


def test_the_tests_of_all_folders_are_in_a_level_but_those_that_need_more_than_the_checkout() -> None:
    folders = {file.relative_to(ROOT / "tests").parts[0] for file in ROOT.glob("tests/**/test_*.py")}
    assert {name for text in commands() for name in re.findall(r"\btests/(\w+)", text)} == folders - BEYOND


def test_each_level_is_a_target_of_make() -> None:
    for name in LEVELS:
        target = name if name == "lint" else f"test-{name}"
        assert make("--dry-run", target).returncode == 0, target


def test_preparations_of_a_level_are_ordered_by_their_dependencies() -> None:
    for name in LEVELS:
        done: set[str] = set()
        for job in needed([name]):
            assert done.issuperset(job.after)
            done.add(job.name)
        assert done.issuperset(LEVELS[name].after)
    assert {job.name for job in needed(list(LEVELS))} == set(PREPARATIONS)


def test_one_test_of_the_second_boot_brings_the_first_one_along() -> None:
    level, second = LEVELS["hardware"], "tests/hardware/real/second_boot.py"
    first, then = " ".join(level.make(Call([f"{second}::test_x"]))), "tests/hardware/real/test_reboot.py"
    assert "--then" in first
    assert first.endswith(then)
    assert "--then" not in level.make(Call(["tests/hardware/test_discovery.py"]))
    assert "--then" in level.make(Call())


def test_a_level_is_spread_over_its_cores() -> None:
    assert "-n" not in LEVELS["unit"].make(Call())
    assert " ".join(LEVELS["unit"].make(Call(cores=1, machine=2))).count("-n 2") == 1
    assert " ".join(LEVELS["unit"].make(Call(cores=3, machine=4))).count("-n 3") == 1
    # What waits more than it works has processes for the cores that others use meanwhile.
    assert " ".join(LEVELS["cluster"].make(Call(cores=1, machine=2))).count("-n 3") == 1
    assert " ".join(LEVELS["pods"].make(Call(cores=1, machine=2))).count("-n 4") == 1
    assert "-n" not in LEVELS["cluster"].make(Call(["tests/cluster/test_crds.py::test_x"]))


def test_tests_of_pods_are_in_their_own_level_and_can_be_named_in_the_other() -> None:
    left, pods = LEVELS["cluster"].make(Call()), LEVELS["pods"].make(Call())
    assert [path for path in pods if path.startswith("tests/")] == ["tests/cluster/install", "tests/cluster/pods"]
    assert {f"--ignore={path}" for path in pods if path.startswith("tests/")} < set(left)
    assert not [each for each in LEVELS["cluster"].make(Call(["tests/cluster/pods"])) if each.startswith("--ignore")]


def test_the_emulated_machine_is_begun_before_all_levels_that_would_have_it_wait() -> None:
    later = {name for name, level in LEVELS.items() if level.behind == "hardware"}
    assert later == {"machine", "pods"}
    assert {name for name, level in LEVELS.items() if level.alone_with} <= {"hardware", *later}


def test_the_emulated_machine_and_the_tests_of_clusters_leave_two_cores_room_for_one_other_level() -> None:
    kept = sum(level.cores * level.load for level in LEVELS.values() if level.first)
    assert {name for name, level in LEVELS.items() if level.first} == {"hardware", "cluster"}
    assert 2 - min(level.load for level in LEVELS.values()) < kept < 2


def test_levels_that_wait_for_nothing_begin_after_the_long_ones_that_wait() -> None:
    order = list(LEVELS)
    assert max(map(order.index, ("hardware", "cluster", "kernel", "pods"))) < min(map(order.index, ("lint", "unit")))


def test_make_without_recorded_trees_names_the_variable_to_set() -> None:
    done = make("test-recorded")
    assert done.returncode != 0
    assert "set NETDRA_FIXTURES to the folder of the recorded trees" in done.stderr
