"""The bond step on VFs of different PFs, VLANs on the bond, and tuning on the VLANs; all of it undone again.

Every mode takes the emulated VFs; both links come up, and with them the bond.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from netdra.chain import announcements
from netdra.chain.check import check
from netdra.chain.report import AttachError
from netdra.chain.site import open_pod
from netdra.model.plan import MIIMON, PlannedDevice, PlannedStep
from testbed.waiting import until
from tests.hardware.node import PATIENCE, PF, VF, ip, ping, run, up
from tests.hardware.pods import Pod, allocated, assert_as_before, feature_of, node_state, of_pf, settings_of
from tests.plans import plan, step

MODES: Mapping[str, Mapping[str, Any]] = {
    "balance-rr": {"miimon": 100, "packetsPerSlave": 4, "resendIgmp": 2},
    "active-backup": {"miimon": 100, "failOverMac": "active", "primary": "net2", "primaryReselect": "better"},
    "balance-xor": {"miimon": 100, "xmitHashPolicy": "layer2+3", "updelay": 200, "downdelay": 300},
    "broadcast": {"miimon": 100, "numPeerNotif": 3},
    "802.3ad": {
        "miimon": 100,
        "xmitHashPolicy": "layer3+4",
        "lacpRate": "fast",
        "adSelect": "bandwidth",
        "minLinks": 1,
    },
    "balance-tlb": {"miimon": 100, "tlbDynamicLb": False, "lpInterval": 2},
    "balance-alb": {"miimon": "100", "allSlavesActive": True},
}
# What `ip` calls the options, and how it shows the values that it does not show as they were given.
SHOWN = {
    "packetsPerSlave": "packets_per_slave",
    "resendIgmp": "resend_igmp",
    "failOverMac": "fail_over_mac",
    "primaryReselect": "primary_reselect",
    "xmitHashPolicy": "xmit_hash_policy",
    "numPeerNotif": "num_peer_notif",
    "lacpRate": "ad_lacp_rate",
    "adSelect": "ad_select",
    "minLinks": "min_links",
    "tlbDynamicLb": "tlb_dynamic_lb",
    "lpInterval": "lp_interval",
    "allSlavesActive": "all_slaves_active",
    "arpInterval": "arp_interval",
    "arpValidate": "arp_validate",
}


def members(vfs: tuple[VF, VF], **config: Any) -> tuple[PlannedStep, ...]:
    """A root step for each VF; they are net1 and net2."""
    return tuple(
        step(f"vf{at}", "sriov", f"net{at + 1}", config, device=allocated(vf, mtu=1500)) for at, vf in enumerate(vfs)
    )


def bond(config: Mapping[str, Any]) -> PlannedStep:
    links = [{"name": "{{ vf0.interfaceName }}"}, {"name": "{{ vf1.interfaceName }}"}]
    return step("bond", "bond", "bond0", {"name": "bond0", "links": links, **config}, after=["vf0", "vf1"])


def vlan(name: str, number: int, if_name: str, master: str = "bond", **config: Any) -> PlannedStep:
    stands_on = {"id": number, "name": if_name, "master": f"{{{{ {master}.interfaceName }}}}"}
    return step(name, "vlan", if_name, {**stands_on, **config}, after=[master])


def member_state(pod: Pod, name: str) -> object:
    return pod.link(name)["linkinfo"]["info_slave_data"]["mii_status"]


@pytest.fixture
def vfs(pfs: tuple[PF, ...]) -> tuple[VF, VF]:
    """A VF of each PF."""
    return pfs[0].vf(1), pfs[1].vf(1)


@pytest.mark.parametrize("mode", MODES)
def test_a_bond_of_two_vfs_in_every_mode_of_the_kernel(vfs: tuple[VF, VF], pod: Pod, mode: str) -> None:
    options = MODES[mode]
    before = node_state()
    pod.attach(plan(*members(vfs), bond({"mode": mode, **options})))

    info = pod.link("bond0")["linkinfo"]
    assert (info["info_kind"], info["info_data"]["mode"]) == ("bond", mode)
    shown = {name: info["info_data"][SHOWN.get(name, name)] for name in options}
    assert {name: str(value).lower() for name, value in shown.items()} == {
        name: {"True": "1", "False": "0"}.get(str(value), str(value)).lower() for name, value in options.items()
    }
    assert [pod.link(name)["master"] for name in ("net1", "net2")] == ["bond0", "bond0"]
    until(lambda: pod.link("bond0")["operstate"] == "UP", "the bond to be up", seconds=PATIENCE)
    # A member whose carrier came late is "going back" until the bond's next look at it.
    until(
        lambda: [member_state(pod, name) for name in ("net1", "net2")] == ["UP", "UP"],
        "both members to be up",
        seconds=PATIENCE,
    )
    assert check(pod.netns, pod.settings).is_clean

    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


def test_a_bond_that_asks_by_arp(vfs: tuple[VF, VF], pod: Pod) -> None:
    before = node_state()
    arp = {"arpInterval": 250, "arpIpTarget": ["10.1.0.1", "10.1.0.2"], "arpValidate": "active"}
    pod.attach(plan(*members(vfs), bond({"mode": "active-backup", **arp})))

    data = pod.link("bond0")["linkinfo"]["info_data"]
    assert (data["arp_interval"], data["arp_ip_target"], data["arp_validate"]) == (
        250,
        ["10.1.0.1", "10.1.0.2"],
        "active",
    )
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


def test_a_bonds_own_mac_and_mtu_reach_the_vfs_and_are_gone_afterwards(vfs: tuple[VF, VF], pod: Pod) -> None:
    before = node_state()
    pod.attach(plan(*members(vfs), bond({"mode": "balance-xor", "mac": "02:00:00:00:66:01", "mtu": 4000})))

    for name in ("bond0", "net1", "net2"):
        assert (pod.link(name)["address"], pod.link(name)["mtu"]) == ("02:00:00:00:66:01", 4000)
    assert [of_pf(vf)["address"] for vf in vfs] == ["02:00:00:00:66:01"] * 2
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


def test_vfs_that_their_pfs_hold_to_a_mac_are_bonded_only_if_each_keeps_its_own(vfs: tuple[VF, VF], pod: Pod) -> None:
    """Other bonds give all members one MAC, which such a VF refuses."""
    before = node_state()
    held = [
        step(f"vf{at}", "sriov", f"net{at + 1}", {"mac": f"02:00:00:00:55:0{at}"}, device=allocated(vf, mtu=1500))
        for at, vf in enumerate(vfs)
    ]
    with pytest.raises(AttachError, match="bond"):
        pod.attach(plan(*held, bond({"mode": "balance-xor", "miimon": 100})))
    assert_as_before(before, pod.settings)

    pod.attach(plan(*held, bond({"mode": "active-backup", "miimon": 100, "failOverMac": "active"})))
    assert [pod.link(name)["address"] for name in ("net1", "net2")] == ["02:00:00:00:55:00", "02:00:00:00:55:01"]
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


def test_vlans_on_a_bond_and_a_vlan_in_a_service_vlan(vfs: tuple[VF, VF], pod: Pod) -> None:
    before = node_state()
    pod.attach(
        plan(
            *members(vfs, mtu=1600),
            bond({"mode": "active-backup", "miimon": 100}),
            vlan("data", 100, "data0"),
            vlan("mgmt", 200, "mgmt0", mtu=1400, mac="02:00:00:00:66:02"),
            vlan("outer", 100, "service0", protocol="802.1ad"),
            vlan("inner", 7, "customer0", "outer", mtu=1500),
        )
    )
    seen = {
        name: (
            link["link"],
            link["linkinfo"]["info_data"]["protocol"],
            link["linkinfo"]["info_data"]["id"],
            link["mtu"],
        )
        for name in ("data0", "mgmt0", "service0", "customer0")
        if (link := pod.link(name))
    }
    assert seen == {
        "data0": ("bond0", "802.1Q", 100, 1600),
        "mgmt0": ("bond0", "802.1Q", 200, 1400),
        "service0": ("bond0", "802.1ad", 100, 1600),
        "customer0": ("service0", "802.1Q", 7, 1500),
    }
    assert pod.link("mgmt0")["address"] == "02:00:00:00:66:02"
    assert check(pod.netns, pod.settings).is_clean

    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


def test_tuning_of_vf_bond_and_vlan_with_ethtool_is_taken_and_undone(vfs: tuple[VF, VF], pod: Pod) -> None:
    before = node_state()
    name = vfs[0].name
    was = {key: settings_of(name)[key] for key in ("rx", "tx", "rx-usecs")}
    vf_tuning = {
        "dev": "{{ vf0.interfaceName }}",
        "txqlen": 777,
        "allmulti": True,
        "ethtool": {
            "features": {"tcp-segmentation-offload": False, "generic-receive-offload": False},
            "rings": {"rx": 512, "tx": 256},
            "coalesce": {"rx-usecs": 50},
        },
    }
    vlan_tuning = {
        "dev": "{{ data.interfaceName }}",
        "addresses": ["10.100.0.5/24", "2001:db8::5/64"],
        "routes": [{"destination": "10.101.0.0/16", "gateway": "10.100.0.1", "metric": 50}],
        "sysctl": {"net.ipv4.conf.IFNAME.rp_filter": 2},
        "ethtool": {"features": {"tx-checksum-ip-generic": False}},
    }
    pod.attach(
        plan(
            *members(vfs),
            step("tune-vf", "tuning", "net1", vf_tuning, after=["vf0"]),
            step(
                "bond",
                "bond",
                "bond0",
                {"mode": "802.3ad", "miimon": 100, "links": ["net1", "net2"]},
                after=["tune-vf", "vf1"],
            ),
            vlan("data", 100, "data0"),
            step("tune-data", "tuning", "data0", vlan_tuning, after=["data"]),
        )
    )
    assert [pod.feature("net1", each) for each in ("tcp-segmentation-offload", "generic-receive-offload")] == [
        False
    ] * 2
    assert not pod.feature("data0", "tx-checksum-ip-generic")
    assert {key: settings_of("net1", pod.netns)[key] for key in was} == {"rx": 512, "tx": 256, "rx-usecs": 50}
    assert pod.link("net1")["txqlen"] == 777
    assert pod.addresses("data0") == {"10.100.0.5/24", "2001:db8::5/64"}
    (route,) = json.loads(ip("-j", "route", "show", "10.101.0.0/16", netns=pod.netns))
    assert (route["gateway"], route["dev"], route["metric"]) == ("10.100.0.1", "data0", 50)
    assert check(pod.netns, pod.settings).is_clean

    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)
    assert {key: settings_of(name)[key] for key in was} == was
    assert all(feature_of(name, each) for each in ("tcp-segmentation-offload", "generic-receive-offload"))


def test_a_pod_that_dies_with_a_tuned_bond_gives_back_untuned_vfs(vfs: tuple[VF, VF], pod: Pod) -> None:
    before = node_state()
    name = vfs[0].name
    was = settings_of(name)
    tuning = {
        "dev": "net1",
        "mtu": 1300,
        "ethtool": {"features": {"tcp-segmentation-offload": False}, "rings": {"rx": 512}},
    }
    pod.attach(
        plan(
            *members(vfs, trust="on"),
            step("tune", "tuning", "net1", tuning, after=["vf0"]),
            step("bond", "bond", "bond0", {"mode": "balance-xor", "links": ["net1", "net2"]}, after=["tune", "vf1"]),
        )
    )
    ip("netns", "delete", pod.netns)

    report = pod.detach()

    assert report.namespace_gone
    assert report.is_clean, str(report)
    assert_as_before(before, pod.settings)
    assert settings_of(name) == was
    assert feature_of(name, "tcp-segmentation-offload")
    assert not Path(pod.path).exists()


WIRE, PEER, OWN = "vnic", "192.0.2.1/24", "192.0.2.9/24"
PING = ("busybox", "ping", "-i", "0.1", PEER.partition("/")[0])
SILENCE = 1.0
"""How long no ping may be answered when a link is lost, in seconds."""
MAILBOX = 1.0
"""How long igbvf polls for its PF before it lets the bond go on (drivers/net/ethernet/intel/igbvf/mbx.c): 2,000 times
500 µs. Of 1.16 s that the kernel needed to change the member, e1000_write_posted_mbx() took 1.13 s (ftrace)."""


@contextmanager
def following(pod: Pod, *command: str, words: str) -> Iterator[Callable[[], list[float]]]:
    """Run a program in a pod; when it wrote the lines with these words so far, on the monotonic clock."""
    whole = ("ip", "netns", "exec", pod.netns, *command)
    with subprocess.Popen(whole, stdout=subprocess.PIPE, text=True) as process:
        times: list[float] = []

        def read() -> None:
            assert process.stdout is not None
            times.extend(time.monotonic() for line in process.stdout if all(word in line for word in words.split()))

        reader = Thread(target=read)
        reader.start()
        try:
            yield lambda: list(times)
        finally:
            process.terminate()
            reader.join()


def assert_goes_on(answers: list[float], begun: float, longest: float = SILENCE) -> None:
    """From a moment on, pings are answered with no more than a short silence."""
    times = [begun, *(each for each in answers if each > begun)]
    silences = [after - before for before, after in itertools.pairwise(times)]
    assert max(silences) < longest, [f"{silence:.2f}" for silence in silences]


def active(pod: Pod) -> str:
    return str(pod.link("bond0")["linkinfo"]["info_data"].get("active_slave", ""))


@pytest.fixture
def peer(pfs: tuple[PF, ...], new_netns: Callable[[], str]) -> str:
    """Another machine on the wire of both PFs."""
    netns = new_netns()
    ip("link", "set", "dev", WIRE, "netns", netns)
    ip("address", "add", PEER, "dev", WIRE, netns=netns)
    up(WIRE, netns)
    return netns


def lose_pf(pf: PF, _: VF) -> None:
    ip("link", "set", pf.name, "down")


def reset_vf(_: PF, vf: VF) -> None:
    (vf.folder / "reset").write_text("1")


def bonded(roots: tuple[PlannedStep, ...], pod: Pod, *above: PlannedStep, **config: Any) -> None:
    """Attach a bond with an address and steps above it, and wait until its primary member is used."""
    tuning = step("tune", "tuning", "bond0", {"dev": "bond0", "addresses": [OWN]}, after=["bond"])
    made = bond({"mode": "active-backup", "primary": "net1", **config})
    pod.attach(plan(*roots, made, tuning, *above))
    until(
        lambda: [member_state(pod, name) for name in ("net1", "net2")] == ["UP", "UP"],
        "both members to be up",
        seconds=PATIENCE,
    )
    until(lambda: active(pod) == "net1", "the primary member to be active", seconds=PATIENCE)


@pytest.mark.parametrize("lose", [lose_pf, reset_vf], ids=["PF down", "VF reset"])
@pytest.mark.parametrize("config", [{}, {"failOverMac": "active"}], ids=["one MAC", "the member's MAC"])
def test_traffic_of_a_bond_goes_on_when_a_member_has_lost_its_link(
    pfs: tuple[PF, ...],
    vfs: tuple[VF, VF],
    pod: Pod,
    peer: str,
    lose: Callable[[PF, VF], None],
    config: dict[str, Any],
) -> None:
    """The VF's driver finds a lost link late, by a look every two seconds: the time counts from then on."""
    bonded(members(vfs, spoofchk="off"), pod, **config)
    ping(PEER.partition("/")[0], pod.netns)

    with (
        following(pod, *PING, words="seq=") as answers,
        following(pod, "ip", "-o", "monitor", "link", words="net1 NO-CARRIER") as losses,
    ):
        until(lambda: len(answers()) > 5, "answers", seconds=PATIENCE)
        lose(pfs[0], vfs[0])
        try:
            until(losses, "the loss", seconds=PATIENCE)
            time.sleep(2 * SILENCE)  # programs that look would take the only processor from the pings
            assert active(pod) == "net2"
        finally:
            ip("link", "set", pfs[0].name, "up")
        assert_goes_on(answers(), losses()[0], SILENCE + MAILBOX)


