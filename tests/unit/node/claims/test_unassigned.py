"""Which addresses a node reports: those that its claims were prepared with and that no PodAddress assigns to them."""

from __future__ import annotations

import msgspec
import pytest

from netdra.model.node_network import MAX_UNASSIGNED, UnassignedAddress
from netdra.model.plan import ClaimReference
from netdra.model.pod_address import PodAddress
from netdra.node.claims.store import PreparedClaim, PreparedPlan
from netdra.node.claims.unassigned import report
from tests.plans import plan, step
from tests.unit.networks.builders import address, owner

CLAIM = ClaimReference(namespace="db", name="claim", uid="uid-1")


def prepared(*texts: str, network: str = "storage") -> PreparedClaim:
    """A claim that was prepared with these addresses."""
    config = {"ipam": {"type": "static", "addresses": [{"address": text} for text in texts]}}
    made = msgspec.structs.replace(
        step("lan", "macvlan", "net1", config), pod_network=network, on_duplicate="Report" if network else ""
    )
    return PreparedClaim(boot_id="b", claim=CLAIM, devices=(), plan=PreparedPlan(plans=(plan(made),)))


def reported(text: str) -> UnassignedAddress:
    return UnassignedAddress(network="storage", address=text, claim="db/claim")


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (("10.7.0.5/24", "2001:db8::5/64"), ()),
        (("10.7.0.5/24",), ("2001:db8::5",)),
        ((), ("10.7.0.5", "2001:db8::5")),
    ],
)
def test_an_address_without_a_podaddress_is_reported(present: tuple[str, ...], expected: tuple[str, ...]) -> None:
    stored = [address(text, owner()) for text in present]
    found = report([prepared("10.7.0.5/24", "2001:DB8:0::5/64")], stored).unassigned
    assert found == tuple(map(reported, expected))


@pytest.mark.parametrize(
    "other",
    [
        address("10.7.0.5/24", owner(), claim="uid-2"),
        address("10.7.0.5/24", owner(), claim=""),
        address("10.7.0.5/24", owner(), name="backup"),
    ],
    ids=["another claim's", "kept", "of another network"],
)
def test_a_podaddress_that_is_not_the_claims_does_not_count(other: PodAddress) -> None:
    assert report([prepared("10.7.0.5/24")], [other]).unassigned == (reported("10.7.0.5"),)


def test_addresses_of_no_podnetwork_and_claims_without_a_plan_are_not_reported() -> None:
    without = msgspec.structs.replace(prepared("10.7.0.5/24"), plan=None)
    assert report([prepared("10.7.0.5/24", network=""), without], []).unassigned == ()


def test_a_report_has_a_limit() -> None:
    many = [prepared(f"10.7.{number // 256}.{number % 256}/16") for number in range(2 * MAX_UNASSIGNED)]
    assert len(report(many, []).unassigned) == MAX_UNASSIGNED


def test_a_report_has_the_version_of_the_last_released_address_that_it_considers() -> None:
    released = [
        address("10.7.0.5/24", owner(), claim="", version="99"),
        address("10.7.0.6/24", owner("b"), "", version="100"),
    ]
    assert report([prepared("10.7.0.5/24")], released) == ((reported("10.7.0.5"),), 100)
    assert report([], released) == ((), 100)
    assert report([], [address("10.7.0.5/24", owner(), version="101")]) == ((), 0)


def test_a_report_that_lacks_addresses_considers_no_released_one() -> None:
    many = [prepared(f"10.7.{number // 256}.{number % 256}/16") for number in range(MAX_UNASSIGNED + 1)]
    assert report(many, [address("10.7.9.1/16", owner(), claim="", version="99")]).released_version == 0
