"""The cost of a cluster's growth: netdra's own publishers on 100, 300 and 1,000 nodes, extrapolated to 5,000.

Each node has 131 devices: 2 PFs with 64 VFs, the PFs whole, and a bridge. VFs are offered one by one, with few facts,
and pooled. Counted are bytes in etcd, requests, CPU seconds, and memory as a container's limit counts it
(`bench.memory`); no figure is a time on the clock. Each is a straight line over the nodes, by least squares; the note
states how far the line of the smaller sizes misses the largest one.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import hollow, memory
from bench.bed import control_plane
from bench.figures import Figure
from netdra.admission import certificates
from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from netdra.model.inventory import Interface
from testbed.api import Api, Object
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.objects import manifest
from testbed.process import Ports, answers
from tests.builders import OURS, pf, vf
from tests.hollow_changes import POLICY, wait_status, writes
from tests.hollow_nodes import HollowNode, HollowNodes

SIZES = (100, 300, 1000)
VFS = 64
LARGE = 5000
QUOTA = 2 * 2**30
"""etcd's default (`--quota-backend-bytes`)."""
MOST_MEMORY = 200.0
"""MiB."""
MOST_CPU = 60.0
"""Seconds of the controller's for one edit of a policy that concerns every node."""
MOST_WRITES = 1.05
"""Of each slice; where the API server has too much to do, nodes repeat what it has not answered in time."""
LEAST_EDITS = 20.0
"""Edits of a policy of all VFs between two compactions of etcd; with pooled VFs."""

_HOST = "127.0.0.1"
_WEBHOOK = "webhook"
_SIZE = re.compile(r"^apiserver_storage_size_bytes\{[^}]*\} (\S+)$", re.MULTILINE)
_VF = f'{OURS}.type == "vf"'
_SRIOV = [{"name": "sriov", "exclusive": True}]
MODES: Mapping[str, Mapping[str, Any]] = {
    "single VFs": {"supportedCNIPlugins": _SRIOV},
    "few facts": {"supportedCNIPlugins": _SRIOV, "facts": [], "emptyFacts": False},
    "pooled VFs": {"supportedCNIPlugins": [{"name": "sriov"}], "pooledVFs": {"lanes": 1}},
}
"""How the VFs are offered, by what it is called."""
QUICK = {"SIZES": (1, 2), "VFS": 4, "MODES": {"pooled VFs": MODES["pooled VFs"]}}


@dataclass(frozen=True)
class Cost:
    """The cost of one size: bytes, CPU seconds, MiB, and requests."""

    stored: float
    edited: float
    first_cpu: float
    edit_cpu: float
    controller_cpu: float
    controller: float
    webhook: float
    controller_resident: float
    webhook_resident: float
    takeover_cpu: float
    first_writes: float
    edit_writes: float


def run() -> list[Figure]:
    """The figures for 5,000 nodes, extrapolated from the measured sizes, for each way to offer VFs."""
    figures: list[Figure] = []
    for mode, exposure in MODES.items():
        costs = [_of_size(size, exposure) for size in SIZES]
        figures += _figures(mode, costs)
    return figures


