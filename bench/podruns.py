"""One driver with real pods: one after the other, fifty at once, and at rest; called by `bench.pods`.

Every pod has a twin without a claim, and beside every pod with one the kernel's bare move is measured. Devices are ends
of veth pairs whose other ends are in no namespace that a driver sees.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from bench.drivers import OURS, RUN, STOP, Driver
from bench.moves import CHAIN_ADDRESS, CHAIN_MTU, Move, Mover, mover
from bench.slices import watched
from bench.timers import Timers, Total
from netdra.kernel import kinds, link
from netdra.kernel.netns import Namespace
from netdra.model.topology import NetworkTopology
from netdra.topology.classes import device_classes
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, POD, manifest
from testbed.pods import Pods, is_running
from testbed.process import Process
from testbed.runtime import Runtime
from testbed.workspace import Workspace, open_workspace

SINGLES, PLAIN, CHAINS, DEVICES = 40, 10, 8, 50
LEAST, PHASE_SECONDS = 8, 100.0
"""On a busy machine, of one after the other: when to stop, and how many there must be then."""
CPU_PODS = 10
IDLE_SECONDS, REST_SECONDS = 30.0, 5.0
TIMEOUT = 120.0  # the kubelet tries a claim again after a minute that it could not have prepared at first

_TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"
_PREFIX = "data"

T = TypeVar("T")
_CPUCLOCK_SCHED = 2  # include/linux/posix-timers.h


@dataclass
class Measured:
    """One driver's figures: times in ms, memory in MiB.

    Attributes:
        calls: by call, of each pod with a claim.
        moves: the kernel's, beside each of these.
        claimed, plain: pod created to Running, with a claim and without.
        chains, chain_moves: RunPodSandbox of pods with three steps, and the kernel beside.
        burst_claimed, burst_plain: the first pod created to the last one Running.
        slowest: by hook, the bound of the slowest one's bucket in the burst.
        running: how many of the burst's pods ran.
        cpu_claimed, cpu_plain, cpu_burst: the driver's processor time of a pod, in ms, from its creation to its end:
            one after the other with a claim and without, and of the burst with claims until all run.
        memory, idle: with all of them attached; `idle` in percent of a core.
    """

    calls: dict[str, list[float]] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    claimed: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    chains: list[float] = field(default_factory=list)
    chain_moves: list[Move] = field(default_factory=list)
    burst_claimed: float = 0.0
    burst_plain: float = 0.0
    slowest: dict[str, float] = field(default_factory=dict)
    running: int = 0
    cpu_claimed: float = 0.0
    cpu_plain: float = 0.0
    cpu_burst: float = 0.0
    memory: float = 0.0
    idle: float = 0.0


def measure(driver: Driver, containerd: Runtime, plane: ControlPlane, namespace: Namespace) -> Measured:
    """All figures of a driver that is started and stopped here.

    Raises:
        TimeoutError: pods do not run, or devices are not published.
    """
    found = Measured()
    with (
        open_workspace(plane.client()) as workspace,
        _devices(namespace),
        mover() as moving,
        _running(driver, containerd, plane) as process,
    ):
        pods = Pods(workspace.api, workspace.namespace, containerd)
        run = _Run(driver, pods, workspace, Timers(driver, namespace, plane), moving, found)
        try:
            _say(f"{driver.title}: one pod after the other ...")
            run.one_by_one()
            _say(f"{driver.title}: {CPU_PODS} pods of each kind, for their processor time ...")
            run.processor(process)
            if driver.title == OURS:
                _say(f"{driver.title}: pods of three steps ...")
                run.chains()
            _say(f"{driver.title}: {DEVICES} pods at once ...")
            run.at_once(process)
        finally:
            pods.delete_all()
    return found


class _Run:
    def __init__(
        self, driver: Driver, pods: Pods, workspace: Workspace, timers: Timers, moving: Mover, found: Measured
    ) -> None:
        self._driver, self._pods, self._workspace = driver, pods, workspace
        self._timers, self._moving, self._found = timers, moving, found
        self._class = _device_class(workspace, driver)

    def one_by_one(self) -> None:
        """Pods with a claim, every second time one without before it; the first of each is not a measurement."""
        for number in _within_time(SINGLES):
            if number % 2 and number // 2 < PLAIN:
                took, _ = self._one(f"plain-{number + 1}")
                self._found.plain += [took] if number > 0 else []
            before = self._times()
            took, move = self._one(f"claimed-{number + 1}", self._class)
            after = self._times()
            if number < 0:
                continue
            self._found.claimed.append(took)
            self._found.moves.append(move)
            for what, total in after.items():
                self._found.calls.setdefault(what, []).append((total.seconds - before[what].seconds) * 1000)

    def processor(self, process: Process) -> None:
        """The driver's processor time for pods, one after the other, and for its work after them."""
        self._found.cpu_plain = self._processor(process, "plain", "")
        self._found.cpu_claimed = self._processor(process, "claimed", self._class)

    def _processor(self, process: Process, kind: str, device_class: str) -> float:
        time.sleep(REST_SECONDS)
        used = _cpu(process)
        for number in range(CPU_PODS):
            self._pod(f"cpu-{kind}-{number}", device_class, lambda: None)
        time.sleep(REST_SECONDS)
        return (_cpu(process) - used) / CPU_PODS * 1000

    def chains(self) -> None:
        """Pods whose claim has three steps."""
        made = _chain(self._workspace)
        for number in _within_time(CHAINS):
            before = self._timers.driver()[RUN]
            _, move = self._one(f"chain-{number + 1}", made, chain=True)
            took = (self._timers.driver()[RUN].seconds - before.seconds) * 1000
            if number >= 0:
                self._found.chains.append(took)
                self._found.chain_moves.append(move)

    def at_once(self, process: Process) -> None:
        """As many pods as there are devices, without claims, then with; those stay while the driver rests."""
        found = self._found
        found.burst_plain, _ = self._burst("many-plain", claimed=False)
        self._pods.delete_all()
        time.sleep(REST_SECONDS)
        used = _cpu(process)
        found.burst_claimed, found.running = self._burst("many", claimed=True)
        with_claims, without = found.burst_claimed / 1000, found.burst_plain / 1000
        _say(f"{self._driver.title}: all ran after {with_claims:.1f} s, without claims {without:.1f} s; at rest ...")
        after = self._timers.driver()
        # Of all hooks since the start, the burst's among them.
        found.slowest = {what: after[what].bound * 1000 for what in (RUN, STOP)}
        time.sleep(REST_SECONDS)
        found.cpu_burst = (_cpu(process) - used) / DEVICES * 1000
        found.memory = process.memory() / 2**20
        used = _cpu(process)
        time.sleep(IDLE_SECONDS)
        found.idle = (_cpu(process) - used) / IDLE_SECONDS * 100
        self._pods.delete_all()

    def _one(self, name: str, device_class: str = "", *, chain: bool = False) -> tuple[float, Move]:
        """Milliseconds until a pod runs, with a claim of a class if there is one, and the kernel's move beside it.

        The move is made while the pod runs: a namespace that has just gone makes one half as long again. The pod is
        gone when this returns.
        """
        return self._pod(name, device_class, lambda: self._moving.move(chain=chain))

    def _pod(self, name: str, device_class: str, act: Callable[[], T]) -> tuple[float, T]:
        """Milliseconds until a pod runs, and the result of an act while it does."""
        claims = [_claim(self._workspace, name, device_class)] if device_class else []
        started = time.perf_counter()
        self._pods.add(name, *claims)
        self._pods.wait(name, is_running, TIMEOUT)
        took = (time.perf_counter() - started) * 1000
        result = act()
        self._pods.delete(name)
        for claim in claims:
            self._workspace.api.delete(CLAIM, claim, self._workspace.namespace)
        return took, result

    def _burst(self, name: str, *, claimed: bool) -> tuple[float, int]:
        """Milliseconds until pods that are made at once all run, and how many do."""
        names = [f"{name}-{number}" for number in range(DEVICES)]
        for each in names if claimed else ():
            _claim(self._workspace, each, self._class)
        started = time.perf_counter()
        for each in names:
            self._pods.add(each, *([each] if claimed else []))
        self._workspace.api.wait_for_all(POD, _all_run(names), namespace=self._workspace.namespace, timeout=TIMEOUT)
        return (time.perf_counter() - started) * 1000, len(names)

    def _times(self) -> dict[str, Total]:
        return {**self._timers.driver(), **self._timers.kubelet()}


