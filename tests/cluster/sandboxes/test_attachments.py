"""A pod's network by the runtime's hooks: complete before its containers, undone after, or refused with a reason."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from contextlib import closing, suppress

import msgspec
import pytest

from netdra.chain import announcements
from netdra.kernel import link
from netdra.model.errors import InvalidInputError, NetdraError, TemporaryError
from netdra.model.plan import ClaimReference
from netdra.node.nri.hooks import Sandbox
from netdra.node.view import VFTrouble
from testbed.api import ApiError
from testbed.objects import CLAIM, POD, SLICE, manifest
from testbed.recorder import Recorder
from testbed.waiting import awaited, until_async
from tests.cluster.sandboxes.gate import shared
from tests.cluster.sandboxes.scene import WITHIN, Scene, chain_of_three, ready, step

SLOW_SECONDS = 30.0
"""For how long a plugin would run that is not ended."""


def test_a_chain_of_three_steps_is_there_before_the_hook_returns_and_gone_after_the_stop(scene: Scene) -> None:
    claim, sandbox = scene.of_three()

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            assert scene.machine.links(sandbox) == {"lo", "net1"}
            assert scene.machine.addresses(sandbox, "net1") == {"192.0.2.7/24"}
            assert scene.machine.specified() == {scene.uid(claim)}
            await daemon.written()
            (device,) = scene.stored(claim)["status"]["devices"]
            assert device["networkData"]["interfaceName"] == "net1"
            assert device["networkData"]["ips"] == ["192.0.2.7/24"]
            assert device["networkData"]["hardwareAddress"]
            assert [each["step"] for each in device["data"]["pods"][0]["steps"]] == ["nic", "address", "size"]
            assert ready(scene.stored(claim))["status"] == "True"

            await daemon.stop(sandbox)
            await daemon.written()
            assert scene.machine.links(sandbox) == {"lo"}
            assert "eth7" in scene.machine.links()
            assert not scene.machine.specified()
            assert not scene.machine.checkpoints()
            assert not scene.stored(claim)["status"].get("devices")

    asyncio.run(story())


def test_a_pod_that_starts_and_ends_is_at_most_one_line_of_the_log_each(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    _, sandbox = scene.of_three()

    def lines() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.name.startswith("netdra.")]

    async def story() -> None:
        async with scene.daemon() as daemon:
            caplog.clear()
            await daemon.run(sandbox)
            await daemon.written()
            assert len(lines()) <= 1, lines()
            caplog.clear()
            await daemon.stop(sandbox)
            await daemon.written()
            assert len(lines()) <= 1, lines()

    with caplog.at_level(logging.INFO, "netdra"):
        asyncio.run(story())


def test_the_trouble_of_a_vf_is_a_condition_of_its_claim_while_it_lasts(scene: Scene) -> None:
    claim, sandbox = scene.of_three()

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            reference = ClaimReference(namespace=scene.workspace.namespace, name=claim, uid=scene.uid(claim))
            # The device of the scene is a veth, which does not define PCI address.
            trouble = VFTrouble(claim=reference, vf="", name="p0v0", reason="VFGone", message="VF p0v0 is gone")
            daemon.pods.writer.note_troubles([trouble])
            await daemon.written()
            attached, health = scene.stored(claim)["status"]["devices"][0]["conditions"]
            assert attached["status"] == "True"
            assert [health[key] for key in ("type", "status", "reason")] == ["Healthy", "False", "VFGone"]
            daemon.pods.writer.note_troubles([])
            await daemon.written()
            assert ready(scene.stored(claim))["status"] == "True"

    asyncio.run(story())


def test_an_interface_without_a_carrier_is_a_condition_of_its_claim_until_it_has_one(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "PAUSES", (0.1, 0.1))
    monkeypatch.setattr(announcements, "SLOW", 0.1)
    claim, sandbox = scene.of_three()

    async def story() -> None:
        async with scene.daemon() as daemon:
            set_peer(scene, up=False)
            await daemon.run(sandbox)
            await until_async(lambda: unhealthy(scene, claim), "the condition", seconds=WITHIN)
            assert unhealthy(scene, claim) == ['interface "net1" has no carrier (operstate lowerlayerdown)']
            set_peer(scene, up=True)
            await until_async(lambda: not unhealthy(scene, claim), "the condition to end", seconds=WITHIN)

    asyncio.run(story())


def test_an_address_is_announced_again_at_once_when_the_carrier_comes_and_when_it_comes_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "PAUSES", (0.1,))
    monkeypatch.setattr(announcements, "SLOW", 600.0)
    _, sandbox = scene.of_three()

    async def story() -> None:
        with closing(scene.machine.host.run(_arp)) as wire:
            async with scene.daemon() as daemon:
                set_peer(scene, up=False)
                await daemon.run(sandbox)
                await until_async(lambda: daemon.pods.links.states, "the first look at the link")
                assert not announced(wire)
                for _ in range(2):
                    set_peer(scene, up=True)
                    await until_async(lambda: announced(wire), "the announcement", seconds=WITHIN)
                    await until_async(lambda: not daemon.pods.hooks.carriers.followed, "no more looks", seconds=WITHIN)
                    announced(wire)
                    set_peer(scene, up=False)

    asyncio.run(story())


def _arp() -> socket.socket:
    """A socket for the ARP packets of a network namespace."""
    return socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, socket.htons(0x0806))


def announced(wire: socket.socket) -> bool:
    """Whether the pod's address was announced since the last call, by its host (RFC 5227, 3)."""
    seen = False
    with suppress(BlockingIOError):
        while True:
            packet = wire.recv(2048)
            seen |= packet[14:18] == packet[24:28] == socket.inet_aton("192.0.2.7")
    return seen


