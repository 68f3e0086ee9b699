"""The addresses of a PodNetwork as a device: the amount left, the time of publishing, and the claims that get it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.cel import compile_selector, device_variables
from netdra.model import quantity
from netdra.model.claim import DeviceClaim as Requests
from netdra.model.claim import ResourceClaim, ResourceClaimSpec
from netdra.model.meta import LabelSelector, ObjectMeta
from netdra.model.pod_address import PodAddress
from netdra.networks import shares
from netdra.networks.ledger import NetworkLedger
from netdra.networks.shares import Available
from netdra.slices.allocator import Allocation, Allocator
from netdra.slices.nodes import SchedulerNode
from netdra.slices.written import faults
from tests.unit.networks.builders import address, network, owner

RACKS = (
    {"cidr": "10.0.1.0/29", "nodeSelector": {"matchLabels": {"rack": "a"}}},
    {"cidr": "10.0.2.0/29", "nodeSelector": {"matchLabels": {"rack": "b"}}},
)


def test_ranges_for_the_same_nodes_are_one_device() -> None:
    (group,) = shares.groups(network("10.0.0.0/29", "10.0.1.0/29"))
    assert (group.key, group.selector, group.ranges) == ("", None, {"IPv4": (0, 1)})
    first, second = shares.groups(network(*RACKS))
    assert first.key != second.key
    assert (first.ranges, second.ranges) == ({"IPv4": (0,)}, {"IPv4": (1,)})


def test_a_family_without_a_range_for_the_nodes_comes_from_those_for_all() -> None:
    found = shares.groups(network(*RACKS, "2001:db8::/64"))
    assert [group.ranges for group in found] == [{"IPv4": (0,), "IPv6": (2,)}, {"IPv4": (1,), "IPv6": (2,)}]


def left(ledger: NetworkLedger, consumed: int = 0, promised: int = 0, **awaited: int) -> Available:
    (group,) = shares.groups(ledger.network)
    return shares.available(group, dict(enumerate(ledger.free)), {0: awaited.get("first", 0)}, consumed, promised)


def test_as_many_steps_are_left_as_the_scarcer_family_has_addresses() -> None:
    ledger = NetworkLedger(network("10.0.0.0/29", "2001:db8::/64"))
    assert left(ledger).left == 6
    ledger.put(None, address("10.0.0.1/29", owner()))
    assert left(ledger).left == 5


def test_a_share_without_an_address_yet_counts_once() -> None:
    ledger = NetworkLedger(network("10.0.0.0/30"))
    assert left(ledger, consumed=1, promised=1) == Available(1, 1)
    ledger.put(None, address("10.0.0.1/30", owner(), claim="uid-1"))
    assert ledger.steps_of("uid-1") == 1
    assert left(ledger, consumed=1, promised=0) == Available(1, 1)


@pytest.mark.parametrize("reserved", [False, True])
def test_an_address_that_waits_for_its_owner_is_left_to_it(*, reserved: bool) -> None:
    spec: dict[str, Any] = (
        {"reservations": [{"address": "10.0.0.1", "namespace": "db", "name": "web-0"}]} if reserved else {}
    )
    ledger = NetworkLedger(network("10.0.0.0/30", **spec))
    kept: PodAddress = address("10.0.0.1/30", owner("web-0"), claim="")
    if not reserved:
        ledger.put(None, kept)
    assert [*ledger.awaiting("db", "web-0", "web-0-net-x")] == [(0, "IPv4", kept.number)]
    assert [*ledger.awaiting("db", "web-1", "web-1-net-x")] == []
    assert left(ledger).left == 1
    assert left(ledger, first=1).left == 2
    ledger.put(kept, address("10.0.0.1/30", owner("web-0"), claim="uid-2"))
    assert [*ledger.awaiting("db", "web-0", "web-0-net-x")] == []


def test_a_claim_with_a_name_of_its_own_waits_for_its_address() -> None:
    ledger = NetworkLedger(network("10.0.0.0/30"), [address("10.0.0.1/30", owner("", claim="shared"))])
    assert len([*ledger.awaiting("db", "", "shared")]) == 1
    assert len([*ledger.awaiting("db", "shared", "other")]) == 0


def test_the_ranges_of_the_claims_share_are_tried_first() -> None:
    of_nodes = {"cidr": "10.0.2.0/29", "nodeSelector": {"matchLabels": {"rack": "a"}}}
    ledger = NetworkLedger(network("10.0.1.0/29", of_nodes))
    _, group = shares.groups(ledger.network)
    labels = {"rack": "a"}
    assert ledger.choose("IPv4", owner("web-0"), labels).plain == "10.0.1.1"
    assert ledger.choose("IPv4", owner("web-1"), labels, group=group.key).plain == "10.0.2.1"
    assert ledger.choose("IPv4", owner("web-2"), labels, group="").plain == "10.0.1.2"


@given(st.integers(0, 5000), st.integers(0, 5000), st.none() | st.integers(1, 12000))
def test_the_capacity_is_never_too_high_and_leaves_something_if_anything_is_left(
    consumed: int, remains: int, published: int | None
) -> None:
    now = Available(consumed, remains)
    amount = shares.capacity(now, published)
    assert consumed <= amount <= consumed + remains
    assert amount - consumed >= min(remains, max(1, remains // 2))
    assert shares.capacity(now, amount) == amount  # a second look writes nothing


def test_few_writes_fill_a_large_range() -> None:
    published, written = None, 0
    for taken in range(65_533):
        amount = shares.capacity(Available(0, 65_533 - taken), published)
        written += amount != published
        published = amount
    assert written < 100


def test_the_capacity_of_a_large_range_of_ipv6_stays_as_it_is() -> None:
    ledger = NetworkLedger(network("2001:db8::/64"))
    published = shares.capacity(left(ledger), None)
    assert shares.MOST // 2 < published < shares.MOST
    assert {shares.capacity(left(ledger, consumed=count), published) for count in range(1000)} == {published}


def test_the_api_server_takes_the_slices() -> None:
    found = [*shares.untouched(network(*RACKS, "2001:db8::/64")), *shares.untouched(network("2001:db8::/64"))]
    assert [*faults(found)] == []
    amounts = [quantity.parse(entry.spec.devices[0].capacity["dra.networking/addresses"].value) for entry in found]
    assert amounts == [6, 6, Decimal(shares.MOST)]
    (group,) = shares.groups(network("10.0.0.0/29"))
    assert shares.resource_slice(network("10.0.0.0/29"), group, 0).spec.devices == ()


def test_the_class_selects_the_device_of_its_network_alone() -> None:
    (selector,) = shares.device_class(network("10.0.0.0/29")).spec.selectors
    assert selector.cel is not None
    for name in ("storage", "other"):
        (one,) = shares.untouched(network("10.0.0.0/29", name=name))
        published = one.spec.devices[0].attributes.items()
        values: dict[str, Any] = {key: each.value for key, each in published}
        found = device_variables("dra.networking", values, {}, shared=True)
        assert compile_selector(selector.cel.expression).matches(found) == (name == "storage")


def test_a_claim_gets_a_share_only_by_the_toleration_of_its_request() -> None:
    lan = network("10.0.0.0/30")
    nodes = [SchedulerNode("node-1", {})]

    def allocator(*held: ResourceClaim) -> Allocator:
        return Allocator([*shares.untouched(lan)], [shares.device_class(lan)], allocated=held, nodes=nodes)

    def claim(name: str, steps: int) -> ResourceClaim:
        spec = ResourceClaimSpec(devices=Requests(requests=(shares.request("storage", steps),)))
        return ResourceClaim(metadata=ObjectMeta(name=name, namespace="db", uid=name), spec=spec)

    both = allocator().allocate(claim("both", 2))
    assert isinstance(both, Allocation)
    assert shares.steps_of(both.claims[0].status.allocation.devices.results[0].consumed_capacity) == 2  # type: ignore[union-attr]
    assert not isinstance(allocator(*both.claims).allocate(claim("late", 1)), Allocation)


def test_a_selector_of_labels_becomes_one_of_nodes() -> None:
    assert shares.node_selector(
        LabelSelector(match_labels={"rack": "a"}),
    ) == {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a"]}]}]}