def _say(what: str) -> None:
    """Print the present task."""
    print(f"bench: {time.strftime('%X')}: {what}", file=sys.stderr, flush=True)


def _within_time(most: int) -> Iterator[int]:
    """The numbers of measurements from 0 on, after one that does not count."""
    deadline = time.monotonic() + PHASE_SECONDS
    for number in range(-1, most):
        if number < LEAST or time.monotonic() < deadline:
            yield number


def _all_run(names: Sequence[str]) -> Callable[[list[Object]], bool]:
    def condition(found: list[Object]) -> bool:
        running = {pod["metadata"]["name"] for pod in found if is_running(pod)}
        return running.issuperset(names)

    return condition


def _claim(workspace: Workspace, name: str, device_class: str) -> str:
    return workspace.add_claim(name, {"name": "nic", "exactly": {"deviceClassName": device_class}})


def _device_class(workspace: Workspace, driver: Driver) -> str:
    named = f'device.attributes["{driver.name}"].ifName.startsWith("{_PREFIX}")'
    opaque = {"opaque": {"driver": driver.name, "parameters": driver.parameters}}
    config = {"config": [opaque]} if driver.parameters else {}
    return workspace.add_class(f"bench-{driver.title}", f'device.driver == "{driver.name}" && {named}', **config)