SWITCH = "hw-0"


@pytest.fixture
def wires(new_netns: Callable[[], str]) -> Iterator[tuple[PlannedDevice, ...]]:
    """Two devices of the node, and a switch at the other ends of their wires that has the peer's address."""
    switch = new_netns()
    assert switch == SWITCH
    ip("link", "add", "switch", "type", "bridge", netns=switch)
    ip("address", "add", PEER, "dev", "switch", netns=switch)
    ip("link", "set", "switch", "up", netns=switch)
    for number in (0, 1):
        end = f"port{number}"
        ip("link", "add", f"wire{number}", "type", "veth", "peer", "name", end, "netns", switch)
        ip("link", "set", end, "master", "switch", "up", netns=switch)
    yield tuple(PlannedDevice(request="r", pool="p", device="d", if_name=f"wire{number}") for number in (0, 1))
    for number in (0, 1):
        ip("link", "delete", f"wire{number}")


@pytest.mark.parametrize("config", [{}, {"failOverMac": "active"}], ids=["one MAC", "the member's MAC"])
def test_traffic_of_a_bond_goes_on_within_a_second_when_a_port_of_the_switch_goes_down_and_comes_back(
    wires: tuple[PlannedDevice, ...], pod: Pod, config: dict[str, Any]
) -> None:
    roots = tuple(step(f"vf{at}", "host-device", f"net{at + 1}", device=wire) for at, wire in enumerate(wires))
    bonded(roots, pod, **config)

    with following(pod, *PING, words="seq=") as answers:
        until(lambda: len(answers()) > 5, "answers", seconds=PATIENCE)
        begun = time.monotonic()
        ip("link", "set", "port0", "down", netns=SWITCH)
        time.sleep(2 * SILENCE)
        assert active(pod) == "net2"
        ip("link", "set", "port0", "up", netns=SWITCH)
        time.sleep(2 * SILENCE)
        assert active(pod) == "net1"
        assert_goes_on(answers(), begun)


