"""Where a network device is on its bus: its place, its netdevs' port numbers, and whether it is still there.

Reads /sys/bus/<bus>/devices, which no network namespace hides, unlike the `net` folders in it: those show the netdevs
of the namespace that sysfs was mounted in. Follows Documentation/ABI/testing/sysfs-class-net.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from netdra.kernel import pci
from netdra.kernel.errors import errno_name
from netdra.kernel.liveness import Liveness
from netdra.kernel.sysfs import Sysfs, Unreadable

PCI, VIRTIO = "pci", "virtio"


def place_of(sysfs: Sysfs, bus: str, address: str) -> tuple[str, str]:
    """The bus and the address of the device behind a netdev, as netlink returns them ("parent").

    The parent of a virtio NIC is the virtio device. Its place is the PCI function that this is on, if it is on one.
    """
    if bus == VIRTIO:
        above = sysfs.behind(f"bus/{VIRTIO}/devices/{address}").split("/")[-2:-1]
        if above and pci.is_address(above[0]):
            return PCI, above[0]
    return bus, address


def net_folders(sysfs: Sysfs, address: str) -> Iterator[str]:
    """The folders with the netdevs of a PCI function: its own, and those of the virtio devices on it."""
    folder = f"bus/{PCI}/devices/{address}"
    yield f"{folder}/net"
    for entry in sysfs.listing(folder):
        if entry.startswith(VIRTIO):
            yield f"{folder}/{entry}/net"


def port_of(sysfs: Sysfs, bus: str, address: str, name: str, index: int) -> int | None:
    """The port number of a netdev among several of one device; None if the netdev is not in sysfs' namespace.

    Args:
        sysfs: the tree.
        bus: the netdev's parent bus, as netlink returns it.
        address: the parent.
        name: the netdev's name.
        index: its index, since another port may have that name elsewhere.
    """
    folder = f"bus/{bus}/devices/{address}/net/{name}"
    if sysfs.number(f"{folder}/ifindex") != index:
        return None
    # In older drivers, `dev_id` is the port.
    numbers = (sysfs.number(f"{folder}/{file}", 0) for file in ("dev_port", "dev_id"))
    return next((number for number in numbers if isinstance(number, int) and number > 0), 0)


def liveness(sysfs: Sysfs, bus: str, address: str) -> Liveness:
    """Whether a device is on its bus; if the bus is not known, on any bus (decision D59)."""
    buses: list[str] | Unreadable | None = [bus] if bus else [PCI] if pci.is_address(address) else sysfs.names("bus")
    if isinstance(buses, Unreadable):
        return Liveness("unknown", f"cannot list the buses: {buses.reason}")
    results = [sysfs.liveness(f"bus/{name}/devices/{address}") for name in buses or ()]
    for state in ("present", "unknown"):
        result = next((result for result in results if result.state == state), None)
        if result is not None:
            return result
    return Liveness("gone") if results else Liveness("unknown", f"no bus is known: {errno_name(errno.ENOENT)}")
