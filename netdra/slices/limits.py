"""The limits of the API server for a device or a counter set, and of the scheduler for a pool.

Asked by `netdra.slices.pack` before anything is published, because one illegal device costs its whole slice and one
wrong reference its whole pool. Follows k8s.io/kubernetes/pkg/apis/resource/validation and, for checks of the scheduler
alone, k8s.io/dynamic-resource-allocation/structured (pools).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from netdra.model import names
from netdra.model.device import Features
from netdra.model.resource import (
    MAX_ATTRIBUTE_VALUES,
    MAX_ATTRIBUTES_AND_CAPACITIES,
    MAX_COUNTER_CONSUMPTIONS,
    MAX_COUNTERS,
    MAX_STRING,
    CounterSet,
    Device,
    DeviceAttribute,
)

MAX_TAINTS = 16


def is_advanced(device: Device) -> bool:
    """Whether a slice with this device holds no more than 64 of them."""
    lists = any(isinstance(attribute.value, tuple) for attribute in device.attributes.values())
    return lists or bool(device.consumes_counters or device.taints)


def set_faults(counters: CounterSet) -> Iterator[str]:
    """The errors in a counter set."""
    if not names.is_label(counters.name):
        yield f'"{counters.name}" is not a DNS label'
    if not 0 < len(counters.counters) <= MAX_COUNTERS:
        yield f"{len(counters.counters)} counters; a set has 1 to {MAX_COUNTERS}"
    for name in counters.counters:
        if not names.is_label(name):
            yield f'counter "{name}" is not a DNS label'


def device_faults(device: Device, sets: Mapping[str, CounterSet], features: Features) -> Iterator[str]:
    """The errors in a device.

    Args:
        device: as it would be published.
        sets: the counter sets of its pool that will be published.
        features: the features that the API server supports; what it would drop without a word counts as a fault here.
    """
    if not names.is_label(device.name):
        yield f'"{device.name}" is not a DNS label'
    yield from _attribute_faults(device)
    yield from _capacity_faults(device)
    yield from _counter_faults(device, sets)
    if device.consumes_counters and not features.partitionable_devices:
        yield "it consumes counters, which the API server would drop (feature gate DRAPartitionableDevices)"
    if device.allow_multiple_allocations and not features.consumable_capacity:
        yield "it is shared, which the API server would drop (feature gate DRAConsumableCapacity)"
    if device.taints and not features.device_taints:
        yield "it has taints, which the API server would drop (feature gate DRADeviceTaints)"
    if len(device.taints) > MAX_TAINTS:
        yield f"{len(device.taints)} taints, more than {MAX_TAINTS}"


def _attribute_faults(device: Device) -> Iterator[str]:
    total = len(device.attributes) + len(device.capacity)
    if total > MAX_ATTRIBUTES_AND_CAPACITIES:
        yield f"{total} attributes and capacities, more than {MAX_ATTRIBUTES_AND_CAPACITIES}"
    values = 0
    for name, attribute in device.attributes.items():
        if not _is_qualified_name(name):
            yield f'attribute "{name}" is not a valid name'
        written = _values(attribute)
        values += len(written)
        if not written:
            yield f'attribute "{name}" is an empty list'
        for value in written:
            if isinstance(value, str) and len(value.encode()) > MAX_STRING:
                yield f'attribute "{name}" is longer than {MAX_STRING} bytes'
    if values > MAX_ATTRIBUTE_VALUES:
        yield f"{values} values of attributes, more than {MAX_ATTRIBUTE_VALUES}"


def _capacity_faults(device: Device) -> Iterator[str]:
    for name, capacity in device.capacity.items():
        if not _is_qualified_name(name):
            yield f'capacity "{name}" is not a valid name'
        if capacity.request_policy is not None and not device.allow_multiple_allocations:
            yield f'capacity "{name}" has a request policy, but the device is not shared'


def _counter_faults(device: Device, sets: Mapping[str, CounterSet]) -> Iterator[str]:
    if len(device.consumes_counters) > MAX_COUNTER_CONSUMPTIONS:
        yield f"it consumes {len(device.consumes_counters)} counter sets, more than {MAX_COUNTER_CONSUMPTIONS}"
    for consumption in device.consumes_counters:
        counter_set = sets.get(consumption.counter_set)
        if counter_set is None:
            yield f'its pool does not have the counter set "{consumption.counter_set}"'
            continue
        if not 0 < len(consumption.counters) <= MAX_COUNTERS:
            yield f"it consumes {len(consumption.counters)} counters of one set; it must be 1 to {MAX_COUNTERS}"
        for name in consumption.counters.keys() - counter_set.counters.keys():
            yield f'counter set "{counter_set.name}" does not have the counter "{name}"'


@lru_cache(maxsize=4096)
def _is_qualified_name(name: str) -> bool:
    """Whether the API takes the name of an attribute or a capacity; all devices of a node have the same few."""
    domain, slash, identifier = name.rpartition("/")
    return names.is_identifier(identifier) and (not slash or names.is_attribute_domain(domain))


def _values(attribute: DeviceAttribute) -> tuple[bool | int | str | None, ...]:
    value = attribute.value
    return value if isinstance(value, tuple) else (value,)
