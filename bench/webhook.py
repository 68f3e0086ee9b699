"""How long the webhook keeps the API server waiting: 200 claims a second on one core, beside a real control plane.

Most claims are other drivers', as in a cluster; some are for one of 100 topologies, and a few of these lack a step. The
requests come at fixed times whether the ones before are answered or not, so a queue shows.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import tempfile
import time
from contextlib import closing
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
SECONDS = 10
CONNECTIONS = 16
"""The API server keeps its connections and opens few."""
TOPOLOGIES = 100
P99_MS = 10.0
HOST = "127.0.0.1"
_DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"


def run() -> list[Figure]:
    """The figures: waiting times, and the webhook's own CPU time, which other programs on the machine disturb less."""
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
        port = ports.take()
        command = [
            *("taskset", "-c", str(min(os.sched_getaffinity(0)))),
            *(sys.executable, "-m", "netdra", "webhook", f"--address={HOST}", f"--port={port}"),
            *(f"--kubeconfig={plane.kubeconfig()}", f"--certificates={folder}"),
        ]
        process = plane.run("netdra-webhook", command, answers(f"https://{HOST}:{port}/readyz", trust))
        assert process.pid is not None
        before = _cpu_seconds(process.pid)
        waits = sorted(asyncio.run(_load(f"https://{HOST}:{port}/validate", trust)))
        used = _cpu_seconds(process.pid) - before
    note = f"{RATE}/s for {SECONDS} s, {TOPOLOGIES} topologies, one core, load {os.getloadavg()[0]:.1f}"
    return [
        Figure("one claim, median", 1000 * waits[len(waits) // 2], "ms", 0.0, note),
        Figure("one claim, p99", 1000 * waits[len(waits) * 99 // 100], "ms", P99_MS, note),
        Figure("CPU time of one claim", 1000 * used / len(waits), "ms", 1000 / RATE, note),
    ]


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


async def _load(url: str, trust: ssl.SSLContext) -> list[float]:
    """How long each request waited, in seconds."""
    connector = aiohttp.TCPConnector(ssl=trust, limit=CONNECTIONS)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        begun = time.monotonic()

        async def one(number: int) -> float:
            due = begun + number / RATE
            await asyncio.sleep(due - time.monotonic())
            async with session.post(url, data=_review(number)) as answer:
                body = msgspec.json.decode(await answer.read())
            assert body["response"]["allowed"] == (number % 100 != 0)
            return time.monotonic() - due

        return await asyncio.gather(*(one(number) for number in range(RATE * SECONDS)))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
