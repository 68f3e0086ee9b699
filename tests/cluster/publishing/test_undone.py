"""Slices and reports that others delete: a Node that is created again, and a client that undoes each write."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from testbed import objects
from testbed.api import Api, ApiError, Object
from testbed.control_plane import ControlPlane
from testbed.objects import SLICE
from testbed.waiting import until_async
from testbed.workspace import Workspace
from tests.cluster.publishing.scene import EVENT, QUIET_SECONDS, Scene, about, policy, publishing
from tests.kernel.conftest import Machine

pytestmark = pytest.mark.usefixtures("custom_kinds")

NODE = "v1/Node"
REPORT = "networking.dra.io/v1alpha1/NodeNetwork"
MOST_WRITES = 12
"""Of a pool's slice that a client deletes after each write for `SECONDS`: five at once, then after 1, 2 and 4 s."""
SECONDS = 10.0


@asynccontextmanager
async def published(control_plane: ControlPlane, workspace: Workspace, machine: Machine) -> AsyncIterator[Scene]:
    """A node that has published one device."""
    machine.veth("eth0", "far0")
    policy(workspace, exposure={"supportedCNIPlugins": [{"name": "host-device", "exclusive": True}]})
    async with publishing(control_plane, workspace, machine) as scene:
        await scene.devices("eth0")
        yield scene


def owners(scene: Scene) -> set[str]:
    """The uids of the Nodes that the slices and the report of a node belong to."""
    return {
        owner["uid"] for each in (*scene.slices(), *reports(scene)) for owner in each["metadata"]["ownerReferences"]
    }


def reports(scene: Scene) -> list[Object]:
    return scene.api.list(REPORT, fields=f"metadata.name={scene.node}")


def test_slices_and_report_belong_to_a_node_that_is_created_again(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        async with published(control_plane, workspace, machine) as scene:
            former = scene.api.get(NODE, scene.node)["metadata"]["uid"]
            await until_async(lambda: owners(scene) == {former} and bool(reports(scene)), "the report")
            scene.api.delete(NODE, scene.node)
            await until_async(lambda: not scene.slices(), "the garbage collector to delete the slices")
            await scene.at_rest()
            since = time.monotonic()
            await asyncio.sleep(3 * QUIET_SECONDS)
            assert scene.writes(since) == [], "they would be deleted again"
            objects.add_node(scene.api, scene.node)
            present = scene.api.get(NODE, scene.node)["metadata"]["uid"]
            await scene.devices("eth0")
            await until_async(lambda: owners(scene) == {present} and bool(reports(scene)), "the new owner")
            await scene.quiet()

    asyncio.run(story())


def test_slices_outlive_a_node_that_is_replaced_at_once(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        async with published(control_plane, workspace, machine) as scene:
            since = time.monotonic()
            scene.api.delete(NODE, scene.node)
            objects.add_node(scene.api, scene.node)
            present = scene.api.get(NODE, scene.node)["metadata"]["uid"]
            await until_async(lambda: owners(scene) == {present} and bool(scene.slices()), "the new owner")
            await scene.quiet()
            assert len(scene.writes(since)) <= MOST_WRITES

    asyncio.run(story())


@contextmanager
def adversary(api: Api, node: str) -> Iterator[None]:
    """A client that deletes each slice of a node as soon as it is there."""
    ends = threading.Event()

    def delete() -> None:
        while not ends.is_set():
            for each in api.list(SLICE, fields=f"spec.nodeName={node}"):
                try:
                    api.delete(SLICE, each["metadata"]["name"])
                except ApiError:
                    continue

    thread = threading.Thread(target=delete)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def test_a_client_that_undoes_each_write_is_reported_and_causes_few_writes(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        async with published(control_plane, workspace, machine) as scene:
            since = time.monotonic()
            with adversary(scene.api, scene.node):
                await asyncio.sleep(SECONDS)
            creates = scene.writes(since).count("POST")
            assert 3 <= creates <= MOST_WRITES
            events = await asyncio.to_thread(
                scene.api.wait_for_all, EVENT, lambda found: bool(about(found, scene.node)), namespace="default"
            )
            (event,) = about(events, scene.node)
            assert event["reason"] == "SlicesUndone"
            assert "find the client" in event["note"]
            await scene.devices("eth0")
            await scene.quiet()

    asyncio.run(story())
