"""After any change of a NIC and of its policies: devices of claims stay, and still exclude the same devices."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from itertools import pairwise

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from netdra.exposure import expose
from netdra.model import names, quantity
from netdra.model.device import DEFAULT_FEATURES
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import Device
from netdra.node.publishing.retain import PoolContent, retain
from netdra.slices.limits import device_faults, set_faults
from netdra.slices.pack import pack
from tests.builders import OURS, exclusive, inventory, pf, shared, vf


def pool_of(*policies: DeviceExposurePolicy, num_vfs: int, link_speed: int, in_use: int = 0) -> PoolContent:
    """The published pool of a PF and its VFs."""
    parent = pf("p0", vfs=num_vfs, speed=link_speed)
    vfs = tuple(vf(parent, index, master="br0" if index < in_use else "") for index in range(num_vfs))
    slices = pack(expose(inventory(parent, *vfs), policies), node="worker-1")
    return PoolContent(
        tuple(one for each in slices for one in each.spec.shared_counters),
        tuple(device for each in slices for device in each.spec.devices),
    )


def personas(macvlans: int, ipvlans: int, *, group: str, passthrough: bool, vfs: bool) -> list[DeviceExposurePolicy]:
    """The policies of a NIC with these personas; a shared one with no room is not offered."""
    cel = f'{OURS}.type == "pf"'
    found = [
        shared(name, cel, capacity=f"{name}s", value=slots, deviceNameSuffix=f"-{name}", exclusionGroup=group)
        for name, slots in (("macvlan", macvlans), ("ipvlan", ipvlans))
        if slots
    ]
    found += [exclusive("passthrough", cel)] if passthrough else []
    return found + ([exclusive("vfs", f'{OURS}.type == "vf"', "sriov", allowHostUse=True)] if vfs else [])


pools = st.builds(
    lambda macvlans, ipvlans, group, passthrough, vfs, num_vfs, speed, in_use: pool_of(
        *personas(macvlans, ipvlans, group=group, passthrough=passthrough, vfs=vfs),
        num_vfs=num_vfs,
        link_speed=speed,
        in_use=in_use,
    ),
    st.sampled_from((0, 8, 64)),
    st.sampled_from((0, 8, 64)),
    st.sampled_from(("", "rx")),
    st.booleans(),
    st.booleans(),
    st.sampled_from((0, 1, 2, 4)),
    st.sampled_from((0, 1000, 25000)),
    st.sampled_from((0, 0, 0, 1)),
)


def amounts(device: Device) -> dict[tuple[str, str], Decimal]:
    return {
        (taken.counter_set, counter): quantity.parse(amount.value)
        for taken in device.consumes_counters
        for counter, amount in taken.counters.items()
    }


def totals(pool: PoolContent) -> dict[tuple[str, str], Decimal]:
    return {
        (one.name, counter): quantity.parse(amount.value)
        for one in pool.sets
        for counter, amount in one.counters.items()
    }


def meet(pool: PoolContent, *together: str) -> bool:
    """Whether devices can be allocated at one time, by their counters."""
    drawn: dict[tuple[str, str], Decimal] = {}
    for device in pool.devices:
        if device.name in together:
            for counter, amount in amounts(device).items():
                drawn[counter] = drawn.get(counter, Decimal(0)) + amount
    left = totals(pool)
    return all(amount <= left[counter] for counter, amount in drawn.items())


def device_names(pool: PoolContent) -> set[str]:
    return {device.name for device in pool.devices}


def some_allocation(pool: PoolContent, order: list[int]) -> list[str]:
    """Devices that the scheduler could have given away, tried in an order."""
    found: list[str] = []
    devices = sorted(device_names(pool))
    for number in order:
        if devices and devices[number % len(devices)] not in found:
            candidate = [*found, devices[number % len(devices)]]
            found = candidate if meet(pool, *candidate) else found
    return found


orders = st.lists(st.integers(0, 100), max_size=4)


@settings(max_examples=200)
@given(pools, pools, orders)
def test_held_devices_keep_their_capacity_and_no_counter_is_overdrawn(
    before: PoolContent, wanted: PoolContent, order: list[int]
) -> None:
    held = some_allocation(before, order)
    kept = retain(before, held, wanted)
    published = {device.name: device for device in before.devices}
    for device in kept.devices:
        if device.name in held:
            taken = amounts(device)
            assert all(taken[counter] >= amount for counter, amount in amounts(published[device.name]).items())
            assert device.capacity == published[device.name].capacity
            assert device.allow_multiple_allocations == published[device.name].allow_multiple_allocations
    assert set(held) <= device_names(kept)
    assert meet(kept, *held)
    before_totals, after = totals(before), totals(kept)
    for device in published.values():
        if device.name in held:
            assert all(after[counter] >= before_totals[counter] for counter in amounts(device))


@settings(max_examples=200)
@given(pools, pools, orders)
def test_devices_excluded_by_a_held_device_remain_excluded(
    before: PoolContent, wanted: PoolContent, order: list[int]
) -> None:
    held = some_allocation(before, order)
    kept = retain(before, held, wanted)
    for holding in held:
        for other in device_names(before) & device_names(kept) - set(held):
            if not meet(before, holding, other):
                assert not meet(kept, holding, other), (holding, other)
        # What the new state would not allow to be held together cannot be told of by it.
        if not set(held) <= device_names(wanted) or not meet(wanted, *held):
            continue
        for other in device_names(wanted) & device_names(kept) - set(held):
            if not meet(wanted, holding, other):
                assert not meet(kept, holding, other), (holding, other)


@settings(max_examples=200)
@given(pools, pools, orders)
def test_a_passthrough_device_never_coexists_with_held_devices_of_its_nic(
    before: PoolContent, wanted: PoolContent, order: list[int]
) -> None:
    held = some_allocation(before, order)
    kept = retain(before, held, wanted)
    if "p0" in device_names(kept) and "p0" not in held:
        assert all(not meet(kept, "p0", holding) for holding in held)


@settings(max_examples=200)
@given(pools, pools, orders)
@example(  # a device that takes from no counter is held beside one that does, and a passthrough takes their place
    pool_of(*personas(0, 8, group="", passthrough=False, vfs=True), num_vfs=1, link_speed=0),
    pool_of(*personas(0, 0, group="", passthrough=True, vfs=False), num_vfs=0, link_speed=0),
    [0, 1],
)
def test_the_retained_pool_is_valid_and_retaining_again_changes_nothing(
    before: PoolContent, wanted: PoolContent, order: list[int]
) -> None:
    held = some_allocation(before, order)
    kept = retain(before, held, wanted)
    sets = {one.name: one for one in kept.sets}
    assert not [fault for one in kept.sets for fault in set_faults(one)]
    assert not [fault for device in kept.devices for fault in device_faults(device, sets, DEFAULT_FEATURES)]
    assert retain(kept, held, wanted) == kept


@given(pools, pools)
def test_the_wanted_pool_is_published_when_no_device_is_held(before: PoolContent, wanted: PoolContent) -> None:
    assert retain(before, (), wanted) == wanted
    assert retain(before, ("no-such-device",), wanted) == wanted


def test_released_devices_disappear_and_the_counters_follow() -> None:
    policies = personas(0, 0, group="", passthrough=True, vfs=True)
    many, few = (pool_of(*policies, num_vfs=count, link_speed=1000) for count in (4, 1))
    kept = retain(many, ("p0v3",), few)
    assert device_names(kept) == {"p0", "p0v0", "p0v3"}
    assert totals(kept)["p0-counters", names.EXCLUSION_SLOTS] == 5
    assert not meet(kept, "p0", "p0v3")
    assert retain(kept, (), few) == few


def test_a_link_going_down_takes_no_bandwidth_from_held_devices() -> None:
    policies = personas(0, 0, group="", passthrough=True, vfs=True)
    fast, down = (pool_of(*policies, num_vfs=2, link_speed=speed) for speed in (1000, 0))
    kept = retain(fast, ("p0v0",), down)
    assert totals(kept)["p0-counters", names.BANDWIDTH] == 1000
    assert not meet(kept, "p0", "p0v0")


def test_a_held_shared_device_publishes_its_current_facts() -> None:
    (persona,) = personas(8, 0, group="", passthrough=False, vfs=False)
    slow, fast = (pool_of(persona, num_vfs=0, link_speed=speed) for speed in (1000, 25000))
    (device,) = retain(slow, ("p0-macvlan",), fast).devices
    assert device == fast.devices[0]


def test_a_vf_that_the_host_takes_is_still_kept_from_its_pf_in_use() -> None:
    before = pool_of(*personas(0, 0, group="", passthrough=True, vfs=True), num_vfs=1, link_speed=0)
    wanted = pool_of(*personas(0, 0, group="", passthrough=False, vfs=True), num_vfs=1, link_speed=1000, in_use=1)
    assert not meet(retain(before, ("p0",), wanted), "p0", "p0v0")


def mapping(pool: PoolContent) -> Mapping[str, Device]:
    return {device.name: device for device in pool.devices}


@pytest.mark.parametrize("speeds", [(1000, 0, 25000), (25000, 1000, 0)])
def test_a_series_of_changes_keeps_a_held_device_unchanged_except_its_attributes(speeds: tuple[int, ...]) -> None:
    policies = personas(8, 8, group="rx", passthrough=True, vfs=True)
    row = [pool_of(*policies, num_vfs=2 + number, link_speed=speed) for number, speed in enumerate(speeds)]
    current = row[0]
    first = mapping(current)["p0v1"]
    for _, wanted in pairwise(row):
        current = retain(current, ("p0v1",), wanted)
        assert mapping(current)["p0v1"] == msgspec.structs.replace(
            first, attributes=mapping(current)["p0v1"].attributes
        )


def test_vfs_removed_while_one_is_held_leave_the_shares_of_their_pf_allocatable() -> None:
    ways = personas(64, 0, group="", passthrough=True, vfs=True)
    before = pool_of(*ways, num_vfs=8, link_speed=25000)
    kept = retain(before, ("p0v3",), pool_of(*ways, num_vfs=0, link_speed=25000))
    assert not meet(kept, "p0v3", "p0"), "the held VF is in the way of passthrough"
    assert meet(kept, "p0v3", "p0-macvlan")
