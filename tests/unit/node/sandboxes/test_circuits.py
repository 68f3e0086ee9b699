"""A plugin that does not answer is left alone for a while, and its pods are refused at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.chain.report import FailedAttachReport, StepFailure, UndoReport, attach_error
from netdra.cni.errors import PluginFailure, plugin_error
from netdra.model.errors import NetdraError, PermanentError
from netdra.model.plan import programs
from netdra.node.sandboxes.circuits import VAIN_SECONDS, Circuits, NotAnsweringError
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
    text = '"slow" did not answer in time; it is not started for 5 s'
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


def test_an_interrupted_trial_is_not_counted_and_the_next_sandbox_may_try(
    circuits: Circuits, clock: Clock, sandboxes: ExitStack
) -> None:
    tried(circuits, hanging())
    clock.now += 5
    with pytest.raises(KeyboardInterrupt), circuits.trying(("slow",)):
        raise KeyboardInterrupt
    assert not refused(circuits, sandboxes)
    assert refused(circuits, sandboxes)


def test_a_trial_failed_for_another_reason_is_not_counted_and_the_next_sandbox_may_try(
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


def waited(circuits: Circuits, clock: Clock, seconds: float, problem: NetdraError, *plugins: str) -> None:
    with suppress(NetdraError), circuits.trying(plugins):
        clock.now += seconds
        raise problem


def test_after_a_wait_in_vain_no_plugin_is_tried_for_nine_times_as_long_that_is_not_known_to_answer(
    circuits: Circuits, clock: Clock, sandboxes: ExitStack
) -> None:
    with circuits.trying(["bridge"]):
        clock.now += 0.1
    waited(circuits, clock, 1.0, hanging("slow", waited=0.1), "slow")  # it had too little time to be blamed
    text = 'CNI plugin "{}" is not started now: a pod waited for plugins without an answer'
    for plugin in ("slow", "other"):
        with pytest.raises(NotAnsweringError, match=text.format(plugin)), circuits.trying(["bridge", plugin]):
            raise AssertionError("it is not tried")
    assert not refused(circuits, sandboxes, "bridge")
    assert circuits.may_hang(["other"])
    assert not circuits.may_hang(["bridge"])
    clock.now += 8.9
    assert refused(circuits, sandboxes, "other")
    clock.now += 0.2
    assert not refused(circuits, sandboxes, "other")
    assert not circuits.may_hang(["other"])


@pytest.mark.parametrize(("kind", "silent"), [("error", False), ("timeout", True)])
def test_a_plugin_that_fails_has_answered_however_long_that_took(
    circuits: Circuits, clock: Clock, sandboxes: ExitStack, kind: str, silent: bool
) -> None:
    with circuits.trying(["bridge", "dhcp"]):
        pass
    named: dict[str, Any] = {"topology": "t", "step": "s", "plugin": "dhcp", "execution": "Binary"}
    failure = StepFailure(**named, message="no lease", kind=kind)
    slow = attach_error(FailedAttachReport(sandbox="sb", netns="", failures=(failure,), undone=()))
    waited(circuits, clock, 0.1, slow, "bridge", "dhcp")
    assert not refused(circuits, sandboxes, "dhcp"), "nobody has waited long"
    waited(circuits, clock, 0.8, slow, "bridge", "dhcp")
    assert refused(circuits, sandboxes, "dhcp") is silent
    assert circuits.is_quiet() is silent
    assert not refused(circuits, sandboxes, "bridge")


def test_while_work_goes_on_after_its_time_its_plugins_are_not_tried(
    circuits: Circuits, clock: Clock, sandboxes: ExitStack
) -> None:
    with circuits.trying(["bridge", "slow"]), circuits.trying(["tuning"]):
        pass
    assert not circuits.has_trouble()
    with circuits.working(["slow"], until=clock.now + 1.5):
        assert not refused(circuits, sandboxes, "slow")
        clock.now += 2
        assert circuits.has_trouble()
        assert [refused(circuits, sandboxes, plugin) for plugin in ("slow", "new", "bridge")] == [True, True, False]
        assert circuits.may_hang(["slow"])
    assert not circuits.has_trouble()
    assert not refused(circuits, sandboxes, "slow")


def test_no_hook_waits_for_undoing_by_a_plugin_that_hung_until_it_has_answered(
    circuits: Circuits, clock: Clock
) -> None:
    tried(circuits, hanging())
    clock.now += 3600
    assert circuits.may_hang(["slow"])
    with circuits.trying(["slow"]):
        pass
    assert not circuits.may_hang(["slow"])


def test_chains_without_programs_are_never_rejected_and_blame_no_plugin(circuits: Circuits, clock: Clock) -> None:
    waited(circuits, clock, 1.0, PermanentError("the kernel took long"))
    assert not circuits.has_trouble()
    tried(circuits, hanging())
    with circuits.trying(()):
        pass
    assert not circuits.may_hang(())


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", "d"]),
            st.floats(0.0, 1.75),
            st.sampled_from(["answers", "hangs", "fails"]),
            st.floats(0.0, 15.0),
        ),
        max_size=40,
    )
)
def test_long_vain_waits_for_plugins_not_known_to_answer_take_at_most_a_tenth_of_the_time(
    pods: list[tuple[str, float, str, float]],
) -> None:
    clock = Clock()
    circuits = Circuits(clock=clock)
    answering: set[str] = set()
    quiet_until = 0.0
    for plugin, seconds, outcome, pause in pods:
        began = clock.now
        try:
            with circuits.trying([plugin]):
                clock.now += seconds
                if outcome != "answers":
                    raise hanging(plugin, waited=seconds if outcome == "hangs" else 0.0)
        except NotAnsweringError:
            assert clock.now == began
        except NetdraError:
            if seconds >= VAIN_SECONDS:
                assert plugin in answering or began >= quiet_until
                quiet_until = max(quiet_until, clock.now + 8.999 * seconds)
                answering.discard(plugin)
        else:
            answering.add(plugin)
        clock.now += pause


def test_programs_are_the_binaries_of_a_plan_and_those_that_give_addresses() -> None:
    ipam = {"type": "host-local"}
    steps = (step("a", "host-device", "net1", {"ipam": ipam}), step("b", "macvlan", "net2"), step("c", "bond", "b0"))
    assert programs([plan(*steps)]) == {"host-local", "macvlan"}
