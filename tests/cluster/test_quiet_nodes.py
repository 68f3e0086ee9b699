"""A node receives no event for another node's claim, report or status, and the controller writes O(1) for each change.

The nodes have the watches of real node daemons (`FollowedObjects`), on the real API server, beside the real controller.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from netdra.kube.store import Change, Store
from netdra.node.publishing.followed import FollowedObjects
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, manifest
from testbed.process import Process
from testbed.waiting import waiting
from testbed.workspace import Workspace
from tests.cluster import identities
from tests.cluster.daemons import running_controller, start_controller, steps
from tests.cluster.test_controller import NOWHERE, allocate, condition, is_gone, is_ready, report, reporting
from tests.hollow_changes import writes

pytestmark = pytest.mark.usefixtures("controller")

GROUP = "networking.dra.io/v1alpha1"
TOPOLOGY, POLICY, CUSTOM_DEVICE = (
    f"{GROUP}/{kind}" for kind in ("NetworkTopology", "DeviceExposurePolicy", "CustomDevice")
)
USAGE, ROLLOUT = f"{GROUP}/NetworkTopologyUsage", f"{GROUP}/DeviceExposurePolicyRollout"
DEVICE_ROLLOUT = f"{GROUP}/CustomDeviceRollout"
SCHEMA = "cni.networking.k8s.io/v1alpha1/CNIPluginSchema"
LEASE = "coordination.k8s.io/v1/Lease"
NODES, CLAIMS = 20, 5


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane, api: Api, custom_kinds: None) -> Iterator[Process]:
    """The controller, installed and at work."""
    with running_controller(control_plane, api) as process:
        yield process


class Watchers:
    """The watches of nodes, and the events that they received, by kind."""

    def __init__(self, workspace: Workspace) -> None:
        self.nodes = {name: FollowedObjects(name) for name in map(workspace.name, map("quiet-{}".format, range(NODES)))}
        self.events: Counter[str] = Counter()
        self._workspace = workspace
        self._fences = 0

    @asynccontextmanager
    async def running(self, plane: ControlPlane) -> AsyncIterator[None]:
        """Watch, from when all nodes have read everything."""
        config = find_config(plane.kubeconfig())
        async with AsyncExitStack() as undo, asyncio.TaskGroup() as tasks:
            running: list[asyncio.Task[None]] = []
            for node in self.nodes.values():
                # Of its own, as a daemon's: a client has a limited number of connections.
                client = await undo.enter_async_context(Client(connect(config)))
                running += [tasks.create_task(reflector.run()) for reflector in node.reflectors(client)]
            for node in self.nodes.values():
                for kind, store in vars(node).items():
                    if isinstance(store, Store):
                        await store.wait_synced()
                        undo.enter_context(store.following(partial(self._count, kind)))
            try:
                yield
            finally:
                for task in running:
                    task.cancel()
                await asyncio.wait(running)

    def _count(self, kind: str, change: Change[Any]) -> None:
        if not change.key.startswith("fence-"):
            self.events[kind] += 1

    async def received(self) -> Counter[str]:
        """The events of everything until now: each kind's are sent in order, and a last object of each has arrived."""
        self._fences += 1
        fence = self._workspace.name(f"fence-{self._fences}")
        create = self._workspace.create
        await asyncio.to_thread(create, manifest(TOPOLOGY, fence, spec=steps("vf0")))
        await asyncio.to_thread(create, manifest(POLICY, fence, spec={"selector": {"cel": "true"}, **NOWHERE}))
        await asyncio.to_thread(create, custom_device(fence))
        await asyncio.to_thread(create, manifest(SCHEMA, fence, spec={"cniType": fence[:60]}))
        with waiting("the last objects to arrive at all nodes"):
            for node in self.nodes.values():
                for store in (node.topologies, node.policies, node.shared_custom_devices, node.schemas):
                    await store.until(lambda store=store: fence in store.objects)  # type: ignore[misc]
        return self.events


def custom_device(name: str, **selector: Any) -> Object:
    spec = {"provider": "bctl", "device": "eth0", "selector": selector, "attributes": {"rdma": {"bool": True}}}
    return manifest(CUSTOM_DEVICE, name, spec=spec)


