"""Thousands of pods through one node, with random faults; afterwards the process and the node are as before.

Called by `test_many_pods`. Several pods at a time, each with a new claim, a new sandbox, and a fault or none.
Sometimes the driver or the runtime is started again beside them. Everything is drawn from one seed.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from netdra.chain import holders
from netdra.kernel import link, netns
from netdra.model.errors import NetdraError
from netdra.model.plan import ClaimReference
from netdra.node.sandboxes.hooks import UNDO_WORKERS, WORKERS
from netdra.nri import nri_pb2
from testbed import objects
from testbed.api import Api, Object
from testbed.cdi import Cache
from testbed.objects import CLAIM, POD, manifest
from testbed.waiting import until_async
from tests.cluster.sandboxes.scene import WITHIN, Daemon, Scene, chain_of_three, step
from tests.cluster.sandboxes.stand_in import REQUEST_MILLISECONDS, Box, RefusedError, StandIn, driving
from tests.unit.node.nri.peer import Peer, listening

AT_ONCE = 4
"""Pods at a time, each with a device of its own."""
TRIES = 20
"""How often a pod is started if netdra reports that its device is not examined yet, as on a busy machine."""
INTERFACES = tuple(f"eth{number}" for number in range(10, 10 + AT_ONCE))
RESTARTS = 0.04
"""The share of rounds in which the driver is started again, and of those in which the runtime is."""
FAULTS = {
    "none": 40,
    "plugin fails": 12,
    "plugin hangs": 0.5,
    "sandbox ends during its hook": 12,
    "stopped during its hook": 12,
    "lost by the runtime": 12,
    "claim is gone before its release": 12,
    "stopped twice": 6,
}
MOST_DELAY = 0.03
"""Seconds after which a sandbox ends or is stopped while its hook runs; an undisturbed hook takes as long."""
RSS_TOLERANCE = 6 << 20
OBJECT_TOLERANCE = 3000
"""Python's containers, of which one for each pod would already be too many."""
MOST_THREADS = WORKERS + UNDO_WORKERS + 1 + 1 + min(32, (os.cpu_count() or 1) + 4)
"""Pools make their threads as they need them: the driver's, the main thread, and those of the event loop."""

_SCRIPT = """#!/bin/sh
cat >/dev/null
case "$CNI_COMMAND" in
VERSION) echo '{{"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}}' ;;
ADD) {add} ;;
esac
"""
_FAILS = """echo '{"cniVersion": "1.1.0", "code": 100, "msg": "the plugin fails"}'; exit 1"""


class Remains(msgspec.Struct, frozen=True):
    """The resources of this process and of the node that must not grow.

    Attributes:
        memory: resident bytes.
        objects: containers that Python's garbage collector knows.
        descriptors, tasks, threads, children: of this process.
        files: those in the folder of the node's daemon.
        namespaces: the named network namespaces of the test.
        links: the interfaces of the node.
    """

    memory: int
    objects: int
    descriptors: int
    tasks: int
    threads: int
    children: int
    files: tuple[str, ...]
    namespaces: int
    links: tuple[str, ...]

    def __str__(self) -> str:
        counts = f"{self.descriptors} descriptors, {self.tasks} tasks, {self.threads} threads, {len(self.files)} files"
        return f"{self.memory >> 10} KiB, {self.objects} objects, {counts}"

    def growth(self, before: Remains) -> list[str]:
        """The resources that grew, with their former and their present amount."""
        grown = [(name, getattr(before, name), getattr(self, name)) for name in _COUNTED]
        grown += [
            ("threads", MOST_THREADS, self.threads),
            ("memory", before.memory + RSS_TOLERANCE, self.memory),
            ("objects", before.objects + OBJECT_TOLERANCE, self.objects),
        ]
        texts = [f"{name}: at most {most}, {now} in use" for name, most, now in grown if now > most]
        texts += [f"file {path}" for path in sorted({*self.files} - {*before.files})[:5]]
        return texts + ([f"links: {self.links}"] if self.links != before.links else [])


_COUNTED = ("descriptors", "tasks", "children", "namespaces")


