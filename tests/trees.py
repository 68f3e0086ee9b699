"""Synthetic sysfs trees that tests write: machines with NICs, SR-IOV, bridges, as real ones lay them out.

Folders of devices are below `devices/`, and `class/net`, `bus/pci/devices` and `class/infiniband` link to them.
"""

from __future__ import annotations

import os
from pathlib import Path

ETHERNET, NVME = "0x020000", "0x010802"
"""Classes of PCI functions, as sysfs writes them."""


class Tree:
    """A tree below `root`; every method adds something to it and returns the folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ifindex = 0
        for folder in ("class/net", "bus/pci/devices", "devices/virtual/net"):
            (root / folder).mkdir(parents=True, exist_ok=True)

    def __str__(self) -> str:
        return str(self.root)

    def write(self, path: str | Path, **files: object) -> Path:
        """Files in a folder (relative to the root); `__` in a name stands for a slash."""
        folder = self.root / path
        for name, value in files.items():
            file = folder / name.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")
        return folder

    def link(self, path: str | Path, target: str | Path) -> None:
        """A relative symbolic link, whether its target is there or not."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        # As the kernel writes them: the last part is the target's own name.
        above, name = os.path.split(self.root / target)
        place.symlink_to(os.path.join(os.path.relpath(above, place.parent), name))

    def pci(
        self,
        address: str,
        *,
        below: str = "pci0000:00",
        driver: str = "",
        numa_node: int | None = 0,
        iommu_group: str = "",
        vendor: str = "0x8086",
        device: str = "0x1592",
        pci_class: str = ETHERNET,
        **files: object,
    ) -> Path:
        """A PCI function at `devices/<below>/<address>`; its driver link dangles, as in most recorded trees."""
        path = Path("devices") / below / address
        files |= {"vendor": vendor, "device": device, "class": pci_class}
        if numa_node is not None:
            files["numa_node"] = numa_node
        folder = self.write(path, **files)
        self.link(f"bus/pci/devices/{address}", path)
        if driver:
            self.link(path / "driver", f"bus/pci/drivers/{driver}")
        if iommu_group:
            self.link(path / "iommu_group", f"kernel/iommu_groups/{iommu_group}")
        return folder

    def sriov(self, pf: str, vfs: list[str], *, total: int = 8, **facts: object) -> None:
        """Make a PCI function a PF with these VFs, in the order of their indexes."""
        folder = (self.root / "bus/pci/devices" / pf).resolve()
        path = folder.relative_to(self.root.resolve())
        self.write(path, sriov_totalvfs=total, sriov_numvfs=len(vfs))
        for number, address in enumerate(vfs):
            self.pci(address, below=str(path.parent.relative_to("devices")), device="0x1889", **facts)  # type: ignore[arg-type]
            self.link(path / f"virtfn{number}", path.parent / address)
            self.link(path.parent / address / "physfn", path)

    def netdev(self, name: str, device: str = "", **files: object) -> Path:
        """An interface: of a PCI function, or virtual."""
        self._ifindex += 1
        facts: dict[str, object] = {
            "ifindex": self._ifindex,
            "iflink": self._ifindex,
            "address": f"52:54:00:00:00:{self._ifindex:02x}",
            "mtu": 1500,
            "operstate": "up",
            "type": 1,
            "addr_assign_type": 0 if device else 3,
            "flags": "0x1003",
            "ifalias": "",
            "uevent": f"INTERFACE={name}\nIFINDEX={self._ifindex}",
        }
        if device:
            parent = (self.root / "bus/pci/devices" / device).resolve().relative_to(self.root.resolve())
            path = parent / "net" / name
            self.link(path / "device", parent)
        else:
            path = Path("devices/virtual/net") / name
        folder = self.write(path, **facts | files)
        self.link(f"class/net/{name}", path)
        return folder

    def enslave(self, name: str, master: str) -> None:
        """Make an interface a port of another one."""
        for interface, entry, target in (
            (name, "master", master),
            (name, f"upper_{master}", master),
            (master, f"lower_{name}", name),
        ):
            folder = (self.root / "class/net" / interface).resolve().relative_to(self.root.resolve())
            self.link(folder / entry, (self.root / "class/net" / target).resolve().relative_to(self.root.resolve()))

    def stack(self, name: str, lower: str) -> None:
        """Make an interface stand on another one, as a VLAN does."""
        for interface, entry, target in ((name, f"lower_{lower}", lower), (lower, f"upper_{name}", name)):
            folder = (self.root / "class/net" / interface).resolve().relative_to(self.root.resolve())
            self.link(folder / entry, (self.root / "class/net" / target).resolve().relative_to(self.root.resolve()))

    def rdma(self, name: str, device: str) -> None:
        """An RDMA device of a PCI function."""
        path = (self.root / "bus/pci/devices" / device).resolve().relative_to(self.root.resolve())
        self.write(path / "infiniband" / name, node_type="1: CA")
        self.link(path / "infiniband" / name / "device", path)
        self.link(f"class/infiniband/{name}", path / "infiniband" / name)


