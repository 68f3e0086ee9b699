"""The device behind an interface, from sysfs: PCI facts, SR-IOV, its place in the machine.

Called by `live` and `recorded` for links that have a device and for VFs that have no link. Every value that is there
but cannot be read is noted; nothing is raised.
"""

from __future__ import annotations

import errno
from collections.abc import Container
from typing import TypeVar

import msgspec

from netdra.discovery.facts import SysfsDevice
from netdra.kernel import pci
from netdra.kernel.errors import errno_name
from netdra.kernel.sysfs import Folder, Sysfs, Unreadable

SRIOV_FIELDS = ("sriov_capable", "total_vfs", "num_vfs")
_PCI_FIELDS = ("vendor", "product", "driver", "numa_node", "pcie_root", "iommu_group", *SRIOV_FIELDS)
_VFS = range(1 << 16)  # SR-IOV's own fields have 16 bits
_NUMA_NODES = range(-1, 1 << 15)
_GONE = errno.ENOENT
GONE = errno_name(_GONE)
"""In `SysfsDevice.unreadable`: the device's folder is not there."""
# Network controllers (InfiniBand's too are 0x0207), and InfiniBand as a serial bus: PCI Code and ID Assignment, 0x0c06.
_NETWORK_CLASSES = ("0x02", "0x0c06")

T = TypeVar("T", bound=str | int)


def behind_link(sysfs: Sysfs, name: str) -> SysfsDevice | None:
    """The device of an interface by the interface's name; None for a virtual one.

    Where the link to the device is missing, as in some recorded trees, the interface's own folder is in the device's.
    """
    folder = f"class/net/{name}/device"
    target = sysfs.link(folder)
    if target is None:
        place, net, _ = sysfs.behind(f"class/net/{name}").rpartition("/net/")
        real = net and place.startswith("devices/") and not f"{place}/".startswith("devices/virtual/")
        return read(sysfs, place, name) if real else None
    if isinstance(target, Unreadable):
        return SysfsDevice(unreadable=dict.fromkeys(("pci_address", *_PCI_FIELDS), target.reason))
    return read(sysfs, sysfs.resolve(folder), name)


def behind_parent(sysfs: Sysfs, name: str, bus: str, parent: str) -> SysfsDevice:
    """The device of an interface by the bus address that netlink gives: no namespace hides that device in /sys."""
    return read(sysfs, sysfs.behind(f"bus/{bus}/devices/{parent}"), name)


def other_pfs(sysfs: Sysfs, present: Container[str]) -> list[str]:
    """The network controllers that have VFs just now and no netdev here, by PCI address: the netdev may be in a pod.

    Args:
        present: the addresses that need not be inspected.
    """
    addresses = [address for address in sysfs.listing("bus/pci/devices") if address not in present]
    with sysfs.folder("bus/pci/devices") as folder:
        return [address for address in addresses if _has_vfs(folder, address) and _is_network(folder, address)]


def network_functions(sysfs: Sysfs) -> list[str]:
    """The addresses of all network controllers."""
    with sysfs.folder("bus/pci/devices") as folder:
        return [address for address in sysfs.listing("bus/pci/devices") if _is_network(folder, address)]


def function(sysfs: Sysfs, address: str) -> SysfsDevice:
    """A PCI function that has no netdev here."""
    return read(sysfs, sysfs.behind(f"bus/pci/devices/{address}"))


def read(sysfs: Sysfs, path: str, netdev: str = "") -> SysfsDevice:
    """A device from sysfs. A device with an interface has a driver; if none is seen, it could not be read.

    Args:
        path: the device's folder with all links resolved, so that its ancestors can be seen in it.
        netdev: the interface whose device is asked for, if the device has one here.
    """
    device = _read(sysfs, path, netdev)
    if not netdev or device.driver or "driver" in device.unreadable:
        return device
    return msgspec.structs.replace(device, unreadable={**device.unreadable, "driver": GONE})


def _read(sysfs: Sysfs, path: str, netdev: str) -> SysfsDevice:
    parts = path.split("/")
    at = _pci_ancestor(parts)
    with sysfs.folder(path) as folder:
        port = _port(sysfs, folder, netdev) if netdev else 0
        if at == len(parts) - 1:
            return _pci(sysfs, folder, path, port)
        above = "/".join(parts[: at + 1])
        if at >= 0 and not parts[-1].startswith("virtio"):
            # A sub-function or a USB adapter: it stands below a PCI device, but is not that device.
            return _on_bus(folder, parts[-1], _below_pci(sysfs, folder, above, port))
        # A missing folder does not prove that its device has no driver.
        gone = None if folder.is_open else Unreadable(_GONE)
        driver = folder.link_name("driver") if gone is None else gone
        if at < 0:
            device = _elsewhere(driver, folder.number("numa_node") if gone is None else gone, port)
            return _on_bus(folder, parts[-1], device)
    with sysfs.folder(above) as folder:
        return _pci(sysfs, folder, above, port, driver)


