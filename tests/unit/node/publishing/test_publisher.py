"""When a publisher inspects a pool: a server whose watch reports early, late, or others' writes in between.

A real one reports at any time, so here the test defines when.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.test_utils import TestServer

from netdra.kube.client import Client
from netdra.kube.connection import connect
from netdra.kube.kubeconfig import ApiServer, Config
from netdra.kube.store import Store
from netdra.model import names
from netdra.model.meta import ObjectMeta
from netdra.model.resource import Device, DeviceAttribute, ResourcePool, ResourceSlice, ResourceSliceSpec
from netdra.node.metrics import NODE
from netdra.node.publishing.publisher import Publisher, StoredSlice
from netdra.node.publishing.reconcile import owner_of

WITHIN = 60.0
SLICES = 60


def wanted(count: int, *, mtu: int = 1500) -> tuple[ResourceSlice, ...]:
    """So many pools of one slice."""
    return tuple(
        ResourceSlice(
            metadata=ObjectMeta(),
            spec=ResourceSliceSpec(
                driver=names.DRIVER,
                node_name="n",
                pool=ResourcePool(name=f"p{number}", generation=1, resource_slice_count=1),
                devices=(Device(name="nic", attributes={"mtu": DeviceAttribute(int_=mtu)}),),
            ),
        )
        for number in range(count)
    )


@dataclass
class Server:
    """A server that keeps what it is sent, and a store that learns of it when `tell` is called.

    Attributes:
        heard: called with each answer before it is given.
        requests: the methods of all requests.
    """

    store: Store[StoredSlice] = field(default_factory=Store)
    heard: Callable[[], object] = lambda: None
    requests: list[str] = field(default_factory=list)
    _objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    _events: list[tuple[str, dict[str, Any] | None, int]] = field(default_factory=list)
    _version: int = 1
    _turn: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, requests: int) -> None:
        """Wait until so many requests were made."""
        async with asyncio.timeout(WITHIN):
            while len(self.requests) < requests:
                self._turn.clear()
                await self._turn.wait()

    async def answer(self, request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2]
        if request.method == "DELETE":
            self.put(name, None)
            sent: dict[str, Any] = {}
        else:
            sent = await request.json()
            name = sent["metadata"].get("name") or f"{sent['metadata'].pop('generateName')}{self._version}"
            sent["metadata"] |= {"name": name, "uid": name}
            self.put(name, sent)
        self.requests.append(request.method)
        self.heard()
        self._turn.set()
        return web.json_response(sent)

    def put(self, name: str, found: dict[str, Any] | None) -> None:
        """An object is so from now on, or gone."""
        self._version += 1
        if found is None:
            del self._objects[name]
        else:
            found["metadata"]["resourceVersion"] = str(self._version)
            self._objects[name] = found
        self._events.append((name, json.loads(json.dumps(found)), self._version))

    def change(self) -> None:
        """Another client writes other facts into every object."""
        for name, found in list(self._objects.items()):
            self.put(name, {**found, "spec": {**found["spec"], "devices": [{"name": "nic"}]}})

    def tell(self) -> None:
        """The watch reports all events that it has not reported yet."""
        for name, found, version in self._events:
            if found is None:
                self.store.remove(name)
            else:
                self.store.put(name, stored(found))
            self.store.advance(str(version))
        self._events.clear()

    def mtus(self) -> set[int | None]:
        """The present MTUs of the devices."""
        devices = [device for found in self._objects.values() for device in found["spec"]["devices"]]
        return {device.get("attributes", {}).get("mtu", {}).get("int") for device in devices}


def stored(found: dict[str, Any]) -> StoredSlice:
    return msgspec.json.decode(json.dumps(found), type=StoredSlice)


@asynccontextmanager
async def publishing() -> AsyncIterator[tuple[Server, Publisher]]:
    server = Server()
    server.store.advance("1")
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    async with TestServer(app) as listening:
        config = Config(cluster=ApiServer(server=str(listening.make_url("")).rstrip("/")))
        async with Client(connect(config)) as client:
            publisher = Publisher(client, server.store, owner_of("n", "uid"))
            task = asyncio.create_task(publisher.run())
            try:
                yield server, publisher
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def settled(publisher: Publisher) -> None:
    async with asyncio.timeout(WITHIN):
        await publisher.wait_published()


def rounds() -> float:
    return NODE.registry.get_sample_value("netdra_publisher_rounds_total", {"outcome": "ok"}) or 0.0


def test_a_watch_that_is_late_keeps_no_pool_from_being_written() -> None:
    async def story() -> None:
        async with publishing() as (server, publisher):
            publisher.want(wanted(SLICES))
            await server.until(SLICES)
            assert not publisher.is_published
            server.tell()
            await settled(publisher)
            assert server.requests == ["POST"] * SLICES

    asyncio.run(story())


def test_a_watch_event_for_an_own_write_triggers_no_extra_round() -> None:
    async def story(*, early: bool) -> None:
        async with publishing() as (server, publisher):
            if early:
                server.heard = server.tell
            began = rounds()
            for times, (slices, method) in enumerate(
                ((wanted(SLICES), "POST"), (wanted(SLICES, mtu=9000), "PUT"), ((), "DELETE")), start=1
            ):
                publisher.want(slices)
                await server.until(SLICES * times)
                server.tell()
                await settled(publisher)
                assert server.requests[-SLICES:] == [method] * SLICES
                assert rounds() - began == SLICES * times

    asyncio.run(story(early=False))
    asyncio.run(story(early=True))


def test_a_foreign_write_before_the_watch_shows_the_own_write_is_reverted() -> None:
    async def story() -> None:
        async with publishing() as (server, publisher):
            publisher.want(wanted(3))
            await server.until(3)
            server.change()
            server.tell()
            await server.until(6)
            server.tell()
            await settled(publisher)
            assert server.requests[3:] == ["PUT"] * 3
            assert server.mtus() == {1500}

    asyncio.run(story())


def test_slices_that_another_driver_replaces_each_time_were_published_once() -> None:
    """During an update the former driver works until the new one is ready."""

    async def story() -> None:
        async with publishing() as (server, publisher):

            def replace() -> None:
                server.change()
                asyncio.get_running_loop().call_soon(server.tell)

            publisher.want(wanted(3))
            await server.until(2)
            assert not publisher.is_published
            server.heard = replace
            replace()
            async with asyncio.timeout(WITHIN):
                await publisher.wait_published_once()
            assert server.requests.count("POST") == 3
            assert not publisher.is_published

    asyncio.run(story())


def test_slices_wanted_during_an_unseen_write_are_written_after_its_watch_event() -> None:
    async def story() -> None:
        async with publishing() as (server, publisher):
            publisher.want(wanted(1))
            await server.until(1)
            publisher.want(wanted(1, mtu=9000))
            for _ in range(20):
                await asyncio.sleep(0)
            assert server.requests == ["POST"]
            server.tell()
            await server.until(2)
            server.tell()
            await settled(publisher)
            assert server.requests == ["POST", "PUT"]
            assert server.mtus() == {9000}

    asyncio.run(story())
