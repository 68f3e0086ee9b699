"""VFs with a port of Neutron, on the emulated NIC: what the port states, at the PF and in the pod, and all returned.

The emulated 82576 (igb) takes a VLAN, a MAC, the spoof check, trust and a maximum rate, and refuses a link state and a
minimum rate.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from netdra.chain.check import check
from netdra.chain.report import AttachError
from netdra.model.neutron_port import PortRoute, PortSettings
from netdra.model.plan import PlannedPort, PlannedStep
from netdra.model.result import CNIDNS
from netdra.model.topology import NeutronRequest
from testbed.waiting import until
from tests.hardware import killed, wire
from tests.hardware.node import PATIENCE, PF, VF, Function, ip
from tests.hardware.pods import Pod, allocated, assert_as_before, node_state, of_pf
from tests.hardware.test_steps_bond import bond
from tests.plans import plan, step

MAC, OTHER_MAC = "fa:16:3e:00:77:01", "fa:16:3e:00:77:02"
SETTINGS = PortSettings(
    mac=MAC,
    vlan=1317,
    mtu=1450,
    addresses=("10.77.0.12/24", "2001:db8:77::c/64"),
    gateways=("10.77.0.1", "2001:db8:77::1"),
    routes=(PortRoute(destination="10.78.0.0/16", gateway="10.77.0.254"),),
    dns=("10.77.0.2",),
    spoofchk=False,
    trust=True,
    max_tx_rate=250,
)


def ported(
    vf: VF, settings: PortSettings = SETTINGS, name: str = "vf", if_name: str = "net1", *, assigned: bool = True
) -> PlannedStep:
    """A root step whose VF has a port, as a claim's plan has it."""
    return msgspec.structs.replace(
        step(name, "sriov", if_name, device=allocated(vf)),
        neutron=NeutronRequest(assign_addresses=assigned),
        port=PlannedPort(port_id=f"port-of-{name}", settings=settings, assign_addresses=assigned),
    )


@pytest.fixture
def vf(pfs: tuple[PF, ...]) -> Iterator[VF]:
    """A VF whose PF holds another user's VLAN and rate, and whose MTU is not the usual one."""
    vf, pf = pfs[0].vf(2), pfs[0].name
    ip("link", "set", vf.name, "mtu", "1400")
    ip("link", "set", pf, "vf", "2", "vlan", "7", "qos", "2")
    ip("link", "set", pf, "vf", "2", "max_tx_rate", "300")
    yield vf
    ip("link", "set", pf, "vf", "2", "max_tx_rate", "0")
    ip("link", "set", pf, "vf", "2", "vlan", "0")
    ip("link", "set", vf.name, "mtu", "1500")


def destinations(pod: Pod, if_name: str, family: str = "-4") -> set[tuple[str, str]]:
    """The routes by a gateway that an interface has."""
    lines = ip(family, "route", "show", "dev", if_name, netns=pod.netns).splitlines()
    words = [line.split() for line in lines if " via " in line]
    return {(route[0], route[route.index("via") + 1]) for route in words}


def test_a_vf_takes_the_settings_of_its_port_and_is_restored_after_detach(vf: VF, pod: Pod) -> None:
    before = node_state()
    report = pod.attach(plan(ported(vf)))

    held = of_pf(vf)
    assert (held["address"], held["vlan_list"]) == (MAC, [{"vlan": 1317}])
    assert (held["spoofchk"], held["trust"], held["rate"]["max_tx"]) == (False, True, 250)
    inside = pod.link("net1")
    assert (inside["address"], inside["mtu"], inside["parentdev"]) == (MAC, 1450, vf.pci)
    assert "UP" in inside["flags"]
    assert pod.addresses("net1") == {"10.77.0.12/24", "2001:db8:77::c/64"}
    assert destinations(pod, "net1") == {("10.78.0.0/16", "10.77.0.254")}
    assert destinations(pod, "net1", "-6") == set()  # the pod's default routes are its cluster's
    result = report.steps[0].result
    assert [(each.address, each.gateway) for each in result.ips] == [
        ("10.77.0.12/24", "10.77.0.1"),
        ("2001:db8:77::c/64", "2001:db8:77::1"),
    ]
    assert result.dns == CNIDNS(nameservers=("10.77.0.2",))
    assert report.steps[0].notes == ()
    assert check(pod.netns, pod.settings).is_clean

    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