def _pci(sysfs: Sysfs, folder: Folder, path: str, port: int, driver: str | Unreadable | None = None) -> SysfsDevice:
    """A PCI device, or the virtio device on it, whose driver then counts instead of the bus's."""
    if not folder.is_open:
        why = folder.unreadable.reason if folder.unreadable is not None else GONE
        reason = dict.fromkeys(_PCI_FIELDS, why)
        return SysfsDevice(address=path.rpartition("/")[2], dev_port=port, unreadable=reason)
    device = pci.read(folder, path)
    unreadable: dict[str, str] = {}
    total_vfs = _value("total_vfs", within(_VFS, device.total_vfs), 0, unreadable)
    vfs = _value("num_vfs", within(_VFS, device.vfs), 0, unreadable)
    if "total_vfs" in unreadable:
        unreadable |= dict.fromkeys(SRIOV_FIELDS, unreadable["total_vfs"])
    functions = pci.virtual_functions(sysfs, device.address, path) if total_vfs else {}
    if isinstance(functions, Unreadable):
        unreadable["num_vfs"] = functions.reason
        functions = {}
    return SysfsDevice(
        address=device.address,
        vendor=_hexadecimal("vendor", device.vendor, unreadable),
        product=_hexadecimal("product", device.product, unreadable),
        driver=_value("driver", device.driver if driver is None else driver, "", unreadable),
        numa_node=_value("numa_node", within(_NUMA_NODES, device.numa_node), -1, unreadable),
        pcie_root=_value("pcie_root", device.root, "", unreadable),
        iommu_group=_value("iommu_group", device.iommu_group, "", unreadable),
        total_vfs=total_vfs,
        vfs=vfs,
        functions=functions,
        pf=_value("pf_pci_address", device.pf, "", unreadable),
        dev_port=port,
        unreadable=unreadable,
    )


def _on_bus(folder: Folder, address: str, device: SysfsDevice) -> SysfsDevice:
    """A device that is not a PCI function, with its place on its own bus, as netlink has it."""
    bus = folder.link_name("subsystem")
    return msgspec.structs.replace(device, bus=bus, bus_address=address) if bus and isinstance(bus, str) else device


def _elsewhere(driver: str | Unreadable | None, numa_node: int | Unreadable | None, port: int) -> SysfsDevice:
    """A device on no PCI bus."""
    unreadable: dict[str, str] = {}
    return SysfsDevice(
        driver=_value("driver", driver, "", unreadable),
        numa_node=_value("numa_node", within(_NUMA_NODES, numa_node), -1, unreadable),
        dev_port=port,
        unreadable=unreadable,
    )


def _below_pci(sysfs: Sysfs, folder: Folder, ancestor: str, port: int) -> SysfsDevice:
    unreadable: dict[str, str] = {}
    return SysfsDevice(
        driver=_value("driver", folder.link_name("driver") if folder.is_open else Unreadable(_GONE), "", unreadable),
        numa_node=_value("numa_node", within(_NUMA_NODES, sysfs.number(f"{ancestor}/numa_node")), -1, unreadable),
        pcie_root=pci.root_of(ancestor),
        dev_port=port,
        unreadable=unreadable,
    )


def _pci_ancestor(parts: list[str]) -> int:
    """The place of the last PCI address in a path, -1 for none."""
    if pci.is_address(parts[-1]):
        return len(parts) - 1
    return next((place for place in range(len(parts) - 1, -1, -1) if pci.is_address(parts[place])), -1)


def _port(sysfs: Sysfs, folder: Folder, netdev: str) -> int:
    """Several netdevs of one function are distinguished by `dev_port`, in older drivers by `dev_id`.

    A netdev's folder is below its device's, which is the shorter way; `class` leads to it in every tree.
    """
    return _port_of(sysfs, folder, netdev, "dev_port") or _port_of(sysfs, folder, netdev, "dev_id") or 0


def _port_of(sysfs: Sysfs, folder: Folder, netdev: str, file: str) -> int | None:
    """The number in a file, None where it is absent or has no number."""
    port = folder.number(f"net/{netdev}/{file}", 0)
    if port is None:
        port = sysfs.number(f"class/net/{netdev}/{file}", 0)
    return port if isinstance(port, int) and port >= 0 else None


def within(possible: range, value: int | Unreadable | None) -> int | Unreadable | None:
    """A number that was read, if it is possible."""
    return Unreadable(errno.ERANGE) if isinstance(value, int) and value not in possible else value


def _has_vfs(devices: Folder, address: str) -> bool:
    file = f"{address}/sriov_numvfs"
    count = devices.number(file) if devices.exists(file) else None
    return isinstance(count, int) and count > 0


def _is_network(devices: Folder, address: str) -> bool:
    code = devices.read(f"{address}/class")
    return isinstance(code, str) and code.startswith(_NETWORK_CLASSES)


def _value(field: str, value: T | Unreadable | None, neutral: T, unreadable: dict[str, str]) -> T:
    """The value, or the neutral one where none exists, with a note if it was there but could not be read."""
    if isinstance(value, Unreadable):
        unreadable[field] = value.reason
        return neutral
    return neutral if value is None else value


def _hexadecimal(field: str, text: str | Unreadable, unreadable: dict[str, str]) -> str:
    return _value(field, text, "", unreadable).removeprefix("0x")