def test_claims_and_reports_reach_no_node_and_cause_at_most_one_write_per_change(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    api, watchers = workspace.api, Watchers(workspace)
    net, policy, device = workspace.name("net"), workspace.name("policy"), workspace.name("device")
    workspace.create(manifest(TOPOLOGY, net, spec=steps("vf0", "vf1")))
    workspace.create(manifest(POLICY, policy, spec={"selector": {"cel": "true"}, **NOWHERE}))
    workspace.create(custom_device(device))
    api.wait_for(TOPOLOGY, net, is_ready)
    api.wait_for(POLICY, policy, lambda found: condition(found, "Accepted")[0] == "True")
    for kind, name in ((USAGE, net), (ROLLOUT, policy), (DEVICE_ROLLOUT, device)):
        api.wait_for(kind, name, lambda found: bool(found))

    def claims() -> None:
        """Claims come and go one after the other; each is a user of the topology for a while."""
        for number in range(CLAIMS):
            claim = allocate(workspace, net, f"claim-{number}")
            api.wait_for(USAGE, net, lambda found: bool(found and found["status"]["users"] == 1))
            api.delete(CLAIM, claim, workspace.namespace)
            api.wait_for(USAGE, net, lambda found: bool(found and found["status"]["users"] == 0))

    def reports() -> None:
        for number, node in enumerate(watchers.nodes):
            made = reporting(node, policy, devices=4, problems=["no such key: rdma"] if number % 2 else [])
            made["status"]["customDevices"] = [{"name": device, "desired": 1, "applied": 1}]
            report(workspace, made)
        api.wait_for(ROLLOUT, policy, lambda found: bool(found and found["status"]["devices"] == 4 * NODES))
        api.wait_for(DEVICE_ROLLOUT, device, lambda found: bool(found and found["status"]["appliedNumber"] == NODES))
        assert condition(api.get(ROLLOUT, policy), "Degraded") == ("True", "FailsOnNodes")

    async def story() -> None:
        async with watchers.running(control_plane):
            before = writes(control_plane)
            await asyncio.to_thread(claims)
            after = writes(control_plane)
            # Coming and going are one write each; the topology itself is not written at all.
            assert after["networktopologyusages"] - before["networktopologyusages"] == 2 * CLAIMS
            for name in ("networktopologies", "networktopologies/status"):
                assert after.get(name, 0) == before.get(name, 0)
            await asyncio.to_thread(reports)
            last = writes(control_plane)
            assert last["deviceexposurepolicyrollouts"] - after["deviceexposurepolicyrollouts"] < NODES
            assert last["customdevicerollouts"] - after["customdevicerollouts"] < NODES
            assert last["deviceexposurepolicies/status"] == after["deviceexposurepolicies/status"]
            assert await watchers.received() == {}

    asyncio.run(story())


def test_a_custom_device_that_names_its_node_is_sent_to_no_other(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    watchers = Watchers(workspace)
    first, second = list(watchers.nodes)[:2]
    device = workspace.name("device")

    async def story() -> None:
        async with watchers.running(control_plane):
            await asyncio.to_thread(workspace.create, custom_device(device, nodeName=first))
            await watchers.received()
            assert watchers.events == {"custom_devices": 1}
            assert device in watchers.nodes[first].custom_devices.objects
            # It is given to another node, and then to all of them.
            change: Object = {"spec": {"selector": {"nodeName": second}}}
            await asyncio.to_thread(workspace.api.patch, CUSTOM_DEVICE, device, change)
            await watchers.nodes[second].custom_devices.until(
                lambda: device in watchers.nodes[second].custom_devices.objects
            )
            await watchers.received()
            change["spec"]["selector"]["nodeName"] = None
            await asyncio.to_thread(workspace.api.patch, CUSTOM_DEVICE, device, change)
            await watchers.received()
            assert all(node.custom_device(device) for node in watchers.nodes.values())

    asyncio.run(story())


def test_a_topology_with_a_user_that_is_deleted_while_no_controller_leads_stays_until_the_user_is_gone(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    api, net = workspace.api, workspace.name("net")
    workspace.create(manifest(TOPOLOGY, net, spec=steps("vf0", "vf1")))
    api.wait_for(TOPOLOGY, net, is_ready)
    control_plane.processes["netdra-controller"].kill()
    claim = allocate(workspace, net)
    api.delete(TOPOLOGY, net)
    assert api.get(TOPOLOGY, net)["metadata"]["deletionTimestamp"]
    api.patch(LEASE, "netdra-controller", {"spec": {"leaseDurationSeconds": 2}}, namespace=identities.NETDRA)
    start_controller(control_plane, api)
    api.wait_for(TOPOLOGY, net, lambda found: condition(found, "Ready") == ("False", "Deleting"))
    api.delete(CLAIM, claim, workspace.namespace)
    api.wait_for(TOPOLOGY, net, is_gone)
    api.wait_for(USAGE, net, is_gone)
