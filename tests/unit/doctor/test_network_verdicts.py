"""The findings of `netdra doctor` on PodNetworks, their addresses, and ranges that overlap."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec
import pytest
from msgspec.structs import replace

from netdra.doctor.diagnosis import Diagnosis, Unseen
from netdra.doctor.network_verdicts import ADDRESSES, NETWORKS, RANGES, NetworkFacts, verdicts
from netdra.model.meta import Condition
from netdra.model.pod_address import AddressLease, PodAddress
from netdra.model.pod_network import PodNetwork, PodNetworkStatus
from netdra.rules.taken_ranges import TakenRange
from tests.unit.networks.builders import address, network, owner

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
CLAIMED = address("10.77.0.5/16", owner(), "uid-1")


def with_status(made: PodNetwork, **conditions: Literal["True", "False"]) -> PodNetwork:
    """A network with conditions, each by its status."""
    listed = tuple(
        Condition(type=kind, status=status, reason="R", message=f"{kind} text", last_transition_time="")
        for kind, status in conditions.items()
    )
    return replace(made, status=PodNetworkStatus(conditions=listed, used=2, reserved=1))


STORAGE = with_status(network("10.77.0.0/16"), Ready="True", AddressesAvailable="True", NearlyFull="False")


def on_node(made: PodAddress, node: str, age: timedelta = timedelta(hours=1)) -> PodAddress:
    """An address of a node's claim, created a while ago."""
    created = (NOW - age).isoformat()
    metadata = replace(made.metadata, creation_timestamp=created)
    return replace(made, metadata=metadata, spec=replace(made.spec, node_name=node))


def of(check: str, found: list[Diagnosis]) -> list[Diagnosis]:
    """The findings of a check."""
    return [finding for finding in found if finding.check == check]


def test_a_cluster_without_podnetworks_has_one_line() -> None:
    assert [(found.check, found.level, found.seen) for found in verdicts(NetworkFacts(), NOW)] == [
        (NETWORKS, "ok", "none"),
        (ADDRESSES, "ok", "0 PodAddresses"),
    ]


def test_networks_without_trouble_are_counted() -> None:
    facts = NetworkFacts(
        networks=(STORAGE,), addresses=(on_node(CLAIMED, "n1"),), claims=frozenset({"uid-1"}), nodes={"n1": False}
    )
    found = verdicts(facts, NOW)
    assert {finding.level for finding in found} == {"ok"}
    assert of(NETWORKS, found)[0].seen == "1 PodNetworks, 2 addresses used, 1 reserved"


@pytest.mark.parametrize(
    ("made", "seen", "fix"),
    [
        (with_status(network("10.77.0.0/16"), Ready="False"), "cannot be used: Ready text", "kubectl edit podnetwork"),
        (
            with_status(network("10.77.0.0/16"), Ready="True", AddressesAvailable="False"),
            "has no free address: AddressesAvailable text",
            "add a range: kubectl edit podnetwork storage",
        ),
        (
            with_status(network("10.77.0.0/16"), Ready="True", AddressesAvailable="True", NearlyFull="True"),
            "has few free addresses: NearlyFull text",
            "add a range: kubectl edit podnetwork storage",
        ),
        (
            with_status(network("10.77.0.0/16"), Ready="True", AddressesAvailable="False", NearlyFull="True"),
            "has no free address: AddressesAvailable text",
            "add a range: kubectl edit podnetwork storage",
        ),
        (network("10.77.0.0/16"), "has no status", "controller runs"),
    ],
)
def test_networks_that_assign_no_address_are_warnings(made: PodNetwork, seen: str, fix: str) -> None:
    (found,) = of(NETWORKS, verdicts(NetworkFacts(networks=(made,)), NOW))
    assert (found.level, seen in found.seen, fix in found.fix) == ("warning", True, True)


LEASE = replace(
    CLAIMED, spec=replace(CLAIMED.spec, claim=None, lease=AddressLease(plugin="whereabouts", pool="kube-system/pool"))
)


@pytest.mark.parametrize(
    ("networks", "one", "seen", "fix"),
    [
        (
            (STORAGE,),
            on_node(CLAIMED, "away"),
            "released addresses are not assigned again",
            'machine of Node "away" is off for good',
        ),
        ((STORAGE,), on_node(CLAIMED, "n1"), "belong to claims that do not exist", "controller runs"),
        ((STORAGE,), on_node(CLAIMED, "none"), "belong to claims that do not exist", "controller runs"),
        ((), on_node(CLAIMED, "n1"), "belong to PodNetworks that do not exist", "kubectl describe podaddress"),
        ((), LEASE, "imported addresses belong to PodNetworks", "netdra networks release storage --apply"),
    ],
)
def test_addresses_that_stay_are_warnings(
    networks: tuple[PodNetwork, ...], one: PodAddress, seen: str, fix: str
) -> None:
    facts = NetworkFacts(networks=networks, addresses=(one,), nodes={"n1": False, "away": True})
    (found,) = of(ADDRESSES, verdicts(facts, NOW))
    assert (found.level, seen in found.seen, fix in found.fix) == ("warning", True, True), found
    assert found.seen.endswith(": storage.10.77.0.5")


def test_an_address_on_a_node_that_does_not_exist_is_a_warning() -> None:
    facts = NetworkFacts(networks=(STORAGE,), addresses=(on_node(CLAIMED, "n1"),), claims=frozenset({"uid-1"}))
    (found,) = of(ADDRESSES, verdicts(facts, NOW))
    assert "1 addresses belong to claims on nodes that do not exist (n1)" in found.seen


def test_an_address_that_is_about_to_be_released_is_not_a_warning() -> None:
    young = on_node(CLAIMED, "n1", timedelta(seconds=5))
    facts = NetworkFacts(networks=(STORAGE,), addresses=(young, LEASE), nodes={"n1": False})
    (found,) = of(ADDRESSES, verdicts(facts, NOW))
    assert (found.level, found.seen) == ("ok", "2 PodAddresses, 1 of them imported from other IPAM plugins")


def test_overlaps_are_warnings() -> None:
    other = with_status(network("10.77.0.0/24", name="web"), Ready="True", AddressesAvailable="True")
    taken = TakenRange(cidr="10.77.9.0/24", use="pods", owner='Node "n1"')
    found = of(RANGES, verdicts(NetworkFacts(networks=(STORAGE, other), taken=(taken,)), NOW))
    assert [finding.level for finding in found] == ["warning", "warning"]
    assert 'overlaps with PodNetwork "storage"' in found[0].seen
    assert "the pod addresses 10.77.9.0/24" in found[1].seen


def test_parts_that_may_not_be_read_are_reported() -> None:
    unseen = Unseen("you may not")
    assert [found.level for found in verdicts(NetworkFacts(networks=unseen), NOW)] == ["warning"]
    found = verdicts(NetworkFacts(networks=(STORAGE,), claims=unseen, taken=unseen), NOW)
    assert [(finding.check, finding.level) for finding in found] == [
        (NETWORKS, "ok"),
        (ADDRESSES, "warning"),
        (RANGES, "warning"),
    ]
    assert msgspec.json.encode(found)
