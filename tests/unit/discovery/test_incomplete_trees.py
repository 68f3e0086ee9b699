"""Trees with few facts: present facts are found, missing ones are absent and counted, none is invented."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from netdra.cli import capture, discover
from netdra.discovery.capture import anonymize
from netdra.discovery.scan import scan_recorded
from netdra.model.inventory import Interface, attributes
from tests.builders import read_inventory
from tests.trees import NVME, Tree, sriov_machine


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def found(tree: Tree) -> dict[str, Interface]:
    return {each.device_name: each for each in scan_recorded(str(tree)).interfaces}


def nic(tree: Tree, name: str = "ens1", address: str = "0000:41:00.0", **files: object) -> Path:
    tree.pci(address, driver="ice", **files)  # type: ignore[arg-type]
    return tree.netdev(name, address, speed=25_000)


@pytest.mark.parametrize(
    ("name", "files", "kind"),
    [
        ("vx0", {"uevent": "DEVTYPE=vxlan\nINTERFACE=vx0"}, "vxlan"),
        ("mt0", {"iflink": 1, "macvtap__tap5": ""}, "macvtap"),
        ("mv0", {"iflink": 1}, "virtual"),
    ],
)
def test_a_lower_link_to_a_nic_makes_an_interface_an_upper_device_of_the_nic(
    tree: Tree, name: str, files: dict[str, Any], kind: str
) -> None:
    nic(tree)
    tree.netdev(name, **files)
    tree.stack(name, "ens1")
    interfaces = found(tree)
    assert (interfaces[name].type, interfaces[name].lower_devices) == (kind, ("ens1",))
    assert interfaces["ens1"].upper_devices == (name,)
    assert interfaces["ens1"].in_host_use


def test_a_nic_without_a_link_to_its_device_is_known_by_its_own_place(tree: Tree) -> None:
    tree.sriov(nic(tree).parents[1].name, ["0000:41:10.0"])
    tree.netdev("ens1v0", "0000:41:10.0")
    tree.netdev("veth0", iflink=9)
    for name in ("ens1", "ens1v0"):
        (tree.root / "class/net" / name / "device").unlink()
    interfaces = found(tree)
    assert (interfaces["ens1"].type, interfaces["ens1"].pci_address, interfaces["ens1"].driver) == (
        "pf",
        "0000:41:00.0",
        "ice",
    )
    assert (interfaces["ens1v0"].type, interfaces["ens1v0"].pf_name) == ("vf", "ens1")
    assert (interfaces["veth0"].type, interfaces["veth0"].pci_address) == ("veth", "")


def test_the_loopback_is_known_also_without_its_type(tree: Tree) -> None:
    tree.netdev("lo", address="00:00:00:00:00:00")
    (tree.root / "class/net/lo/type").unlink()
    lo = found(tree)["lo"]
    assert lo.type == "loopback"
    assert "encapsulation" in lo.unreadable


def test_a_tree_of_only_pci_devices_yields_network_functions_without_interface_attributes(
    tmp_path: Path,
) -> None:
    tree = Tree(tmp_path)
    tree.pci("0000:41:00.0", driver="ice", vendor="0x8086", device="0x1592")
    tree.sriov("0000:41:00.0", ["0000:41:10.0"], total=8)
    tree.pci("0000:42:00.0", driver="mlx5_core", pci_class="0x020700", sriov_totalvfs=0)
    tree.pci("0000:01:00.0", driver="nvme", pci_class=NVME)
    for folder in ("class/net", "class"):
        (tmp_path / folder).rmdir()
    inventory = scan_recorded(str(tree))
    interfaces = {each.pci_address: each for each in inventory.interfaces}
    assert {address: each.type for address, each in interfaces.items()} == {
        "0000:41:00.0": "pf",
        "0000:41:10.0": "vf",
        "0000:42:00.0": "nic",
    }
    pf = interfaces["0000:41:00.0"]
    assert (pf.driver, pf.product, pf.num_vfs, pf.total_vfs) == ("ice", "1592", 1, 8)
    absent = {f"dra.networking/{name}" for name in ("ifName", "mac", "mtu", "linkSpeed", "operState", "hostUplink")}
    assert absent.isdisjoint(attributes(pf))
    assert inventory.unreadable["ifName: not recorded"] == 3


def test_an_unrecorded_driver_is_unreadable_and_its_attribute_is_omitted(tree: Tree) -> None:
    tree.pci("0000:41:00.0")
    tree.netdev("ens1", "0000:41:00.0")
    tree.netdev("usb0")
    tree.link("devices/virtual/net/usb0/device", "devices/platform/gone")
    interfaces = found(tree)
    for name in ("ens1", "usb0"):
        assert "driver" in interfaces[name].unreadable, name
        assert "dra.networking/driver" not in attributes(interfaces[name])
    assert "numa_node" in interfaces["usb0"].unreadable


def test_an_unrecorded_link_speed_is_unreadable_only_on_a_nic_that_is_up(tree: Tree) -> None:
    for name, bus, state in (("ens1", "41", "up"), ("ens2", "42", "down")):
        tree.pci(f"0000:{bus}:00.0", driver="ice")
        tree.netdev(name, f"0000:{bus}:00.0", operstate=state)
    tree.netdev("dummy0")
    interfaces = found(tree)
    assert {name for name, each in interfaces.items() if "link_speed" in each.unreadable} == {"ens1"}


def test_whether_a_nic_has_vfs_is_unknown_in_a_tree_without_any_file_of_sriov(tree: Tree) -> None:
    nic(tree)
    inventory = scan_recorded(str(tree))
    ens1 = inventory.interfaces[0]
    assert {"sriov_capable", "num_vfs", "total_vfs"} <= set(ens1.unreadable)
    assert "dra.networking/sriovCapable" not in attributes(ens1)
    assert inventory.unreadable["sriovCapable: not recorded"] == 1


@pytest.mark.parametrize("file", ["driver_override", "other"])
def test_sriov_capability_is_readable_if_the_tree_contains_files_of_an_sriov_kernel(tree: Tree, file: str) -> None:
    nic(tree)
    if file == "other":
        tree.pci("0000:42:00.0", sriov_totalvfs=8, sriov_numvfs=0)
    else:
        tree.write("bus/pci/devices/0000:41:00.0", driver_override="(null)")
    assert "sriov_capable" not in found(tree)["ens1"].unreadable


@pytest.mark.parametrize(
    ("place", "file", "value", "field"),
    [
        ("class/net/ens1", "mtu", 10**23, "mtu"),
        ("class/net/ens1", "mtu", -5, "mtu"),
        ("class/net/ens1", "speed", 10**12, "link_speed"),
        ("class/net/ens1", "type", 10**9, "encapsulation"),
        ("bus/pci/devices/0000:41:00.0", "sriov_totalvfs", -5, "sriov_capable"),
        ("bus/pci/devices/0000:41:00.0", "sriov_numvfs", -5, "num_vfs"),
        ("bus/pci/devices/0000:41:00.0", "sriov_numvfs", 10**23, "num_vfs"),
        ("bus/pci/devices/0000:41:00.0", "numa_node", 10**23, "numa_node"),
    ],
)
def test_an_out_of_range_number_in_sysfs_makes_its_field_unreadable(
    tree: Tree, place: str, file: str, value: int, field: str
) -> None:
    nic(tree, sriov_totalvfs=8, sriov_numvfs=0)
    tree.write(place, **{file: value})
    inventory = scan_recorded(str(tree))
    assert field in inventory.interfaces[0].unreadable
    assert any(each.endswith(": ERANGE") for each in inventory.unreadable)


def test_a_number_of_vfs_that_is_not_recorded_is_not_zero(tree: Tree) -> None:
    nic(tree, sriov_totalvfs=8)
    assert "num_vfs" in found(tree)["ens1"].unreadable


def test_a_recorded_server_is_not_called_like_this_machine(tmp_path: Path) -> None:
    tree = sriov_machine(tmp_path)
    done = CliRunner().invoke(capture.command, ["-", "--sysfs", str(tree)])
    assert read_inventory(done.stdout).node.name == "recorded"


def test_interfaces_that_vanished_are_named(tmp_path: Path) -> None:
    tree = sriov_machine(tmp_path)
    for name in ("mic0", "br7"):
        tree.link(f"class/net/{name}", f"devices/virtual/net/{name}")
    assert scan_recorded(str(tree)).vanished == ("br7", "mic0")
    assert anonymize(scan_recorded(str(tree))).vanished == ("br7", "mic0")
    done = CliRunner().invoke(discover.command, ["--sysfs", str(tree)])
    assert "could not be read (2 times): interface: vanished: br7, mic0\n" in done.stderr
