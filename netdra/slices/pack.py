"""Exposed devices and counter sets → the ResourceSlices of each pool, within the API's limits.

Called by `netdra plan`, the lab and the publisher with the result of `netdra.exposure`; the allocator reads the slices.
Since Kubernetes 1.35 a slice holds devices or counter sets, never both, and a pool counts only when all of its slices
are there in one generation (decision D1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from netdra.model import names
from netdra.model.device import (
    DEFAULT_FEATURES,
    ExposedCounterSet,
    ExposedDevice,
    ExposureResult,
    Features,
    LeftOut,
    Problem,
)
from netdra.model.inventory import AttributeValue
from netdra.model.meta import ObjectMeta
from netdra.model.resource import (
    MAX_CONSUMED_COUNTERS_PER_SLICE,
    MAX_COUNTER_SETS,
    MAX_DEVICES,
    MAX_DEVICES_ADVANCED,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCounterConsumption,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from netdra.slices.limits import device_faults, is_advanced, set_faults


class Packed(msgspec.Struct, frozen=True):
    """A node's slices in the order of their pools, and the devices left out of them."""

    slices: tuple[ResourceSlice, ...]
    problems: tuple[Problem, ...]


def pack(
    result: ExposureResult, *, node: str, features: Features = DEFAULT_FEATURES, generation: int = 1
) -> tuple[ResourceSlice, ...]:
    """A node's slices, as `layout` makes them."""
    return layout(result, node=node, features=features, generation=generation).slices


def layout(result: ExposureResult, *, node: str, features: Features = DEFAULT_FEATURES, generation: int = 1) -> Packed:
    """A node's slices: by pool, slices of counter sets before slices of devices, named `<pool>-<n>` with `/` as `-`.

    A device that cannot be legal is left out, with a problem, and never breaks its pool.

    Args:
        result: what the node offers.
        features: the features that the API server supports.
        generation: the pools' generation.
    """
    devices: dict[str, list[ExposedDevice]] = {}
    sets: dict[str, list[ExposedCounterSet]] = {}
    for device in result.devices:
        devices.setdefault(device.pool, []).append(device)
    for counters in result.counter_sets:
        sets.setdefault(counters.pool, []).append(counters)
    slices: list[ResourceSlice] = []
    problems: list[Problem] = []
    for pool in sorted(devices):
        legal_sets = _legal_sets(pool, sets.get(pool, ()), problems)
        legal = _legal_devices(devices[pool], legal_sets, features, problems)
        if legal:
            slices += arrange(pool, tuple(legal_sets.values()), legal, node=node, generation=generation)
    return Packed(tuple(slices), tuple(problems))


@lru_cache(maxsize=256, typed=True)
def encode_attribute(value: AttributeValue, *, lists: bool) -> DeviceAttribute:
    """An attribute on the wire; a tuple as a list or, where the server takes none, as `,a,b,` (decision D6).

    Most of a device's 32 values are those of all others too, which then share them: half of a device's memory.
    """
    if isinstance(value, bool):
        return DeviceAttribute(bool_=value)
    if isinstance(value, int):
        return DeviceAttribute(int_=value)
    if isinstance(value, str):
        return DeviceAttribute(string=value)
    if lists and value:
        return DeviceAttribute(strings=value)
    return DeviceAttribute(string=f",{','.join(value)}," if value else "")


def _legal_sets(pool: str, counter_sets: Sequence[ExposedCounterSet], problems: list[Problem]) -> dict[str, CounterSet]:
    legal: dict[str, CounterSet] = {}
    for exposed in counter_sets:
        counters = CounterSet(name=exposed.name, counters=_counters(exposed.counters))
        faults = [*set_faults(counters), *(["its name is already used"] if exposed.name in legal else [])]
        if faults:
            message = f'pool "{pool}": counter set "{exposed.name}" is not offered: {"; ".join(faults)}'
            problems.append(Problem(policy="", message=message))
        else:
            legal[exposed.name] = counters
    return legal


