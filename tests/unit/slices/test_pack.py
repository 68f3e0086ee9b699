"""Slices are within the API's limits, with any devices of a node, and nothing illegal breaks other devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.exposure import expose
from netdra.model import names
from netdra.model.device import ExposedCounterSet, ExposedDevice, ExposureResult, Features
from netdra.model.inventory import Inventory
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import DeviceCapacity, DeviceTaint, ResourceSlice
from netdra.slices.pack import encode_attribute, layout, pack
from tests.builders import LIMITS, OURS, exclusive, inventory, shared, sriov


def device(name: str = "d", **fields: Any) -> ExposedDevice:
    return msgspec.convert({"name": name, "pool": "p", "interface": name, "policy": "x"} | fields, ExposedDevice)


def counters(name: str = "c", pool: str = "p", *, values: int = 1, **more: int) -> ExposedCounterSet:
    """A set of counters c0, c1 ... and others by name."""
    return ExposedCounterSet(name=name, pool=pool, counters={f"c{index}": 1 for index in range(values)} | more)


def result(*devices: ExposedDevice, sets: tuple[ExposedCounterSet, ...] = ()) -> ExposureResult:
    return ExposureResult(devices=devices, counter_sets=sets)


def sizes(slices: tuple[ResourceSlice, ...]) -> list[int]:
    return [len(each.spec.devices) for each in slices]


def assert_legal(slices: tuple[ResourceSlice, ...]) -> None:
    """The rules of the API server on each slice, and of the scheduler on each pool."""
    assert len({each.metadata.name for each in slices}) == len(slices)
    for each in slices:
        assert names.is_subdomain(each.metadata.name)
        assert all(names.is_subdomain(part) for part in each.spec.pool.name.split("/"))
        assert bool(each.spec.devices) != bool(each.spec.shared_counters)
        assert len(each.spec.shared_counters) <= 8
        assert_legal_devices(each)
    for pool in {each.spec.pool.name for each in slices}:
        assert_whole([each for each in slices if each.spec.pool.name == pool])


def assert_legal_devices(part: ResourceSlice) -> None:
    found = part.spec.devices
    advanced = any(each.consumes_counters or each.taints for each in found)
    lists = any(isinstance(value.value, tuple) for each in found for value in each.attributes.values())
    assert len(found) <= (64 if advanced or lists else 128)
    assert sum(len(taken.counters) for each in found for taken in each.consumes_counters) <= 2048
    for each in found:
        assert names.is_label(each.name)
        assert len(each.attributes) + len(each.capacity) <= 32
        assert len(each.consumes_counters) <= 2
        assert all(0 < len(taken.counters) <= 32 for taken in each.consumes_counters)
        assert all(len((value.string or "").encode()) <= 64 for value in each.attributes.values())
        assert sum(len(v.value) if isinstance(v.value, tuple) else 1 for v in each.attributes.values()) <= 48


def assert_whole(slices: list[ResourceSlice]) -> None:
    assert {each.spec.pool.resource_slice_count for each in slices} == {len(slices)}
    assert len({each.spec.pool.generation for each in slices}) == 1
    assert [each.metadata.name for each in slices] == sorted(each.metadata.name for each in slices)
    devices = [each for part in slices for each in part.spec.devices]
    sets = [each for part in slices for each in part.spec.shared_counters]
    known = {each.name: each.counters.keys() for each in sets}
    assert len({each.name for each in devices}) == len(devices)
    assert len(known) == len(sets)
    assert all(0 < len(counters) <= 32 for counters in known.values())
    assert all(
        taken.counters.keys() <= known[taken.counter_set] for each in devices for taken in each.consumes_counters
    )


@pytest.mark.parametrize("lists", [False, True], ids=["strings", "lists"])
@pytest.mark.parametrize("build", LIMITS.values(), ids=LIMITS)
def test_devices_at_the_api_limits_form_valid_slices(
    build: Callable[[], tuple[Inventory, list[DeviceExposurePolicy]]], lists: bool
) -> None:
    node, policies = build()
    features = Features(list_attributes=lists)
    offered = expose(node, policies, features=features)
    packed = layout(offered, node=node.node.name, features=features)
    assert packed.problems == ()
    assert sum(sizes(packed.slices)) == len(offered.devices)
    assert_legal(packed.slices)


def test_two_hundred_vfs_are_spread_over_slices_of_counters_and_of_devices() -> None:
    node, policies = LIMITS["200 VFs in two personas each"]()
    slices = pack(expose(node, policies), node="worker-1")
    assert [len(each.spec.shared_counters) for each in slices][:26] == [8] * 25 + [1]
    assert sizes(slices)[26:] == [64] * 6 + [18]


def test_counters_come_first_and_pools_in_the_order_of_their_names() -> None:
    offered = expose(inventory(*sriov("ens2", 2), *sriov("ens1", 2)), [exclusive("p", "true")])
    slices = pack(offered, node="worker-1", generation=7)
    assert [(each.metadata.name, len(each.spec.devices)) for each in slices] == [
        ("worker-1-sriov-ens1-0", 0),
        ("worker-1-sriov-ens1-1", 3),
        ("worker-1-sriov-ens2-0", 0),
        ("worker-1-sriov-ens2-1", 3),
    ]
    assert {(each.spec.node_name, each.spec.driver, each.spec.pool.generation) for each in slices} == {
        ("worker-1", "dra.networking", 7)
    }


def test_plain_devices_go_128_to_a_slice_and_others_64() -> None:
    plain = [device(f"d{index}") for index in range(130)]
    assert sizes(pack(result(*plain), node="n")) == [128, 2]
    tainted = device("t", taints=[{"key": "k", "effect": "NoSchedule"}])
    assert sizes(pack(result(*plain[:100], tainted), node="n")) == [100, 1]
    assert sizes(pack(result(tainted, *plain), node="n")) == [64, 67]


def test_a_slice_takes_no_more_counters_than_2048() -> None:
    every = {f"c{index}": 1 for index in range(32)}
    sets = (counters("a", values=32), counters("b", values=32))
    devices = [device(f"d{index}", consumes={"a": every, "b": every}) for index in range(40)]
    assert sizes(pack(result(*devices, sets=sets), node="n")) == [0, 32, 8]


@pytest.mark.parametrize(
    ("fields", "features", "reason"),
    [
        ({"name": "D"}, Features(), '"D" is not a DNS label'),
        ({"attributes": {"x" * 33: 1}}, Features(), "is not a valid name"),
        ({"attributes": {"Bad/x": 1}}, Features(), "is not a valid name"),
        ({"attributes": {"x": "y" * 65}}, Features(), 'attribute "x" is longer than 64 bytes'),
        ({"attributes": {"x": ["y" * 40, "z" * 40]}}, Features(), 'attribute "x" is longer than 64 bytes'),
        ({"attributes": {f"x{i}": 1 for i in range(33)}}, Features(), "33 attributes and capacities"),
        ({"attributes": {"x": ["y"] * 49}}, Features(list_attributes=True), "49 values of attributes"),
        ({"capacity": {"x": {"value": 1, "requestPolicy": {"default": 1}}}}, Features(), "has a request policy"),
        ({"consumes": {"nope": {"x": 1}}}, Features(), 'does not have the counter set "nope"'),
        ({"consumes": {"c": {"nope": 1}}}, Features(), 'counter set "c" does not have the counter "nope"'),
        ({"consumes": {"c": {}}}, Features(), "consumes 0 counters"),
        ({"consumes": {"c": {"c0": 1}, "d": {"c0": 1}, "e": {"x": 1}}}, Features(), "3 counter sets, more than 2"),
        ({"consumes": {"c": {"c0": 1}}}, Features(partitionable_devices=False), "gate DRAPartitionableDevices"),
        ({"shared": True}, Features(consumable_capacity=False), "gate DRAConsumableCapacity"),
        ({"taints": [{"key": "k", "effect": "x"}]}, Features(device_taints=False), "gate DRADeviceTaints"),
        ({"taints": [{"key": f"k{i}", "effect": "x"} for i in range(17)]}, Features(), "17 taints"),
        ({"name": "good"}, Features(), "its name is already used"),
    ],
)
def test_an_illegal_device_is_left_out_and_its_pool_is_whole(
    fields: dict[str, Any], features: Features, reason: str
) -> None:
    sets = tuple(counters(name) for name in "cde")
    bad = device(**{"name": "bad"} | fields)
    packed = layout(result(device("good"), bad, sets=sets), node="n", features=features)
    assert [each.name for part in packed.slices for each in part.spec.devices] == ["good"]
    (problem,) = packed.problems
    assert problem.policy == "x"
    assert reason in problem.message
    assert problem.left_out == ("name-taken" if bad.name == "good" else "limit")
    assert_legal(packed.slices)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (counters("C"), "is not a DNS label"),
        (counters(values=0), "0 counters; a set has 1 to 32"),
        (counters(values=33), "33 counters"),
        (counters("c", X_=1), 'counter "X_" is not a DNS label'),
        (counters("good", values=2), "its name is already used"),
    ],
)
def test_an_illegal_counter_set_is_left_out_with_the_devices_that_draw_from_it(
    bad: ExposedCounterSet, reason: str
) -> None:
    drawing = device("a", consumes={"good": {"c0": 1}})
    lost = () if bad.name == "good" else (device("b", consumes={bad.name: {"c0": 1}}),)
    packed = layout(result(drawing, *lost, sets=(counters("good"), bad)), node="n")
    assert [each.name for part in packed.slices for each in part.spec.devices] == ["a"]
    assert reason in packed.problems[0].message
    assert len(packed.problems) == 1 + len(lost)
    assert_legal(packed.slices)


def test_a_pool_without_a_legal_device_has_no_slices() -> None:
    assert pack(result(device("D"), sets=(counters(),)), node="n") == ()


@pytest.mark.parametrize(
    ("value", "lists", "encoded"),
    [
        (True, False, {"bool": True}),
        (0, False, {"int": 0}),
        ("", False, {"string": ""}),
        (("a", "b"), False, {"string": ",a,b,"}),
        (("a", "b"), True, {"strings": ["a", "b"]}),
        ((), True, {"string": ""}),
        ((), False, {"string": ""}),
    ],
)
def test_attributes_are_encoded_by_their_type(value: Any, lists: bool, encoded: dict[str, Any]) -> None:
    assert msgspec.json.decode(msgspec.json.encode(encode_attribute(value, lists=lists))) == encoded


@st.composite
def offers(draw: st.DrawFn) -> ExposureResult:
    pools = draw(st.lists(st.sampled_from(["p", "q", "n" * 253]), min_size=1, unique=True))
    devices: list[ExposedDevice] = []
    sets: list[ExposedCounterSet] = []
    for pool in pools:
        own = draw(st.lists(st.sampled_from("abc"), unique=True))
        width = draw(st.integers(1, 34))
        sets += [counters(name, pool, values=width) for name in own]
        consumes = {name: {f"c{index}": 1 for index in range(draw(st.integers(0, 34)))} for name in own}
        extra = {"taints": (DeviceTaint(key="k", effect="NoSchedule"),)} if draw(st.booleans()) else {}
        for index in range(draw(st.integers(0, 140))):
            name = draw(st.sampled_from([f"d{index}", f"D{index}", "d0"])) if index < 5 else f"d{index}"
            taken = consumes if draw(st.booleans()) else {}
            devices.append(device(name, pool=pool, consumes=taken, **extra))
    return ExposureResult(devices=tuple(devices), counter_sets=tuple(sets))


@settings(max_examples=30)
@given(offers(), st.booleans())
def test_no_limit_is_ever_broken(offered: ExposureResult, partitionable: bool) -> None:
    packed = layout(offered, node="n", features=Features(partitionable_devices=partitionable))
    assert_legal(packed.slices)
    left_out = [problem for problem in packed.problems if "device" in problem.message]
    assert sum(sizes(packed.slices)) + len(left_out) == len(offered.devices)


def test_a_shared_device_keeps_its_capacity_on_the_wire() -> None:
    (part,) = pack(expose(inventory(*sriov("ens1", 0)), [shared("a", f'{OURS}.type == "pf"')]), node="n")
    (found,) = part.spec.devices
    assert found.allow_multiple_allocations
    assert isinstance(found.capacity["dra.networking/ports"], DeviceCapacity)
