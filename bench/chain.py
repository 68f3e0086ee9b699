"""The cost of a chain beyond the kernel's own time, of undoing it, and of the same chains with libcni and binaries.

Everything happens in two network namespaces that are gone afterwards. The kernel's own time is that of the requests
that change something, measured one by one in the same run; the rest of a step is netdra's. Times are wall-clock times,
and the best of several rounds, for neighbours on the machine make noise.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.figures import Figure
from netdra.chain.attach import attach
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.detach import detach
from netdra.chain.site import ChainSettings
from netdra.cni.plugins import PluginPath
from netdra.kernel import kinds, libc, link, netns, uapi
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.model.plan import ClaimReference, Plan, PlannedDevice, PlannedStep
from netdra.rules.plans import check
from netdra.steps import builtin
from testbed import build

Plugin = Mapping[str, Any]

ROUNDS = 15
MANY = 64
STEP_MS = 1.0
FASTER = 1.0
FASTER_WITHOUT_MOVES = 1 / 3
UNDO = 1.0
_READS = {uapi.RTM_GETLINK, uapi.RTM_GETADDR, uapi.RTM_GETROUTE}
_TUNING: dict[str, Any] = {
    "mtu": 1400,
    "addresses": ["10.1.0.5/24", "2001:db8::5/64"],
    "routes": [{"destination": "10.2.0.0/16", "gateway": "10.1.0.1"}],
    "sysctl": {"net.core.somaxconn": "512"},
}
QUICK = {"ROUNDS": 2}


@dataclass
class Bed:
    """Two namespaces, and the folder that everything else is in."""

    pod: Namespace
    folder: Path
    settings: ChainSettings
    plugins: Path


@dataclass
class Kernel:
    """How long requests that change something have taken, in seconds."""

    seconds: float = 0.0
    requests: int = 0
    rounds: list[float] = field(default_factory=list)


def run() -> Iterator[Figure]:
    """The figures of chains."""
    with _bed() as bed:
        yield from _steps(bed)
        yield _many(bed)
        yield from _beside_libcni(bed)


def _steps(bed: Bed) -> Iterator[Figure]:
    """The cost of each kind of step beyond the requests that change the kernel, and the cost of undoing."""
    tuned = [_step("dev", "host-device", "net1", device="nic0")]
    for number in range(8):
        config = {**_TUNING, "addresses": [f"10.{number + 1}.0.5/24"], "routes": []}
        tuned.append(_step(f"t{number}", "tuning", "net1", config, after=tuned[-1].name))
    for name, steps, wanted in (
        ("moving a device in (host-device)", tuned[:1], "host-device"),
        ("tuning: MTU, an address, a sysctl", tuned, "tuning"),
    ):
        own = [_own_ms(bed, steps, wanted, number) for number in range(ROUNDS)]
        up, down = _own_of_both(bed, steps)
        yield Figure(f"{name}, beyond the kernel's own time", min(own), "ms/step", STEP_MS, f"{len(steps)} steps")
        yield Figure(
            f"undoing beside setting up, beyond the kernel's own time: {len(steps)} steps",
            down / up,
            "x",
            UNDO,
            f"{down * 1000:.1f} ms beside {up * 1000:.1f} ms",
        )


def _many(bed: Bed) -> Figure:
    """CPU of a chain whose steps all add an address to one device, which has those of all steps before."""
    steps = [_step("dev", "host-device", "net1", device="nic0")]
    for number in range(1, MANY):
        config = {"addresses": [f"10.{number}.0.5/24"]}
        steps.append(_step(f"a{number}", "tuning", "net1", config, after=steps[-1].name))
    used = []
    for _ in range(ROUNDS):
        began = time.process_time()
        _attach(bed, steps, "many")
        used.append(time.process_time() - began)
        detach("many", bed.settings)
    return Figure(f"CPU of {MANY} steps with an address each on one device", 1000 * min(used), "ms")


def _own_of_both(bed: Bed, steps: Sequence[PlannedStep]) -> tuple[float, float]:
    """Seconds of attaching and of detaching without the kernel's changes: it moves a device for 12 ms either way."""
    up = []
    down = []
    for _ in range(ROUNDS):
        up.append(_own(lambda: _attach(bed, steps, "timed")))
        down.append(_own(lambda: detach("timed", bed.settings)))
    return min(up), min(down)


def _own(call: Callable[[], object]) -> float:
    with _watched() as kernel:
        seconds = _timed(call)
    return seconds - sum(kernel.rounds)


def _own_ms(bed: Bed, steps: Sequence[PlannedStep], wanted: str, number: int) -> float:
    """Milliseconds of one step of a kind without the kernel's changes."""
    with _watched() as kernel:
        before = len(kernel.rounds)
        report = attach(check(_plans(steps)), PodIdentity(sandbox=f"own{number}"), bed.pod.path, bed.settings)
        changes = sum(kernel.rounds[before:])
    detach(f"own{number}", bed.settings)
    of_kind = [each.seconds for each in report.steps if each.plugin == wanted]
    others = sum(each.seconds for each in report.steps if each.plugin != wanted)
    in_kernel = changes if len(report.steps) == len(of_kind) else max(0.0, changes - others)
    return (sum(of_kind) - in_kernel) / len(of_kind) * 1000


