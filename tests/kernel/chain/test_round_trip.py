"""Attach, check and detach on the real kernel: what the pod sees in between, and that nothing is left after it."""

from __future__ import annotations

from netdra.chain.check import check
from netdra.chain.detach import detach
from netdra.model.plan import Plan
from tests.kernel.chain.conftest import Bed, device, differences
from tests.plans import attach, plan, step


def prepared(bed: Bed) -> tuple[Plan, ...]:
    """A NIC of the node with addresses, a route and an alternative name, and a chain that moves and tunes it."""
    bed.veth("eth7", "peer7", mtu=1400, up=True)
    bed.run("ip", "link", "set", "peer7", "up")
    bed.run("ip", "addr", "add", "10.9.0.1/24", "dev", "eth7")
    bed.run("ip", "addr", "add", "2001:db8::1/64", "dev", "eth7", "nodad")
    bed.run("ip", "link", "property", "add", "dev", "eth7", "altname", "enp7s0")
    bed.run("ip", "route", "add", "10.77.0.0/16", "via", "10.9.0.7")
    tuning = {
        "dev": "{{ dev.interfaceName }}",
        "mtu": 1350,
        "mac": "02:00:00:00:00:77",
        "addresses": ["10.1.0.5/24", "2001:db8:1::5/64"],
        "routes": [{"destination": "10.2.0.0/16", "gateway": "10.1.0.1"}],
        "sysctl": {"net.core.somaxconn": "512", "net.ipv4.conf.IFNAME.rp_filter": 2},
        "ethtool": {"features": {"tx-checksum-ip-generic": False}},
    }
    return (
        plan(
            step("dev", "host-device", "net1", {"mtu": 1300}, device=device("eth7", allow_host_use=True)),
            step("tune", "tuning", "net1", tuning, after=["dev"]),
        ),
    )


def test_the_pod_gets_the_planned_network_and_detach_restores_the_node(bed: Bed) -> None:
    plans = prepared(bed)
    before = bed.state()
    report = attach(plans, bed.container, bed.pod.path, bed.settings)
    (first, second) = report.steps
    assert first.result.interfaces[0].mtu == 1300
    assert second.result.interfaces[0].mtu == 1350
    inside = bed.link("net1", inside=True)
    assert (inside["mtu"], inside["address"]) == (1350, "02:00:00:00:00:77")
    assert "UP" in inside["flags"]
    assert bed.addresses("net1", inside=True) >= {"10.1.0.5/24", "2001:db8:1::5/64"}
    assert bed.ip("route", "show", "10.2.0.0/16", inside=True)[0]["gateway"] == "10.1.0.1"
    assert bed.run("sysctl", "-n", "net.core.somaxconn", inside=True).strip() == "512"
    assert bed.run("sysctl", "-n", "net.ipv4.conf.net1.rp_filter", inside=True).strip() == "2"
    assert "tx-checksum-ip-generic: off" in bed.run("ethtool", "-k", "net1", inside=True)
    assert check(bed.container.sandbox, bed.settings).is_clean
    gone = detach(bed.container.sandbox, bed.settings)
    assert gone.is_clean
    assert [each.step for each in gone.undone] == ["tune", "dev"]
    assert differences(before, bed.state()) == []


def test_repeated_attach_and_detach_are_idempotent(bed: Bed) -> None:
    plans = prepared(bed)
    before = bed.state()
    first = attach(plans, bed.container, bed.pod.path, bed.settings)
    attached = bed.state()
    again = attach(plans, bed.container, bed.pod.path, bed.settings)
    assert again.repeated
    assert [each.result for each in again.steps] == [each.result for each in first.steps]
    assert differences(attached, bed.state()) == []
    assert detach(bed.container.sandbox, bed.settings).found
    assert not detach(bed.container.sandbox, bed.settings).found
    assert differences(before, bed.state()) == []