def unhealthy(scene: Scene, claim: str) -> list[str]:
    """The messages of a claim's conditions about a carrier; its devices are ready."""
    devices = scene.stored(claim)["status"].get("devices", [])
    found = [condition for device in devices for condition in device["conditions"]]
    assert all(each["status"] == "True" for each in found if each["type"] == "Ready")
    return [each["message"] for each in found if (each["type"], each["reason"]) == ("Healthy", "NoCarrier")]


def set_peer(scene: Scene, *, up: bool) -> None:
    """Set the other end of the wire of eth7 up or down."""
    with scene.machine.host.socket() as sock:
        link.change(sock, "eth7p", up=up)


def test_the_condition_of_an_interface_without_a_carrier_outlives_the_daemon_and_ends_with_its_cause(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "PAUSES", (0.1, 0.1))
    monkeypatch.setattr(announcements, "SLOW", 0.1)
    claim, sandbox = scene.of_three()

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            await daemon.written()
        set_peer(scene, up=False)
        async with scene.daemon() as daemon:
            await daemon.written()
            assert unhealthy(scene, claim), "lost while no daemon ran"
        monkeypatch.setattr(announcements, "PAUSES", (60.0,))
        async with scene.daemon() as daemon:
            await daemon.written()
            assert unhealthy(scene, claim), "before the runtime has listed its sandboxes"
            monkeypatch.setattr(announcements, "PAUSES", (0.1, 0.1))
            await daemon.synchronize(sandbox)
            await daemon.synchronize(sandbox)
            await daemon.written()
            assert unhealthy(scene, claim)
            assert len(daemon.pods.hooks.carriers.followed) == 1
            set_peer(scene, up=True)
            await until_async(lambda: not unhealthy(scene, claim), "the condition to end", seconds=WITHIN)
            await until_async(lambda: not daemon.pods.hooks.carriers.followed, "no more looks", seconds=WITHIN)

    asyncio.run(story())


