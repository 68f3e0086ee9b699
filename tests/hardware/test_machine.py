"""The machine itself: that it has the hardware and the kernel features which the other tests build on."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.waiting import until
from tests.hardware.node import PATIENCE, PF, TOTAL_VFS, Function, ip, links, ping, run, up

NewNetns = Callable[[], str]


def test_two_pfs_are_on_two_numa_nodes_and_two_pcie_roots(pfs: tuple[PF, ...]) -> None:
    seen = {pf.pci: (int((pf.folder / "numa_node").read_text()), pf.folder.resolve().parts[3], pf.driver) for pf in pfs}

    assert seen == {"0000:41:00.0": (0, "pci0000:40", "igb"), "0000:81:00.0": (1, "pci0000:80", "igb")}
    assert all((pf.numa_node, pf.pcie_root) == seen[pf.pci][:2] for pf in pfs)


def test_each_pf_has_seven_vfs_at_every_other_function(pfs: tuple[PF, ...]) -> None:
    for pf in pfs:
        bus = pf.pci[:7]
        expected = [f"{bus}:{0x10 + 2 * index // 8:02x}.{2 * index % 8}" for index in range(TOTAL_VFS)]
        assert [vf.pci for vf in pf.vfs()] == expected
        assert [vf.driver for vf in pf.vfs()] == ["igbvf"] * TOTAL_VFS
        assert all(vf.name for vf in pf.vfs())


def test_every_function_is_alone_in_its_iommu_group(pfs: tuple[PF, ...]) -> None:
    functions: list[Function] = [function for pf in pfs for function in (pf, *pf.vfs())]

    groups = {function.iommu_group for function in functions}

    assert "" not in groups
    assert len(groups) == len(functions) == 2 * (1 + TOTAL_VFS)


@pytest.mark.parametrize("kind", ["bond", "bridge", "dummy", "veth", "vrf", "vxlan", "vlan", "macvlan", "ipvlan"])
def test_the_kernel_makes_links_of_every_kind(pfs: tuple[PF, ...], new_netns: NewNetns, kind: str) -> None:
    netns = new_netns()
    ip("link", "add", "base", "type", "dummy", netns=netns)
    details = {"vlan": ("id", "100"), "vxlan": ("id", "100", "dstport", "4789"), "vrf": ("table", "100")}
    parent = ("link", "base") if kind in {"vlan", "macvlan", "ipvlan"} else ()

    ip("link", "add", *parent, "name", "made", "type", kind, *details.get(kind, ()), netns=netns)

    assert links(netns)["made"]["linkinfo"]["info_kind"] == kind


def test_a_vf_under_vfio_pci_has_a_device_node_instead_of_a_netdev(
    pfs: tuple[PF, ...], rebind: Callable[[Function, str], None]
) -> None:
    vf = pfs[1].vf(3)

    rebind(vf, "vfio-pci")

    assert vf.driver == "vfio-pci"
    assert vf.name == ""
    assert stat.S_ISCHR(Path(f"/dev/vfio/{vf.iommu_group}").stat().st_mode)


def test_software_rdma_can_be_created_on_a_pf(pfs: tuple[PF, ...]) -> None:
    run("rdma", "link", "add", "rxe0", "type", "rxe", "netdev", pfs[0].name)
    try:
        assert Path("/sys/class/infiniband/rxe0").is_dir()
        assert [link["netdev"] for link in json.loads(run("rdma", "-j", "link", "show"))] == [pfs[0].name]
    finally:
        run("rdma", "link", "delete", "rxe0")


def test_packets_travel_between_vfs_of_both_pfs_tagged_or_not(pfs: tuple[PF, ...], new_netns: NewNetns) -> None:
    ends = [(pf.vf(0).name, new_netns()) for pf in pfs]
    for number, (name, netns) in enumerate(ends, start=1):
        ip("link", "set", name, "netns", netns)
        ip("address", "add", f"10.9.0.{number}/24", "dev", name, netns=netns)
        up(name, netns)
        ip("link", "add", "link", name, "name", "tagged", "type", "vlan", "id", "100", netns=netns)
        ip("address", "add", f"10.9.1.{number}/24", "dev", "tagged", netns=netns)
        ip("link", "set", "tagged", "up", netns=netns)

    ping("10.9.0.2", ends[0][1])
    ping("10.9.1.2", ends[0][1])


def test_a_vf_comes_back_to_the_host_when_its_namespace_dies(pfs: tuple[PF, ...]) -> None:
    vf = pfs[0].vf(6)
    ip("netns", "add", "dying")
    try:
        ip("link", "set", vf.name, "netns", "dying")
        assert vf.name == ""
    finally:
        ip("netns", "delete", "dying")

    until(lambda: vf.name != "", "the VF to be back", seconds=PATIENCE)


def test_the_guest_writes_to_memory_and_not_to_the_hosts_files() -> None:
    root = next(line.split() for line in Path("/proc/mounts").read_text().splitlines() if line.split()[1] == "/")

    assert root[2] == "overlay"
    assert "upperdir=/memory/upper" in root[3]
