"""Slices and reports that others delete: a Node that is created again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from testbed import objects
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.waiting import until_async
from testbed.workspace import Workspace
from tests.cluster.publishing.scene import QUIET_SECONDS, Scene, policy, publishing
from tests.kernel.conftest import Machine

pytestmark = pytest.mark.usefixtures("custom_kinds")

NODE = "v1/Node"
REPORT = "networking.dra.io/v1alpha1/NodeNetwork"
MOST_WRITES = 12
"""Of a pool's slice, with those of a round that the garbage collector has undone."""


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
