"""Real servers, described: the sysfs facts of their network devices in one short YAML file a server, and trees of it.

`build` lays a server out as its kernel did. The tests of discovery read such trees, and `tests/recorded` compares them
with the recordings that the descriptions were written from. MAC addresses are made up; all else is as it was recorded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from testbed import yaml
from tests.trees import Tree

_FOLDER = Path(__file__).parent
NAMES = tuple(sorted(file.stem for file in _FOLDER.glob("*.yaml")))
"""The servers that are described."""


class Function(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One PCI function.

    Attributes:
        below: the address of the bridge or switch port that it hangs on, or the PCIe root ("pci0000:00").
        pci_class: `class` in the file.
        id: vendor and device, as lspci writes them.
        driver: the bound driver. The link to it dangles.
        numa_node: -1 where the machine does not report it.
        total_vfs: how many VFs it could have; none is created. None where it has no files of SR-IOV.
        on_bus: whether bus/pci/devices has it.
    """

    below: str
    pci_class: int = msgspec.field(name="class")
    id: str
    driver: str
    numa_node: int
    total_vfs: int | None = None
    on_bus: bool = True


class Netdev(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One interface; fields that sysfs has a file for have the file's name.

    Attributes:
        device: the address of the PCI function that it belongs to, "" for a virtual one.
        kind: what made a virtual one. Only some kinds show in files.
        iflink: the index of a veth's peer, None where it is the interface's own.
        speed: None where no such file exists; "unreadable" where it was there, but could not be read.
        ports: the interfaces that are ports of this bridge.
    """

    device: str = ""
    kind: Literal["", "bridge", "veth", "tun", "dummy", "loopback"] = ""
    address: str
    ifindex: int
    iflink: int | None = None
    mtu: int = 1500
    operstate: str = "up"
    type: int = 1
    flags: int = 0x1003
    speed: int | Literal["unreadable"] | None = None
    ports: tuple[str, ...] = ()


class Server(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server as its file describes it.

    Attributes:
        pci: the functions that have to do with networks and the bridges above them, by address, parents first.
        netdevs: by name.
        rdma: the PCI functions of RDMA devices, by the devices' names.
        dangling: links, and the places in the tree that they lead to, where nothing is.
    """

    pci: dict[str, Function]
    netdevs: dict[str, Netdev]
    rdma: dict[str, str] = {}
    dangling: dict[str, str] = {}


def read(name: str) -> Server:
    """The description of a server."""
    return msgspec.convert(yaml.safe_load((_FOLDER / f"{name}.yaml").read_text()), Server)


def build(name: str, root: Path) -> Tree:
    """A tree of a server, in the folder `root`."""
    server, tree = read(name), Tree(root)
    folders: dict[str, str] = {}
    for address, function in server.pci.items():
        below = folders.get(function.below, function.below)
        folders[address] = f"{below}/{address}"
        _add_function(tree, address, function, below)
    for interface, netdev in server.netdevs.items():
        _add_netdev(tree, interface, netdev)
    for interface, netdev in server.netdevs.items():
        for port in netdev.ports:
            tree.enslave(port, interface)
    for device, address in server.rdma.items():
        tree.rdma(device, address)
    for link, target in server.dangling.items():
        tree.link(link, target)
    return tree


def _add_function(tree: Tree, address: str, function: Function, below: str) -> None:
    vendor, _, device = function.id.partition(":")
    said = (
        f"DRIVER={function.driver}",
        f"PCI_CLASS={function.pci_class:X}",
        f"PCI_ID={function.id.upper()}",
        f"PCI_SLOT_NAME={address}",
    )
    folder = tree.pci(
        address,
        below=below,
        driver=function.driver,
        numa_node=function.numa_node,
        vendor=f"0x{vendor}",
        device=f"0x{device}",
        pci_class=f"0x{function.pci_class:06x}",
        uevent="\n".join(said),
    )
    if function.total_vfs is not None:
        tree.write(folder, sriov_totalvfs=function.total_vfs, sriov_numvfs=0)
    if not function.on_bus:
        (tree.root / "bus/pci/devices" / address).unlink()


def _add_netdev(tree: Tree, name: str, netdev: Netdev) -> None:
    said = [f"INTERFACE={name}", f"IFINDEX={netdev.ifindex}"]
    files: dict[str, object] = {
        "address": netdev.address,
        "ifindex": netdev.ifindex,
        "iflink": netdev.ifindex if netdev.iflink is None else netdev.iflink,
        "mtu": netdev.mtu,
        "operstate": netdev.operstate,
        "type": netdev.type,
        "flags": f"{netdev.flags:#x}",
    }
    if netdev.speed is not None:
        files["speed"] = "" if netdev.speed == "unreadable" else netdev.speed
    if netdev.kind == "bridge":
        said.append("DEVTYPE=bridge")
        files["bridge__vlan_filtering"] = 0
    elif netdev.kind == "tun":
        files |= {"tun_flags": "0x1", "addr_assign_type": 0}
    elif netdev.kind == "loopback":
        files["addr_assign_type"] = 0
    tree.netdev(name, netdev.device, uevent="\n".join(said), **files)
