"""The errors in ResourceSlices from a file or a cluster, and their fields that netdra does not read.

Used by `netdra validate` and `netdra simulate`. Pure. Follows k8s.io/api/resource/v1 of Kubernetes 1.37 for the names
of fields, and k8s.io/kubernetes/pkg/apis/resource/validation for the API server's rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import msgspec

from netdra.model import documents, suggestions
from netdra.model.device import Features
from netdra.model.findings import Finding, Path
from netdra.model.resource import (
    MAX_CONSUMED_COUNTERS_PER_SLICE,
    MAX_COUNTER_SETS,
    MAX_DEVICES,
    MAX_DEVICES_ADVANCED,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
    newest,
)
from netdra.slices.limits import device_faults, is_advanced, set_faults

_FEATURES = Features(partitionable_devices=True, consumable_capacity=True, list_attributes=True, device_taints=True)
"""All that an API server may take: what it drops is told when slices are planned for one."""
_FORMER: Mapping[str, str] = {
    "basic": "in resource.k8s.io/v1, attributes, capacity and consumesCounters are fields of the device itself: "
    "move them up",
    "requestPolicy": "a counter has only a value; the capacity of a device has a requestPolicy",
    "resourceSliceCount": "it is a field of pool",
    "stringSlice": "the field for a list of texts is strings",
    "valueFrom": "Kubernetes 1.37 does not support counters that follow a request (KEP-5941): use value",
}
"""Fields that other versions of the API have, and what takes their place."""


_Place = tuple[Path, Any, "_Fields"]
"""A place in an object, what is there, and the fields that may be there."""


class Misread(NamedTuple):
    """A field that netdra does not read: where it is first, and whether Kubernetes 1.37 does not know it either."""

    finding: Finding
    unknown: bool


@dataclass(frozen=True, eq=False)
class _Fields:
    """The fields of one type of the API.

    Attributes:
        read: those that netdra reads; None for a type of which only the others matter.
        unread: those of Kubernetes 1.37 that it does not read, and the effect on an allocation; "" without any.
    """

    read: frozenset[str] | None
    unread: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: type[msgspec.Struct], **unread: str) -> Self:
        """The fields of a type of the model, and those that it does not have."""
        return cls(frozenset(each.encode_name for each in msgspec.structs.fields(kind)), unread)


_NO_CHANGE = "it does not change allocations"
_GATED = "kube-scheduler reads it only if its feature gate {} is enabled"
_ALLOCATABLE = _GATED.format("DRANodeAllocatableResources")
_SPEC = _Fields.of(ResourceSliceSpec, partitionTypeAttribute=_NO_CHANGE, skipNodeOperations=_NO_CHANGE)
_DEVICE = _Fields.of(Device, nodeAllocatableResourceMappings=_ALLOCATABLE, nodeAllocatableResources=_ALLOCATABLE)
_CONSUMPTION = _Fields.of(
    DeviceCounterConsumption,
    compatibilityGroups="kube-scheduler skips the device unless DRADeviceCompatibilityGroups is enabled",
)
_TAINT = _Fields.of(DeviceTaint, timeAdded="")
_REQUEST = _Fields(None, {"derivedAttributes": _GATED.format("DRADerivedAttributes")})
_POOL, _SET, _COUNTER = _Fields.of(ResourcePool), _Fields.of(CounterSet), _Fields.of(Counter)
_ATTRIBUTE, _CAPACITY = _Fields.of(DeviceAttribute), _Fields.of(DeviceCapacity)


def misread(value: Mapping[str, Any]) -> list[Misread]:
    """The fields of a ResourceSlice, a claim or a template as a file has it that netdra does not read; each name once.

    Args:
        value: the object as plain values, whose types may be wrong.
    """
    found: dict[tuple[str, _Fields], tuple[Path, int]] = {}
    places = _slice_places(value) if value.get("kind") == ResourceSlice.__name__ else _request_places(value)
    for path, entry, fields in places:
        if isinstance(entry, dict):
            for name in entry.keys() - fields.read if fields.read is not None else entry.keys() & fields.unread.keys():
                first, count = found.get((str(name), fields), ((*path, str(name)), 0))
                found[str(name), fields] = (first, count + 1)
    told = (_told(name, fields, path, count) for (name, fields), (path, count) in found.items())
    return [entry for entry in told if entry is not None]


def unreadable(value: Mapping[str, Any], findings: Iterable[Finding]) -> Iterator[Finding]:
    """All that is known to be wrong with a slice that cannot be read.

    Args:
        value: the slice, as `misread` takes it.
        findings: why it cannot be read. One that only follows from an unknown field is left out.
    """
    subject = documents.subject(value, ResourceSlice.__name__, ())
    fields = [entry.finding for entry in misread(value) if entry.unknown]
    for finding in fields:
        yield Finding(f"{subject}: {finding.what}", finding.hint, finding.path, code=finding.code)
    for finding in findings:
        if not any(field.path[: len(finding.path)] == finding.path for field in fields):
            yield finding


def faults(slices: Iterable[ResourceSlice]) -> Iterator[tuple[ResourceSlice, Finding]]:
    """The errors of the API server's rules in slices; counter sets are searched in all slices of a complete pool."""
    by_driver: dict[str, list[ResourceSlice]] = {}
    for one in slices:
        by_driver.setdefault(one.spec.driver, []).append(one)
    for listed in by_driver.values():
        for parts in newest(listed).values():
            sets = {each.name: each for one in parts for each in one.spec.shared_counters}
            is_complete = len(parts) == parts[0].spec.pool.resource_slice_count
            for one in parts:
                yield from ((one, finding) for finding in _slice_faults(one.spec, sets if is_complete else None))