@contextmanager
def _watched() -> Iterator[Kernel]:
    """Measure the requests that change the kernel."""
    kernel = Kernel()
    original = Socket.request

    def request(sock: Socket, kind: int, body: bytes, *, flags: int = 0, doing: str) -> list[bytes]:
        started = time.perf_counter()
        try:
            return original(sock, kind, body, flags=flags, doing=doing)
        finally:
            if kind not in _READS:
                kernel.rounds.append(time.perf_counter() - started)

    Socket.request = request  # type: ignore[method-assign, assignment]
    try:
        yield kernel
    finally:
        Socket.request = original  # type: ignore[method-assign]


def _beside_libcni(bed: Bed) -> Iterator[Figure]:
    """The same chains, in-process and by libcni with binaries, without the time that cnitool takes to start.

    For libcni a chain cannot begin with tuning: loopback stands before it, and its time is taken off again.
    """
    address = {"type": "static", "addresses": [{"address": "10.5.0.7/24"}]}
    host_device = {"type": "host-device", "device": "nic0", "ipam": address}
    macvlan = {"type": "macvlan", "master": "nic0", "ipam": address}
    tuning = [{"type": "tuning", "mtu": 1400 + number} for number in range(4)]
    yield _beside(bed, "4 tuning steps, no moves", tuning, FASTER_WITHOUT_MOVES, first=[{"type": "loopback"}])
    yield _beside(bed, "host-device, IPAM and tuning", [host_device, tuning[0]], FASTER)
    with Socket() as sock:  # the program host-device leaves it down
        link.change(sock, "nic0", up=True)
    yield _beside(bed, "macvlan, IPAM and 2 tuning steps", [macvlan, *tuning[:2]], FASTER)


def _beside(bed: Bed, name: str, plugins: Sequence[Plugin], limit: float, *, first: Sequence[Plugin] = ()) -> Figure:
    """One chain; `first` is what libcni alone has before it."""
    if_name = "lo" if first else "net1"
    steps = _as_steps(plugins, if_name)
    ours, theirs, start = [], [], []
    for _ in range(ROUNDS):
        ours.append(_timed(lambda: _attach(bed, steps, "beside")))
        detach("beside", bed.settings)
        theirs.append(_cnitool(bed, [*first, *plugins], if_name))
        start.append(_cnitool(bed, first, if_name))
    own, other = min(ours), min(theirs) - min(start)
    note = f"{own * 1000:.1f} ms beside {other * 1000:.1f} ms"
    return Figure(f"netdra beside libcni: {name}", own / other, "x", limit, note)


def _as_steps(plugins: Sequence[Mapping[str, Any]], if_name: str) -> list[PlannedStep]:
    steps: list[PlannedStep] = []
    for place, plugin in enumerate(plugins):
        config = {key: value for key, value in plugin.items() if key != "type"}
        steps.append(_step(f"s{place}", plugin["type"], if_name, config, after=steps[-1].name if steps else ""))
    return steps


def _step(
    name: str, kind: str, if_name: str, config: Mapping[str, Any] | None = None, *, after: str = "", device: str = ""
) -> PlannedStep:
    return PlannedStep(
        name=name,
        type=kind,
        if_name=if_name,
        network=f"bench-{name}",
        execution="Builtin" if kind in builtin.TYPES else "Binary",
        depend_on=(after,) if after else (),
        config=config or {},
        device=PlannedDevice(request="r", pool="p", device=device, if_name=device) if device else None,
    )


def _plans(steps: Sequence[PlannedStep]) -> tuple[Plan, ...]:
    claim = ClaimReference(namespace="default", name="bench", uid="bench")
    return (Plan(topology="bench", claim=claim, steps=tuple(steps)),)


def _attach(bed: Bed, steps: Sequence[PlannedStep], sandbox: str) -> None:
    # As the node's daemon, which announces addresses after its hook.
    attach(check(_plans(steps)), PodIdentity(sandbox=sandbox), bed.pod.path, bed.settings, announces=False)


def _timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def _cnitool(bed: Bed, plugins: Sequence[Plugin], if_name: str) -> float:
    """Seconds in which cnitool attaches the chain, or starts if none exists; detaches it again."""
    config = {"cniVersion": "1.1.0", "name": "bench", "plugins": plugins}
    (bed.folder / "bench.conflist").write_text(json.dumps(config))
    environment = {**os.environ, "NETCONFPATH": str(bed.folder), "CNI_PATH": str(bed.plugins), "CNI_IFNAME": if_name}
    tool = str(build.program("cnitool"))

    def call(*arguments: str) -> None:
        subprocess.run((tool, *arguments), env=environment, check=True, capture_output=True)

    if not plugins:
        return _timed(lambda: call("help"))
    seconds = _timed(lambda: call("add", "bench", bed.pod.path))
    call("del", "bench", bed.pod.path)
    return seconds


@contextmanager
def _bed() -> Iterator[Bed]:
    name = f"netdra-bench-{uuid.uuid4().hex[:8]}"
    outside = Namespace.current()
    outside.run(lambda: None)  # the pool's thread is born outside, so that it keeps no namespace alive
    plugins = build.program("macvlan").parent
    with tempfile.TemporaryDirectory() as folder, Namespace.anonymous() as node, Namespace.create(name) as pod:
        settings = ChainSettings(
            state=Path(folder) / "state", plugins=PluginPath(directories=(str(plugins),)), budget=30.0
        )
        try:
            libc.setns(node.fd, libc.CLONE_NEWNET)
            with Socket() as sock:
                link.create(sock, "nic0", "veth", kinds.veth(kinds.Peer("nic1")))
                link.change(sock, "nic1", up=True)
            yield Bed(pod=pod, folder=Path(folder), settings=settings, plugins=plugins)
        finally:
            libc.setns(outside.fd, libc.CLONE_NEWNET)
            netns.delete(name)
            outside.close()
