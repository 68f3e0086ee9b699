"""From the kernel's event to the ResourceSlice that a watcher sees, beside dranet on the same node and control plane.

Each driver is alone while it is measured, on the same real node with containerd and kubelet; only the quiet minute is
the same for all. Links are veth pairs on the node, and become more and more. The clock starts before the kernel is
asked (of a burst also: when its last link was made), and stops when a watch of the API server shows all of them.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec

from bench.bed import control_plane
from bench.drivers import DRIVERS, OURS, PEER, Driver, prepare
from bench.figures import Figure
from bench.floor import floor
from bench.links import Burst, appear, grow, since, vanish
from bench.slices import Watched, watched
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from testbed.api import Object
from testbed.control_plane import ControlPlane
from testbed.kubelet import Kubelet
from testbed.node import Node
from testbed.objects import SLICE
from testbed.process import Process
from testbed.runtimes import started

# With the burst it must stay below 128 devices, past which dranet publishes nothing.
BURST_BASE = 50
INTERFACES = 100
SIZES = (500, 1000, 2000)
BURST, BURSTS = 50, 3
BETWEEN_SECONDS, QUIET_SECONDS = 1.0, 60.0
# Longer than a peer's slowest poll.
START_TIMEOUT, STUCK_TIMEOUT = 65.0, 15.0
EVENT_RATIO, BURST_RATIO, FLOOR_RATIO, SLOWEST_MS = 0.5, 1.0, 2.0, 150.0
START_RATIO = QUIET_RATIO = 1.0


class Pace(msgspec.Struct, frozen=True):
    """How a driver is asked: so many pairs one by one, so many seconds apart, and so many of rest before."""

    pairs: int
    apart: float
    rest: float


PACES = {OURS: Pace(50, 0.35, 2.0), PEER: Pace(8, 2.5, 10.0)}
"""A peer that has no rest looks once in two seconds."""
QUICK = {
    "DRIVERS": DRIVERS[:1],
    "BURST_BASE": 4,
    "INTERFACES": 8,
    "SIZES": (12,),
    "BURST": 5,
    "BURSTS": 1,
    "BETWEEN_SECONDS": 0.1,
    "QUIET_SECONDS": 1.0,
    "PACES": {OURS: Pace(2, 0.1, 0.5)},
}


class Bursts(msgspec.Struct, frozen=True):
    """One driver's bursts, its CPU time of each of adds (ms), and the least that their writes take (adds, deletes)."""

    added: list[Burst]
    deleted: list[Burst]
    cpu: list[float]
    least: list[tuple[float, float]] = []


class Events(msgspec.Struct, frozen=True):
    """One driver's figures of single events: times in ms, memory in MiB."""

    added: list[float]
    deleted: list[float]
    first: float
    memory: float


class Quiet(msgspec.Struct, frozen=True):
    """A driver's CPU time in ms while nothing happens."""

    cpu: float
    writes: int


class Many(msgspec.Struct, frozen=True):
    """How many of so many interfaces a driver published, after how many seconds, with how much memory (MiB)."""

    size: int
    published: int
    seconds: float
    memory: float


class Measured(msgspec.Struct, frozen=True):
    """All figures of one driver."""

    bursts: Bursts
    events: Events
    quiet: Quiet
    many: list[Many]


class _Scene(msgspec.Struct, frozen=True):
    """Where it happens."""

    plane: ControlPlane
    node: Node
    sock: Socket


def run() -> list[Figure]:
    """The figures of every driver, and netdra's as ratios of dranet's and of the least that is possible."""
    with control_plane() as plane, Node("bench") as node:
        prepare(plane)
        Kubelet(started(node), plane)
        with Namespace.open(str(node.path("/proc/1/ns/net"))) as namespace, namespace.socket() as sock:
            found = _measure(_Scene(plane, node, sock))
    figures = [figure for title, measured in found.items() for figure in _figures(title, measured)]
    return [*figures, *(_ratios(found[OURS], found[PEER]) if PEER in found else ())]


