"""The owners of addresses, the fields of a PodAddress, and the counts in a PodNetwork's status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from netdra.controller.addresses import assignments
from netdra.kube.answers import decoder
from netdra.model import names
from netdra.model.claim import ResourceClaim
from netdra.model.meta import ObjectMeta
from netdra.model.pod_address import AddressOwner, AddressRoute
from netdra.model.topology import DeclaredParameter
from netdra.model.watched_claim import WatchedClaim
from netdra.networks.ledger import NetworkLedger
from netdra.rules import pod_addresses, pod_networks
from tests.builders import topology
from tests.unit.networks.builders import address, network, owner
from tests.unit.topology.test_bind import claim, config, result

NOW = datetime(2026, 11, 27, 10, tzinfo=UTC)
LAN = topology(
    "- {name: nic, type: macvlan, network: storage, selector: {cel: 'true'},"
    " config: {ipam: {type: network, address: 10.7.0.5}}}",
    name="lan",
)


def allocated(**metadata: Any) -> Any:
    return claim([result("nic", "vf0")], [config("lan", "nic", "nic")], **metadata)


def of_pod(name: str, **annotations: str) -> Any:
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "p", "controller": True}]
    return allocated(ownerReferences=owners, annotations=annotations)


@pytest.mark.parametrize(
    ("written", "expected", "kept"),
    [
        (allocated(), {"pod": "", "claim": "c"}, True),
        (of_pod("web-0", **{names.POD_CLAIM_NAME: "net"}), {"pod": "web-0", "claim": "net"}, True),
        (
            of_pod("web-6d4cf5-x7k2p", **{names.POD_CLAIM_NAME: "net"}),
            {"pod": "web-6d4cf5-x7k2p", "claim": "net"},
            False,
        ),
        (of_pod("web-1"), {"pod": "web-1", "claim": "extended-resources"}, True),
    ],
)
def test_an_owner_outlives_its_claim(written: Any, expected: dict[str, Any], *, kept: bool) -> None:
    (wanted,) = pod_addresses.wanted(written, {"lan": LAN})

    assert wanted.owner == AddressOwner(namespace="ns", topology="lan", step="nic", **expected)
    assert (wanted.network, wanted.requested) == ("storage", ("10.7.0.5",))
    assert assignments.is_kept(wanted.owner) is kept
    watched = decoder(WatchedClaim).decode(msgspec.json.encode(written))
    assert pod_addresses.wanted(watched.known, {"lan": LAN}) == (wanted,)


def test_the_copy_of_a_claim_in_memory_has_values_of_parameters_and_shares_and_lacks_other_devices() -> None:
    lan = topology(
        "- {name: nic, type: macvlan, network: storage, selector: {cel: 'true'},"
        " config: {ipam: {type: network, address: '{{ params.address }}'}}}",
        name="lan",
    )
    declared = (DeclaredParameter(name="address", type="string", format="ip"),)
    lan = msgspec.structs.replace(lan, spec=msgspec.structs.replace(lan.spec, parameters=declared))
    values = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "ParameterValues", "values": {"address": "10.7.0.9"}}
    given = {"source": "FromClaim", "opaque": {"driver": "dra.networking", "parameters": values}}
    share = {**result("addresses", "net"), "pool": "podnetworks.dra.networking/storage/rack-1"}
    other = {**result("gpu", "gpu0"), "driver": "gpu.example.com"}
    results = [result("nic", "vf0"), result("nic", "vf1"), share, other]
    written = claim(results, [config("lan", "nic", "nic"), given])
    watched = decoder(WatchedClaim).decode(msgspec.json.encode(written))

    (first, second) = pod_addresses.wanted(written, {"lan": lan})
    assert (first.requested, first.group, second.owner.index) == (("10.7.0.9",), "rack-1", 1)
    assert pod_addresses.wanted(watched.known, {"lan": lan}) == (first, second)
    assert watched.status.allocation is not None
    assert len(watched.status.allocation.devices.results) == 3


def test_an_address_has_the_settings_of_its_range_and_family() -> None:
    net = network(
        {"cidr": "10.7.0.0/24", "gateway": "10.7.0.1"},
        "2001:db8::/64",
        routes=[
            {"destination": "10.0.0.0/8"},
            {"destination": "10.9.0.0/16", "gateway": "10.8.0.1"},
            {"destination": "fd00::/8", "gateway": "fe80::1"},
        ],
        dns=["10.7.0.2", "2001:db8::2"],
        mtu=9000,
    )
    ledger = NetworkLedger(net)
    four, six = (
        assignments.address_of(
            ledger, ledger.choose(family, owner(), {}), owner(), ObjectMeta(name="c", uid="u"), "node-1"
        ).spec
        for family in ledger.families
    )

    assert (four.address, four.gateway, four.dns, four.mtu) == ("10.7.0.3/24", "10.7.0.1", ("10.7.0.2",), 9000)
    assert four.routes == (AddressRoute(destination="10.0.0.0/8", gateway="10.7.0.1"),)
    assert six.routes == (AddressRoute(destination="fd00::/8", gateway="fe80::1"),)
    assert (six.dns, six.families, six.node_name) == (("2001:db8::2",), ("IPv4", "IPv6"), "node-1")


def test_an_address_without_its_claim_names_its_former_node() -> None:
    kept = assignments.kept(address("10.7.0.5/24", owner()), NOW, "node-1")

    assert (kept.spec.claim, kept.spec.node_name, kept.spec.kept_since) == (None, "node-1", "2026-11-27T10:00:00Z")


@pytest.mark.parametrize("field", ["gateway", "routes", "dns", "mtu", "physnet", "on_duplicate"])
def test_an_address_with_settings_that_the_network_no_longer_has_is_not_current(field: str) -> None:
    net = network({"cidr": "10.7.0.0/24", "gateway": "10.7.0.1"}, dns=["10.7.0.3"], mtu=1400, physnet="p")
    ledger = NetworkLedger(net)
    chosen = ledger.choose("IPv4", owner(), {})
    present = assignments.address_of(ledger, chosen, owner(), ObjectMeta(name="c", uid="u"), "node-1")
    other = {"mtu": 1500, "routes": (AddressRoute(destination="10.0.0.0/8"),), "dns": (), "on_duplicate": "Reassign"}
    spec = msgspec.structs.replace(present.spec, **{field: other.get(field, "")})

    assert assignments.is_current(ledger, present)
    assert not assignments.is_current(ledger, msgspec.structs.replace(present, spec=spec))


def test_an_address_is_not_current_once_its_network_has_other_families_or_ranges() -> None:
    ledger = NetworkLedger(network("10.7.0.0/24", "2001:db8::/64"))
    six = assignments.address_of(ledger, ledger.choose("IPv6", owner(), {}), owner(), ObjectMeta(name="c"), "")

    assert assignments.is_current(ledger, six)
    assert not assignments.is_current(NetworkLedger(network("2001:db8::/64")), six)
    assert not assignments.is_current(NetworkLedger(network("2001:db8:1::/64")), six)


def test_a_status_counts_and_a_second_one_changes_nothing() -> None:
    net = network("10.7.0.0/30", "10.8.0.0/29")
    ledger = NetworkLedger(
        net,
        [
            address("10.7.0.1/30", owner("a")),
            address("10.7.0.2/30", owner("b")),
            address("10.8.0.1/29", owner("c"), claim=""),
        ],
    )
    status = assignments.network_status(net, ledger, (), NOW)

    assert (status.total, status.used, status.reserved, status.users) == (8, 2, 1, 1)
    assert [(entry.type, entry.status, entry.message) for entry in status.conditions] == [
        ("Ready", "True", "the ranges can be used"),
        ("AddressesAvailable", "False", "range 10.7.0.0/30 has no free address"),
        (
            "NearlyFull",
            "True",
            "range 10.7.0.0/30 is nearly full; spec.nearlyFullPercent is 90. Add a range, or release addresses",
        ),
    ]
    assert [entry.nearly_full for entry in status.ranges] == [True, False]
    later = msgspec.structs.replace(net, status=status)
    assert assignments.network_status(later, ledger, (), NOW + timedelta(hours=1)) == status


@pytest.mark.parametrize(
    ("total", "percent", "begins", "ends"),
    [
        (254, 90, 228, 215),
        (1000, 90, 900, 849),
        (1000, 50, 500, 449),
        (1000, 100, 1000, 949),
        (6, 90, 5, 3),  # with its last free address, although five of six are 83 percent
        (2, 90, 1, 0),
        (1, 90, 1, 0),
        (1000, 1, 10, 0),
        (2**63 - 1, 90, (2**63 - 1) * 90 // 100, 0),
    ],
)
def test_a_range_is_nearly_full_from_its_limit_until_a_twentieth_of_it_is_free_beyond_that(
    total: int, percent: int, begins: int, ends: int
) -> None:
    def is_nearly_full(taken: int, *, was: bool) -> bool:
        return assignments.is_nearly_full(total, total - taken, percent, was=was)

    assert [is_nearly_full(taken, was=False) for taken in (begins - 1, begins)] == [False, True]
    assert not is_nearly_full(ends, was=True)
    if ends:
        assert is_nearly_full(ends + 1, was=True)


def test_a_range_that_was_nearly_full_is_remembered_in_the_status_of_its_network() -> None:
    net = network("10.7.0.0/26", nearlyFullPercent=50)
    held = [address(f"10.7.0.{number}/26", owner(f"web-{number}")) for number in range(1, 32)]
    few = assignments.network_status(net, NetworkLedger(net, held), (), NOW)
    after = msgspec.structs.replace(net, status=few)
    fewer = NetworkLedger(after, held[:-1])
    assert [entry.nearly_full for entry in few.ranges] == [True]
    assert assignments.network_status(after, fewer, (), NOW).ranges[0].nearly_full
    assert not assignments.network_status(net, fewer, (), NOW).ranges[0].nearly_full
    other = msgspec.structs.replace(network("10.7.0.0/25"), status=few)
    assert not assignments.network_status(other, NetworkLedger(other, held[:-1]), (), NOW).ranges[0].nearly_full


def test_an_invalid_pod_network_reports_the_reason_in_its_status() -> None:
    net = network("10.7.0.5/24")
    status = assignments.network_status(net, None, pod_networks.check(net), NOW)

    (ready,) = status.conditions
    assert (ready.status, ready.reason) == ("False", "Invalid")
    assert '"10.7.0.5/24" is not a subnet; write the subnet 10.7.0.0/24' in ready.message


def test_the_status_of_a_network_that_is_being_deleted_names_five_claims_and_counts_the_others() -> None:
    net = network("10.7.0.0/24")
    deleted = msgspec.structs.replace(net, metadata=msgspec.structs.replace(net.metadata, deletion_timestamp="now"))
    users = [f"db/claim-{number}" for number in range(7)]
    for ledger in (NetworkLedger(deleted), None):
        ready = assignments.network_status(deleted, ledger, (), NOW, users).conditions[0]
        assert (ready.status, ready.reason) == ("False", "Deleting")
        assert "7 claims have addresses of the network (db/claim-0, " in ready.message
        assert "db/claim-4 and 2 more)" in ready.message
    (ready, *_) = assignments.network_status(deleted, NetworkLedger(deleted), (), NOW, users[:1]).conditions
    assert "1 claim has addresses of the network (db/claim-0);" in ready.message


def test_the_steps_of_a_claims_shares_are_counted_for_each_network() -> None:
    pool = "podnetworks.dra.networking/"
    results: list[dict[str, object]] = [
        {"request": "a", "driver": "dra.networking", "pool": f"{pool}storage", "device": "addresses"},
        {"request": "b", "driver": "dra.networking", "pool": f"{pool}storage/rack", "device": "addresses"},
        {"request": "c", "driver": "dra.networking", "pool": "node-1/nic", "device": "nic"},
    ]
    amounts = {"dra.networking/addresses": "2"}
    results = [{**result, "consumedCapacity": amounts} for result in results]
    value = {"metadata": {"name": "c"}, "spec": {}, "status": {"allocation": {"devices": {"results": results}}}}
    assert pod_addresses.requested(msgspec.convert(value, ResourceClaim)) == {"storage": 4}