class Hasty(StandIn):
    """A runtime whose calls end when it dies, and that remembers the namespaces that it made."""

    made: frozenset[str] = frozenset()
    synchronized: bool = False

    async def connect(self) -> None:
        """As of the others; hooks are called once it has listed its sandboxes."""
        await super().connect()
        self.synchronized = True

    async def die(self) -> None:
        """The runtime ends; its sandboxes stay."""
        self.synchronized = False
        await super().die()

    @property
    def plugin(self) -> Peer | None:
        """The plugin, once it is called."""
        return self.peer if self.synchronized else None

    def named(self) -> frozenset[str]:
        """Those of its namespaces that still have their name."""
        self.made &= frozenset(path.name for path in Path(netns.NAMED).iterdir())
        return self.made

    def _make(self, name: str) -> str:
        self.made |= {name}
        return super()._make(name)

    async def _tell(self, event: nri_pb2.Event, box: Box) -> str:
        peer = self.plugin
        if peer is None:
            return ""
        answer = peer.begin("StateChange", nri_pb2.StateChangeEvent(event=event, pod=box.message))
        ended = asyncio.create_task(peer.ended.wait())
        first: list[asyncio.Future[Any]] = [answer, ended]
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED, timeout=WITHIN)
        finally:
            ended.cancel()
        if not answer.done():
            return "the connection has ended"
        status = answer.result().status
        return str(status.message) if status.code else ""


