"""Whether a device can be used beside those in use: sharing, capacity and counters, worked out once more at Prepare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.exposure.expose import expose
from netdra.model.resource import ResourceSlice
from netdra.slices.exclusion import Holding, Pools
from netdra.slices.pack import layout
from tests import builders
from tests.unit.slices.in_use import InUse

NODE = "worker-1"
SLOTS = {"slots": {"value": "4"}}
POOL = f"{NODE}/sriov-p0"


def slices_of(*policies: Any, vfs: int = 2) -> tuple[ResourceSlice, ...]:
    inventory = builders.inventory(*builders.sriov("p0", vfs), node=NODE)
    return layout(expose(inventory, policies), node=NODE).slices


def shared(name: str, plugin: str, group: str = "rx", **capacity: Any) -> Any:
    return builders.policy(
        name,
        f'{builders.OURS}.type == "pf"',
        deviceNameSuffix=f"-{plugin}",
        allowMultipleAllocations=True,
        capacity=capacity or SLOTS,
        supportedCNIPlugins=[{"name": plugin, "consumePerAllocation": {"slots": "1"}}],
        exclusionGroup=group,
    )


def exclusive(name: str, kind: str, suffix: str) -> Any:
    return builders.policy(
        name,
        f'{builders.OURS}.type == "{kind}"',
        deviceNameSuffix=suffix,
        supportedCNIPlugins=[{"name": "host-device", "exclusive": True}],
    )


ALL = (
    shared("a", "macvlan"),
    shared("b", "ipvlan"),
    exclusive("c", "pf", "-pass"),
    exclusive("d", "vf", ""),
)


def whole(device: str, holder: str = "other") -> Holding:
    return Holding(key=(POOL, device), holder=holder)


def share(device: str, slots: str = "1", holder: str = "other") -> Holding:
    consumed = {"dra.networking/slots": slots}
    return Holding(key=(POOL, device), holder=holder, share_id=f"s-{holder}", consumed=consumed)


def why(wanted: Holding, *held: Holding, slices: Sequence[ResourceSlice] | None = None) -> str:
    return Pools(slices_of(*ALL) if slices is None else slices).conflict(wanted, InUse(held))


@pytest.mark.parametrize(
    ("wanted", "held"),
    [
        (whole("p0v0"), whole("p0v1")),
        (whole("p0v0"), share("p0-macvlan")),
        (share("p0-macvlan"), share("p0-macvlan")),
        (share("p0-macvlan"), whole("p0v0")),
        (share("p0-macvlan", "3"), share("p0-macvlan")),
        (whole("p0v0"), Holding(key=("another-pool", "p0v0"), holder="other")),
    ],
)
def test_compatible_devices_can_be_used_side_by_side(wanted: Holding, held: Holding) -> None:
    assert why(wanted, held) == ""


@pytest.mark.parametrize(
    ("wanted", "held", "reason"),
    [
        (whole("p0v0"), whole("p0v0"), "other uses it"),
        (whole("p0-pass"), whole("p0v1"), 'it excludes, and is excluded by, "p0v1", which other uses: counter'),
        (whole("p0v1"), whole("p0-pass"), 'excluded by, "p0-pass", which other'),
        (whole("p0-pass"), share("p0-macvlan"), "excluded by"),
        (share("p0-ipvlan"), share("p0-macvlan"), 'excluded by, "p0-macvlan", which other'),
        (share("p0-macvlan", "2"), share("p0-macvlan", "3"), "is 4: 3 is allocated (other), and 2 more was"),
        (share("p0-macvlan", "0"), share("p0-macvlan"), "was allocated 0 of capacity dra.networking/slots"),
        (whole("p0-macvlan"), whole("p0v0"), "the device is shared now, but the claim was allocated exclusively"),
        (share("p0v0"), whole("p0v1"), "the device is exclusive now, but the claim was allocated a share"),
        (whole("p0v7"), whole("p0v1"), "no ResourceSlice of the node has it any more"),
    ],
)
def test_an_unusable_device_is_reported_with_the_reason_and_any_conflicting_claim(
    wanted: Holding, held: Holding, reason: str
) -> None:
    assert reason in why(wanted, held)


def test_a_share_without_its_consumption_is_refused() -> None:
    bare = Holding(key=(POOL, "p0-macvlan"), holder="me", share_id="s")
    assert "was not allocated any of its capacity" in why(bare)


def test_a_policy_that_lets_claims_ask_for_less_than_the_default_is_followed() -> None:
    ranged = {"slots": {"value": "4", "requestPolicy": {"default": "2", "validRange": {"min": "1", "step": "1"}}}}
    published = slices_of(
        builders.policy(
            "a",
            f'{builders.OURS}.type == "pf"',
            deviceNameSuffix="-macvlan",
            allowMultipleAllocations=True,
            capacity=ranged,
            supportedCNIPlugins=[{"name": "macvlan"}],
        )
    )
    assert why(share("p0-macvlan", "1"), slices=published) == ""
    assert "4: 3 is allocated" in why(share("p0-macvlan", "2"), share("p0-macvlan", "3"), slices=published)


def test_a_claim_amount_that_is_not_a_quantity_is_rejected() -> None:
    assert '"much" is not a quantity' in why(share("p0-macvlan", "much"))


def test_a_held_device_no_longer_published_consumes_nothing() -> None:
    assert why(whole("p0-pass"), whole("p0v9")) == ""


def test_shares_of_one_device_draw_its_counters_once() -> None:
    assert why(share("p0-macvlan"), share("p0-macvlan", holder="x"), share("p0-macvlan", holder="y")) == ""


NAMES = ["p0-macvlan", "p0-ipvlan", "p0-pass", "p0v0", "p0v1"]
SLICES = slices_of(*ALL)


@given(st.lists(st.sampled_from(NAMES), max_size=6, unique=True))
def test_devices_admitted_one_by_one_never_exclude_each_other(order: list[str]) -> None:
    pools = Pools(SLICES)
    held: list[Holding] = []
    for name in order:
        wanted = share(name, holder=name) if "vlan" in name else whole(name, name)
        if not pools.conflict(wanted, InUse(held)):
            held.append(wanted)
    names = {each.key[1] for each in held}
    assert not ("p0-pass" in names and len(names) > 1)
    assert not {"p0-macvlan", "p0-ipvlan"} <= names
    for each in held:
        others = [other for other in held if other is not each]
        assert pools.conflict(each, InUse(others)) == ""
