"""A policy change with many nodes: each writes what changed once, nothing is lost, and the status needs few writes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import yaml

from bench import hollow
from bench.hollow_nodes import HollowNodes
from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.objects import NODE, SLICE
from testbed.workspace import Workspace
from tests.cluster.daemons import running_controller

pytestmark = pytest.mark.usefixtures("controller")

NODES = 50


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """The controller, installed and at work."""
    with running_controller(control_plane, api):
        yield


@pytest.fixture
def nodes(workspace: Workspace) -> dict[str, str]:
    """Nodes without a machine, as name -> uid, and the example's policies."""
    for path in sorted((hollow.EXAMPLE / "policies").glob("*.yaml")):
        workspace.create(yaml.safe_load(path.read_text()))
    names = [workspace.add_node(f"hollow-{number}") for number in range(NODES)]
    return {name: workspace.api.get(NODE, name)["metadata"]["uid"] for name in names}


def test_policy_changes_cost_each_node_one_write_and_nothing_is_lost(
    control_plane: ControlPlane, api: Api, nodes: dict[str, str]
) -> None:
    async def story() -> None:
        config = find_config(control_plane.kubeconfig())
        fleet = HollowNodes(lambda: Client(connect(config)))
        async with fleet.running(nodes, hollow.recorded()):
            await fleet.settled(lambda node: len(node.store.objects) == hollow.SLICES)
            for change in hollow.CHANGES:
                await changed(control_plane, api, fleet, change)

    try:
        asyncio.run(story())
    finally:
        for found in api.list(SLICE):
            if found["spec"].get("nodeName") in nodes:
                api.delete(SLICE, found["metadata"]["name"])


async def changed(plane: ControlPlane, api: Api, fleet: HollowNodes, change: hollow.Change) -> None:
    before = hollow.writes(plane)
    await asyncio.to_thread(api.patch, hollow.POLICY, change.policy, {"spec": hollow.spec_of(change)})
    await fleet.settled(lambda node: hollow.says(node, change))
    await asyncio.to_thread(hollow.wait_status, api, change.policy, NODES, change.devices, failing=change.failing)
    after = hollow.writes(plane)
    assert after["resourceslices"] - before["resourceslices"] == NODES, change.name
    # Reports are added up for a second at a time, whichever node is how slow.
    assert after[hollow.STATUSES] - before[hollow.STATUSES] < NODES, change.name
