"""A node with 250 pods of three interfaces each: hooks, a restart of the driver, and its first start after a reboot.

The API server is real, and so are the kernel's namespaces and devices; `tests.cluster.sandboxes.stand_in` plays the
runtime, over NRI. The driver's half that keeps pods is a process of its own (`bench.node_driver`) that reports its CPU
time from its first instruction on, imports included; like in netdra's image, Python's bytecode is compiled before. Each
pod has three claims, each for one device.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.bed import control_plane
from bench.figures import Figure
from bench.node_driver import Job, Order, Report
from netdra.kernel import kinds, link
from netdra.kernel.netns import Namespace
from netdra.model.names import DRIVER
from netdra.model.plan import ClaimReference
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.nri import nri_pb2
from testbed import objects
from testbed.api import Object
from testbed.cdi import Cache
from testbed.objects import CLAIM, POD, SLICE, manifest
from testbed.workspace import open_workspace
from tests.cluster.identities import allocated
from tests.cluster.sandboxes.scene import Machine, Scene, new_machine
from tests.cluster.sandboxes.stand_in import Box, StandIn
from tests.unit.node.nri.peer import listening

PODS, INTERFACES, ROUNDS, WARM_UP = 250, 3, 100, 5
PREPARE_MS, HOOK_P99_MS, RATIO, RESTART_CPU, REBOOT_CPU = 60.0, 30.0, 1.8, 2.0, 3.0
QUICK = {"PODS": 3, "ROUNDS": 2, "WARM_UP": 1}
_HOOKS = {"run": "RunPodSandbox", "stop": "StopPodSandbox"}
_LIMIT = 1 << 24
_TOPOLOGY = {
    "apiVersion": "networking.dra.io/v1alpha1",
    "kind": "NetworkTopology",
    "spec": {"steps": [{"name": "nic", "type": "host-device", "selector": {"cel": "true"}}]},
}


def run() -> list[Figure]:
    """The figures of hooks, restart and reboot."""
    with control_plane() as plane, open_workspace(plane.client()) as workspace, _machine() as machine:
        return asyncio.run(_measured(Scene(plane, workspace, workspace.add_node(), machine)))


@contextmanager
def _machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="netdra-node-") as folder:
        machine = new_machine(Path(folder))
        try:
            yield machine
        finally:
            machine.close()


@dataclass
class Driver:
    """The driver's process."""

    process: asyncio.subprocess.Process

    async def report(self) -> Report:
        """Its next report."""
        assert self.process.stdout is not None
        return msgspec.json.decode(await self.process.stdout.readline(), type=Report)

    async def order(self, order: Order) -> Report:
        """Give an order; returns the report of it."""
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(order) + b"\n")
        return await self.report()

    async def end(self) -> None:
        """Have it end."""
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(Order("end")) + b"\n")
        await self.process.wait()


