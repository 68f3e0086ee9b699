"""The daemon comes back: what stands is left, what is missing is made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from netdra.chain.checkpoint import Saved
from netdra.model.errors import TemporaryError
from netdra.model.plan import ClaimReference
from netdra.node.sandboxes.network import Network
from netdra.node.sandboxes.status import ClaimDevices
from tests.cluster.fault_proxy import Answer, Request
from tests.cluster.sandboxes.former import attached, rounds
from tests.cluster.sandboxes.scene import WITHIN, Daemon, Scene, chain_of_three, ready


def test_a_pod_that_began_while_the_daemon_was_away_gets_its_network_when_it_is_back(scene: Scene) -> None:
    claim, sandbox = scene.of_three()

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            assert scene.machine.addresses(sandbox, "net1") == {"192.0.2.7/24"}
            assert scene.machine.specified() == {scene.uid(claim)}
            await daemon.written()
            assert ready(scene.stored(claim))["status"] == "True"
            assert [event.reason for event in scene.told] == ["NetworkAttachedLate"]

    asyncio.run(story())


def test_after_a_restart_an_attached_network_stays_although_its_topology_is_removed(scene: Scene) -> None:
    claim, sandbox = attached(scene)
    path = scene.machine.settings.state / f"{sandbox.id}.jsonl"
    before, version = path.read_text(), scene.stored(claim)["metadata"]["resourceVersion"]
    scene.view.topologies = {}
    scene.view.devices = {}

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            await rounds(daemon, 2)
            await daemon.written()
            assert path.read_text() == before
            assert scene.machine.specified() == {scene.uid(claim)}
            assert scene.stored(claim)["metadata"]["resourceVersion"] == version
            assert [event.reason for event in scene.told] == ["TopologyChanged"]

    asyncio.run(story())


def test_attached_networks_are_known_from_disk_while_the_api_server_is_away(scene: Scene) -> None:
    claim, sandbox = attached(scene)
    uid = scene.uid(claim)

    async def story() -> None:
        async with scene.daemon(watching=False) as daemon:
            daemon.proxy.fault = lambda _: Answer.status(503)
            assert scene.machine.specified() == {uid}
            await daemon.stop(sandbox)
            assert not scene.machine.specified()
            assert scene.machine.links(sandbox) == {"lo"}
            assert "eth7" in scene.machine.links()

    asyncio.run(story())


def test_a_pod_that_was_seen_is_attached_while_the_api_server_is_away_and_its_status_follows(scene: Scene) -> None:
    scene.publish("eth7")
    claim = scene.claim(scene.topology("three", *chain_of_three()))
    pod = scene.pod(claim)
    sandbox = scene.machine.sandbox(pod)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.seen(pod)
            daemon.proxy.fault = lambda _: Answer.status(503)
            daemon.proxy.cut_all()
            await daemon.run(sandbox)
            assert scene.machine.addresses(sandbox, "net1") == {"192.0.2.7/24"}
            daemon.proxy.fault = lambda _: None
            await daemon.written()
            assert ready(scene.stored(claim))["status"] == "True"

    asyncio.run(story())


def test_neither_of_two_daemons_detaches_a_sandbox_reported_only_to_the_other(scene: Scene) -> None:
    claim, sandbox = scene.of_three()

    async def story() -> None:
        async with scene.daemon() as old, scene.daemon() as new:
            for daemon in (old, new):
                await daemon.synchronize()
            await new.run(sandbox)
            await rounds(old, 3)
            assert scene.machine.specified() == {scene.uid(claim)}
            assert scene.machine.addresses(sandbox, "net1") == {"192.0.2.7/24"}
            await old.run(sandbox)
            await asyncio.gather(old.stop(sandbox), new.stop(sandbox))
            assert not scene.machine.checkpoints()
            assert "eth7" in scene.machine.links()

    asyncio.run(story())


def test_a_specification_without_a_network_is_taken_away_at_once(scene: Scene) -> None:
    claim, sandbox = attached(scene)
    uid = scene.uid(claim)
    scene.machine.end(sandbox)
    assert scene.machine.specified() == {uid}

    async def story() -> None:
        async with scene.daemon(watching=False):
            assert not scene.machine.specified()

    asyncio.run(story())


def test_a_half_done_chain_is_finished_for_a_pod_that_runs(scene: Scene) -> None:
    _, sandbox = attached(scene)
    path = scene.machine.settings.state / f"{sandbox.id}.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-3]))

    async def story() -> None:
        async with scene.daemon() as daemon:
            assert not scene.machine.specified()
            await daemon.synchronize(sandbox)
            assert scene.machine.addresses(sandbox, "net1") == {"192.0.2.7/24"}
            assert scene.machine.specified()

    asyncio.run(story())


def test_an_unreadable_checkpoint_is_moved_aside_and_does_not_block_the_daemon(scene: Scene) -> None:
    _, sandbox = attached(scene)
    (scene.machine.settings.state / "sb-damaged.jsonl").write_text("{\n")

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            await rounds(daemon)
            assert scene.machine.checkpoints() == {sandbox.id}
            assert (scene.machine.settings.state / "sb-damaged.jsonl.bad-0").exists()

    asyncio.run(story())


def test_a_change_in_a_running_pod_is_reported_once_and_left_in_place(scene: Scene) -> None:
    _, sandbox = attached(scene)

    async def story() -> None:
        async with scene.daemon() as daemon:
            netns = sandbox.netns.rsplit("/", 1)[1]
            command = ("ip", "-n", netns, "link", "set", "net1", "mtu", "1300")
            done = await asyncio.create_subprocess_exec(*command)
            assert await done.wait() == 0
            await daemon.synchronize(sandbox)
            await daemon.synchronize(sandbox)
            (event,) = scene.told
            assert event.reason == "NetworkChanged"
            assert "1300" in event.note
            assert scene.machine.addresses(sandbox, "net1") == {"192.0.2.7/24"}

    asyncio.run(story())


def test_a_hook_waits_for_its_sandbox_while_it_is_reconciled(scene: Scene) -> None:
    _, sandbox = scene.of_three()

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.pods.hooks.synchronize([sandbox])
            async with asyncio.timeout(WITHIN):
                await asyncio.gather(daemon.run(sandbox), daemon.pods.recovery.wait_finished())
            assert scene.machine.links(sandbox) == {"lo", "net1"}
            await asyncio.gather(daemon.stop(sandbox), daemon.synchronize())
            assert not scene.machine.checkpoints()

    asyncio.run(story())


def test_a_pod_that_the_former_driver_attaches_meanwhile_keeps_its_specification(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, _ = attached(scene)
    (path,) = (path for path in scene.machine.files.cdi.iterdir() if scene.uid(claim) in path.name)
    text = path.read_text()
    path.unlink()
    attaches = iter((text,))

    def before_the_attach(_: Network) -> Sequence[Saved]:
        for content in attaches:
            path.write_text(content)
        return ()

    async def story() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Network, "checkpoints", before_the_attach)
            async with scene.daemon():
                assert scene.machine.specified() == {scene.uid(claim)}

    asyncio.run(story())


def test_a_network_that_the_former_driver_detaches_meanwhile_has_no_drift(scene: Scene) -> None:
    _, sandbox = attached(scene)

    async def story() -> None:
        async with scene.daemon() as daemon:
            (scene.machine.settings.state / f"{sandbox.id}.jsonl").unlink()
            with pytest.raises(TemporaryError, match="another process has detached it"):
                daemon.pods.recovery.network.drift(sandbox)

    asyncio.run(story())


def test_a_pod_that_the_former_driver_has_just_attached_is_not_attached_anew(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, sandbox = attached(scene)

    monkeypatch.setattr(Network, "checkpoints", lambda _: ())

    async def story() -> None:
        async with scene.daemon() as daemon:
            network, begun = daemon.pods.recovery.network, list[object]()
            monkeypatch.setattr(network.table, "begin_attach", lambda *given: begun.append(given))
            reference = ClaimReference(namespace=scene.workspace.namespace, name=claim, uid=scene.uid(claim))
            unused: Any = None

            async def attach() -> None:
                network.attach(sandbox, [ClaimDevices(reference)], unused, time.monotonic() + WITHIN)

            await network.table.act(sandbox, attach)
            assert not begun
            assert scene.machine.specified() == {scene.uid(claim)}

    asyncio.run(story())


def test_the_status_of_an_attached_network_is_compared_once(scene: Scene) -> None:
    claim, sandbox = attached(scene)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.written()
            await daemon.pods.tracker.at_rest()
            before = len(reads(daemon, claim))
            await daemon.synchronize(sandbox)
            await daemon.written()
            assert len(reads(daemon, claim)) == before
            await daemon.stop(sandbox)
            await daemon.written()
            assert len(reads(daemon, claim)) > before

    asyncio.run(story())


def reads(daemon: Daemon, claim: str) -> list[Request]:
    """The requests of a daemon for a claim."""
    return [request for request in daemon.proxy.requests if request.path.endswith(f"/resourceclaims/{claim}")]
