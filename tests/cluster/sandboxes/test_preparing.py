"""A claim is read once for its pod: Prepare takes what the watch's reading brought, and asks where that does not do."""

from __future__ import annotations

import asyncio

import pytest

from netdra.chain import returned
from netdra.model.errors import TemporaryError
from netdra.model.plan import ClaimReference
from netdra.node.claims import prepare as preparing
from netdra.node.sandboxes import examiner
from netdra.node.sandboxes.tracker import AT_ONCE
from testbed.objects import CLAIM, POD
from testbed.waiting import awaited
from tests.cluster.fault_proxy import Answer, Stall
from tests.cluster.sandboxes.scene import Scene, chain_of_three, step


def reference(scene: Scene, claim: str) -> ClaimReference:
    return ClaimReference(namespace=scene.workspace.namespace, name=claim, uid=scene.uid(claim))


def test_a_claim_that_was_read_for_its_pod_is_prepared_without_a_request_and_the_next_time_it_is_asked_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "API_SECONDS", 0.0)
    scene.publish("eth7")
    claim = scene.claim(scene.topology("three", *chain_of_three()))
    pod = scene.pod(claim, prepare=False)
    wanted = reference(scene, claim)
    store = scene.machine.store

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.seen(pod)
            daemon.proxy.fault = lambda _: Answer.status(503)
            daemon.proxy.cut_all()
            told = await daemon.pods.claims.prepare(wanted)
            written = store.get(wanted.uid)
            await daemon.pods.claims.unprepare(wanted)
            with pytest.raises(TemporaryError):
                await daemon.pods.claims.prepare(wanted)
            daemon.proxy.fault = lambda _: None
            assert await daemon.pods.claims.prepare(wanted) == told
            assert store.get(wanted.uid) == written

    asyncio.run(story())


@pytest.mark.parametrize("changes", [False, True])
def test_a_pods_claim_takes_three_requests_from_its_start_to_its_end_unless_it_was_changed(
    scene: Scene, changes: bool
) -> None:
    scene.publish("eth7")
    claim = scene.claim(scene.topology("three", *chain_of_three()))
    pod = scene.pod(claim, prepare=False)
    wanted, sandbox = reference(scene, claim), scene.machine.sandbox(pod)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.seen(pod)
            await daemon.pods.claims.prepare(wanted)
            if changes:
                changed = {"metadata": {"annotations": {"example.com/by": "another"}}}
                scene.workspace.api.patch(CLAIM, claim, changed, namespace=scene.workspace.namespace)
            await daemon.run(sandbox)
            await daemon.written()
            assert scene.stored(claim)["status"]["devices"][0]["conditions"][0]["status"] == "True"
            await daemon.stop(sandbox)
            await daemon.pods.hooks.remove(sandbox)
            await daemon.written()
            made = [request.method for request in daemon.proxy.requests if f"/resourceclaims/{claim}" in request.path]
            assert made == (["GET", "PUT", "GET", "PUT", "PUT"] if changes else ["GET", "PUT", "PUT"])

    asyncio.run(story())


def test_the_cached_object_of_another_claim_with_the_same_name_is_not_used(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "API_SECONDS", 0.0)
    scene.publish("eth7")
    claim = scene.claim(scene.topology("three", *chain_of_three()))
    pod = scene.pod(claim, prepare=False)
    other = ClaimReference(namespace=scene.workspace.namespace, name=claim, uid="00000000-0000-4000-8000-000000000000")

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.seen(pod)
            with pytest.raises(TemporaryError, match="deleted and created again"):
                await daemon.pods.claims.prepare(other)
            assert scene.machine.store.get(other.uid) is None

    asyncio.run(story())


def test_while_readings_of_other_pods_claims_hang_a_pod_that_comes_gets_its_network(scene: Scene) -> None:
    stuck = [f"stuck-{number}" for number in range(AT_ONCE)]
    scene.publish("eth7", *(f"eth{number}" for number in range(AT_ONCE)))
    topology = scene.topology("one", step("nic", "host-device"))

    async def story() -> None:
        async with scene.daemon() as daemon:
            tracker = daemon.pods.tracker
            daemon.proxy.fault = lambda request: Stall() if "/resourceclaims/stuck-" in request.path else None
            for name in stuck:
                await asyncio.to_thread(scene.pod, scene.claim(topology, name), prepare=False)
            pod = await asyncio.to_thread(scene.pod, scene.claim(topology))
            key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            await awaited(tracker.pods.until(lambda: key in tracker.pods.objects), "the watch to bring a pod")
            sandbox = scene.machine.sandbox(pod)
            await daemon.run(sandbox, 30.0)
            assert "net1" in scene.machine.links(sandbox)

    asyncio.run(story())


def test_preparing_a_claim_examines_a_device_that_another_pod_returned(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the start of its pod, which has less time, does not have to search the node's network namespaces."""
    monkeypatch.setattr(examiner, "LEAST_PAUSE", 1000.0)
    monkeypatch.setattr(examiner, "FIRST_SECONDS", 1000.0)
    scene.publish("eth7")
    topology = scene.topology("three", *chain_of_three())
    state = scene.machine.settings.state

    async def story() -> None:
        async with scene.daemon() as daemon:
            for _ in range(2):
                pod = await asyncio.to_thread(scene.pod, scene.claim(topology), prepare=False)
                claim = pod["spec"]["resourceClaims"][0]["resourceClaimName"]
                await daemon.pods.claims.prepare(reference(scene, claim))
                assert not returned.marks(state)
                sandbox = scene.machine.sandbox(pod)
                await daemon.run(sandbox)
                await daemon.stop(sandbox)
                assert len(returned.marks(state)) == 1
                wanted = reference(scene, claim)
                await daemon.pods.claims.unprepare(wanted)
                for kind, name in ((POD, pod["metadata"]["name"]), (CLAIM, claim)):
                    await asyncio.to_thread(scene.workspace.api.delete, kind, name, scene.workspace.namespace)

    asyncio.run(story())
