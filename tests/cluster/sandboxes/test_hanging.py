"""A plugin that never answers costs the pods that need it their network, and other pods no time."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from netdra.model.errors import TemporaryError
from netdra.node.nri.hooks import Sandbox
from netdra.node.sandboxes import hooks
from netdra.node.sandboxes.circuits import NotAnsweringError
from netdra.node.sandboxes.hooks import UNDO_WORKERS, WORKERS
from testbed.objects import POD
from testbed.pace import stretched, within
from testbed.recorder import Recorder
from testbed.waiting import until_async
from tests.cluster.sandboxes.scene import Daemon, Scene, step

SLOW, SHORT = 8, 0.5
"""Seconds that a slow plugin takes to undo, and that a hook waits for it."""
HOOK = (
    6.0  # seconds, as a hook has of a runtime that waits eight: also on a machine that is busy each gets to the plugin
)


@pytest.fixture
def recorded(scene: Scene) -> Recorder:
    """A plugin that neither adds nor deletes."""
    found = Recorder(scene.machine.plugins, "recorded")
    found.does("ADD", "sleep 600")
    found.does("DEL", "sleep 600")
    return found


@pytest.fixture
def hanging(scene: Scene, recorded: Recorder) -> list[Sandbox]:
    """As many pods as there are threads, each with a device and a step of that plugin."""
    names = [f"eth{number}" for number in range(WORKERS)]
    scene.publish(*names, "other")
    topology = scene.topology("hangs", step("nic", "host-device"), step("far", "recorded", after=("nic",)))
    return [scene.machine.sandbox(scene.pod(scene.claim(topology))) for _ in names]


@pytest.fixture
def plain(scene: Scene) -> Sandbox:
    """A pod without claims."""
    name = scene.workspace.add_pod("plain", node=scene.node)
    scene.workspace.wait_placed(name, scene.node)
    return scene.machine.sandbox(scene.workspace.api.get(POD, name, scene.workspace.namespace))


async def refused(daemon: Daemon, sandbox: Sandbox, hook: float = HOOK) -> Exception:
    """The runtime's actions for such a pod: it begins it, is refused, and stops it."""
    problem: Exception | None = None
    try:
        await daemon.run(sandbox, hook)
    except TemporaryError as error:
        problem = error
    assert problem is not None
    with suppress(TemporaryError):
        await daemon.stop(sandbox, HOOK)
    return problem


async def refused_stop(daemon: Daemon, sandbox: Sandbox, hook: float) -> None:
    """The hook of a sandbox that ends returns before it is undone."""
    with pytest.raises(TemporaryError):
        await daemon.stop(sandbox, hook)


def test_after_one_pod_waited_in_vain_the_others_of_its_plugin_are_refused_at_once(
    scene: Scene, hanging: list[Sandbox]
) -> None:
    async def story() -> None:
        async with scene.daemon() as daemon:
            # The plugin is left alone for as long as the test takes, on a machine that is busy too.
            daemon.pods.hooks.circuits.clock = lambda: 0.0
            # A runtime asks about one sandbox after the other, so what one waits for, all wait for.
            await refused(daemon, hanging[0], stretched(HOOK))
            with within(1.0, "the hooks of the other pods"):
                problems = [await refused(daemon, each) for each in hanging[1:]]
            assert {type(each) for each in problems} == {NotAnsweringError}
            assert [each.reason for each in scene.told if each.regarding.kind == "Node"] == ["PluginNotAnswering"]
            assert not [each for each in hanging[1:] if daemon.pods.hooks.has_anything(each.id)]

    asyncio.run(story())


def test_pods_without_claims_do_not_wait_while_every_worker_thread_hangs(
    scene: Scene, hanging: list[Sandbox], plain: Sandbox
) -> None:
    async def story() -> None:
        async with scene.daemon() as daemon:
            tasks = [asyncio.create_task(refused(daemon, each)) for each in hanging]
            await until_async(lambda: len(scene.machine.checkpoints()) == WORKERS, "every thread to be in use")
            with within(0.1, "the hooks of a pod without claims"):
                await daemon.run(plain, HOOK)
                await daemon.stop(plain)
            await asyncio.gather(*tasks)

    asyncio.run(story())