def _slice_faults(spec: ResourceSliceSpec, sets: Mapping[str, CounterSet] | None) -> Iterator[Finding]:
    where = [name for name, value in _where(spec) if value]
    if len(where) != 1:
        told = f"{' and '.join(where)} are" if where else "none of nodeName, nodeSelector and allNodes is"
        yield Finding(f"{told} set; exactly one of them is required", "", ("spec",), code="ND1562")
    if spec.devices and spec.shared_counters:
        yield Finding(
            "it has devices and sharedCounters; since Kubernetes 1.35 a slice has only one of them",
            "move sharedCounters to another slice of the same pool, and count both in resourceSliceCount",
            ("spec", "sharedCounters"),
            code="ND1563",
        )
    if len(spec.shared_counters) > MAX_COUNTER_SETS:
        yield Finding(
            f"{len(spec.shared_counters)} counter sets, more than {MAX_COUNTER_SETS}",
            "",
            ("spec", "sharedCounters"),
            code="ND1564",
        )
    most = MAX_DEVICES_ADVANCED if any(map(is_advanced, spec.devices)) else MAX_DEVICES
    if len(spec.devices) > most:
        yield Finding(
            f"{len(spec.devices)} devices, more than {most}", "split the slice", ("spec", "devices"), code="ND1565"
        )
    consumed = sum(len(taken.counters) for device in spec.devices for taken in device.consumes_counters)
    if consumed > MAX_CONSUMED_COUNTERS_PER_SLICE:
        yield Finding(
            f"{consumed} counters are consumed, more than {MAX_CONSUMED_COUNTERS_PER_SLICE}",
            "",
            ("spec", "devices"),
            code="ND1566",
        )
    for at, counters in enumerate(spec.shared_counters):
        for text in set_faults(counters):
            yield Finding(f'counter set "{counters.name}": {text}', "", ("spec", "sharedCounters", at), code="ND1567")
    for at, device in enumerate(spec.devices):
        # Of a pool that is not all here, any set may be elsewhere.
        given = sets if sets is not None else {taken.counter_set: _any_set(taken) for taken in device.consumes_counters}
        for text in device_faults(device, given, _FEATURES):
            yield Finding(f'device "{device.name}": {text}', "", ("spec", "devices", at), code="ND1568")


