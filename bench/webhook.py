"""How long the webhook keeps the API server waiting: 200 requests a second on one core, beside a real control plane.

The requests are `bench.reviews`': of all kinds, mixed as in a busy moment, and then of each kind by itself. They come
at fixed times whether the ones before are answered or not, so a queue shows. The same load goes to a webhook that does
nothing (`bench.bare`), in turns, so that what the machine does besides is in both. Where it is allowed, both run before
the machine's other programs.

The API server does not, and a claim is refused only after two objects were read of it. One request in a hundred is
refused, which decides the p99; so what two such reads take without the webhook is measured in the turns of the other.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec

from bench import reviews
from bench.bed import control_plane
from bench.figures import Figure
from netdra.admission import certificates
from netdra.model import crd, documents, kinds
from netdra.model.topology import NetworkTopology
from netdra.topology.classes import device_classes
from testbed.access import ADMIN, ADMIN_GROUPS
from testbed.api import Api, Object
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.process import Ports, answers

RATE = 200
ROUNDS = 5
SECONDS = 2
ALONE = 200
"""Requests of each kind by itself."""
ALONE_RATE = 50
CONNECTIONS = 16
"""The API server keeps its connections and opens few."""
P99_MS = 10.0
HOST = "127.0.0.1"
_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
_TOPOLOGIES = "/apis/networking.dra.io/v1alpha1/networktopologies"
_DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"
QUICK = {"RATE": 100, "ROUNDS": 1, "SECONDS": 1, "ALONE": 4, "TOPOLOGIES": 8, "NODES": 4}


@dataclass
class Served:
    """One of the two servers: where it is, what it used, and how long each request waited.

    Attributes:
        mixed: seconds, of all requests of the mix, by kind.
    """

    url: str
    pid: int
    is_bare: bool = False
    cpu_seconds: float = 0.0
    mixed: dict[str, list[float]] = field(default_factory=dict)

    @property
    def waits(self) -> list[float]:
        """How long requests waited, in seconds, the shortest first."""
        return sorted(each for waits in self.mixed.values() for each in waits)


@dataclass(frozen=True)
class Alone:
    """The times of requests of one kind by themselves: seconds, the shortest first, and CPU seconds of all of them."""

    kind: str
    waits: list[float]
    cpu_seconds: float


def run() -> list[Figure]:
    """The figures: waiting times, and CPU time, which other programs on the machine disturb less."""
    with (
        control_plane(Settings(scheduler=False, controller_manager=False)) as plane,
        closing(plane.client()) as api,
        closing(Ports(HOST)) as ports,
        tempfile.TemporaryDirectory(prefix="netdra-bench-") as folder,
    ):
        _fill(api)
        made = certificates.make((HOST,), datetime.now(UTC))
        Path(folder, "tls.crt").write_text(made.chain)
        Path(folder, "tls.key").write_text(made.key)
        trust = ssl.create_default_context(cadata=made.authorities)
        port, other = ports.take(), ports.take()
        netdra = ("-m", "netdra", "webhook", f"--address={HOST}", f"--port={port}", f"--certificates={folder}")
        ours = _start(plane, port, trust, (*netdra, f"--kubeconfig={plane.kubeconfig()}"))
        bare = _start(plane, other, trust, ("-m", "bench.bare", str(other), folder))
        # Workers come after the server, as they do by themselves: they have used more of the CPU than it has.
        places = {ours.pid: 2, bare.pid: 2} | dict.fromkeys(_processes(ours.pid)[1:], 1)
        before_others = all(_before_others(pid, place) for pid, place in places.items())
        reads: list[float] = []
        with _ahead():
            for _ in range(ROUNDS):
                asyncio.run(_mixed(ours, trust))
                reads += asyncio.run(_mixed_and_reads(bare, trust, plane))
            alone = [asyncio.run(_alone(ours, trust, kind)) for kind in reviews.KINDS]
        memory = sum(_resident_mib(pid) for pid in _processes(ours.pid))
    note = f"one core, {reviews.TOPOLOGIES} topologies, {reviews.NODES} nodes, load {os.getloadavg()[0]:.1f}"
    if before_others:
        note += ", before other programs"
    of_reads = f"by a client that does nothing else, p99 {1000 * _quantile(sorted(reads), 0.99):.1f} ms of {len(reads)}"
    kept = [waited for kind, waits in ours.mixed.items() if kind != reviews.LACKING for waited in waits]
    return [
        *_figures(ours, bare, note),
        Figure("all that ask the API server nothing, p99", 1000 * _quantile(sorted(kept), 0.99), "ms"),
        Figure("two reads of the API server, median", 1000 * statistics.median(reads), "ms", 0.0, of_reads),
        *_by_kind(ours, alone),
        Figure("memory with its workers", memory, "MiB"),
    ]


def _figures(ours: Served, bare: Served, note: str) -> list[Figure]:
    cpu = 1000 * ours.cpu_seconds / len(ours.waits)
    bare_cpu = 1000 * bare.cpu_seconds / len(bare.waits)
    note = f"{RATE}/s for {ROUNDS} x {SECONDS} s, {note}"
    return [
        Figure("all kinds, median", 1000 * _quantile(ours.waits, 0.5), "ms", 0.0, note),
        Figure("all kinds, p99", 1000 * _quantile(ours.waits, 0.99), "ms", P99_MS, note),
        Figure("all kinds, CPU time of one request", cpu, "ms", 1000 / RATE, note),
        Figure("nothing done, median", 1000 * _quantile(bare.waits, 0.5), "ms"),
        Figure("nothing done, p99", 1000 * _quantile(bare.waits, 0.99), "ms"),
        Figure("CPU time of nothing done", bare_cpu, "ms"),
        Figure("p99, beside nothing done", _quantile(ours.waits, 0.99) / _quantile(bare.waits, 0.99), "x"),
        Figure("CPU time, beside nothing done", cpu / bare_cpu, "x"),
    ]


def _by_kind(ours: Served, alone: Iterable[Alone]) -> Iterator[Figure]:
    """Each kind in the mix and by itself."""
    for found in alone:
        mixed = sorted(ours.mixed[found.kind])
        note = (
            f"p99 {1000 * _quantile(mixed, 0.99):.1f} ms of {len(mixed)} in the mix; by itself at {ALONE_RATE}/s "
            f"median {1000 * _quantile(found.waits, 0.5):.1f} ms, p99 {1000 * _quantile(found.waits, 0.99):.1f} ms, "
            f"CPU time {1000 * found.cpu_seconds / len(found.waits):.2f} ms"
        )
        yield Figure(f"{found.kind}, median in the mix", 1000 * _quantile(mixed, 0.5), "ms", 0.0, note)


def _quantile(ordered: list[float], part: float) -> float:
    return ordered[int(len(ordered) * part)]


def _start(plane: ControlPlane, port: int, trust: ssl.SSLContext, arguments: Sequence[str]) -> Served:
    command = ["taskset", "-c", str(min(os.sched_getaffinity(0))), sys.executable, *arguments]
    root = str(Path(__file__).parents[1])
    ready = answers(f"https://{HOST}:{port}/readyz", trust)
    process = plane.run(f"webhook-{port}", command, ready, {**os.environ, "PYTHONPATH": root})
    assert process.pid is not None
    return Served(f"https://{HOST}:{port}/validate", process.pid, is_bare="bench.bare" in arguments)


def _before_others(pid: int, place: int = 2) -> bool:
    """Have the process's first thread, its event loop's, run before other programs; whether that is allowed."""
    try:
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(place))
    except OSError:
        return False
    return True


def _processes(pid: int) -> list[int]:
    """A server and its workers."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def _fill(api: Api) -> None:
    for kind in kinds.KINDS:
        api.apply(crd.manifest(kind))
    for kind in kinds.KINDS:
        api.wait_for(_DEFINITION, kind.name, _is_established)
    api.create(reviews.vf_policy())
    for number in range(reviews.NODES):
        report, status = reviews.node_network(number)
        api.update({**api.create(report), "status": status}, subresource="status")
    for number in range(reviews.TOPOLOGIES):
        written = reviews.topology(number)
        api.create(written)
        for made in device_classes(documents.convert(written, NetworkTopology, "the topology")):
            api.create(documents.plain(made))


