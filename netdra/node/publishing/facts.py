"""The facts of published devices beyond their slices: the interface of each, whether it is only away, or gone.

Called by `netdra.node.publishing.offering`. Pure. A PF or a NIC that was moved into a pod is still there for the node:
exposing it as it was keeps its pool, its counters and the names of its VFs as they were, and costs no write. Only an
interface that has left the node is gone. A device whose interface is gone, that is withdrawn or in trouble while a
claim has it, has a taint. After a restart the facts are read back from the slices, as far as the slices have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from netdra.exposure import Exposer
from netdra.model import names
from netdra.model.device import ExposureResult, Problem
from netdra.model.identity import PCI
from netdra.model.inventory import PUBLISHED_FIELDS, Interface
from netdra.model.kept import Keep
from netdra.model.node_network import NodeNetworkStatus
from netdra.model.plan import PlannedDevice
from netdra.model.policy import ResetPolicy, TaintEffect, Taints
from netdra.model.resource import Device, DeviceTaint, ResourceSlice
from netdra.node.hardware import Hardware
from netdra.node.view import HeldDevice
from netdra.topology.devices import DeviceKey, is_pooled, supported_cnis

_TYPES: dict[str, type] = {field.name: field.type for field in msgspec.structs.fields(Interface)}

Gone = Mapping[DeviceKey, TaintEffect]
"""The devices whose interface is gone, and their taint's effect."""
_DEFAULT = Taints().gone
_OWN_TAINTS = frozenset({names.GONE, names.WITHDRAWN, names.TROUBLE})


class DeviceFacts(msgspec.Struct, frozen=True):
    """A device's interface, as it was when it was there last, and the policy that offers the device.

    Attributes:
        allow_host_use: whether that policy allows that the device is taken from the host while the host uses it.
        plugins: the CNI plugins that the policy lists, whether the node has them or not.
        vfs: of a device of pooled VFs, those that a claim can be given, held or not.
        allow_host_addresses: whether that policy allows it while the host has addresses and routes on the device.
        keep: what of its configuration on the node that policy lets a pod keep.
        reset: when that policy has the device reset after a pod had it, if it is a VF.
        allowed_sysctls: what of a pod's namespace that policy lets steps with the device set.
    """

    interface: Interface
    policy: str = ""
    allow_host_use: bool = False
    plugins: tuple[str, ...] = ()
    vfs: tuple[Interface, ...] = ()
    allow_host_addresses: bool = False
    keep: tuple[Keep, ...] = ()
    reset: ResetPolicy = "IfChanged"
    allowed_sysctls: tuple[str, ...] = ()


def of_part(part: ExposureResult, by_identity: Mapping[str, Interface]) -> dict[str, DeviceFacts]:
    """The facts of a pool's devices, by their names."""
    return {
        device.name: DeviceFacts(
            device.lane.interface if device.lane is not None else by_identity[device.interface],
            device.policy,
            device.allow_host_use,
            device.plugins,
            tuple(by_identity[vf] for vf in device.lane.vfs) if device.lane is not None else (),
            device.allow_host_addresses,
            device.keep,
            device.reset,
            device.allowed_sysctls,
        )
        for device in part.devices
    }


def of_slices(
    slices: Iterable[ResourceSlice],
    reported: NodeNetworkStatus,
    hardware: Callable[[DeviceKey], Hardware | None] = lambda _: None,
) -> dict[DeviceKey, DeviceFacts]:
    """The facts of devices as slices have them, with the policies that the node's report has.

    Args:
        slices: the node's.
        reported: its report.
        hardware: the hardware of a device, of which slices have the PCI address alone.
    """
    policies = {name: device.policy for group in reported.interfaces for name, device in group.published()}
    return {
        (one.spec.pool.name, device.name): DeviceFacts(
            _with_identity(_interface(device), hardware((one.spec.pool.name, device.name))),
            policies.get(device.name, ""),
            plugins=supported_cnis(device),
        )
        for one in slices
        for device in one.spec.devices
    }


def still(last: DeviceFacts, now: DeviceFacts) -> DeviceFacts:
    """A held device's facts: its interface as it was at the allocation, and the policy that offers it now.

    Plugins that the device was allocated for stay allowed until the claim is returned.
    """
    plugins = tuple(dict.fromkeys((*now.plugins, *last.plugins)))
    interface = now.interface if now.interface.is_pool else last.interface
    return msgspec.structs.replace(now, interface=interface, plugins=plugins)