def _figures(mode: str, costs: Sequence[Cost]) -> list[Figure]:
    """Figures of one mode; limits that a mode cannot keep by its bytes hold for pooled VFs."""
    is_pooled = mode == "pooled VFs"
    most = MOST_WRITES if is_pooled else 0.0

    def at_large(name: str, what: str, unit: str, limit: float = 0.0, scale: float = 1.0) -> Figure:
        line = Line.through([(size, getattr(cost, name) / scale) for size, cost in zip(SIZES, costs, strict=True)])
        return Figure(f"{mode}: {what} at {LARGE:,} nodes", line.at(LARGE), unit, limit, line.note)

    stored, edited = (
        Line.through([(size, getattr(cost, name)) for size, cost in zip(SIZES, costs, strict=True)])
        for name in ("stored", "edited")
    )
    # etcd counts whole pages: an edit of a few nodes may need none.
    edits = max(0.0, QUOTA - stored.at(LARGE)) / max(edited.at(LARGE), 1.0)
    room = Figure(
        f"{mode}: edits of all VFs that fit into etcd at {LARGE:,} nodes, as a part of {LEAST_EDITS:g}",
        LEAST_EDITS / max(edits, 0.001),
        "x",
        1.0 if is_pooled else 0.0,
        f"{edits:.1f} edits, {stored.slope / 1000:.1f} KB a node and {edited.slope / 1000:.1f} KB more with each",
    )
    return [
        at_large("stored", "etcd", "GB", QUOTA / 1e9, 1e9),
        room,
        at_large("first_cpu", "API server's CPU, first publication", "s"),
        at_large("edit_cpu", "API server's CPU, an edit of all VFs", "s"),
        at_large("controller_cpu", "controller's CPU, an edit of all VFs", "s", MOST_CPU),
        at_large("takeover_cpu", "CPU of a controller that takes over", "s", MOST_CPU),
        at_large("controller", "memory of the controller", "MiB", MOST_MEMORY),
        at_large("webhook", "memory of the webhook", "MiB", MOST_MEMORY),
        at_large("controller_resident", "sum of resident sizes, controller and its worker", "MiB"),
        at_large("webhook_resident", "sum of resident sizes, webhook and its workers", "MiB", MOST_MEMORY),
        Figure(f"{mode}: writes of slices, first publication", max(c.first_writes for c in costs), "", most, "of each"),
        Figure(f"{mode}: writes of slices, an edit", max(c.edit_writes for c in costs), "", most, "of each concerned"),
    ]


@dataclass(frozen=True)
class Line:
    """A straight line over the number of nodes, and how far that of all sizes but the largest misses the largest."""

    offset: float
    slope: float
    note: str

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> Line:
        """The line of least squares through some points."""
        offset, slope = _fit(points)
        listed = ", ".join(f"{value:.3g}" for _, value in points)
        note = f"{listed} at {', '.join(f'{size:,}' for size, _ in points)}"
        if len(points) > 2:
            (size, value), earlier = points[-1], _fit(points[:-1])
            note += f"; foretold for {size:,} within {abs(earlier[0] + earlier[1] * size - value) / value:.0%}"
        return cls(offset, slope, note)

    def at(self, size: float) -> float:
        """The value for a number of nodes."""
        return self.offset + self.slope * size


