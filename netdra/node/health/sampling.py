"""Reads the counters and facts of devices that health rules name, on the node and in pods' namespaces. Blocking.

Called by `netdra.node.health.service`. A counter that cannot be read is left out: nothing follows from it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from netdra.health.watch import DeviceKey
from netdra.kernel import counters, link, netns, rdma_counters, uapi
from netdra.kernel.errors import KernelError
from netdra.kernel.netlink import Socket, to_u32
from netdra.kernel.sysfs import Sysfs
from netdra.model.health import LINK_COUNTERS, LINK_FLAPS, PCIE_DEGRADED, RDMA
from netdra.node.traffic.links import NamespacesOf

log = logging.getLogger(__name__)

_LINK = frozenset((*LINK_COUNTERS, LINK_FLAPS))


class SampledDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device whose counters are read.

    Attributes:
        key: its pool and name.
        if_name: its interface on the node, or in the pod that has it.
        sandbox: the pod's sandbox, "" on the node.
        pci_address, rdma_device: "" without one.
        wanted: the names of its counters.
    """

    key: DeviceKey
    if_name: str
    sandbox: str = ""
    pci_address: str = ""
    rdma_device: str = ""
    wanted: frozenset[str]


def read(devices: Sequence[SampledDevice], namespaces: NamespacesOf, sysfs: Sysfs) -> dict[DeviceKey, dict[str, int]]:
    """The values of devices' counters.

    Args:
        namespaces: opens the namespaces of sandboxes.
        sysfs: the node's.
    """
    samples: dict[DeviceKey, dict[str, int]] = {device.key: {} for device in devices}
    with_link = [device for device in devices if device.if_name and device.wanted & _LINK]
    here = [device for device in with_link if not device.sandbox]
    by_sandbox: dict[str, list[SampledDevice]] = {}
    for device in with_link:
        if device.sandbox:
            by_sandbox.setdefault(device.sandbox, []).append(device)
    with suppress(KernelError):
        _take(samples, _of_links(here) if here else {})
    with namespaces(by_sandbox) as opened:
        sandboxes = tuple(opened)
        for result in netns.tour(tuple(opened.values()), lambda place: _of_links(by_sandbox[sandboxes[place]])):
            if isinstance(result, KernelError):
                log.debug("counters of a pod's device: %s", result)
            else:
                _take(samples, result)
    for device in devices:
        _take(samples, {device.key: _of_hardware(device, sysfs)})
    return samples


def _take(samples: dict[DeviceKey, dict[str, int]], found: Mapping[DeviceKey, Mapping[str, int]]) -> None:
    for key, values in found.items():
        samples[key].update(values)


def _of_links(devices: Iterable[SampledDevice]) -> dict[DeviceKey, dict[str, int]]:
    """In one namespace: the link counters of devices.

    Raises:
        KernelError: the kernel refused.
    """
    found: dict[DeviceKey, dict[str, int]] = {}
    with Socket() as sock:
        links = {device: link.find(sock, device.if_name) for device in devices}
    counted = counters.of_links([entry.index for entry in links.values() if entry is not None])
    for device, entry in links.items():
        if entry is None or entry.index not in counted:
            continue
        values = {name: int(getattr(counted[entry.index], name)) for name in device.wanted & frozenset(LINK_COUNTERS)}
        lost = entry.message.get(uapi.IFLA_CARRIER_DOWN_COUNT)
        if LINK_FLAPS in device.wanted and lost:
            values[LINK_FLAPS] = to_u32(lost)
        found[device.key] = values
    return found


def _of_hardware(device: SampledDevice, sysfs: Sysfs) -> dict[str, int]:
    """The counters of a device's RDMA ports, the sum over them, and the state of its PCIe link."""
    values: dict[str, int] = {}
    wanted = {name for name in device.wanted if name.startswith(RDMA)}
    if wanted and device.rdma_device:
        for _, name, value in rdma_counters.of_device(sysfs, device.rdma_device):
            if RDMA + name in wanted:
                values[RDMA + name] = values.get(RDMA + name, 0) + value
    if PCIE_DEGRADED in device.wanted and device.pci_address:
        degraded = pcie_degraded(sysfs, device.pci_address)
        if degraded is not None:
            values[PCIE_DEGRADED] = int(degraded)
    return values


def pcie_degraded(sysfs: Sysfs, address: str) -> bool | None:
    """Whether a PCIe link is slower or narrower than both of its ends support; None if that cannot be read.

    Follows the kernel's Documentation/ABI/testing/sysfs-bus-pci. A fast card in a slow slot is not degraded: the
    slot's port, the device above, has its own limits. A VF has no link of its own and is unknown.
    """
    folder = f"bus/pci/devices/{address}"
    port = f"{folder}/.."
    states = [
        (_number(sysfs, f"{folder}/current_link_{what}"), _most(sysfs, (folder, port), f"max_link_{what}"))
        for what in ("speed", "width")
    ]
    if any(not now or not most for now, most in states):
        return None
    return any(now < most for now, most in states)


def _most(sysfs: Sysfs, folders: Collection[str], name: str) -> float:
    values = [value for folder in folders if (value := _number(sysfs, f"{folder}/{name}"))]
    return min(values, default=0.0)


def _number(sysfs: Sysfs, path: str) -> float:
    """The first word of a file as a number ("16.0 GT/s PCIe", "8"); 0 if unknown, also for "Unknown" and 255 lanes."""
    word = sysfs.text(path).partition(" ")[0]
    try:
        value = float(word)
    except ValueError:
        return 0.0
    return value if 0 < value < 255 else 0.0
