"""The devices of published slices, each with the facts that a plan needs.

The command line and the lab bind claims with them. The node daemon may instead take the facts from its own inventory,
which also has facts that a slice's 32 attributes leave no room for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from netdra.model import names
from netdra.model.plan import PlannedDevice
from netdra.model.resource import Device, DeviceAttribute, ResourceSlice, newest

DeviceKey = tuple[str, str]
"""A device's pool and name."""
ShareKey = tuple[str, str, str]
"""A share's pool, device and shareID; "" for a device that is allocated whole."""

_ATTRIBUTES: dict[str, str] = {
    "ifName": "if_name",
    "type": "type",
    "mac": "mac",
    "mtu": "mtu",
    "pciAddress": "pci_address",
    "pfName": "pf_name",
    "vfIndex": "vf_index",
    "rdmaDevice": "rdma_device",
    "iommuGroup": "iommu_group",
    "deviceFile": "device_file",
}
_OWN_TEXTS = ("ifName", "mac", "pciAddress")
OF_ONE_VF = frozenset(map(names.qualified, (*_OWN_TEXTS, "vfIndex", names.STANDARD_PCI_BUS_ID)))
"""The attributes, by qualified name, that pooled VFs do not share: unknown until the node has chosen one."""
_TYPES: dict[str, type] = {field.name: field.type for field in msgspec.structs.fields(PlannedDevice)}


def from_slices(slices: Iterable[ResourceSlice]) -> dict[DeviceKey, PlannedDevice]:
    """The driver's devices by pool and name, from the newest generation of each pool; `request` is still "".

    An attribute that is missing, or of another type than netdra publishes, leaves its field at the default.
    """
    pools = newest(entry for entry in slices if entry.spec.driver == names.DRIVER and _is_of_node(entry))
    return {
        (pool, device.name): _facts(pool, device)
        for pool, current in pools.items()
        for entry in current
        for device in entry.spec.devices
    }


def physnets(slices: Iterable[ResourceSlice]) -> dict[DeviceKey, Any]:
    """The physical network of each of the driver's devices that has one, as it is published."""
    pools = newest(entry for entry in slices if entry.spec.driver == names.DRIVER and _is_of_node(entry))
    return {
        (pool, device.name): attribute.value
        for pool, current in pools.items()
        for entry in current
        for device in entry.spec.devices
        for name, attribute in device.attributes.items()
        if names.qualified(name) == names.qualified(names.PHYSNET)
    }


def _is_of_node(entry: ResourceSlice) -> bool:
    """Whether a slice of the driver has devices of a node, and not the addresses of a PodNetwork."""
    return not names.network_of(entry.spec.pool.name)


def is_pooled(device: Device) -> bool:
    """Whether a device stands for VFs that are offered together (decision D53)."""
    return device.allow_multiple_allocations and any(
        names.qualified(name) == names.qualified(names.VFS) for name in device.capacity
    )


def with_own_facts(attributes: Mapping[str, DeviceAttribute], device: PlannedDevice) -> Mapping[str, DeviceAttribute]:
    """The attributes of an allocated device: of a pooled VF, those that pooled VFs do not share are the VF's own."""
    if not device.pooled:
        return attributes
    own: dict[str, DeviceAttribute] = {
        **{
            name: DeviceAttribute(string=getattr(device, field))
            for name, field in _ATTRIBUTES.items()
            if name in _OWN_TEXTS
        },
        names.STANDARD_PCI_BUS_ID: DeviceAttribute(string=device.pci_address),
        "vfIndex": DeviceAttribute(int_=device.vf_index),
    }
    present = {names.qualified(name): name for name in attributes}
    return {**attributes, **{present.get(names.qualified(name), name): value for name, value in own.items()}}


def supported_cnis(device: Device) -> tuple[str, ...]:
    """The plugins that a device's attribute lists, as a list or with commas around each (decision D6)."""
    attributes = (device.attributes.get(name) for name in (names.qualified(names.SUPPORTED_CNIS), names.SUPPORTED_CNIS))
    value = next((attribute.value for attribute in attributes if attribute is not None), None)
    listed = value.split(",") if isinstance(value, str) else value if isinstance(value, tuple) else ()
    return tuple(name for name in listed if isinstance(name, str) and name)


def _facts(pool: str, device: Device) -> PlannedDevice:
    # A name without a domain is in the driver's own (k8s.io/dynamic-resource-allocation, parseQualifiedName).
    published = {names.qualified(name): attribute.value for name, attribute in device.attributes.items()}
    facts = {field: published.get(names.qualified(name)) for name, field in _ATTRIBUTES.items()}
    fields: dict[str, Any] = {field: value for field, value in facts.items() if type(value) is _TYPES[field]}
    return PlannedDevice(
        request="",
        pool=pool,
        device=device.name,
        supported_cnis=supported_cnis(device),
        pooled=is_pooled(device),
        **fields,
    )
