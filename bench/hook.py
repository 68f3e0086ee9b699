"""RunPodSandbox and StopPodSandbox of a pod with one device, in the daemon alone: no runtime, kubelet or API server.

A veth is moved into a namespace and back, as `bench pods` has it done by pods, through the hooks that the runtime
calls. The kernel's time for the requests that change something is measured apart: the rest is netdra's own. The
kubelet's Unprepare is called the same way. Between two rounds the returned device is examined, as the daemon has it
done in the background. `python -m bench.hook` prints where the time goes, phase by phase. Prepare
of a pooled VF is measured beside Prepare of a VF that is a device, by turns; claims have half of the node's VFs. So is
Prepare on a node with many claims beside a node without any.
"""

from __future__ import annotations

import asyncio
import importlib
import statistics
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any

import msgspec

from bench.figures import Figure
from netdra.chain import checkpoint, returned
from netdra.chain.site import ChainSettings
from netdra.kernel import kinds, libc, link, netns, uapi
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.kube.client import Client
from netdra.model import decoders
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
from netdra.model.meta import ObjectMeta
from netdra.model.names import DRIVER
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.node.cdi.files import ClaimFiles
from netdra.node.claims.store import ClaimStore, KeptDevice, PreparedClaim, PreparedDevice, cdi_id
from netdra.node.hardware import HardwareTable
from netdra.node.nri.hooks import Sandbox
from netdra.node.parts import Dependencies, Pods
from netdra.node.sandboxes.hooks import Threads
from netdra.node.sandboxes.tracker import Tracker
from netdra.ops.boot import boot_id
from netdra.slices.allocator import Allocation, Allocator
from netdra.topology.classes import device_classes
from netdra.topology.devices import DeviceKey
from tests.unit.node.claims.pooled_node import World, card, claim_of, pooled, request, single

ROUNDS = 40
WARM_UP = 5
QUICK = {"ROUNDS": 2, "WARM_UP": 1, "CLAIMS": 8}
BUDGET = 20.0
RUN_MS = 6.0
STOP_MS = 6.0
UNPREPARE_MS = 2.0
EXAMINED_MS = 30.0
VFS = 64
CLAIMS = 250
AMONG_RATIO = 1.2
POOLED_RATIO = 1.1
_READS = {uapi.RTM_GETLINK, uapi.RTM_GETADDR, uapi.RTM_GETROUTE}
_CLAIM = "claim"
_EXAMINED = "examined"
_PHASES = (
    "netdra.node.sandboxes.tracker:Tracker.claims_of",
    "netdra.node.permits:NodePermits.confirm",
    "netdra.node.sandboxes.table:Table.begin_attach",
    "netdra.node.sandboxes.table:Table.complete_attach",
    "netdra.node.sandboxes.table:Table.begin_detach",
    "netdra.node.sandboxes.table:Table.hold",
    "netdra.node.sandboxes.network:attach",
    "netdra.node.sandboxes.network:detach",
    "netdra.node.sandboxes.network:Network.attach",
    "netdra.node.sandboxes.network:Network.undo",
    "netdra.chain.attach:_undo_unless_done",
    "netdra.chain.attach:preflight",
    "netdra.chain.execute:Executor.do",
    "netdra.chain.execute:Executor.undo",
    "netdra.chain.checkpoint:create",
    "netdra.chain.checkpoint:open_existing",
    "netdra.chain.checkpoint:CheckpointJournal.append",
    "netdra.chain.checkpoint:CheckpointJournal.remove",
    "netdra.chain.holders:take",
    "netdra.chain.holders:forget",
    "netdra.steps.builtin:prepare",
    "netdra.steps.builtin:observe",
    "netdra.steps.builtin:apply",
    "netdra.steps.builtin:undo",
)


@dataclass
class Spent:
    """Seconds of one round."""

    kernel: float = 0.0
    phases: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))


@dataclass
class View:
    """The node as the publishing half would have it."""

    devices: Mapping[DeviceKey, PlannedDevice]
    topologies: Mapping[str, NetworkTopology]
    slices: tuple[ResourceSlice, ...] = ()
    vfs: Mapping[DeviceKey, Sequence[PlannedDevice]] = field(default_factory=dict)
    hardware: HardwareTable = field(default_factory=HardwareTable)
    ready: bool = True
    labels: Mapping[str, str] | None = None


