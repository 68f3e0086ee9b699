"""Fields that a server dropped are found, and named by their feature gates."""

import msgspec
import pytest

from netdra.kube.features import (
    BINDING_CONDITIONS,
    CONSUMABLE_CAPACITY,
    DEVICE_TAINTS,
    LIST_ATTRIBUTES,
    PARTITIONABLE_DEVICES,
    Dropped,
    dropped,
    without,
)
from netdra.model.device import Features
from netdra.model.resource import (
    CapacityRequestPolicy,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSliceSpec,
)

COUNTERS = {"slots": Counter(value="1")}
FULL = Device(
    name="a",
    attributes={"x": DeviceAttribute(strings=("a",)), "y": DeviceAttribute(int_=1)},
    capacity={"slots": DeviceCapacity(value=2, request_policy=CapacityRequestPolicy(default="1"))},
    consumes_counters=(DeviceCounterConsumption(counter_set="s", counters=COUNTERS),),
    allow_multiple_allocations=True,
    taints=(DeviceTaint(key="k", effect="NoSchedule"),),
    binding_conditions=("c",),
)


def spec(*devices: Device, counters: tuple[CounterSet, ...] = ()) -> ResourceSliceSpec:
    pool = ResourcePool(name="p", generation=1, resource_slice_count=1)
    return ResourceSliceSpec(driver="d", pool=pool, node_name="n", devices=devices, shared_counters=counters)


@pytest.mark.parametrize(
    ("kept", "lost"),
    [
        (FULL, ()),
        (msgspec.structs.replace(FULL, taints=()), (Dropped("devices[0].taints", DEVICE_TAINTS),)),
        (
            msgspec.structs.replace(FULL, consumes_counters=()),
            (Dropped("devices[0].consumesCounters", PARTITIONABLE_DEVICES),),
        ),
        (
            msgspec.structs.replace(
                FULL, allow_multiple_allocations=False, capacity={"slots": DeviceCapacity(value="2")}
            ),
            (
                Dropped("devices[0].capacity.slots.requestPolicy", CONSUMABLE_CAPACITY),
                Dropped("devices[0].allowMultipleAllocations", CONSUMABLE_CAPACITY),
            ),
        ),
        (
            msgspec.structs.replace(FULL, attributes={"x": DeviceAttribute(), "y": DeviceAttribute(int_=1)}),
            (Dropped("devices[0].attributes.x.strings", LIST_ATTRIBUTES),),
        ),
        (
            msgspec.structs.replace(FULL, binding_conditions=()),
            (Dropped("devices[0].bindingConditions", BINDING_CONDITIONS),),
        ),
        (
            msgspec.structs.replace(FULL, attributes={"x": DeviceAttribute(strings=("a",))}),
            (Dropped("devices[0].attributes.y", ""),),
        ),
    ],
)
def test_lost_fields_are_named_with_their_gates(kept: Device, lost: tuple[Dropped, ...]) -> None:
    assert dropped(spec(FULL), spec(kept)) == lost


def test_lost_counter_sets_and_devices_are_named() -> None:
    sent = spec(counters=(CounterSet(name="s", counters=COUNTERS),))

    assert dropped(sent, spec()) == (Dropped("sharedCounters", PARTITIONABLE_DEVICES),)
    assert dropped(spec(FULL, FULL), spec(FULL)) == (Dropped("devices[1]", ""),)


def test_a_quantity_that_the_server_writes_in_its_own_way_is_not_lost() -> None:
    kept = msgspec.structs.replace(
        FULL, capacity={"slots": DeviceCapacity(value="2", request_policy=CapacityRequestPolicy(default="1000m"))}
    )

    assert dropped(spec(FULL), spec(kept)) == ()


def test_dropped_fields_disable_their_features_and_no_feature_is_enabled_again() -> None:
    every = Features(list_attributes=True)

    assert without(every, ()) == every
    assert without(every, [Dropped("x", "")]) == every
    assert without(every, [Dropped("x", DEVICE_TAINTS)]) == msgspec.structs.replace(every, device_taints=False)
    gone = [Dropped("x", gate) for gate in (PARTITIONABLE_DEVICES, CONSUMABLE_CAPACITY, LIST_ATTRIBUTES, DEVICE_TAINTS)]
    assert without(every, gone) == Features(
        partitionable_devices=False, consumable_capacity=False, list_attributes=False, device_taints=False
    )
    assert not without(Features(list_attributes=False), ()).list_attributes
