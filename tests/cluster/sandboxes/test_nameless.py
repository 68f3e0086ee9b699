"""The name of a namespace is removed while its pod runs: the path alone does not prove that the pod has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from netdra.kernel import libc, netns
from netdra.model.plan import ClaimReference
from netdra.node.nri.hooks import Sandbox
from testbed.waiting import until_async
from tests.cluster.sandboxes.former import attached, rounds
from tests.cluster.sandboxes.scene import Machine, Scene

Removal = Callable[[Machine, Sandbox], None]


def deleted(machine: Machine, sandbox: Sandbox) -> None:
    """As `ip -all netns delete` and clean-up scripts do."""
    machine.end(sandbox)


def unmounted(machine: Machine, sandbox: Sandbox) -> None:
    """The file stays, and does not lead to a namespace any more."""
    libc.umount(sandbox.netns)


def reused(machine: Machine, sandbox: Sandbox) -> None:
    """Another namespace has the name by now."""
    machine.end(sandbox)
    name = Path(sandbox.netns).name
    netns.Namespace.create(name).close()
    machine.sandboxes.append(name)


def reasons(scene: Scene) -> list[str]:
    return [event.reason for event in scene.told]


@pytest.mark.parametrize("remove", [deleted, unmounted, reused])
def test_a_running_pod_keeps_its_network_when_the_path_of_its_namespace_is_removed(
    scene: Scene, remove: Removal
) -> None:
    claim, sandbox = attached(scene)

    async def story(place: str) -> None:
        inside = msgspec.structs.replace(sandbox, netns=place)
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            remove(scene.machine, sandbox)
            await until_async(lambda: bool(scene.told), "the event of the removed name")
            await rounds(daemon, 2)
            assert "net1" in scene.machine.links(inside)
            assert scene.machine.checkpoints() == {sandbox.id}
        assert reasons(scene) == ["NetworkNamespaceUnnamed"]
        assert sandbox.netns in scene.told[0].note

        by_containerd = msgspec.structs.replace(sandbox, netns="", pid=int(place.split("/")[2]))
        for listed in (sandbox, by_containerd):  # CRI-O lists the former path
            scene.told.clear()
            async with scene.daemon() as daemon:  # it has no descriptor of the namespace before
                assert scene.machine.specified() == {scene.uid(claim)}
                await daemon.synchronize(listed)
                await rounds(daemon, 2)
                assert len(daemon.pods.network.table.namespaces) == 1
                assert "net1" in scene.machine.links(inside)
                assert scene.machine.specified() == {scene.uid(claim)}
                assert daemon.pods.hooks.table.running(sandbox.id) is not None
                assert reasons(scene) == ["NetworkNamespaceUnnamed"]
                if listed is by_containerd:
                    await daemon.stop(sandbox)
        assert "eth7" in scene.machine.links()
        assert not scene.machine.checkpoints()

    with scene.machine.inhabited(sandbox) as place:
        asyncio.run(story(place))


def test_a_namespace_without_a_path_ends_with_its_last_process(scene: Scene) -> None:
    _, sandbox = attached(scene)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            with scene.machine.inhabited(sandbox):
                scene.machine.end(sandbox)
                await until_async(lambda: bool(scene.told), "the event of the removed name")
            await until_async(lambda: not scene.machine.checkpoints(), "the sandbox to be taken down")
            assert "eth7" in scene.machine.links()
            assert not len(daemon.pods.network.table.namespaces)

    asyncio.run(story())


def test_a_claim_that_is_given_up_ends_a_pod_without_a_path_although_a_process_stays(scene: Scene) -> None:
    """The runtime reported no stop, and a foreign process in the namespace outlives the pod."""
    claim, sandbox = attached(scene)
    reference = ClaimReference(namespace=sandbox.namespace, name=claim, uid=scene.uid(claim))

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            scene.machine.end(sandbox)
            await until_async(lambda: bool(scene.told), "the event of the removed name")
            await daemon.pods.claims.unprepare(reference)
            assert "eth7" in scene.machine.links()
            assert not scene.machine.checkpoints()

    with scene.machine.inhabited(sandbox):
        asyncio.run(story())


def test_a_pod_without_a_path_that_has_no_network_yet_gets_it(scene: Scene) -> None:
    """It began while the daemon was away; the runtime reports its process."""
    _, sandbox = scene.of_three()

    async def story(place: str) -> None:
        pid = int(place.split("/")[2])
        async with scene.daemon() as daemon:
            scene.machine.end(sandbox)
            await daemon.synchronize(msgspec.structs.replace(sandbox, pid=pid))
            assert "net1" in scene.machine.links(msgspec.structs.replace(sandbox, netns=place))
            assert reasons(scene) == ["NetworkAttachedLate"]

    with scene.machine.inhabited(sandbox) as place:
        asyncio.run(story(place))
