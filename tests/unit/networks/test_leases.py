"""Leases of whereabouts and host-local as PodAddresses: read, compared, written once."""

from __future__ import annotations

import math

import msgspec
import pytest

from netdra.model.errors import InvalidInputError
from netdra.model.meta import ObjectMeta
from netdra.model.pod_address import AddressLease, PodAddress
from netdra.networks import leases
from netdra.networks.departures import interval
from netdra.networks.errors import AddressTakenError
from netdra.networks.leases import ForeignLease, IPPool, LeaseChange, OverlappingRangeIPReservation
from netdra.networks.ledger import NetworkLedger
from tests.unit.networks.builders import address, network, owner

STORAGE = network("10.77.0.0/24", "2001:db8:77::/64")


def pool(range_: str, distance: str = "5", podref: str = "db/web-0", container: str = "c1") -> IPPool:
    """An IPPool with one allocation, by its distance."""
    stored = {distance: {"id": container, "podref": podref, "ifname": "net1"}}
    value = {"metadata": {"name": "pool", "namespace": "kube-system"}, "spec": {"range": range_, "allocations": stored}}
    return msgspec.convert(value, IPPool)


def reservation(name: str, podref: str = "db/web-0") -> OverlappingRangeIPReservation:
    """A reservation of whereabouts."""
    value = {"metadata": {"name": name, "namespace": "kube-system"}, "spec": {"podref": podref, "ifname": "net1"}}
    return msgspec.convert(value, OverlappingRangeIPReservation)


def changes(
    found: list[ForeignLease], *present: PodAddress, imported: tuple[PodAddress, ...] = ()
) -> list[LeaseChange]:
    """The changes for some leases."""
    inside = leases.within(STORAGE, found)
    return [*leases.changes(STORAGE, inside, {entry.name: entry for entry in present}, imported)]


def states(found: list[LeaseChange]) -> dict[str, str]:
    """The states of changes by address."""
    return {change.shown.address: change.shown.state for change in found}


def written(found: list[LeaseChange]) -> list[PodAddress]:
    """The PodAddresses of changes, as the API server stores them."""
    return [change.after for change in found if change.after is not None]


@pytest.mark.parametrize(
    ("range_", "distance", "wanted"),
    [
        ("10.77.0.0/24", "5", "10.77.0.5"),
        ("10.77.0.16/28", "1", "10.77.0.17"),
        ("10.77.0.9/24", "1", "10.77.0.10"),
        ("2001:db8:77::/64", "18446744073709551615", "2001:db8:77:0:ffff:ffff:ffff:ffff"),
    ],
)
def test_the_distance_of_an_allocation_counts_from_the_pools_address(range_: str, distance: str, wanted: str) -> None:
    (lease,) = leases.of_pool(pool(range_, distance))
    origin = AddressLease(plugin="whereabouts", pool="kube-system/pool", container="c1", interface="net1")
    assert (str(lease.address), lease.origin, lease.pod) == (wanted, origin, "db/web-0")


@pytest.mark.parametrize("distance", ["x", "", "9" * 30, "9" * 5000])
def test_an_allocation_without_an_address_is_ignored(distance: str) -> None:
    assert [*leases.of_pool(pool("10.77.0.0/24", distance))] == []