def planned(pool: str, device: Device, last: DeviceFacts) -> PlannedDevice:
    """A published device as a plan takes it; `request` is still "".

    A plugin that the node has lost is still one that the policy lists: a claim that has the device for it is not
    refused, its pod waits until the plugin is back.
    """
    interface = last.interface
    return PlannedDevice(
        request="",
        pool=pool,
        device=device.name,
        supported_cnis=last.plugins or supported_cnis(device),
        if_name=interface.if_name,
        type=interface.type,
        mac=interface.mac,
        pci_address=interface.pci_address,
        pf_name=interface.pf_name,
        vf_index=interface.vf_index,
        mtu=interface.mtu,
        rdma_device=interface.rdma_device,
        rdma_mode=interface.rdma_mode,
        iommu_group=interface.iommu_group,
        device_file=interface.device_file,
        identity=interface.device if interface.device.key else None,
        allow_host_use=last.allow_host_use,
        allow_host_addresses=last.allow_host_addresses,
        keep=last.keep,
        allowed_sysctls=last.allowed_sysctls,
        reset=last.reset,
        driver=interface.driver,
        policy=last.policy,
        pooled=is_pooled(device),
    )


def planned_vfs(pool: str, device: Device, last: DeviceFacts) -> tuple[PlannedDevice, ...]:
    """The VFs that a claim of a device of pooled VFs can be given, each as a plan takes it."""
    return tuple(planned(pool, device, msgspec.structs.replace(last, interface=vf)) for vf in last.vfs)


def _interface(device: Device) -> Interface:
    published = {names.qualified(name): attribute.value for name, attribute in device.attributes.items()}
    # Some facts have two names, of which a policy may have chosen one.
    values = {field: published[name] for name, field in PUBLISHED_FIELDS if name in published}
    fields: dict[str, Any] = {field: value for field, value in values.items() if type(value) is _TYPES[field]}
    # Only the device's name has its provider's name for it, or that of pooled VFs.
    named = fields.get("device_file") or is_pooled(device)
    return Interface(**fields, called=device.name) if named else Interface(**fields)


def _with_identity(interface: Interface, hardware: Hardware | None) -> Interface:
    """An interface with the parts of its identity that a slice does not have."""
    now = hardware.now if hardware is not None else None
    if now is None or interface.is_pool or interface.pci_address != now.pci_address or interface.type == "representor":
        return interface
    port = int(now.port) if now.port and now.port.isdecimal() else 0
    place = {} if now.pci_address else {"bus": now.bus, "bus_address": now.address}
    return msgspec.structs.replace(interface, dev_port=port, permanent_mac=now.permanent_mac, **place)


class Recalled(msgspec.Struct, frozen=True):
    """The interfaces to expose, and the held devices whose interface is gone."""

    interfaces: tuple[Interface, ...]
    gone: frozenset[DeviceKey]


class PfNames:
    """The names of PFs by their PCI address, for the time when their netdev is elsewhere."""

    def __init__(self, published: Iterable[DeviceFacts] = ()) -> None:
        """Begin with the devices that were published before this process."""
        self._by_vf = {
            device.interface.pci_address: device.interface.pf_name
            for device in published
            if device.interface.type == "vf" and device.interface.pf_name and not device.interface.is_pool
        }
        self._by_pf: dict[str, str] = {}

    def complete(self, interfaces: Sequence[Interface], frozen: Mapping[str, str]) -> tuple[Interface, ...]:
        """The interfaces with the names of PFs that are known, or that must stay.

        Args:
            interfaces: as the kernel has them.
            frozen: by PCI address, the names by which devices in use are published.
        """
        return tuple([self._named(interface, frozen) for interface in interfaces])

    def _named(self, interface: Interface, frozen: Mapping[str, str]) -> Interface:
        if interface.type != "vf":
            name = frozen.get(interface.pci_address) if interface.pci_address and not interface.dev_port else None
            if not name or name == interface.if_name:
                return interface
            return msgspec.structs.replace(interface, if_name=name)
        pf = interface.pf_pci_address
        if interface.pf_name:
            self._by_pf[pf] = interface.pf_name
        name = frozen.get(pf) or interface.pf_name or self._by_pf.get(pf) or self._by_vf.get(interface.pci_address, "")
        return interface if name == interface.pf_name else msgspec.structs.replace(interface, pf_name=name)


