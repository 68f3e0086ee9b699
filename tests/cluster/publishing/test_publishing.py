"""Changes of links, policies and labels of a node are in its slices a moment later, and devices of claims stay."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from netdra.kernel import link
from netdra.model import names
from netdra.model.errors import TemporaryError
from netdra.node.publishing import interfaces, service, spread
from netdra.node.view import HeldDevice
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.objects import NODE, SLICE
from testbed.waiting import PATIENCE, until_async
from testbed.workspace import Workspace
from tests.cluster.publishing.scene import POLICY, VETHS, devices, policy, publishing, taints
from tests.kernel.conftest import Machine

LATE_SECONDS = 12.0
"""The window of a large cluster, in which a node's turn comes after three quarters."""


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
            facts = scene.publishing.devices[f"{scene.node}/veth-eth9", "eth9"]
            assert (facts.if_name, facts.type, facts.mtu) == ("eth9", "veth", 9000)
            assert [one.spec.pool.name for one in scene.publishing.slices] == [f"{scene.node}/veth-eth9"]

    asyncio.run(story())


def mtu(device: Object) -> int:
    found: int = device["attributes"]["mtu"]["int"]
    return found


@pytest.mark.usefixtures("custom_kinds")
def test_a_burst_of_links_is_at_most_three_writes_a_pool(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        policy(workspace)
        async with publishing(control_plane, workspace, machine) as scene:
            names_ = [f"eth{number}" for number in range(50)]
            slices = scene.publishing.followed.slices
            for _ in range(2):
                since = time.monotonic()
                for name in names_:
                    machine.veth(name, f"far{name}")
                await scene.devices(*names_)
                await slices.until(lambda: len(slices.objects) == len(names_))
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
            more = (time.monotonic() - since) // interfaces.SECONDS_PER_CHANGE
            assert len(scene.writes(since)) <= interfaces.BURST + 1 + more

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
            await scene.wait(lambda found: "physnet" in found["eth1"]["attributes"])
            api.patch(NODE, scene.node, {"metadata": {"labels": {"rack": None}}})
            await scene.devices()
            api.patch(POLICY, made, {"spec": {"nodeSelector": None}})
            await scene.devices("eth1")
            await scene.quiet()

    asyncio.run(story())


@pytest.mark.usefixtures("custom_kinds")
def test_in_a_large_cluster_a_node_follows_an_edit_in_its_turn_and_its_own_changes_at_once(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spread, "AT_ONCE", 0)
    monkeypatch.setattr(spread, "SECONDS_A_NODE", LATE_SECONDS)
    monkeypatch.setattr(spread, "MOST_SECONDS", LATE_SECONDS)
    monkeypatch.setattr(spread, "place", lambda _: 0.75)

    async def story() -> None:
        machine.veth("eth0", "far0")
        made = policy(workspace)["metadata"]["name"]
        async with publishing(control_plane, workspace, machine) as scene:
            await scene.devices("eth0")
            await until_async(lambda: scene.publishing.spread.delay > 0, "the nodes to be counted")
            began = time.monotonic()
            machine.veth("eth1", "far1")
            await scene.devices("eth0", "eth1")
            assert time.monotonic() - began < 0.75 * LATE_SECONDS
            await scene.at_rest()
            began = time.monotonic()
            scene.api.patch(POLICY, made, {"spec": {"exposure": {"additionalAttributes": {"physnet": "p1"}}}})
            await scene.wait(lambda found: "physnet" in found["eth1"]["attributes"])
            assert time.monotonic() - began >= 0.75 * LATE_SECONDS
            await scene.at_rest()
            began = time.monotonic()
            policy(workspace, VETHS.replace("eth", "eth1"), "guard", action="exclude")
            await scene.devices("eth0")
            assert time.monotonic() - began < 0.75 * LATE_SECONDS

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
            health = scene.publishing.health.states()
            await anext(health)
            scene.hold("eth0")
            await scene.looks_again()
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
            assert scene.publishing.devices[f"{scene.node}/veth-eth1", "eth1"].if_name == "eth1"
            told = [each for news in [await anext(health)] for each in news]
            while not any(each.device == "eth1" and each.message == "the interface is gone" for each in told):
                told = [*await anext(health)]
            scene.release()
            await scene.devices("eth0", "eth2")

    asyncio.run(story())


class UnreadableDisk:
    """Knows no longer who holds what."""

    @property
    def held(self) -> Sequence[HeldDevice]:
        raise TemporaryError("the checkpoint cannot be read: Input/output error")


@pytest.mark.usefixtures("custom_kinds")
def test_a_device_in_use_stays_published_while_its_holder_cannot_be_read_from_disk(
    control_plane: ControlPlane,
    workspace: Workspace,
    machine: Machine,
    other: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "HELD_AGAIN_SECONDS", 0.2)

    async def story() -> None:
        machine.veth("eth0", "far0")
        policy(workspace)
        async with publishing(control_plane, workspace, machine) as scene:
            before = await scene.devices("eth0")
            scene.hold("eth0")
            await scene.looks_again()
            scene.publishing.know_holder(UnreadableDisk())
            await scene.looks_again()
            link.change(machine.sock, "eth0", netns_fd=other.namespace.fd)
            machine.veth("eth2", "far2")
            found = await scene.devices("eth0", "eth2")
            assert found["eth0"] == before["eth0"]
            scene.release()
            scene.publishing.know_holder(scene.hands)
            await scene.devices("eth2")

    asyncio.run(story())


@pytest.mark.usefixtures("custom_kinds")
def test_the_command_publishes_this_machine_and_ends_in_good_order_with_its_slices_left(
    control_plane: ControlPlane, workspace: Workspace, tmp_path: Path
) -> None:
    node, name = workspace.add_node(), f"t{uuid.uuid4().hex[:8]}"
    policy(workspace, f'device.attributes["dra.networking"].ifName == "{name}"')
    subprocess.run(("ip", "link", "add", name, "type", "veth", "peer", f"{name}p"), check=True)
    command = [sys.executable, "-m", "netdra", "node", "--node-name", node, "--nri-socket", str(tmp_path / "nri.sock")]
    for option in ("--state-dir", "--kubelet-root", "--cdi-dir"):
        command += [option, str(tmp_path)]
    child = subprocess.Popen([*command, "--kubeconfig", str(control_plane.kubeconfig())], stderr=subprocess.PIPE)
    try:
        items = workspace.api.wait_for_all(SLICE, bool, fields=f"spec.nodeName={node}")
        assert set(devices(items)) == {name}
        child.send_signal(signal.SIGTERM)
        _, log = child.communicate(timeout=PATIENCE)
        assert (child.returncode, b"Traceback" in log) == (0, False), log.decode()[-2000:]
        left = workspace.api.list(SLICE, fields=f"spec.nodeName={node}")
        assert [each["metadata"] for each in left] == [each["metadata"] for each in items]
    finally:
        child.kill()
        subprocess.run(("ip", "link", "del", name), check=True)
        workspace.api.delete_all(SLICE, fields=f"spec.nodeName={node}")
