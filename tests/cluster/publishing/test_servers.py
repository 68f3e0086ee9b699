"""The effects of an API server on a node's publishing: it wipes, restarts, has gates off or on."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from netdra.kernel import link
from netdra.kube.client import Client
from netdra.kube.connection import connect
from netdra.node.publishing.service import Publishing
from testbed.api import Objects
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.objects import SLICE
from testbed.waiting import awaited, waiting
from testbed.workspace import Workspace, open_workspace
from tests.cluster.conftest import StartControlPlane, serve_kinds
from tests.cluster.fault_proxy import FaultProxy
from tests.cluster.publishing.scene import EVENT, QUIET_SECONDS, SHARED, about, policy, publishing
from tests.kernel.conftest import Machine


@pytest.fixture(scope="module")
def with_lists(start_control_plane: StartControlPlane) -> ControlPlane:
    """A control plane that may be restarted, and takes attributes that are lists."""
    plane = start_control_plane(Settings(feature_gates={"DRAListTypeAttributes": True}, scheduler=False))
    with closing(plane.client()) as api:
        serve_kinds(plane, api)
    return plane


@pytest.mark.usefixtures("custom_kinds")
def test_slices_that_the_kubelet_wipes_come_back_and_a_successor_writes_nothing(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        for number in range(5):
            machine.veth(f"eth{number}", f"far{number}")
        everything = [f"eth{number}" for number in range(5)]
        policy(workspace)
        async with publishing(control_plane, workspace, machine) as scene:
            before = await scene.devices(*everything)
            await asyncio.to_thread(scene.api.delete_all, SLICE, fields=f"spec.nodeName={scene.node}")
            assert await scene.devices(*everything) == before

            await scene.at_rest()
            stored = scene.slices()
            watch = scene.publishing._watch
            async with FaultProxy(control_plane).serving() as proxy, Client(connect(proxy.config)) as client:
                successor = Publishing(client, scene.node, watch)
                task = asyncio.create_task(successor.run())
                await awaited(successor.published.wait(), "the successor to be content")
                with waiting("nothing to be published"):
                    await asyncio.sleep(QUIET_SECONDS)
                task.cancel()
                await asyncio.wait([task])
                writes = [each for each in proxy.requests if each.method != "GET" and not each.parameters.get("dryRun")]
            assert writes == []
            assert scene.slices() == stored

    asyncio.run(story())


def test_a_restarted_server_receives_the_changes_of_its_downtime(with_lists: ControlPlane, machine: Machine) -> None:
    plane = with_lists

    async def story(workspace: Workspace) -> None:
        machine.veth("eth0", "far0")
        policy(workspace)
        async with publishing(plane, workspace, machine) as scene:
            await scene.devices("eth0")
            plane.apiserver.kill()
            machine.veth("eth1", "far1")
            link.delete(machine.sock, "eth0")
            plane.apiserver.start()  # here: it dies with the thread that starts it
            await asyncio.to_thread(plane.apiserver.wait_ready)
            await scene.devices("eth1")

    with closing(plane.client()) as api, open_workspace(api) as workspace:
        asyncio.run(story(workspace))


def test_a_server_with_the_gates_off_gets_one_persona_a_nic_and_nothing_that_it_would_drop(
    start_control_plane: StartControlPlane, machine: Machine
) -> None:
    gates = ("DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceTaints", "DRADeviceTaintRules")
    plane = start_control_plane(Settings(feature_gates=dict.fromkeys(gates, False), scheduler=False))

    async def story(workspace: Workspace) -> None:
        machine.veth("eth0", "far0", up=True)
        policy(workspace)
        policy(workspace, name="shared", priority=200, exposure=SHARED)
        policy(workspace, name="more", priority=50, exposure={"deviceNameSuffix": "-more"})
        async with publishing(plane, workspace, machine) as scene:
            found = await scene.devices("eth0")
            assert not {"consumesCounters", "allowMultipleAllocations", "taints"} & set(found["eth0"])
            assert [one for one in scene.slices() if one["spec"].get("sharedCounters")] == []
            events = await asyncio.to_thread(
                scene.api.wait_for_all,
                EVENT,
                lambda items: len(features_off(items, scene.node)) == 3,
                namespace="default",
            )
            notes = " ".join(each["note"] for each in features_off(events, scene.node))
            assert all(gate in notes for gate in gates[:3])

    with closing(plane.client()) as api:
        serve_kinds(plane, api)
        with open_workspace(api) as workspace:
            asyncio.run(story(workspace))


def features_off(events: Objects, node: str) -> Objects:
    return [each for each in about(events, node) if each["reason"] == "FeatureOff"]


def test_a_server_with_list_attributes_gets_lists(with_lists: ControlPlane, machine: Machine) -> None:
    async def story(workspace: Workspace) -> None:
        machine.veth("eth0", "far0")
        policy(workspace, exposure={"supportedCNIPlugins": [{"name": "host-device", "exclusive": True}]})
        async with publishing(with_lists, workspace, machine) as scene:
            found = await scene.devices("eth0")
            assert found["eth0"]["attributes"]["supportedCNIs"] == {"strings": ["host-device"]}

    with closing(with_lists.client()) as api, open_workspace(api) as workspace:
        asyncio.run(story(workspace))
