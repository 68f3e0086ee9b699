"""The known facts of the servers in this folder: tests that hold of their descriptions and of their recordings alike.

`tests/unit` runs them on the described trees and `tests/recorded` on the recorded ones. Each of the two inherits them
and has the fixture `tree`, which gives the folder that stands for a server's /sys.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from netdra.discovery.scan import scan_recorded
from netdra.model.inventory import Interface, Inventory
from tests.servers import description

Trees = Callable[[str], Path]
Servers = Callable[[str], Inventory]


def by_name(inventory: Inventory) -> dict[str, Interface]:
    return {each.if_name: each for each in inventory.interfaces}


class Facts:
    @pytest.fixture
    def server(self, tree: Trees) -> Servers:
        return lambda name: scan_recorded(str(tree(name)))

    def test_two_ixgbe_pfs_among_bridges_and_veths(self, server: Servers) -> None:
        found = by_name(server("harvester-hp"))
        assert {name: each.type for name, each in found.items()} == {
            "eno49": "pf",
            "eno50": "pf",
            "br-475242ed20a4": "bridge",
            "br-bb11c029dc21": "bridge",
            "docker0": "bridge",
            "virbr0": "bridge",
            "virbr1": "bridge",
            "veth95d4597": "veth",
            "veth9f41c36": "veth",
            "vethac08834": "veth",
            "vethe39be70": "veth",
            "tailscale0": "tun",
            "dummy0": "virtual",
            "lo": "loopback",
        }
        eno49 = found["eno49"]
        assert (eno49.driver, eno49.vendor, eno49.product) == ("ixgbe", "8086", "10fb")
        assert (eno49.sriov_capable, eno49.total_vfs, eno49.num_vfs) == (True, 63, 0)
        assert (eno49.pci_address, eno49.pcie_root, eno49.link_speed) == ("0000:04:00.0", "pci0000:00", 10000)
        bridge = found["br-475242ed20a4"]
        assert bridge.lower_devices == ("veth95d4597", "veth9f41c36", "vethac08834", "vethe39be70")
        assert (bridge.bridge_name, bridge.bridge_type, bridge.vlan_filtering) == ("br-475242ed20a4", "linux", False)
        assert found["veth95d4597"].master_bridge == "br-475242ed20a4"
        assert found["tailscale0"].encapsulation == "none"

    def test_pfs_behind_pcie_switches_and_functions_without_interfaces(self, server: Servers) -> None:
        inventory = server("hwloc-i40e-mlx5")
        found = by_name(inventory)
        assert set(found) == {"enp96s0f0", "enp96s0f1"}, "the mlx5 functions have neither netdev nor RDMA device"
        assert {each.pcie_root for each in inventory.interfaces} == {"pci0000:5d"}
        assert {each.pci_address for each in inventory.interfaces} == {"0000:60:00.0", "0000:60:00.1"}
        assert {(each.type, each.driver, each.total_vfs, each.num_vfs) for each in inventory.interfaces} == {
            ("pf", "i40e", 64, 0)
        }

    def test_infiniband_and_interfaces_whose_folders_are_gone(self, server: Servers) -> None:
        inventory = server("hwloc-mlx4-ib")
        found = by_name(inventory)
        assert set(found) == {"eth0", "eth1", "ib0"}
        assert inventory.unreadable["interface: vanished"] == 4
        ib0 = found["ib0"]
        assert (ib0.rdma, ib0.rdma_device, ib0.encapsulation, ib0.numa_node) == (True, "mlx4_0", "infiniband", 1)
        assert (ib0.driver, ib0.pcie_root, ib0.mtu) == ("mlx4_core", "pci0000:80", 2044)
        assert (found["eth0"].type, found["eth0"].driver, found["eth0"].rdma) == ("nic", "igb", False)
        assert (found["eth0"].link_speed, found["eth1"].link_speed) == (1000, 0)

    def test_a_numa_node_that_the_machine_does_not_report_is_minus_one(self, server: Servers) -> None:
        found = by_name(server("hwloc-qib-bnx2"))
        assert {found[f"eth{number}"].numa_node for number in range(4)} == {-1}
        assert {found[f"eth{number}"].driver for number in range(4)} == {"bnx2"}
        assert (found["ib0"].rdma_device, found["ib0"].numa_node, found["ib0"].pcie_root) == ("qib0", 2, "pci0000:40")

    @pytest.mark.parametrize("name", description.NAMES)
    def test_discovered_facts_match_the_sysfs_files(self, tree: Trees, name: str) -> None:
        root = tree(name)
        for each in scan_recorded(str(root)).interfaces:
            folder = root / "class/net" / each.if_name
            said = tuple((folder / file).read_text().strip() for file in ("address", "mtu", "operstate", "ifindex"))
            assert (each.mac, str(each.mtu), each.oper_state, str(each.ifindex)) == said
            assert bool(each.pci_address) == (folder / "device").is_symlink()
            if each.pci_address:
                assert each.pci_address == (folder / "device").resolve().name
                assert each.vendor == (folder / "device/vendor").read_text().strip().removeprefix("0x")
                assert each.driver == (folder / "device/driver").readlink().name
