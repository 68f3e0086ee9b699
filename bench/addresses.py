"""The cost of addresses of PodNetworks: Prepare, the time until a claim has one, and the memory of a network with many.

Claims are allocated at a steady pace, as the scheduler would, while a network already has many addresses. The time is
taken from the answer to the allocation to the watch event of the PodAddress.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from bench import preparing
from bench.bed import control_plane
from bench.figures import Figure
from testbed.api import Api, Object
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, manifest
from testbed.process import Process
from testbed.waiting import until
from testbed.workspace import Workspace, open_workspace
from tests.cluster import identities
from tests.cluster.conftest import serve_kinds
from tests.cluster.daemons import running_controller

KEPT, CLAIMS, PER_MINUTE = 50_000, 1_000, 1_000
ROUNDS = 25
MOST_MILLISECONDS, MOST_MEMORY = 300.0, 150.0
PATIENCE = 900.0
QUICK = {"KEPT": 50, "CLAIMS": 20, "ROUNDS": 3}

_ADDRESS = "networking.dra.io/v1alpha1/PodAddress"
_NETWORK = "networking.dra.io/v1alpha1/PodNetwork"
_TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"
_CONNECTIONS = 8
_NODE = "node-1"


def run() -> Iterator[Figure]:
    """Milliseconds from an allocation to an address, memory, and a node's list of its own addresses."""
    with control_plane() as plane, closing(plane.client()) as api:
        serve_kinds(plane, api)
        with running_controller(plane, api) as controller, open_workspace(api) as workspace:
            yield from preparing.measured(plane, workspace, ROUNDS)
            yield from _measured(plane, workspace, controller)


def _measured(plane: ControlPlane, workspace: Workspace, controller: Process) -> list[Figure]:
    api, network, before = workspace.api, workspace.name("net"), controller.memory() / 2**20
    spec = {"ranges": [{"cidr": "10.0.0.0/14"}], "keepSeconds": 86400}
    workspace.create(manifest(_NETWORK, network, spec=spec))
    _keep(plane, network)
    step = {"name": "lan", "type": "macvlan", "selector": {"cel": "true"}, "network": network}
    steps = [{**step, "config": {"ipam": {"type": "network"}}}]
    topology = workspace.name("lan")
    workspace.create(manifest(_TOPOLOGY, topology, spec={"steps": steps}))
    until(lambda: _counted(api, network) == KEPT, "the addresses to be counted", seconds=PATIENCE)
    memory = controller.memory() / 2**20
    seconds = sorted(_assigned(workspace, topology))
    listed, few = (_listed(api, node) for node in (_NODE, "node-2"))
    p99 = 1000 * seconds[int(len(seconds) * 0.99)]
    note = f"{CLAIMS} claims at {PER_MINUTE} a minute, {KEPT} addresses in the network"
    return [
        Figure("from an allocation to its address, median", 1000 * statistics.median(seconds), "ms", note=note),
        Figure("from an allocation to its address, p99", p99, "ms", MOST_MILLISECONDS, note=note),
        Figure(
            f"memory of the controller with {KEPT} addresses", memory, "MiB", MOST_MEMORY, note=f"{before:.1f} before"
        ),
        Figure("memory of the controller afterwards", controller.memory() / 2**20, "MiB"),
        Figure("a list of one node's addresses", listed, "ms", note=f"{CLAIMS} of {KEPT + CLAIMS}"),
        Figure("a list of one node's addresses, which has none", few, "ms", note=f"of {KEPT + CLAIMS}"),
    ]


def _listed(api: Api, node: str) -> float:
    """The milliseconds that a list of a node's addresses takes."""
    began = time.monotonic()
    api.list(_ADDRESS, fields=f"spec.nodeName={node}")
    return 1000 * (time.monotonic() - began)


def _keep(plane: ControlPlane, network: str) -> None:
    """Make addresses that are kept for owners that do not come."""

    def make(numbers: range) -> None:
        with closing(plane.client()) as api:
            for number in numbers:
                api.create(_kept(network, number))

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        for done in [pool.submit(make, range(first, KEPT, _CONNECTIONS)) for first in range(_CONNECTIONS)]:
            done.result()


def _kept(network: str, number: int) -> Object:
    text = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    text = text if number else "10.3.0.1"
    owner = {"namespace": "kept", "pod": f"pod-{number}", "claim": "net", "topology": "t", "step": "lan"}
    spec = {
        "network": network,
        "address": f"{text}/14",
        "families": ["IPv4"],
        "owner": owner,
        "keptSince": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return manifest(_ADDRESS, f"{network}.{text}", spec=spec)


def _counted(api: Api, network: str) -> int:
    return int(api.get(_NETWORK, network).get("status", {}).get("reserved", 0))


def _assigned(workspace: Workspace, topology: str) -> Iterator[float]:
    """Allocate claims at a steady pace; for each, the seconds until its address is there."""
    api, namespace = workspace.api, workspace.namespace
    requests = [{"name": "lan", "exactly": {"deviceClassName": f"{topology}-lan"}}]
    made = [
        api.create(manifest(CLAIM, f"c{number}", namespace, spec={"devices": {"requests": requests}}))
        for number in range(CLAIMS)
    ]
    began: dict[str, float] = {}
    ended: dict[str, float] = {}
    watching = threading.Thread(target=_watch, args=(workspace, ended), daemon=True)
    watching.start()
    start = time.monotonic()
    for number, claim in enumerate(made):
        time.sleep(max(0.0, start + number * 60 / PER_MINUTE - time.monotonic()))
        name = claim["metadata"]["name"]
        status = identities.allocated(name, topology, ["lan"], _NODE)
        api.update({**claim, "status": status}, subresource="status")
        began[name] = time.monotonic()
    until(lambda: len(ended) >= CLAIMS, "all claims to have addresses", seconds=PATIENCE)
    return (max(0.0, ended[name] - began[name]) for name in began)


def _watch(workspace: Workspace, ended: dict[str, float]) -> None:
    """Note when each claim's address is there, until all have one."""
    version = workspace.api.request("GET", f"{workspace.api.path(_ADDRESS, '')}?limit=1")["metadata"]["resourceVersion"]
    events = workspace.api.watch(_ADDRESS, fields=f"spec.nodeName={_NODE}", since=version, timeout=PATIENCE)
    with closing(events):
        for kind, found in events:
            if kind == "ADDED":
                ended[found["spec"]["claim"]["name"]] = time.monotonic()
            if len(ended) >= CLAIMS:
                return
