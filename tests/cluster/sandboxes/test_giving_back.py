"""Unused objects are returned: sandboxes that ended, claims, devices, leases; and failures are reported."""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from netdra.chain.check import load
from netdra.model.errors import NetdraError, TemporaryError
from netdra.model.plan import ClaimReference
from netdra.node.claims.release import Releases
from netdra.node.metrics import UNKNOWN
from netdra.node.nri.hooks import Sandbox
from netdra.node.sandboxes import namespaces
from netdra.node.sandboxes.hooks import MOST_TRIES
from testbed.objects import CLAIM, POD
from testbed.recorder import Recorder
from testbed.waiting import until_async
from tests import refusing
from tests.cluster.sandboxes.former import attached, rounds
from tests.cluster.sandboxes.scene import Scene, step
from tests.plans import plan
from tests.plans import step as by_hand
from tests.refusing import Refusal


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "unknown to the runtime"])
def test_a_sandbox_that_ended_while_the_daemon_was_away_is_taken_down(scene: Scene, stopped: bool) -> None:
    claim, sandbox = attached(scene)
    if not stopped:
        scene.workspace.api.delete(POD, sandbox.name, sandbox.namespace)

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


@pytest.mark.parametrize("agrees", ["stop", "namespace", "pod", "claim", "newer"])
def test_an_unlisted_sandbox_keeps_its_network_until_another_source_confirms_its_end(scene: Scene, agrees: str) -> None:
    claim, sandbox = attached(scene)
    reference = ClaimReference(namespace=sandbox.namespace, name=claim, uid=scene.uid(claim))
    newer = scene.machine.sandbox(scene.workspace.api.get(POD, sandbox.name, sandbox.namespace))

    async def story() -> None:
        async with scene.daemon() as daemon:
            for _ in range(3):  # the runtime begins anew, again and again
                await daemon.synchronize()
                await rounds(daemon, 2)
                assert scene.machine.checkpoints() == {sandbox.id}
                assert "net1" in scene.machine.links(sandbox)
            match agrees:
                case "stop":
                    await daemon.stop(sandbox)
                case "namespace":
                    scene.machine.end(sandbox)
                case "pod":
                    scene.workspace.api.delete(POD, sandbox.name, sandbox.namespace)
                case "claim":
                    await daemon.pods.claims.unprepare(reference)
                case "newer":
                    with suppress(NetdraError):  # the device may not be back yet
                        await daemon.run(newer)
            await rounds(daemon)
            # A newer sandbox has the older one taken down in the background; the round leaves it to that task.
            await until_async(
                lambda: sandbox.id not in scene.machine.checkpoints(), "the older sandbox to be taken down"
            )
            assert "eth7" in scene.machine.links() or "net1" in scene.machine.links(newer)

    asyncio.run(story())


def test_a_sandbox_that_is_listed_again_goes_on_with_its_network(scene: Scene) -> None:
    _, sandbox = attached(scene)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize()
            await rounds(daemon)
            await daemon.synchronize(sandbox)
            scene.workspace.api.delete(POD, sandbox.name, sandbox.namespace)
            await rounds(daemon, 2)
            assert scene.machine.checkpoints() == {sandbox.id}
            assert [event.reason for event in scene.told] == []

    asyncio.run(story())


def test_a_sandbox_that_is_listed_again_while_its_pod_is_looked_for_goes_on_with_its_network(scene: Scene) -> None:
    _, sandbox = attached(scene)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize()

            async def has_pod(*_: object) -> bool:
                await daemon.synchronize(sandbox)
                return False

            with mock.patch.object(Releases, "has_pod", has_pod):
                await rounds(daemon)
            assert scene.machine.checkpoints() == {sandbox.id}
            assert "net1" in scene.machine.links(sandbox)

    asyncio.run(story())


