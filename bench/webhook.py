"""How long the webhook keeps the API server waiting: 200 claims a second on one core, beside a real control plane.

Most claims are other drivers', as in a cluster; some are for one of 100 topologies, and a few of these lack a step, of
which the API server itself is asked before they are refused. The requests come at fixed times whether the ones before
are answered or not, so a queue shows. The same load goes to a webhook that does nothing (`bench.bare`), in turns, so
that what the machine does besides is in both. Where it is allowed, both run before the machine's other programs.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from bench.figures import Figure
from netdra.admission import certificates
from netdra.model import crd, kinds
from testbed.api import Api, Object
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.objects import manifest
from testbed.process import Ports, answers

RATE = 200
ROUNDS = 5
SECONDS = 2
CONNECTIONS = 16
"""The API server keeps its connections and opens few."""
TOPOLOGIES = 100
P99_MS = 10.0
HOST = "127.0.0.1"
_DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"


@dataclass
class Served:
    """One of the two servers: where it is, what it used, and how long each request waited, by what was answered."""

    url: str
    pid: int
    is_bare: bool = False
    cpu_seconds: float = 0.0
    allowed: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)

    @property
    def waits(self) -> list[float]:
        """How long requests waited, in seconds, the shortest first."""
        return sorted(self.allowed + self.refused)


def run() -> list[Figure]:
    """The figures: waiting times, and CPU time, which other programs on the machine disturb less."""
    with (
        ControlPlane(Settings(scheduler=False, controller_manager=False)) as plane,
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
        before_others = all([_before_others(ours.pid), _before_others(bare.pid)])
        with _ahead():
            for served in (ours, bare) * ROUNDS:
                asyncio.run(_load(served, trust))
    note = f"{RATE}/s for {ROUNDS} x {SECONDS} s, {TOPOLOGIES} topologies, one core, load {os.getloadavg()[0]:.1f}"
    if before_others:
        note += ", before other programs"
    return _figures(ours, bare, note)


def _figures(ours: Served, bare: Served, note: str) -> list[Figure]:
    cpu = 1000 * ours.cpu_seconds / len(ours.waits)
    bare_cpu = 1000 * bare.cpu_seconds / len(bare.waits)
    beside = _quantile(sorted(ours.allowed), 0.99) / _quantile(bare.waits, 0.99)
    return [
        Figure("one claim, median", 1000 * _quantile(ours.waits, 0.5), "ms", 0.0, note),
        Figure("one claim, p99", 1000 * _quantile(ours.waits, 0.99), "ms", P99_MS, note),
        Figure("a claim that is let through, p99", 1000 * _quantile(sorted(ours.allowed), 0.99), "ms", 0.0, note),
        Figure("a claim that is refused, median", 1000 * _quantile(sorted(ours.refused), 0.5), "ms", 0.0, note),
        Figure("CPU time of one claim", cpu, "ms", 1000 / RATE, note),
        Figure("nothing done, p99", 1000 * _quantile(bare.waits, 0.99), "ms", 0.0, note),
        Figure("CPU time of nothing done", bare_cpu, "ms", 0.0, note),
        Figure("p99 of those let through, beside nothing done", beside, "x", 0.0, note),
        Figure("CPU time, beside nothing done", cpu / bare_cpu, "x", 0.0, note),
    ]


def _quantile(ordered: list[float], part: float) -> float:
    return ordered[int(len(ordered) * part)]


def _start(plane: ControlPlane, port: int, trust: ssl.SSLContext, arguments: Sequence[str]) -> Served:
    command = ["taskset", "-c", str(min(os.sched_getaffinity(0))), sys.executable, *arguments]
    root = str(Path(__file__).parents[1])
    ready = answers(f"https://{HOST}:{port}/readyz", trust)
    process = plane.run(f"webhook-{port}", command, ready, {**os.environ, "PYTHONPATH": root})
    assert process.pid is not None
    return Served(f"https://{HOST}:{port}/validate", process.pid, is_bare="bench.bare" in arguments)


def _before_others(pid: int) -> bool:
    """Have the process's first thread, its event loop's, run before other programs; whether that is allowed."""
    try:
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return False
    return True


def _fill(api: Api) -> None:
    for kind in kinds.KINDS:
        api.create(crd.manifest(kind))
    for kind in kinds.KINDS:
        api.wait_for(_DEFINITION, kind.name, _is_established)
    steps = [{"name": name, "type": "sriov", "selector": {"cel": "true"}} for name in ("vf0", "vf1")]
    bond = {"name": "bond0", "type": "bond", "dependOn": ["vf0", "vf1"]}
    for number in range(TOPOLOGIES):
        spec = {"steps": [*steps, bond]}
        api.create(manifest("networking.dra.io/v1alpha1/NetworkTopology", f"net{number}", spec=spec))


def _is_established(found: Object | None) -> bool:
    conditions = (found or {}).get("status", {}).get("conditions", [])
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _review(number: int) -> bytes:
    """The number-th request: one in five is for a topology, one in a hundred lacks a step."""
    classes = ["gpu"]
    if number % 5 == 0:
        name = f"net{number % TOPOLOGIES}"
        classes += [f"{name}-vf0"] if number % 100 == 0 else [f"{name}-vf0", f"{name}-vf1"]
    requests = [{"name": each.rpartition("-")[2], "exactly": {"deviceClassName": each}} for each in classes]
    claim = manifest("resource.k8s.io/v1/ResourceClaim", "claim", "team", spec={"devices": {"requests": requests}})
    kind = {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"}
    request: dict[str, Any] = {"uid": str(number), "kind": kind, "operation": "CREATE", "name": "claim"}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return msgspec.json.encode({**review, "request": {**request, "object": claim, "oldObject": None}})


@contextmanager
def _ahead() -> Iterator[None]:
    """Have whoever asks run before other programs too, where that is allowed, on the core that the servers leave."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    _before_others(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.sched_setaffinity(0, cores)


async def _load(served: Served, trust: ssl.SSLContext) -> None:
    """Put some seconds of requests to a server; opening connections, which the API server keeps, is not counted."""
    connector = aiohttp.TCPConnector(ssl=trust, limit=CONNECTIONS)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def one(number: int, begun: float) -> tuple[float, bool]:
            due = begun + number / RATE
            await asyncio.sleep(due - time.monotonic())
            async with session.post(served.url, data=_review(number)) as answer:
                body = msgspec.json.decode(await answer.read())
            return time.monotonic() - due, body["response"]["allowed"]

        await asyncio.gather(*(one(1, time.monotonic()) for _ in range(CONNECTIONS)))
        before, begun = _cpu_seconds(served.pid), time.monotonic()
        found = await asyncio.gather(*(one(number, begun) for number in range(RATE * SECONDS)))
        served.cpu_seconds += _cpu_seconds(served.pid) - before
    assert served.is_bare or [allowed for _, allowed in found] == [n % 100 != 0 for n in range(len(found))]
    for waited, allowed in found:
        (served.allowed if allowed else served.refused).append(waited)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