def sriov_machine(root: Path) -> Tree:
    """A machine with most kinds of devices: two PFs behind switches, VFs with and without netdev, bridge, VLAN, bond.

    ens1 (0000:41:00.0, four VFs with a stride of two): VF 0 has the netdev ens1v0, a port of br0; VF 1 is under
    vfio-pci; VF 2 is in a pod; VF 3 has the netdev renamed0. ens2 is on a 32-bit PCI domain without a NUMA node.
    """
    tree = Tree(root)
    switch = "pci0000:40/0000:40:01.0/0000:3f:00.0"
    tree.pci("0000:41:00.0", below=switch, driver="igb", numa_node=1, iommu_group="17")
    vfs = ["0000:41:10.0", "0000:41:10.2", "0000:41:10.4", "0000:41:10.6"]
    tree.sriov("0000:41:00.0", vfs, total=7, driver="igbvf", numa_node=1)
    taken = tree.root / f"devices/{switch}/0000:41:10.2"
    (taken / "driver").unlink()
    tree.link(f"devices/{switch}/0000:41:10.2/driver", "bus/pci/drivers/vfio-pci")
    tree.pci(
        "10000:81:00.0",
        below="pci10000:80/10000:80:00.0",
        driver="ice",
        numa_node=-1,
        sriov_totalvfs=64,
        sriov_numvfs=0,
    )
    tree.pci("0000:01:00.0", driver="nvme", pci_class=NVME)
    tree.netdev("ens1", "0000:41:00.0", speed=1000)
    tree.netdev("ens1v0", "0000:41:10.0", speed=1000)
    tree.netdev("renamed0", "0000:41:10.6", operstate="down", speed=-1)
    tree.netdev("ens2", "10000:81:00.0", speed=25000, ifalias="to the spine")
    tree.netdev("br0", bridge__vlan_filtering=1, uevent="DEVTYPE=bridge\nINTERFACE=br0")
    tree.netdev("ens2.7", uevent="DEVTYPE=vlan\nINTERFACE=ens2.7")
    tree.netdev("bond0", bonding__mode="active-backup 1", uevent="DEVTYPE=bond\nINTERFACE=bond0")
    tree.netdev("lo", type=772, address="00:00:00:00:00:00")
    tree.write("class/net", bonding_masters="bond0")
    tree.enslave("ens1v0", "br0")
    tree.stack("ens2.7", "ens2")
    tree.rdma("irdma0", "10000:81:00.0")
    return tree


def switchdev_machine(root: Path) -> Tree:
    """A machine with a NIC in switchdev mode and its representors, as Linux lays it out since 5.8, and two other NICs.

    ens1 (0000:41:00.0) has two VFs, ens1v0 and one without a netdev. Their representors eth0 and eth1, an SF's (eth2),
    one for a VF of another host (eth3) and that of that host's PF (eth4) hang on ens1's function, with lower indexes
    than ens1. enp4s0f0 has one VF in legacy mode, enp6s0f0 none.
    """
    tree = Tree(root)
    switch = "0123456789ab"
    tree.pci("0000:41:00.0", below="pci0000:40", driver="mlx5_core", vendor="0x15b3", device="0x101d")
    tree.sriov("0000:41:00.0", ["0000:41:00.2", "0000:41:00.3"], driver="mlx5_core", vendor="0x15b3")
    for number, port in enumerate(("pf0vf0", "pf0vf1", "pf0sf7", "c1pf0vf0", "c1pf0")):
        tree.netdev(f"eth{number}", "0000:41:00.0", phys_port_name=port, phys_switch_id=switch)
    tree.netdev("ens1", "0000:41:00.0", phys_port_name="p0", phys_switch_id=switch, speed=100000)
    tree.netdev("ens1v0", "0000:41:00.2")
    tree.pci("0000:04:00.0", driver="mlx5_core", vendor="0x15b3", device="0x101d")
    tree.sriov("0000:04:00.0", ["0000:04:00.2"], driver="mlx5_core", vendor="0x15b3")
    tree.netdev("enp4s0f0", "0000:04:00.0", phys_port_name="p0", speed=100000)
    tree.netdev("enp4s0f0v0", "0000:04:00.2")
    tree.pci("0000:06:00.0", driver="mlx5_core", sriov_totalvfs=8, sriov_numvfs=0)
    tree.netdev("enp6s0f0", "0000:06:00.0", phys_port_name="p0", speed=100000)
    return tree
