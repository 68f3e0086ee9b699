"""A reflector's lists: the server makes a page while the one before is taken, and none is left behind."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from netdra.kube.answers import ListMeta, Page
from netdra.kube.client import Client, Selection
from netdra.kube.reflector import Reflector
from netdra.kube.resources import NODE_NAMES, Resource
from netdra.kube.store import Change, Store

PAGES = 4


class Pages:
    """A client whose lists have several pages of one node; it notes its requests, and how many wait for an answer."""

    def __init__(self) -> None:
        self.following: list[Any] = []
        self.asked: list[str] = []
        self.under_way = 0

    async def page(self, _resource: Resource[Any], _selection: Selection, *, limit: int, continue_: str) -> Page:
        del limit
        self.asked.append(continue_)
        self.under_way += 1
        try:
            await turns(3)
        finally:
            self.under_way -= 1
        number = int(continue_ or 1)
        node = {"metadata": {"name": f"node-{number}", "resourceVersion": str(number)}}
        metadata = ListMeta(resource_version="9", continue_=str(number + 1) if number < PAGES else "")
        return Page(metadata=metadata, items=(msgspec.Raw(msgspec.json.encode(node)),))


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def reflector(client: Pages, store: Store[Any]) -> Reflector[Any]:
    return Reflector(cast("Client", client), NODE_NAMES, store)


def test_the_next_page_is_asked_for_before_the_objects_of_a_page_are_taken() -> None:
    client, store = Pages(), Store[Any]()
    asked: list[int] = []

    def note(_: Change[Any]) -> None:
        asked.append(len(client.asked))

    with store.following(note):
        asyncio.run(reflector(client, store)._list())
    assert [*store.objects] == [f"node-{number}" for number in range(1, PAGES + 1)]
    assert asked == [2, 3, 4, 4]
    assert client.asked == ["", "2", "3", "4"]


@pytest.mark.parametrize("later", range(6 * PAGES))
def test_a_list_that_is_cancelled_at_any_turn_leaves_no_request(later: int) -> None:
    client, store = Pages(), Store[Any]()

    async def cancelled() -> None:
        listing = asyncio.create_task(reflector(client, store)._list())
        await turns(later)
        listing.cancel()
        await asyncio.wait((listing,))
        assert client.under_way == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(cancelled())
