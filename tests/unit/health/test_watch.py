"""Faults begin and end by evidence alone: no reset, gap or wrap makes one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from netdra.health.rules import TaintWish, grant, most
from netdra.health.watch import NEAR, WRAP, Counted, HealthWatch, WatchedDevice, increase
from netdra.model.health import HealthRule

KEY = ("pool", "eth1")
STEPS = st.lists(st.integers(0, 40), min_size=1, max_size=40)
PERCENT = st.integers(0, 100)


def rule(name: str = "crc", **fields: object) -> HealthRule:
    """A rule of 10 errors in 60 seconds, that recovers 30 seconds after less than 2."""
    given = {"counter": "rx_crc_errors", "at_least": 10, "within_seconds": 60, "recover_below": 2}
    return HealthRule(**{**given, "name": name, "recover_after_seconds": 30, "effect": "NoSchedule", **fields})  # type: ignore[arg-type]


def device(*rules: HealthRule, identity: str = "0000:01:00.0") -> WatchedDevice:
    return WatchedDevice(KEY, identity, "nics", rules or (rule(),))


def faulty(watch: HealthWatch, values: Iterable[int | None], of: WatchedDevice, every: float = 10.0) -> list[bool]:
    """Whether the device has a fault after each value of its counter; None is a value that cannot be read."""
    found = []
    for place, value in enumerate(values):
        samples = {} if value is None else {KEY: {rule.counter: value for rule in of.rules}}
        watch.update(every * place, [of], samples)
        found.append(bool(watch.faults()))
    return found


def counter(steps: Sequence[int], start: int = 0) -> list[int]:
    """The values of a counter with these increases."""
    return list(itertools.accumulate(steps, initial=start))


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_an_increase_is_counted_also_over_a_wrap_and_a_reset_counts_from_zero(before: int, grown: int) -> None:
    assert increase(before, before + grown) == grown
    if WRAP - NEAR <= before < WRAP and before + grown >= WRAP and grown < NEAR:
        assert increase(before, before + grown - WRAP) == grown
    assert increase(before, 0) <= (NEAR if WRAP - NEAR <= before < WRAP else 0)


@given(STEPS, st.integers(0, 2**40))
def test_the_increase_of_a_window_is_that_of_its_samples_wherever_the_counter_stood(
    steps: list[int], start: int
) -> None:
    counted = Counted()
    for place, value in enumerate(counter(steps, start)):
        counted.add(10.0 * place, value)
    now = 10.0 * len(steps)
    for seconds in (15, 65, 1000):
        expected = sum(step for place, step in enumerate(steps, start=1) if 10.0 * place > now - seconds)
        assert counted.within(now, seconds) == expected


@given(STEPS, st.integers(0, 2**32 - 1), st.sets(st.integers(0, 40)), st.sets(st.integers(1, 40)))
def test_a_device_without_errors_has_no_fault_with_any_start_gap_or_reset(
    steps: list[int], start: int, gaps: set[int], resets: set[int]
) -> None:
    values: list[int | None] = [start] * len(steps)
    for place in range(len(values)):
        if any(reset <= place for reset in resets):
            values[place] = 0
        if place in gaps:
            values[place] = None
    assert not any(faulty(HealthWatch(), values, device()))


@given(STEPS, st.integers(0, 60), st.integers(0, 60))
def test_a_fault_begins_after_its_duration_and_ends_after_the_value_was_low_long_enough(
    steps: list[int], lasting: int, recovering: int
) -> None:
    """Compared with a model that uses all samples of the past each time."""
    held = rule(for_seconds=lasting, recover_after_seconds=recovering)
    values = counter(steps)
    found = faulty(HealthWatch(), values, device(held))
    windows = [
        sum(step for place, step in enumerate(steps[:now], start=1) if 10 * place > 10 * now - 60)
        for now in range(len(values))
    ]
    is_faulty, expected = False, []
    for now in range(len(values)):
        highs = list(itertools.takewhile(lambda window: window >= 10, reversed(windows[: now + 1])))
        lows = list(itertools.takewhile(lambda window: window < 2, reversed(windows[: now + 1])))
        if not is_faulty and highs and 10 * (len(highs) - 1) >= lasting:
            is_faulty = True
        elif is_faulty and lows and 10 * (len(lows) - 1) >= recovering:
            is_faulty = False
        expected.append(is_faulty)
    assert found == expected


def test_a_value_between_the_two_thresholds_changes_nothing() -> None:
    between = [0, 20, *range(25, 150, 5)]  # 30 in each window from then on
    held = rule(at_least=50, recover_below=20, within_seconds=60)
    assert not any(faulty(HealthWatch(), between, device(held)))
    assert all(faulty(HealthWatch(), [0, 60, *(60 + 5 * step for step in range(1, 20))], device(held))[1:])


def test_a_fault_neither_begins_nor_ends_while_nothing_is_known() -> None:
    held = rule(for_seconds=20, recover_after_seconds=20)
    assert faulty(HealthWatch(), [0, 20, None, 20, 20], device(held)) == [False] * 5
    assert faulty(HealthWatch(), [0, 20, 20, 20, *[None] * 20], device(held))[3:] == [True] * 21
    # The window is empty from the eighth sample on, and the next one is missing.
    after = faulty(HealthWatch(), [0, *[20] * 7, None, 20, 20, 20], device(held))
    assert after == [False] * 3 + [True] * 8 + [False]


def test_a_fault_of_this_boot_is_kept_over_a_restart_and_recovers_by_new_samples_alone() -> None:
    watch = HealthWatch([(KEY, "nics", "crc", 5.0), (("pool", "eth9"), "nics", "crc", 5.0)])
    found = faulty(watch, [70, 70, 70, 70], device())
    assert found == [True, True, True, False]
    assert not any(faulty(HealthWatch([(KEY, "other", "crc", 5.0)]), [70], device()))


def test_another_card_under_the_same_name_and_a_changed_rule_begin_without_fault() -> None:
    watch = HealthWatch()
    assert faulty(watch, [0, 50], device()) == [False, True]
    watch.update(20.0, [device(identity="0000:02:00.0")], {KEY: {"rx_crc_errors": 5_000}})
    assert watch.faults() == ()
    watch.update(30.0, [device(identity="0000:02:00.0")], {KEY: {"rx_crc_errors": 5_050}})
    assert watch.faults()
    watch.update(40.0, [device(rule(at_least=100), identity="0000:02:00.0")], {KEY: {"rx_crc_errors": 5_050}})
    assert watch.faults() == ()
    watch.update(50.0, [], {})
    assert watch.faults() == ()


def test_a_pcie_link_counts_by_its_value_not_by_its_increase() -> None:
    degraded = rule("pcie", counter="pcie_link_degraded", at_least=1, recover_below=1)
    assert faulty(HealthWatch(), [1, 1, 0, 0, 0, 0], device(degraded)) == [True, True, True, True, True, False]


def test_a_fault_has_its_evidence() -> None:
    rules = (rule("report", effect="Report"), rule("taint"), rule("evict", effect="NoExecute"))
    watch = HealthWatch()
    faulty(watch, [3, 3, 40], device(*rules))
    faults = watch.faults()
    assert [fault.rule.name for fault in faults] == ["report", "taint", "evict"]
    assert (faults[0].increase, faults[0].values) == (37, ((0.0, 3), (20.0, 40)))


WISHES = st.lists(
    st.builds(
        TaintWish,
        since=st.sampled_from(["2026-01-01", "2026-01-02"]),
        node=st.sampled_from("abc"),
        pool=st.just("p"),
        device=st.sampled_from([f"d{number}" for number in range(12)]),
    ),
    unique_by=lambda wish: wish.key,
)


@given(WISHES, st.sets(st.sampled_from([("p", f"d{number}") for number in range(12)])), PERCENT, PERCENT)
def test_no_more_than_both_shares_are_tainted_and_a_granted_taint_is_not_taken_back(
    wishes: list[TaintWish], present: set[tuple[str, str]], of_node: int, of_cluster: int
) -> None:
    devices = {"a": 1, "b": 8, "c": 40}
    granted = grant(wishes, present, devices, node_percent=of_node, cluster_percent=of_cluster)
    assert sorted((*granted.tainted, *granted.kept)) == sorted(wishes)
    assert len(granted.tainted) <= most(49, of_cluster)
    for node, count in devices.items():
        assert sum(wish.node == node for wish in granted.tainted) <= most(count, of_node)
    again = grant(
        wishes, {wish.key for wish in granted.tainted}, devices, node_percent=of_node, cluster_percent=of_cluster
    )
    assert set(again.tainted) == set(granted.tainted)
    # None is kept for nothing.
    for wish in granted.kept:
        is_full = sum(other.node == wish.node for other in granted.tainted) >= most(devices[wish.node], of_node)
        assert is_full or len(granted.tainted) >= most(49, of_cluster)


def test_a_share_is_rounded_down_and_allows_one_device_at_least_unless_it_is_zero() -> None:
    assert [most(devices, 10) for devices in (0, 1, 9, 19, 20, 100)] == [0, 1, 1, 1, 2, 10]
    assert most(100, 0) == 0
