"""The cost of a network for a real pod: netdra's hooks beside dranet's, and beside the kernel's bare move of a veth.

Each driver is alone on the same real node, with one containerd, kubelet and control plane. The driver's own time
is read from its metrics; that of the kubelet's calls also from the kubelet's, where dranet's reading of the claim
counts too, which its own metric leaves out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from bench.bed import control_plane
from bench.drivers import DRIVERS, OURS, PEER, PREPARE, RUN, STOP, UNPREPARE, prepare
from bench.figures import Figure
from bench.podruns import DEVICES, IDLE_SECONDS, Measured, measure
from bench.timers import KUBELET
from netdra.kernel.netns import Namespace
from testbed.kubelet import Kubelet
from testbed.node import Node
from testbed.runtimes import started

BESIDE_MOVE_MS, PREPARE_MS, CHAIN_MS, P99_MS, SLOWEST_MS, IDLE_PERCENT = 3.0, 4.0, 6.0, 100.0, 1500.0, 0.2
QUICK = {
    "DRIVERS": DRIVERS[:1],
    "SINGLES": 2,
    "PLAIN": 1,
    "CHAINS": 1,
    "DEVICES": 2,
    "LEAST": 1,
    "CPU_PODS": 1,
    "IDLE_SECONDS": 1.0,
    "REST_SECONDS": 0.2,
}


def run() -> Iterator[Figure]:
    """The figures of both drivers, and netdra's as ratios of dranet's."""
    with control_plane() as plane, Node("bench") as node:
        prepare(plane)
        containerd = started(node)
        Kubelet(containerd, plane, administrator=True)
        with Namespace.open(str(node.path("/proc/1/ns/net"))) as namespace:
            found: dict[str, Measured] = {}
            for driver in DRIVERS:
                found[driver.title] = measure(driver, containerd, plane, namespace)
                yield from _figures(driver.title, found[driver.title])
    yield from _limits(found[OURS])
    yield from _ratios(found[OURS], found[PEER]) if PEER in found else ()


def _figures(title: str, found: Measured) -> Iterator[Figure]:
    note = f"one veth claim, {len(found.claimed)} pods; p99"
    for what in (PREPARE, KUBELET + PREPARE, RUN, STOP, UNPREPARE, KUBELET + UNPREPARE):
        times = found.calls[what]
        yield Figure(f"{title}: {what}, p50", _p50(times), "ms", note=f"{note} {_p99(times):.1f} ms")
    for what, ours, theirs in (
        ("in", [move.into for move in found.moves], [move.into_apart for move in found.moves]),
        ("back", [move.back for move in found.moves], [move.back_apart for move in found.moves]),
    ):
        note = f"beside each of these pods, by {OURS}'s requests; by {PEER}'s {_p50(theirs):.1f} ms"
        yield Figure(f"{title}: bare move {what}, p50", _p50(ours), "ms", note=note)
    note = f"of {len(found.claimed)} with and {len(found.plain)} without a claim"
    yield Figure(f"{title}: create to Running, p50", _p50(found.claimed), "ms", note=note)
    yield Figure(f"{title}: the same without a claim", _p50(found.plain), "ms", note=note)
    yield Figure(f"{title}: {DEVICES} at once, all Running", found.burst_claimed, "ms", note=f"{found.running} run")
    yield Figure(f"{title}: the same without claims", found.burst_plain, "ms")
    note = "of the driver, with its work after the pod's end"
    yield Figure(f"{title}: CPU of a pod with a claim", found.cpu_claimed, "ms", note=note)
    yield Figure(f"{title}: CPU of a pod without one", found.cpu_plain, "ms", note=note)
    yield Figure(f"{title}: CPU of each of {DEVICES} at once", found.cpu_burst, "ms", note="until all run")
    yield Figure(f"{title}: memory", found.memory, "MiB", note=f"RSS with {DEVICES} attached pods")
    limit = IDLE_PERCENT if title == OURS else 0.0
    note = f"of a core over {IDLE_SECONDS:g} s, with {DEVICES} attached pods"
    yield Figure(f"{title}: idle CPU", found.idle, "%", limit, note)


def _limits(ours: Measured) -> Iterator[Figure]:
    """The limits of netdra's own time, independent of the peer."""
    for what, times, bare in (
        (RUN, ours.calls[RUN], [each.into for each in ours.moves]),
        (STOP, ours.calls[STOP], [each.back for each in ours.moves]),
    ):
        yield Figure(f"{what} beyond the bare move, p50", _p50(times) - _p50(bare), "ms", BESIDE_MOVE_MS)
        yield Figure(f"{what}, p99", _p99(times), "ms", P99_MS, f"{len(times)} pods")
        note = f"{DEVICES} at once among them; the bound of the slowest one's bucket"
        yield Figure(f"{what}, slowest", ours.slowest[what], "ms", SLOWEST_MS, note)
    yield Figure(f"{PREPARE}, p50", _p50(ours.calls[PREPARE]), "ms", PREPARE_MS)
    kernel = [each.into + each.chain for each in ours.chain_moves]
    note = f"{len(kernel)} pods; RunPodSandbox {_p50(ours.chains):.1f} ms, the kernel's own {_p50(kernel):.1f} ms"
    yield Figure("three steps beyond the kernel's time, p50", _p50(ours.chains) - _p50(kernel), "ms", CHAIN_MS, note)


def _ratios(ours: Measured, peer: Measured) -> Iterator[Figure]:
    # The load changes between the drivers, and the kernel's move with it: what is beyond that is compared too.
    for what, limit in ((RUN, 1.0), (STOP, 1.0), (KUBELET + PREPARE, 0.0), (KUBELET + UNPREPARE, 0.0)):
        mine, theirs = ours.calls[what], peer.calls[what]
        ratio = _p50(mine) / _p50(theirs)
        error = ratio * math.hypot(_error(mine) / _p50(mine), _error(theirs) / _p50(theirs))
        yield Figure(f"{what}, p50, {OURS} / {PEER}", ratio, "x", limit, f"standard error {error:.2f}")
    yield Figure(f"memory, {OURS} / {PEER}", ours.memory / peer.memory, "x")
    added, peers = (_p50(each.claimed) - _p50(each.plain) for each in (ours, peer))
    # How far the medians would be off by chance.
    error = math.sqrt(sum(_error(each) ** 2 for found in (ours, peer) for each in (found.claimed, found.plain)))
    note = f"{PEER} adds {peers:.0f} ms; standard error {error:.0f} ms, of which two are allowed"
    yield Figure("added to create to Running", added, "ms", max(peers + 2 * error, 0.001), note)
    added, peers = ((each.burst_claimed - each.burst_plain) / DEVICES for each in (ours, peer))
    noise = abs(ours.burst_plain - peer.burst_plain) / DEVICES
    note = f"{PEER} adds {peers:.1f} ms; without claims the two differ by {noise:.1f} ms, which is allowed"
    yield Figure(f"added to each of {DEVICES} at once", added, "ms", max(peers + noise, 0.001), note)


def _p50(times: Sequence[float]) -> float:
    return statistics.median(times)


def _p99(times: Sequence[float]) -> float:
    return sorted(times)[min(len(times) * 99 // 100, len(times) - 1)]


def _error(times: Sequence[float]) -> float:
    """The standard error of a median, of times that are spread like a normal distribution."""
    return 1.25 * statistics.stdev(times) / math.sqrt(len(times))