def _is_established(found: Object | None) -> bool:
    conditions = (found or {}).get("status", {}).get("conditions", [])
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


@contextmanager
def _ahead() -> Iterator[None]:
    """Have the client run before other programs too, where that is allowed, on the core that the servers leave."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    _before_others(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(0, cores)


async def _mixed(served: Served, trust: ssl.SSLContext) -> None:
    """Put some seconds of requests of all kinds to a server."""
    asked = [reviews.mixed(number) for number in range(RATE * SECONDS)]
    before = _cpu_seconds(served.pid)
    waits = await _load(served, trust, asked, RATE)
    served.cpu_seconds += _cpu_seconds(served.pid) - before
    for kind, waited in zip(asked, waits, strict=True):
        served.mixed.setdefault(kind, []).append(waited)


async def _mixed_and_reads(served: Served, trust: ssl.SSLContext, plane: ControlPlane) -> list[float]:
    """The same, and how long two reads at once of the API server take meanwhile, as often as claims are refused."""
    found, _ = await asyncio.gather(_reads(plane, RATE * SECONDS // 100), _mixed(served, trust))
    return found


async def _reads(plane: ControlPlane, count: int) -> list[float]:
    pair = plane.authority.client(ADMIN, ADMIN_GROUPS)
    trust = ssl.create_default_context(cafile=plane.authority.own.certificate)
    trust.load_cert_chain(pair.certificate, pair.key)
    found = []
    async with aiohttp.ClientSession(plane.server, connector=aiohttp.TCPConnector(ssl=trust)) as session:

        async def one(path: str) -> None:
            async with session.get(path) as answer:
                await answer.read()
                answer.raise_for_status()

        async def both(number: int) -> None:
            name = f"net{number % reviews.TOPOLOGIES}"
            await asyncio.gather(one(f"{_CLASSES}/{name}-vf0"), one(f"{_TOPOLOGIES}/{name}"))

        await both(0)
        for number in range(count):
            await asyncio.sleep(SECONDS / count / 2)
            begun = time.monotonic()
            await both(number)
            found.append(time.monotonic() - begun)
            await asyncio.sleep(SECONDS / count / 2)
    return found


async def _alone(served: Served, trust: ssl.SSLContext, kind: str) -> Alone:
    before = _cpu_seconds(served.pid)
    waits = await _load(served, trust, [kind] * ALONE, ALONE_RATE)
    return Alone(kind, sorted(waits), _cpu_seconds(served.pid) - before)


async def _load(served: Served, trust: ssl.SSLContext, kinds: Sequence[str], rate: int) -> list[float]:
    """How long requests of these kinds wait; opening connections, which the API server keeps, is not counted."""
    connector = aiohttp.TCPConnector(ssl=trust, limit=CONNECTIONS)
    headers = {"Content-Type": "application/json"}
    bodies = [reviews.body(kind, number) for number, kind in enumerate(kinds)]
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def one(number: int, begun: float) -> tuple[float, bool]:
            due = begun + number / rate
            await asyncio.sleep(due - time.monotonic())
            async with session.post(served.url, data=bodies[number]) as answer:
                body = msgspec.json.decode(await answer.read())
            return time.monotonic() - due, body["response"]["allowed"]

        await asyncio.gather(*(one(0, time.monotonic()) for _ in range(CONNECTIONS)))
        begun = time.monotonic()
        found = await asyncio.gather(*(one(number, begun) for number in range(len(kinds))))
    expected = [served.is_bare or reviews.KINDS[kind].allowed for kind in kinds]
    assert [allowed for _, allowed in found] == expected, "the webhook is wrong"
    return [waited for waited, _ in found]


def _cpu_seconds(pid: int) -> float:
    """The CPU seconds of a server and its workers so far."""
    used = 0
    for each in _processes(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        used += int(fields[11]) + int(fields[12])
    return used / os.sysconf("SC_CLK_TCK")


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
