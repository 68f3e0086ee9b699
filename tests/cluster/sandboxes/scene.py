"""A node with real pods in all but their processes: API objects, network namespaces, devices, and netdra's hooks.

The claims are allocated by the real scheduler. The tests stand where the runtime and the kubelet would: they make a
sandbox's namespace, prepare its claims and call the hooks. The node's own interfaces are in a namespace of their own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from netdra.chain import checkpoint
from netdra.chain.site import ChainSettings
from netdra.cni.plugins import PluginPath
from netdra.kernel import kinds, libc, link, netns
from netdra.kernel.netns import Namespace
from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from netdra.kube.events import Occurrence
from netdra.model import decoders
from netdra.model.names import DRIVER
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import ClaimStore
from netdra.node.hardware import HardwareTable
from netdra.node.nri.hooks import Runner, Sandbox
from netdra.node.parts import Dependencies, Pods
from netdra.node.permits import EVERYTHING, NodePermits
from netdra.node.priority import PriorityGate
from netdra.node.sandboxes.hooks import Threads
from netdra.topology.classes import device_classes
from netdra.topology.devices import DeviceKey, from_slices
from testbed import build
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, POD, SLICE, manifest
from testbed.waiting import awaited, until, until_async
from testbed.workspace import Workspace
from tests.cluster.fault_proxy import FaultProxy

WITHIN = 60.0
BUDGET = 20.0
BINARIES = ("macvlan", "static", "host-device", "host-local")

# The pool's first thread must be born outside the namespaces that tests make, or it would keep one alive.
Namespace.current().run(lambda: None)


@dataclass
class View:
    """The publishing half's view of the node."""

    devices: Mapping[DeviceKey, PlannedDevice] = field(default_factory=dict)
    topologies: Mapping[str, NetworkTopology] = field(default_factory=dict)
    slices: Sequence[ResourceSlice] = ()
    vfs: Mapping[DeviceKey, Sequence[PlannedDevice]] = field(default_factory=dict)
    hardware: HardwareTable = field(default_factory=HardwareTable)
    ready: bool = True
    labels: Mapping[str, str] | None = None


@dataclass
class Machine:
    """The node's namespace and the folders of its daemon; they outlive the daemon."""

    folder: Path
    host: Namespace
    plugins: Path
    settings: ChainSettings
    files: ClaimFiles
    store: ClaimStore
    sandboxes: list[str] = field(default_factory=list)

    def veth(self, name: str) -> None:
        """A veth pair whose first end is a device of the node."""
        with self.host.socket() as sock:
            link.create(sock, name, "veth", kinds.veth(kinds.Peer(f"{name}p")), up=True)
            link.change(sock, f"{name}p", up=True)

    def links(self, sandbox: Sandbox | None = None) -> set[str]:
        """The interfaces of the node, or of a sandbox."""
        if sandbox is None:
            with self.host.socket() as sock:
                return {each.name for each in link.dump(sock)}
        with Namespace.open(sandbox.netns) as space, space.socket() as sock:
            return {each.name for each in link.dump(sock)}

    def ip(self, *arguments: str) -> Any:
        """The decoded output of `ip -j -d` on the node."""
        command = ("nsenter", f"--net=/proc/self/fd/{self.host.fd}", "ip", "-j", "-d", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=True, pass_fds=(self.host.fd,))
        return json.loads(done.stdout)

    def netdra(self, *arguments: str) -> None:
        """Run a command of netdra on the node."""
        command = ("nsenter", f"--net=/proc/self/fd/{self.host.fd}", sys.executable, "-m", "netdra", *arguments)
        subprocess.run(command, check=True, pass_fds=(self.host.fd,))

    def addresses(self, sandbox: Sandbox, interface: str) -> set[str]:
        """The IPv4 addresses of an interface of a sandbox."""
        command = ("nsenter", f"--net={sandbox.netns}", "ip", "-j", "-4", "addr", "show", "dev", interface)
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return {f"{each['local']}/{each['prefixlen']}" for each in json.loads(done.stdout)[0]["addr_info"]}

    def sandbox(self, pod: Object) -> Sandbox:
        """A sandbox for a pod, as the runtime makes it."""
        name = f"netdra-test-{uuid.uuid4().hex[:8]}"
        with Namespace.create(name) as space, space.socket() as sock:
            link.change(sock, "lo", up=True)
            self.sandboxes.append(name)
            metadata = pod["metadata"]
            return Sandbox(
                id=f"sb-{uuid.uuid4().hex[:12]}",
                name=metadata["name"],
                namespace=metadata["namespace"],
                uid=metadata["uid"],
                netns=space.path,
            )

    @contextmanager
    def inhabited(self, sandbox: Sandbox) -> Iterator[str]:
        """A process in a sandbox's namespace until the context ends, as a container has it; the path that it gives."""
        with subprocess.Popen(("nsenter", f"--net={sandbox.netns}", "sleep", "600")) as process:
            path = f"/proc/{process.pid}/ns/net"
            try:
                until(lambda: netns.inode_at(path) == netns.inode_at(sandbox.netns), "the process to be inside")
                yield path
            finally:
                process.kill()

    def end(self, sandbox: Sandbox) -> None:
        """A sandbox's namespace goes, as when its node's runtime removes it."""
        name = Path(sandbox.netns).name
        if name in self.sandboxes:
            self.sandboxes.remove(name)
            netns.delete(name)

    def specified(self) -> set[str]:
        """The uids of the claims that have a CDI specification."""
        return set(self.files.specified())

    def checkpoints(self) -> set[str]:
        """The sandboxes that have a checkpoint."""
        return set(checkpoint.sandboxes(self.settings.state))

    def close(self) -> None:
        """Everything goes."""
        for name in self.sandboxes:
            netns.delete(name)
        self.host.close()


