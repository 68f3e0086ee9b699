"""Faults of hardware while a pod has it: VFs and drivers that go, pods that die, devices that are still open.

After each of them, the checkpoint is enough to detach, and the next pod gets a device that is as it was.
"""

from __future__ import annotations

import fcntl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from netdra.chain.check import check
from netdra.chain.detach import detach
from netdra.chain.site import ChainSettings
from netdra.node.sandboxes.namespaces import Namespaces
from testbed.waiting import until
from tests.hardware.conftest import making_pods
from tests.hardware.node import PATIENCE, PF, TOTAL_VFS, VF, bind, ip, links, unbind
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state
from tests.plans import plan, step

# linux/vfio.h
VFIO_TYPE1V2_IOMMU = 3
VFIO_SET_IOMMU, VFIO_GROUP_SET_CONTAINER = 0x3B66, 0x3B68
SETTINGS = {"vlan": 100, "mac": "02:00:00:00:99:01", "trust": "on"}


@contextmanager
def opened(vf: VF) -> Iterator[None]:
    """A program such as DPDK's has the device open."""
    with (
        Path("/dev/vfio/vfio").open("r+b", buffering=0) as container,
        Path(f"/dev/vfio/{vf.iommu_group}").open("r+b", buffering=0) as group,
    ):
        fcntl.ioctl(group, VFIO_GROUP_SET_CONTAINER, struct.pack("i", container.fileno()))
        fcntl.ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1V2_IOMMU)
        yield


@pytest.fixture
def losing_pod(settings: ChainSettings) -> Iterator[Pod]:
    """A pod whose VF is lost: VFs that are made again have other MACs, so the node will not be quite as before."""
    with making_pods(settings) as make:
        yield make()


def test_a_device_still_opened_by_a_program_is_reported_and_released_after_it_closes(
    pfs: tuple[PF, ...], pod: Pod
) -> None:
    vf = pfs[0].vf(3)
    before = node_state()
    pod.attach(plan(step("vf", "vfio-pci", "net1", device=allocated(vf))))

    with opened(vf):
        report = pod.detach()

    assert not report.is_undone
    assert [(each.outcome, each.message) for each in report.undone] == [
        ("failed", f"device {vf.pci} cannot be taken from vfio-pci: a program still has it open (ND2058)")
    ]
    assert vf.driver == "vfio-pci"
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


def test_vfs_that_are_removed_under_a_pod_leave_nothing_to_give_back(
    pfs: tuple[PF, ...], losing_pod: Pod, set_num_vfs: Callable[[PF, int], None]
) -> None:
    vf = pfs[0].vf(2)
    losing_pod.attach(plan(step("vf", "sriov", "net1", SETTINGS, device=allocated(vf))))

    set_num_vfs(pfs[0], 0)
    until(lambda: "net1" not in links(losing_pod.netns), "the VF to be gone from the pod", seconds=PATIENCE)
    assert not check(losing_pod.netns, losing_pod.settings).is_clean
    report = losing_pod.detach()

    assert report.is_undone
    assert [note for each in report.undone for note in each.notes if "gone" in note]
    assert losing_pod.detach().found is False


def test_vfs_that_are_made_anew_under_a_pod_are_not_taken_for_the_old_ones(
    pfs: tuple[PF, ...], losing_pod: Pod, set_num_vfs: Callable[[PF, int], None]
) -> None:
    """The new VF has the old one's address; it is as the driver made it, and stays so."""
    vf = pfs[0].vf(2)
    losing_pod.attach(plan(step("vf", "sriov", "net1", SETTINGS, device=allocated(vf))))

    set_num_vfs(pfs[0], TOTAL_VFS)
    before = node_state()
    report = losing_pod.detach()

    assert report.is_undone
    assert node_state()["links"].keys() == before["links"].keys()
    assert pfs[0].vf(2).name


def test_a_pf_whose_driver_goes_takes_the_pods_vf_along_and_both_come_back(
    pfs: tuple[PF, ...], losing_pod: Pod
) -> None:
    pf = pfs[1]
    vf = pf.vf(4)
    name, mtu = pf.name, links()[pf.name]["mtu"]
    losing_pod.attach(plan(step("vf", "sriov", "net1", SETTINGS, device=allocated(vf))))

    unbind(pf)
    try:
        until(lambda: "net1" not in links(losing_pod.netns), "the VF to be gone from the pod", seconds=PATIENCE)
        report = losing_pod.detach()
    finally:
        bind(pf, "")
        ip("link", "set", pf.name, "name", name)
        ip("link", "set", name, "mtu", str(mtu), "up")
        pf.set_num_vfs(TOTAL_VFS)

    assert report.is_undone
    losing_pod.attach(plan(step("vf", "sriov", "net1", SETTINGS, device=allocated(pf.vf(4)))))
    assert losing_pod.link("net1")["address"] == SETTINGS["mac"]
    assert losing_pod.detach().is_clean


