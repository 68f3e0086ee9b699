"""A node's slices on the real API server: complete, written once, never mixed, and mended whoever changes them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from netdra.kube.client import Client
from netdra.kube.connection import connect
from netdra.kube.features import probe
from netdra.kube.reflector import Reflector
from netdra.kube.store import Store
from netdra.model import names
from netdra.model.device import ExposedCounterSet, ExposedDevice, ExposureResult
from netdra.model.meta import ObjectMeta
from netdra.model.resource import (
    CapacityRequestPolicy,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from netdra.node.publishing.content import content
from netdra.node.publishing.publish import Written
from netdra.node.publishing.publisher import STORED_SLICES, Publisher, of_node
from netdra.node.publishing.reconcile import owner_of
from netdra.slices.pack import layout
from testbed.api import Api, Object
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.objects import NODE, SLICE
from testbed.workspace import Workspace, open_workspace
from tests.cluster.conftest import StartControlPlane
from tests.cluster.fault_proxy import Answer, FaultProxy

WITHIN = 10.0
SLOTS = {"dra.networking/slots": DeviceCapacity(value="64", request_policy=CapacityRequestPolicy(default="1"))}


def exposed(node: str, count: int, *, mtu: int = 1500) -> ExposureResult:
    """What a node offers: one pool of shared personas that consume counters."""
    pool = f"{node}-sriov-eth0"
    devices = tuple(
        ExposedDevice(
            name=f"eth0v{number}",
            pool=pool,
            interface=f"i{number}",
            policy="p",
            attributes={"dra.networking/mtu": mtu, "dra.networking/supportedCNIs": ("sriov", "host-device")},
            capacity=SLOTS,
            shared=True,
            consumes={"eth0-counters": {"exclusion-slots": 1}},
        )
        for number in range(count)
    )
    counters = ExposedCounterSet(name="eth0-counters", pool=pool, counters={"exclusion-slots": count + 1})
    return ExposureResult(devices=devices, counter_sets=(counters,))


def packed(node: str, count: int, *, mtu: int = 1500) -> tuple[ResourceSlice, ...]:
    return layout(exposed(node, count, mtu=mtu), node=node).slices


@dataclass
class Scene:
    """A node, its publisher behind a proxy, and what the publisher reported."""

    node: str
    api: Api
    proxy: FaultProxy
    publisher: Publisher
    reports: list[tuple[str, Written]] = field(default_factory=list)

    async def settle(self, slices: tuple[ResourceSlice, ...]) -> None:
        self.publisher.want(slices)
        await self.settled()

    async def settled(self) -> None:
        async with asyncio.timeout(WITHIN):
            await self.publisher.settled.wait()

    def stored(self) -> list[Object]:
        return self.api.list(SLICE, fields=f"spec.nodeName={self.node}")

    def content(self) -> list[ResourceSliceSpec]:
        return contents(msgspec.convert(item["spec"], ResourceSliceSpec) for item in self.stored())

    def written(self, since: float) -> int:
        return sum(request.method != "GET" for request in self.proxy.requests if request.at >= since)


def contents(specs: Iterator[ResourceSliceSpec]) -> list[ResourceSliceSpec]:
    return sorted((content(spec) for spec in specs), key=msgspec.json.encode)


def as_stored(slices: tuple[ResourceSlice, ...]) -> list[ResourceSliceSpec]:
    return contents(one.spec for one in slices)


@asynccontextmanager
async def publishing(plane: ControlPlane, workspace: Workspace) -> AsyncIterator[Scene]:
    node = workspace.add_node()
    uid = workspace.api.get(NODE, node)["metadata"]["uid"]
    reports: list[tuple[str, Written]] = []
    async with FaultProxy(plane).serving() as proxy, Client(connect(proxy.config)) as client:
        reflector = Reflector(client, STORED_SLICES, Store(), of_node(node))
        publisher = Publisher(
            client, reflector.store, owner_of(node, uid), lambda pool, written: reports.append((pool, written))
        )
        tasks = [asyncio.create_task(reflector.run()), asyncio.create_task(publisher.run())]
        try:
            yield Scene(node, workspace.api, proxy, publisher, reports)
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            for item in workspace.api.list(SLICE, fields=f"spec.nodeName={node}"):
                workspace.api.delete(SLICE, item["metadata"]["name"])


def test_the_server_has_what_is_wanted_and_a_second_sync_writes_nothing(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            slices = packed(scene.node, 100)
            await scene.settle(slices)
            stored = scene.stored()
            assert scene.content() == as_stored(slices)
            assert {item["spec"]["pool"]["generation"] for item in stored} == {1}
            assert {item["spec"]["pool"]["resourceSliceCount"] for item in stored} == {3}
            assert {item["metadata"]["ownerReferences"][0]["kind"] for item in stored} == {"Node"}

            since = time.monotonic()
            await scene.settle(packed(scene.node, 100))
            assert scene.stored() == stored
            assert scene.written(since) == 0
            assert not any(written.dropped or written.refusals for _, written in scene.reports)

    asyncio.run(story())


def test_a_new_publisher_finds_its_slices_and_writes_nothing(control_plane: ControlPlane, workspace: Workspace) -> None:
    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            await scene.settle(packed(scene.node, 70))
            since = time.monotonic()
            successor = Publisher(scene.publisher.client, scene.publisher.store, scene.publisher.owner)
            successor.want(packed(scene.node, 70))
            task = asyncio.create_task(successor.run())
            async with asyncio.timeout(WITHIN):
                await successor.settled.wait()
            assert scene.written(since) == 0
            task.cancel()

    asyncio.run(story())


def test_a_change_of_one_slice_is_one_write_and_a_change_of_all_is_a_generation(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            await scene.settle(packed(scene.node, 70))
            since = time.monotonic()
            slices = packed(scene.node, 70)
            last = slices[-1]
            devices = (*last.spec.devices[:-1], msgspec.structs.replace(last.spec.devices[-1], attributes={}))
            changed = msgspec.structs.replace(last, spec=msgspec.structs.replace(last.spec, devices=devices))
            await scene.settle((*slices[:-1], changed))
            assert scene.written(since) == 1
            assert {item["spec"]["pool"]["generation"] for item in scene.stored()} == {1}

            await scene.settle(packed(scene.node, 70, mtu=9000))
            assert {item["spec"]["pool"]["generation"] for item in scene.stored()} == {2}
            assert scene.content() == as_stored(packed(scene.node, 70, mtu=9000))

    asyncio.run(story())


def test_whoever_watches_never_sees_a_mixture(control_plane: ControlPlane, workspace: Workspace) -> None:
    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            states = [
                packed(scene.node, count, mtu=mtu) for count, mtu in ((70, 1), (200, 2), (10, 3), (130, 4), (64, 5))
            ]
            watched: dict[str, Object] = {}
            views: list[list[ResourceSliceSpec] | None] = []

            def watch() -> None:
                with closing(control_plane.client()) as other, suppress(TimeoutError):
                    stream = other.watch(SLICE, fields=f"spec.nodeName={scene.node}", timeout=2.0)
                    for change, item in stream:
                        watched[item["metadata"]["name"]] = item
                        if change == "DELETED":
                            del watched[item["metadata"]["name"]]
                        views.append(as_scheduled([*watched.values()]))

            watching = asyncio.create_task(asyncio.to_thread(watch))
            for state in states:
                await scene.settle(state)
            await watching
            allowed = [None, [], *(as_stored(state) for state in states)]
            assert all(view in allowed for view in views)
            complete = [view for view in views if view]
            assert complete[-1] == as_stored(states[-1])

    asyncio.run(story())


def as_scheduled(items: list[Object]) -> list[ResourceSliceSpec] | None:
    """A pool as the scheduler takes it: all slices of the highest generation, None while some are missing."""
    highest = max((item["spec"]["pool"]["generation"] for item in items), default=0)
    current = [item["spec"] for item in items if item["spec"]["pool"]["generation"] == highest]
    if any(spec["pool"]["resourceSliceCount"] != len(current) for spec in current):
        return None
    return contents(msgspec.convert(spec, ResourceSliceSpec) for spec in current)


def wipe(api: Api, node: str) -> None:
    """What the kubelet does when it starts, or has not seen the driver for 30 s."""
    api.delete_all(SLICE, fields=f"spec.nodeName={node}")


def change_a_device(api: Api, node: str) -> None:
    item = api.list(SLICE, fields=f"spec.nodeName={node}")[-1]
    item["spec"]["devices"][0]["attributes"]["dra.networking/mtu"] = {"int": 1}
    api.update(item | {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"})


def delete_one(api: Api, node: str) -> None:
    api.delete(SLICE, api.list(SLICE, fields=f"spec.nodeName={node}")[0]["metadata"]["name"])


@pytest.mark.parametrize("harm", [wipe, change_a_device, delete_one])
def test_what_others_do_to_the_slices_is_mended(
    harm: Callable[[Api, str], None], control_plane: ControlPlane, workspace: Workspace
) -> None:
    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            slices = packed(scene.node, 70)
            await scene.settle(slices)
            await asyncio.to_thread(harm, scene.api, scene.node)
            found = await asyncio.to_thread(
                scene.api.wait_for_all,
                SLICE,
                lambda items: as_scheduled(items) == as_stored(slices),
                fields=f"spec.nodeName={scene.node}",
                timeout=WITHIN,
            )
            assert len(found) == 3

    asyncio.run(story())


def test_a_device_that_the_server_refuses_is_left_out_and_reported_and_its_pool_is_published(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            (only,) = one_slice(scene.node, "good", "bad", "fine")
            odd = {"dra.networking/firmware": DeviceAttribute(version="not a version")}
            devices = tuple(
                msgspec.structs.replace(found, attributes=odd) if found.name == "bad" else found
                for found in only.spec.devices
            )
            await scene.settle(
                (msgspec.structs.replace(only, spec=msgspec.structs.replace(only.spec, devices=devices)),)
            )
            (stored,) = scene.stored()
            assert [found["name"] for found in stored["spec"]["devices"]] == ["good", "fine"]
            (refusal,) = [refusal for _, written in scene.reports for refusal in written.refusals]
            assert refusal.device == "bad"
            assert "firmware" in refusal.reason

            # Mended, it is published like any other.
            await scene.settle((only,))
            (stored,) = scene.stored()
            assert [found["name"] for found in stored["spec"]["devices"]] == ["good", "bad", "fine"]

    asyncio.run(story())


def one_slice(node: str, *devices: str, taint: str = "") -> tuple[ResourceSlice, ...]:
    taints = (DeviceTaint(key=taint, effect="NoSchedule"),) if taint else ()
    spec = ResourceSliceSpec(
        driver=names.DRIVER,
        pool=ResourcePool(name=f"{node}-nic", generation=1, resource_slice_count=1),
        node_name=node,
        devices=tuple(
            Device(name=name, attributes={"dra.networking/ifName": DeviceAttribute(string=name)}, taints=taints)
            for name in devices
        ),
    )
    return (ResourceSlice(metadata=ObjectMeta(name=f"{node}-nic-0"), spec=spec),)


def test_a_taint_keeps_the_time_that_the_server_gave_it(control_plane: ControlPlane, workspace: Workspace) -> None:
    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            await scene.settle(one_slice(scene.node, "a", taint="dra.networking/gone"))
            before = scene.stored()[0]["spec"]["devices"][0]["taints"][0]["timeAdded"]
            # The server counts whole seconds.
            await asyncio.sleep(1.1)
            await scene.settle(one_slice(scene.node, "a", "b", taint="dra.networking/gone"))
            after = {found["name"]: found["taints"][0]["timeAdded"] for found in scene.stored()[0]["spec"]["devices"]}
            assert after["a"] == before
            assert after["b"] > before

    asyncio.run(story())


def test_slices_go_with_their_node(control_plane: ControlPlane, workspace: Workspace) -> None:
    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            await scene.settle(one_slice(scene.node, "a"))

            def refuse(_: Any) -> Answer:
                return Answer.status(503)

            scene.proxy.fault = refuse
            scene.api.delete(NODE, scene.node)
            await asyncio.to_thread(
                scene.api.wait_for_all, SLICE, lambda items: items == [], fields=f"spec.nodeName={scene.node}"
            )

    asyncio.run(story())


def test_a_server_that_is_away_gets_the_latest_state_when_it_is_back(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            await scene.settle(packed(scene.node, 10))
            scene.proxy.fault = lambda request: Answer.status(503)
            scene.proxy.cut_all()
            since = time.monotonic()
            for mtu in range(2, 30):
                scene.publisher.want(packed(scene.node, 10, mtu=mtu))
                await asyncio.sleep(0.1)
            assert scene.written(since) <= 8
            scene.proxy.fault = lambda request: None
            await scene.settled()
            assert scene.content() == as_stored(packed(scene.node, 10, mtu=29))

    asyncio.run(story())


@pytest.fixture(scope="module")
def gated(start_control_plane: StartControlPlane) -> ControlPlane:
    """A control plane whose gates for counters, shared devices and taints are off."""
    off = ("DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceTaints", "DRADeviceTaintRules")
    return start_control_plane(Settings(feature_gates=dict.fromkeys(off, False), scheduler=False))


def test_fields_that_the_server_drops_are_named_by_their_gates_and_written_once(gated: ControlPlane) -> None:
    async def story(workspace: Workspace) -> None:
        async with publishing(gated, workspace) as scene:
            tainted = one_slice(scene.node, "a", taint="dra.networking/gone")
            slices = (*packed(scene.node, 3)[1:], *tainted)
            await scene.settle(slices)
            gates = {field.gate for _, written in scene.reports for field in written.dropped}
            assert gates == {"DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceTaints"}

            since, stored = time.monotonic(), scene.stored()
            await scene.settle(slices)
            assert scene.written(since) == 0
            assert scene.stored() == stored

    with closing(gated.client()) as api, open_workspace(api) as workspace:
        asyncio.run(story(workspace))


def test_with_the_features_that_the_server_has_nothing_is_dropped(gated: ControlPlane) -> None:
    async def story(workspace: Workspace) -> None:
        async with publishing(gated, workspace) as scene:
            features = await probe(scene.publisher.client, scene.node)
            plain = ExposureResult(
                devices=tuple(
                    ExposedDevice(
                        name=f"d{number}", pool="p", interface="i", policy="p", attributes={"a/b": ("x", "y")}
                    )
                    for number in range(130)
                )
            )
            await scene.settle(layout(plain, node=scene.node, features=features).slices)
            assert [written.dropped for _, written in scene.reports] == [()]
            assert len(scene.stored()) == 2

    with closing(gated.client()) as api, open_workspace(api) as workspace:
        asyncio.run(story(workspace))
