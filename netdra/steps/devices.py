"""Devices on the host: their netdevs, and the files of those that a pod gets without an interface."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from netdra.kernel import bus, link, pci
from netdra.kernel.link import Link
from netdra.kernel.netlink import Socket
from netdra.kernel.sysfs import Sysfs
from netdra.model.errors import PermanentError
from netdra.model.identity import DeviceIdentity
from netdra.model.plan import PlannedDevice
from netdra.steps import identity

USERSPACE_DRIVERS = ("vfio-pci", "igb_uio", "uio_pci_generic")
_VFIO_CONTAINER = "/dev/vfio/vfio"
_WITHOUT_IOMMU = "vfio-noiommu"


def netdev_for(sock: Socket, sysfs: Sysfs, device: PlannedDevice) -> Link | None:
    """The netdev of an allocated device on the host; None if it is not there.

    A device is recognised by its identity, under any name. Without one (from slices, or in records of an older netdra)
    only the name distinguishes several netdevs of a PCI function.

    Raises:
        KernelError: the kernel refused.
    """
    known, at = device.identity, device.pci_address
    if not at:
        if known is not None and known.is_physical:
            return identity.find(sock, sysfs, known, device.if_name)
        return link.find(sock, device.if_name) if device.if_name else None
    there = netdevs_at(sock, sysfs, at)
    named = [netdev for netdev in there if netdev.name == device.if_name]
    if known is None and named:
        return named[0]
    wanted = known or DeviceIdentity(bus=bus.PCI, address=at, port="")
    fits = {netdev.index: identity.is_port(netdev, wanted, sysfs) for netdev in there}
    possible = [netdev for netdev in (*named, *there) if fits[netdev.index] is None]
    return next((netdev for netdev in there if fits[netdev.index]), None) or next(iter(possible), None)


def check_driver(called: str, device: PlannedDevice, driver: str, sysfs: Sysfs, *, has_netdev: bool) -> None:
    """Refuse a device that is not as it was offered: it has another driver, or a userspace driver has its netdev.

    Args:
        called: the step as messages call it.
        device: the allocated device; an empty field is not compared.
        driver: the driver that its PCI function has now, "" for none.
        sysfs: the host's.
        has_netdev: whether it has a netdev on the host.

    Raises:
        PermanentError: it is not.
    """
    # The driver of a netdev behind another bus, such as virtio, is not the one that has the PCI function.
    is_on_pci = bool(device.driver) and sysfs.is_folder(f"bus/pci/drivers/{device.driver}")
    is_other = is_on_pci and bool(device.pci_address) and driver != device.driver
    if not is_other and (has_netdev or not device.if_name or driver not in USERSPACE_DRIVERS):
        return
    offered = f"driver {device.driver}" if device.driver else f'interface "{device.if_name}"'
    raise PermanentError(
        f'{called}: device "{device.device}" ({device.pci_address}) was offered with {offered}, but now has '
        f"{f'driver {driver}' if driver else 'no driver'}",
        hint=f"see which pod or person has rebound it; to bind it again: driverctl unset-override {device.pci_address}",
        code="ND2025",
    )


def ports_of(sock: Socket, sysfs: Sysfs, address: str) -> list[Link]:
    """The netdevs on the host of a PCI function's ports, not of its representors.

    Raises:
        KernelError: the kernel refused.
    """
    return [netdev for netdev in netdevs_at(sock, sysfs, address) if netdev.port is None]


def netdevs_at(sock: Socket, sysfs: Sysfs, address: str) -> list[Link]:
    """The netdevs on the host at a PCI address: of a function in switchdev mode, also its representors.

    Each is read by itself, by its index in sysfs: a dump of all links takes the kernel's lock of all networks for
    13 ms at 1,000 links. Only if a driver of the kernel has the device and sysfs shows no netdev, all links are listed.

    Args:
        sock: a socket in the host's namespace.
        sysfs: the host's.
        address: the PCI address.

    Raises:
        KernelError: the kernel refused.
    """
    return list(_netdevs(sock, sysfs, address)) or _listed(sock, sysfs, address)


def netdev_of(sock: Socket, sysfs: Sysfs, address: str) -> Link | None:
    """The netdev on the host of a PCI function, not of its representors; None without one.

    Raises:
        KernelError: the kernel refused.
    """
    representors = 0
    for netdev in _netdevs(sock, sysfs, address):
        if netdev.port is None:
            return netdev
        representors += 1
    listed = [] if representors else _listed(sock, sysfs, address)
    return next((netdev for netdev in listed if netdev.port is None), None)


def _netdevs(sock: Socket, sysfs: Sysfs, address: str) -> Iterator[Link]:
    """One after the other in the order of their indexes: a function's own netdev is older than its representors."""
    indexes = (
        sysfs.number(f"{folder}/{name}/ifindex")
        for folder in bus.net_folders(sysfs, address)
        for name in sysfs.listing(folder)
    )
    for index in sorted(index for index in indexes if isinstance(index, int)):
        netdev = link.find(sock, index)
        if netdev is not None and _is_at(netdev, sysfs, address):
            yield netdev


