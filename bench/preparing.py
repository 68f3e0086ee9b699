"""How much longer Prepare takes for an address of a PodNetwork than for one that its topology has (`ipam: static`).

The real scheduler allocates the claims, netdra's controller assigns the addresses, and the node's half of the daemon
prepares both kinds of claims in turn, as soon as they are reserved: the kubelet asks no sooner.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.figures import Figure
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, POD, manifest
from testbed.workspace import Workspace
from tests.cluster.claims.scene import PF, Scene, node, request

MOST_LONGER = 50.0
_NETWORK = "networking.dra.io/v1alpha1/PodNetwork"
_STATIC, _ASSIGNED = "static", "network"


def measured(plane: ControlPlane, workspace: Workspace, rounds: int) -> list[Figure]:
    """Milliseconds of Prepare, with both kinds of addresses."""
    seconds = asyncio.run(_both(plane, workspace, rounds))
    static, assigned = (_milliseconds(seconds[kind]) for kind in (_STATIC, _ASSIGNED))
    longer = statistics.median(assigned) - statistics.median(static)
    note = f"{rounds} claims of each kind, in turn"
    return [
        Figure("Prepare of a claim with a static address, median", statistics.median(static), "ms", note=note),
        Figure("Prepare of a claim with an address of a PodNetwork, median", statistics.median(assigned), "ms"),
        Figure("Prepare of a claim with an address of a PodNetwork, longest", max(assigned), "ms"),
        Figure("Prepare waits longer for an address of a PodNetwork, median", longer, "ms", MOST_LONGER, note=note),
    ]


def _milliseconds(seconds: Sequence[float]) -> list[float]:
    return [1000 * each for each in seconds]


async def _both(plane: ControlPlane, workspace: Workspace, rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {_STATIC: [], _ASSIGNED: []}
    with tempfile.TemporaryDirectory(prefix="netdra-bench-") as folder:
        async with node(plane, workspace, Path(folder)) as scene:
            classes = _classes(scene)
            for number in range(-1, rounds):  # the first claim of a node begins its watch of addresses
                for kind, device_class in classes.items():
                    taken = await _prepared(scene, f"{kind}-{number + 1}", device_class)
                    seconds[kind] += [taken] if number >= 0 else []
    return seconds


def _classes(scene: Scene) -> dict[str, str]:
    """The classes of devices with a static address, and with one of a PodNetwork."""
    network = scene.workspace.name("prepared")
    scene.workspace.create(manifest(_NETWORK, network, spec={"ranges": [{"cidr": "10.4.0.0/16"}], "keepSeconds": 0}))
    ipam = {
        _STATIC: "{type: static, addresses: [{address: 10.5.0.5/16}]}",
        _ASSIGNED: "{type: network}",
    }
    nic = f"name: nic, type: macvlan, selector: {{cel: '{PF}'}}, network: {network}"
    topologies = {
        kind: scene.topology(kind, f"- {{{nic}, config: {{ipam: {text}}}}}").name for kind, text in ipam.items()
    }
    for name in topologies.values():
        steps = [{"name": "nic", "type": "macvlan", "selector": {"cel": PF}, "network": network}]
        steps[0] |= {"config": {"ipam": {"type": "network"}}} if name == topologies[_ASSIGNED] else {}
        scene.workspace.create(manifest("networking.dra.io/v1alpha1/NetworkTopology", name, spec={"steps": steps}))
    return {kind: f"{name}-nic" for kind, name in topologies.items()}


async def _prepared(scene: Scene, name: str, device_class: str) -> float:
    """Have a claim allocated and prepare it; returns the seconds of Prepare. Nothing is left of it."""
    claim = await asyncio.to_thread(scene.allocated, name, request("nic", device_class))
    began = time.perf_counter()
    await scene.claims.prepare(claim)
    seconds = time.perf_counter() - began
    await scene.claims.unprepare(claim)
    api, namespace = scene.workspace.api, scene.workspace.namespace
    await asyncio.to_thread(api.delete, POD, f"{name}-0", namespace)
    await asyncio.to_thread(api.delete, CLAIM, name, namespace)
    return seconds