def test_an_unreadable_namespace_is_reported_once_and_counted_and_stays_attached(
    scene: Scene,
) -> None:
    _, sandbox = attached(scene)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            before = UNKNOWN._value.get()
            for _ in range(2):
                scene.told.clear()
                with refusing.refusing(Refusal(errno.EMFILE, first=1, length=10**6, calls_of="netns.py")):
                    await rounds(daemon, 3)
                await rounds(daemon)
                (event,) = scene.told
                assert (event.reason, event.regarding.name) == ("NetworkUnknown", sandbox.name)
                assert "(EMFILE)" in event.note
                assert "net1" in scene.machine.links(sandbox)
                assert scene.machine.checkpoints() == {sandbox.id}
            assert UNKNOWN._value.get() == before + 6
            scene.machine.end(sandbox)
            await rounds(daemon)
            assert not scene.machine.checkpoints()

    asyncio.run(story())


def test_a_network_attached_by_hand_for_a_pod_stays_while_its_namespace_exists(scene: Scene, tmp_path: Path) -> None:
    """Its checkpoint has the pod's names and no uid."""
    scene.publish("eth7")
    pod = scene.pod()
    sandbox = scene.machine.sandbox(pod)
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(plan(by_hand("nic", "host-device", "net1", {"device": "eth7"}))))
    scene.machine.netdra(
        *("attach", f"--netns={sandbox.netns}", f"--plan={path}", f"--state={scene.machine.settings.state}"),
        f"--pod={sandbox.namespace}/{sandbox.name}",
    )
    assert len(scene.machine.checkpoints()) == 1

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            await rounds(daemon, 3)
            assert "net1" in scene.machine.links(sandbox)
            assert len(scene.machine.checkpoints()) == 1
            scene.machine.end(sandbox)
            await rounds(daemon)
            assert not scene.machine.checkpoints()

    asyncio.run(story())


def test_before_the_runtime_lists_sandboxes_only_lost_namespaces_are_released(scene: Scene) -> None:
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


def test_a_prepared_claim_is_released_after_its_deletion_but_not_while_a_pod_uses_it(scene: Scene) -> None:
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
            assert not daemon.pods.network.held

    asyncio.run(story())


def test_an_unreadable_record_is_put_aside_once_no_pod_of_the_node_has_its_claim(scene: Scene) -> None:
    claim, sandbox = scene.of_three()
    uid, gone = scene.uid(claim), "00000000-0000-4000-8000-000000000000"
    folder = scene.machine.store.folder
    for unreadable in (uid, gone):
        (folder / f"{unreadable}.json").write_bytes(b"")
    described = scene.machine.files.metadata_path(gone, "main")
    described.write_text("{}")

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.seen(scene.workspace.api.get(POD, sandbox.name, sandbox.namespace))
            assert not scene.machine.store.all()
            await rounds(daemon, 1)
            assert scene.machine.store.uids() == {uid, gone}
            await rounds(daemon, 2)
            assert scene.machine.store.uids() == {uid}
            assert (folder / f"{gone}.json.bad-0.gone-0").exists()
            assert not described.exists()
            await daemon.run(sandbox)
            assert [record.claim.uid for record in scene.machine.store.all()] == [uid]
            await daemon.stop(sandbox)

    asyncio.run(story())


def recorded(scene: Scene) -> tuple[Recorder, Sandbox]:
    """A sandbox that is not attached yet, and the last plugin of its chain, which the test controls."""
    scene.publish("eth7")
    plugin = Recorder(scene.machine.plugins, "recorded")
    claim = scene.claim(scene.topology("told", step("nic", "host-device"), step("far", "recorded", after=("nic",))))
    return plugin, scene.machine.sandbox(scene.pod(claim))


def test_a_device_that_cannot_be_given_back_is_held_with_its_trouble_until_it_is(scene: Scene) -> None:
    stuck, sandbox = recorded(scene)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            assert [(each.key, each.trouble) for each in daemon.pods.network.held] == [((scene.node, "eth7"), "")]
            stuck.fails("DEL", message="the controller does not answer")
            with pytest.raises(TemporaryError, match="the controller does not answer"):
                await daemon.stop(sandbox)
            assert not scene.machine.specified()
            (held,) = daemon.pods.network.held
            assert "the controller does not answer" in held.trouble
            await rounds(daemon, 2)
            assert [event.reason for event in scene.told] == ["NetworkNotDetached"]
            stuck.prints("DEL", {})
            await rounds(daemon)
            (held,) = daemon.pods.network.held
            assert held.trouble == ""
            assert not scene.machine.checkpoints()

    asyncio.run(story())


