"""Which claims a pod has, asked of the real API server: known without asking, asked where it must be, else refused."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from netdra.model.errors import TemporaryError
from testbed.api import Object
from testbed.objects import CLAIM, POD, manifest
from testbed.objects import pod as pod_manifest
from testbed.waiting import awaited
from tests.cluster.fault_proxy import Answer, Stall
from tests.cluster.sandboxes.scene import Daemon, Scene, chain_of_three, step

SECONDS = 60.0


async def names(daemon: Daemon, scene: Scene, of: Object, seconds: float = SECONDS) -> list[str]:
    claims = await daemon.pods.tracker.claims_of(scene.machine.sandbox(of), seconds)
    return [claim.name for claim in claims]


@pytest.fixture
def topology(scene: Scene) -> str:
    scene.publish("eth7", "eth8", "eth9")
    return scene.topology("t", step("nic", "host-device"))


def test_a_pod_without_claims_costs_no_request(scene: Scene, topology: str) -> None:
    scene.pod(scene.claim(topology))
    plain = scene.pod()

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.seen(plain)
            before = daemon.proxy.count()
            sandbox = scene.machine.sandbox(plain)
            await daemon.run(sandbox)
            await daemon.stop(sandbox)
            await daemon.pods.hooks.remove(sandbox)
            assert daemon.proxy.count() == before

    asyncio.run(story())


def test_a_pod_that_was_seen_is_known_without_asking_and_its_claims_are_in_its_order(
    scene: Scene, topology: str
) -> None:
    claims = [scene.claim(topology, name) for name in ("zeta", "alpha", "mid")]
    pod = scene.pod(*claims)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.seen(pod)
            before = daemon.proxy.count()
            assert await names(daemon, scene, pod) == ["zeta", "alpha", "mid"]
            assert daemon.proxy.count() == before

    asyncio.run(story())


def test_a_claim_from_a_template_and_one_for_extended_resources_are_found_the_latter_last(
    scene: Scene, topology: str
) -> None:
    namespace, api = scene.workspace.namespace, scene.workspace.api
    request = {"name": "nic", "exactly": {"deviceClassName": f"{topology}-nic"}}
    template = {"spec": {"devices": {"requests": [request]}}}
    kind = "resource.k8s.io/v1/ResourceClaimTemplate"
    api.create(manifest(kind, "tpl", namespace, spec=template))
    resource = f"{scene.workspace.name('nic')}.example.com/nic"
    scene.topology("extended", {**step("nic", "host-device"), "extendedResourceName": resource})
    resources = {"claims": [{"name": "a"}], "requests": {resource: "1"}, "limits": {resource: "1"}}
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": scene.node},
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "none", "resources": resources}],
        "resourceClaims": [{"name": "a", "resourceClaimTemplateName": "tpl"}],
    }
    api.create(manifest(POD, "p", namespace, spec=spec))
    placed, reason = scene.workspace.schedule("p")
    assert placed == scene.node, reason

    async def story() -> None:
        async with scene.daemon() as daemon:
            found = await names(daemon, scene, api.get(POD, "p", namespace))
            assert [name.startswith(begin) for name, begin in zip(found, ("p-a-", "p-extended-"), strict=True)] == [
                True,
                True,
            ]

    asyncio.run(story())


def test_claims_of_other_drivers_are_ignored(scene: Scene, topology: str) -> None:
    ours = scene.claim(topology)
    node = scene.node
    other_class = scene.workspace.add_class("other", 'device.driver == "other.example.com"')
    pool = {"name": f"{node}-other", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "other.example.com", "nodeName": node, "pool": pool, "devices": [{"name": "gpu"}]}
    scene.workspace.publish(
        node, manifest("resource.k8s.io/v1/ResourceSlice", scene.workspace.name("other"), spec=spec)
    )
    other = scene.workspace.add_claim("other", {"name": "gpu", "exactly": {"deviceClassName": other_class}})
    pod = scene.pod(other, ours)

    async def story() -> None:
        async with scene.daemon() as daemon:
            assert await names(daemon, scene, pod) == [ours]
            assert all(not claim.spec.devices.requests for claim in daemon.pods.tracker.claims)

    asyncio.run(story())


def test_a_pod_that_the_watch_has_not_brought_is_asked_for(scene: Scene, topology: str) -> None:
    claim = scene.claim(topology)
    pod = scene.pod(claim)

    async def story() -> None:
        async with scene.daemon(watching=False) as daemon:
            assert await names(daemon, scene, pod) == [claim]
            assert any("/pods/" in request.path for request in daemon.proxy.requests)

    asyncio.run(story())


@pytest.mark.parametrize("fault", [Answer.status(503), Stall()], ids=["refuses", "is silent"])
def test_while_the_api_server_does_not_answer_an_unknown_pod_is_refused_in_time(
    scene: Scene, topology: str, fault: Any
) -> None:
    pod = scene.pod(scene.claim(topology))

    async def story() -> None:
        async with scene.daemon(watching=False) as daemon:
            daemon.proxy.fault = lambda _: fault
            with pytest.raises(TemporaryError, match="cannot be known"):
                await daemon.run(scene.machine.sandbox(pod), budget=1.0)

    asyncio.run(story())


def test_without_prepared_claims_an_unknown_pod_needs_no_request_to_the_api_server(scene: Scene, topology: str) -> None:
    pod = scene.pod(scene.claim(topology), prepare=False)

    async def story() -> None:
        async with scene.daemon(watching=False) as daemon:
            daemon.proxy.fault = lambda _: Answer.status(503)
            await daemon.run(scene.machine.sandbox(pod))
            assert not daemon.proxy.requests

    asyncio.run(story())


def test_another_pod_of_the_same_name_does_not_get_its_claims(scene: Scene, topology: str) -> None:
    pod = scene.pod(scene.claim(topology))
    former = msgspec.structs.replace(scene.machine.sandbox(pod), uid="11111111-1111-1111-1111-111111111111")

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.seen(pod)
            with pytest.raises(TemporaryError, match="another pod has its name"):
                await daemon.run(former)

    asyncio.run(story())


def test_a_claim_that_is_not_reserved_for_the_pod_is_refused_to_it(scene: Scene, topology: str) -> None:
    claim = scene.claim(topology)
    scene.pod(claim)
    namespace = scene.workspace.namespace
    scene.workspace.api.create(pod_manifest(namespace, "other", {"c": claim}, node="nowhere"))
    other = scene.workspace.api.get(POD, "other", namespace)

    async def story() -> None:
        async with scene.daemon() as daemon:
            with pytest.raises(TemporaryError, match="is not reserved for it"):
                await daemon.run(scene.machine.sandbox(other))

    asyncio.run(story())


def test_claims_are_forgotten_with_the_last_pod_that_names_them(scene: Scene) -> None:
    scene.publish("eth7", shared=True)
    claim = scene.claim(scene.topology("shares", step("mac", "macvlan")))
    one, other = scene.pod(claim), scene.pod(claim)

    async def story() -> None:
        async with scene.daemon() as daemon:
            tracker = daemon.pods.tracker
            for pod in (one, other):
                await daemon.seen(pod)
            assert [claim.metadata.name for claim in tracker.claims] == [claim]
            for pod, left in ((one, [claim]), (other, [])):
                scene.workspace.api.delete(POD, pod["metadata"]["name"], scene.workspace.namespace)
                key = f"{scene.workspace.namespace}/{pod['metadata']['name']}"
                gone = tracker.pods.until(lambda key=key: key not in tracker.pods.objects)  # type: ignore[misc]
                await awaited(gone, "the watch to miss a pod")
                assert [claim.metadata.name for claim in tracker.claims] == left

    asyncio.run(story())


def test_of_a_pod_that_is_watched_little_is_kept(scene: Scene, topology: str) -> None:
    pod = scene.pod(scene.claim(topology))
    noise = {"metadata": {"annotations": {"a": "x" * 10_000}, "labels": {"l": "y"}}}
    scene.workspace.api.patch(POD, pod["metadata"]["name"], noise, namespace=scene.workspace.namespace)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.seen(pod)
            (kept,) = daemon.pods.tracker.pods.objects.values()
            assert len(msgspec.json.encode(kept)) < 500

    asyncio.run(story())


def test_the_chain_of_a_pod_that_came_before_the_watch_is_attached_too(scene: Scene) -> None:
    scene.publish("eth7")
    pod = scene.pod(scene.claim(scene.topology("three", *chain_of_three())))

    async def story() -> None:
        async with scene.daemon(watching=False) as daemon:
            sandbox = scene.machine.sandbox(pod)
            await daemon.run(sandbox)
            assert "net1" in scene.machine.links(sandbox)

    asyncio.run(story())
    assert scene.workspace.api.list(CLAIM, scene.workspace.namespace)