def _chain(workspace: Workspace) -> str:
    """A topology of three steps on one of the devices; return its DeviceClass, which the controller would make."""
    cel = f'device.attributes["dra.networking"].ifName.startsWith("{_PREFIX}")'
    dev = {"dev": "{{ nic.interfaceName }}"}
    steps = [
        {"name": "nic", "type": "host-device", "selector": {"cel": cel}},
        {"name": "address", "type": "tuning", "dependOn": ["nic"], "config": {**dev, "addresses": [CHAIN_ADDRESS]}},
        {"name": "size", "type": "tuning", "dependOn": ["address"], "config": {**dev, "mtu": CHAIN_MTU}},
    ]
    whole = manifest(_TOPOLOGY, workspace.name("chain"), spec={"steps": steps})
    workspace.create(whole)
    made = device_classes(msgspec.convert(whole, NetworkTopology))
    for each in made:
        workspace.create(msgspec.to_builtins(each))
    return made[0].metadata.name


@contextmanager
def _devices(namespace: Namespace) -> Iterator[None]:
    """The node's devices, up."""
    with Namespace.anonymous() as far, namespace.socket() as sock, far.socket() as other:
        for number in range(DEVICES):
            name = f"{_PREFIX}{number}"
            link.create(sock, name, "veth", kinds.veth(kinds.Peer(name, netns_fd=far.fd)))
            link.change(sock, name, up=True)
            link.change(other, name, up=True)
        try:
            yield
        finally:
            for number in range(DEVICES):
                link.delete(other, f"{_PREFIX}{number}")


@contextmanager
def _running(driver: Driver, containerd: Runtime, plane: ControlPlane) -> Iterator[Process]:
    """A driver that has published the devices."""
    wanted = {f"{_PREFIX}{number}" for number in range(DEVICES)}
    with watched(plane, driver.name) as seen:
        process = driver.start(containerd.node, plane)
        try:
            if seen.wait(lambda names: wanted <= names, TIMEOUT) is None:
                raise TimeoutError(f"{driver.title} published {len(seen.interfaces())} interfaces and not all devices")
            time.sleep(REST_SECONDS)  # the kubelet learns of a plugin by another way than of its slices
            yield process
        finally:
            process.stop()


def _cpu(process: Process) -> float:
    """A process's CPU time in seconds, by its clock (clock_getcpuclockid(3)): `/proc` counts in steps of 10 ms."""
    assert process.pid is not None
    return time.clock_gettime((~process.pid << 3) | _CPUCLOCK_SCHED)