def test_after_the_fifth_try_the_rest_of_a_lost_namespace_is_put_aside_and_reported_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "LOOK_SECONDS", 3600.0)  # the tries are counted: none but the test's may be made
    stuck, sandbox = recorded(scene)
    stuck.fails("DEL", message="the controller is gone for good")

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            with pytest.raises(TemporaryError, match="the controller is gone for good"):
                await daemon.stop(sandbox)
            scene.machine.end(sandbox)
            await rounds(daemon, MOST_TRIES - 1)
            assert tries(stuck, sandbox) == MOST_TRIES
            assert "the controller is gone for good" in daemon.pods.network.held[0].trouble
            assert [event.reason for event in scene.told] == ["NetworkNotDetached"]
            await rounds(daemon)
            assert [event.reason for event in scene.told] == ["NetworkNotDetached", "NetworkGivenUp"]
            assert [each.trouble for each in daemon.pods.network.held] == [""]  # the claim is still prepared
            (aside,) = scene.machine.settings.state.glob("*.given-up-0")
            assert aside.name in scene.told[-1].note
            await rounds(daemon)
            assert tries(stuck, sandbox) == MOST_TRIES + 1

    asyncio.run(story())


def tries(plugin: Recorder, sandbox: Sandbox) -> int:
    """How often a plugin's step was tried to be undone: one without a namespace has a call with its former path too."""
    paths = [call.environment["CNI_NETNS"] for call in plugin.calls("DEL")]
    return 1 + sum(path != sandbox.netns for path in paths)


def of_its_own(scene: Scene) -> tuple[Recorder, Sandbox]:
    """A sandbox that is not attached yet, whose plugin takes the device into the pod, and on DEL does nothing."""
    scene.publish("eth7")
    plugin = Recorder(scene.machine.plugins, "recorded")
    pod = '"$(basename "$CNI_NETNS")"'
    move = f'ip link set eth7 netns {pod} && ip -n {pod} link set eth7 name "$CNI_IFNAME" mtu 1300'
    plugin.does("ADD", f"{move} || exit 1; echo '{{}}'")
    claim = scene.claim(scene.topology("own", step("nic", "recorded")))
    return plugin, scene.machine.sandbox(scene.pod(claim))


def test_a_device_that_a_plugin_leaves_in_the_pod_is_restored_and_reported(scene: Scene) -> None:
    _, sandbox = of_its_own(scene)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            assert "eth7" not in scene.machine.links()
            await daemon.stop(sandbox)
            assert "eth7" in scene.machine.links()
            (event,) = [event for event in scene.told if event.reason == "DeviceRestored"]
            assert 'netdev "eth7" is still in the pod' in event.note
            assert not scene.machine.checkpoints()

    asyncio.run(story())


def test_moving_a_shared_device_is_undone_and_reported_and_taints_it_until_plugin_replacement(
    scene: Scene,
) -> None:
    scene.publish("eth7", shared=True)
    plugin = Recorder(scene.machine.plugins, "recorded")
    pod = '"$(basename "$CNI_NETNS")"'
    move = f'ip link set eth7 netns {pod} && ip -n {pod} link set eth7 name "$CNI_IFNAME" mtu 1300'
    plugin.does("ADD", f"{move} || exit 1; echo '{{}}'")
    claim = scene.claim(scene.topology("own", step("nic", "recorded")))
    sandbox = scene.machine.sandbox(scene.pod(claim))
    (before,) = scene.machine.ip("link", "show", "eth7")

    async def story() -> None:
        async with scene.daemon() as daemon:
            with pytest.raises(NetdraError, match=r'changed shared device "eth7": .* is still in the pod'):
                await daemon.run(sandbox)
            (now,) = scene.machine.ip("link", "show", "eth7")
            assert {key: now[key] for key in ("address", "mtu", "flags")} == {
                key: before[key] for key in ("address", "mtu", "flags")
            }
            (event,) = scene.told
            assert event.reason == "NetworkNotAttached"
            assert "restored: " in event.note
            await daemon.written()
            (device,) = scene.stored(claim)["status"]["devices"]
            assert 'changed shared device "eth7"' in device["conditions"][0]["message"]
            (held,) = daemon.pods.network.held
            assert 'plugin "recorded" changed shared device "eth7"' in held.trouble
            with pytest.raises(NetdraError, match="the plugin is not called on the device for"):
                await daemon.run(sandbox)
            better = plugin.path.with_name("better")
            better.write_text(plugin.path.read_text() + "# mended\n")
            better.chmod(0o755)
            better.replace(plugin.path)
            plugin.prints("ADD", {})
            assert [held.trouble for held in daemon.pods.network.held] == [""]
            await daemon.run(sandbox)
            await daemon.stop(sandbox)

    asyncio.run(story())