def _where(spec: ResourceSliceSpec) -> Iterator[tuple[str, bool]]:
    """The fields that reports which nodes a slice is for, and whether each is given."""
    yield "nodeName", bool(spec.node_name)
    yield "nodeSelector", spec.node_selector is not None
    yield "allNodes", spec.all_nodes
    yield "perDeviceNodeSelection", spec.per_device_node_selection


def _any_set(taken: DeviceCounterConsumption) -> CounterSet:
    return CounterSet(name=taken.counter_set, counters=taken.counters)


def _slice_places(value: Mapping[str, Any]) -> Iterator[_Place]:
    """Each place of a slice that has fields, with the fields that netdra reads there."""
    spec = value.get("spec")
    yield ("spec",), spec, _SPEC
    if not isinstance(spec, dict):
        return
    yield ("spec", "pool"), spec.get("pool"), _POOL
    for at, entry in _entries(spec.get("sharedCounters")):
        path: Path = ("spec", "sharedCounters", at)
        yield path, entry, _SET
        yield from _values(path, entry, "counters", _COUNTER)
    for at, entry in _entries(spec.get("devices")):
        path = ("spec", "devices", at)
        yield path, entry, _DEVICE
        yield from _device_places(path, entry)
        yield from _device_places((*path, "basic"), entry.get("basic") if isinstance(entry, dict) else None)


def _device_places(path: Path, device: Any) -> Iterator[_Place]:
    """The places in a device; in `basic`, a former version of the API has the same ones."""
    if isinstance(device, dict):
        yield from _values(path, device, "attributes", _ATTRIBUTE)
        yield from _values(path, device, "capacity", _CAPACITY)
        for number, taken in _entries(device.get("consumesCounters")):
            inner = (*path, "consumesCounters", number)
            yield inner, taken, _CONSUMPTION
            yield from _values(inner, taken, "counters", _COUNTER)
        for number, taint in _entries(device.get("taints")):
            yield (*path, "taints", number), taint, _TAINT


def _request_places(value: Mapping[str, Any]) -> Iterator[_Place]:
    """The requests of a claim or a template; only their fields that netdra does not read are reported here."""
    path: Path = ("spec",)
    spec = value.get("spec")
    if isinstance(spec, dict) and value.get("kind") == "ResourceClaimTemplate":
        path, spec = ("spec", "spec"), spec.get("spec")
    devices = spec.get("devices") if isinstance(spec, dict) else None
    for at, request in _entries(devices.get("requests") if isinstance(devices, dict) else None):
        place = (*path, "devices", "requests", at)
        if isinstance(request, dict):
            yield (*place, "exactly"), request.get("exactly"), _REQUEST
            for number, wanted in _entries(request.get("firstAvailable")):
                yield (*place, "firstAvailable", number), wanted, _REQUEST


def _entries(value: Any) -> Iterable[tuple[int, Any]]:
    return enumerate(value) if isinstance(value, list) else ()


def _values(path: Path, owner: Any, field: str, fields: _Fields) -> Iterator[_Place]:
    inner = owner.get(field) if isinstance(owner, dict) else None
    for key, entry in inner.items() if isinstance(inner, dict) else ():
        yield (*path, field, str(key)), entry, fields


def _told(name: str, fields: _Fields, path: Path, count: int) -> Misread | None:
    times = f", {count} times" if count > 1 else ""
    meaning = fields.unread.get(name)
    if meaning is None:
        hint = _FORMER.get(name) or suggestions.hint(name, fields.read or (), "fields:")
        return Misread(
            Finding(f'unknown field "{ascii(name[:80])[1:-1]}"{times}', hint, path, code="ND1569"), unknown=True
        )
    finding = Finding(f"netdra does not read the field {name}{times}", meaning, path, code="ND1570")
    return Misread(finding, unknown=False) if meaning else None