def frozen_names(held_devices: Iterable[DeviceFacts]) -> dict[str, str]:
    """The names of netdevs, by PCI address, after which held devices and their pools are called."""
    names: dict[str, str] = {}
    for device in held_devices:
        interface = device.interface
        if interface.type == "vf":
            names[interface.pf_pci_address] = interface.pf_name
        elif interface.pci_address and not interface.dev_port:
            names[interface.pci_address] = interface.if_name
    return {address: name for address, name in names.items() if address and name}


def recall(
    interfaces: Sequence[Interface],
    held_devices: Mapping[DeviceKey, DeviceFacts],
    *,
    left: Callable[[Interface], bool],
    on_the_bus: Callable[[str, str], bool],
) -> Recalled:
    """Put back interfaces that are only away.

    Args:
        interfaces: those that are here.
        held_devices: the facts of the devices that claims have.
        left: whether an interface without a place on a bus went to another namespace.
        on_the_bus: whether there is a device of that address on that bus.
    """
    if not held_devices:
        return Recalled(tuple(interfaces), frozenset())
    names = {interface.if_name for interface in interfaces}
    files = {interface.device_file for interface in interfaces if not interface.file_problem}
    functions = {(interface.pci_address, interface.dev_port) for interface in interfaces}
    away: dict[str, Interface] = {}
    gone: set[DeviceKey] = set()
    for key, device in held_devices.items():
        last = device.interface
        if last.is_pool:
            if last.pf_pci_address and not on_the_bus(last.pf_pci_address, PCI):
                gone.add(key)
            continue
        if last.device_file:
            if last.device_file not in files:
                gone.add(key)
            continue
        if (last.pci_address, last.dev_port) in functions if last.pci_address else last.if_name in names:
            continue
        device_address = last.pci_address or last.bus_address
        if on_the_bus(device_address, last.bus or PCI) if device_address else left(last):
            away[last.identity] = last
        else:
            gone.add(key)
    back = [interface for interface in away.values() if interface.type != "vf"]
    return Recalled((*interfaces, *back), frozenset(gone))


def gone_effects(gone: Mapping[DeviceKey, DeviceFacts], exposer: Exposer, before: Gone) -> Gone:
    """The effect of each gone device's taint.

    It is that of the policy that offered the device last, as the policy reads now; the default holds once that policy
    is deleted. After a restart the policy may be unknown: then it is that of the policy that would offer the device if
    its interface were still there. Without such a policy the published effect stays.

    Args:
        gone: the devices' facts.
        exposer: the policies.
        before: the effects that were decided, or published, until now.
    """
    effects: dict[DeviceKey, TaintEffect] = {}
    for key, device in gone.items():
        policy = device.policy or exposer.policy_of(device.interface, key[1])
        fallback = _DEFAULT if policy else before.get(key, _DEFAULT)
        effects[key] = exposer.gone_effect(policy) or fallback
    return effects


def published_gone(published: Iterable[Sequence[ResourceSlice]]) -> Gone:
    """The devices that were gone when the slices were written."""
    return {
        (one.spec.pool.name, device.name): "NoExecute" if taint.effect == "NoExecute" else "NoSchedule"
        for slices in published
        for one in slices
        for device in one.spec.devices
        for taint in device.taints
        if taint.key == names.GONE
    }


def marked(device: Device, *, here: bool, gone: TaintEffect | None, withdrawn: bool, trouble: str) -> Device:
    """A device with the taints of its state; a present device keeps its policy's taints, too."""
    taints = [taint for taint in device.taints if here and taint.key not in _OWN_TAINTS]
    if gone:
        taints.append(DeviceTaint(key=names.GONE, effect=gone))
    elif withdrawn:
        taints.append(DeviceTaint(key=names.WITHDRAWN, effect="NoSchedule"))
    if trouble:
        taints.append(DeviceTaint(key=names.TROUBLE, value=names.label_value(trouble), effect="NoSchedule"))
    return device if tuple(taints) == device.taints else msgspec.structs.replace(device, taints=tuple(taints))


def not_available(device: HeldDevice) -> Problem:
    """The problem of the node with a device in trouble: the differences that are left after its pod, or a change."""
    pool, name = device.key
    message = f'pool "{pool}": device "{name}" is not available to other claims: {device.trouble}'
    return Problem(policy="", message=message, cause=message, device=name)
