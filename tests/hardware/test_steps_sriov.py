"""The sriov step on VFs: what it sets through the PF, what the driver refuses, and that the VF comes back as it was.

The emulated 82576 (igb) takes VLAN with priority, MAC, spoof check, trust and a maximum rate. It refuses 802.1ad, a
link state, a minimum rate, and a maximum above the speed of its link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from netdra.chain import site as sites
from netdra.chain.check import check
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.report import AttachError
from netdra.kernel import netlink, uapi
from netdra.steps import builtin
from netdra.steps.contract import Order
from testbed.waiting import until
from tests.hardware.node import PATIENCE, PF, VF, Function, ip, links, ping, run
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state, of_pf
from tests.plans import plan, step

MAC = "02:00:00:00:77:01"


def is_rated(pf: PF) -> bool:
    """Limit the rate of VF 2; whether the PF has accepted it."""
    run("ip", "link", "set", pf.name, "vf", "2", "max_tx_rate", "300", check=False)
    return bool(of_pf(pf.vf(2))["rate"]["max_tx"] == 300)


@pytest.fixture
def vf(pfs: tuple[PF, ...]) -> Iterator[VF]:
    """A VF with a history: a name, an alternative name, an MTU, and a VLAN and a rate of another user."""
    vf = pfs[0].vf(2)
    was = vf.name
    # First, because it may fail: igb loses its link for a moment after its VFs were made, and refuses rates then.
    until(lambda: is_rated(pfs[0]), "the PF to accept a rate", seconds=PATIENCE)
    ip("link", "set", was, "name", "data7")
    ip("link", "set", "data7", "mtu", "1400")
    ip("link", "property", "add", "dev", "data7", "altname", "enp65s16f4")
    ip("link", "set", pfs[0].name, "vf", "2", "vlan", "7", "qos", "2")
    yield vf
    assert vf.name == "data7"
    ip("link", "set", pfs[0].name, "vf", "2", "max_tx_rate", "0")
    ip("link", "set", pfs[0].name, "vf", "2", "vlan", "0")
    ip("link", "property", "del", "dev", "data7", "altname", "enp65s16f4")
    ip("link", "set", "data7", "mtu", "1500")
    ip("link", "set", "data7", "name", was)


ALL = {
    "vlan": 100,
    "qos": 3,
    "mac": MAC,
    "spoofchk": "off",
    "trust": "on",
    "linkState": "auto",
    "minTxRate": 0,
    "maxTxRate": 200,
    "mtu": 9000,
}


def test_a_vf_is_set_up_through_its_pf_and_comes_back_as_it_was(vf: VF, pod: Pod) -> None:
    before = node_state()
    report = pod.attach(plan(step("vf", "sriov", "net1", ALL, device=allocated(vf))))

    held = of_pf(vf)
    assert held["vlan_list"] == [{"vlan": 100, "qos": 3}]
    assert (held["address"], held["spoofchk"], held["trust"], held["link_state"]) == (MAC, False, True, "auto")
    assert held["rate"]["max_tx"] == 200
    inside = pod.link("net1")
    assert (inside["address"], inside["mtu"], "UP" in inside["flags"]) == (MAC, 9000, True)
    assert inside["parentdev"] == vf.pci
    (made,) = report.steps[0].result.interfaces
    assert (made.name, made.mac, made.mtu, made.pci_id) == ("net1", MAC, 9000, vf.pci)
    assert check(pod.netns, pod.settings).is_clean

    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)
    assert not pod.detach().found


def test_a_vf_is_moved_and_restored_without_listing_all_links(
    vf: VF, pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    dumps: list[str] = []
    send = netlink.Socket._send

    def sent(sock: netlink.Socket, kind: int, flags: int, body: bytes, doing: str) -> int:
        if kind == uapi.RTM_GETLINK and flags & netlink.NLM_F_DUMP == netlink.NLM_F_DUMP:
            dumps.append(doing)
        return send(sock, kind, flags, body, doing)

    monkeypatch.setattr(netlink.Socket, "_send", sent)
    before = node_state()
    pod.attach(plan(step("vf", "sriov", "net1", ALL, device=allocated(vf))))
    assert pod.detach().is_clean
    assert dumps == []
    assert_as_before(before, pod.settings)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"vlan": 100, "proto": "802.1ad"}, "VLAN"),
        ({"linkState": "disable"}, "link state"),
        ({"minTxRate": 50}, "rates"),
        ({"maxTxRate": 5000}, "rates"),
        ({"mtu": 9710}, "mtu"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_setting_that_the_driver_rejects_raises_an_error_and_leaves_no_change(
    vf: VF, pod: Pod, config: dict[str, Any], named: str
) -> None:
    before = node_state()
    with pytest.raises(AttachError, match=named):
        pod.attach(plan(step("vf", "sriov", "net1", {"trust": "on", **config}, device=allocated(vf))))
    assert_as_before(before, pod.settings)


def test_undoing_a_step_twice_or_before_it_ran_changes_nothing(vf: VF, pod: Pod) -> None:
    before = node_state()
    order = Order(topology="t", step="vf", type="sriov", if_name="net1", network="n", config=ALL, device=allocated(vf))
    with (
        sites.open_pod(pod.path) as space,
        sites.opened(PodIdentity(sandbox=pod.netns), space, pod.settings, 60.0) as site,
    ):
        prepared = builtin.prepare(order, pod.settings.plugins, 60.0)
        record = builtin.observe(prepared, site)
        assert builtin.undo("sriov", record, site) == ()
        assert_as_before(before, pod.settings)
        builtin.apply(prepared, record, site, lambda _: None)
        for _ in range(2):
            assert builtin.undo("sriov", record, site) == ()
            assert_as_before(before, pod.settings)


@pytest.mark.parametrize("was_up", [False, True])
def test_a_vf_can_set_its_own_mac_again_after_an_administrative_mac(
    pfs: tuple[PF, ...], pod: Pod, was_up: bool
) -> None:
    vf = pfs[1].vf(1)
    own = links()[vf.name]["address"]
    ip("link", "set", vf.name, "up" if was_up else "down")
    before = node_state()
    pod.attach(plan(step("vf", "sriov", "net1", {"mac": MAC}, device=allocated(vf))))
    assert pod.link("net1")["address"] == of_pf(vf)["address"] == MAC
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)

    for mac in ("02:00:00:00:77:02", own):
        ip("link", "set", vf.name, "address", mac)
        assert of_pf(vf)["address"] == mac
    ip("link", "set", vf.name, "down")


def test_a_vf_with_a_mac_of_its_administrators_gets_another_and_that_one_back(pfs: tuple[PF, ...], pod: Pod) -> None:
    vf = pfs[1].vf(1)
    own, pf = links()[vf.name]["address"], pfs[1].name
    ip("link", "set", pf, "vf", "1", "mac", "02:00:00:00:77:03")
    try:
        pod.attach(plan(step("vf", "sriov", "net1", {"mac": MAC}, device=allocated(vf))))
        assert pod.link("net1")["address"] == of_pf(vf)["address"] == MAC
        assert pod.detach().is_clean
        assert of_pf(vf)["address"] == "02:00:00:00:77:03"
    finally:
        ip("link", "set", pf, "vf", "1", "mac", "00:00:00:00:00:00")
        ip("link", "set", vf.name, "up")
        ip("link", "set", vf.name, "address", "02:00:00:00:77:04")
        ip("link", "set", vf.name, "address", own)
        ip("link", "set", vf.name, "down")


def test_a_pod_that_dies_gives_its_vf_back_as_it_was(vf: VF, pod: Pod) -> None:
    before = node_state()
    pod.attach(plan(step("vf", "sriov", "net1", ALL, device=allocated(vf))))
    ip("netns", "delete", pod.netns)

    report = pod.detach()

    assert report.namespace_gone
    assert report.is_clean
    assert_as_before(before, pod.settings)


def test_a_vf_of_a_userspace_driver_is_set_up_without_an_interface(
    pfs: tuple[PF, ...], rebind: Callable[[Function, str], None], new_pod: Callable[[], Pod]
) -> None:
    vf = pfs[0].vf(4)
    rebind(vf, "vfio-pci")
    pod = new_pod()
    before = node_state()
    report = pod.attach(plan(step("vf", "sriov", "net1", {"vlan": 5, "mac": MAC}, device=allocated(vf))))
    (device,) = report.steps[0].result.devices
    assert (device.pci_address, device.iommu_group) == (vf.pci, vf.iommu_group)
    assert all(Path(node).exists() for node in device.device_nodes)
    assert (of_pf(vf)["vlan_list"], of_pf(vf)["address"]) == ([{"vlan": 5}], MAC)
    assert report.steps[0].result.interfaces == ()

    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


@pytest.mark.parametrize("binary", [False, True], ids=["built-in", "sriov-cni"])
def test_the_step_and_the_binary_are_the_same_in_the_graph(
    pfs: tuple[PF, ...], pod: Pod, binary: bool, record_testsuite_property: Callable[[str, object], None]
) -> None:
    vf = pfs[0].vf(3)
    before = node_state()
    # sriov-cni 2.1.0 knows no CNI version after 0.3.1, and takes MAC, spoof check, trust and rates but sets none.
    version = {"cniVersion": "0.3.1", "name": "t-vf"} if binary else {}
    ipam = {"type": "static", "addresses": [{"address": "10.3.0.5/24"}]}
    tuning = {"dev": "{{ vf.interfaceName }}", "mtu": 1400}
    report = pod.attach(
        plan(
            step("vf", "sriov", "net1", {"vlan": 300, "ipam": ipam, **version}, device=allocated(vf), binary=binary),
            step("tune", "tuning", "net1", tuning, after=["vf"]),
        )
    )
    took = round(report.steps[0].seconds * 1000, 1)
    record_testsuite_property(f"sriov with static addresses, {'binary' if binary else 'built in'}, ms", took)
    inside = pod.link("net1")
    assert (inside["mtu"], inside["parentdev"], "UP" in inside["flags"]) == (1400, vf.pci, True)
    assert pod.addresses("net1") == {"10.3.0.5/24"}
    assert of_pf(vf)["vlan_list"] == [{"vlan": 300}]

    assert pod.detach().is_clean
    # What sriov-cni does not give back is whether the netdev was up.
    if binary and vf.name:
        ip("link", "set", vf.name, "down")
    assert_as_before(before, pod.settings)


def test_two_pods_on_vfs_of_one_vlan_ping_and_one_on_another_does_not(
    pfs: tuple[PF, ...], new_pod: Callable[[], Pod]
) -> None:
    pods = [new_pod() for _ in range(3)]
    places = ((pfs[0].vf(0), 50), (pfs[1].vf(0), 50), (pfs[1].vf(2), 51))
    for number, (pod, (vf, vlan)) in enumerate(zip(pods, places, strict=True), start=1):
        addresses = {"dev": "{{ vf.interfaceName }}", "addresses": [f"10.50.0.{number}/24"]}
        pod.attach(
            plan(
                step("vf", "sriov", "net1", {"vlan": vlan}, device=allocated(vf)),
                step("tune", "tuning", "net1", addresses, after=["vf"]),
            )
        )
    ping("10.50.0.2", pods[0].netns)
    unheard = ("ip", "netns", "exec", pods[0].netns, "busybox", "ping", "-c", "1", "-W", "2", "10.50.0.3")
    assert "100% packet loss" in run(*unheard, check=False)


def test_values_for_which_a_nic_drops_packets_of_a_vf_are_notes(
    pfs: tuple[PF, ...], new_pod: Callable[[], Pod]
) -> None:
    pf, mac = pfs[0], "02:00:00:00:99:77"
    first, second = (
        pod.attach(plan(step("vf", "sriov", "net1", {"mac": mac, **config}, device=allocated(vf))))
        for pod, vf, config in ((new_pod(), pf.vf(1), {}), (new_pod(), pf.vf(2), {"mtu": 1600}))
    )

    assert first.steps[0].notes == ()
    assert second.steps[0].notes == (
        f'mtu 1600 exceeds the 1500 of PF "{pf.name}": the NIC may drop longer packets of the VF',
        f'VF 1 of PF "{pf.name}" also has MAC {mac}: frames reach one of the two',
    )


def test_a_vlan_on_a_vf_of_the_node_that_is_down_fails_with_the_reason(pfs: tuple[PF, ...], pod: Pod) -> None:
    vf = pfs[0].vf(3)
    ip("link", "set", vf.name, "down")
    with pytest.raises(AttachError, match=f'the interface below it, "{vf.name}", is down'):
        pod.attach(plan(step("v", "vlan", "net1", {"id": 7, "master": vf.name}, device=allocated(vf))))