def test_a_peer_with_a_stale_entry_reaches_the_addresses_of_a_port_at_once(
    vf: VF, pod: Pod, new_netns: Callable[[], str]
) -> None:
    peer, hosts = new_netns(), {"10.77.0.12", "2001:db8:77::c"}
    wire.put(peer, {SETTINGS.vlan: ("10.77.0.200/24", "2001:db8:77::200/64")})
    wire.outdate(peer, hosts, SETTINGS.vlan)
    made = plan(ported(vf))
    pod.attach(made)
    wire.wait_ok(pod, made)
    with wire.Asker(peer) as asker:
        assert asker.ask(hosts, wire.SOON).keys() == hosts
    assert pod.detach().is_clean


def test_a_port_setting_that_the_driver_rejects_is_noted_unless_it_isolates_the_vf(vf: VF, pod: Pod) -> None:
    before = node_state()
    rated = msgspec.structs.replace(SETTINGS, min_tx_rate=100, spoofchk=True, trust=False)
    report = pod.attach(plan(ported(vf, rated)))
    (note,) = report.steps[0].notes
    assert note.startswith(f"VF {vf.pci}: min rate stays 0, not 100 as its port in Neutron has:")
    assert (of_pf(vf)["spoofchk"], of_pf(vf)["rate"]["max_tx"]) == (True, 250)
    assert check(pod.netns, pod.settings).is_clean
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)

    down = msgspec.structs.replace(SETTINGS, link_state="disable")
    with pytest.raises(AttachError, match="link state"):
        pod.attach(plan(ported(vf, down)))
    assert_as_before(before, pod.settings)


@pytest.mark.parametrize(
    ("change", "told"),
    [(("vlan", "44"), "vlan is 44, not 1317"), (("spoofchk", "on"), "spoof check is True, not False")],
    ids=["vlan", "spoofchk"],
)
def test_a_change_at_the_pf_to_a_vf_with_a_port_is_reported(
    pfs: tuple[PF, ...], vf: VF, pod: Pod, change: Sequence[str], told: str
) -> None:
    before = node_state()
    pod.attach(plan(ported(vf)))
    ip("link", "set", pfs[0].name, "vf", str(vf.index), *change)
    verdict = check(pod.netns, pod.settings)
    assert not verdict.is_clean
    assert any(told in line for each in verdict.steps for line in each.drift)
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


def test_a_vf_with_a_port_comes_back_when_netdra_is_killed_meanwhile(vf: VF, pod: Pod) -> None:
    before = node_state()
    job = killed.Job(plan=plan(ported(vf)), netns=pod.netns, settings=pod.settings, after="vf")
    assert killed.exit_code(job) == -signal.SIGKILL
    assert of_pf(vf)["address"] == MAC
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


def test_a_vf_with_a_userspace_driver_gets_its_port_settings_and_reports_its_addresses(
    pfs: tuple[PF, ...], rebind: Callable[[Function, str], None], new_pod: Callable[[], Pod]
) -> None:
    vf = pfs[0].vf(4)
    rebind(vf, "vfio-pci")
    pod = new_pod()
    before = node_state()
    report = pod.attach(plan(ported(vf)))
    assert (of_pf(vf)["vlan_list"], of_pf(vf)["address"]) == ([{"vlan": 1317}], MAC)
    result = report.steps[0].result
    assert [each.address for each in result.ips] == ["10.77.0.12/24", "2001:db8:77::c/64"]
    assert (result.interfaces, result.routes) == ((), ())
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)


def test_a_bond_of_two_ports_has_the_address_of_the_first(pfs: tuple[PF, ...], pod: Pod) -> None:
    vfs = pfs[0].vf(1), pfs[1].vf(1)
    before = node_state()
    second: dict[str, Any] = {"mac": OTHER_MAC, "addresses": ("10.77.0.13/24",)}
    members = (
        ported(vfs[0], name="vf0", if_name="net1", assigned=False),
        ported(vfs[1], msgspec.structs.replace(SETTINGS, **second), name="vf1", if_name="net2", assigned=False),
    )
    address = {"dev": "bond0", "addresses": ["{{ vf0.ips[0].address }}"]}
    pod.attach(
        plan(
            *members,
            bond({"mode": "active-backup", "failOverMac": "active", "miimon": 100}),
            step("address", "tuning", "bond0", address, after=["bond"]),
        )
    )
    assert pod.addresses("bond0") == {"10.77.0.12/24"}
    assert (pod.addresses("net1"), pod.addresses("net2")) == (set(), set())
    assert [pod.link(name)["address"] for name in ("net1", "net2")] == [MAC, OTHER_MAC]
    assert [pod.link(name)["master"] for name in ("net1", "net2")] == ["bond0", "bond0"]
    until(lambda: pod.link("bond0")["operstate"] == "UP", "the bond to be up", seconds=PATIENCE)
    assert check(pod.netns, pod.settings).is_clean
    assert pod.detach().is_clean
    assert_as_before(before, pod.settings)