def test_a_bond_of_a_former_version_without_link_monitor_is_neither_drift_nor_attached_anew(
    vfs: tuple[VF, VF], pod: Pod
) -> None:
    steps = (*members(vfs), bond({"mode": "active-backup"}))
    pod.attach(plan(*steps))
    assert pod.link("bond0")["linkinfo"]["info_data"]["miimon"] == MIIMON
    ip("link", "set", "bond0", "type", "bond", "miimon", "0", netns=pod.netns)
    index = pod.link("bond0")["ifindex"]

    assert check(pod.netns, pod.settings).is_clean
    assert pod.attach(plan(*steps)).repeated
    assert pod.link("bond0")["ifindex"] == index
    assert pod.detach().is_clean


def test_interfaces_that_follow_the_active_member_of_a_bond_are_no_drift(vfs: tuple[VF, VF], pod: Pod) -> None:
    before = node_state()
    ipam = {"ipam": {"type": "static", "addresses": [{"address": "192.0.2.10/24"}]}}
    above = step("above", "ipvlan", "ipvlan0", {"master": "bond0", "linkInContainer": True, **ipam}, after=["bond"])
    bonded(members(vfs), pod, vlan("lan", 7, "lan0"), above, failOverMac="active")
    ip("link", "set", "bond0", "type", "bond", "active_slave", "net2", netns=pod.netns)
    assert [pod.link(name)["address"] for name in ("bond0", "lan0", "ipvlan0")] == [pod.link("net2")["address"]] * 3
    assert check(pod.netns, pod.settings).is_clean
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


