"""The fields of a ResourceSlice that the API server stores, found out by a dry run and by comparing stored slices.

Used by the node daemon before it publishes (`probe`) and after each write (`dropped`). A server with a feature gate off
drops the gate's fields without a word, but for list attributes: these it empties, and then refuses the slice (decisions
D1, D6).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from netdra.kube.client import Client
from netdra.kube.errors import ApiError, NotFoundError, RefusedError
from netdra.kube.resources import RESOURCE_SLICES
from netdra.model import names
from netdra.model.device import Features
from netdra.model.errors import PermanentError
from netdra.model.meta import ObjectMeta
from netdra.model.resource import (
    CapacityRequestPolicy,
    Counter,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from netdra.model.scheduler_version import NEWEST_SCHEDULER, SchedulerVersion

PARTITIONABLE_DEVICES = "DRAPartitionableDevices"
CONSUMABLE_CAPACITY = "DRAConsumableCapacity"
LIST_ATTRIBUTES = "DRAListTypeAttributes"
DEVICE_TAINTS = "DRADeviceTaints"
BINDING_CONDITIONS = "DRADeviceBindingConditions"

_GATES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"sharedCounters|perDeviceNodeSelection|devices\[\d+\]\.consumesCounters"), PARTITIONABLE_DEVICES),
    (re.compile(r"devices\[\d+\]\.(allowMultipleAllocations|capacity\..*\.requestPolicy)"), CONSUMABLE_CAPACITY),
    (re.compile(r"devices\[\d+\]\.taints"), DEVICE_TAINTS),
    (re.compile(r"devices\[\d+\]\.attributes\..*\.(ints|bools|strings|versions)"), LIST_ATTRIBUTES),
    (re.compile(r"devices\[\d+\]\.(bindsToNode|bindingConditions|bindingFailureConditions)"), BINDING_CONDITIONS),
)


class Dropped(msgspec.Struct, frozen=True):
    """A field that the server did not store, and the feature gate that is off; "" if that is unknown."""

    path: str
    gate: str


def dropped(sent: ResourceSliceSpec, stored: ResourceSliceSpec) -> tuple[Dropped, ...]:
    """The fields of a sent slice that a server did not store."""
    missing = _missing(msgspec.to_builtins(sent), msgspec.to_builtins(stored), "")
    return tuple(Dropped(path, _gate_of(path)) for path in missing)


def without(features: Features, fields: Iterable[Dropped]) -> Features:
    """The features that are left after a server dropped fields."""
    off = {field.gate for field in fields}
    return Features(
        partitionable_devices=features.partitionable_devices and PARTITIONABLE_DEVICES not in off,
        consumable_capacity=features.consumable_capacity and CONSUMABLE_CAPACITY not in off,
        list_attributes=features.list_attributes and LIST_ATTRIBUTES not in off,
        device_taints=features.device_taints and DEVICE_TAINTS not in off,
    )


def off(features: Features) -> tuple[str, ...]:
    """The feature gates that a server with these features has off, without those that a release has off by default."""
    return tuple(gate for gate, taken in _taken(features).items() if not taken and gate != LIST_ATTRIBUTES)


def on(features: Features) -> tuple[str, ...]:
    """The feature gates that a server with these features has on."""
    return tuple(gate for gate, taken in _taken(features).items() if taken)


def _taken(features: Features) -> dict[str, bool]:
    return {
        PARTITIONABLE_DEVICES: features.partitionable_devices,
        CONSUMABLE_CAPACITY: features.consumable_capacity,
        LIST_ATTRIBUTES: features.list_attributes,
        DEVICE_TAINTS: features.device_taints,
    }


async def probe(client: Client, node: str) -> Features:
    """The server's features, by two dry runs of a slice of the node; nothing is written.

    Raises:
        PermanentError: it has no resource.k8s.io/v1, or does not let this process make slices of the node.
        ApiError: it does not answer just now.
    """
    sent = _slice_of(node, _EVERYTHING)
    try:
        stored = await client.create(RESOURCE_SLICES, sent, dry_run=True)
    except NotFoundError as problem:
        raise PermanentError(
            f"API server: {problem.status.message or 'not found'}: resource.k8s.io/v1 is not served",
            hint="netdra requires Kubernetes 1.34 or later; node names must be those of existing nodes",
            code="ND3084",
        ) from None
    features = without(Features(list_attributes=True), dropped(sent.spec, stored.spec))
    listed = _slice_of(node, _LISTED)
    try:
        stored = await client.create(RESOURCE_SLICES, listed, dry_run=True)
    except RefusedError:
        return msgspec.structs.replace(features, list_attributes=False)
    return without(features, dropped(listed.spec, stored.spec))


async def scheduler_version(client: Client) -> SchedulerVersion:
    """The server's minor version, which is that of its scheduler as a rule; the newest release if it cannot be read."""
    try:
        answer = msgspec.json.decode(await client.read("/version", "version"))
    except (ApiError, msgspec.DecodeError, UnicodeDecodeError):
        return NEWEST_SCHEDULER
    return SchedulerVersion.of_server(str(answer.get("gitVersion", "")) if isinstance(answer, dict) else "")


_EVERYTHING = Device(
    name="probe",
    capacity={
        "slots": DeviceCapacity(value="2", request_policy=CapacityRequestPolicy(default="1", valid_values=("1", "2")))
    },
    consumes_counters=(DeviceCounterConsumption(counter_set="probe", counters={"slots": Counter(value="1")}),),
    allow_multiple_allocations=True,
    taints=(DeviceTaint(key="dra.networking/probe", effect="NoSchedule"),),
)
_LISTED = Device(name="probe", attributes={"list": DeviceAttribute(strings=("a", "b"))})


def _slice_of(node: str, device: Device) -> ResourceSlice:
    return ResourceSlice(
        metadata=ObjectMeta(generate_name="netdra-probe-"),
        spec=ResourceSliceSpec(
            driver=names.DRIVER,
            pool=ResourcePool(name=names.pool(node, "probe"), generation=1, resource_slice_count=1),
            node_name=node,
            devices=(device,),
        ),
    )


def _missing(sent: Any, stored: Any, path: str) -> Iterator[str]:
    """The paths that the sent value has and the stored one does not; values that differ are not missing."""
    parts = dict(_parts(stored, path))
    for step, value in _parts(sent, path):
        if step in parts:
            yield from _missing(value, parts[step], step)
        else:
            yield step


def _parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The parts of an object or a list, by their paths."""
    if isinstance(value, dict):
        yield from ((f"{path}.{name}" if path else name, below) for name, below in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"{path}[{index}]", below) for index, below in enumerate(value))


def _gate_of(path: str) -> str:
    return next((gate for pattern, gate in _GATES if pattern.match(path)), "")