def _fit(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    middle, mean = (sum(each) / len(points) for each in zip(*points, strict=True))
    spread = sum((size - middle) ** 2 for size, _ in points)
    slope = sum((size - middle) * (value - mean) for size, value in points) / spread
    return mean - slope * middle, slope


def _of_size(size: int, exposure: Mapping[str, Any]) -> Cost:
    """Publish on that many nodes, edit once, and have another controller take over."""
    settings = Settings(scheduler=False, controller_manager=False)
    with (
        control_plane(settings) as plane,
        closing(plane.client()) as api,
        closing(Ports(_HOST)) as ports,
        tempfile.TemporaryDirectory(prefix="netdra-bench-") as folder,
    ):
        hollow.install(api, _policies(exposure))
        uids = hollow.make_nodes(api, size)
        _start_webhook(plane, ports.take(), Path(folder))
        hollow.start_controller(plane, api)
        return asyncio.run(_measure(plane, api, uids, is_pooled="pooledVFs" in exposure))


async def _measure(plane: ControlPlane, api: Api, uids: dict[str, str], *, is_pooled: bool) -> Cost:
    config = find_config(plane.kubeconfig(hollow.ACCOUNT, hollow.GROUPS))
    nodes = HollowNodes(lambda: Client(connect(config)))
    used, devices = hollow.Used(plane), 2 if is_pooled else 2 * VFS
    empty, before = await asyncio.to_thread(_stored, plane), await asyncio.to_thread(writes, plane)
    async with nodes.running(uids, _interfaces()):
        await nodes.settled(lambda node: len(node.store.objects) > 0)
        await asyncio.to_thread(wait_status, api, "vfs", len(uids), devices, failing=False)
        slices = sum(len(node.store.objects) for node in nodes.nodes.values())
        first, after_first = used(), await asyncio.to_thread(writes, plane)
        stored = await asyncio.to_thread(_stored, plane)

        used = hollow.Used(plane)
        change = {"spec": {"exposure": {"additionalAttributes": {"tier": "gold"}}}}
        await asyncio.to_thread(api.patch, POLICY, "vfs", change)
        await nodes.settled(lambda node: all(map(_is_gold, _vfs(node.published))))
        await asyncio.to_thread(wait_status, api, "vfs", len(uids), devices, failing=False)
        edit, after_edit = used(), await asyncio.to_thread(writes, plane)
        edited = await asyncio.to_thread(_stored, plane)
        concerned = sum(map(_concerned, nodes.nodes.values()))
        controller, webhook = (
            hollow.with_children(plane.processes[name].pid) for name in (hollow.CONTROLLER, _WEBHOOK)
        )
        charged, resident = (tuple(map(count, (controller, webhook))) for count in (memory.charged, memory.resident))
        takeover = await asyncio.to_thread(_take_over, plane, api, len(uids))
    return Cost(
        stored=stored - empty,
        edited=edited - stored,
        first_cpu=first["API server"],
        edit_cpu=edit["API server"],
        controller_cpu=edit["controller"],
        controller=charged[0],
        webhook=charged[1],
        controller_resident=resident[0],
        webhook_resident=resident[1],
        takeover_cpu=takeover,
        first_writes=(after_first["resourceslices"] - before["resourceslices"]) / slices,
        edit_writes=(after_edit["resourceslices"] - after_first["resourceslices"]) / concerned,
    )


def _take_over(plane: ControlPlane, api: Api, nodes: int) -> float:
    """Have another controller lead, and answer an edit; the CPU seconds that it has used by then."""
    controller = plane.processes[hollow.CONTROLLER]
    controller.kill()
    api.delete(hollow.LEASE, hollow.CONTROLLER, "netdra")
    controller.restart()
    api.patch(POLICY, "pfs", {"spec": {"priority": 7}})
    wait_status(api, "pfs", nodes, 2, failing=False)
    return hollow.cpu_seconds(controller.pid)


def _stored(plane: ControlPlane) -> float:
    """The bytes that etcd keeps; it reports them with a delay."""
    sizes = [float(size) for size in _SIZE.findall(plane.kubectl("get", "--raw", "/metrics"))]
    return max(sizes)


def _vfs(slices: Sequence[Any]) -> list[Any]:
    """The devices of VFs."""
    return [device for one in slices for device in one.spec.devices if re.fullmatch(r"p\d(v\d+|-vfs)", device.name)]


def _concerned(node: HollowNode) -> int:
    """How many slices are of a pool with VFs: all of a pool's have its generation."""
    pools = {one.spec.pool.name for one in node.published if _vfs([one])}
    return sum(one.spec.pool.name in pools for one in node.published)


def _is_gold(device: Any) -> bool:
    tier = device.attributes.get("tier")
    return tier is not None and tier.string == "gold"


def _policies(exposure: Mapping[str, Any]) -> list[Object]:
    whole = {"supportedCNIPlugins": [{"name": "host-device", "exclusive": True}]}
    bridges = {
        "allowMultipleAllocations": True,
        "capacity": {"ports": {"value": "64", "requestPolicy": {"default": "1"}}},
        "supportedCNIPlugins": [{"name": "bridge"}],
    }
    wanted = {
        "vfs": (_VF, exposure),
        "pfs": (f'{OURS}.type == "pf"', whole),
        "bridges": (f'{OURS}.type == "bridge"', bridges),
    }
    return [
        manifest(POLICY, name, spec={"selector": {"cel": selector}, "exposure": dict(exposed)})
        for name, (selector, exposed) in wanted.items()
    ]


def _interfaces() -> tuple[Interface, ...]:
    parents = [pf(f"p{number}", vfs=VFS, bus=3 + number) for number in range(2)]
    bridge = Interface(if_name="br-data", type="bridge", mac="02:00:00:00:00:01", mtu=1500, oper_state="up")
    return (*parents, *(vf(parent, index) for parent in parents for index in range(VFS)), bridge)


def _start_webhook(plane: ControlPlane, port: int, folder: Path) -> None:
    made = certificates.make((_HOST,), datetime.now(UTC))
    (folder / "tls.crt").write_text(made.chain)
    (folder / "tls.key").write_text(made.key)
    ready = answers(f"https://{_HOST}:{port}/readyz", ssl.create_default_context(cadata=made.authorities))
    command = [
        *(sys.executable, "-m", "netdra", "webhook", f"--address={_HOST}", f"--port={port}"),
        *(f"--certificates={folder}", f"--kubeconfig={plane.kubeconfig()}"),
    ]
    plane.run(_WEBHOOK, command, ready, {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])})
