"""PodNetworks beside each other and beside the steps that use them; tests/mistakes has the errors in one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.networks.ledger import NetworkLedger
from netdra.rules import pod_networks
from tests.builders import topology
from tests.unit.networks.builders import network

TAGGED = """
- {name: nic, type: macvlan, selector: {cel: 'true'}}
- {name: tag, type: vlan, dependOn: [nic], network: storage, config: {id: 100, ipam: {type: network}}}
"""


@pytest.mark.parametrize(
    ("one", "other", "warns"),
    [
        ({}, {}, True),
        ({"vlan": 1}, {}, True),
        ({"vlan": 1}, {"vlan": 1}, True),
        ({"vlan": 1}, {"vlan": 2}, False),
        ({"physnet": "a"}, {"physnet": "b"}, False),
        ({"physnet": "a", "vlan": 1}, {"physnet": "a", "vlan": 1}, True),
    ],
)
def test_ranges_that_overlap_are_warned_of_unless_their_wires_differ(
    one: dict[str, Any], other: dict[str, Any], *, warns: bool
) -> None:
    networks = [network("10.7.0.0/24", name="a", **one), network("10.7.0.128/25", name="b", **other)]
    found = [*pod_networks.overlaps(networks)]

    assert [name for name, _ in found] == (["b"] if warns else [])
    assert not warns or 'range 10.7.0.128/25 overlaps with PodNetwork "a"' in found[0][1].what


def test_ranges_that_first_and_last_keep_apart_do_not_overlap() -> None:
    low, high = {"cidr": "10.7.0.0/24", "last": "10.7.0.99"}, {"cidr": "10.7.0.0/24", "first": "10.7.0.100"}

    assert [*pod_networks.overlaps([network(low, name="a"), network(high, name="b")])] == []
    assert pod_networks.check(network(low, high)) == ()


def test_a_step_must_use_the_networks_vlan() -> None:
    made = topology(TAGGED, name="lan")

    assert [*pod_networks.check_steps(made, {"storage": network("10.7.0.0/24", vlan=100)})] == []
    (wrong,) = pod_networks.check_steps(made, {"storage": network("10.7.0.0/24", vlan=7)})
    assert 'the step uses VLAN 100, but PodNetwork "storage" is VLAN 7' in wrong.what
    (absent,) = pod_networks.missing(made, {})
    assert 'PodNetwork "storage" does not exist' in absent.what


V4 = ("10.0.0.0/29", "10.0.0.0/30", "10.0.0.1", "10.0.0.6", "10.0.0.7", "10.0.0.0", "10.0.0.1-10.0.0.3")
TEXTS = st.sampled_from([*V4, "::1", "2001:db8::/64", "fe80::1", "", "x"])


@given(
    cidrs=st.lists(TEXTS, min_size=1, max_size=2),
    first=TEXTS,
    last=TEXTS,
    gateway=TEXTS,
    exclude=st.lists(TEXTS, max_size=2, unique=True),
    reserved=TEXTS,
)
def test_a_valid_pod_network_is_countable_and_contains_an_address(
    cidrs: list[str], first: str, last: str, gateway: str, exclude: list[str], reserved: str
) -> None:
    ranges = [{"cidr": cidr, "first": first, "last": last, "gateway": gateway, "exclude": exclude} for cidr in cidrs]
    reservations = [{"address": reserved, "namespace": "n", "name": "p"}] if reserved else []
    net = network(*ranges, reservations=reservations)

    if not pod_networks.check(net):
        assert all(entry.total > 0 for entry in NetworkLedger(net).usage)


@pytest.mark.parametrize(
    "cidr",
    [
        *("127.0.0.0/8", "127.1.2.0/24", "0.0.0.0/0", "0.0.0.0/8", "128.0.0.0/1", "169.254.0.0/16", "224.0.0.0/4"),
        *("239.1.0.0/16", "255.255.255.254/31", "::/0", "::/64", "fe80::/64", "fe80::/10", "ff02::/16", "::1/128"),
    ],
)
def test_a_range_of_addresses_that_no_pod_can_have_is_rejected(cidr: str) -> None:
    (wrong,) = pod_networks.check(network(cidr))
    assert f"range {cidr} includes " in wrong.what
    assert wrong.path == ("spec", "ranges", 0, "cidr")


@pytest.mark.parametrize(
    "cidr", ["10.0.0.0/255.255.255.0", "10.0.0.0/0.0.0.255", "10.0.0.0/024", "::ffff:10.0.0.0/120", "fe80::%eth0/64"]
)
def test_a_range_has_one_notation(cidr: str) -> None:
    (wrong,) = pod_networks.check(network(cidr))
    assert f'"{cidr}" is not a subnet' in wrong.what


@pytest.mark.parametrize("cidr", ["10.0.0.0/8", "100.64.0.0/10", "240.0.0.0/8", "2001:db8::/64", "fd00::/8"])
def test_other_ranges_are_accepted(cidr: str) -> None:
    assert pod_networks.check(network(cidr)) == ()


def test_an_address_of_a_router_or_a_name_server_is_not_reserved_for_a_pod() -> None:
    for fields in ({"dns": ["10.0.0.5"]}, {"routes": [{"destination": "192.0.2.0/24", "gateway": "10.0.0.5"}]}):
        reservations = [{"address": "10.0.0.5", "namespace": "db", "name": "a"}]
        (wrong,) = pod_networks.check(network("10.0.0.0/24", reservations=reservations, **fields))
        assert "reservation 10.0.0.5 is the address of a router or a name server" in wrong.what


@pytest.mark.parametrize(
    ("address", "is_assigned"),
    [("10.0.0.9", False), ("10.0.0.10", True), ("10.0.0.20", True), ("10.0.0.21", False), ("2001:db8::a", False)],
)
def test_an_address_from_the_first_to_the_last_of_a_range_can_be_reserved(address: str, is_assigned: bool) -> None:
    limits = {"cidr": "10.0.0.0/24", "first": "10.0.0.10", "last": "10.0.0.20"}
    reservations = [{"address": address, "namespace": "db", "name": "a"}]
    found = [wrong.what for wrong in pod_networks.check(network(limits, reservations=reservations))]
    assert found == (
        [] if is_assigned else [f'PodNetwork "storage": reservation {address} is not an address that a range assigns']
    )