def test_hanging_attachments_are_undone_in_the_background_without_delaying_other_pods(
    scene: Scene, recorded: Recorder, hanging: list[Sandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "UNDO_SECONDS", 5.0)  # so long the plugin goes on to hang after its repair
    whole = scene.topology("whole", step("nic", "host-device"))
    other = scene.machine.sandbox(scene.pod(scene.claim(whole)))

    async def story() -> None:
        async with scene.daemon() as daemon:
            await asyncio.gather(*[refused(daemon, each) for each in hanging])
            assert daemon.pods.hooks.table.troubles or any(
                map(daemon.pods.hooks.table.is_busy, (each.id for each in hanging))
            )
            with within(1.0, "the hooks of a pod with another plugin"):
                await daemon.run(other, HOOK)
                assert scene.machine.links(other) == {"lo", "net1"}
                await daemon.stop(other)
            recorded.does("DEL", "exit 0")
            for each in hanging:
                scene.machine.end(each)
            await until_async(lambda: not scene.machine.checkpoints(), "all to be undone")
            assert {f"eth{number}" for number in range(WORKERS)} <= scene.machine.links()

    asyncio.run(story())


def test_slow_plugins_of_all_pods_are_undone_side_by_side_and_the_devices_can_be_attached_again(
    scene: Scene, recorded: Recorder
) -> None:
    """As when a node is drained."""
    recorded.prints("ADD", {})
    recorded.does("DEL", f"sleep {SLOW}")
    names = [f"eth{number}" for number in range(UNDO_WORKERS)]
    scene.publish(*names)
    topology = scene.topology("slow", step("nic", "host-device"), step("far", "recorded", after=("nic",)))
    pods = [scene.pod(scene.claim(topology)) for _ in names]
    sandboxes = [scene.machine.sandbox(pod) for pod in pods]

    async def story() -> None:
        async with scene.daemon() as daemon:
            for each in sandboxes:
                await daemon.run(each, HOOK)
            await refused_stop(daemon, sandboxes[0], SHORT)
            with within(1.0, "the hooks of the other pods"):
                for each in sandboxes[1:]:
                    await refused_stop(daemon, each, SHORT)
            for each in sandboxes:
                scene.machine.end(each)
            with within(3 * SLOW, "all to be undone"):  # one after the other: eight times as long
                await until_async(lambda: not scene.machine.checkpoints(), "all to be undone", seconds=120)
            # Once in vain in the first pod's hook; then each has the time that it needs.
            assert len(recorded.calls("DEL")) == len(pods) + 1
            assert set(names) <= scene.machine.links()
            again = scene.machine.sandbox(pods[0])
            await daemon.run(again, HOOK)
            assert scene.machine.links(again) == {"lo", "net1"}

    asyncio.run(story())


def test_a_daemon_that_ends_does_not_wait_for_a_slow_plugin(scene: Scene, recorded: Recorder) -> None:
    recorded.prints("ADD", {})
    scene.publish("eth0")
    topology = scene.topology("slow", step("nic", "host-device"), step("far", "recorded", after=("nic",)))
    sandbox = scene.machine.sandbox(scene.pod(scene.claim(topology)))

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox, HOOK)
            await refused_stop(daemon, sandbox, SHORT)
            scene.machine.end(sandbox)
            await until_async(lambda: len(recorded.calls("DEL")) == 2, "it to be undone in the background")
            began = time.monotonic()
        assert time.monotonic() - began < stretched(5)

    asyncio.run(story())
    recorded.does("DEL", "exit 0")

    async def next_daemon() -> None:
        async with scene.daemon():
            await until_async(lambda: not scene.machine.checkpoints(), "the next daemon to undo it")

    asyncio.run(next_daemon())
