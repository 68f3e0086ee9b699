"""A runtime calls its hooks for one sandbox after the other: how long pods without claims wait for plugins that hang.

The runtime is a lock here, as it is in NRI (`Adaptation` in github.com/containerd/nri). All behind it is netdra's own:
the hooks, the chain, programs, namespaces. `tests/cluster/pods/test_hanging_plugins.py` has the same with a real one.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from netdra.chain.checkpoint import boot_id
from netdra.chain.site import ChainSettings
from netdra.cni.plugins import PluginPath
from netdra.kernel import libc, netns
from netdra.kernel.netns import Namespace
from netdra.model.claim import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from netdra.model.errors import NetdraError
from netdra.model.meta import ObjectMeta
from netdra.model.names import DRIVER
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.model.topology import NetworkTopology
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import ClaimStore, KeptDevice, PreparedClaim, PreparedDevice, cdi_id
from netdra.node.hardware import HardwareTable
from netdra.node.nri.hooks import DEFAULT_TIMEOUT, Runner, Sandbox, budget
from netdra.node.parts import Dependencies, Pods
from netdra.node.permits import EVERYTHING
from netdra.node.priority import PriorityGate
from netdra.node.sandboxes.hooks import Threads
from netdra.node.sandboxes.tracker import Tracker
from netdra.topology.classes import device_classes
from netdra.topology.devices import DeviceKey
from testbed.pace import Pace, measured
from testbed.recorder import Recorder
from tests.kernel.conftest import Machine

NODE = "node"
SECONDS = 5.0
"""Pods without claims begin for so long, one every quarter of a second."""
HOOK_SECONDS = 1.75
"""What one hook takes at most of the two seconds that a runtime waits (docs/nri.md)."""
IN_VAIN = 0.8
"""A hook that takes longer waited in vain: a plugin that hangs has 0.87 s."""
ALLOWED = budget(DEFAULT_TIMEOUT, 0.0, 0.0)


class Known(Tracker):
    """A tracker that knows which claim a pod has, as of pods that it has seen come."""

    of_pods: dict[str, ClaimReference]

    def knows_to_be_claimless(self, sandbox: Sandbox) -> bool:
        return sandbox.uid not in self.of_pods

    async def claims_of(self, sandbox: Sandbox, seconds: float) -> tuple[ClaimReference, ...]:
        return (self.of_pods[sandbox.uid],)


@dataclass
class View:
    """The node as the publishing half would have it."""

    devices: dict[DeviceKey, PlannedDevice] = field(default_factory=dict)
    topologies: dict[str, NetworkTopology] = field(default_factory=dict)
    slices: tuple[Any, ...] = ()
    vfs: dict[DeviceKey, Sequence[PlannedDevice]] = field(default_factory=dict)
    hardware: HardwareTable = field(default_factory=HardwareTable)
    ready: bool = True


@dataclass
class Node:
    """A node with pods, and a runtime that calls hooks in turn.

    Attributes:
        held: how long the runtime waited for each hook of a pod with a claim.
        waited: how long pods without claims waited, each from its beginning to its answer.
    """

    machine: Machine
    folder: Path
    ending: ExitStack
    pods: Pods = field(init=False)
    view: View = field(default_factory=View)
    held: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _runner: Runner = field(default_factory=lambda: Runner(PriorityGate()))

    def plugin(self) -> Recorder:
        """A new plugin, which answers."""
        folder = self.folder / "plugins"
        folder.mkdir(exist_ok=True)
        return Recorder(folder, f"far-{uuid.uuid4().hex[:6]}")

    def start(self) -> None:
        """Start the daemon's half that keeps pods."""
        host = self.machine.namespace.fd
        self.pods = Pods.assembled(
            Dependencies(
                client=None,  # type: ignore[arg-type]  # nothing is asked of an API server
                node=NODE,
                settings=ChainSettings(
                    state=self.folder / "sandboxes",
                    plugins=PluginPath(directories=(str(self.folder / "plugins"),)),
                ),
                files=ClaimFiles(plugin=self.folder / "plugin", cdi=self.folder / "cdi"),
                prepared=ClaimStore.of_state(self.folder),
                view=self.view,
                emit=lambda _: None,
                threads=Threads.made(lambda: libc.setns(host, libc.CLONE_NEWNET)),
                permits=EVERYTHING,
            )
        )
        tracker = Known(self.pods.tracker.client, self.pods.tracker.reflector, self.pods.tracker.records)
        tracker.of_pods = {}
        self.pods.hooks.tracker = tracker

    def pod(self, *plugins: Recorder) -> Sandbox:
        """A sandbox, of a pod with a claim for a device and for steps of plugins if there are any."""
        number = uuid.uuid4().hex[:6]
        name = f"netdra-test-{number}"
        self.ending.callback(netns.delete, name)
        with Namespace.create(name) as space:
            sandbox = Sandbox(id=f"sb-{number}", name=number, namespace="ns", uid=number, netns=space.path, pid=1)
        if plugins:
            self._prepare(sandbox, plugins)
        return sandbox

    def _prepare(self, sandbox: Sandbox, plugins: Sequence[Recorder]) -> None:
        name = f"eth-{sandbox.uid}"
        self.machine.veth(name, f"far-{sandbox.uid}")
        device = PlannedDevice(request="nic", pool=NODE, device=name, if_name=name, supported_cnis=("host-device",))
        self.view.devices[NODE, name] = device
        topology = _topology(sandbox.uid, plugins)
        self.view.topologies[topology.metadata.name] = topology
        claim = _claim(sandbox, topology)
        _, plan = self.pods.claims.bind(claim)
        told = PreparedDevice(requests=("nic",), pool=NODE, device=name, cdi_ids=(cdi_id(claim.metadata.uid, "nic"),))
        kept = KeptDevice(told=told, facts=device)
        self.pods.network.table.prepared.put(
            PreparedClaim(boot_id=boot_id(), claim=claim.reference, devices=(kept,), plan=plan)
        )
        assert isinstance(self.pods.hooks.tracker, Known)
        self.pods.hooks.tracker.of_pods[sandbox.uid] = claim.reference

    async def begin(self, sandbox: Sandbox) -> None:
        """What a runtime does with a pod that begins; one that is refused is stopped and removed."""
        try:
            await self._call("run", lambda: self.pods.hooks.run(sandbox, ALLOWED.work))
        except NetdraError:
            await self.end(sandbox)

    async def end(self, sandbox: Sandbox) -> None:
        """What a runtime does with a pod that ends."""
        for name, hook in (
            ("stop", lambda: self.pods.hooks.stop(sandbox, ALLOWED.work)),
            ("remove", lambda: self.pods.hooks.remove(sandbox)),
        ):
            with suppress(NetdraError):
                await self._call(name, hook)

    async def plain(self, after: float) -> None:
        """A pod without claims that begins later."""
        sandbox = self.pod()
        await asyncio.sleep(after)
        began = time.monotonic()
        async with self._lock:
            await self._runner.run("run", "run", self.pods.hooks.run(sandbox, ALLOWED.work), ALLOWED.answer)
        self.waited.append(time.monotonic() - began)

    async def _call(self, name: str, hook: Callable[[], Any]) -> None:
        async with self._lock:
            began = time.monotonic()
            try:
                await self._runner.run(name, name, hook(), ALLOWED.answer)
            finally:
                self.held.append(time.monotonic() - began)

    async def beside(self, *others: Awaitable[None]) -> None:
        """Begin pods without claims while something else goes on."""
        await asyncio.gather(*others, *(self.plain(0.25 * number) for number in range(int(SECONDS * 4))))


