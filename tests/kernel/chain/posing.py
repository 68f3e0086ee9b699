"""Veths that pose as hardware: as NICs on PCI, virtio, USB, VMBus or the auxiliary bus, several ports of one function.

The kernel moves, renames and changes them; what is made up is what it states of the device behind each: its parent, its
permanent MAC, and the files of sysfs. A link is recognised by its other end, which never moves, in every namespace. A
real kernel has no such device that could be made at will, and two ports on one function no emulator has.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.chain import site
from netdra.discovery import live
from netdra.discovery.scan import scan
from netdra.kernel import link
from netdra.kernel.link import Link
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.kernel.sysfs import Sysfs, Unreadable
from netdra.model.plan import PlannedDevice
from netdra.model.resource import Device
from netdra.node.publishing.facts import DeviceFacts, planned
from tests.kernel.chain.conftest import Bed

DRIVERS = {"pci": "mlx4_en", "virtio": "virtio_net", "usb": "r8152", "vmbus": "hv_netvsc", "auxiliary": "mlx5_core"}


@dataclass(frozen=True)
class NIC:
    """A NIC: what netlink states of its parent, and its port there."""

    bus: str
    parent: str
    mac: str
    port: int = 0


class LiveSysfs(Sysfs):
    """A tree whose `net` folders show the links that are in the host's namespace just now."""

    __slots__ = ("hardware",)

    def __init__(self, root: str, hardware: Hardware) -> None:
        super().__init__(root)
        self.hardware = hardware

    def names(self, path: str) -> list[str] | Unreadable | None:
        device, net, rest = path.partition("/net")
        if net and not rest:
            return sorted(self.hardware.on_host(self.resolve(device).rpartition("/")[2])) or None
        return super().names(path)

    def read(self, path: str) -> str | Unreadable | None:
        device, net, rest = path.partition("/net/")
        name, _, file = rest.partition("/")
        if not net or file not in {"ifindex", "dev_port"}:
            return super().read(path)
        parent = "" if device == "class" else self.resolve(device).rpartition("/")[2]
        there = self.hardware.on_host(parent).get(name)
        if there is None:
            return None
        index, port = there
        return str(index if file == "ifindex" else port)


class Hardware:
    """The hardware of a bed."""

    def __init__(self, bed: Bed, root: Path) -> None:
        self.bed = bed
        self.nics: dict[int, NIC] = {}
        self.sysfs = LiveSysfs(str(root), self)
        self._root = root
        for bus in DRIVERS:
            (root / f"bus/{bus}/devices").mkdir(parents=True)
            (root / f"bus/{bus}/drivers/{DRIVERS[bus]}").mkdir(parents=True)

    def as_posed(self, real: Link) -> Link:
        """A link as the kernel would return it if it were hardware."""
        nic = self.nics.get(real.lower) if real.kind == "veth" else None
        if nic is None:
            return real
        return msgspec.structs.replace(
            real, kind="", lower=0, lower_netns=-1, parent=nic.parent, parent_bus=nic.bus,
            permanent_address=nic.mac,
        )  # fmt: skip

    def on_host(self, parent: str) -> dict[str, tuple[int, int]]:
        """The netdevs of a device, or of all, that are in the host's namespace: index and port by name."""

        def listed() -> dict[str, tuple[int, int]]:
            with Socket() as sock:
                return {
                    netdev.name: (netdev.index, nic.port)
                    for body in link.dump_raw(sock)[0]
                    if (nic := self.nics.get((netdev := REAL_PARSE(body)).lower)) and parent in ("", nic.parent)
                }

        return self.bed.host.visit(listed)

    def plug(self, name: str, bus: str, address: str, *, below: str = "", port: int = 0) -> None:
        """A NIC appears on the host.

        Args:
            name: its netdev's.
            bus: its parent's bus.
            address: its parent's address there.
            below: the PCI function that the parent is on.
            port: its number among several of one device.
        """
        self.bed.veth(name, f"{name}-wire")
        self.nics[self.bed.link(f"{name}-wire")["ifindex"]] = NIC(bus, address, self.bed.link(name)["address"], port)
        place = f"pci0000:00/{below}/{address}" if below else f"pci0000:00/{address}" if bus == "pci" else address
        folder = self._root / "devices" / place
        if folder.exists():
            return
        folder.mkdir(parents=True)
        self._list(bus, folder)
        if below and not (self._root / f"bus/pci/devices/{below}").exists():
            self._list("pci", folder.parent)

    def _list(self, bus: str, folder: Path) -> None:
        (self._root / f"bus/{bus}/devices/{folder.name}").symlink_to(folder)
        (folder / "subsystem").symlink_to(self._root / f"bus/{bus}")
        (folder / "driver").symlink_to(self._root / f"bus/{bus}/drivers/{DRIVERS[bus]}")

    def unplug(self, name: str, space: Namespace) -> None:
        """A NIC goes from the machine, wherever its netdev is."""
        with space.visit(Socket) as sock:
            netdev = link.get(sock, name)
            link.delete(sock, netdev.index)
        self.take_from_bus(netdev.parent_bus, netdev.parent)

    def take_from_bus(self, bus: str, address: str) -> None:
        """A device is no longer on its bus."""
        entry = self._root / f"bus/{bus}/devices/{address}"
        if any(nic.parent == address for nic in self.nics.values() if self.on_host(address)):
            return  # another port of it
        above = entry.resolve().parent
        entry.unlink()
        (self._root / f"bus/pci/devices/{above.name}").unlink(missing_ok=True)

    def clear(self) -> None:
        """No hardware is there any more; its links are the test's to remove."""
        self.nics.clear()
        for bus in DRIVERS:
            for entry in (self._root / f"bus/{bus}/devices").iterdir():
                entry.unlink()
        shutil.rmtree(self._root / "devices", ignore_errors=True)

    def allocated(self, name: str, **facts: Any) -> PlannedDevice:
        """A netdev of the host as it is discovered, published and allocated."""

        def discovered() -> PlannedDevice:
            with live.Kernel(sysfs=self.sysfs) as kernel:
                (found,) = [each for each in scan(kernel=kernel).interfaces if each.if_name == name]
            return planned("p", Device(name=name), DeviceFacts(found))

        return msgspec.structs.replace(self.bed.host.visit(discovered), request="r", **facts)


REAL_PARSE = link.parse


@pytest.fixture
def hardware(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hardware:
    """Hardware that a test plugs in and out."""
    made = Hardware(bed, tmp_path / "sys")
    monkeypatch.setattr(link, "parse", lambda body, **how: made.as_posed(REAL_PARSE(body, **how)))
    monkeypatch.setattr(site, "Sysfs", lambda: made.sysfs)
    return made