def _listed(sock: Socket, sysfs: Sysfs, address: str) -> list[Link]:
    if sysfs.is_folder(f"bus/pci/devices/{address}") and pci.driver_of(sysfs, address) in (*USERSPACE_DRIVERS, ""):
        return []
    return [netdev for netdev in link.dump(sock) if _is_at(netdev, sysfs, address)]


def _is_at(netdev: Link, sysfs: Sysfs, address: str) -> bool:
    return bus.place_of(sysfs, netdev.parent_bus, netdev.parent)[1] == address


def iommu_group(address: str, sysfs: Sysfs) -> str:
    """The IOMMU group of a PCI device, "" for none."""
    group = sysfs.link_name(f"bus/pci/devices/{address}/iommu_group")
    return group if isinstance(group, str) else ""


def check_isolated(step: str, address: str, sysfs: Sysfs) -> None:
    """Refuse vfio for a device that no IOMMU isolates; in its mode without one, vfio makes a group of its own.

    Args:
        step: the step as messages call it.
        address: the device.
        sysfs: the machine's.

    Raises:
        PermanentError: the device has no IOMMU group, or one of vfio's own (vfio_noiommu_group_alloc() in
            drivers/vfio/group.c).
    """
    group = iommu_group(address, sysfs)
    if group and sysfs.text(f"kernel/iommu_groups/{group}/name") != _WITHOUT_IOMMU:
        return
    raise PermanentError(
        f"{step}: device {address} is in no IOMMU group, and vfio without an IOMMU (enable_unsafe_noiommu_mode) is not "
        "supported: a pod could read and write the node's memory through the device",
        hint="enable the IOMMU: intel_iommu=on or amd_iommu=on on the kernel's command line, in a virtual machine also "
        "a virtual IOMMU; or accept the risk with driver: uio_pci_generic or igb_uio in a step vfio-pci",
        code="ND2026",
    )


def device_nodes(address: str, sysfs: Sysfs) -> tuple[str, ...]:
    """The character devices through which a program uses a PCI device that a userspace driver has; none otherwise."""
    group = iommu_group(address, sysfs)
    if pci.driver_of(sysfs, address) == "vfio-pci" and group:
        return (f"/dev/vfio/{group}", _VFIO_CONTAINER)
    return tuple(f"/dev/{name}" for name in sysfs.listing(f"bus/pci/devices/{address}/uio"))


def is_open(address: str, sysfs: Sysfs) -> bool:
    """Whether a program has the IOMMU group of a PCI device open just now.

    vfio lets a group be opened once (drivers/vfio/group.c), so opening it shows. Taking a device from vfio-pci while it
    is open would wait for that program without an end, and nothing could interrupt it.
    """
    try:
        os.close(os.open(f"/dev/vfio/{iommu_group(address, sysfs)}", os.O_RDWR | os.O_CLOEXEC))
    except OSError as problem:
        return problem.errno == errno.EBUSY
    return False