def _topology(base: str, plugins: Sequence[Recorder]) -> NetworkTopology:
    steps: list[dict[str, Any]] = [{"name": "nic", "type": "host-device", "selector": {"cel": "true"}}]
    for number, plugin in enumerate(plugins):
        steps.append({"name": f"step{number}", "type": plugin.name, "dependOn": [steps[-1]["name"]]})
    metadata = {"name": f"t-{base}", "uid": str(uuid.uuid4()), "generation": 1}
    whole = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "NetworkTopology", "metadata": metadata}
    return msgspec.convert({**whole, "spec": {"steps": steps}}, NetworkTopology)


def _claim(sandbox: Sandbox, topology: NetworkTopology) -> ResourceClaim:
    (device_class,) = device_classes(topology)
    (config,) = device_class.spec.config
    assert config.opaque is not None
    opaque = OpaqueDeviceConfiguration(driver=DRIVER, parameters=config.opaque.parameters)
    result = DeviceRequestAllocationResult(request="nic", driver=DRIVER, pool=NODE, device=f"eth-{sandbox.uid}")
    devices = DeviceAllocationResult(
        results=(result,),
        config=(DeviceAllocationConfiguration(source="FromClass", requests=("nic",), opaque=opaque),),
    )
    user = ResourceClaimConsumerReference(resource="pods", name=sandbox.name, uid=sandbox.uid)
    return ResourceClaim(
        metadata=ObjectMeta(name=f"c-{sandbox.uid}", namespace="ns", uid=str(uuid.uuid4())),
        spec=ResourceClaimSpec(),
        status=ResourceClaimStatus(allocation=AllocationResult(devices=devices), reserved_for=(user,)),
    )


