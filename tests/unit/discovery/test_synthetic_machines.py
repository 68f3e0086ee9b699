"""SR-IOV, bridges and the traps of sysfs, on machines that the test lays out itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdra.discovery.scan import scan_recorded
from netdra.model.errors import InvalidInputError
from netdra.model.inventory import Interface, Inventory, attributes
from tests.trees import Tree, sriov_machine


@pytest.fixture
def machine(tmp_path: Path) -> Inventory:
    return scan_recorded(str(sriov_machine(tmp_path)))


def named(inventory: Inventory, name: str) -> Interface:
    return next(each for each in inventory.interfaces if each.device_name == name)


def test_every_vf_is_found_with_its_netdev_or_through_its_pf(machine: Inventory) -> None:
    vfs = {each.device_name: each for each in machine.interfaces if each.type == "vf"}
    assert {name: (each.if_name, each.pci_address, each.driver) for name, each in vfs.items()} == {
        "ens1v0": ("ens1v0", "0000:41:10.0", "igbvf"),
        "ens1v1": ("", "0000:41:10.2", "vfio-pci"),
        "ens1v2": ("", "0000:41:10.4", "igbvf"),
        "ens1v3": ("renamed0", "0000:41:10.6", "igbvf"),
    }
    assert {(each.pf_name, each.pf_pci_address, each.numa_node) for each in vfs.values()} == {
        ("ens1", "0000:41:00.0", 1)
    }


def test_an_sriov_capable_nic_is_a_pf_even_without_vfs(machine: Inventory) -> None:
    with_vfs, without = named(machine, "ens1"), named(machine, "ens2")
    assert (with_vfs.type, with_vfs.sriov_capable, with_vfs.num_vfs, with_vfs.total_vfs) == ("pf", True, 4, 7)
    assert (without.type, without.sriov_capable, without.num_vfs, without.total_vfs) == ("pf", True, 0, 64)


def test_the_pcie_root_is_walked_to_through_switches_and_in_wide_domains(machine: Inventory) -> None:
    assert named(machine, "ens1").pcie_root == "pci0000:40"
    assert named(machine, "ens1v1").pcie_root == "pci0000:40"
    assert named(machine, "ens2").pcie_root == "pci10000:80"
    assert named(machine, "ens2").pci_address == "10000:81:00.0"


def test_relations_between_interfaces(machine: Inventory) -> None:
    vf, bridge, vlan = named(machine, "ens1v0"), named(machine, "br0"), named(machine, "ens2.7")
    assert (vf.master, vf.master_bridge, vf.upper_devices) == ("br0", "br0", ("br0",))
    assert (bridge.type, bridge.bridge_name, bridge.bridge_type) == ("bridge", "br0", "linux")
    assert (bridge.vlan_filtering, bridge.lower_devices) == (True, ("ens1v0",))
    assert (vlan.type, vlan.lower_devices) == ("vlan", ("ens2",))
    assert named(machine, "ens2").upper_devices == ("ens2.7",)
    assert named(machine, "bond0").type == "bond"


def test_the_bonding_masters_file_is_not_an_interface(machine: Inventory) -> None:
    assert "bonding_masters" not in {each.if_name for each in machine.interfaces}


def test_rdma_numa_and_alias(machine: Inventory) -> None:
    ens2 = named(machine, "ens2")
    assert (ens2.rdma, ens2.rdma_device, ens2.numa_node, ens2.alias) == (True, "irdma0", -1, "to the spine")
    assert named(machine, "ens1").rdma is False
    assert named(machine, "ens1").iommu_group == "17"


def test_fields_missing_from_sysfs_are_omitted_and_counted_as_unreadable(machine: Inventory) -> None:
    links = sum(1 for each in machine.interfaces if each.if_name)
    for field, name in (("host_uplink", "hostUplink"), ("ipv4", "ipv4"), ("ipv6", "ipv6")):
        assert field in named(machine, "ens1").unreadable
        assert f"dra.networking/{name}" not in attributes(named(machine, "ens1"))
        assert machine.unreadable[f"{name}: not recorded"] == links
    assert machine.unreadable["vlanId: not recorded"] == 1


def test_a_file_that_cannot_be_read_costs_one_fact_of_one_interface(tmp_path: Path) -> None:
    tree = sriov_machine(tmp_path)
    device = (tmp_path / "class/net/ens1/device").resolve()
    for file in ("numa_node", "vendor"):
        (device / file).unlink()
    (device / "numa_node").mkdir()  # reading a folder is EISDIR
    (device / "vendor").symlink_to("vendor")  # a link to itself is ELOOP
    (tmp_path / "class/net/ens2/speed").resolve().unlink()
    (tmp_path / "class/net/ens2").resolve().joinpath("speed").mkdir()
    inventory = scan_recorded(str(tree))
    ens1 = named(inventory, "ens1")
    assert {"numa_node", "vendor"} <= set(ens1.unreadable)
    assert "dra.networking/vendor" not in attributes(ens1)
    assert (ens1.driver, ens1.product) == ("igb", "1592")
    assert "link_speed" in named(inventory, "ens2").unreadable
    counted = {"numaNode: EISDIR": 1, "vendor: ELOOP": 1, "linkSpeed: EISDIR": 1}
    assert counted.items() <= inventory.unreadable.items()
    assert named(inventory, "ens1v3").vendor == "8086"


def test_a_non_numeric_value_is_unreadable_instead_of_zero(tmp_path: Path) -> None:
    tree = sriov_machine(tmp_path)
    tree.write("class/net/ens1", mtu="many")
    inventory = scan_recorded(str(tree))
    assert "mtu" in named(inventory, "ens1").unreadable
    assert inventory.unreadable["mtu: EINVAL"] == 1


def test_an_interface_whose_folder_is_gone_is_left_out_and_counted(tmp_path: Path) -> None:
    tree = sriov_machine(tmp_path)
    tree.link("class/net/ghost0", "devices/virtual/net/ghost0")
    inventory = scan_recorded(str(tree))
    assert "ghost0" not in {each.if_name for each in inventory.interfaces}
    assert inventory.unreadable["interface: vanished"] == 1


def test_a_pci_device_that_is_gone_behind_its_interface_leaves_no_wrong_facts(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.netdev("eth0")
    tree.link("devices/virtual/net/eth0/device", "devices/pci0000:00/0000:05:00.0")
    eth0 = named(scan_recorded(str(tree)), "eth0")
    assert eth0.pci_address == "0000:05:00.0"
    assert {"vendor", "driver", "numa_node", "num_vfs"} <= set(eth0.unreadable)


def test_vfs_are_found_while_their_pf_is_in_a_pod(tmp_path: Path) -> None:
    tree = sriov_machine(tmp_path)
    (tmp_path / "class/net/ens1").unlink()
    found = [each for each in scan_recorded(str(tree)).interfaces if each.type == "vf"]
    assert sorted((each.vf_index, each.pf_pci_address, each.pf_name) for each in found) == [
        (number, "0000:41:00.0", "") for number in range(4)
    ]
    assert len({each.device_name for each in found}) == 4


def test_virtio_is_known_by_the_pci_device_below_it(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pci("0000:00:03.0", driver="virtio-pci", vendor="0x1af4", device="0x1041")
    tree.write("devices/pci0000:00/0000:00:03.0/virtio0/net/eth0", address="52:54:00:00:00:01", type=1)
    tree.link("devices/pci0000:00/0000:00:03.0/virtio0/driver", "bus/virtio/drivers/virtio_net")
    tree.link("devices/pci0000:00/0000:00:03.0/virtio0/net/eth0/device", "devices/pci0000:00/0000:00:03.0/virtio0")
    tree.link("class/net/eth0", "devices/pci0000:00/0000:00:03.0/virtio0/net/eth0")
    eth0 = named(scan_recorded(str(tree)), "eth0")
    assert (eth0.pci_address, eth0.driver, eth0.vendor, eth0.type) == ("0000:00:03.0", "virtio_net", "1af4", "nic")


def test_a_sub_function_is_not_taken_for_the_pci_device_it_is_on(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pci("0000:03:00.0", driver="mlx5_core", numa_node=1)
    path = "devices/pci0000:00/0000:03:00.0/mlx5_core.sf.2"
    tree.write(f"{path}/net/sf0", address="52:54:00:00:00:01", type=1)
    tree.link(f"{path}/driver", "bus/auxiliary/drivers/mlx5_core.sf")
    tree.link(f"{path}/net/sf0/device", path)
    tree.link("class/net/sf0", f"{path}/net/sf0")
    sf0 = named(scan_recorded(str(tree)), "sf0")
    assert (sf0.pci_address, sf0.driver) == ("", "mlx5_core.sf")
    assert (sf0.pcie_root, sf0.numa_node) == ("pci0000:00", 1)


def test_two_ports_of_one_function_are_two_devices(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pci("0000:82:00.0", driver="mlx4_core")
    tree.netdev("ib0", "0000:82:00.0", dev_port=0)
    tree.netdev("ib1", "0000:82:00.0", dev_port=1)
    inventory = scan_recorded(str(tree))
    assert [each.identity for each in inventory.interfaces] == ["0000:82:00.0", "0000:82:00.0/1"]


def test_a_port_keeps_its_dev_id_when_the_other_ports_netdev_goes(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pci("0000:82:00.0", driver="old")
    tree.netdev("eth1", "0000:82:00.0", dev_port=0, dev_id="0x1")
    assert named(scan_recorded(str(tree)), "eth1").identity == "0000:82:00.0/1"
    tree.netdev("eth0", "0000:82:00.0", dev_port=0, dev_id="0x0")
    identities = {each.if_name: each.identity for each in scan_recorded(str(tree)).interfaces}
    assert identities == {"eth0": "0000:82:00.0", "eth1": "0000:82:00.0/1"}


UEVENT = "DRIVER=ice\nPCI_CLASS=20000\nPCI_ID=15B3:101E\nPCI_SLOT_NAME=0000:03:00.0"


@pytest.mark.parametrize(
    ("uevent", "expected"),
    [
        (UEVENT, ("15b3", "101e", "ice")),
        (UEVENT.removeprefix("DRIVER=ice\n"), ("15b3", "101e", "")),
        ("", ("8086", "1592", "igb")),
        ("DRIVER=ice\nPCI_ID=15B3", ("8086", "1592", "igb")),
        ("DRIVER=ice\nXPCI_ID=15B3:101E", ("8086", "1592", "igb")),
    ],
)
def test_ids_and_driver_are_those_of_uevent_or_else_of_their_own_files(
    tmp_path: Path, uevent: str, expected: tuple[str, str, str]
) -> None:
    tree = Tree(tmp_path)
    tree.pci("0000:03:00.0", driver="igb", uevent=uevent)
    tree.netdev("eth0", "0000:03:00.0")
    eth0 = named(scan_recorded(str(tree)), "eth0")
    assert (eth0.vendor, eth0.product, eth0.driver) == expected


def test_a_uevent_that_cannot_be_read_hides_nothing(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pci("0000:03:00.0", driver="igb").joinpath("uevent").symlink_to("uevent")
    tree.netdev("eth0", "0000:03:00.0")
    eth0 = named(scan_recorded(str(tree)), "eth0")
    assert (eth0.vendor, eth0.product, eth0.driver) == ("8086", "1592", "igb")
    assert {"vendor", "product", "driver"}.isdisjoint(eth0.unreadable)


def test_a_vlan_of_an_old_kernel_finds_its_lower_device_by_index_and_a_veth_does_not(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.pci("0000:03:00.0")
    tree.netdev("eth0", "0000:03:00.0")
    tree.netdev("eth0.5", iflink=1, uevent="DEVTYPE=vlan")
    tree.netdev("veth0", iflink=1)  # its peer's index in another namespace, which only looks like eth0's
    inventory = scan_recorded(str(tree))
    assert named(inventory, "eth0.5").lower_devices == ("eth0",)
    assert (named(inventory, "veth0").type, named(inventory, "veth0").lower_devices) == ("veth", ())


def test_interfaces_with_the_same_index_are_kept_apart(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.netdev("a", ifindex=7)
    tree.netdev("b", ifindex=7)
    tree.netdev("c", ifindex="none")
    assert [(each.if_name, each.ifindex) for each in scan_recorded(str(tree)).interfaces] == [
        ("a", 7),
        ("b", 0),
        ("c", 0),
    ]


def test_a_folder_that_is_not_a_sysfs_tree_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="is not a sysfs tree"):
        scan_recorded(str(tmp_path))