@pytest.mark.parametrize("renamed", [False, True])
def test_a_pod_whose_namespace_dies_with_a_bond_of_vfs_gives_both_back_as_they_were(
    pfs: tuple[PF, ...], pod: Pod, renamed: bool
) -> None:
    vfs = pfs[0].vf(1), pfs[1].vf(1)
    before = node_state()
    members = [
        step(f"vf{at}", "sriov", f"net{at + 1}", {**SETTINGS, "mac": f"02:00:00:00:99:1{at}"}, device=allocated(vf))
        for at, vf in enumerate(vfs)
    ]
    over = {
        "name": "bond0",
        "mode": "active-backup",
        "links": [{"name": f"{{{{ vf{at}.interfaceName }}}}"} for at in (0, 1)],
    }
    pod.attach(plan(*members, step("bond", "bond", "bond0", over, after=["vf0", "vf1"])))
    if renamed:
        ip("link", "set", "net2", "down", netns=pod.netns)
        ip("link", "set", "net2", "name", "mine", netns=pod.netns)

    ip("netns", "delete", pod.netns)
    until(lambda: all(vf.name for vf in vfs), "the VFs to be back on the host", seconds=PATIENCE)
    report = pod.detach()

    assert report.namespace_gone
    assert report.is_clean
    assert_as_before(before, pod.settings)


VIRTUAL = {
    "dummy": (),
    "vlan": ("id", "7"),
    "macvlan": ("mode", "bridge"),
    "ipvlan": ("mode", "l2"),
    "vxlan": ("id", "42", "dstport", "4789"),
    "veth": (),
}
ON_A_LINK = ("vlan", "macvlan", "ipvlan")


@pytest.fixture
def virtual(pfs: tuple[PF, ...]) -> Iterator[dict[str, str]]:
    """An interface of each kind that ends with its namespace, by kind; a bond or a bridge stays in its own."""
    names = {kind: f"v{kind}" for kind in VIRTUAL}
    for kind, name in names.items():
        # An ipvlan and a macvlan cannot be on one link.
        lower = ("link", pfs[kind == "ipvlan"].name) if kind in ON_A_LINK else ()
        ip("link", "add", *lower, "name", name, "type", kind, *VIRTUAL[kind])
        ip("link", "set", name, "mtu", "1400", "up")
    yield names
    for name in names.values():
        if name in links():
            ip("link", "delete", name)


def test_virtual_devices_come_back_as_they_were_though_their_namespace_was_removed_before(
    virtual: dict[str, str], losing_pod: Pod
) -> None:
    before, namespaces = whole(virtual), Namespaces()
    namespaces.hold(losing_pod.netns, losing_pod.path)
    losing_pod.attach(plan(*(step(name, "host-device", name, {"device": name}) for name in virtual.values())))
    assert not set(virtual.values()) & set(links())

    ip("netns", "delete", losing_pod.netns)
    assert namespaces.lost() == (losing_pod.netns,)
    report = detach(losing_pod.netns, losing_pod.settings, held_netns=namespaces.path(losing_pod.netns))

    assert report.is_clean, str(report)
    assert report.namespace_gone
    assert not report.notes
    assert whole(virtual) == before
    namespaces.release(losing_pod.netns)


def whole(virtual: dict[str, str]) -> dict[str, object]:
    """All facts of these interfaces, except for those that the kernel counts and numbers again."""
    kept = ("address", "mtu", "linkinfo", "link")
    found = links()
    return {
        name: {key: found[name].get(key) for key in kept} | {"up": "UP" in found[name]["flags"]}
        for name in virtual.values()
    }


def test_a_vf_is_taken_out_of_a_namespace_that_is_held_and_need_not_be_waited_for(
    pfs: tuple[PF, ...], losing_pod: Pod
) -> None:
    vf = pfs[0].vf(1)
    before, namespaces = node_state(), Namespaces()
    namespaces.hold(losing_pod.netns, losing_pod.path)
    losing_pod.attach(plan(step("vf", "sriov", "net1", SETTINGS, device=allocated(vf))))
    ip("netns", "delete", losing_pod.netns)
    assert [vf.name] == [""]  # it is in the namespace that only we have

    report = detach(losing_pod.netns, losing_pod.settings, held_netns=namespaces.path(losing_pod.netns))

    assert report.is_clean, str(report)
    assert vf.name
    namespaces.release(losing_pod.netns)
    assert_as_before(before, losing_pod.settings)
