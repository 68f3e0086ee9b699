"""However many topologies are changed at once, one list of claims is read at a time, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import pytest

from netdra.admission import copy
from netdra.admission.copy import Uses
from netdra.kube.client import Client
from netdra.model.claim import ClaimState
from tests.unit.admission.test_reads import settle

CONFIG = {
    "source": "FromClass",
    "opaque": {
        "driver": "dra.networking",
        "parameters": {
            "apiVersion": "networking.dra.io/v1alpha1",
            "kind": "DeviceParameters",
            "networkTopologyRef": {"name": "net"},
            "step": "a",
        },
    },
}


def claim(name: str, config: list[Any], *, deleted: bool = False, attached: bool = False) -> ClaimState:
    metadata = {"name": name, "namespace": "team"} | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})
    ready = {"type": "Ready", "status": "True"}
    device = {"driver": "dra.networking", "pool": "n", "device": "d", "conditions": [ready]}
    status = {"allocation": {"devices": {"config": config}}, "devices": [device] if attached else []}
    return msgspec.convert({"metadata": metadata, "status": status}, ClaimState)


class Lists:
    """Lists that end when the test lets them."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[list[ClaimState]]] = []

    async def gather(self, _: Any, pick: Callable[[ClaimState], Any], *, limit: int) -> Sequence[Any]:
        assert limit == copy.PAGE
        self.asked.append(asyncio.get_running_loop().create_future())
        return [pick(item) for item in await self.asked[-1]]


def test_forty_changes_share_one_list_and_those_that_come_meanwhile_the_next() -> None:
    async def story() -> None:
        lists = Lists()
        uses = Uses(cast(Client, lists))
        early = [asyncio.create_task(uses.get()) for _ in range(40)]
        await settle()
        late = [asyncio.create_task(uses.get()) for _ in range(40)]
        await settle()
        assert len(lists.asked) == 1
        lists.asked[0].set_result([claim("b", [CONFIG]), claim("other", [])])
        for task in early:
            assert [use.claim for use in await task] == ["team/b"]
        while len(lists.asked) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        lists.asked[1].set_result([])
        assert [await task for task in late] == [[]] * 40

    asyncio.run(story())


def test_a_list_that_fails_is_read_again_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        lists = Lists()
        uses = Uses(cast(Client, lists))
        failing = asyncio.create_task(uses.get())
        await settle()
        lists.asked[0].set_exception(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await failing
        again = asyncio.create_task(uses.get())
        while len(lists.asked) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        lists.asked[1].set_result([claim("a", [CONFIG])])
        assert [use.topologies for use in await again] == [frozenset({"net"})]

    asyncio.run(story())


def test_a_claim_that_is_being_deleted_counts_only_while_a_pod_has_it() -> None:
    async def story() -> None:
        lists = Lists()
        asked = asyncio.create_task(Uses(cast(Client, lists)).get())
        await settle()
        lists.asked[0].set_result(
            [
                claim("gone", [CONFIG], deleted=True),
                claim("ending", [CONFIG], deleted=True, attached=True),
                claim("waiting", [CONFIG]),
            ]
        )
        assert [(use.claim, use.is_attached) for use in await asked] == [("team/ending", True), ("team/waiting", False)]

    asyncio.run(story())