def test_a_claim_that_cannot_be_prepared_is_not_ready_until_its_pod_is_attached(scene: Scene) -> None:
    scene.publish("eth7")
    offered = {key: msgspec.structs.replace(device, policy="rails") for key, device in scene.view.devices.items()}
    scene.view.devices = offered
    claim = scene.claim(scene.topology("three", *chain_of_three()))
    pod = scene.pod(claim, prepare=False)
    reference = ClaimReference(namespace=scene.workspace.namespace, name=claim, uid=scene.uid(claim))

    async def story() -> None:
        async with scene.daemon() as daemon:
            writer = daemon.pods.writer
            writer.note_prepare(reference, "eth7 has no carrier; look at the cable")
            await daemon.written()
            (device,) = scene.stored(claim)["status"]["devices"]
            assert (device["device"], device["data"], "networkData" in device) == ("eth7", {"policy": "rails"}, False)
            said = ready(scene.stored(claim))
            assert [said[key] for key in ("status", "reason")] == ["False", "NotPrepared"]
            assert said["message"] == "eth7 has no carrier; look at the cable"
            before = len(daemon.proxy.requests)
            writer.note_prepare(reference, "eth7 has no carrier; look at the cable")
            await daemon.written()
            assert len(daemon.proxy.requests) == before, "the kubelet asks again each minute"

            await daemon.pods.claims.prepare(reference)
            writer.note_prepare(reference)
            await daemon.written()
            assert not scene.stored(claim)["status"].get("devices")
            await daemon.run(scene.machine.sandbox(pod))
            await daemon.written()
            (device,) = scene.stored(claim)["status"]["devices"]
            assert device["data"]["policy"] == "rails"
            assert ready(scene.stored(claim))["status"] == "True"

    asyncio.run(story())


def test_a_prepare_failure_of_a_deleted_claim_is_dropped_without_more_requests(scene: Scene) -> None:
    gone = ClaimReference(namespace=scene.workspace.namespace, name="gone", uid="u-gone")

    async def story() -> None:
        async with scene.daemon() as daemon:
            daemon.pods.writer.note_prepare(gone, "it is not there any more")
            await daemon.written()
            before = len(daemon.proxy.requests)
            daemon.pods.writer.note_prepare(gone)
            await daemon.written()
            assert len(daemon.proxy.requests) == before

    asyncio.run(story())


def test_hooks_may_come_again_late_and_without_a_namespace(scene: Scene) -> None:
    _, sandbox = scene.of_three()

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            before = (scene.machine.settings.state / f"{sandbox.id}.jsonl").read_text()
            await asyncio.gather(daemon.run(sandbox), daemon.run(sandbox))
            assert (scene.machine.settings.state / f"{sandbox.id}.jsonl").read_text() == before
            scene.machine.end(sandbox)
            await daemon.stop(sandbox)
            await daemon.stop(sandbox)
            await daemon.pods.hooks.remove(sandbox)
            assert not scene.machine.checkpoints()
            assert not scene.machine.specified()

    asyncio.run(story())


def test_a_claim_whose_parameters_were_written_with_blanks_gets_its_status_which_no_patch_could_give_it(
    scene: Scene,
) -> None:
    scene.publish("eth7")
    topology = scene.topology("three", *chain_of_three())
    request = {"name": "nic", "exactly": {"deviceClassName": f"{topology}-nic"}}
    config = {"opaque": {"driver": "other.example.com", "parameters": {"some": "thing", "more": [1, 2]}}}
    spec = {"devices": {"requests": [request], "config": [config]}}
    whole = manifest(CLAIM, "c", scene.workspace.namespace, spec=spec)
    assert '"some": "thing", ' in json.dumps(whole)
    scene.workspace.api.create(whole)
    sandbox = scene.machine.sandbox(scene.pod("c"))
    devices = [{"driver": "dra.networking", "pool": scene.node, "device": "eth7"}]
    with pytest.raises(ApiError, match=r"status\.allocation: .*cannot be modified once set"):
        scene.workspace.api.apply(
            manifest(CLAIM, "c", scene.workspace.namespace, status={"devices": devices}), subresource="status"
        )

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            await daemon.written()
            assert ready(scene.stored("c"))["status"] == "True"

    asyncio.run(story())


