"""Slices whose writes an API server refuses at random: addresses that are gone leave them, and the others stay."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from netdra.controller.services.slice_writing import SliceWriter
from netdra.kube.errors import Status, StatusCause, StatusDetails, UnavailableError, api_error
from netdra.kube.resources import KubernetesObject, Resource
from netdra.model.service import Endpoint, EndpointSlice
from netdra.services.endpoints import EndpointGroup
from netdra.services.slices import EndpointKey, writes
from tests.memory_api import MemoryApi
from tests.unit.services.builders import endpoint, ports, service

T = TypeVar("T", bound=KubernetesObject)
SERVICE = service(ipFamilies=["IPv4", "IPv6"])
GROUPS = (EndpointGroup("IPv4", ports(80)), EndpointGroup("IPv4", ports(81)), EndpointGroup("IPv6", ports(80)))
Wanted = dict[EndpointGroup, list[Endpoint]]


class PickyApi(MemoryApi):
    """An API server that refuses writes of slices.

    Attributes:
        refuses: whether it refuses a write, by its verb.
        status: its answer then.
    """

    def __init__(self) -> None:
        """Refuse nothing yet."""
        super().__init__()
        self.refuses: Callable[[str], bool] = lambda _: False
        self.status = Status(code=422)

    def _judge(self, verb: str) -> None:
        if self.refuses(verb):
            raise api_error(f"{verb} endpointslices", self.status)

    async def create(self, resource: Resource[T], new: T, *, dry_run: bool = False) -> T:
        self._judge("create")
        return await super().create(resource, new, dry_run=dry_run)

    async def replace(self, resource: Resource[T], changed: T, *, subresource: str = "") -> T:
        self._judge("replace")
        return await super().replace(resource, changed, subresource=subresource)


def present(api: PickyApi) -> tuple[EndpointSlice, ...]:
    """The stored slices."""
    values = api.objects.get("endpointslices", {}).values()
    return tuple(msgspec.json.decode(msgspec.json.encode(value), type=EndpointSlice) for value in values)


def stored(api: PickyApi) -> list[EndpointKey]:
    """The endpoints of the stored slices."""
    return [entry.key for found in present(api) for entry in found.endpoints or ()]


def drawn(chance: random.Random, most: int) -> Wanted:
    """Endpoints of pods, each in one group of each family."""
    wanted: Wanted = {}
    for number in chance.sample(range(most), chance.randrange(most)):
        wanted.setdefault(chance.choice(GROUPS), []).append(endpoint(number, name=chance.choice("ab")))
    return wanted


def keys(wanted: Wanted) -> set[EndpointKey]:
    return {entry.key for content in wanted.values() for entry in content}


@given(st.integers(0, 10_000), st.sampled_from([("create",), ("replace",), ("create", "replace")]))
def test_addresses_of_deleted_pods_leave_slices_although_writes_are_refused(seed: int, verbs: tuple[str, ...]) -> None:
    async def story() -> None:
        chance, api = random.Random(seed), PickyApi()
        writer, most = SliceWriter(api), chance.choice([6, 250])
        for _ in range(6):
            wanted, before = drawn(chance, most), {*stored(api)}
            api.refuses = lambda verb: verb in verbs and chance.random() < 0.6
            await writer.write("db/storage", writes(SERVICE, wanted, present(api)))
            assert {*stored(api)} <= keys(wanted)
            if verbs == ("create",):
                assert {*stored(api)} >= before & keys(wanted)
        api.refuses = lambda _: False
        for _ in range(2):
            done = await writer.write("db/storage", writes(SERVICE, wanted, present(api)))
            assert (done.refused, done.failure, done.changed) == ([], None, False)
        assert sorted(stored(api)) == sorted(keys(wanted))
        assert writes(SERVICE, wanted, present(api)).steps == ()

    asyncio.run(story())


def test_a_slice_that_cannot_be_written_just_now_keeps_no_other_one_waiting() -> None:
    async def story() -> None:
        api = PickyApi()
        writer = SliceWriter(api)
        wanted = {group: [endpoint(number)] for number, group in enumerate(GROUPS)}
        refusals = iter([True])
        api.refuses, api.status = lambda _: next(refusals, False), Status(code=500)
        done = await writer.write("db/storage", writes(SERVICE, wanted, ()))
        assert isinstance(done.failure, UnavailableError)
        assert len(present(api)) == len(GROUPS) - 1

    asyncio.run(story())


def test_a_namespace_that_ends_refuses_without_a_report() -> None:
    async def story() -> None:
        api = PickyApi()

        details = StatusDetails(causes=(StatusCause(reason="NamespaceTerminating"),))
        api.refuses, api.status = lambda _: True, Status(code=403, reason="Forbidden", details=details)
        done = await SliceWriter(api).write("db/storage", writes(SERVICE, {GROUPS[0]: [endpoint(1)]}, ()))
        assert (done.refused, done.failure) == ([], None)

    asyncio.run(story())


def test_a_slice_that_is_deleted_meanwhile_has_the_service_looked_at_again() -> None:
    async def story() -> None:
        api = PickyApi()
        writer = SliceWriter(api)
        await writer.write("db/storage", writes(SERVICE, {GROUPS[0]: [endpoint(1)]}, ()))
        before = present(api)
        api.drop("endpointslices", "storage-netdra-0", "db")
        done = await writer.write("db/storage", writes(SERVICE, {GROUPS[0]: [endpoint(2)]}, before))
        assert done.changed

    asyncio.run(story())
