"""Faults of hardware while a real pod has it, and the daemon's reports and actions until all is returned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from netdra.model import names
from testbed.api import Object
from testbed.objects import POD
from testbed.pods import is_running
from testbed.waiting import until
from tests.cluster.pods.driver import WITHIN, Offer
from tests.hardware.node import PATIENCE, PF, TOTAL_VFS, bind, ip, unbind
from tests.hardware.pods import differences, node_state, of_pf, until_as_before
from tests.hardware.real.offers import device_of, offer_vf, published, ready, taints

MAC = "02:00:00:00:98:01"
SETTINGS = {"vlan": 100, "mac": MAC, "trust": "on"}
# All that is in a pod's namespace, then the namespace itself, as when somebody ends it who should not.
END = 'ip netns pids "$1" | xargs -r kill -9; ip netns delete "$1"'


def test_vfs_removed_from_a_running_pod_stay_published_as_gone_and_are_reused_later(
    pfs: tuple[PF, ...], set_num_vfs: Callable[[PF, int], None], offer: Offer
) -> None:
    vf = pfs[0].vf(2)
    device = device_of(vf)
    offered = offer_vf(offer, vf, "sriov", **SETTINGS)
    offer.pods.run("first", offer.claim("first", nic=offered))

    set_num_vfs(pfs[0], 0)
    lost(offer, "first", device)

    set_num_vfs(pfs[0], TOTAL_VFS)
    again(offer, "second", offered, device)


@pytest.mark.repeats
def test_an_unbound_pf_driver_removes_the_vf_of_a_pod_and_the_vf_returns_with_the_driver(
    pfs: tuple[PF, ...], offer: Offer
) -> None:
    pf = pfs[1]
    vf = pf.vf(4)
    name, device = pf.name, device_of(vf)
    offered = offer_vf(offer, vf, "sriov", **SETTINGS)
    offer.pods.run("first", offer.claim("first", nic=offered))

    unbind(pf)
    try:
        lost(offer, "first", device)
    finally:
        bind(pf, "")
        ip("link", "set", pf.name, "name", name)
        ip("link", "set", name, "up")
        pf.set_num_vfs(TOTAL_VFS)
    again(offer, "second", offered, device)


def lost(offer: Offer, pod: str, device: str) -> None:
    """A device that is gone from under its pod stays published and tainted until the pod has ended."""
    until(lambda: taints(offer, device) == {names.GONE: ""}, "the device to be tainted", seconds=WITHIN)
    assert "net1" not in offer.inside(pod)
    assert is_running(offer.workspace.api.get(POD, pod, offer.workspace.namespace))
    offer.pods.delete(pod)
    offer.driver.until_nothing_is_left()
    until(lambda: taints(offer, device) is None, "the device to be withdrawn", seconds=WITHIN)


def again(offer: Offer, pod: str, offered: str, device: str) -> None:
    """A device that is back is published as ever, and the next pod has it, set up as it should be."""
    until(lambda: published(offer, [device]), "the device to be published again", seconds=WITHIN)
    claim = offer.claim(pod, nic=offered)
    offer.pods.run(pod, claim)
    assert offer.inside(pod)["net1"]["address"] == MAC
    assert ready(offer, claim) == ("True", "Attached")
    offer.pods.delete(pod)
    offer.driver.until_nothing_is_left()


@pytest.mark.repeats
def test_a_namespace_that_dies_gives_its_vf_back_as_it_was_and_the_pod_has_it_again_if_it_begins_anew(
    pfs: tuple[PF, ...], offer: Offer
) -> None:
    brief, lasting = pfs[0].vf(1), pfs[1].vf(1)
    before = node_state()
    for name, vf, policy in (("brief", brief, "Never"), ("lasting", lasting, "Always")):
        offer.pods.run(name, offer.claim(name, nic=offer_vf(offer, vf, "sriov", **SETTINGS)), restartPolicy=policy)
    former = offer.pods.sandbox("lasting")
    for name in ("brief", "lasting"):
        namespace = Path(offer.pods.containerd.netns(offer.pods.sandbox(name))).name
        offer.driver.node.run("sh", "-c", END, "sh", namespace)

    offer.pods.wait("brief", has_failed)
    until(lambda: bool(brief.name), "the VF to be back on the host", seconds=PATIENCE)
    until(
        lambda: not [line for line in differences(before, node_state()) if brief.pci in line],
        "the VF to be as it was",
        seconds=WITHIN,
    )
    offer.pods.wait("lasting", lambda found: is_running(found) and restarts(found) > 0)
    assert offer.pods.sandbox("lasting") != former
    assert offer.inside("lasting")["net1"]["address"] == MAC
    assert (of_pf(lasting)["vlan_list"], of_pf(lasting)["trust"]) == ([{"vlan": 100}], True)
    assert taints(offer, device_of(lasting)) == {}

    offer.pods.delete("brief", "lasting")
    offer.driver.until_nothing_is_left()
    until_as_before(before)


def has_failed(pod: Object | None) -> bool:
    """Whether a pod has ended, and not well."""
    return pod is not None and pod["status"]["phase"] == "Failed"


def restarts(pod: Object | None) -> int:
    """How often a pod's container was begun again."""
    (status,) = (pod or {})["status"]["containerStatuses"]
    return int(status["restartCount"])


def test_a_device_that_a_program_still_has_open_is_held_and_tainted_until_it_is_closed(
    pfs: tuple[PF, ...], offer: Offer
) -> None:
    vf = pfs[0].vf(3)
    before, device = node_state(), device_of(vf)
    offer.pods.run("dpdk", offer.claim("dpdk", nic=offer_vf(offer, vf, "vfio-pci")))

    with Path(f"/dev/vfio/{vf.iommu_group}").open("r+b", buffering=0):
        offer.workspace.api.delete(POD, "dpdk", offer.workspace.namespace, grace=1)
        offer.pods.wait_event("dpdk", "NetworkNotDetached", "a program still has it open")
        until(lambda: list(taints(offer, device) or ()) == [names.TROUBLE], "the device to be tainted", seconds=WITHIN)
        assert vf.pci.replace(":", "-") in (taints(offer, device) or {})[names.TROUBLE]
        assert vf.driver == "vfio-pci"

    until(lambda: vf.driver == "igbvf", "the VF to be back with its driver", seconds=WITHIN)
    offer.pods.wait("dpdk", lambda found: found is None)
    offer.driver.until_nothing_is_left()
    until_as_before(before)
    until(lambda: published(offer, [device]), "the device to be published again", seconds=WITHIN)
