"""A node's publishing on the real API server and the real kernel: what happens to links, policies, labels and the
server is in the slices a moment later, and what claims hold stays.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from netdra.discovery.watch import Watcher
from netdra.kernel import link
from netdra.kube.client import Client
from netdra.kube.connection import connect
from netdra.model import names, report
from netdra.model.inventory import Node
from netdra.model.meta import ObjectMeta
from netdra.node.publishing.service import Publishing
from netdra.node.view import HeldDevice
from testbed.api import Api, Object, Objects
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.objects import NODE, SLICE
from testbed.workspace import Workspace, open_workspace
from tests.cluster.conftest import StartControlPlane, serve_kinds
from tests.cluster.fault_proxy import FaultProxy
from tests.kernel.conftest import Machine, new_machine

POLICY = "networking.dra.io/v1alpha1/DeviceExposurePolicy"
EVENT = "events.k8s.io/v1/Event"
WITHIN = 20.0
VETHS = 'device.attributes["dra.networking"].ifName.startsWith("eth")'
QUIET_SECONDS = 2.0


@pytest.fixture
def machine() -> Iterator[Machine]:
    """The node's network namespace."""
    yield from new_machine()


@pytest.fixture
def other() -> Iterator[Machine]:
    """A pod's network namespace."""
    yield from new_machine()


@dataclass
class Hands:
    """Who holds what, as the test says."""

    held: Sequence[HeldDevice] = ()


@dataclass
class Scene:
    """A node that publishes through a proxy."""

    node: str
    api: Api
    machine: Machine
    proxy: FaultProxy
    publishing: Publishing
    hands: Hands = field(default_factory=Hands)

    def until(self, condition: Callable[[Objects], bool]) -> Objects:
        return self.api.wait_for_all(SLICE, condition, fields=f"spec.nodeName={self.node}", timeout=WITHIN)

    async def wait(self, condition: Callable[[dict[str, Object]], bool]) -> dict[str, Object]:
        """Wait until the published devices are as they should be."""
        return devices(await asyncio.to_thread(self.until, lambda items: condition(devices(items))))

    async def devices(self, *expected: str) -> dict[str, Object]:
        return await self.wait(lambda found: set(found) == set(expected))

    def slices(self) -> Objects:
        return self.api.list(SLICE, fields=f"spec.nodeName={self.node}")

    def writes(self, since: float) -> list[str]:
        return [
            request.method
            for request in self.proxy.requests
            if request.at >= since and request.method != "GET" and "resourceslices" in request.path
        ]

    async def quiet(self) -> None:
        """Assert that nothing is written while nothing happens."""
        since, passes = time.monotonic(), self.publishing.passes
        await asyncio.sleep(QUIET_SECONDS)
        assert self.writes(since) == []
        assert self.publishing.passes == passes

    def hold(self, device: str, trouble: str = "") -> None:
        key = (f"{self.node}-veth-{device.removesuffix('-macvlan')}", device)
        self.hands.held = (HeldDevice(key=key, claim="uid", trouble=trouble),)
        self.publishing.look_again()

    def release(self) -> None:
        self.hands.held = ()
        self.publishing.look_again()


def devices(items: Objects) -> dict[str, Object]:
    return {device["name"]: device for item in items for device in item["spec"].get("devices", ())}


def taints(device: Object) -> list[str]:
    return [taint["key"] for taint in device.get("taints", ())]


@asynccontextmanager
async def publishing(plane: ControlPlane, workspace: Workspace, machine: Machine) -> AsyncIterator[Scene]:
    node = workspace.add_node()
    hands = Hands()

    def watch() -> Watcher:
        return machine.namespace.run(lambda: Watcher(Node(name=node)))

    async with FaultProxy(plane).serving() as proxy, Client(connect(proxy.config)) as client:
        service = Publishing(client, node, watch, hands)
        task = asyncio.create_task(service.run())
        try:
            yield Scene(node, workspace.api, machine, proxy, service, hands)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            workspace.api.delete_all(SLICE, fields=f"spec.nodeName={node}")


def policy(workspace: Workspace, cel: str = VETHS, name: str = "veths", **spec: Any) -> Object:
    """A policy of this test's nodes."""
    return workspace.create(
        {
            "apiVersion": "networking.dra.io/v1alpha1",
            "kind": "DeviceExposurePolicy",
            "metadata": {"name": workspace.name(name)},
            "spec": {"selector": {"cel": cel}, **spec},
        }
    )