@dataclass
class Node:
    """The node with its runtime, and a driver that comes and goes.

    Attributes:
        allocations: by topology and interface, the scheduler's.
        drawn: all that is random.
        done: how often each fault happened.
        problems: violations; none is expected.
    """

    scene: Scene
    runtime: Hasty
    drawn: random.Random
    allocations: dict[tuple[str, str], Object]
    done: Counter[str] = field(default_factory=Counter)
    daemon: Daemon | None = None
    present: asyncio.Event = field(default_factory=asyncio.Event)
    problems: list[str] = field(default_factory=list)
    refused: str = ""
    starts: int = 0
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _apis: dict[str, Api] = field(default_factory=dict)
    _calls: set[asyncio.Task[object]] = field(default_factory=set)

    async def enter(self) -> None:
        """A driver comes."""
        self.daemon, _ = await self._stack.enter_async_context(driving(self.scene, self.runtime))
        self.starts += 1
        self.present.set()

    async def leave(self) -> None:
        """The driver ends, in the middle of its work."""
        self.present.clear()
        self.daemon = None
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)
        if self.runtime.peer is not None:
            await self.runtime.die()
        await self._stack.aclose()
        self._stack = AsyncExitStack()

    async def round(self) -> None:
        """A pod for each device, and sometimes another start of the driver or the runtime meanwhile."""
        kinds = self.drawn.choices(list(FAULTS), list(FAULTS.values()), k=len(INTERFACES))
        fates = zip(INTERFACES, kinds, strict=True)
        work = [self.pod(name, kind, self.drawn.uniform(0, MOST_DELAY)) for name, kind in fates]
        chance, delay = self.drawn.random(), self.drawn.uniform(0, 0.2)
        if chance < RESTARTS:
            work.append(self._restart("driver started again", delay, self.leave, self.enter))
        elif chance < 2 * RESTARTS:
            work.append(self._restart("runtime started again", delay, self.runtime.die, self.runtime.connect))
        async with asyncio.TaskGroup() as tasks:
            for each in work:
                tasks.create_task(each)

    async def _restart(self, name: str, delay: float, *acts: Callable[[], object]) -> None:
        self.done[name] += 1
        await asyncio.sleep(delay)
        for act in acts:
            await act()  # type: ignore[misc]

    async def pod(self, interface: str, fault: str, delay: float) -> None:
        """One pod from its creation until nothing is left of it."""
        self.done[fault] += 1
        starts = self.starts
        api = self._apis.setdefault(interface, self.scene.plane.client())
        kind = fault if fault.startswith("plugin") else "three"
        name = f"p{next(self._numbers)}"
        pod, claim = await asyncio.to_thread(self._create, api, name, self.allocations[kind, interface])
        await self._until_done(lambda daemon: daemon.pods.claims.prepare(claim))
        await self._live(pod, fault, delay)
        if fault == "claim is gone before its release":
            await asyncio.to_thread(self._delete_claim, api, name)
        await asyncio.to_thread(api.delete, POD, name, self.scene.workspace.namespace)
        await self._until_done(lambda daemon: daemon.pods.claims.unprepare(claim))
        await asyncio.to_thread(self._delete_claim, api, name)
        if await self._is_lost(interface):
            # A virtual device ends with its pod's namespace while no driver holds that.
            assert starts != self.starts, f"{interface} is lost, and the driver was there: {fault}, {delay:.4f} s"
            self.scene.machine.veth(interface)

    async def _is_lost(self, interface: str) -> bool:
        """Whether a device is gone, once it is neither in a pod nor just being deleted with a namespace."""
        async with asyncio.timeout(WITHIN):
            while True:
                links = self.scene.machine.links()
                if interface in links or f"{interface}p" not in links:
                    return interface not in links
                await asyncio.sleep(0.02)

    async def _live(self, pod: Object, fault: str, delay: float) -> None:
        """A pod's sandbox, from its first hook until the runtime has forgotten it."""
        starts, peer = self.starts, self.runtime.plugin
        running = asyncio.create_task(self._run(pod, again=fault == "none"))
        if "during its hook" in fault:
            await asyncio.sleep(delay)
            uid = pod["metadata"]["uid"]
            for other in [box for box in self.runtime.boxes.values() if box.message.uid == uid]:
                if fault.startswith("stopped"):
                    await self.runtime.stop(other)
                else:
                    self.runtime.end(other)
        box = await running
        if box is None:
            self.done["refused"] += 1
            if fault == "none" and (starts, peer) == (self.starts, self.runtime.plugin):
                self.problems.append(f"a pod without a fault was refused: {self.refused}")
            return
        if fault == "none" and peer is not None and (starts, peer) == (self.starts, self.runtime.plugin):
            self.done["attached"] += 1
            assert "net1" in self._links(box), "a pod runs without its network"
        if fault == "lost by the runtime":
            self.runtime.end(box)
            del self.runtime.boxes[box.key]
            return
        await self.runtime.stop(box)
        if fault == "stopped twice":
            await self.runtime.stop(box)
        await self.runtime.remove(box)

    def _links(self, box: Box) -> set[str]:
        with netns.Namespace.open(box.path) as space, space.socket() as sock:
            return {each.name for each in link.dump(sock)}

    async def _run(self, pod: Object, *, again: bool) -> Box | None:
        """Run a pod; a start that netdra reports as one to retry is tried again, as the kubelet does."""
        for left in reversed(range(TRIES if again else 1)):
            try:
                return await self.runtime.run(pod)
            except RefusedError as problem:
                self.refused = str(problem)
                if not left or "netdra retries automatically" not in self.refused:
                    return None
                self.done["tried again"] += 1
                await asyncio.sleep(0.5)
        return None

    async def _until_done(self, call: Callable[[Daemon], Coroutine[Any, Any, object]]) -> None:
        """The kubelet calls the driver that is there, until the call succeeds."""
        async with asyncio.timeout(WITHIN):
            while True:
                await self.present.wait()
                assert self.daemon is not None
                task = asyncio.create_task(call(self.daemon))
                self._calls.add(task)
                await asyncio.wait({task})
                self._calls.discard(task)
                if not task.cancelled() and task.exception() is None:
                    return
                if not task.cancelled() and not isinstance(task.exception(), NetdraError):
                    task.result()
                await asyncio.sleep(0.1)

    def _create(self, api: Api, name: str, allocation: Object) -> tuple[Object, ClaimReference]:
        """A pod on the node, with its claim, as the scheduler leaves them."""
        namespace = self.scene.workspace.namespace
        requests = [
            {"name": result["request"], "exactly": {"deviceClassName": "any"}}
            for result in allocation["devices"]["results"]
        ]
        claim = api.create(manifest(CLAIM, name, namespace, spec={"devices": {"requests": requests}}))
        pod = objects.pod(namespace, name, {name: name})
        pod["spec"]["schedulerName"] = "nobody"
        pod = api.create(pod)
        user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        claim["status"] = {"allocation": allocation, "reservedFor": [user]}
        api.update(claim, subresource="status")
        target = {"apiVersion": "v1", "kind": "Node", "name": self.scene.node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        api.request("POST", f"{api.path(POD, namespace, name)}/binding", binding)
        return pod, ClaimReference(namespace=namespace, name=name, uid=claim["metadata"]["uid"])

    def _delete_claim(self, api: Api, name: str) -> None:
        api.delete(CLAIM, name, self.scene.workspace.namespace)

    async def at_rest(self) -> None:
        """Wait until nothing of any pod is left."""
        daemon, machine = self.daemon, self.scene.machine
        assert daemon is not None

        def nothing() -> bool:
            kept = machine.checkpoints(), machine.specified(), machine.store.uids()
            return not any((*kept, daemon.pods.network.table.namespaces.sandboxes(), daemon.pods.tracker.pods.objects))

        await until_async(nothing, "nothing of any pod to be left", seconds=WITHIN)
        await daemon.written()

    async def remains(self, before: Remains | None = None) -> Remains:
        """The resources in use when nothing works; of those that end in their own time, once they are as before."""
        await self.at_rest()
        self.scene.told.clear()
        if self.daemon is not None:
            self.daemon.proxy.requests.clear()
        found = self._remains()
        with suppress(TimeoutError):
            async with asyncio.timeout(WITHIN / 4):
                while before is not None and found.growth(before):
                    await asyncio.sleep(0.2)
                    found = self._remains()
        return found

    def _remains(self) -> Remains:
        gc.collect()
        machine = self.scene.machine
        return Remains(
            memory=int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
            objects=len(gc.get_objects()),
            descriptors=len(list(Path("/proc/self/fd").iterdir())),
            tasks=len(asyncio.all_tasks()),
            threads=threading.active_count(),
            children=len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()),
            files=tuple(sorted(str(path) for path in machine.folder.rglob("*") if holders.RETURNED not in path.parts)),
            namespaces=len(self.runtime.named()),
            links=tuple(sorted(machine.links())),
        )

    def close(self) -> None:
        """No connection is left."""
        for api in self._apis.values():
            api.close()


