"""A prepared claim is a checked plan: the hook executes it, independent of its topology and the API server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.plan import ClaimReference
from netdra.node.permits import NodePermits
from netdra.node.sandboxes.network import Network
from netdra.node.sandboxes.table import DetachOutcome
from testbed.objects import POD
from testbed.waiting import awaited, until_async
from tests.cluster.fault_proxy import Answer, Stall
from tests.cluster.sandboxes.former import attached, rounds
from tests.cluster.sandboxes.scene import Scene, chain_of_three, ready, step


def reference(scene: Scene, claim: str) -> ClaimReference:
    return ClaimReference(namespace=scene.workspace.namespace, name=claim, uid=scene.uid(claim))


def test_a_pod_is_attached_while_the_api_server_is_away_and_its_topology_is_deleted(scene: Scene) -> None:
    claim, sandbox = scene.of_three()
    pod = scene.workspace.api.get(POD, sandbox.name, sandbox.namespace)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.seen(pod)
            daemon.pods.tracker._claims.clear()  # nothing but the record says which claims are ours
            daemon.proxy.fault = lambda _: Answer.status(503)
            daemon.proxy.cut_all()
            scene.view.topologies = {}
            await daemon.run(sandbox)
            assert "net1" in scene.machine.links(sandbox)
            assert scene.machine.addresses(sandbox, "net1") == {"192.0.2.7/24"}
            assert scene.machine.specified() == {scene.uid(claim)}
            (event,) = [event for event in scene.told if event.reason == "TopologyChanged"]
            assert "was deleted" in event.note
            daemon.proxy.fault = lambda _: None

    asyncio.run(story())


def test_a_topology_that_changed_after_prepare_changes_no_pod_and_is_reported_once(scene: Scene) -> None:
    scene.publish("eth7")
    topology = scene.topology("three", *chain_of_three())
    sandbox = scene.machine.sandbox(scene.pod(scene.claim(topology)))
    scene.change(topology, *chain_of_three("192.0.2.8/24"))

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            assert scene.machine.addresses(sandbox, "net1") == {"192.0.2.7/24"}
            await daemon.synchronize(sandbox)
            (event,) = [event for event in scene.told if event.reason == "TopologyChanged"]
            assert f'of NetworkTopology "{topology}", which is at generation' in event.note
            await daemon.stop(sandbox)
            assert "eth7" in scene.machine.links()

    asyncio.run(story())


@pytest.fixture(params=["missing", "unreadable", "of a netdra without plans"])
def spoil(request: pytest.FixtureRequest, scene: Scene) -> Callable[[str], None]:
    """Spoils a claim's record."""

    def act(uid: str) -> None:
        path = scene.machine.store.folder / f"{uid}.json"
        if request.param == "missing":
            path.unlink()
        elif request.param == "unreadable":
            path.write_bytes(b"{")
        else:
            record = json.loads(path.read_text())
            path.write_text(json.dumps({key: record[key] for key in record if key not in ("plan", "pods")}))

    return act


def test_a_claim_whose_record_is_of_no_use_is_prepared_again_by_the_hook(
    scene: Scene, spoil: Callable[[str], None]
) -> None:
    claim, sandbox = scene.of_three()
    uid = scene.uid(claim)
    before = scene.machine.store.get(uid)
    other = scene.machine.store.folder / "00000000-0000-4000-8000-000000000000.json"
    other.write_text("{}")  # the node has prepared claims, so a pod without a record may have one of ours
    spoil(uid)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            assert scene.machine.addresses(sandbox, "net1") == {"192.0.2.7/24"}
            assert scene.machine.specified() == {uid}
            after = scene.machine.store.get(uid)
            assert after is not None
            assert before is not None
            assert (after.told, after.plan) == (before.told, before.plan)
            await daemon.written()
            assert ready(scene.stored(claim))["status"] == "True"
            await daemon.stop(sandbox)

    asyncio.run(story())


def test_a_claim_that_cannot_be_prepared_again_in_time_refuses_its_pod_and_the_next_try_finds_it(scene: Scene) -> None:
    claim, sandbox = scene.of_three()
    (scene.machine.store.folder / f"{scene.uid(claim)}.json").unlink()
    (scene.machine.store.folder / "00000000-0000-4000-8000-000000000000.json").write_text("{}")
    pod = scene.workspace.api.get(POD, sandbox.name, sandbox.namespace)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.seen(pod)
            daemon.pods.tracker._read_at.clear()  # preparing asks the API server for the claim
            daemon.proxy.fault = lambda request: Stall() if "/resourceclaims/" in request.path else None
            with pytest.raises(TemporaryError, match="is being prepared again"):
                await daemon.run(sandbox, 1.5)
            assert "net1" not in scene.machine.links(sandbox)
            daemon.proxy.fault = lambda _: None
            daemon.proxy.cut_all()
            await until_async(lambda: scene.machine.store.get(scene.uid(claim)), "the claim to be prepared")
            await daemon.run(sandbox)
            assert "net1" in scene.machine.links(sandbox)

    asyncio.run(story())


