"""Routing that a topology states: mistakes are named where they are written, and correct rails are not warned of."""

from __future__ import annotations

import pytest

from netdra.rules.topologies import check_topology, check_unwise
from tests.builders import topology


def rail(name: str, address: str, more: str = "") -> str:
    ipam = f"{{type: static, addresses: [{{address: {address}}}]}}"
    return f"- {{name: {name}, type: macvlan, config: {{name: {name}, ipam: {ipam}}}{more}}}\n"


def tuning(config: str) -> str:
    return rail("r0", "10.1.0.5/24") + f"- {{name: tune, type: tuning, dependOn: [r0], config: {{{config}}}}}\n"


ROUTED = ", sourceRouting: true"
ON_NETWORK = "- {{name: {0}, type: macvlan, network: blue, config: {{ipam: {{type: network}}}}{1}}}\n"


@pytest.mark.parametrize(
    ("steps", "warning"),
    [
        (rail("r0", "10.1.0.5/24") + rail("r1", "10.1.0.6/24"), '"r1" has an address in 10.1.0.0/24'),
        (rail("r0", "10.1.0.5/24", ROUTED) + rail("r1", "10.1.0.6/24"), "set sourceRouting: true on both steps"),
        (rail("r0", "10.1.0.5/24", ROUTED) + rail("r1", "10.1.0.6/24", ROUTED), ""),
        (rail("r0", "10.1.0.5/24") + rail("r1", "10.2.0.6/24"), ""),
        (rail("r0", "10.1.0.5/32") + rail("r1", "10.1.0.5/32").replace("0.5", "0.6"), ""),
        (ON_NETWORK.format("a", "") + ON_NETWORK.format("b", ""), 'an address of PodNetwork "blue", as step "a"'),
        (ON_NETWORK.format("a", ROUTED) + ON_NETWORK.format("b", ROUTED), ""),
        (tuning("rules: [{from: 10.1.0.5, table: 100}]"), "table 100, in which the topology has no route"),
        (tuning("rules: [{from: 10.1.0.5, table: 100}], routes: [{dst: default, gw: 10.1.0.1, table: 100}]"), ""),
        (tuning("rules: [{from: 10.1.0.5, table: 254}]"), ""),
        (tuning("rules: [{iif: eth7, table: 254}]"), 'iif "eth7" is not an interface of the topology'),
        (tuning("rules: [{iif: IFNAME, oif: eth0, table: 254}]"), ""),
    ],
)  # fmt: skip
def test_rails_in_one_network_and_rules_without_effect_are_warned_of(steps: str, warning: str) -> None:
    written = topology(steps)
    assert check_topology(written) == ()
    words = ("ARP", "the rule")
    found = [finding.text for finding in check_unwise(written) if any(word in finding.text for word in words)]
    assert len(found) == bool(warning), found
    assert warning in "".join(found)


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ("- {name: a, type: macvlan, sourceRouting: true}", ""),
        ("- {name: a, type: host-device, keep: [], sourceRouting: true}", "does not give its interface addresses"),
        ("- {name: a, type: host-device, sourceRouting: true}", ""),
        ("- {name: a, type: vfio-pci, sourceRouting: true}", "a step of type vfio-pci does not make an interface"),
        (
            rail("r0", "10.1.0.5/24", ROUTED) + "- {name: sbr, type: sbr, dependOn: [r0]}",
            'step "sbr" (sbr) moves the routes to another table',
        ),
        (tuning("rules: [{table: 100}]"), "the rule matches all traffic; set from, to, iif, oif or fwmark"),
        (tuning("rules: [{from: 10.1.0.5}]"), "the rule does not have a table"),
        (tuning("rules: [{from: 10.1.0.0/24, to: '2001:db8::/64', table: 5}]"), "are of different families"),
        (tuning("rules: [{from: ten, table: 5}]"), 'from "ten" is not a network'),
        (tuning("rules: [{from: default, table: 5}]"), 'from "default" is not a network'),
        (tuning("rules: [{fwmark: 0x100/0xf, table: 5}]"), 'fwmark "0x100/0xf" must be a mark above 0 within its mask'),
        (tuning("rules: [{from: 10.1.0.5, table: 1000007}]"), "table"),
        (tuning("rules: [{from: 10.1.0.5, table: 5, priority: 32766}]"), "priority"),
        (tuning("neighbours: [{address: 10.1.0.9}]"), "the neighbour does not have mac"),
        (tuning("neighbours: [{address: 224.0.0.1, mac: '02:00:00:00:00:01'}]"), "is not the address of a single host"),
        (tuning("routes: [{dst: 10.8.0.0/16, gw: 10.1.0.1, nexthops: [{gateway: 10.1.0.1}]}]"), "not both"),
        (tuning("routes: [{dst: 10.8.0.0/16, nexthops: [{gateway: 224.0.0.1}]}]"), "224.0.0.1"),
        (tuning("arp_ignore: 1, sysctl: {net.ipv4.conf.IFNAME.arp_ignore: '1'}"), "is also among the sysctls"),
        (tuning("arp_ignore: 9"), "arp_ignore"),
        (tuning("rules: [{from: '{{ r0.ips[0].address }}', table: 100}]"), ""),
    ],
)  # fmt: skip
def test_rules_and_neighbours_that_the_kernel_would_reject_are_errors(steps: str, error: str) -> None:
    found = check_topology(topology(steps))
    assert len(found) == bool(error), found
    assert error in "".join(finding.text for finding in found)
