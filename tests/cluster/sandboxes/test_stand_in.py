"""A runtime that behaves as CRI-O does: no pod loses its network by it, and no node a device.

Each difference was seen on CRI-O 1.36.3 and is played by `stand_in`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from netdra.node.nri.hooks import WORK_SHARE
from netdra.node.sandboxes.hooks import MOST_TRIES
from netdra.node.sandboxes.table import DetachOutcome
from testbed.api import Object
from testbed.recorder import Recorder
from tests.cluster.fault_proxy import Answer
from tests.cluster.sandboxes.former import rounds
from tests.cluster.sandboxes.scene import WITHIN, Daemon, Scene, chain_of_three, ready, step
from tests.cluster.sandboxes.stand_in import REQUEST_MILLISECONDS, Box, RefusedError, StandIn, driving, playing

Story = Callable[[StandIn, Daemon], Awaitable[None]]


def play(scene: Scene, *stories: Story) -> None:
    """Stories beside one runtime, each with a daemon of its own."""

    async def main() -> None:
        async with playing(scene) as runtime:
            for story in stories:
                async with driving(scene, runtime) as (daemon, _):
                    await story(runtime, daemon)
                assert not len(daemon.pods.network.table.namespaces)
                if runtime.peer is not None:
                    await runtime.die()

    asyncio.run(main())


def held(daemon: Daemon) -> int:
    """How many namespaces the daemon holds."""
    return len(daemon.pods.network.table.namespaces)


def three(scene: Scene, *interfaces: str) -> tuple[list[str], list[Object]]:
    """A claim for a chain of three steps on an interface, and a pod that has it, for each interface."""
    scene.publish(*interfaces)
    topology = scene.topology("three", *chain_of_three())
    claims = [scene.claim(topology) for _ in interfaces]
    return claims, [scene.pod(claim) for claim in claims]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN):
        while not holds():  # noqa: ASYNC110 - what is on the disk and in the kernel sets no event
            await asyncio.sleep(0.01)


def test_the_oldest_cdi_library_knows_a_claims_devices_each_time_that_a_pod_has_it(scene: Scene) -> None:
    """Also the first time, when the folder was not there as the runtime began, and the second, when it was."""
    (claim,), (pod,) = three(scene, "eth7")

    async def story(runtime: StandIn, daemon: Daemon) -> None:
        for _ in range(3):
            with pytest.raises(RefusedError, match="unresolvable CDI devices"):
                runtime.create_container(claim, "nic")
            box = await runtime.run(pod)
            await until(lambda: not _refused(runtime, claim))
            await runtime.stop(box)
            await until(lambda: _refused(runtime, claim))
            await runtime.remove(box)

    play(scene, story)


def _refused(runtime: StandIn, claim: str) -> bool:
    try:
        runtime.create_container(claim, "nic")
    except RefusedError:
        return True
    return False


def test_a_device_is_returned_although_the_namespace_ends_before_the_stop_event(scene: Scene) -> None:
    _, (pod,) = three(scene, "eth7")
    before = _facts(scene, "eth7")

    async def story(runtime: StandIn, daemon: Daemon) -> None:
        for _ in range(2):
            box = await runtime.run(pod)
            assert held(daemon) == 1
            assert "eth7" not in scene.machine.links()
            await runtime.stop(box)
            assert _facts(scene, "eth7") == before
            assert held(daemon) == 0
            await runtime.until_gone(box)
            await runtime.remove(box)
            assert not scene.machine.checkpoints()
        assert not scene.told

    play(scene, story)


def _facts(scene: Scene, name: str) -> Object:
    """The facts of an interface of the node."""
    (found,) = scene.machine.ip("link", "show", name)
    return {key: found[key] for key in ("ifname", "address", "mtu", "link_type")} | {"up": "UP" in found["flags"]}


def test_links_made_in_a_namespace_end_with_it_and_the_plugin_releases_the_lease(scene: Scene) -> None:
    scene.publish("eth7", shared=True)
    told = Recorder(scene.machine.plugins, "recorded")
    steps = (step("mac", "macvlan", {"mode": "bridge"}), step("far", "recorded", after=("mac",)))
    claim = scene.claim(scene.topology("shares", *steps))
    pods = [scene.pod(claim) for _ in range(2)]

    async def story(runtime: StandIn, daemon: Daemon) -> None:
        boxes = [await runtime.run(pod) for pod in pods]
        assert held(daemon) == 2
        for number, box in enumerate(boxes, 1):
            await runtime.stop(box)
            await runtime.until_gone(box)
            assert len(told.calls("DEL")) == number
            assert held(daemon) == 2 - number
        assert not scene.machine.checkpoints()

    play(scene, story)


def test_a_stopped_sandbox_listed_with_a_dead_path_does_not_affect_the_claim_of_its_pod(scene: Scene) -> None:
    (claim,), (pod,) = three(scene, "eth7")
    boxes: list[Box] = []

    async def before(runtime: StandIn, daemon: Daemon) -> None:
        boxes.append(await runtime.run(pod))
        await runtime.stop(boxes[0])
        boxes.append(await runtime.run(pod))
        await daemon.written()

    async def after(runtime: StandIn, daemon: Daemon) -> None:
        assert set(daemon.pods.hooks.table.all_running) == {boxes[1].key}
        await rounds(daemon, 2)
        await daemon.written()
        assert ready(scene.stored(claim))["status"] == "True"
        assert not scene.told
        assert scene.machine.specified() == {scene.uid(claim)}

    play(scene, before, after)


@pytest.mark.parametrize("order", [1, -1], ids=["older first", "newer first"])
def test_of_two_sandboxes_of_a_pod_that_both_live_the_newer_one_has_the_network(scene: Scene, order: int) -> None:
    (claim,), (pod,) = three(scene, "eth7")
    boxes: list[Box] = []

    async def before(runtime: StandIn, daemon: Daemon) -> None:
        boxes.append(await runtime.run(pod))
        await runtime.die()
        boxes.append(await runtime.run(pod))
        runtime.boxes = {box.key: box for box in boxes[::order]}

    async def after(runtime: StandIn, daemon: Daemon) -> None:
        assert set(daemon.pods.hooks.table.all_running) == {boxes[1].key}
        await daemon.written()
        assert ready(scene.stored(claim))["status"] == "True"
        await until(lambda: scene.machine.checkpoints() == {boxes[1].key})
        assert held(daemon) == 1

    play(scene, before, after)


def test_a_pod_whose_former_sandbox_still_lives_gets_its_device_at_the_next_try(scene: Scene) -> None:
    _, (pod,) = three(scene, "eth7")

    async def story(runtime: StandIn, daemon: Daemon) -> None:
        former = await runtime.run(pod)
        tries: list[Box] = []
        async with asyncio.timeout(WITHIN):
            while not tries:
                with suppress(RefusedError):  # the former one has the device
                    tries.append(await runtime.run(pod))
        (new,) = tries
        assert scene.machine.checkpoints() == {new.key}
        await runtime.stop(former)
        assert scene.machine.checkpoints() == {new.key}
        assert held(daemon) == 1

    play(scene, story)


def test_a_sandbox_that_only_has_a_pods_uid_takes_nothing_from_it(scene: Scene) -> None:
    _, (pod,) = three(scene, "eth7")
    other = {"metadata": pod["metadata"] | {"namespace": "another"}}

    async def story(runtime: StandIn, daemon: Daemon) -> None:
        box = await runtime.run(pod)
        with pytest.raises(RefusedError, match="cannot be known"):
            await runtime.run(other)
        assert scene.machine.checkpoints() == {box.key}
        assert held(daemon) == 1
        await runtime.die()
        unseen = await runtime.run(other)
        await runtime.connect()
        assert set(daemon.pods.hooks.table.all_running) == {box.key, unseen.key}
        assert scene.machine.checkpoints() == {box.key}

    play(scene, story)


def test_a_pod_on_the_hosts_network_is_known_by_its_namespace_not_by_an_empty_path(scene: Scene) -> None:
    (claim,), (pod,) = three(scene, "eth7")
    without = scene.pod()

    async def story(runtime: StandIn, daemon: Daemon) -> None:
        before = scene.machine.links()
        with pytest.raises(RefusedError, match="is on the host's network, and its claims"):
            await runtime.run(pod, on_host=True)
        assert scene.machine.links() == before
        assert not scene.machine.checkpoints()
        await daemon.written()
        assert ready(scene.stored(claim))["reason"] == "Refused"
        # Nobody can be asked whose claims it has: it has none all the same.
        daemon.proxy.fault = lambda _: Answer.status(503)
        daemon.proxy.cut_all()
        unknown = {"metadata": {"name": "unknown", "namespace": "kube-system", "uid": "of-a-static-pod"}}
        with pytest.raises(RefusedError, match="cannot be known"):
            await runtime.run(unknown)
        on_host = await runtime.run(unknown, on_host=True)
        assert held(daemon) == 0
        await runtime.die()
        await runtime.connect()
        assert on_host.key not in daemon.pods.hooks.table.all_running

    assert without
    play(scene, story)


def test_the_name_version_and_timeout_of_the_runtime_are_accepted_as_reported(scene: Scene) -> None:
    async def main() -> None:
        async with playing(scene) as runtime:
            runtime.request_milliseconds = REQUEST_MILLISECONDS
            async with driving(scene, runtime) as (_, plugin):
                told = plugin.runtime
                assert told is not None
                assert (told.name, told.version, told.nri_version) == ("cri-o", "1.36.3", "")
                assert told.request_timeout == 2.0
                assert told.request_timeout * WORK_SHARE == 1.5
                box = await runtime.run(scene.pod())
                assert box.message.pid == 0
                await runtime.stop(box)
                await runtime.remove(box)

    asyncio.run(main())


def test_devices_are_returned_despite_repeated_end_events_after_a_runtime_restart(scene: Scene) -> None:
    _, pods = three(scene, "eth7", "eth8")

    async def story(runtime: StandIn, daemon: Daemon) -> None:
        boxes = [await runtime.run(pod) for pod in pods]
        await runtime.die()
        runtime.end(boxes[1])
        await runtime.connect()
        for box in boxes:
            for _ in range(2):
                await runtime.stop(box)
            for _ in range(2):
                await runtime.remove(box)
        assert {"eth7", "eth8"} <= scene.machine.links()
        assert not scene.machine.checkpoints()
        assert held(daemon) == 0
        for box in boxes:
            await runtime.until_gone(box)
        assert not scene.told
        undone, undo = list[str](), daemon.pods.network.undo

        def noted(sandbox: str, *arguments: Any, **named: Any) -> DetachOutcome:
            undone.append(sandbox)
            return undo(sandbox, *arguments, **named)

        daemon.pods.network.undo = noted  # type: ignore[method-assign]
        for box in boxes:
            await runtime.stop(box)
        assert undone == []

    play(scene, story)


def test_a_sandbox_that_ends_without_a_word_is_found_and_its_device_comes_back(scene: Scene) -> None:
    _, (pod,) = three(scene, "eth7")

    async def story(runtime: StandIn, daemon: Daemon) -> None:
        box = await runtime.run(pod)
        runtime.end(box)
        await until(lambda: "eth7" in scene.machine.links())
        await runtime.until_gone(box)
        await until(lambda: not scene.machine.checkpoints())
        assert held(daemon) == 0

    play(scene, story)


def test_a_sandbox_that_ends_before_it_could_be_attached_is_not_tried_any_more(scene: Scene) -> None:
    (claim,), (pod,) = three(scene, "eth7")

    async def story(runtime: StandIn, daemon: Daemon) -> None:
        await runtime.die()
        box = await runtime.run(pod)
        scene.view.ready = False
        scene.machine.store.remove(scene.uid(claim))  # so the claim has to be prepared again, and cannot be
        await runtime.connect()
        assert set(daemon.pods.hooks.table.all_running) == {box.key}
        told = len(scene.told)
        runtime.end(box)
        async with asyncio.timeout(WITHIN):
            await daemon.pods.recovery.wait_finished()
        assert not daemon.pods.hooks.table.all_running
        assert len(scene.told) <= told + 1
        assert not [event for event in scene.told if "cannot open network namespace" in event.note]
        assert held(daemon) == 0

    play(scene, story)


def test_the_next_daemon_holds_the_namespaces_of_its_predecessor(scene: Scene) -> None:
    _, pods = three(scene, "eth7", "eth8")
    boxes: list[Box] = []

    async def before(runtime: StandIn, daemon: Daemon) -> None:
        boxes.extend([await runtime.run(pod) for pod in pods])

    async def after(runtime: StandIn, daemon: Daemon) -> None:
        assert held(daemon) == 2
        await runtime.stop(boxes[0])
        assert "eth7" in scene.machine.links()
        runtime.end(boxes[1])
        await until(lambda: "eth8" in scene.machine.links())
        await until(lambda: held(daemon) == 0)

    play(scene, before, after)


def test_a_sandbox_that_ended_without_a_daemon_is_released_and_its_lost_device_reported(scene: Scene) -> None:
    _, (pod,) = three(scene, "eth7")
    boxes: list[Box] = []

    async def before(runtime: StandIn, daemon: Daemon) -> None:
        boxes.append(await runtime.run(pod))

    async def main() -> None:
        async with playing(scene) as runtime:
            async with driving(scene, runtime) as (daemon, _):
                await before(runtime, daemon)
            await runtime.die()
            runtime.end(boxes[0])
            await runtime.until_gone(boxes[0])
            async with driving(scene, runtime) as (daemon, _):
                await until(lambda: not scene.machine.checkpoints())
                assert held(daemon) == 0
                await until(lambda: bool(scene.told))
                (event,) = scene.told
                assert event.reason == "NetworkNotRestored"
                assert 'device "eth7" is gone with the namespace that it was in' in event.note

    asyncio.run(main())


def test_a_failed_detach_does_not_hold_the_namespace_of_an_ended_pod(scene: Scene) -> None:
    scene.publish("eth7")
    stuck = Recorder(scene.machine.plugins, "recorded")
    steps = (step("nic", "host-device"), step("far", "recorded", after=("nic",)))
    pod = scene.pod(scene.claim(scene.topology("told", *steps)))

    async def story(runtime: StandIn, daemon: Daemon) -> None:
        stuck.fails("DEL", message="the controller does not answer")
        box = await runtime.run(pod)
        await runtime.stop(box)
        await runtime.until_gone(box)
        assert held(daemon) == 0
        assert [event.reason for event in scene.told] == ["NetworkNotDetached"], "it was held until the last try"
        # Its device is back by then: one step that fails holds up no other.
        assert "eth7" in scene.machine.links()
        await rounds(daemon, MOST_TRIES)
        assert not scene.machine.checkpoints()
        assert [event.reason for event in scene.told] == ["NetworkNotDetached", "NetworkGivenUp"]

    play(scene, story)


def test_a_refused_sandbox_is_not_held(scene: Scene) -> None:
    scene.publish("eth7")
    broken = Recorder(scene.machine.plugins, "recorded")
    broken.fails("ADD", message="no carrier on the far side")
    steps = (step("nic", "host-device"), step("far", "recorded", after=("nic",)))
    pod = scene.pod(scene.claim(scene.topology("bad", *steps)))

    async def story(runtime: StandIn, daemon: Daemon) -> None:
        with pytest.raises(RefusedError, match="no carrier on the far side"):
            await runtime.run(pod)
        assert held(daemon) == 0
        assert "eth7" in scene.machine.links()
        assert not scene.machine.checkpoints()

    play(scene, story)