@pytest.fixture
def node(machine: Machine, tmp_path: Path) -> Iterator[Node]:
    with ExitStack() as ending:
        found = Node(machine, tmp_path, ending)
        found.start()
        yield found


def hanging(node: Node, types: int, *verbs: str) -> list[Recorder]:
    plugins = [node.plugin() for _ in range(types)]
    for plugin in plugins:
        for verb in verbs:
            plugin.does(verb, "exec sleep 600")
    return plugins


async def ended(node: Node, plugins: Sequence[Recorder]) -> None:
    """Let the plugins answer, and wait until nothing is in hand."""
    for plugin in plugins:
        plugin.prints("ADD", {})
        plugin.does("DEL", "exit 0")
    await node.pods.hooks.aclose()


def waits_once(node: Node, pace: Pace) -> None:
    """One hook waited in vain, and no pod without claims waited for more than this one."""
    assert len([seconds for seconds in node.held if seconds > IN_VAIN]) == 1, (node.held, pace)
    assert max(node.waited) < HOOK_SECONDS + 0.3 * pace.slowness, pace


@pytest.mark.parametrize(("pods", "types"), [(1, 1), (4, 1), (8, 1), (8, 4), (8, 8)])
def test_pods_without_claims_wait_for_one_hook_of_all_pods_whose_plugins_hang(
    node: Node, pods: int, types: int
) -> None:
    async def story() -> None:
        plugins = hanging(node, types, "ADD", "DEL")
        await node.beside(*(node.begin(node.pod(plugins[number % types])) for number in range(pods)))
        await ended(node, plugins)

    with measured() as pace:
        asyncio.run(story())
    print(f"{pods} pods, {types} plugins: hooks {sum(node.held):.2f} s, longest wait {max(node.waited):.2f} s, {pace}")
    waits_once(node, pace)


def test_a_plugin_that_is_called_too_late_to_be_blamed_is_not_waited_for_again(node: Node) -> None:
    """Before it, another step of each pod takes most of the time."""

    async def story() -> None:
        slow = node.plugin()
        slow.does("ADD", 'sleep 0.7; cat "$state/ADD.json"')
        plugins = hanging(node, 8, "ADD", "DEL")
        await node.beside(*(node.begin(node.pod(slow, plugin)) for plugin in plugins))
        await ended(node, [slow, *plugins])

    with measured() as pace:
        asyncio.run(story())
    waits_once(node, pace)


@pytest.mark.parametrize("restarted", [False, True])
def test_pods_that_end_are_not_waited_for_one_after_the_other_either(node: Node, restarted: bool) -> None:
    async def story() -> None:
        plugins = hanging(node, 4)
        sandboxes = [node.pod(plugins[number % 4]) for number in range(8)]
        for sandbox in sandboxes:
            await node.begin(sandbox)
        node.held.clear()
        for plugin in plugins:
            plugin.does("DEL", "exec sleep 600")
        if restarted:  # then what a pod's plugins are is in its checkpoint
            await node.pods.hooks.aclose()
            node.start()
            await node.pods.recover()
        await node.beside(*(node.end(sandbox) for sandbox in sandboxes))
        await ended(node, plugins)

    with measured() as pace:
        asyncio.run(story())
    print(f"stops: hooks {sum(node.held):.2f} s, longest wait {max(node.waited):.2f} s, {pace}")
    waits_once(node, pace)


def test_a_plugin_that_answers_serves_its_pods_while_another_one_hangs(node: Node) -> None:
    async def story() -> None:
        good, (bad,) = node.plugin(), hanging(node, 1, "ADD", "DEL")
        await node.begin(node.pod(good))
        await node.begin(node.pod(bad))
        served = [node.pod(good) for _ in range(4)]
        for sandbox in served:
            await node.begin(sandbox)
        assert len(good.calls("ADD")) == 5
        assert len(bad.calls("ADD")) == 1
        for sandbox in served:
            await node.end(sandbox)
        await ended(node, [good, bad])
        assert len(good.calls("DEL")) == 4

    asyncio.run(story())
