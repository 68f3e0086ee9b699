"""The daemon comes back: what stands is left, what is missing is made, what nobody has any more is given back."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
import pytest

from netdra.chain.standing import load
from netdra.model.errors import TemporaryError
from netdra.model.plan import ClaimReference
from netdra.node.nri.hooks import Sandbox
from netdra.node.pods.attachments import MOST_TRIES
from testbed.objects import CLAIM, POD
from testbed.recorder import Recorder
from tests.cluster.fault_proxy import Answer
from tests.cluster.sandboxes.scene import WITHIN, Daemon, Scene, chain_of_three, ready, step


async def rounds(daemon: Daemon, count: int = 1) -> None:
    for _ in range(count):
        await daemon.pods.orphans.look_around()


def attached(scene: Scene) -> tuple[str, Sandbox]:
    """A claim and a sandbox that a daemon which is gone by now has attached."""
    claim, sandbox = scene.of_three()

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            await daemon.written()

    asyncio.run(story())
    return claim, sandbox


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


def test_a_network_that_stands_is_left_as_it_is_whatever_its_topology_says_today(scene: Scene) -> None:
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
            assert not scene.told

    asyncio.run(story())


def test_while_the_api_server_is_away_what_stands_is_known_from_the_disk(scene: Scene) -> None:
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


def test_of_two_daemons_neither_takes_down_what_only_the_other_was_told_of(scene: Scene) -> None:
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


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "unknown to the runtime"])
def test_a_sandbox_that_ended_while_the_daemon_was_away_is_taken_down(scene: Scene, stopped: bool) -> None:
    claim, sandbox = attached(scene)

    async def story() -> None:
        async with scene.daemon() as daemon:
            gone = msgspec.structs.replace(sandbox, netns="", pid=0)
            await daemon.synchronize(*([gone] if stopped else []))
            await rounds(daemon)
            assert not scene.machine.checkpoints()
            assert not scene.machine.specified()
            assert "eth7" in scene.machine.links()
            await daemon.written()
            assert not scene.stored(claim)["status"].get("devices")

    asyncio.run(story())


def test_before_the_runtime_has_said_what_runs_only_lost_namespaces_are_given_up(scene: Scene) -> None:
    _, sandbox = attached(scene)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await rounds(daemon)
            assert scene.machine.checkpoints() == {sandbox.id}
            scene.machine.end(sandbox)
            await rounds(daemon)
            assert not scene.machine.checkpoints()

    asyncio.run(story())


def test_a_checkpoint_of_an_earlier_boot_is_settled_without_touching_the_kernel(scene: Scene) -> None:
    _, sandbox = attached(scene)
    path = scene.machine.settings.state / f"{sandbox.id}.jsonl"
    saved = load(scene.machine.settings.state, sandbox.id)
    assert saved is not None
    path.write_text(path.read_text().replace(saved.header.boot_id, "of-another-boot"))

    async def story() -> None:
        async with scene.daemon() as daemon:
            assert not scene.machine.specified()
            await rounds(daemon)
            assert not scene.machine.checkpoints()
            assert "net1" in scene.machine.links(sandbox)

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


def test_a_checkpoint_that_cannot_be_read_is_put_aside_and_stops_nobody(scene: Scene) -> None:
    _, sandbox = attached(scene)
    (scene.machine.settings.state / "sb-damaged.jsonl").write_text("{")

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            await rounds(daemon)
            assert scene.machine.checkpoints() == {sandbox.id}
            assert (scene.machine.settings.state / "sb-damaged.jsonl.bad-0").exists()

    asyncio.run(story())


def test_what_changed_in_a_running_pod_is_told_once_and_left(scene: Scene) -> None:
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


def test_a_prepared_claim_is_given_up_once_it_is_gone_and_not_while_a_pod_has_it(scene: Scene) -> None:
    claim, sandbox = attached(scene)
    pod, uid = sandbox.name, scene.uid(claim)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            await rounds(daemon, 3)
            assert scene.machine.store.uids() == {uid}
            await daemon.stop(sandbox)
            await rounds(daemon, 3)
            assert scene.machine.store.uids() == {uid}  # the pod is still there: the kubelet has not given the claim up
            scene.workspace.api.delete(POD, pod, sandbox.namespace)
            scene.workspace.api.delete(CLAIM, claim, sandbox.namespace)
            await asyncio.to_thread(
                scene.workspace.api.wait_for, CLAIM, claim, lambda found: found is None, namespace=sandbox.namespace
            )
            await rounds(daemon, 1)
            assert scene.machine.store.uids() == {uid}
            await rounds(daemon, 1)
            assert not scene.machine.store.uids()
            assert not daemon.pods.held.held

    asyncio.run(story())


def test_a_device_that_cannot_be_given_back_is_held_with_its_trouble_until_it_is(scene: Scene) -> None:
    scene.publish("eth7")
    stuck = Recorder(scene.machine.plugins, "recorded")
    claim = scene.claim(scene.topology("stuck", step("nic", "host-device"), step("far", "recorded", after=("nic",))))
    sandbox = scene.machine.sandbox(scene.pod(claim))

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            assert [(each.key, each.trouble) for each in daemon.pods.held.held] == [((scene.node, "eth7"), "")]
            stuck.fails("DEL", message="the controller does not answer")
            with pytest.raises(TemporaryError, match="the controller does not answer"):
                await daemon.stop(sandbox)
            assert not scene.machine.specified()
            (held,) = daemon.pods.held.held
            assert "the controller does not answer" in held.trouble
            await rounds(daemon, 2)
            assert [event.reason for event in scene.told] == ["NetworkNotDetached"]
            stuck.prints("DEL", {})
            await rounds(daemon)
            (held,) = daemon.pods.held.held
            assert held.trouble == ""
            assert not scene.machine.checkpoints()

    asyncio.run(story())


def test_after_the_fifth_try_what_cannot_be_given_back_of_a_lost_namespace_is_put_aside_and_told_once(
    scene: Scene,
) -> None:
    scene.publish("eth7")
    stuck = Recorder(scene.machine.plugins, "recorded")
    stuck.fails("DEL", message="the controller is gone for good")
    claim = scene.claim(scene.topology("stuck", step("nic", "host-device"), step("far", "recorded", after=("nic",))))
    sandbox = scene.machine.sandbox(scene.pod(claim))

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            with pytest.raises(TemporaryError, match="the controller is gone for good"):
                await daemon.stop(sandbox)
            scene.machine.end(sandbox)
            await rounds(daemon, MOST_TRIES - 1)
            assert len(stuck.calls("DEL")) == MOST_TRIES
            assert "the controller is gone for good" in daemon.pods.held.held[0].trouble
            assert [event.reason for event in scene.told] == ["NetworkNotDetached"]
            await rounds(daemon)
            assert [event.reason for event in scene.told] == ["NetworkNotDetached", "NetworkGivenUp"]
            assert [each.trouble for each in daemon.pods.held.held] == [""]  # the claim is still prepared
            (aside,) = scene.machine.settings.state.glob("*.given-up-0")
            assert aside.name in scene.told[-1].note
            await rounds(daemon)
            assert len(stuck.calls("DEL")) == MOST_TRIES + 1

    asyncio.run(story())


def test_while_its_namespace_is_there_a_device_is_never_given_up(scene: Scene) -> None:
    scene.publish("eth7")
    stuck = Recorder(scene.machine.plugins, "recorded")
    stuck.fails("DEL", message="not now")
    claim = scene.claim(scene.topology("stuck", step("nic", "host-device"), step("far", "recorded", after=("nic",))))
    sandbox = scene.machine.sandbox(scene.pod(claim))

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            with pytest.raises(TemporaryError, match="not now"):
                await daemon.stop(sandbox)
            await rounds(daemon, 2 * MOST_TRIES)
            assert scene.machine.checkpoints() == {sandbox.id}

    asyncio.run(story())


def test_plugins_are_told_at_start_which_attachments_are_still_valid_and_not_in_each_round(scene: Scene) -> None:
    scene.publish("eth7")
    collector = Recorder(scene.machine.plugins, "recorded")
    claim = scene.claim(scene.topology("kept", step("nic", "host-device"), step("far", "recorded", after=("nic",))))
    sandbox = scene.machine.sandbox(scene.pod(claim))

    async def attach() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)

    async def lost() -> None:
        async with scene.daemon() as daemon:
            await rounds(daemon, 2)

    asyncio.run(attach())
    collector.forget()
    asyncio.run(lost())
    (call,) = collector.calls("GC")
    (valid,) = call.config["cni.dev/valid-attachments"]
    assert valid["containerID"] == sandbox.id
    collector.forget()
    scene.machine.end(sandbox)
    asyncio.run(lost())
    (call,) = collector.calls("GC")
    assert call.config["cni.dev/valid-attachments"] == []


def test_a_stop_that_the_runtime_did_not_tell_of_is_found_out_when_the_claim_is_given_up(scene: Scene) -> None:
    claim, sandbox = attached(scene)
    reference = ClaimReference(namespace=sandbox.namespace, name=claim, uid=scene.uid(claim))

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            async with asyncio.timeout(WITHIN):
                while not daemon.pods.orphans.rounds:  # noqa: ASYNC110 - no event is set for what no one else waits for
                    await asyncio.sleep(0.02)
            assert scene.machine.checkpoints() == {sandbox.id}
            scene.machine.end(sandbox)
            await daemon.pods.claims.unprepare(reference)
            async with asyncio.timeout(WITHIN):
                while scene.machine.checkpoints():  # noqa: ASYNC110 - what is on the disk sets no event
                    await asyncio.sleep(0.02)

    asyncio.run(story())


def test_a_pods_new_sandbox_finds_the_device_free_though_the_end_of_its_former_one_was_not_told(scene: Scene) -> None:
    _, sandbox = attached(scene)
    pod = scene.workspace.api.get(POD, sandbox.name, sandbox.namespace)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            scene.machine.end(sandbox)
            async with asyncio.timeout(WITHIN):
                while "eth7p" in scene.machine.links():  # noqa: ASYNC110 - the kernel ends the namespace's links in time
                    await asyncio.sleep(0.02)
            scene.machine.veth("eth7")
            new = scene.machine.sandbox(pod)
            async with asyncio.timeout(WITHIN):
                while scene.machine.checkpoints() != {new.id}:
                    with suppress(TemporaryError):  # the former sandbox has the device
                        await daemon.run(new)
                    await asyncio.sleep(0.1)

    asyncio.run(story())


def test_a_hook_waits_for_its_sandbox_while_it_is_reconciled(scene: Scene) -> None:
    _, sandbox = scene.of_three()

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.pods.hooks.synchronize([sandbox])
            async with asyncio.timeout(WITHIN):
                await asyncio.gather(daemon.run(sandbox), daemon.pods.reconciler.settled.wait())
            assert scene.machine.links(sandbox) == {"lo", "net1"}
            await asyncio.gather(daemon.stop(sandbox), daemon.synchronize())
            assert not scene.machine.checkpoints()

    asyncio.run(story())
