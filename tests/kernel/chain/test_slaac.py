"""`ipam: {type: slaac}`: the addresses that a router of the wire advertises, and nothing of them afterwards."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from netdra.chain.check import check
from netdra.chain.detach import detach
from netdra.chain.report import AttachError, AttachReport
from netdra.model.plan import PlannedStep
from testbed.waiting import until
from tests.kernel.chain.conftest import Bed, device, differences
from tests.kernel.chain.routers import advertise, answering
from tests.plans import attach, plan, step

PREFIX, OTHER = "2001:db8:7::/64", "2001:db8:8::/64"
SLAAC: dict[str, Any] = {"ipam": {"type": "slaac"}}


@pytest.fixture
def wire(bed: Bed) -> Bed:
    """A NIC eth7 on the node; the other end of its wire, peer7, is a router's, with a link-local address at once."""
    bed.veth("eth7", "peer7")
    settings = "net.ipv6.conf.peer7.accept_dad=0", "net.ipv6.conf.peer7.accept_ra=0", "net.ipv6.conf.eth7.accept_ra=0"
    bed.run("sysctl", "-q", "-w", *settings)
    for name in ("eth7", "peer7"):
        bed.run("ip", "link", "set", name, "up")
    until(lambda: any("fe80" in text for text in texts(bed, "peer7")), "the router's link-local address")
    return bed


def texts(bed: Bed, name: str) -> list[str]:
    # The list is empty while a link has tentative addresses alone.
    found = bed.ip("-6", "addr", "show", "dev", name, "-tentative")
    return [each["local"] for entry in found for each in entry["addr_info"]]


def nic(config: dict[str, Any]) -> PlannedStep:
    return step("nic", "host-device", "net1", config, device=device("eth7", allow_host_use=True))


def attached(bed: Bed, *steps: PlannedStep) -> AttachReport:
    return attach((plan(*steps),), bed.container, bed.pod.path, bed.settings)


def drift(bed: Bed) -> str:
    report = check(bed.container.sandbox, bed.settings)
    return "\n".join((*report.problems, *(text for entry in report.steps for text in entry.drift)))


def test_a_pod_asks_the_routers_and_has_their_address_until_it_ends(wire: Bed) -> None:
    before = wire.state()
    with answering("peer7", PREFIX) as asked:
        report = attached(wire, nic(SLAAC))
    assert "::" in asked  # before the interface has an address of its own
    (address,) = wire.addresses("net1", inside=True)
    assert re.fullmatch(r"2001:db8:7:.*/64", address)
    assert [(ip.address, ip.interface) for ip in report.steps[0].result.ips] == [(address, 0)]
    (usable,) = wire.ip("-6", "addr", "show", "dev", "net1", "scope", "global", "-tentative", inside=True)
    assert usable["addr_info"]
    assert not wire.ip("-6", "route", "show", "default", inside=True)
    assert drift(wire) == ""
    assert detach(wire.container.sandbox, wire.settings).is_clean
    assert differences(before, wire.state()) == []


def test_a_router_s_new_prefix_is_no_drift_and_the_loss_of_all_addresses_is(wire: Bed) -> None:
    with answering("peer7", PREFIX):
        attached(wire, nic(SLAAC))
    advertise("peer7", OTHER)
    until(lambda: len(wire.addresses("net1", inside=True)) == 2, "the address of the new prefix")
    (old,) = (text for text in wire.addresses("net1", inside=True) if text.startswith("2001:db8:7:"))
    wire.run("ip", "addr", "del", old, "dev", "net1", inside=True)
    until(lambda: drift(wire) == "", "the new address to be usable")
    wire.run("ip", "-6", "addr", "flush", "dev", "net1", "scope", "global", inside=True)
    assert drift(wire) == 'interface "net1" has no address that a router advertised'


def test_without_a_router_the_pod_does_not_start_and_nothing_of_it_stays(wire: Bed) -> None:
    before = wire.state()
    with pytest.raises(AttachError, match="got no IPv6 address within 1 s: no router of the wire advertised a prefix"):
        attached(wire, nic({"ipam": {"type": "slaac", "timeoutSeconds": 1}}))
    assert differences(before, wire.state()) == []


def test_an_interface_without_a_carrier_is_named_as_the_reason(wire: Bed) -> None:
    wire.run("ip", "link", "set", "peer7", "down")
    with pytest.raises(AttachError, match=r'interface "net1" has no carrier \(operstate .*\), so it hears no router'):
        attached(wire, nic({"ipam": {"type": "slaac", "timeoutSeconds": 1}}))


def test_an_interface_that_a_tuning_step_configures_gets_its_settings_back(wire: Bed) -> None:
    """The interface was in the pod before, and stays."""
    wire.run("ip", "link", "set", "eth7", "netns", Path(wire.pod.path).name, "name", "eth0")
    settings = tuple(f"net.ipv6.conf.eth0.{name}" for name in ("accept_ra", "autoconf"))
    wire.run("sysctl", "-q", "-w", *(f"{name}=0" for name in settings), inside=True)
    wire.run("ip", "link", "set", "eth0", "up", inside=True)
    before = wire.state()
    with answering("peer7", PREFIX):
        report = attached(wire, step("tune", "tuning", "eth0", {"addresses": ["10.7.0.5/24"], **SLAAC}))
    found = wire.addresses("eth0", inside=True)
    assert "10.7.0.5/24" in found
    assert len(found) == 2
    assert {ip.address for ip in report.steps[0].result.ips} == found
    assert drift(wire) == ""
    assert detach(wire.container.sandbox, wire.settings).is_clean
    assert differences(before, wire.state()) == []
    assert wire.run("sysctl", "-n", *settings, inside=True).split() == ["0", "0"]
