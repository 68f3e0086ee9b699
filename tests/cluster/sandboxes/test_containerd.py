"""The hooks behind a real containerd: a pod's interface comes and goes with its sandbox, and a failure refuses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from netdra.kube.backoff import Backoff
from netdra.node.metrics import NODE
from netdra.node.nri.hooks import Sandbox, SandboxHooks
from netdra.node.nri.plugin import NriSettings, Plugin
from testbed.api import Object
from testbed.node import CommandError, Node
from testbed.recorder import Recorder
from testbed.runtime import Runtime
from testbed.runtimes import started
from testbed.waiting import awaited, until_async
from tests.cluster.sandboxes.scene import WITHIN, Daemon, Scene, chain_of_three, step


class Outside:
    """The daemon's hooks, with this process's path to a sandbox's namespace: the runtime has its own mounts."""

    def __init__(self, hooks: SandboxHooks, node: Node) -> None:
        self._hooks = hooks
        self._node = node

    async def synchronize(self, sandboxes: Sequence[Sandbox]) -> None:
        await self._hooks.synchronize([self._seen(each) for each in sandboxes])

    async def run(self, sandbox: Sandbox, budget: float) -> None:
        await self._hooks.run(self._seen(sandbox), budget)

    async def stop(self, sandbox: Sandbox, budget: float) -> None:
        await self._hooks.stop(self._seen(sandbox), budget)

    async def remove(self, sandbox: Sandbox) -> None:
        await self._hooks.remove(self._seen(sandbox))

    def _seen(self, sandbox: Sandbox) -> Sandbox:
        path = str(self._node.path(sandbox.netns)) if sandbox.netns else ""
        return msgspec.structs.replace(sandbox, netns=path)


@pytest.fixture(scope="module")
def shared_runtime() -> Iterator[Runtime]:
    """The containerd of this module's tests."""
    # Not in pytest's folder, whose length leaves too little for the socket's name.
    with Node("sandboxes") as node:
        # No kubelet tries again here what a busy machine has not done in time.
        yield started(node, hook_seconds=WITHIN)


@pytest.fixture
def runtime(shared_runtime: Runtime) -> Iterator[Runtime]:
    """A containerd without sandboxes."""
    yield shared_runtime
    shared_runtime.remove_all()


@asynccontextmanager
async def driving(scene: Scene, runtime: Runtime) -> AsyncIterator[Daemon]:
    """A daemon that is registered with the runtime, and has compared all that runs."""
    async with scene.daemon() as daemon:
        hooks = Outside(daemon.pods.hooks, runtime.node)
        plugin = Plugin(hooks, NriSettings(socket=runtime.nri_socket), backoff=Backoff(0.05, 0.2))
        running = asyncio.create_task(plugin.run())
        try:
            await awaited(plugin.connected.wait(), "the plugin to be connected")
            await awaited(daemon.pods.recovery.wait_finished(), "what runs to be compared")
            yield daemon
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def connections() -> float:
    return NODE.registry.get_sample_value("netdra_nri_connections_total") or 0


async def begin(runtime: Runtime, pod: Object) -> str:
    metadata = pod["metadata"]
    return await asyncio.to_thread(
        runtime.run_pod_sandbox, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
    )


def live(daemon: Daemon, key: str) -> Sandbox:
    return daemon.pods.hooks.table.all_running[key]


def test_a_pods_interfaces_come_with_its_sandbox_and_go_with_it(scene: Scene, runtime: Runtime) -> None:
    scene.publish("eth7")
    claim = scene.claim(scene.topology("three", *chain_of_three()))
    pod = scene.pod(claim)

    async def story() -> None:
        async with driving(scene, runtime) as daemon:
            key = await begin(runtime, pod)
            sandbox = live(daemon, key)
            assert scene.machine.links(sandbox) == {"lo", "eth0", "net1"}
            assert scene.machine.addresses(sandbox, "net1") == {"192.0.2.7/24"}
            assert scene.machine.specified() == {scene.uid(claim)}
            await asyncio.to_thread(runtime.stop_pod_sandbox, key)
            assert "eth7" in scene.machine.links()
            assert not scene.machine.specified()
            await asyncio.to_thread(runtime.remove_pod_sandbox, key)
            assert not scene.machine.checkpoints()

    asyncio.run(story())


def test_shares_of_one_interface_are_in_two_pods(scene: Scene, runtime: Runtime) -> None:
    scene.publish("eth7", shared=True)
    topology = scene.topology("shares", step("mac", "macvlan", {"mode": "bridge"}))
    pods = [scene.pod(scene.claim(topology)) for _ in range(2)]

    async def story() -> None:
        async with driving(scene, runtime) as daemon:
            keys = [await begin(runtime, pod) for pod in pods]
            assert all("net1" in scene.machine.links(live(daemon, key)) for key in keys)
            for key in keys:
                await asyncio.to_thread(runtime.stop_pod_sandbox, key)
            assert not scene.machine.checkpoints()

    asyncio.run(story())


def test_a_sandbox_whose_chain_fails_is_refused_with_the_steps_name(scene: Scene, runtime: Runtime) -> None:
    scene.publish("eth7")
    broken = Recorder(scene.machine.plugins, "recorded")
    broken.fails("ADD", message="no carrier on the far side")
    topology = scene.topology("bad", step("nic", "host-device"), step("far", "recorded", after=("nic",)))
    pod = scene.pod(scene.claim(topology))

    async def story() -> None:
        async with driving(scene, runtime):
            with pytest.raises(CommandError, match="no carrier on the far side"):
                await begin(runtime, pod)
            assert "eth7" in scene.machine.links()
            assert not scene.machine.checkpoints()
            assert len(scene.told) == 1

    asyncio.run(story())


def test_a_sandbox_that_began_and_one_that_ended_without_us_are_settled_when_we_are_back(
    scene: Scene, runtime: Runtime
) -> None:
    scene.publish("eth7", "eth8")
    topology = scene.topology("nics", step("nic", "host-device"))
    first, second = (scene.pod(scene.claim(topology)) for _ in range(2))

    async def story() -> None:
        async with driving(scene, runtime):
            former = await begin(runtime, first)
        await asyncio.to_thread(runtime.stop_pod_sandbox, former)
        new = await begin(runtime, second)
        async with driving(scene, runtime) as daemon:
            assert scene.machine.links(live(daemon, new)) == {"lo", "eth0", "net1"}
            await daemon.pods.recovery.look_around()
            assert scene.machine.checkpoints() == {new}

    asyncio.run(story())


def test_a_runtime_restart_changes_nothing_and_an_unreported_stop_is_detected(scene: Scene, runtime: Runtime) -> None:
    scene.publish("eth7")
    pod = scene.pod(scene.claim(scene.topology("three", *chain_of_three())))

    async def story() -> None:
        async with driving(scene, runtime) as daemon:
            before_restart = connections()
            key = await begin(runtime, pod)
            path = scene.machine.settings.state / f"{key}.jsonl"
            before = path.read_text()
            runtime.process.stop()
            runtime.process.start()
            runtime.process.wait_ready()
            await until_async(lambda: connections() == before_restart + 1, "the plugin to be connected again")
            await awaited(daemon.pods.recovery.wait_finished(), "what runs to be compared")
            assert path.read_text() == before
            assert scene.machine.specified()
            assert "net1" in scene.machine.links(live(daemon, key))
            # Of the stop of a sandbox from before its restart containerd tells nobody.
            await asyncio.to_thread(runtime.stop_pod_sandbox, key)
            await daemon.pods.recovery.look_around()
            assert not scene.machine.specified()
            assert not scene.machine.checkpoints()

    asyncio.run(story())