def _measure(scene: _Scene) -> dict[str, Measured]:
    made = grow(scene.sock, 0, BURST_BASE)
    bursts = {driver.title: _bursts(driver, scene) for driver in DRIVERS}
    made = grow(scene.sock, made, INTERFACES)
    events = {driver.title: _events(driver, scene) for driver in DRIVERS}
    quiet = _quiet(scene)
    many: dict[str, list[Many]] = {driver.title: [] for driver in DRIVERS}
    for size in SIZES:
        made = grow(scene.sock, made, size)
        for driver in DRIVERS:
            # A driver that does not publish this number does not publish more.
            if all(one.published >= one.size for one in many[driver.title]):
                many[driver.title].append(_many(driver, scene, size))
    return {name: Measured(bursts[name], events[name], quiet[name], many[name]) for name in bursts}


def _bursts(driver: Driver, scene: _Scene) -> Bursts:
    """Bursts of adds of a driver that has rested, and of deletes right after them."""
    pairs = [(f"x{number}", f"y{number}") for number in range(BURST // 2)]
    added, deleted, cpu, slices = [], [], [], list[Object]()
    with _running(driver, scene) as (seen, process, _):
        _required(seen.wait(lambda names: len(names) >= BURST_BASE, START_TIMEOUT))
        for _ in range(BURSTS):
            time.sleep(PACES[driver.title].rest)
            before = _cpu(process)
            added.append(appear(scene.sock, seen, pairs))
            time.sleep(BETWEEN_SECONDS)
            cpu.append(_cpu(process) - before)
            if driver.title == OURS and not slices:
                with closing(scene.plane.client()) as api:
                    slices = api.list(SLICE, fields=f"spec.driver={driver.name}")[:BURST]
            deleted.append(vanish(scene.sock, seen, pairs))
    return Bursts(added, deleted, cpu, floor(scene.plane, slices, BURSTS) if slices else [])


def _events(driver: Driver, scene: _Scene) -> Events:
    """Single adds and deletes."""
    pace = PACES[driver.title]
    added, deleted = [], []
    with _running(driver, scene) as (seen, process, started):
        first = since(started, seen.wait(bool, START_TIMEOUT))
        _required(seen.wait(lambda names: len(names) >= INTERFACES, START_TIMEOUT))
        time.sleep(pace.rest)
        for number in range(pace.pairs):
            pairs = [(f"one{number}", f"two{number}")]
            added.append(appear(scene.sock, seen, pairs).first)
            time.sleep(pace.apart)
            deleted.append(vanish(scene.sock, seen, pairs).first)
            time.sleep(pace.apart)
        return Events(added, deleted, first, process.memory() / 2**20)


def _quiet(scene: _Scene) -> dict[str, Quiet]:
    """A minute in which nothing happens, of all drivers at once."""
    with ExitStack() as running:
        found = {driver.title: running.enter_context(_running(driver, scene)) for driver in DRIVERS}
        for seen, _, _ in found.values():
            _required(seen.wait(lambda names: len(names) >= INTERFACES, START_TIMEOUT))
        time.sleep(max(pace.rest for pace in PACES.values()))
        before = {name: (_cpu(process), seen.writes) for name, (seen, process, _) in found.items()}
        time.sleep(QUIET_SECONDS)
        return {
            name: Quiet(_cpu(process) - before[name][0], seen.writes - before[name][1])
            for name, (seen, process, _) in found.items()
        }


def _many(driver: Driver, scene: _Scene, size: int) -> Many:
    with _running(driver, scene) as (seen, process, started):
        done = None
        count = -1
        seen.wait(bool, STUCK_TIMEOUT)
        # If the number no longer grows, the driver publishes no more.
        while done is None and len(seen.interfaces()) > count:
            count = len(seen.interfaces())
            done = seen.wait(lambda names: len(names) >= size, STUCK_TIMEOUT)
        return Many(size, len(seen.interfaces()), since(started, done) / 1000, process.memory() / 2**20)


def _figures(title: str, found: Measured) -> Iterator[Figure]:
    yield from _burst_figures(title, found.bursts)
    events, at = found.events, f"{INTERFACES} interfaces"
    apart = f"veth pairs, {PACES[title].apart:g} s apart, at {at}"
    for what, times in (("add", events.added), ("delete", events.deleted)):
        yield Figure(f"{title}: {what} to slice, p50", statistics.median(times), "ms", note=f"{len(times)} {apart}")
    both = sorted(events.added + events.deleted)
    limit = SLOWEST_MS if title == OURS else 0.0
    value = both[math.ceil(0.99 * len(both)) - 1]
    yield Figure(f"{title}: event to slice, p99", value, "ms", limit, f"of {len(both)}, slowest {both[-1]:.0f} ms")
    yield Figure(f"{title}: start to first slice", events.first, "ms", note=f"{at}; process start included")
    yield Figure(f"{title}: memory", events.memory, "MiB", note=f"RSS at {at}, after the events")
    note = f"{found.quiet.writes} writes of slices in {QUIET_SECONDS:g} s in which nothing happens, at {at}"
    yield Figure(f"{title}: CPU time when quiet", found.quiet.cpu, "ms", note=note)
    for one in found.many:
        whole = one.published >= one.size
        note = f"of {one.size:,}, {f'{one.seconds:.1f} s after start' if whole else 'and no more'}"
        yield Figure(f"{title}: published", one.published, "interfaces", note=f"{note}; RSS {one.memory:.0f} MiB")


def _burst_figures(title: str, found: Bursts) -> Iterator[Figure]:
    how = {"adds": "of a rested driver", "deletes": f"{BETWEEN_SECONDS:g} s after the burst of adds"}
    for what, bursts in (("adds", found.added), ("deletes", found.deleted)):
        first, last = (statistics.median(values) for values in ([one.first for one in bursts], _lasts(bursts)))
        note = f"{BURST} interfaces beside {BURST_BASE}, {how[what]}; median of {len(bursts)}"
        yield Figure(f"{title}: burst of {what}, from the first", first, "ms", note=note)
        made = f"the links took {first - last:.0f} ms; {max(one.writes for one in bursts)} writes"
        yield Figure(f"{title}: burst of {what}, from the last", last, "ms", note=made)
    cpu = statistics.median(found.cpu)
    yield Figure(f"{title}: CPU time of a burst of adds", cpu, "ms", note=f"of the driver; {cpu / BURST:.1f} ms a link")
    for what, times in (("adds", [there for there, _ in found.least]), ("deletes", [gone for _, gone in found.least])):
        if times:
            note = f"{BURST} slices of {title}, written by a client that does nothing else"
            yield Figure(f"least for a burst of {what}", statistics.median(times), "ms", note=note)


def _ratios(ours: Measured, peer: Measured) -> Iterator[Figure]:
    mine, theirs = ours.events, peer.events
    pairs: tuple[tuple[str, float, float, float], ...] = (
        ("add to slice, p50", statistics.median(mine.added), statistics.median(theirs.added), EVENT_RATIO),
        ("delete to slice, p50", statistics.median(mine.deleted), statistics.median(theirs.deleted), EVENT_RATIO),
        ("burst of adds, from the last", *_both(ours.bursts.added, peer.bursts.added), 0.0),
        ("burst of deletes, from the last", *_both(ours.bursts.deleted, peer.bursts.deleted), BURST_RATIO),
        ("start to first slice", mine.first, theirs.first, START_RATIO),
        ("memory", mine.memory, theirs.memory, 0.0),
        ("CPU time when quiet", ours.quiet.cpu, peer.quiet.cpu, QUIET_RATIO),
    )
    for what, value, other, limit in pairs:
        yield Figure(f"{what}, {OURS} / {PEER}", value / max(other, 0.001), "x", limit)
    # Links come within a few milliseconds, so that a burst of adds has all its writes before it.
    value, least = statistics.median(_lasts(ours.bursts.added)), statistics.median(one for one, _ in ours.bursts.least)
    yield Figure(f"burst of adds, from the last, {OURS} / least", value / least, "x", FLOOR_RATIO)


def _both(mine: Sequence[Burst], theirs: Sequence[Burst]) -> tuple[float, float]:
    return statistics.median(_lasts(mine)), statistics.median(_lasts(theirs))


def _lasts(bursts: Sequence[Burst]) -> list[float]:
    return [one.last for one in bursts]


@contextmanager
def _running(driver: Driver, scene: _Scene) -> Iterator[tuple[Watched, Process, float]]:
    with watched(scene.plane, driver.name) as seen:
        started = time.perf_counter()
        process = driver.start(scene.node, scene.plane)
        try:
            yield seen, process, started
        finally:
            process.stop()


def _required(moment: float | None) -> None:
    if moment is None:
        raise TimeoutError(f"a driver did not publish all interfaces within {START_TIMEOUT:g} s")


def _cpu(process: Process) -> float:
    """A process's CPU time in milliseconds (proc(5), `stat`)."""
    user, system = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) * 1000 / os.sysconf("SC_CLK_TCK")
