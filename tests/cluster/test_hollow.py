"""Policy changes with many nodes: each writes what changed once, nothing is lost, and the status needs few writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import pytest
import yaml

from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.objects import NODE, SLICE
from testbed.waiting import waiting
from testbed.workspace import Workspace
from tests.cluster.daemons import running_controller, start_controller
from tests.cluster.identities import NETDRA
from tests.hollow_changes import (
    CHANGES,
    EXAMPLE,
    POLICY,
    SLICES,
    STATUSES,
    Change,
    ports,
    recorded,
    says,
    stored_ports,
    wait_status,
    writes,
)
from tests.hollow_nodes import HollowNodes

pytestmark = pytest.mark.usefixtures("controller")

REPORT = "networking.dra.io/v1alpha1/NodeNetwork"
LEASE = "coordination.k8s.io/v1/Lease"
NODES = 50
IN_A_ROW = 5


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """The controller, installed and at work."""
    with running_controller(control_plane, api):
        yield


@pytest.fixture
def nodes(workspace: Workspace) -> Iterator[dict[str, str]]:
    """Nodes without a machine, as name -> uid, and the example's policies."""
    for path in sorted((EXAMPLE / "policies").glob("*.yaml")):
        workspace.create(yaml.safe_load(path.read_text()))
    names = [workspace.add_node(f"hollow-{number}") for number in range(NODES)]
    yield {name: workspace.api.get(NODE, name)["metadata"]["uid"] for name in names}
    for found in workspace.api.list(SLICE):
        if found["spec"].get("nodeName") in names:
            workspace.api.delete(SLICE, found["metadata"]["name"])


def with_fleet(plane: ControlPlane, nodes: dict[str, str], story: Callable[[HollowNodes], Awaitable[None]]) -> None:
    """Have something happen while the nodes publish, from when all of them have begun."""

    async def run() -> None:
        config = find_config(plane.kubeconfig())
        fleet = HollowNodes(lambda: Client(connect(config)))
        async with fleet.running(nodes, recorded()):
            with waiting("all nodes to publish"):
                await fleet.settled(lambda node: len(node.store.objects) == SLICES)
            await story(fleet)

    asyncio.run(run())


async def change_policy(api: Api, change: Change) -> None:
    await asyncio.to_thread(api.patch, POLICY, change.policy, {"spec": change.spec})


async def is_everywhere(api: Api, fleet: HollowNodes, change: Change) -> None:
    """Wait until all slices are as a change makes them, and the status says so."""
    with waiting("all nodes to publish"):
        await fleet.settled(lambda node: says(node, change))
    # A real node, with its driver, may have been started in this control plane before.
    others = len((_names(api, NODE) & _names(api, REPORT)) - fleet.nodes.keys())
    said = partial(wait_status, api, change.policy, NODES, change.devices, failing=change.failing, others=others)
    await asyncio.to_thread(said)


def _names(api: Api, kind: str) -> set[str]:
    return {one["metadata"]["name"] for one in api.list(kind)}


def test_policy_changes_cost_each_node_one_write_a_slice_and_nothing_is_lost(
    control_plane: ControlPlane, api: Api, nodes: dict[str, str]
) -> None:
    async def story(fleet: HollowNodes) -> None:
        for change in CHANGES:
            before = writes(control_plane)
            await change_policy(api, change)
            await is_everywhere(api, fleet, change)
            after = writes(control_plane)
            assert after["resourceslices"] - before["resourceslices"] == NODES * change.slices, change.name
            # Reports are added up for a second at a time, whichever node is how slow.
            assert after[STATUSES] - before[STATUSES] < NODES, change.name

    with_fleet(control_plane, nodes, story)


def test_a_policy_that_is_changed_again_while_nodes_write_ends_everywhere_as_it_was_changed_last(
    control_plane: ControlPlane, api: Api, nodes: dict[str, str]
) -> None:
    async def story(fleet: HollowNodes) -> None:
        before, first = writes(control_plane), next(iter(fleet.nodes.values()))
        for count in range(1, IN_A_ROW + 1):
            change = ports(10 + count)
            await change_policy(api, change)
            # The first node has written; most others have not.
            await first.store.until(lambda change=change: says(first, change))  # type: ignore[misc]
        await is_everywhere(api, fleet, change)
        assert stored_ports(api, nodes) == dict.fromkeys(nodes, str(10 + IN_A_ROW))
        after = writes(control_plane)
        assert after["resourceslices"] - before["resourceslices"] <= IN_A_ROW * NODES
        assert after[STATUSES] - before[STATUSES] < NODES

    with_fleet(control_plane, nodes, story)


def test_what_changes_while_no_controller_lives_is_said_by_the_one_that_takes_over(
    control_plane: ControlPlane, api: Api, nodes: dict[str, str]
) -> None:
    async def story(fleet: HollowNodes) -> None:
        first, change, later = next(iter(fleet.nodes.values())), ports(48), CHANGES[2]
        await change_policy(api, change)
        await first.store.until(lambda: says(first, change))
        control_plane.processes["netdra-controller"].kill()
        await change_policy(api, later)
        # It did not give the lease back, which has to run out, if not after as long as usual.
        api.patch(LEASE, "netdra-controller", {"spec": {"leaseDurationSeconds": 2}}, namespace=NETDRA)
        await asyncio.to_thread(start_controller, control_plane, api)
        for each in (change, later):
            await is_everywhere(api, fleet, each)
        assert stored_ports(api, nodes) == dict.fromkeys(nodes, "48")

    with_fleet(control_plane, nodes, story)
