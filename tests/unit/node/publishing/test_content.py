"""Two slices that state the same have one content, however they are written."""

import msgspec

from netdra.model.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
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
from netdra.node.publishing.reconcile import content, digest

DEVICE = Device(
    name="a",
    attributes={"x": DeviceAttribute(int_=1), "y": DeviceAttribute(string="s")},
    capacity={
        "bandwidth": DeviceCapacity(
            value="10Gi",
            request_policy=CapacityRequestPolicy(
                default=1024, valid_range=CapacityRequestPolicyRange(min="1Ki", max="10Gi", step="1024")
            ),
        ),
        "slots": DeviceCapacity(value=4, request_policy=CapacityRequestPolicy(default="1", valid_values=(1, "2"))),
    },
    consumes_counters=(DeviceCounterConsumption(counter_set="s", counters={"n": Counter(value=1)}),),
    taints=(DeviceTaint(key="k", effect="NoSchedule"),),
)


def spec(device: Device, generation: int = 1, count: int = 1) -> ResourceSliceSpec:
    pool = ResourcePool(name="p", generation=generation, resource_slice_count=count)
    return ResourceSliceSpec(driver="d", pool=pool, node_name="n", devices=(device,))


def as_the_server_writes_it(device: Device) -> Device:
    return msgspec.structs.replace(
        device,
        attributes={name: device.attributes[name] for name in sorted(device.attributes, reverse=True)},
        capacity={
            "slots": DeviceCapacity(
                value="4", request_policy=CapacityRequestPolicy(default="1", valid_values=("1", "2"))
            ),
            "bandwidth": DeviceCapacity(
                value="10Gi",
                request_policy=CapacityRequestPolicy(
                    default="1024", valid_range=CapacityRequestPolicyRange(min="1Ki", max="10737418240", step="1Ki")
                ),
            ),
        },
        consumes_counters=(DeviceCounterConsumption(counter_set="s", counters={"n": Counter(value="1")}),),
        taints=(DeviceTaint(key="k", effect="NoSchedule", time_added="2026-01-01T00:00:00Z"),),
    )


def test_server_normalization_of_a_slice_does_not_change_its_content() -> None:
    sent, stored = spec(DEVICE), spec(as_the_server_writes_it(DEVICE))

    assert sent != stored
    assert content(sent) == content(stored)
    assert digest(sent) == digest(stored)


def test_pool_generation_and_slice_count_do_not_change_the_digest() -> None:
    assert digest(spec(DEVICE)) == digest(spec(DEVICE, generation=7, count=3))


def test_every_difference_between_devices_changes_the_digest() -> None:
    others = [
        msgspec.structs.replace(DEVICE, name="b"),
        msgspec.structs.replace(DEVICE, attributes={**DEVICE.attributes, "x": DeviceAttribute(int_=2)}),
        msgspec.structs.replace(
            DEVICE, attributes={"x": DeviceAttribute(bool_=True), "y": DeviceAttribute(string="s")}
        ),
        msgspec.structs.replace(DEVICE, capacity={}),
        msgspec.structs.replace(DEVICE, capacity={**DEVICE.capacity, "slots": DeviceCapacity(value="4")}),
        msgspec.structs.replace(DEVICE, consumes_counters=()),
        msgspec.structs.replace(DEVICE, allow_multiple_allocations=True),
        msgspec.structs.replace(DEVICE, taints=()),
        msgspec.structs.replace(DEVICE, taints=(DeviceTaint(key="k", effect="NoExecute"),)),
    ]

    assert len({digest(spec(device)) for device in (DEVICE, *others)}) == len(others) + 1


def test_counter_sets_are_compared_by_amount() -> None:
    def of(amount: str | int) -> ResourceSliceSpec:
        counters = CounterSet(name="s", counters={"n": Counter(value=amount)})
        return msgspec.structs.replace(spec(DEVICE), devices=(), shared_counters=(counters,))

    assert digest(of(1000)) == digest(of("1k")) != digest(of(1001))
