"""The PodAddresses that a claim is prepared with: its own, the oldest of each family, once no family lacks one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.pod_address import Family, PodAddress
from netdra.node.claims.addresses import NodeAddresses
from testbed import virtual_time
from tests.memory_api import MemoryApi
from tests.plans import plan, step
from tests.unit.networks.builders import address, owner

PLAN = plan(
    msgspec.structs.replace(
        step("lan", "macvlan", "net1", {"ipam": {"type": "network"}}), pod_network="storage", on_duplicate=""
    ),
    topology="lan",
)
UID = PLAN.claim.uid
FAMILIES: tuple[Family, ...] = ("IPv4", "IPv6")
REFUSED = {"10.7.0.1", "2001:db8::1"}
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"claim": "uid-other"},
    {"claim": ""},
    {"name": "backup"},
    {"step": "other"},
    {"topology": "other"},
    {"index": 1},
    {"deleted": True},
)
"""What makes an address another one than the step's; the first is its own."""


def stored(number: int, family: Family, change: dict[str, Any], families: tuple[Family, ...]) -> PodAddress:
    """A PodAddress, as the controller assigns it, but for the change."""
    text = f"10.7.0.{number}/24" if family == "IPv4" else f"2001:db8::{number}/64"
    fields = {key: value for key, value in change.items() if key in {"step", "topology", "index"}}
    made = address(text, owner(**fields), change.get("claim", UID), change.get("name", "storage"))
    deleted = "2026-11-27T10:00:00Z" if "deleted" in change else None
    return msgspec.structs.replace(
        made,
        spec=msgspec.structs.replace(made.spec, families=families),
        metadata=msgspec.structs.replace(made.metadata, deletion_timestamp=deleted),
    )


def prepared(entries: list[PodAddress], refused: set[str]) -> list[str]:
    """The addresses that the step gets of the stored ones, the first of which is the oldest."""

    async def story() -> list[str]:
        api = MemoryApi()
        for entry in entries:
            api.put("podaddresses", msgspec.to_builtins(entry))
        node = NodeAddresses(api, "node-1")
        try:
            (made,) = await node.wait_assigned([PLAN], {}, 5.0, refused)
        finally:
            await node.aclose()
        return [each["address"] for each in made.steps[0].config["ipam"]["addresses"]]

    return virtual_time.run(story())


@given(
    families=st.sampled_from([("IPv4",), ("IPv6",), FAMILIES]),
    drawn=st.lists(st.tuples(st.sampled_from(FAMILIES), st.sampled_from(CHANGES)), max_size=5),
    refused=st.sampled_from([set(), REFUSED]),
)
def test_a_claim_gets_the_oldest_of_its_own_addresses_of_each_family_and_waits_for_all_families(
    families: tuple[Family, ...], drawn: list[tuple[Family, dict[str, Any]]], refused: set[str]
) -> None:
    entries = [
        stored(number, family, change, families)
        for number, (family, change) in enumerate(drawn, 1)
        if family in families
    ]
    own = [
        entry.spec.address
        for entry, change in zip(entries, [change for family, change in drawn if family in families], strict=True)
        if not change and entry.spec.address.partition("/")[0] not in refused
    ]
    oldest = [next((text for text in own if (":" in text) == (family == "IPv6")), None) for family in families]
    if None in oldest:
        with pytest.raises(TemporaryError, match=r'no address of PodNetwork "storage" is assigned \(waited 5 s\)'):
            prepared(entries, refused)
    else:
        assert prepared(entries, refused) == oldest


def test_a_step_without_a_network_is_rejected_at_once() -> None:
    async def story() -> None:
        without = msgspec.structs.replace(PLAN.steps[0], pod_network="")
        node = NodeAddresses(MemoryApi(), "node-1")
        await node.wait_assigned([msgspec.structs.replace(PLAN, steps=(without,))], {}, 5.0)

    with pytest.raises(InvalidInputError, match="ipam of type network requires network"):
        virtual_time.run(story())
