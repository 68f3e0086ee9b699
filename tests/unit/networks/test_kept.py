"""Which kept addresses an administrator's command releases."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from netdra.model.pod_address import AddressLease, PodAddress
from netdra.networks import kept
from netdra.networks.kept import KeptSelection
from tests.unit.networks.builders import address, network, owner

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
"""Two hours after the addresses of the builders lost their claims."""
STORAGE = network("10.7.0.0/24", quarantineSeconds=60)
KEPT = address("10.7.0.5/24", owner("postgres-0"), claim="")
NETWORKS = {"storage": STORAGE}


def states(selection: KeptSelection, *addresses: PodAddress, now: datetime = NOW) -> dict[str, str]:
    """The states of the selected addresses."""
    found = kept.releases(addresses, NETWORKS, selection, now)
    return {release.shown.address: release.shown.state for release in found}


@pytest.mark.parametrize(
    ("selection", "is_selected"),
    [
        (KeptSelection(), True),
        (KeptSelection(("storage",), "db", "postgres-*", 7200), True),
        (KeptSelection(("storage", "backup")), True),
        (KeptSelection(("backup",)), False),
        (KeptSelection(namespace="web"), False),
        (KeptSelection(owner="postgres"), False),
        (KeptSelection(owner="postgres-0"), True),
        (KeptSelection(seconds=7201), False),
    ],
)
def test_addresses_are_selected_by_network_namespace_owner_and_age(
    selection: KeptSelection, *, is_selected: bool
) -> None:
    assert states(selection, KEPT) == ({"10.7.0.5": "kept"} if is_selected else {})


@pytest.mark.parametrize(
    "other",
    [
        address("10.7.0.6/24", owner("postgres-1")),
        replace(KEPT, spec=replace(KEPT.spec, lease=AddressLease(plugin="whereabouts", pool="kube-system/pool"))),
        replace(KEPT, spec=replace(KEPT.spec, lease=AddressLease(plugin="host-local", pool="lan"), kept_since="")),
        replace(KEPT, spec=replace(KEPT.spec, conflict_since="2026-11-27T10:00:00Z")),
    ],
)
def test_addresses_with_a_claim_a_lease_or_another_machine_are_not_selected(other: PodAddress) -> None:
    assert states(KeptSelection(), other) == {}


def test_an_address_that_a_pod_may_still_have_or_that_is_in_quarantine_stays() -> None:
    held = replace(KEPT, spec=replace(KEPT.spec, node_name="node-1"))
    assert states(KeptSelection(), held) == {"10.7.0.5": "held"}
    soon = datetime(2026, 11, 27, 10, 0, 59, tzinfo=UTC)
    assert states(KeptSelection(), KEPT, now=soon) == {"10.7.0.5": "quarantine"}
    assert states(KeptSelection(), KEPT, now=soon.replace(minute=1, second=0)) == {"10.7.0.5": "kept"}
    of_none = address("10.7.0.5/24", owner(), claim="", name="gone")
    assert states(KeptSelection(), of_none, now=soon) == {"10.7.0.5": "kept"}


def test_addresses_are_sorted_by_network_and_number() -> None:
    every = [address(f"10.7.0.{last}/24", owner(f"web-{last}"), claim="") for last in (20, 3)]
    assert [*states(KeptSelection(), *every)] == ["10.7.0.3", "10.7.0.20"]


def test_a_release_that_a_claim_was_before_names_the_claim() -> None:
    (release,) = kept.releases([KEPT], NETWORKS, KeptSelection(), NOW)
    assert not release.is_left
    taken = kept.refused(release, address("10.7.0.5/24", owner("postgres-0")))
    assert (taken.is_left, taken.shown.state, taken.shown.detail) == (
        True,
        "changed",
        "assigned to claim claim meanwhile",
    )
    other = kept.refused(release, KEPT)
    assert other.shown.detail == "changed meanwhile"