def new_machine(folder: Path) -> Machine:
    """A node without any device."""
    plugins = folder / "plugins"
    plugins.mkdir()
    for program in BINARIES:
        (plugins / program).symlink_to(build.program(program))
    return Machine(
        folder=folder,
        host=Namespace.anonymous(),
        plugins=plugins,
        settings=ChainSettings(
            state=folder / "sandboxes", plugins=PluginPath(directories=(str(plugins),)), budget=BUDGET
        ),
        files=ClaimFiles(plugin=folder / "plugin", cdi=folder / "cdi"),
        store=ClaimStore.of_state(folder),
    )


@dataclass
class Scene:
    """A node in the cluster: its slices, its pods, and the daemon's half that keeps pods."""

    plane: ControlPlane
    workspace: Workspace
    node: str
    machine: Machine
    view: View = field(default_factory=View)
    told: list[Occurrence] = field(default_factory=list)
    permits: NodePermits = EVERYTHING

    def publish(self, *interfaces: str, shared: bool = False) -> None:
        """Make veth devices, and publish each under its name."""
        for name in interfaces:
            self.machine.veth(name)
        capacity = {f"{DRIVER}/slots": {"value": "8", "requestPolicy": {"default": "1"}}}
        devices = [
            {
                "name": name,
                "attributes": {
                    f"{DRIVER}/ifName": {"string": name},
                    f"{DRIVER}/supportedCNIs": {"string": ",host-device,macvlan,recorded,"},
                },
                **({"allowMultipleAllocations": True, "capacity": capacity} if shared else {}),
            }
            for name in interfaces
        ]
        pool = {"name": self.node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": self.node, "pool": pool, "devices": devices}
        self.workspace.publish(self.node, manifest(SLICE, self.workspace.name("devices"), spec=spec))
        stored = self.workspace.api.list(SLICE, fields=f"spec.nodeName={self.node}")
        self.view.slices = tuple(msgspec.convert(each, ResourceSlice) for each in stored)
        self.view.devices = from_slices(self.view.slices)

    def topology(self, base: str, *steps: Object) -> str:
        """Make a topology with its DeviceClasses; return its name."""
        name = self.workspace.name(base)
        whole = {
            "apiVersion": "networking.dra.io/v1alpha1",
            "kind": "NetworkTopology",
            "metadata": {"name": name},
            "spec": {"steps": list(steps)},
        }
        found = msgspec.convert(whole, NetworkTopology)
        self.view.topologies = {**self.view.topologies, name: found}
        for each in device_classes(found):
            self.workspace.create(msgspec.to_builtins(each))
        return name

    def change(self, topology: str, *steps: Object) -> None:
        """Give a topology other steps, as its author would; its DeviceClasses stay."""
        former = self.view.topologies[topology]
        changed = msgspec.convert({**msgspec.to_builtins(former), "spec": {"steps": list(steps)}}, NetworkTopology)
        self.view.topologies = {**self.view.topologies, topology: changed}

    def claim(self, topology: str, name: str = "", **exactly: Any) -> str:
        """Make a claim for the root steps of a topology; return its name."""
        roots = [step.name for step in self.view.topologies[topology].spec.steps if step.selector is not None]
        requests = [{"name": root, "exactly": {"deviceClassName": f"{topology}-{root}", **exactly}} for root in roots]
        return self.workspace.add_claim(name or f"claim-{uuid.uuid4().hex[:6]}", *requests)

    def pod(self, *claims: str, name: str = "", prepare: bool = True) -> Object:
        """Make a pod that uses claims, have it scheduled here, and prepare its claims; return it."""
        name = self.workspace.add_pod(name or f"pod-{uuid.uuid4().hex[:6]}", *claims, node=self.node)
        self.workspace.wait_placed(name, self.node)
        if prepare:
            for claim in claims:
                self.prepare(claim)
        return self.workspace.api.get(POD, name, self.workspace.namespace)

    def of_three(self) -> tuple[str, Sandbox]:
        """A claim for eth7 with a chain of three steps, and the sandbox of the pod that has it."""
        self.publish("eth7")
        claim = self.claim(self.topology("three", *chain_of_three()))
        return claim, self.machine.sandbox(self.pod(claim))

    def stored(self, claim: str) -> Object:
        """A claim as the server has it."""
        return self.workspace.api.get(CLAIM, claim, self.workspace.namespace)

    def uid(self, claim: str) -> str:
        """A claim's uid."""
        uid: str = self.stored(claim)["metadata"]["uid"]
        return uid

    def prepare(self, name: str) -> None:
        """The kubelet prepares a claim."""
        reference = ClaimReference(namespace=self.workspace.namespace, name=name, uid=self.uid(name))

        async def call() -> None:
            async with Client(connect(find_config(self.plane.kubeconfig()))) as client:
                pods = Pods.assemble(self.dependencies(client))
                if any(each["driver"] == DRIVER for each in self.results(name)):
                    await pods.claims.prepare(reference)

        asyncio.run(call())

    def results(self, claim: str) -> list[Object]:
        """A claim's allocated devices."""
        found: list[Object] = self.stored(claim)["status"]["allocation"]["devices"]["results"]
        return found

    def dependencies(self, client: Client) -> Dependencies:
        """The dependencies of the daemon's half that keeps pods."""
        host = self.machine.host.fd
        return Dependencies(
            client=client,
            node=self.node,
            settings=self.machine.settings,
            files=self.machine.files,
            prepared=self.machine.store,
            view=self.view,
            emit=self.told.append,
            threads=Threads.made(lambda: libc.setns(host, libc.CLONE_NEWNET)),
            permits=self.permits,
        )

    @asynccontextmanager
    async def daemon(self, *, watching: bool = True) -> AsyncIterator[Daemon]:
        """The daemon's half that keeps pods, from its start to its end; its events for people are in `told`."""
        decoders.build()
        async with FaultProxy(self.plane).serving() as proxy, Client(connect(proxy.config)) as client:
            pods = Pods.assemble(self.dependencies(client))
            await pods.recover()
            task = asyncio.create_task(pods.run() if watching else _without_watch(pods))
            try:
                if watching:
                    await awaited(pods.tracker.pods.wait_synced(), "the watch of pods to begin")
                    # The first look for orphans must not meet what a test does.
                    await until_async(lambda: pods.recovery.rounds, "the first look for orphans")
                yield Daemon(pods, proxy)
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


@dataclass
class Daemon:
    """A daemon that runs."""

    pods: Pods
    proxy: FaultProxy
    runner: Runner = field(default_factory=lambda: Runner(PriorityGate()))

    async def run(self, sandbox: Sandbox, budget: float = BUDGET) -> None:
        """The hook of a sandbox that begins, answered in time."""
        await self.runner.run("run", "the run hook", self.pods.hooks.run(sandbox, budget), budget)

    async def stop(self, sandbox: Sandbox, budget: float = BUDGET) -> None:
        """The hook of a sandbox that stops, answered in time."""
        await self.runner.run("stop", "the stop hook", self.pods.hooks.stop(sandbox, budget), budget)

    async def written(self) -> None:
        """Wait until the claims' statuses contain all reports."""
        await awaited(self.pods.writer.wait_written(), "the claims' statuses to be written")

    async def seen(self, pod: Object) -> None:
        """Wait until the watch knows a pod, and its claims are read."""
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        tracker = self.pods.tracker
        await awaited(tracker.pods.until(lambda: key in tracker.pods.objects), "the watch to bring a pod")
        await awaited(tracker.at_rest(), "the pod's claims to be read")

    async def synchronize(self, *sandboxes: Sandbox) -> None:
        """The runtime states what runs; wait until all is compared."""
        await self.pods.hooks.synchronize(sandboxes)
        await awaited(self.pods.recovery.wait_finished(), "what runs to be compared")


async def _without_watch(pods: Pods) -> None:
    """A daemon whose watch of the pods has not brought anything yet."""
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pods.writer.run())
            tasks.create_task(pods.recovery.run())
    finally:
        await pods.hooks.aclose()


def step(name: str, kind: str, config: Mapping[str, Any] | None = None, after: Sequence[str] = ()) -> Object:
    """A step of a topology; without dependencies it is a root step for any device."""
    selector = {} if after else {"selector": {"cel": "true"}}
    more = {"config": dict(config)} if config else {}
    return {"name": name, "type": kind, **({"dependOn": list(after)} if after else {}), **selector, **more}


def chain_of_three(address: str = "192.0.2.7/24") -> tuple[Object, ...]:
    """A device that is moved, given an address, and tuned."""
    return (
        step("nic", "host-device"),
        step("address", "tuning", {"dev": "{{ nic.interfaceName }}", "addresses": [address]}, after=("nic",)),
        step("size", "tuning", {"dev": "{{ nic.interfaceName }}", "mtu": 1400}, after=("address",)),
    )


def ready(claim: Object) -> Object:
    """The Ready condition of a claim's first device."""
    (found,) = claim["status"]["devices"][0]["conditions"]
    condition: Object = found
    return condition
