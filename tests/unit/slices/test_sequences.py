"""The invariants after every step of any sequence: no device is allocated twice, too much, or despite an exclusion."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from decimal import Decimal

import msgspec
import pytest

from netdra.model import quantity
from netdra.model.claim import DeviceRequestAllocationResult
from netdra.model.resource import Device, ResourceSlice
from netdra.slices.allocator import Allocation
from tests.drawn.cases import Case, broken_exclusion, draw, given

CASES = 150
Held = list[DeviceRequestAllocationResult]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [draw("sequences", number, "node") for number in range(CASES)]


def states(case: Case) -> Iterator[Held]:
    """The devices in use after each step."""
    pods: dict[str, Held] = {}
    for step in case.steps:
        pods.pop(step.leaves, None)
        if isinstance(step.outcome, Allocation):
            pods[step.pod] = given(step.outcome.claims)
        yield [result for held in pods.values() for result in held]


def devices(case: Case) -> dict[tuple[str, str, str], Device]:
    specs = [msgspec.convert(each, ResourceSlice).spec for each in case.slices]
    return {(spec.driver, spec.pool.name, device.name): device for spec in specs for device in spec.devices}


def key(result: DeviceRequestAllocationResult) -> tuple[str, str, str]:
    return result.driver, result.pool, result.device


def test_personas_that_exclude_each_other_are_never_in_use_together(cases: list[Case]) -> None:
    """Decision D2, by an account of exclusions that is independent of the counters."""
    for case in cases:
        for held in states(case):
            assert not broken_exclusion(case, held), case.name
    assert sum(bool(case.exclusive) for case in cases) > CASES / 4


def test_an_exclusive_device_has_one_holder_and_shares_have_ids_of_their_own(cases: list[Case]) -> None:
    for case in cases:
        known = devices(case)
        for held in states(case):
            alone = [key(result) for result in held if not known[key(result)].allow_multiple_allocations]
            shares = [result.share_id for result in held if known[key(result)].allow_multiple_allocations]
            assert max(Counter(alone).values(), default=1) == 1, case.name
            assert None not in shares
            assert max(Counter(shares).values(), default=1) == 1, case.name


def test_no_capacity_is_given_away_twice(cases: list[Case]) -> None:
    for case in cases:
        known = devices(case)
        for held in states(case):
            used: defaultdict[tuple[tuple[str, str, str], str], Decimal] = defaultdict(Decimal)
            for result in held:
                for name, amount in result.consumed_capacity.items():
                    used[key(result), name] += quantity.parse(amount)
            for (device, name), total in used.items():
                assert total <= quantity.parse(known[device].capacity[name].value), case.name


def test_no_counter_is_overdrawn(cases: list[Case]) -> None:
    for case in cases:
        known = devices(case)
        totals = {
            (published["spec"]["pool"]["name"], counters["name"], name): quantity.parse(counter["value"])
            for published in case.slices
            for counters in published["spec"].get("sharedCounters", ())
            for name, counter in counters["counters"].items()
        }
        for held in states(case):
            left = dict(totals)
            for device in {key(result) for result in held}:
                for draws in known[device].consumes_counters:
                    for name, counter in draws.counters.items():
                        left[device[1], draws.counter_set, name] -= quantity.parse(counter.value)
            assert min(left.values(), default=0) >= 0, case.name
