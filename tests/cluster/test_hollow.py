"""Policy changes with many nodes: each writes what changed once, nothing is lost, and the status needs few writes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import pytest

from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from testbed import yaml
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import NODE, SLICE, manifest
from testbed.waiting import waiting
from testbed.workspace import Workspace
from tests import draws
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
CUSTOM_DEVICE = "networking.dra.io/v1alpha1/CustomDevice"
DEVICE_ROLLOUT = "networking.dra.io/v1alpha1/CustomDeviceRollout"
FEW, MANY = 10, 200
CHANGED = 7_654_321
DEVICES = (*(f"enp3s0f0v{index}" for index in range(8)), *(f"enp3s0f1v{index}" for index in range(4)))
"""The VFs of a node, which have room for three more attributes each."""


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[None]:
    """The controller, installed and at work."""
    with running_controller(control_plane, api):
        yield


@pytest.fixture
def nodes(workspace: Workspace) -> Iterator[dict[str, str]]:
    """Nodes without a machine, as name -> uid, and the example's policies."""
    with hollow(workspace, NODES) as found:
        yield found


@pytest.fixture
def few(workspace: Workspace) -> Iterator[dict[str, str]]:
    """The same, for the actions of each node alone; in `make explore` they are many."""
    with hollow(workspace, draws.count(FEW, MANY)) as found:
        yield found


@contextmanager
def hollow(workspace: Workspace, count: int) -> Iterator[dict[str, str]]:
    """So many nodes, and the policies."""
    for path in sorted((EXAMPLE / "policies").glob("*.yaml")):
        workspace.create(yaml.safe_load(path.read_text()))
    names = [workspace.add_node(f"hollow-{number}") for number in range(count)]
    yield {name: workspace.api.get(NODE, name)["metadata"]["uid"] for name in names}
    for found in workspace.api.list(SLICE):
        if found["spec"].get("nodeName") in names:
            workspace.api.delete(SLICE, found["metadata"]["name"])


def with_fleet(
    plane: ControlPlane,
    nodes: dict[str, str],
    story: Callable[[HollowNodes], Awaitable[None]],
    labels: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Have something happen while the nodes publish, from when all of them have begun."""

    async def run() -> None:
        config = find_config(plane.kubeconfig())
        fleet = HollowNodes(lambda: Client(connect(config)), labels=labels or {})
        async with fleet.running(nodes, recorded()):
            with waiting("all nodes to publish"):
                await fleet.settled(lambda node: len(node.store.objects) == SLICES)
            await story(fleet)

    asyncio.run(run())


async def change_policy(api: Api, change: Change) -> None:
    await asyncio.to_thread(api.patch, POLICY, change.policy, {"spec": change.spec})


async def is_everywhere(api: Api, fleet: HollowNodes, change: Change) -> None:
    """Wait until all slices are as a change makes them, and the status states so."""
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


def test_a_new_controller_reports_the_changes_made_while_no_controller_ran(
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
        # In this thread, with which it ends; the nodes wait meanwhile.
        start_controller(control_plane, api)
        for each in (change, later):
            await is_everywhere(api, fleet, each)
        assert stored_ports(api, nodes) == dict.fromkeys(nodes, "48")

    with_fleet(control_plane, nodes, story)


@pytest.mark.timeout(draws.count(300, 1800))
def test_many_custom_devices_settle_with_one_write_a_pool(
    control_plane: ControlPlane, api: Api, few: dict[str, str], workspace: Workspace
) -> None:
    """Ten objects for each of ten nodes; in `make explore` 5,000 for 200."""
    labels = {name: {"hollow": name} for name in few}
    objects = [
        custom_device(workspace.name(f"custom-{number}"), name, DEVICES[number // len(few) % len(DEVICES)], number)
        for number, name in zip(range(draws.count(FEW * 10, 5000)), itertools.cycle(few))
    ]
    for custom in objects:
        workspace.create(custom)
    names = {custom["metadata"]["name"] for custom in objects}

    def all_are_applied(found: list[Object]) -> bool:
        statuses = [one.get("status", {}) for one in found if one["metadata"]["name"] in names]
        count: int = sum(status.get("appliedNumber", 0) for status in statuses)
        return count == len(objects)

    async def begins(_: HollowNodes) -> None:
        wait = partial(api.wait_for_all, DEVICE_ROLLOUT, all_are_applied, timeout=draws.count(60, 600))
        await asyncio.to_thread(wait)

    before = writes(control_plane)
    with_fleet(control_plane, few, begins, labels)
    after = writes(control_plane)
    assert after["resourceslices"] - before["resourceslices"] == len(few) * SLICES
    said = {
        (one["spec"]["nodeName"], name.removeprefix("bctl/"))
        for one in api.list(SLICE)
        if one["spec"].get("nodeName") in few
        for device in one["spec"].get("devices", ())
        for name in device.get("attributes", {})
        if name.startswith("bctl/")
    }
    assert len(said) == len(objects), "each object's attribute is on the one node that it selects"

    # The nodes begin again, as after an upgrade: what they find is what they want.
    with_fleet(control_plane, few, begins, labels)
    assert writes(control_plane)["resourceslices"] == after["resourceslices"]

    async def all_of_one_node_change(fleet: HollowNodes) -> None:
        """Objects that come one after the other while the node writes: each of its pools is written a few times."""
        first, node = next(iter(fleet.nodes.items()))
        own = [one for one in objects if one["spec"]["selector"]["nodeSelector"]["matchLabels"]["hollow"] == first]
        for one in own:
            spec = {"attributes": {key: {"int": CHANGED} for key in one["spec"]["attributes"]}}
            await asyncio.to_thread(api.patch, CUSTOM_DEVICE, one["metadata"]["name"], {"spec": spec})

        def changed() -> bool:
            devices = [device for one in node.published for device in one.spec.devices]
            values = [value.int_ for device in devices for value in device.attributes.values()]
            return values.count(CHANGED) == len(own)

        with waiting("what has changed"):
            await fleet.settled(lambda one: one is not node or changed())

    with_fleet(control_plane, few, all_of_one_node_change, labels)
    assert writes(control_plane)["resourceslices"] - after["resourceslices"] <= len(objects) // len(few)


def custom_device(name: str, node: str, device: str, number: int) -> Object:
    """A provider's word about one device of one node."""
    spec = {
        "provider": "bctl",
        "device": device,
        "selector": {"nodeSelector": {"matchLabels": {"hollow": node}}},
        "attributes": {f"n{number}": {"int": number}},
    }
    return {**manifest(CUSTOM_DEVICE, name), "spec": spec}