def test_a_running_pods_lost_record_is_written_again_and_its_containers_can_be_made(scene: Scene) -> None:
    claim, sandbox = attached(scene)
    uid = scene.uid(claim)
    scene.machine.store.remove(uid)

    async def story() -> None:
        async with scene.daemon() as daemon:
            assert scene.machine.specified() == {uid}  # a container that starts again needs it
            await daemon.synchronize(sandbox)
            assert scene.machine.store.has(uid)
            assert scene.machine.specified() == {uid}
            await daemon.stop(sandbox)

    asyncio.run(story())


def test_a_node_with_reduced_permits_rejects_a_plan_that_it_checked_before(scene: Scene) -> None:
    scene.publish("eth7")
    topology = scene.topology("recorded", step("nic", "host-device"), step("far", "recorded", after=("nic",)))
    sandbox = scene.machine.sandbox(scene.pod(scene.claim(topology)))
    scene.permits = NodePermits(plugins=("macvlan",))

    async def story() -> None:
        async with scene.daemon() as daemon:
            with pytest.raises(InvalidInputError, match="recorded"):
                await daemon.run(sandbox)
            assert "eth7" in scene.machine.links()

    asyncio.run(story())


def test_a_claim_is_not_released_while_the_watch_lacks_its_pod(scene: Scene) -> None:
    scene.publish("eth7")
    topology = scene.topology("one", step("nic", "host-device"))

    async def story() -> None:
        async with scene.daemon() as daemon:
            # The watch stands still from here on, as it does for as long as it is behind.
            daemon.proxy.fault = lambda request: Stall() if request.is_watch else None
            daemon.proxy.cut_all()
            claim = await asyncio.to_thread(scene.claim, topology)
            await asyncio.to_thread(scene.pod, claim)
            uid = await asyncio.to_thread(scene.uid, claim)
            await rounds(daemon, 4)
            assert uid in scene.machine.store.uids()
            daemon.proxy.fault = lambda _: None
            daemon.proxy.cut_all()

    asyncio.run(story())


def test_a_defect_in_one_sandbox_keeps_no_other_from_being_taken_down(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scene.publish("eth7", "eth8")
    topology = scene.topology("one", step("nic", "host-device"))
    boxes = [scene.machine.sandbox(scene.pod(scene.claim(topology))) for _ in range(2)]
    undo = Network.undo

    def fails(network: Network, sandbox: str, *arguments: Any, **named: Any) -> DetachOutcome:
        if sandbox == boxes[0].id:
            raise OSError(5, "Input/output error")
        return undo(network, sandbox, *arguments, **named)

    async def story() -> None:
        async with scene.daemon() as daemon:
            for box in boxes:
                await daemon.run(box)
            monkeypatch.setattr(Network, "undo", fails)
            for box in boxes:
                scene.machine.end(box)
            await rounds(daemon, 2)
            assert scene.machine.checkpoints() == {boxes[0].id}
            assert "Input/output error" in caplog.text
            monkeypatch.undo()
            await rounds(daemon)
            assert not scene.machine.checkpoints()

    asyncio.run(story())


def test_a_claim_is_given_back_only_when_the_thread_of_its_pod_has_ended(scene: Scene) -> None:
    claim, sandbox = attached(scene)
    wanted = reference(scene, claim)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            daemon.pods.hooks.table.mark_ended(sandbox.id)
            stuck, may_end = asyncio.Event(), threading.Event()
            loop, undo = asyncio.get_running_loop(), daemon.pods.network.undo

            def slow(*arguments: Any, **named: Any) -> Any:
                if not stuck.is_set():  # a second thread beside the first one would end at once
                    loop.call_soon_threadsafe(stuck.set)
                    may_end.wait()
                return undo(*arguments, **named)

            daemon.pods.network.undo = slow  # type: ignore[method-assign]
            turns = daemon.pods.claims.releases.turns
            first = asyncio.create_task(turns.run(wanted.uid, lambda: daemon.pods.claims.unprepare(wanted)))
            await awaited(stuck.wait(), "the thread to begin")
            first.cancel()  # the kubelet's deadline has passed
            again = asyncio.create_task(turns.run(wanted.uid, lambda: daemon.pods.claims.unprepare(wanted)))
            try:
                await asyncio.sleep(1.0)
                assert not again.done()
                assert scene.machine.store.has(wanted.uid)
            finally:
                may_end.set()
            await awaited(again, "the claim to be given back")
            assert "eth7" in scene.machine.links()
            assert not scene.machine.store.has(wanted.uid)

    asyncio.run(story())
