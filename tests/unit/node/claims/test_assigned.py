"""The addresses of PodNetworks are followed from the first claim on that may get one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from netdra.kube.answers import Page
from netdra.kube.client import Selection
from netdra.kube.resources import Resource
from netdra.model.errors import TemporaryError
from netdra.node.claims.assigned import AssignedAddresses
from netdra.node.claims.lookup import PlansInUse
from netdra.node.claims.refused import RefusedAddresses
from netdra.node.claims.store import ClaimStore
from tests.memory_api import MemoryApi, T
from tests.unit.networks.builders import address, owner
from tests.unit.node.claims.test_unassigned import prepared

if TYPE_CHECKING:
    from netdra.node.priority import Turns
    from netdra.node.view import SandboxHolder


class _Api(MemoryApi):
    lists = 0

    async def page(self, resource: Resource[T], selection: Selection, *, limit: int = 0, continue_: str = "") -> Page:
        self.lists += 1
        return await super().page(resource, selection, limit=limit, continue_=continue_)


def test_a_node_lists_no_addresses_before_one_of_its_claims_may_get_one(tmp_path: Path) -> None:
    async def story() -> list[str]:
        api, events = _Api(), list[str]()
        assigned = AssignedAddresses(
            api, "node-1", ClaimStore.of_state(tmp_path), cast("PlansInUse", None), RefusedAddresses()
        )

        async def wanted() -> None:
            await asyncio.sleep(0.01)
            events.append(f"wanted after {api.lists} lists")

        await assigned.follow(wanted, lambda: events.append(f"changed after {api.lists} lists"))
        await assigned.aclose()
        return events

    assert asyncio.run(story()) == ["wanted after 0 lists", "changed after 1 lists"]


@pytest.mark.parametrize("uid", ["uid-1", "uid-2", "", None], ids=["its own", "another claim's", "kept", "missing"])
def test_a_claim_is_prepared_again_if_its_address_was_released_meanwhile(tmp_path: Path, uid: str | None) -> None:
    store, made = ClaimStore.of_state(tmp_path), prepared("10.7.0.5/24")
    store.put(made)
    api = MemoryApi()
    if uid is not None:
        entry = address("10.7.0.5/24", owner(), claim=uid)
        api.put("podaddresses", msgspec.to_builtins(entry))

    async def wanted() -> None:
        raise AssertionError("the claim has an address already")

    async def story() -> None:
        plans = PlansInUse(store, cast("SandboxHolder", None), cast("Turns", None))
        assigned = AssignedAddresses(api, "node-1", store, plans, RefusedAddresses())
        await assigned.follow(wanted, lambda: None)
        try:
            assigned.check(made)
        finally:
            await assigned.aclose()

    if uid == made.claim.uid:
        asyncio.run(story())
        assert store.get(made.claim.uid) == made
    else:
        with pytest.raises(TemporaryError, match=r'"db/claim": address 10\.7\.0\.5 was released while'):
            asyncio.run(story())
        assert store.get(made.claim.uid) == msgspec.structs.replace(made, plan=None)
