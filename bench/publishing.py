"""From the kernel's event to the ResourceSlice that a watcher sees, beside dranet on the same node and control plane.

Each driver is alone while it is measured, on the same real node with containerd and kubelet. Links are veth pairs on
the node; the clock starts before the kernel is asked and stops when a watch of the API server shows all of them.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.drivers import DRIVERS, OURS, PEER, Driver, prepare
from bench.figures import Figure
from bench.slices import Watched, watched
from netdra.kernel import kinds, link
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from testbed.containerd import Containerd
from testbed.control_plane import ControlPlane
from testbed.kubelet import Kubelet
from testbed.node import Node
from testbed.process import Process

INTERFACES = 100
# With the burst it must stay below 128 devices, past which dranet publishes nothing.
BURST_BASE = 50
SIZES = (500, 1000, 2000)
EVENTS, PAUSE_SECONDS = 12, 2.5
BURST, BURSTS, REST_SECONDS = 50, 2, 15.0
QUIET_SECONDS = 60.0
# Longer than a peer's slowest poll.
EVENT_TIMEOUT, START_TIMEOUT, STUCK_TIMEOUT = 65.0, 65.0, 20.0
EVENT_RATIO = BURST_RATIO = 1.0

Pairs = Sequence[tuple[str, str]]


class Measured(msgspec.Struct, frozen=True):
    """One driver's figures: times in ms, memory in MiB."""

    added: list[float]
    deleted: list[float]
    burst_added: float
    burst_deleted: float
    first: float
    memory: float
    quiet_cpu: float
    quiet_writes: int
    published: dict[int, int]
    all_published: dict[int, float]
    memory_at_most: float


def run() -> list[Figure]:
    """The figures of every driver, and netdra's as ratios of dranet's."""
    with ControlPlane() as plane, Node("bench") as node:
        prepare(plane)
        Kubelet(Containerd(node), plane)
        with Namespace.open(str(node.path("/proc/1/ns/net"))) as namespace, namespace.socket() as sock:
            found = {driver.title: _measure(driver, node, plane, sock) for driver in DRIVERS}
    figures = [figure for title, measured in found.items() for figure in _figures(title, measured)]
    return [*figures, *_ratios(found[OURS], found[PEER])]


def _figures(title: str, found: Measured) -> Iterator[Figure]:
    at = f"{INTERFACES} interfaces"
    for what, times in (("add", found.added), ("delete", found.deleted)):
        note = f"{at}, {len(times)} veth pairs, {PAUSE_SECONDS:g} s apart"
        yield Figure(f"{title}: {what} to slice, p50", statistics.median(times), "ms", note=note)
        yield Figure(f"{title}: {what} to slice, slowest", max(times), "ms", note=note)
    note = f"{BURST} interfaces at once beside {BURST_BASE}, until the last one is seen; median of {BURSTS}"
    yield Figure(f"{title}: burst of adds", found.burst_added, "ms", note=note)
    yield Figure(f"{title}: burst of deletes", found.burst_deleted, "ms", note=note)
    yield Figure(f"{title}: start to first slice", found.first, "ms", note=f"{at}; process start included")
    yield Figure(f"{title}: memory", found.memory, "MiB", note=f"RSS at {at}, after the events")
    for size, count in found.published.items():
        seconds = found.all_published[size]
        note = f"of {size:,}, {seconds:.1f} s after start" if count >= size else f"of {size:,}, and no more"
        yield Figure(f"{title}: published", count, "interfaces", note=note)
    yield Figure(f"{title}: memory, most", found.memory_at_most, "MiB", note=f"RSS at {SIZES[-1]:,} interfaces")
    note = f"{found.quiet_writes} writes of slices in {QUIET_SECONDS:g} s in which nothing happens, at {at}"
    yield Figure(f"{title}: CPU time when quiet", found.quiet_cpu, "ms", note=note)


def _ratios(ours: Measured, peer: Measured) -> Iterator[Figure]:
    pairs: tuple[tuple[str, float, float, float], ...] = (
        ("add to slice, p50", statistics.median(ours.added), statistics.median(peer.added), EVENT_RATIO),
        ("delete to slice, p50", statistics.median(ours.deleted), statistics.median(peer.deleted), EVENT_RATIO),
        ("burst of adds", ours.burst_added, peer.burst_added, BURST_RATIO),
        ("burst of deletes", ours.burst_deleted, peer.burst_deleted, BURST_RATIO),
        ("start to first slice", ours.first, peer.first, 0.0),
        ("memory", ours.memory, peer.memory, 0.0),
        ("CPU time when quiet", ours.quiet_cpu, peer.quiet_cpu, 0.0),
    )
    for what, mine, theirs, limit in pairs:
        yield Figure(f"{what}, {OURS} / {PEER}", mine / max(theirs, 0.001), "x", limit)


