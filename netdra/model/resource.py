"""The objects of resource.k8s.io/v1 (Kubernetes 1.37) that netdra reads and writes, field for field.

ResourceSlice and its parts; claims, templates, classes and allocations are in `netdra.model.claim`. Limits are the
API server's (k8s.io/api/resource/v1/types.go).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from netdra.model import quantity
from netdra.model.meta import ObjectMeta

API_VERSION: Literal["resource.k8s.io/v1"] = "resource.k8s.io/v1"
MAX_DEVICES = 128
MAX_DEVICES_ADVANCED = 64
MAX_COUNTER_SETS = 8
MAX_COUNTERS = 32
MAX_ATTRIBUTES_AND_CAPACITIES = 32
MAX_ATTRIBUTE_VALUES = 48
MAX_STRING = 64
MAX_COUNTER_CONSUMPTIONS = 2
MAX_CONSUMED_COUNTERS_PER_SLICE = 2048

QuantityText = Annotated[
    str | int,
    msgspec.Meta(
        description="A Kubernetes quantity: 64, 10Gi, 500m.", extra_json_schema={"pattern": f"^{quantity.PATTERN}$"}
    ),
]


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The common settings: camelCase on the wire, defaults left out."""


class CapacityRequestPolicyRange(Wire, frozen=True):
    """The least and the most that a claim may consume, and the step between.

    Attributes:
        min: The minimum amount, e.g. `100`; a claim that requests less gets this amount.
        max: The maximum amount, e.g. `10000`. If absent, the whole capacity.
        step: A request is rounded up to `min` plus a multiple of this amount, e.g. `100`. If absent, it is not
            rounded.
    """

    min: QuantityText
    max: QuantityText | None = None
    step: QuantityText | None = None


class CapacityRequestPolicy(Wire, frozen=True):
    """A claim's consumption of a shared device's capacity: `default`, or the requested amount, rounded up.

    Attributes:
        default: The amount for claims that do not request an amount, e.g. `1`. If absent, the whole capacity.
        valid_values: The amounts that a claim can consume, in ascending order, e.g. `[1000, 10000]`. A request is
            rounded up to the next of these amounts. If absent, `validRange` applies; if that is absent, too, a claim
            can consume any amount.
        valid_range: The amounts that a claim can consume, as a range, e.g. `{min: "1", max: "8"}`. If absent,
            `validValues` applies; if that is absent, too, a claim can consume any amount.
    """

    default: QuantityText | None = None
    valid_values: tuple[QuantityText, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Wire, frozen=True):
    """How much of something a device has; consumable only where the device allows several allocations.

    Attributes:
        value: The total amount of the device, e.g. `16`.
        request_policy: The amounts that a claim can request, and the default for claims that do not request an amount,
            e.g. `{default: "1"}`. If absent, the default is the whole capacity.
    """

    value: QuantityText
    request_policy: CapacityRequestPolicy | None = None


class DeviceAttribute(Wire, frozen=True):
    """One attribute's value: exactly one field is set. The list forms need the DRAListTypeAttributes gate.

    Attributes:
        int_: An integer, e.g. `4`. If absent, the value is of another type.
        bool_: A boolean, e.g. `true`. If absent, the value is of another type.
        string: A string of at most 64 characters, e.g. `r7`. If absent, the value is of another type.
        version: A semantic version (semver.org 2.0.0) of at most 64 characters, e.g. `1.2.3`. If absent, the value is
            of another type.
        ints: A list of integers, e.g. `[1, 2]`. If absent, the value is of another type.
        bools: A list of booleans, e.g. `[true, false]`. If absent, the value is of another type.
        strings: A list of strings, e.g. `[blue, green]`. If absent, the value is of another type.
        versions: A list of semantic versions, e.g. `[1.2.3]`. If absent, the value is of another type.
    """

    int_: int | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None

    @property
    def value(self) -> bool | int | str | tuple[int, ...] | tuple[bool, ...] | tuple[str, ...] | None:
        """The one value that is set, of any type."""
        for field in (self.bool_, self.int_, self.string, self.version, self.strings, self.ints, self.bools):
            if field is not None:
                return field
        return self.versions


class Counter(Wire, frozen=True):
    """An amount of a shared counter."""

    value: QuantityText


class CounterSet(Wire, frozen=True):
    """Named amounts that the devices of a pool draw from; the set's name is unique in the pool."""

    name: str
    counters: Mapping[str, Counter]


class DeviceCounterConsumption(Wire, frozen=True):
    """A device's consumption of one counter set while it is allocated (once, however often it is shared)."""

    counter_set: str
    counters: Mapping[str, Counter]


class DeviceTaint(Wire, frozen=True):
    """Keeps claims that do not tolerate it off a device, unless its effect is None.

    `time_added` is the server's (RFC 3339).
    """

    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


_BLOCKING = frozenset({"NoSchedule", "NoExecute"})


class Device(Wire, frozen=True):
    """One entry of a slice: what a claim can be given."""

    name: str
    attributes: Mapping[str, DeviceAttribute] = {}
    capacity: Mapping[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    allow_multiple_allocations: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    node_name: str | None = None
    node_selector: Any = None
    all_nodes: bool = False

    @property
    def blocking_taints(self) -> tuple[DeviceTaint, ...]:
        """The taints that keep claims off the device; a taint of the effect None states something, and no more."""
        return tuple(taint for taint in self.taints if taint.effect in _BLOCKING)


class ResourcePool(Wire, frozen=True):
    """The pool that a slice is part of: all slices of the highest generation together are the pool."""

    name: str
    generation: int
    resource_slice_count: int


class ResourceSliceSpec(Wire, frozen=True):
    """A driver's devices, or counter sets, of one pool on one node."""

    driver: str
    pool: ResourcePool
    node_name: str | None = None
    node_selector: Any = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Wire, frozen=True, omit_defaults=False):
    """One published slice."""

    metadata: ObjectMeta
    spec: ResourceSliceSpec
    api_version: Literal["resource.k8s.io/v1"] = API_VERSION
    kind: Literal["ResourceSlice"] = "ResourceSlice"


class SharedValues:
    """Equal values of devices as one object: those of a cluster differ in a few, and take two thirds of its memory."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}
        self._consumed: dict[bytes, tuple[DeviceCounterConsumption, ...]] = {}

    def share(self, published: ResourceSlice) -> None:
        """Replace the values of a slice's devices, in place, by equal ones of earlier slices."""
        known = self._known
        for device in published.spec.devices:
            for values in (device.attributes, device.capacity):
                assert isinstance(values, dict)
                for name, value in values.items():
                    values[name] = known.setdefault(value, value)
            if device.consumes_counters:
                key = msgspec.json.encode(device.consumes_counters)
                consumed = self._consumed.setdefault(key, device.consumes_counters)
                msgspec.structs.force_setattr(device, "consumes_counters", consumed)


def newest(slices: Iterable[ResourceSlice]) -> dict[str, tuple[ResourceSlice, ...]]:
    """The slices that count, by pool: those of the pool's highest generation, in the order of their names.

    Args:
        slices: one driver's.
    """
    pools: dict[str, list[ResourceSlice]] = {}
    for one in sorted(slices, key=lambda one: one.metadata.name):
        pool = pools.setdefault(one.spec.pool.name, [])
        if pool and pool[0].spec.pool.generation < one.spec.pool.generation:
            pool.clear()
        if not pool or pool[0].spec.pool.generation == one.spec.pool.generation:
            pool.append(one)
    return {name: tuple(pool) for name, pool in pools.items()}
