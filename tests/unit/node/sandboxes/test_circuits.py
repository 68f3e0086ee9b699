"""A plugin that does not answer is left alone for a while, and its pods are refused at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from netdra.chain.report import FailedAttachReport, StepFailure, UndoReport, attach_error
from netdra.cni.errors import PluginFailure, plugin_error
from netdra.model.errors import NetdraError, PermanentError
from netdra.node.sandboxes.circuits import Circuits, NotAnsweringError, programs
from tests.plans import plan, step


class Clock:
    """A clock that the test turns."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def told() -> list[tuple[str, float]]:
    return []


@pytest.fixture
def circuits(clock: Clock, told: list[tuple[str, float]]) -> Circuits:
    return Circuits(lambda plugin, seconds: told.append((plugin, seconds)), clock)


def hanging(plugin: str = "slow", waited: float = 0.9) -> NetdraError:
    return plugin_error(PluginFailure(plugin=plugin, verb="ADD", kind="timeout", message="", waited=waited))


@pytest.fixture
def sandboxes() -> Iterator[ExitStack]:
    """The sandboxes that are just being attached."""
    with ExitStack() as stack:
        yield stack


def tried(circuits: Circuits, problem: NetdraError, *plugins: str) -> None:
    with pytest.raises(type(problem)) as raised, circuits.trying(plugins or ("slow",)):
        raise problem
    assert raised.value is problem


def refused(circuits: Circuits, sandboxes: ExitStack, *plugins: str) -> bool:
    try:
        sandboxes.enter_context(circuits.trying(plugins or ("slow",)))
    except NotAnsweringError:
        return True
    return False


def test_the_pods_of_a_plugin_that_hung_are_refused_and_those_of_others_are_not(
    circuits: Circuits, sandboxes: ExitStack
) -> None:
    tried(circuits, hanging())
    text = '"slow" did not answer in time, and is left alone for 5 s'
    with pytest.raises(NotAnsweringError, match=text), circuits.trying(["slow"]):
        raise AssertionError("it is not tried")
    assert refused(circuits, sandboxes, "other", "slow")
    assert not refused(circuits, sandboxes, "other")


def test_it_is_left_alone_twice_as_long_each_time_up_to_five_minutes(
    circuits: Circuits, clock: Clock, told: list[tuple[str, float]]
) -> None:
    for _ in range(9):
        tried(circuits, hanging())
        clock.now += told[-1][1]
    assert [seconds for _, seconds in told] == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_one_sandbox_tries_it_and_lets_the_others_in_when_it_answers(
    circuits: Circuits, clock: Clock, sandboxes: ExitStack
) -> None:
    tried(circuits, hanging())
    clock.now += 5
    with circuits.trying(("slow",)):
        assert refused(circuits, sandboxes)
    assert not refused(circuits, sandboxes)
    assert not refused(circuits, sandboxes)


def test_a_trial_that_is_cut_off_says_nothing_of_it_and_the_next_one_tries(
    circuits: Circuits, clock: Clock, sandboxes: ExitStack
) -> None:
    tried(circuits, hanging())
    clock.now += 5
    with pytest.raises(KeyboardInterrupt), circuits.trying(("slow",)):
        raise KeyboardInterrupt
    assert not refused(circuits, sandboxes)
    assert refused(circuits, sandboxes)


def test_who_failed_for_another_reason_says_nothing_of_it_and_the_next_one_tries(
    circuits: Circuits, clock: Clock, sandboxes: ExitStack
) -> None:
    tried(circuits, hanging())
    clock.now += 5
    tried(circuits, PermanentError("no such device"))
    assert not refused(circuits, sandboxes)
    assert refused(circuits, sandboxes)


def test_many_that_hang_at_once_count_once(circuits: Circuits, told: list[tuple[str, float]]) -> None:
    def attach(others: int) -> None:
        with circuits.trying(["slow"]):
            if others:
                with suppress(NetdraError):
                    attach(others - 1)
            raise hanging()

    with suppress(NetdraError):
        attach(8)
    assert told == [("slow", 5)]


def test_a_plugin_that_was_called_too_late_does_not_count_as_hanging(circuits: Circuits, sandboxes: ExitStack) -> None:
    tried(circuits, hanging(waited=0.1))
    assert not refused(circuits, sandboxes)


def test_undoing_that_hangs_counts_and_so_does_a_plugin_that_gives_addresses(
    circuits: Circuits, told: list[tuple[str, float]], sandboxes: ExitStack
) -> None:
    named: dict[str, Any] = {"topology": "t", "step": "s", "plugin": "host-device", "execution": "Builtin"}
    failure = StepFailure(**named, message="", kind="timeout", hung="host-local")
    undone = UndoReport(**named, outcome="failed", hung="far")
    report = FailedAttachReport(sandbox="sb", netns="", failures=(failure,), undone=(undone,))
    tried(circuits, attach_error(report), "host-local", "far")
    assert told == [("host-local", 5), ("far", 5)]
    circuits.open(["more"])
    assert refused(circuits, sandboxes, "more")


def test_programs_are_the_binaries_of_a_plan_and_those_that_give_addresses() -> None:
    ipam = {"type": "host-local"}
    steps = (step("a", "host-device", "net1", {"ipam": ipam}), step("b", "macvlan", "net2"), step("c", "bond", "b0"))
    assert programs([plan(*steps)]) == {"host-local", "macvlan"}
