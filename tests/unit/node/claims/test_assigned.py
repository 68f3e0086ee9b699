"""The addresses of PodNetworks are followed from the first claim on that may get one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, cast

from netdra.kube.answers import Page
from netdra.kube.client import Selection
from netdra.kube.resources import Resource
from netdra.node.claims.assigned import AssignedAddresses
from netdra.node.claims.refused import RefusedAddresses
from netdra.node.claims.store import ClaimStore
from tests.memory_api import MemoryApi, T

if TYPE_CHECKING:
    from netdra.node.claims.lookup import PlansInUse


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