@pytest.mark.usefixtures("custom_kinds")
def test_links_that_come_go_and_change_names_are_published_and_a_quiet_node_writes_nothing(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        machine.veth("eth0", "far0")
        policy(workspace)
        async with publishing(control_plane, workspace, machine) as scene:
            await scene.devices("eth0")
            machine.veth("eth1", "far1")
            await scene.devices("eth0", "eth1")
            link.change(machine.sock, "eth1", name="eth9")
            await scene.devices("eth0", "eth9")
            link.change(machine.sock, "eth9", mtu=9000)
            await scene.wait(lambda found: mtu(found["eth9"]) == 9000)
            link.delete(machine.sock, "eth0")
            await scene.devices("eth9")
            await scene.quiet()
            assert scene.publishing.ready
            facts = scene.publishing.devices[f"{scene.node}-veth-eth9", "eth9"]
            assert (facts.if_name, facts.type, facts.mtu) == ("eth9", "veth", 9000)
            assert [one.spec.pool.name for one in scene.publishing.slices] == [f"{scene.node}-veth-eth9"]

    asyncio.run(story())


def mtu(device: Object) -> int:
    found: int = device["attributes"]["dra.networking/mtu"]["int"]
    return found


@pytest.mark.usefixtures("custom_kinds")
def test_a_burst_of_links_is_at_most_three_writes_a_pool(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        policy(workspace)
        async with publishing(control_plane, workspace, machine) as scene:
            names_ = [f"eth{number}" for number in range(50)]
            for _ in range(2):
                since = time.monotonic()
                for name in names_:
                    machine.veth(name, f"far{name}")
                await scene.devices(*names_)
                await scene.publishing.stored.until(lambda: len(scene.publishing.stored.objects) == len(names_))
                assert len(scene.writes(since)) <= 3 * len(names_)
                since = time.monotonic()
                for name in names_:
                    link.delete(machine.sock, name)
                await scene.devices()
                assert len(scene.writes(since)) <= 3 * len(names_)

    asyncio.run(story())


@pytest.mark.usefixtures("custom_kinds")
def test_a_link_without_carrier_is_tainted_and_one_that_flaps_is_written_only_so_often(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        machine.veth("eth0", "far0", up=True)
        policy(workspace)
        async with publishing(control_plane, workspace, machine) as scene:
            await scene.wait(lambda found: "eth0" in found and taints(found["eth0"]) == [names.LINK_DOWN])
            link.change(machine.sock, "far0", up=True)
            await scene.wait(lambda found: taints(found["eth0"]) == [])
            since = time.monotonic()
            for number in range(40):
                link.change(machine.sock, "far0", up=number % 2 == 1)
                await asyncio.sleep(0.05)
            assert len(scene.writes(since)) <= 6

    asyncio.run(story())


@pytest.mark.usefixtures("custom_kinds")
def test_policies_and_labels_decide_at_once(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        machine.veth("eth0", "far0")
        machine.veth("eth1", "far1")
        rack = {"matchLabels": {"rack": workspace.name("a7")}}
        async with publishing(control_plane, workspace, machine) as scene:
            api = scene.api
            made = policy(workspace, nodeSelector=rack)["metadata"]["name"]
            api.patch(NODE, scene.node, {"metadata": {"labels": {"rack": workspace.name("a7")}}})
            await scene.devices("eth0", "eth1")
            api.patch(POLICY, made, {"spec": {"selector": {"cel": VETHS.replace("eth", "eth1")}}})
            await scene.devices("eth1")
            api.patch(POLICY, made, {"spec": {"exposure": {"additionalAttributes": {"physnet": "p1"}}}})
            await scene.wait(lambda found: "dra.networking/physnet" in found["eth1"]["attributes"])
            api.patch(NODE, scene.node, {"metadata": {"labels": {"rack": None}}})
            await scene.devices()
            api.patch(POLICY, made, {"spec": {"nodeSelector": None}})
            await scene.devices("eth1")
            await scene.quiet()

    asyncio.run(story())


@pytest.mark.usefixtures("custom_kinds")
def test_what_fails_is_reported_on_slices_and_told_once_as_an_event(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        machine.veth("eth0", "far0")
        good = policy(workspace)["metadata"]["name"]
        failing = policy(workspace, f'{VETHS} && device.attributes["dra.networking"].nothing == 1', "failing")
        bad = failing["metadata"]["name"]
        async with publishing(control_plane, workspace, machine) as scene:
            await scene.devices("eth0")
            (one,) = scene.slices()
            said = report.of_slice(
                report.ReportedSlice(
                    metadata=ObjectMeta(annotations=one["metadata"]["annotations"]),
                    spec=report.ReportedSpec(driver=names.DRIVER),
                )
            )
            assert said[good].devices == 1
            assert said[bad].problems
            machine.veth("eth1", "far1")
            await scene.devices("eth0", "eth1")
            found = await asyncio.to_thread(
                scene.api.wait_for_all,
                EVENT,
                lambda items: len(about(items, bad)) == 2,
                namespace="default",
                timeout=WITHIN,
            )
            assert {each["reason"] for each in about(found, bad)} == {"PolicyProblem"}
            assert all("series" not in each for each in about(found, bad))

    asyncio.run(story())


def about(events: Objects, name: str) -> Objects:
    return [each for each in events if each.get("regarding", {}).get("name") == name]


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

            stored = scene.slices()
            watch = scene.publishing._watch
            async with FaultProxy(control_plane).serving() as proxy, Client(connect(proxy.config)) as client:
                successor = Publishing(client, scene.node, watch)
                task = asyncio.create_task(successor.run())
                await successor.health.changes().__anext__()
                await asyncio.sleep(QUIET_SECONDS)
                task.cancel()
                writes = [each for each in proxy.requests if each.method != "GET" and not each.parameters.get("dryRun")]
            assert writes == []
            assert scene.slices() == stored

    asyncio.run(story())


@pytest.mark.usefixtures("custom_kinds")
def test_a_device_in_use_stays_when_it_disappears_and_goes_when_it_is_given_back(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine, other: Machine
) -> None:
    async def story() -> None:
        machine.veth("eth0", "far0")
        machine.veth("eth1", "far1")
        policy(workspace)
        async with publishing(control_plane, workspace, machine) as scene:
            before = await scene.devices("eth0", "eth1")
            health = scene.publishing.health.changes()
            await anext(health)
            scene.hold("eth0")
            await asyncio.sleep(0.1)
            since = time.monotonic()
            link.change(machine.sock, "eth0", netns_fd=other.namespace.fd)
            machine.veth("eth2", "far2")
            found = await scene.devices("eth0", "eth1", "eth2")
            assert found["eth0"] == before["eth0"]
            assert scene.writes(since) == ["POST"]
            link.change(other.sock, "eth0", netns_fd=machine.namespace.fd)

            scene.hold("eth1", trouble="it does not come back")
            found = await scene.wait(lambda found: taints(found["eth1"]) == [names.TROUBLE])
            scene.hold("eth1")
            await scene.wait(lambda found: taints(found["eth1"]) == [])
            link.delete(machine.sock, "eth1")
            found = await scene.wait(lambda found: taints(found["eth1"]) == [names.GONE])
            assert {**found["eth1"], "taints": None} == {**before["eth1"], "taints": None}
            assert scene.publishing.devices[f"{scene.node}-veth-eth1", "eth1"].if_name == "eth1"
            told = [each for news in [await anext(health)] for each in news]
            while not any(each.device == "eth1" and each.message == "the interface is gone" for each in told):
                told = [*await anext(health)]
            scene.release()
            await scene.devices("eth0", "eth2")

    asyncio.run(story())


def test_a_server_that_restarts_gets_what_happened_meanwhile(
    start_control_plane: StartControlPlane, machine: Machine
) -> None:
    plane = start_control_plane(Settings(scheduler=False))

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

    with closing(plane.client()) as api:
        serve_kinds(plane, api)
        with open_workspace(api) as workspace:
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
                timeout=WITHIN,
            )
            notes = " ".join(each["note"] for each in features_off(events, scene.node))
            assert all(gate in notes for gate in gates[:3])

    with closing(plane.client()) as api:
        serve_kinds(plane, api)
        with open_workspace(api) as workspace:
            asyncio.run(story(workspace))


def features_off(events: Objects, node: str) -> Objects:
    return [each for each in about(events, node) if each["reason"] == "FeatureOff"]


SHARED = {
    "deviceNameSuffix": "-macvlan",
    "allowMultipleAllocations": True,
    "capacity": {"macvlans": {"value": "64", "requestPolicy": {"default": "1"}}},
    "supportedCNIPlugins": [{"name": "macvlan"}],
}


def test_a_server_with_list_attributes_gets_lists(start_control_plane: StartControlPlane, machine: Machine) -> None:
    plane = start_control_plane(Settings(feature_gates={"DRAListTypeAttributes": True}, scheduler=False))

    async def story(workspace: Workspace) -> None:
        machine.veth("eth0", "far0")
        policy(workspace, exposure={"supportedCNIPlugins": [{"name": "host-device", "exclusive": True}]})
        async with publishing(plane, workspace, machine) as scene:
            found = await scene.devices("eth0")
            assert found["eth0"]["attributes"]["dra.networking/supportedCNIs"] == {"strings": ["host-device"]}

    with closing(plane.client()) as api:
        serve_kinds(plane, api)
        with open_workspace(api) as workspace:
            asyncio.run(story(workspace))


@pytest.mark.usefixtures("custom_kinds")
def test_the_command_publishes_this_machine_and_ends_in_good_order_with_its_slices_left(
    control_plane: ControlPlane, workspace: Workspace, tmp_path: Path
) -> None:
    node = workspace.add_node()
    policy(workspace, 'device.attributes["dra.networking"].type == "loopback"')
    command = [sys.executable, "-m", "netdra", "node", "--node-name", node, "--nri-socket", str(tmp_path / "nri.sock")]
    for option in ("--state-dir", "--kubelet-root", "--cdi-dir"):
        command += [option, str(tmp_path)]
    child = subprocess.Popen([*command, "--kubeconfig", str(control_plane.kubeconfig())], stderr=subprocess.PIPE)
    try:
        items = workspace.api.wait_for_all(SLICE, bool, fields=f"spec.nodeName={node}", timeout=WITHIN)
        assert set(devices(items)) == {"lo"}
        child.send_signal(signal.SIGTERM)
        _, log = child.communicate(timeout=WITHIN)
        assert (child.returncode, b"Traceback" in log) == (0, False)
        left = workspace.api.list(SLICE, fields=f"spec.nodeName={node}")
        assert [each["metadata"] for each in left] == [each["metadata"] for each in items]
    finally:
        child.kill()
        workspace.api.delete_all(SLICE, fields=f"spec.nodeName={node}")
