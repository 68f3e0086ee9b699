"""A node's slices on the real API server: complete, written once, never mixed, and repaired after foreign changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import msgspec
import pytest

from netdra.model.resource import (
    ResourceSliceSpec,
)
from netdra.node.publishing.publisher import Publisher
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import NODE, SLICE
from testbed.waiting import awaited, waiting
from testbed.workspace import Workspace
from tests.cluster.fault_proxy import Answer
from tests.cluster.publishing.publisher_scene import as_stored, contents, one_slice, packed, publishing


def test_the_server_stores_the_desired_slices_and_a_second_sync_writes_nothing(
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
            await awaited(successor.wait_published(), "the successor to settle")
            assert scene.written(since) == 0
            task.cancel()
            await asyncio.wait([task])

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


def test_a_watch_never_sees_a_mixture_of_two_states(control_plane: ControlPlane, workspace: Workspace) -> None:
    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            states = [
                packed(scene.node, count, mtu=mtu)
                for count, mtu in ((70, 1), (70, 2), (200, 3), (10, 4), (130, 5), (64, 6))
            ]
            last = as_stored(states[-1])
            watched: dict[str, Object] = {}
            views: list[list[ResourceSliceSpec] | None] = []

            def watch() -> None:
                with closing(control_plane.client()) as other, suppress(TimeoutError):
                    stream = other.watch(SLICE, fields=f"spec.nodeName={scene.node}")
                    for change, item in stream:
                        watched[item["metadata"]["name"]] = item
                        if change == "DELETED":
                            del watched[item["metadata"]["name"]]
                        views.append(as_scheduled([*watched.values()]))
                        if views[-1] == last:
                            return

            watching = asyncio.create_task(asyncio.to_thread(watch))
            for state in states:
                await scene.settle(state)
            await watching
            allowed = [None, [], *(as_stored(state) for state in states)]
            assert all(view in allowed for view in views)
            assert views[-1] == last

    asyncio.run(story())


def as_scheduled(items: list[Object]) -> list[ResourceSliceSpec] | None:
    """A pool as the scheduler takes it: all slices of the highest generation, None while some are missing."""
    highest = max((item["spec"]["pool"]["generation"] for item in items), default=0)
    current = [item["spec"] for item in items if item["spec"]["pool"]["generation"] == highest]
    if any(spec["pool"]["resourceSliceCount"] != len(current) for spec in current):
        return None
    return contents(msgspec.convert(spec, ResourceSliceSpec) for spec in current)


def wipe(api: Api, node: str) -> None:
    """Do as the kubelet when it starts, or has not seen the driver for 30 s."""
    api.delete_all(SLICE, fields=f"spec.nodeName={node}")


def change_a_device(api: Api, node: str) -> None:
    item = api.list(SLICE, fields=f"spec.nodeName={node}")[-1]
    item["spec"]["devices"][0]["attributes"]["mtu"] = {"int": 1}
    api.update(item | {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"})


def delete_one(api: Api, node: str) -> None:
    api.delete(SLICE, api.list(SLICE, fields=f"spec.nodeName={node}")[0]["metadata"]["name"])


@pytest.mark.parametrize("harm", [wipe, change_a_device, delete_one])
def test_foreign_changes_to_the_slices_are_repaired(
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
            )
            assert len(found) == 3

    asyncio.run(story())


def test_a_taint_keeps_the_time_that_the_server_gave_it(control_plane: ControlPlane, workspace: Workspace) -> None:
    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            await scene.settle(one_slice(scene.node, "a", taint="dra.networking/gone"))
            before = scene.stored()[0]["spec"]["devices"][0]["taints"][0]["timeAdded"]
            with waiting("the next whole second, which is what the server counts"):
                await asyncio.sleep(1.0 - time.time() % 1.0)
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