def test_status_of_other_drivers_is_kept_and_an_unchanged_status_is_not_rewritten(scene: Scene) -> None:
    scene.publish("eth7")
    node, other = scene.node, "other.example.com"
    pool = {"name": f"{node}-other", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": other, "nodeName": node, "pool": pool, "devices": [{"name": "gpu"}]}
    scene.workspace.publish(node, manifest(SLICE, scene.workspace.name("other"), spec=spec))
    other_class = scene.workspace.add_class("other", f'device.driver == "{other}"')
    topology = scene.topology("three", *chain_of_three())
    claim = scene.workspace.add_claim(
        "both",
        {"name": "nic", "exactly": {"deviceClassName": f"{topology}-nic"}},
        {"name": "gpu", "exactly": {"deviceClassName": other_class}},
    )
    sandbox = scene.machine.sandbox(scene.pod(claim))
    stored = scene.stored(claim)
    theirs = {"driver": other, "pool": f"{node}-other", "device": "gpu", "data": {"a": [1, 1.5, "x"]}}
    stored["status"]["devices"] = [theirs]
    scene.workspace.api.update(stored, subresource="status")

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            await daemon.written()
            stored = scene.stored(claim)
            assert [each["driver"] for each in stored["status"]["devices"]] == [other, "dra.networking"]
            before = len(daemon.proxy.requests)
            (outcome,) = daemon.pods.writer.of_pod(sandbox.uid)
            daemon.pods.writer.forget("another sandbox of the claim", (outcome.claim,))
            await daemon.written()
            assert {request.method for request in daemon.proxy.requests[before:]} == {"GET"}
            await daemon.stop(sandbox)
            await daemon.written()
            (left,) = scene.stored(claim)["status"]["devices"]
            assert left["data"] == theirs["data"]

    asyncio.run(story())


@pytest.mark.parametrize("others_write", [False, True])
def test_the_status_at_a_pods_end_takes_one_request_unless_another_client_wrote_the_claim(
    scene: Scene, others_write: bool
) -> None:
    claim, sandbox = scene.of_three()

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            await daemon.written()
            if others_write:
                labelled = scene.stored(claim)
                labelled["metadata"]["labels"] = {"example.com/theirs": "1"}
                scene.workspace.api.update(labelled)
            before = len(daemon.proxy.requests)
            await daemon.stop(sandbox)
            await daemon.written()
            methods = [request.method for request in daemon.proxy.requests[before:] if claim in request.path]
            assert methods == (["PUT", "GET", "PUT"] if others_write else ["PUT"])
            left = scene.stored(claim)
            assert not left["status"].get("devices")
            assert bool(left["metadata"].get("labels")) == others_write

    asyncio.run(story())


def test_a_step_that_fails_leaves_nothing_and_is_named_once(scene: Scene) -> None:
    scene.publish("eth7")
    broken = Recorder(scene.machine.plugins, "recorded")
    broken.fails("ADD", message="no carrier on the far side")
    steps = (step("nic", "host-device"), step("far", "recorded", after=("nic",)))
    claim = scene.claim(scene.topology("failing", *steps))
    pod = scene.pod(claim)

    async def story() -> None:
        async with scene.daemon() as daemon:
            for _ in range(3):
                sandbox = scene.machine.sandbox(pod)
                with pytest.raises(NetdraError, match="no carrier on the far side"):
                    await daemon.run(sandbox)
                assert scene.machine.links(sandbox) == {"lo"}
                await daemon.stop(sandbox)
            assert "eth7" in scene.machine.links()
            assert not scene.machine.checkpoints()
            assert not scene.machine.specified()
            (event,) = scene.told
            assert (event.reason, event.regarding.name) == ("NetworkNotAttached", pod["metadata"]["name"])
            assert 'step "far"' in event.note

            await daemon.written()
            condition = ready(scene.stored(claim))
            assert (condition["status"], condition["reason"]) == ("False", "StepFailed")
            assert 'step "far"' in condition["message"]
            assert "no carrier" in condition["message"]

            broken.prints("ADD", {})
            await daemon.run(scene.machine.sandbox(pod))
            await daemon.written()
            assert ready(scene.stored(claim))["status"] == "True"

    asyncio.run(story())


def test_the_claim_reports_a_rejected_pod_until_the_pod_is_deleted(scene: Scene) -> None:
    scene.publish("eth7", shared=True)
    broken = Recorder(scene.machine.plugins, "recorded")
    steps = (step("mac", "macvlan"), step("far", "recorded", after=("mac",)))
    claim = scene.claim(scene.topology("failing", *steps))
    good, bad = scene.pod(claim), scene.pod(claim)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.seen(good)
            await daemon.seen(bad)
            await daemon.run(scene.machine.sandbox(good))
            broken.fails("ADD")
            with pytest.raises(NetdraError):
                await daemon.run(scene.machine.sandbox(bad))
            await daemon.written()
            assert ready(scene.stored(claim))["status"] == "False"
            assert bad["metadata"]["name"] in ready(scene.stored(claim))["message"]
            scene.workspace.api.delete(POD, bad["metadata"]["name"], scene.workspace.namespace)
            tracker = daemon.pods.tracker
            await awaited(tracker.pods.until(lambda: len(tracker.pods.objects) == 1), "the watch to miss a pod")
            await daemon.written()
            assert ready(scene.stored(claim))["status"] == "True"

    asyncio.run(story())


def test_a_pod_on_the_hosts_network_is_refused_only_if_it_has_claims_of_ours(scene: Scene) -> None:
    scene.publish("eth7")
    claim = scene.claim(scene.topology("three", *chain_of_three()))
    with_claim, without = scene.pod(claim), scene.pod()

    async def story() -> None:
        async with scene.daemon() as daemon:
            sandbox = scene.machine.sandbox(without)
            await daemon.run(on_host(sandbox))
            with pytest.raises(InvalidInputError, match="on the host's network"):
                await daemon.run(on_host(scene.machine.sandbox(with_claim)))
            assert not scene.machine.specified()

    asyncio.run(story())


def test_pods_that_share_a_claim_each_get_its_network(scene: Scene) -> None:
    scene.publish("eth7", shared=True)
    claim = scene.claim(scene.topology("shares", step("mac", "macvlan", {"mode": "bridge"})))
    one, other = (scene.machine.sandbox(scene.pod(claim)) for _ in range(2))

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(one)
            await daemon.run(other)
            assert "net1" in scene.machine.links(one)
            assert "net1" in scene.machine.links(other)
            await daemon.written()
            (device,) = scene.stored(claim)["status"]["devices"]
            assert {each["sandbox"] for each in device["data"]["pods"]} == {one.id, other.id}
            await daemon.stop(one)
            assert scene.machine.specified() == {scene.uid(claim)}
            await daemon.written()
            (device,) = scene.stored(claim)["status"]["devices"]
            assert {each["sandbox"] for each in device["data"]["pods"]} == {other.id}
            await daemon.stop(other)
            assert not scene.machine.specified()

    asyncio.run(story())


def test_a_shared_claim_is_not_usable_while_one_of_its_pods_is_being_attached(scene: Scene) -> None:
    claim, one, other, gate = shared(scene)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(one)
            assert scene.machine.specified()
            gate.holds()
            running = asyncio.create_task(daemon.run(other))
            await gate.reached()
            assert not scene.machine.specified()
            await gate.opens()
            await running
            assert scene.machine.specified() == {scene.uid(claim)}

    asyncio.run(story())


def test_a_device_that_is_moved_cannot_be_in_two_pods(scene: Scene) -> None:
    scene.publish("eth7")
    claim = scene.claim(scene.topology("three", *chain_of_three()))
    one, other = (scene.machine.sandbox(scene.pod(claim)) for _ in range(2))

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(one)
            with pytest.raises(NetdraError):
                await daemon.run(other)
            assert "net1" in scene.machine.links(one)
            assert scene.machine.specified() == {scene.uid(claim)}

    asyncio.run(story())


def test_a_successor_waits_for_a_pod_with_its_claim_that_is_ending(scene: Scene) -> None:
    claim, old = scene.of_three()
    new = scene.machine.sandbox(scene.pod(claim))

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(old)
            with pytest.raises(NetdraError, match=f"is shared by pods {old.name}, {new.name}"):
                await daemon.run(new)
            scene.workspace.api.delete(POD, old.name, old.namespace, grace=600)
            await until_async(lambda: daemon.pods.tracker.is_ending(old), "the watch to bring the deletion")
            with pytest.raises(TemporaryError, match=f"is still used by pod {old.name}, which is ending") as waits:
                await daemon.run(new)
            assert "when that pod has ended" in waits.value.hint
            await daemon.stop(old)
            await daemon.run(new)
            assert "net1" in scene.machine.links(new)

    asyncio.run(story())


def test_a_hook_answers_within_its_budget_and_a_late_attachment_is_undone(scene: Scene) -> None:
    scene.publish("eth7")
    slow = Recorder(scene.machine.plugins, "recorded")
    slow.does("ADD", f'sleep {SLOW_SECONDS:.0f}; echo "{{}}"')
    claim = scene.claim(scene.topology("slow", step("nic", "host-device"), step("slow", "recorded", after=("nic",))))
    pod = scene.pod(claim)
    sandbox = scene.machine.sandbox(pod)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.seen(pod)
            began = time.monotonic()
            with pytest.raises(NetdraError):
                await daemon.run(sandbox, budget=1.5)
            with suppress(TemporaryError):  # no hook waits for a plugin that has just hung
                await daemon.stop(sandbox)
            assert not scene.machine.specified()
            await until_async(lambda: not scene.machine.checkpoints(), "all to be undone")
            assert time.monotonic() - began < SLOW_SECONDS, "the plugin was not ended"
            assert scene.machine.links(sandbox) == {"lo"}
            assert "eth7" in scene.machine.links()

    asyncio.run(story())


def test_a_pod_that_is_stopped_before_its_turn_causes_no_report(scene: Scene) -> None:
    claim, sandbox = scene.of_three()

    async def story() -> None:
        async with scene.daemon() as daemon:
            table = daemon.pods.hooks.table
            async with table.turn(sandbox):
                run = asyncio.create_task(daemon.run(sandbox))
                await until_async(lambda: table.running(sandbox.id) is not None, "the hook to begin")
                stop = asyncio.create_task(daemon.stop(sandbox))
                await until_async(lambda: table.running(sandbox.id) is None, "the stop to be told")
            with pytest.raises(TemporaryError, match="was stopped before its network was attached"):
                await run
            await stop
            await daemon.written()
            assert not scene.stored(claim)["status"].get("devices")
            assert not scene.told
            assert "eth7" in scene.machine.links()

    asyncio.run(story())


def test_a_prepared_claim_is_attached_before_the_node_is_known(scene: Scene) -> None:
    _, sandbox = scene.of_three()
    scene.view.ready = False
    scene.view.devices, scene.view.topologies = {}, {}

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            assert not scene.told
            assert "net1" in scene.machine.links(sandbox)
            await daemon.stop(sandbox)
            # The claim may be gone by the time that its pod is taken down.
            await daemon.written()
            scene.workspace.api.delete(POD, sandbox.name, sandbox.namespace)

    asyncio.run(story())


def on_host(sandbox: Sandbox) -> Sandbox:
    return msgspec.structs.replace(sandbox, netns="")