def allocations(scene: Scene) -> dict[tuple[str, str], Object]:
    """Make the node's devices and topologies; the allocation of each by the scheduler."""
    for program, add in {"failing": _FAILS, "hanging": "sleep 600"}.items():
        path = scene.machine.plugins / program
        path.write_text(_SCRIPT.format(add=add))
        path.chmod(0o755)
    scene.publish(*INTERFACES)
    kinds: dict[str, Sequence[Object]] = {
        "three": chain_of_three(),
        "plugin fails": (step("nic", "host-device"), step("far", "failing", after=("nic",))),
        "plugin hangs": (step("nic", "host-device"), step("far", "hanging", after=("nic",))),
    }
    found = {}
    for kind, steps in kinds.items():
        topology = scene.topology(kind.replace(" ", "-"), *steps)
        for interface in INTERFACES:
            only = [{"cel": {"expression": f'device.attributes["dra.networking"].ifName == "{interface}"'}}]
            claim = scene.claim(topology, selectors=only)
            pod = scene.pod(claim, prepare=False)
            found[kind, interface] = scene.stored(claim)["status"]["allocation"]
            scene.workspace.release(pod["metadata"]["name"], claim)
    return found


@asynccontextmanager
async def running(scene: Scene, drawn: random.Random, found: dict[tuple[str, str], Object]) -> AsyncIterator[Node]:
    """A node with a driver."""
    with Cache(scene.machine.files.cdi) as cache:
        async with listening(scene.machine.folder / "nri.sock") as come:
            runtime = Hasty(scene, cache, come, netns.Namespace.anonymous(), request_milliseconds=REQUEST_MILLISECONDS)
            node = Node(scene, runtime, drawn, found)
            try:
                await node.enter()
                yield node
            finally:
                await node.leave()
                node.close()
                runtime.close()
