"""Short ways to write slices, classes and claims for the allocator's tests; quantities and selectors stay as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from netdra.model.claim import DeviceClass, ResourceClaim
from netdra.model.resource import ResourceSlice

DRIVER = "dra.networking"


def device(name: str, *, draws: Mapping[str, int] | None = None, **fields: Any) -> dict[str, Any]:
    """A device; `draws` is what it consumes of counter set "set"; attributes are given as plain values."""
    attributes = {key: attribute(value) for key, value in fields.pop("attributes", {}).items()}
    counters = {counter: {"value": str(amount)} for counter, amount in (draws or {}).items()}
    consumes = [{"counterSet": "set", "counters": counters}] if counters else []
    return {"name": name, "attributes": attributes, "consumesCounters": consumes, **fields}


def shared(name: str, capacity: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A device that several claims may have, with 64 slots of which each takes one by default."""
    slots = {"slots": {"value": "64", "requestPolicy": {"default": "1"}}}
    return device(name, allowMultipleAllocations=True, capacity=slots if capacity is None else capacity, **fields)


def attribute(value: Any) -> dict[str, Any]:
    """A value as one of the API's attribute fields; a dict is one already."""
    if isinstance(value, dict):
        return value
    kind = {bool: "bool", int: "int", str: "string", list: "strings"}[type(value)]
    return {kind: value}


def slice_of(
    *devices: Mapping[str, Any],
    node: str = "n1",
    pool: str = "",
    name: str = "",
    count: int = 1,
    generation: int = 1,
    driver: str = DRIVER,
    **spec: Any,
) -> ResourceSlice:
    """A slice of a pool; it is for one node (and of a pool of its own) unless `spec` states for which."""
    pool = pool or f"{node}-pool"
    place = {} if {"nodeSelector", "allNodes", "perDeviceNodeSelection"} & spec.keys() else {"nodeName": node}
    return msgspec.convert(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name or f"{pool}-{generation}"},
            "spec": {
                "driver": driver,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
                "devices": list(devices),
                **place,
                **spec,
            },
        },
        ResourceSlice,
    )


def counted(*devices: Mapping[str, Any], counters: Mapping[str, int], **fields: Any) -> list[ResourceSlice]:
    """A pool of two slices: counter set "set", and devices that draw on it."""
    pool = fields.pop("pool", "") or f"{fields.get('node', 'n1')}-pool"
    sets = [{"name": "set", "counters": {name: {"value": str(amount)} for name, amount in counters.items()}}]
    return [
        slice_of(pool=pool, name=f"{pool}-0", count=2, sharedCounters=sets, **fields),
        slice_of(*devices, pool=pool, name=f"{pool}-1", count=2, **fields),
    ]


def class_of(name: str = "any", *expressions: str, config: Iterable[Any] = ()) -> DeviceClass:
    """A device class with CEL selectors."""
    spec = {"selectors": selectors(*expressions), "config": list(config)}
    return msgspec.convert(
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec},
        DeviceClass,
    )


def request(name: str = "r", *expressions: str, of: str = "any", **fields: Any) -> dict[str, Any]:
    """A request for exactly something, with CEL selectors."""
    wanted = {"deviceClassName": of, "selectors": selectors(*expressions), **fields}
    return {"name": name, "exactly": wanted}


def alternatives(name: str, *wanted: Mapping[str, Any]) -> dict[str, Any]:
    """A request for the first available of several; each is written as `request` writes it."""
    return {"name": name, "firstAvailable": [{"name": each["name"], **each["exactly"]} for each in wanted]}


def claim(name: str, *requests: Mapping[str, Any], namespace: str = "default", **devices: Any) -> ResourceClaim:
    """A claim; without requests it wants one device of class "any"."""
    return msgspec.convert(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"devices": {"requests": list(requests) or [request()], **devices}},
        },
        ResourceClaim,
    )


def selectors(*expressions: str) -> list[dict[str, Any]]:
    """CEL selectors of a class or a request."""
    return [{"cel": {"expression": expression}} for expression in expressions]
