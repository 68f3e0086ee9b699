"""What is known of published devices beyond their slices: the interface behind each, and what a plan needs of it.

Called by `netdra.node.publishing.offering`. Pure. After a restart the same is read back from what was published, as far
as it is written there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from netdra.model import names
from netdra.model.device import ExposureResult
from netdra.model.inventory import PUBLISHED_FIELDS, Interface
from netdra.model.node_network import NodeNetworkStatus
from netdra.model.plan import PlannedDevice
from netdra.model.resource import Device, ResourceSlice
from netdra.topology.devices import DeviceKey, supported_cnis

_TYPES: dict[str, type] = {field.name: field.type for field in msgspec.structs.fields(Interface)}


class Known(msgspec.Struct, frozen=True):
    """A device's interface, as it was when it was there last, and the policy that offers it.

    Attributes:
        allow_host_use: whether that policy allows that the device is taken from the host while the host uses it.
    """

    interface: Interface
    policy: str = ""
    allow_host_use: bool = False


def of_part(part: ExposureResult, by_identity: Mapping[str, Interface]) -> dict[str, Known]:
    """What is known of a pool's devices, by their names."""
    return {
        device.name: Known(by_identity[device.interface], device.policy, device.allow_host_use)
        for device in part.devices
    }


def of_slices(slices: Iterable[ResourceSlice], reported: NodeNetworkStatus) -> dict[DeviceKey, Known]:
    """What slices say of their devices' interfaces, and the node's report of the policies that made them."""
    policies = {name: each.policy for group in reported.interfaces for name, each in group.published()}
    return {
        (found.spec.pool.name, device.name): Known(_interface(device), policies.get(device.name, ""))
        for found in slices
        for device in found.spec.devices
    }


def planned(pool: str, device: Device, known: Known) -> PlannedDevice:
    """A published device as a plan takes it; `request` is still ""."""
    interface = known.interface
    return PlannedDevice(
        request="",
        pool=pool,
        device=device.name,
        supported_cnis=supported_cnis(device),
        if_name=interface.if_name,
        type=interface.type,
        mac=interface.mac,
        pci_address=interface.pci_address,
        pf_name=interface.pf_name,
        vf_index=interface.vf_index,
        mtu=interface.mtu,
        rdma_device=interface.rdma_device,
        iommu_group=interface.iommu_group,
        allow_host_use=known.allow_host_use,
    )


def newest(slices: Sequence[ResourceSlice]) -> dict[str, tuple[ResourceSlice, ...]]:
    """The slices of each pool's highest generation, by pool."""
    highest: dict[str, int] = {}
    for found in slices:
        pool = found.spec.pool
        highest[pool.name] = max(pool.generation, highest.get(pool.name, 0))
    pools: dict[str, list[ResourceSlice]] = {}
    for found in sorted(slices, key=lambda one: one.metadata.name):
        if found.spec.pool.generation == highest[found.spec.pool.name]:
            pools.setdefault(found.spec.pool.name, []).append(found)
    return {pool: tuple(found) for pool, found in pools.items()}


def _interface(device: Device) -> Interface:
    published = {names.qualified(name): attribute.value for name, attribute in device.attributes.items()}
    values = {field: published.get(name) for name, field in PUBLISHED_FIELDS}
    known: dict[str, Any] = {field: value for field, value in values.items() if type(value) is _TYPES[field]}
    return Interface(**known)
