"""No write of a ResourceSlice has the node's end of a pod's wire, while pods come and while the driver restarts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from netdra.kernel import link
from netdra.node.publishing import reporter, service
from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.objects import SLICE
from testbed.waiting import until_async
from testbed.workspace import Workspace
from tests.cluster.publishing.scene import devices, policy, publishing
from tests.kernel.conftest import Machine
from tests.wires import WAYS, both_on_the_node, pods

COUNT = 50
VETHS = 'device.attributes["dra.networking"].type == "veth"'


@contextmanager
def written(api: Api, node: str) -> Iterator[set[str]]:
    """The devices of all slices of a node that are written meanwhile; whole when this ends."""
    names = set(devices(api.list(SLICE, fields=f"spec.nodeName={node}")))
    ends = threading.Event()
    last, gone = set[str](), set[str]()

    def follow() -> None:
        with closing(api.watch(SLICE, fields=f"spec.nodeName={node}")) as changes:
            for kind, item in changes:
                names.update(devices([item]))
                gone.update([item["metadata"]["uid"]] if kind == "DELETED" else ())
                if ends.is_set() and last <= gone:
                    return

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield names
    finally:
        last.update(each["metadata"]["uid"] for each in api.list(SLICE, fields=f"spec.nodeName={node}"))
        ends.set()
        api.delete_all(SLICE, fields=f"spec.nodeName={node}")
        thread.join()


@pytest.mark.usefixtures("custom_kinds")
def test_the_wires_of_50_pods_are_in_no_slice_and_the_nodes_own_pair_is(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        policy(workspace, VETHS)
        machine.veth("first", "other")
        with pods(COUNT) as spaces:
            async with publishing(control_plane, workspace, machine) as scene:
                with written(workspace.api, scene.node) as names:
                    await scene.devices("first", "other")

                    def make() -> None:
                        for number, pod in enumerate(spaces):
                            WAYS[number % len(WAYS)](machine, pod, f"wire{number}")
                        machine.veth("own", "peer")

                    await asyncio.to_thread(make)
                    await scene.devices("first", "other", "own", "peer")
                    assert names == {"first", "other", "own", "peer"}
                assert names == {"first", "other", "own", "peer"}

    asyncio.run(story())


@pytest.mark.usefixtures("custom_kinds")
def test_a_driver_that_begins_while_a_wire_is_made_publishes_only_the_nodes_own_pair(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        policy(workspace, VETHS)
        machine.veth("own", "peer")
        machine.veth("wire", "there")
        with pods(1) as (pod,):
            async with publishing(control_plane, workspace, machine) as scene:
                with written(workspace.api, scene.node) as names:
                    machine.run("ip", "link", "set", "there", "netns", pod.name)
                    await scene.devices("own", "peer")
                assert names == {"own", "peer"}

    asyncio.run(story())


@pytest.mark.usefixtures("custom_kinds")
def test_pods_that_come_and_go_cause_one_pass_later_and_the_nodes_own_links_one_at_once(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "PODS_SECONDS", 3600.0)
    monkeypatch.setattr(reporter, "QUIET_SECONDS", 3600.0)  # a report has a pass made, too

    async def story() -> None:
        policy(workspace, VETHS)
        machine.veth("own", "peer")
        with pods(2) as (first, second):
            async with publishing(control_plane, workspace, machine) as scene:

                async def come_and_go(pod: Machine, wire: str) -> None:
                    both_on_the_node(machine, pod, wire)
                    await until_async(lambda: scene.publishing._later is not None, "the end of the pair")
                    link.delete(machine.sock, wire)

                await scene.devices("own", "peer")
                await scene.at_rest()
                passes = scene.publishing.passes
                await come_and_go(first, "wire1")
                await scene.at_rest()
                assert scene.publishing.passes == passes
                scene.publishing.report_soon()
                await until_async(lambda: scene.publishing.passes > passes, "the pass before a report")
                machine.veth("another", "end")
                await scene.devices("own", "peer", "another", "end")
                await scene.at_rest()
                passes = scene.publishing.passes
                monkeypatch.setattr(service, "PODS_SECONDS", 1.0)
                await come_and_go(second, "wire2")
                await until_async(lambda: scene.publishing.passes > passes, "the pass that counts them")

    asyncio.run(story())


@pytest.mark.usefixtures("custom_kinds")
def test_a_pass_is_made_for_other_held_devices_and_neither_for_the_same_ones_nor_for_those_of_a_moment(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        policy(workspace, VETHS)
        machine.veth("own", "peer")
        async with publishing(control_plane, workspace, machine) as scene:
            await scene.devices("own", "peer")
            scene.hold("own")
            await scene.at_rest()
            passes = scene.publishing.passes
            held = tuple(scene.hands.held)
            # The devices of a pod that ends at once, and those of the last pass.
            for present in ((), held):
                scene.hands.held = present
                scene.publishing.note_held()
                await asyncio.sleep(service.HELD_SECONDS / 4)
            await asyncio.sleep(service.HELD_SECONDS)
            await scene.at_rest()
            assert scene.publishing.passes == passes
            scene.hands.held = ()
            scene.publishing.note_held()
            await until_async(lambda: scene.publishing.passes > passes, "the pass without the device")

    asyncio.run(story())
