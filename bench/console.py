"""The console with 5,000 nodes of 20 devices: how long its start page and its lists take, what-if, and the memory.

Nodes' reports and slices are netdra's own, of two PFs with nine VFs each, and are in a real API server. Pages are asked
for as a browser asks for them, from the moment at which the command prints its URL.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import ClientSession, CookieJar
from msgspec.structs import replace

from bench.bed import control_plane
from bench.figures import Figure
from bench.hollow import install, resident
from netdra.kube import resources
from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from netdra.model import documents
from netdra.model.meta import ObjectMeta
from netdra.model.node_network import NodeNetwork, NodeNetworkStatus
from netdra.model.resource import ResourceSlice
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from tests import builders
from tests.hollow_nodes import Pattern

NODES = 5000
VERSION: Final = "networking.dra.io/v1alpha1"
QUICK = {"NODES": 20}
SECONDS, MEBIBYTES = 0.3, 100.0
"""Of the first page; lists of all devices read them from the API server."""
LONGER, MORE = 30.0, 200.0
AT_ONCE = 32
PAGES = 5
PATIENCE = 60.0
_POLICIES = [builders.exclusive("all", f'{builders.OURS}.type in ["pf", "vf"]', "sriov", "host-device")]
_WHAT_IF = """
apiVersion: networking.dra.io/v1alpha1
kind: DeviceExposurePolicy
metadata: {name: none}
spec: {action: exclude, selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}}
"""


def run() -> list[Figure]:
    """The figures."""
    settings = Settings(scheduler=False, controller_manager=False)
    with control_plane(settings) as plane, closing(plane.client()) as api:
        install(api, map(documents.plain, _POLICIES))
        asyncio.run(_write(plane))
        log = plane.folder / "netdra-console.log"
        began = time.monotonic()
        command = [sys.executable, "-m", "netdra", "console", f"--kubeconfig={plane.kubeconfig()}"]
        plane.run("netdra-console", command, lambda: bool(_urls(log)))
        printed = time.monotonic()
        figures = [Figure("until the URL is printed", printed - began, "s")]
        return [*figures, *asyncio.run(_measure(_urls(log)[0], printed, partial(_memory, plane)))]


def _urls(log: Path) -> list[str]:
    return re.findall(r"http://\S+/enter\?token=\S+", log.read_text())


def _memory(plane: ControlPlane) -> float:
    return resident(plane.processes["netdra-console"].pid)


def _report() -> tuple[NodeNetworkStatus, Callable[[str], list[ResourceSlice]]]:
    """The report of a node with 20 devices, of which some are allocated, and its slices as a pattern."""
    pattern = Pattern((*builders.sriov("enp3s0f0", 9, bus=3), *builders.sriov("enp4s0f0", 9, bus=4)))
    pools = pattern.look(_POLICIES)
    report = pattern.report()
    assert report.summary.offered == 20, report
    groups = [
        replace(each, devices=tuple(replace(one, allocated=True) for one in each.devices))
        for each in report.interfaces[:1]
    ]

    def slices(node: str) -> list[ResourceSlice]:
        return [one for found in pattern.renamed(pools, node).values() for one in found]

    return replace(report, interfaces=(*groups, *report.interfaces[1:])), slices


async def _write(plane: ControlPlane) -> None:
    """Write all nodes' reports and slices."""
    (status, slices), turns = _report(), asyncio.Semaphore(AT_ONCE)
    async with Client(connect(find_config(plane.kubeconfig()))) as client:

        async def write(name: str) -> None:
            async with turns:
                named = NodeNetwork(metadata=ObjectMeta(name=name), api_version=VERSION, kind="NodeNetwork")
                made = await client.create(resources.NODE_NETWORKS, named)
                await client.replace(resources.NODE_NETWORKS, replace(made, status=status), subresource="status")
                for one in slices(name):
                    await client.create(resources.RESOURCE_SLICES, one)

        await asyncio.gather(*(write(f"node-{number:05}") for number in range(NODES)))


async def _measure(url: str, printed: float, memory: partial[float]) -> list[Figure]:
    async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as session:
        where = url.partition("/enter")[0]

        async def page(path: str = "/") -> bytes:
            async with session.get(f"{where}{path}") as answer:
                return await answer.read()

        async with session.get(url) as answer:
            assert answer.status == 200
        while f"The cluster: {NODES} nodes".encode() not in await page():
            assert time.monotonic() < printed + PATIENCE
        first = time.monotonic() - printed
        seconds: list[float] = []
        for _ in range(PAGES):
            began = time.monotonic()
            size = len(await page())
            seconds.append(time.monotonic() - began)
        after_pages, began = memory(), time.monotonic()
        # A part of a node's name, so that all nodes are read; all slices are there a little later than all nodes.
        while f" of {20 * NODES}<" not in (listing := (await page("/devices?text=00007")).decode()):
            assert time.monotonic() < printed + PATIENCE, re.sub(r"<[^>]+>", " ", listing)[-400:]
            began = time.monotonic()
        listed, after_list, began = time.monotonic() - began, memory(), time.monotonic()
        async with session.post(f"{where}/what-if/result", data={"policies": _WHAT_IF}) as answer:
            told = re.sub(r"<[^>]+>", " ", await answer.text())
            assert f"{18 * NODES} hidden" in told, told[:2000]
        what_if = time.monotonic() - began
    devices = f"{NODES} nodes of 20 devices"
    return [
        Figure(
            "the first page, from the URL on",
            first,
            "s",
            SECONDS,
            f"{devices}, read before",
        ),
        Figure("the start page", sorted(seconds)[PAGES // 2], "s", SECONDS, f"{size // 1024} KiB, median of {PAGES}"),
        Figure("memory after these pages", after_pages, "MiB", MEBIBYTES, devices),
        Figure("the list of devices, filtered", listed, "s", LONGER, f"of {20 * NODES} devices"),
        Figure("memory after it", after_list, "MiB", MORE),
        Figure("what-if on all nodes", what_if, "s", 0.0, f"{18 * NODES} devices change"),
        Figure("memory after a tried policy", memory(), "MiB", MORE),
    ]
