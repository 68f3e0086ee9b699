"""Memory over a hundred thousand events of the kernel: the memory that a driver keeps of interfaces that came and went.

Beside dranet on the same node: each driver sees the same number of veth pairs, made and deleted in batches, after a
first part that fills all bounded memory. The number of events is netdra's own count, overflows counted apart.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from bench.bed import control_plane
from bench.drivers import DRIVERS, OURS, Driver, prepare
from bench.figures import Figure
from bench.slices import watched
from netdra.kernel import kinds, link
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from testbed.control_plane import ControlPlane
from testbed.kubelet import Kubelet
from testbed.node import Node
from testbed.runtimes import started

EVENTS, WARM_UP = 100_000, 20_000
BATCH = 40
MOST_SECONDS = 150.0
"""For each driver, the warming up included."""
START_TIMEOUT, REST_SECONDS = 65.0, 10.0
MOST_GROWTH = 2.0
"""MiB; a leak of 20 bytes an event would be seen."""
_EVENTS = "netdra_discovery_events_total"
_OVERFLOWS = "netdra_discovery_overflows_total"
QUICK = {"DRIVERS": DRIVERS[:1], "EVENTS": 100, "WARM_UP": 50, "BATCH": 4, "REST_SECONDS": 0.2}


class Measured(msgspec.Struct, frozen=True):
    """One driver's memory in MiB before and after, and the events between."""

    before: float
    after: float
    batches: int
    seconds: float
    events: float = 0.0
    overflows: float = 0.0


def run() -> Iterator[Figure]:
    """The memory of each driver before and after."""
    batches = 0
    with control_plane() as plane, Node("bench") as node:
        prepare(plane)
        Kubelet(started(node), plane)
        with Namespace.open(str(node.path("/proc/1/ns/net"))) as namespace, namespace.socket() as sock:
            _add(sock, "stays")
            for driver in DRIVERS:
                found = _measure(driver, node, plane, namespace, sock, batches)
                batches = batches or found.batches
                yield from _figures(driver, found)


def _figures(driver: Driver, found: Measured) -> list[Figure]:
    ours = driver.title == OURS
    note = f"{found.batches * BATCH} veth pairs made and deleted in {found.seconds:.0f} s"
    if ours:
        note += f", {found.events:,.0f} events, {found.overflows:.0f} overflows"
    return [
        Figure(f"{driver.title}: memory before", found.before, "MiB", note=f"RSS after the first {WARM_UP:,} events"),
        Figure(f"{driver.title}: memory after", found.after, "MiB", note=note),
        Figure(f"{driver.title}: growth", found.after - found.before, "MiB", MOST_GROWTH if ours else 0.0),
    ]


def _measure(
    driver: Driver, node: Node, plane: ControlPlane, namespace: Namespace, sock: Socket, batches: int
) -> Measured:
    """Let one driver see `batches`, or as many as make `EVENTS` if that is not known yet; a fifth of them before."""
    began = time.monotonic()

    def counted(what: str) -> float:
        return _sample(driver, namespace, what) if driver.title == OURS else 0.0

    with watched(plane, driver.name) as seen:
        process = driver.start(node, plane)
        try:
            if seen.wait(bool, START_TIMEOUT) is None:
                raise TimeoutError(f"{driver.title} published nothing within {START_TIMEOUT:g} s")
            most = began + MOST_SECONDS
            warm = batches * WARM_UP // EVENTS
            _churn(sock, most, warm, lambda: counted(_EVENTS) >= WARM_UP)
            time.sleep(REST_SECONDS)
            before, events, overflows = process.memory(), counted(_EVENTS), counted(_OVERFLOWS)
            started = time.monotonic()
            made = _churn(sock, most, batches, lambda: counted(_EVENTS) - events >= EVENTS)
            seconds = time.monotonic() - started
            time.sleep(REST_SECONDS)
            return Measured(
                before=before / 2**20,
                after=process.memory() / 2**20,
                batches=made,
                seconds=seconds,
                events=counted(_EVENTS) - events,
                overflows=counted(_OVERFLOWS) - overflows,
            )
        finally:
            process.stop()


def _churn(sock: Socket, most: float, batches: int, enough: Callable[[], bool]) -> int:
    """Make and delete batches until a moment is past, or so many are done; without a number, until it is enough."""
    done = 0
    while time.monotonic() < most and (done < batches if batches else done % 10 or not enough()):
        for number in range(BATCH):
            _add(sock, f"a{number}")
        for number in range(BATCH):
            link.delete(sock, f"a{number}")
        done += 1
    return done


def _add(sock: Socket, name: str) -> None:
    link.create(sock, name, "veth", kinds.veth(kinds.Peer(f"{name}-peer")))


def _sample(driver: Driver, namespace: Namespace, what: str) -> float:
    def get() -> str:
        connection = http.client.HTTPConnection("127.0.0.1", driver.port, timeout=10)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    families = text_string_to_metric_families(namespace.run(get))
    return next(sample.value for family in families for sample in family.samples if sample.name == what)