def test_a_pool_without_a_subnet_is_an_error_that_names_it() -> None:
    with pytest.raises(InvalidInputError, match=r'IPPool "kube-system/pool": range "10.77/x" is not a subnet'):
        [*leases.of_pool(pool("10.77/x"))].clear()


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("10.77.0.9", "10.77.0.9"),
        ("storage-lan-10.77.0.9", "10.77.0.9"),
        ("2001-db8-77--9", "2001:db8:77::9"),
        ("2001-db8-77--0", "2001:db8:77::"),
        ("storage-2001-db8-77--9", "2001:db8:77::9"),
        ("beef-2001-db8-77--9", "2001:db8:77::9"),
        ("10.99.0.9", None),
        ("other", None),
    ],
)
def test_a_reservations_name_is_its_address(name: str, wanted: str | None) -> None:
    lease = leases.of_reservation(reservation(name), STORAGE)
    assert (str(lease.address) if lease is not None else None) == wanted


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("10.77.0.3", "c0ffee\r\nnet1", ("c0ffee", "net1")),
        ("10.77.0.3", "c0ffee", ("c0ffee", "")),
        ("2001:db8:77::3", "c0ffee\r\nnet1", ("c0ffee", "net1")),
        ("last_reserved_ip.0", "10.77.0.3", None),
        ("lock", "", None),
    ],
)
def test_a_file_of_host_local_is_a_lease(name: str, text: str, wanted: tuple[str, str] | None) -> None:
    lease = leases.of_file(name, text, "storage-net", "node-1")
    assert wanted == (None if lease is None else (lease.origin.container, lease.origin.interface))
    if lease is not None:
        assert (str(lease.address), lease.origin.node) == (name, "node-1")


def test_a_lease_becomes_an_address_once_and_ends_with_it() -> None:
    found = [
        *leases.of_pool(pool("10.77.0.0/24")),
        *leases.of_pool(pool("10.99.0.0/24")),
    ]
    first = changes(found)
    assert states(first) == {"10.77.0.5": "new"}
    (made,) = written(first)
    assert (made.name, made.spec.address) == ("storage.10.77.0.5", "10.77.0.5/24")
    assert (made.spec.owner.namespace, made.spec.owner.pod, made.spec.claim) == ("db", "web-0", None)
    second = changes(found, made, imported=(made,))
    assert (states(second), written(second)) == ({"10.77.0.5": "imported"}, [])
    assert states(changes([], made, imported=(made,))) == {"10.77.0.5": "ended"}


def test_a_lease_of_another_pod_replaces_the_one_before() -> None:
    (made,) = written(changes([*leases.of_pool(pool("10.77.0.0/24"))]))
    stored = msgspec.structs.replace(made, metadata=ObjectMeta(name=made.name, resource_version="7"))
    found = changes([*leases.of_pool(pool("10.77.0.0/24", podref="db/web-1"))], stored, imported=(stored,))
    assert states(found) == {"10.77.0.5": "changed"}
    (after,) = written(found)
    assert (after.spec.owner.pod, after.metadata.resource_version) == ("web-1", "7")


def test_an_address_that_netdra_assigned_or_another_node_has_is_a_conflict() -> None:
    file = leases.of_file("10.77.0.5", "c1\r\nnet1", "lan", "node-2")
    assert file is not None
    (elsewhere,) = written(changes([file._replace(origin=msgspec.structs.replace(file.origin, node="node-1"))]))
    for before, detail in (
        (address("10.77.0.5/24", owner()), "assigned to db/web-0"),
        (address("10.77.0.5/24", owner(), claim=""), "kept for db/web-0"),
        (elsewhere, "imported from host-local lan on node-1"),
    ):
        (change,) = changes([file], before)
        assert (change.shown.state, change.shown.detail, change.after) == ("conflict", detail, None)


def test_an_imported_address_is_not_assigned_until_it_is_released() -> None:
    net = network("10.77.0.0/29")
    inside = leases.within(net, leases.of_pool(pool("10.77.0.0/29", "1")))
    (made,) = written([*leases.changes(net, inside, {}, ())])
    ledger = NetworkLedger(net, [made])
    assert ledger.usage[0].reserved == 1
    assert ledger.choose("IPv4", owner("web-0"), {}).plain == "10.77.0.2"
    with pytest.raises(AddressTakenError, match=r"address 10.77.0.1 has a lease of whereabouts; delete the pod"):
        ledger.choose("IPv4", owner("web-1"), {}, ["10.77.0.1"])
    assert interval(made, None, keeps=False) == math.inf
    ledger.put(made, None)
    assert ledger.choose("IPv4", owner("web-1"), {}, ["10.77.0.1"]).plain == "10.77.0.1"