@dataclass
class Node:
    """The node, its pods, and its runtime.

    Attributes:
        prepares: the CPU seconds of Prepare of each pod's claims.
    """

    scene: Scene
    runtime: StandIn
    topology: NetworkTopology
    pods: dict[int, Object] = field(default_factory=dict)
    claims: dict[int, tuple[ClaimReference, ...]] = field(default_factory=dict)
    boxes: dict[int, Box] = field(default_factory=dict)
    prepares: list[float] = field(default_factory=list)

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[tuple[Driver, Report]]:
        """A driver, and its report when it has nothing more to do."""
        machine = self.scene.machine
        job = Job(
            node=self.scene.node,
            kubeconfig=str(self.scene.plane.kubeconfig()),
            folder=str(machine.folder),
            host=machine.host.fd,
            boot=str(machine.folder / "boot"),
            slices=(_slice(self.scene.node),),
            topology=self.topology,
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.node_driver"),
            stdin=PIPE,
            stdout=PIPE,
            pass_fds=(machine.host.fd,),
            limit=_LIMIT,
            env=_compiled(machine.folder),
        )
        driver = Driver(process)
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        try:
            await self.runtime.connect()
            yield driver, await driver.report()
            await driver.end()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            await self.runtime.die()

    def add(self, number: int) -> None:
        """A pod with its claims in the API, and its devices."""
        self.connect(number)
        api, namespace, name = self.scene.workspace.api, self.scene.workspace.namespace, f"pod-{number}"
        names = [f"{name}-{place}" for place in range(INTERFACES)]
        request = [{"name": "nic", "exactly": {"deviceClassName": "any"}}]
        claims = [
            api.create(manifest(CLAIM, each, namespace, spec={"devices": {"requests": request}})) for each in names
        ]
        pod = objects.pod(namespace, name, {each: each for each in names})
        pod["spec"]["schedulerName"] = "nobody"
        pod = api.create(pod)
        user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        for claim in claims:
            status = allocated(claim["metadata"]["name"], self.topology.metadata.name, ["nic"])
            api.update({**claim, "status": {**status, "reservedFor": [user]}}, subresource="status")
        target = {"apiVersion": "v1", "kind": "Node", "name": self.scene.node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        api.request("POST", f"{api.path(POD, namespace, name)}/binding", binding)
        self.pods[number] = pod
        self.claims[number] = tuple(
            ClaimReference(namespace=namespace, name=claim["metadata"]["name"], uid=claim["metadata"]["uid"])
            for claim in claims
        )

    def connect(self, number: int) -> None:
        """The devices of a pod."""
        host = self.scene.machine.host
        with host.socket() as sock:
            for place in range(INTERFACES):
                peer = kinds.Peer(f"w{number}x{place}", netns_fd=self.runtime.outside.fd)
                link.create(sock, f"d{number}x{place}", "veth", kinds.veth(peer))

    async def start(self, driver: Driver, numbers: Sequence[int]) -> None:
        """The kubelet and the runtime start pods."""
        for number in numbers:
            self.prepares.append((await driver.order(Order("prepare", self.claims[number]))).cpu)
            self.boxes[number] = await self.runtime.run(self.pods[number])

    async def hooks(self, driver: Driver, number: int) -> Report:
        """One pod comes and goes, again and again."""
        for turn in range(WARM_UP + ROUNDS):
            if turn == WARM_UP:
                await driver.order(Order("hooks"))
            await self.start(driver, [number])
            await self.runtime.stop(self.boxes[number])
            await self.runtime.remove(self.boxes.pop(number))
        return await driver.order(Order("hooks"))

    def reboot(self) -> None:
        """The machine starts again: its namespaces and devices are gone, and so is what was in memory."""
        for box in self.boxes.values():
            self.runtime.end(box)
        self.boxes.clear()
        self.runtime.boxes.clear()
        machine = self.scene.machine
        shutil.rmtree(machine.files.cdi)
        machine.files.cdi.mkdir()
        (machine.folder / "boot").write_text(str(uuid.uuid4()))


class _Runtime(StandIn):
    """A runtime that ends namespaces after their hook, as containerd does."""

    async def stop(self, box: Box) -> None:
        await self._tell(nri_pb2.STOP_POD_SANDBOX, box)
        self.end(box)


def _compiled(folder: Path) -> dict[str, str]:
    """The environment of a Python that has bytecode below a folder, as netdra's image has it."""
    others = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**others, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


async def _compile(folder: Path) -> None:
    """Compile the modules that a start of the driver imports."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import bench.node_driver", env=_compiled(folder)
    )
    if await process.wait():
        raise RuntimeError("the driver's modules cannot be imported")


async def _measured(scene: Scene) -> list[Figure]:
    machine = scene.machine
    machine.files.cdi.mkdir()
    (machine.folder / "boot").write_text(str(uuid.uuid4()))
    await _compile(machine.folder)
    elsewhere = machine.folder / "unused"  # no container is created, and reading the specifications takes CPU
    elsewhere.mkdir()
    with Cache(elsewhere) as cache:
        async with listening(machine.folder / "nri.sock") as come:
            runtime = _Runtime(scene, cache, come, Namespace.anonymous())
            try:
                return await _figures(Node(scene, runtime, _topology(scene)))
            finally:
                runtime.close()


async def _figures(node: Node) -> list[Figure]:
    """Fill the node, start its driver again, and start the machine again."""
    node.add(PODS)
    async with node.driver() as (driver, empty):
        alone = await node.hooks(driver, PODS)
        for number in range(PODS):
            node.add(number)
        _say(f"{PODS} pods start ...")
        await node.start(driver, range(PODS))
        prepares = [1000 * seconds for seconds in node.prepares[-min(PODS, ROUNDS) :]]
        among = await node.hooks(driver, PODS)
    async with node.driver() as (_, restart):
        pass
    assert restart.checkpoints == PODS, restart
    node.reboot()
    async with node.driver() as (driver, reboot):
        assert not reboot.checkpoints, reboot
        node.connect(0)
        await node.start(driver, [0])  # a pod comes back
    note = f"the last {len(prepares)} pods of {PODS}"
    prepare = Figure(f"Prepare of {INTERFACES} claims, median", statistics.median(prepares), "ms CPU", PREPARE_MS, note)
    return [prepare, *_of_hooks(alone, among), *_of_starts(empty, restart, reboot)]


def _of_hooks(alone: Report, among: Report) -> Iterator[Figure]:
    for hook, name in _HOOKS.items():
        first, cpu = ([1000 * seconds for seconds in report.cpu_of_hooks[hook]] for report in (alone, among))
        own = [1000 * seconds for seconds in among.hooks[hook]]
        note = f"{len(cpu)} pods with {INTERFACES} interfaces, the kernel's changes included"
        yield Figure(f"{name}, alone, median", statistics.median(first), "ms CPU", note=note)
        yield Figure(f"{name}, alone, p99", _p99(first), "ms CPU")
        yield Figure(f"{name}, among {PODS} pods, median", statistics.median(cpu), "ms CPU", note=note)
        yield Figure(f"{name}, among {PODS} pods, p99", _p99(cpu), "ms CPU", HOOK_P99_MS)
        yield Figure(
            f"{name}, among {PODS} pods / alone", statistics.median(cpu) / statistics.median(first), "x", RATIO
        )
        yield Figure(
            f"{name}, among {PODS} pods, elapsed", statistics.median(own), "ms", note="netdra's own time, median"
        )


def _of_starts(empty: Report, restart: Report, reboot: Report) -> Iterator[Figure]:
    yield Figure("start on an empty node", empty.cpu, "s CPU", note=f"{empty.seconds:.2f} s, RSS {_mib(empty):.0f} MiB")
    for name, report, limit in (("restart", restart, RESTART_CPU), ("first start after a reboot", reboot, REBOOT_CPU)):
        note = f"imports included; {report.seconds:.2f} s, RSS {_mib(report):.0f} MiB"
        yield Figure(f"{name} with {PODS} pods", report.cpu, "s CPU", limit, note)
        yield Figure(f"{name}, before the runtime is answered", report.recover, "s CPU")


def _mib(report: Report) -> float:
    return report.memory / 2**20


def _p99(times: Sequence[float]) -> float:
    return sorted(times)[min(len(times) * 99 // 100, len(times) - 1)]


def _say(text: str) -> None:
    print(f"bench: {time.strftime('%X')}: {text}", file=sys.stderr, flush=True)


def _topology(scene: Scene) -> NetworkTopology:
    metadata = {"name": scene.workspace.name("whole"), "uid": str(uuid.uuid4()), "generation": 1}
    return msgspec.convert({**_TOPOLOGY, "metadata": metadata}, NetworkTopology)


def _slice(node: str) -> ResourceSlice:
    """The node's devices as the scheduler knows them: `allocated` names each after its claim."""
    devices = [
        {
            "name": f"pod-{number}-{place}-nic",
            "attributes": {
                f"{DRIVER}/ifName": {"string": f"d{number}x{place}"},
                f"{DRIVER}/supportedCNIs": {"string": ",host-device,"},
            },
        }
        for number in range(PODS + 1)
        for place in range(INTERFACES)
    ]
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return msgspec.convert(manifest(SLICE, "devices", spec=spec), ResourceSlice)