def test_a_bond_of_two_vfs_of_one_pf_has_a_note(pfs: tuple[PF, ...], pod: Pod) -> None:
    report = pod.attach(plan(*members((pfs[0].vf(1), pfs[0].vf(2))), bond({"mode": "active-backup"})))

    (note,) = report.steps[-1].notes
    assert note.startswith(f"members net1, net2 are VFs of one PF, {pfs[0].pci}: ")
    assert pod.detach().is_clean


def test_a_peer_with_a_stale_entry_reaches_the_addresses_of_a_bond_and_of_a_vlan_on_it(
    vfs: tuple[VF, VF], pod: Pod, peer: str
) -> None:
    for text, dev in {"192.0.2.9": WIRE, "198.51.100.9": "wire7"}.items():
        if dev != WIRE:
            ip("link", "add", dev, "link", WIRE, "type", "vlan", "id", "7", netns=peer)
            ip("address", "add", "198.51.100.1/24", "dev", dev, netns=peer)
            ip("link", "set", dev, "up", netns=peer)
        ip("neigh", "replace", text, "lladdr", "02:00:00:00:00:99", "dev", dev, "nud", "stale", netns=peer)
    made = plan(
        *members(vfs, spoofchk="off", trust="on"),
        bond({"mode": "active-backup"}),
        vlan("data", 7, "data0"),
        step("tune", "tuning", "bond0", {"addresses": [OWN]}, after=["bond"]),
        step("more", "tuning", "data0", {"addresses": ["198.51.100.9/24"]}, after=["data"]),
    )
    pod.attach(made)

    def waiting() -> dict[str, str]:
        with open_pod(pod.path) as space:
            return announcements.announce(announcements.names_of([made]), space)

    until(lambda: not waiting(), "the links to be up", seconds=PATIENCE)
    for text in ("192.0.2.9", "198.51.100.9"):
        run("ip", "netns", "exec", peer, "busybox", "ping", "-c", "1", "-W", "1", text)
    assert pod.detach().is_clean