def test_a_device_with_a_changed_identity_is_never_abandoned(scene: Scene) -> None:
    """A veth that was written down as one of hardware: it must be somewhere, and is not where it is searched for."""
    _, sandbox = of_its_own(scene)
    path = scene.machine.settings.state / f"{sandbox.id}.jsonl"

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            path.write_text(path.read_text().replace('"kind":"veth"', '"permanentMac":"02:00:00:00:00:01"'))
            with pytest.raises(TemporaryError, match="neither in the pod nor on the host"):
                await daemon.stop(sandbox)
            scene.machine.end(sandbox)
            await rounds(daemon, MOST_TRIES + 1)
            assert scene.machine.checkpoints() == {sandbox.id}
            assert "neither in the pod nor on the host" in daemon.pods.network.held[0].trouble
            assert [event.reason for event in scene.told] == ["NetworkNotDetached"]

    asyncio.run(story())


def test_a_step_with_a_config_its_plugin_rejects_is_abandoned_while_the_namespace_exists(scene: Scene) -> None:
    strict, sandbox = recorded(scene)
    for verb in ("ADD", "DEL"):
        strict.fails(verb, code=999, message="failed to load netconf")

    async def story() -> None:
        async with scene.daemon() as daemon:
            with pytest.raises(NetdraError, match="failed to load netconf"):
                await daemon.run(sandbox)
            assert "eth7" in scene.machine.links()
            await rounds(daemon, MOST_TRIES)
            assert scene.told[-1].reason == "NetworkGivenUp"
            assert list(scene.machine.settings.state.glob("*.given-up-0"))
            assert not scene.machine.checkpoints()

    asyncio.run(story())


def test_a_device_is_never_abandoned_while_its_namespace_exists(scene: Scene) -> None:
    stuck, sandbox = recorded(scene)
    stuck.fails("DEL", message="not now")

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            with pytest.raises(TemporaryError, match="not now"):
                await daemon.stop(sandbox)
            await rounds(daemon, 2 * MOST_TRIES)
            assert scene.machine.checkpoints() == {sandbox.id}

    asyncio.run(story())


def test_plugins_receive_the_valid_attachments_at_start_but_not_in_each_round(scene: Scene) -> None:
    collector, sandbox = recorded(scene)

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


def test_an_unreported_stop_is_detected_when_the_claim_is_unprepared(scene: Scene) -> None:
    claim, sandbox = attached(scene)
    reference = ClaimReference(namespace=sandbox.namespace, name=claim, uid=scene.uid(claim))

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            await until_async(lambda: daemon.pods.recovery.rounds, "the first look for orphans")
            assert scene.machine.checkpoints() == {sandbox.id}
            scene.machine.end(sandbox)
            await daemon.pods.claims.unprepare(reference)
            assert not scene.machine.checkpoints()

    asyncio.run(story())


def test_a_new_sandbox_gets_the_device_although_the_end_of_the_old_one_was_unreported(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespaces, "LOOK_SECONDS", 3600.0)  # the new sandbox alone shows that the old one has ended
    _, sandbox = attached(scene)
    pod = scene.workspace.api.get(POD, sandbox.name, sandbox.namespace)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.synchronize(sandbox)
            await until_async(lambda: daemon.pods.recovery.rounds, "the first look for orphans")
            scene.machine.end(sandbox)
            new = scene.machine.sandbox(pod)

            async def taken_over() -> bool:
                with suppress(NetdraError):  # the former sandbox has the device
                    await daemon.run(new)
                return scene.machine.checkpoints() == {new.id}

            await until_async(taken_over, "the former sandbox to give the device back")

    asyncio.run(story())