def _legal_devices(
    devices: Sequence[ExposedDevice], sets: Mapping[str, CounterSet], features: Features, problems: list[Problem]
) -> list[Device]:
    legal: dict[str, Device] = {}
    for exposed in devices:
        device = _device(exposed, features)
        is_duplicate = exposed.name in legal
        faults = [*device_faults(device, sets, features), *(["its name is already used"] if is_duplicate else [])]
        if faults:
            message = f'pool "{exposed.pool}": device "{exposed.name}" is not offered: {"; ".join(faults)}'
            why: LeftOut = "name-taken" if is_duplicate else "limit"
            problems.append(
                Problem(
                    policy=exposed.policy,
                    message=message,
                    interface=exposed.interface,
                    left_out=why,
                    device=exposed.name,
                    cause=f"its device is not offered: {'; '.join(faults)}",
                )
            )
        else:
            legal[exposed.name] = device
    return list(legal.values())


def _device(exposed: ExposedDevice, features: Features) -> Device:
    published = exposed.attributes
    return Device(
        name=exposed.name,
        attributes={
            **{
                names.own_short(name): encode_attribute(value, lists=features.list_attributes)
                for name, value in published.items()
            },
            **exposed.registered,
        },
        capacity=exposed.capacity,
        consumes_counters=tuple(
            DeviceCounterConsumption(counter_set=name, counters=_counters(counters))
            for name, counters in exposed.consumes.items()
        ),
        allow_multiple_allocations=exposed.shared,
        taints=exposed.taints,
    )


def _counters(amounts: Mapping[str, int]) -> dict[str, Counter]:
    return {name: Counter(value=str(amount)) for name, amount in amounts.items()}


def arrange(
    pool: str, sets: Sequence[CounterSet], devices: Sequence[Device], *, node: str, generation: int = 1
) -> Iterator[ResourceSlice]:
    """A pool's slices: those of counter sets first, then those of devices, named `<pool>-<n>`."""
    counter_parts = [tuple(sets[at : at + MAX_COUNTER_SETS]) for at in range(0, len(sets), MAX_COUNTER_SETS)]
    device_parts = list(_parts(devices))
    count = len(counter_parts) + len(device_parts)
    content: list[tuple[tuple[CounterSet, ...], tuple[Device, ...]]] = [(part, ()) for part in counter_parts]
    content += [((), part) for part in device_parts]
    # The scheduler takes slices in the order of their names, so the numbers are of one width, and at the end.
    width = len(str(count - 1))
    prefix = names.subdomain(pool.replace("/", "-"), limit=names.MAX_SUBDOMAIN - 1 - width)
    for number, (counters, part) in enumerate(content):
        yield ResourceSlice(
            metadata=ObjectMeta(name=f"{prefix}-{number:0{width}}"),
            spec=ResourceSliceSpec(
                driver=names.DRIVER,
                pool=ResourcePool(name=pool, generation=generation, resource_slice_count=count),
                node_name=node,
                shared_counters=counters,
                devices=part,
            ),
        )


def _parts(devices: Sequence[Device]) -> Iterator[tuple[Device, ...]]:
    """The devices in order, cut into slices: 128, or 64 if one of them is more than plain, and 2048 counters in all."""
    part: list[Device] = []
    advanced, consumed = False, 0
    for device in devices:
        counters = sum(len(consumption.counters) for consumption in device.consumes_counters)
        limit = MAX_DEVICES_ADVANCED if advanced or is_advanced(device) else MAX_DEVICES
        if part and (len(part) >= limit or consumed + counters > MAX_CONSUMED_COUNTERS_PER_SLICE):
            yield tuple(part)
            part, advanced, consumed = [], False, 0
        part.append(device)
        advanced = advanced or is_advanced(device)
        consumed += counters
    if part:
        yield tuple(part)