def _measure(driver: Driver, node: Node, plane: ControlPlane, sock: Socket) -> Measured:
    with _links(sock, INTERFACES), _running(driver, node, plane) as (seen, process, started):
        first = _since(started, seen.wait(bool, START_TIMEOUT))
        _required(seen.wait(lambda names: len(names) >= INTERFACES, START_TIMEOUT))
        time.sleep(REST_SECONDS)
        added, deleted = _one_by_one(sock, seen)
        memory = process.memory() / 2**20
        time.sleep(REST_SECONDS)
        writes, cpu = seen.writes, _cpu(process)
        time.sleep(QUIET_SECONDS)
        writes, cpu = seen.writes - writes, _cpu(process) - cpu
    with _links(sock, BURST_BASE), _running(driver, node, plane) as (seen, _, _):
        _required(seen.wait(lambda names: len(names) >= BURST_BASE, START_TIMEOUT))
        bursts = [_burst(sock, seen) for _ in range(BURSTS)]
    published, times = {}, {}
    for size in SIZES:
        published[size], times[size], memory_at_most = _many(driver, node, plane, sock, size)
    return Measured(
        added=added,
        deleted=deleted,
        burst_added=statistics.median(there for there, _ in bursts),
        burst_deleted=statistics.median(gone for _, gone in bursts),
        first=first,
        memory=memory,
        quiet_cpu=cpu,
        quiet_writes=writes,
        published=published,
        all_published=times,
        memory_at_most=memory_at_most,
    )


def _one_by_one(sock: Socket, seen: Watched) -> tuple[list[float], list[float]]:
    """Milliseconds of single additions and single deletions, of a driver that has rested before each."""
    added, deleted = [], []
    for number in range(EVENTS):
        pairs = [(f"one{number}", f"two{number}")]
        added.append(_appear(sock, seen, pairs))
        time.sleep(PAUSE_SECONDS)
        deleted.append(_vanish(sock, seen, pairs))
        time.sleep(PAUSE_SECONDS)
    return added, deleted


def _burst(sock: Socket, seen: Watched) -> tuple[float, float]:
    """Milliseconds until `BURST` new interfaces are all there, and until they are all gone."""
    pairs = [(f"x{number}", f"y{number}") for number in range(BURST // 2)]
    time.sleep(REST_SECONDS)
    there = _appear(sock, seen, pairs)
    time.sleep(REST_SECONDS)
    return there, _vanish(sock, seen, pairs)


def _appear(sock: Socket, seen: Watched, pairs: Pairs) -> float:
    """Make veth pairs; the milliseconds until both ends of all are published."""
    names = {name for pair in pairs for name in pair}
    started = time.perf_counter()
    for pair in pairs:
        _add(sock, pair)
    return _since(started, seen.wait(lambda found: names <= found, EVENT_TIMEOUT))


def _vanish(sock: Socket, seen: Watched, pairs: Pairs) -> float:
    """Delete veth pairs; the milliseconds until neither end of any is published."""
    names = {name for pair in pairs for name in pair}
    seen_before = names <= seen.interfaces()
    started = time.perf_counter()
    for one, _ in pairs:
        link.delete(sock, one)
    gone = seen.wait(lambda found: not names & found, EVENT_TIMEOUT)
    return _since(started, gone if seen_before else None)


def _many(driver: Driver, node: Node, plane: ControlPlane, sock: Socket, size: int) -> tuple[int, float, float]:
    """How many of `size` interfaces are published, after how many seconds, with how much memory (MiB)."""
    with _links(sock, size), _running(driver, node, plane) as (seen, process, started):
        done = None
        count = -1
        seen.wait(bool, START_TIMEOUT)
        # What has stopped to grow is all that there will be.
        while done is None and len(seen.interfaces()) > count:
            count = len(seen.interfaces())
            done = seen.wait(lambda names: len(names) >= size, STUCK_TIMEOUT)
        return len(seen.interfaces()), _since(started, done) / 1000, process.memory() / 2**20


@contextmanager
def _running(driver: Driver, node: Node, plane: ControlPlane) -> Iterator[tuple[Watched, Process, float]]:
    with watched(plane, driver.name) as seen:
        started = time.perf_counter()
        process = driver.start(node, plane)
        try:
            yield seen, process, started
        finally:
            process.stop()


@contextmanager
def _links(sock: Socket, count: int) -> Iterator[None]:
    pairs = [(f"a{number}", f"b{number}") for number in range(count // 2)]
    for pair in pairs:
        _add(sock, pair)
    try:
        yield
    finally:
        for one, _ in pairs:
            link.delete(sock, one)


def _add(sock: Socket, pair: tuple[str, str]) -> None:
    link.create(sock, pair[0], "veth", kinds.veth(kinds.Peer(pair[1])))


def _since(started: float, moment: float | None) -> float:
    """Milliseconds; infinitely many if the moment did not come."""
    return math.inf if moment is None else (moment - started) * 1000


def _required(moment: float | None) -> None:
    if moment is None:
        raise TimeoutError(f"a driver did not publish {INTERFACES} interfaces within {START_TIMEOUT:g} s")


def _cpu(process: Process) -> float:
    """A process's CPU time in milliseconds (proc(5), `stat`)."""
    user, system = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) * 1000 / os.sysconf("SC_CLK_TCK")