def run() -> list[Figure]:
    """The figures of the hooks."""
    times, spent = asyncio.run(_measured(phases=False))
    own = {name: [whole - kernel for whole, kernel in zip(times[name], spent[name], strict=True)] for name in spent}
    return [
        Figure(
            f"{name}, netdra's own time",
            1000 * statistics.median(own[name]),
            "ms",
            limit,
            f"median of {ROUNDS}; with the kernel's {1000 * statistics.median(times[name]):.2f} ms",
        )
        for name, limit in (("RunPodSandbox", RUN_MS), ("StopPodSandbox", STOP_MS), ("Unprepare", UNPREPARE_MS))
    ] + [_examined(times[_EXAMINED]), _pooled(), _among()]


def _examined(seconds: Sequence[float]) -> Figure:
    """CPU time of one search of the machine's namespaces for links on returned devices."""
    processes = sum(entry.name.isdecimal() for entry in Path("/proc").iterdir())
    note = f"CPU, median of {ROUNDS}; {processes} processes"
    return Figure("examination of returned devices", 1000 * statistics.median(seconds), "ms", EXAMINED_MS, note)


def _pooled() -> Figure:
    """CPU time of Prepare of a pooled VF beside that of a VF that is a device of its own."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ending:
        worlds = {
            "single": World(Path(folder) / "single", card(count=VFS), single()),
            "pooled": World(Path(folder) / "pooled", card(count=VFS), pooled()),
        }
        for world in worlds.values():
            ending.callback(world.daemon.table.namespaces.close)
            for _ in range(VFS // 2 - 1):
                world.prepare(_allocated(world))
            world.publish()
        seconds = _prepared(worlds)
    ratios = [ours / beside for ours, beside in zip(seconds["pooled"], seconds["single"], strict=True)]
    once, twice = (1000 * statistics.median(seconds[name]) for name in ("pooled", "single"))
    note = f"CPU, median of {ROUNDS}; {once:.2f} ms, and {twice:.2f} ms of a VF that is a device"
    return Figure("Prepare, pooled VF beside a device", statistics.median(ratios), "x", POOLED_RATIO, note)


def _among() -> Figure:
    """CPU time of Prepare on a node with many claims, each with a pod's checkpoint, beside a node without any."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ending:
        worlds: dict[str, World] = {}
        for name, count in (("alone", 0), ("among", CLAIMS)):
            cards = [card(f"eth{number}", VFS, bus=16 + number) for number in range(1 + CLAIMS // VFS)]
            world = worlds[name] = World(Path(folder) / name, sum(cards, ()), single())
            ending.callback(world.daemon.table.namespaces.close)
            ending.enter_context(world.daemon.store.follow())
            ending.enter_context(checkpoint.follow(world.folder / "checkpoints"))
            allocator = world.server.allocator()
            for _ in range(count):
                claim = _allocated(world, allocator)
                world.prepare(claim)
                world.begin_pod(claim)
        seconds = _prepared(worlds)
    alone, among = (1000 * statistics.median(seconds[name]) for name in ("alone", "among"))
    note = f"CPU, median of {ROUNDS}; {among:.2f} ms, and {alone:.2f} ms without claims"
    return Figure(f"Prepare, among {CLAIMS} claims / alone", among / alone, "x", AMONG_RATIO, note)


def _prepared(worlds: Mapping[str, World]) -> dict[str, list[float]]:
    """CPU seconds of Prepare of a VF, by turns."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for number in range(WARM_UP + ROUNDS):
        for name, world in list(worlds.items())[:: 1 if number % 2 else -1]:
            claim = _allocated(world)
            begun = time.process_time()
            world.prepare(claim)
            seconds[name] += [time.process_time() - begun] if number >= WARM_UP else []
            world.release(claim)
    return seconds


def _allocated(world: World, allocator: Allocator | None = None) -> ResourceClaim:
    """A claim of a VF; with an allocator that has counted all claims before, without counting them again."""
    outcome = (allocator or world.server.allocator()).allocate(claim_of(request()))
    assert isinstance(outcome, Allocation)
    (claim,) = outcome.claims
    world.server.claims[claim.metadata.name] = claim
    return claim


async def _measured(*, phases: bool) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of each round of each call, and those of them that the kernel took for changes."""
    times: dict[str, list[float]] = defaultdict(list)
    kernel: dict[str, list[float]] = defaultdict(list)
    totals: dict[str, Spent] = defaultdict(Spent)
    with bed() as (pods, claim, pod, timed):
        prepared = pods.network.table.prepared.get(claim.metadata.uid)
        assert prepared is not None
        with _phases(timed) if phases else _nothing():
            for number in range(WARM_UP + ROUNDS):
                box = Sandbox(id=f"sb-{number}", name="pod", namespace="ns", uid="pod-uid", netns=pod.path, pid=1)
                pods.network.table.prepared.put(prepared)
                pods.network.table.files.write_metadata(prepared)
                for name, call in (
                    ("RunPodSandbox", partial(pods.hooks.run, box, BUDGET)),
                    ("StopPodSandbox", partial(pods.hooks.stop, box, BUDGET)),
                    ("Unprepare", partial(pods.claims.unprepare, claim.reference)),
                ):
                    timed.kernel, timed.phases, timed.calls = 0.0, defaultdict(float), defaultdict(int)
                    begun = time.perf_counter()
                    await call()
                    seconds = time.perf_counter() - begun
                    if number < WARM_UP:
                        continue
                    times[name].append(seconds)
                    kernel[name].append(timed.kernel)
                    for phase, value in timed.phases.items():
                        totals[name].phases[phase] += value
                        totals[name].calls[phase] += timed.calls[phase]
                used = await examine(pods)
                times[_EXAMINED] += [used] if number >= WARM_UP else []
        await pods.hooks.aclose()
    if phases:
        _show(times, kernel, totals)
    return times, kernel


async def examine(pods: Pods) -> float:
    """Examine the returned device in the daemon's thread for this; return the CPU seconds of the process."""

    def work() -> float:
        began = time.process_time()
        returned.examine(pods.network.settings.state, BUDGET)
        return time.process_time() - began

    return await asyncio.get_running_loop().run_in_executor(pods.hooks.threads.examining, work)


def _show(times: Mapping[str, list[float]], kernel: Mapping[str, list[float]], totals: Mapping[str, Spent]) -> None:
    for name in kernel:
        seconds = times[name]
        own = [whole - changes for whole, changes in zip(seconds, kernel[name], strict=True)]
        print(
            f"{name}: median {1000 * statistics.median(seconds):.2f} ms, "
            f"kernel's changes {1000 * statistics.median(kernel[name]):.2f} ms; "
            f"own: median {1000 * statistics.median(own):.2f}, least {1000 * min(own):.2f} ms"
        )
        for phase, value in sorted(totals[name].phases.items(), key=lambda item: -item[1]):
            print(f"  {1000 * value / ROUNDS:8.3f} ms  {totals[name].calls[phase] / ROUNDS:4.1f} x  {phase}")


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _phases(spent: Spent) -> Iterator[None]:
    """Measure the functions of `_PHASES`, each with its callees."""
    undo: list[Callable[[], None]] = []
    for name in _PHASES:
        module, _, path = name.partition(":")
        *parents, attribute = path.split(".")
        owner: Any = importlib.import_module(module)
        for parent in parents:
            owner = getattr(owner, parent)
        original = getattr(owner, attribute)
        setattr(owner, attribute, _timed(name.removeprefix("netdra."), original, spent))
        undo.append(lambda owner=owner, attribute=attribute, original=original: setattr(owner, attribute, original))  # type: ignore[misc]
    try:
        yield
    finally:
        for act in undo:
            act()


def _timed(name: str, original: Callable[..., Any], spent: Spent) -> Callable[..., Any]:
    @contextmanager
    def measured() -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            spent.phases[name] += time.perf_counter() - begun
            spent.calls[name] += 1

    if asyncio.iscoroutinefunction(original):

        @wraps(original)
        async def later(*arguments: Any, **named: Any) -> Any:
            with measured():
                return await original(*arguments, **named)

        return later

    @wraps(original)
    def now(*arguments: Any, **named: Any) -> Any:
        with measured():
            return original(*arguments, **named)

    return now


class _Known(Tracker):
    """A tracker that knows one pod's claim, as it does of a pod that it has seen come."""

    claim: ResourceClaim

    async def claims_of(self, sandbox: Sandbox, seconds: float) -> tuple[ClaimReference, ...]:
        return (self.claim.reference,)


@contextmanager
def bed(node: Namespace | None = None) -> Iterator[tuple[Pods, ResourceClaim, Namespace, Spent]]:
    """A node with one device, a pod's namespace, and the half of the daemon that keeps pods.

    Args:
        node: the node's namespace, to which the device is added; a new one if it is not given.
    """
    decoders.build()
    name = f"netdra-bench-{uuid.uuid4().hex[:8]}"
    Namespace.current().run(lambda: None)  # the pool's thread is born outside, so that it keeps no namespace alive
    spent = Spent()
    with (
        tempfile.TemporaryDirectory() as folder,
        nullcontext(node) if node is not None else Namespace.anonymous() as host,
        Namespace.create(name) as pod,
    ):
        try:
            with host.socket() as sock:
                link.create(sock, "nic0", "veth", kinds.veth(kinds.Peer("nic1")))
                link.change(sock, "nic1", up=True)
                claim = _claim()
                with _kernel(spent):
                    yield _pods(Path(folder), host, claim), claim, pod, spent
                link.delete(sock, "nic1")
        finally:
            netns.delete(name)


def _pods(folder: Path, node: Namespace, claim: ResourceClaim) -> Pods:
    store = ClaimStore.of_state(folder)
    device = PlannedDevice(request="nic", pool="node", device="nic0", if_name="nic0", supported_cnis=("host-device",))
    told = PreparedDevice(requests=("nic",), pool="node", device="nic0", cdi_ids=(cdi_id(claim.metadata.uid, "nic"),))
    kept = KeptDevice(told=told, facts=device)
    view = View({("node", "nic0"): device}, {_TOPOLOGY.metadata.name: _TOPOLOGY})
    pods = Pods.assemble(
        Dependencies(
            client=_NOBODY,
            node="node",
            settings=ChainSettings(state=folder / "sandboxes"),
            files=ClaimFiles(plugin=folder / "plugin", cdi=folder / "cdi"),
            prepared=store,
            view=view,
            emit=lambda _: None,
            threads=Threads.made(lambda: libc.setns(node.fd, libc.CLONE_NEWNET)),
        )
    )
    _, plan = pods.claims.preparation.bind(claim)
    store.put(PreparedClaim(boot_id=boot_id(), claim=claim.reference, devices=(kept,), plan=plan))
    tracker = _Known(pods.tracker.client, pods.tracker.reflector, store)
    tracker.claim = claim
    pods.hooks.tracker = tracker
    return pods


_NOBODY: Client = None  # type: ignore[assignment]  # nothing is asked of an API server
_TOPOLOGY = msgspec.convert(
    {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "NetworkTopology",
        "metadata": {"name": "whole", "uid": "5d1c5a2e-0000-4000-8000-000000000001", "generation": 1},
        "spec": {"steps": [{"name": "nic", "type": "host-device", "selector": {"cel": "true"}}]},
    },
    NetworkTopology,
)


def _claim() -> ResourceClaim:
    (device_class,) = device_classes(_TOPOLOGY)
    (config,) = device_class.spec.config
    assert config.opaque is not None
    opaque = OpaqueDeviceConfiguration(driver=DRIVER, parameters=config.opaque.parameters)
    result = DeviceRequestAllocationResult(request="nic", driver=DRIVER, pool="node", device="nic0")
    devices = DeviceAllocationResult(
        results=(result,),
        config=(DeviceAllocationConfiguration(source="FromClass", requests=("nic",), opaque=opaque),),
    )
    return ResourceClaim(
        metadata=ObjectMeta(name=_CLAIM, namespace="ns", uid="7b0e8a5e-0000-4000-8000-000000000001"),
        spec=ResourceClaimSpec(),
        status=ResourceClaimStatus(
            allocation=AllocationResult(devices=devices),
            reserved_for=(ResourceClaimConsumerReference(resource="pods", name="pod", uid="pod-uid"),),
        ),
    )


@contextmanager
def _kernel(spent: Spent) -> Iterator[None]:
    """Measure the requests that change the kernel."""
    original = Socket.request

    def request(sock: Socket, kind: int, body: bytes, *, flags: int = 0, doing: str) -> list[bytes]:
        started = time.perf_counter()
        try:
            return original(sock, kind, body, flags=flags, doing=doing)
        finally:
            seconds = time.perf_counter() - started
            if kind not in _READS:
                spent.kernel += seconds
            spent.phases["read" if kind in _READS else f"change {doing[:40]}"] += seconds
            spent.calls["read" if kind in _READS else f"change {doing[:40]}"] += 1

    Socket.request = request  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Socket.request = original  # type: ignore[method-assign]


if __name__ == "__main__":
    asyncio.run(_measured(phases=True))
