"""How soon a new leader assigns addresses while many claims have some: all of them are read before the first new one.

Claims are allocated, as the scheduler does it, and get their addresses from a first controller. It ends, one more claim
is allocated, and another controller begins: the time is taken from its line in the log that it leads to the moment in
which the new claim's PodAddress is seen.
"""

from __future__ import annotations

import re
import statistics
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime

from bench.bed import control_plane
from bench.figures import Figure
from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.objects import CLAIM, manifest
from testbed.waiting import until
from testbed.workspace import Workspace, open_workspace
from tests.cluster import identities
from tests.cluster.conftest import serve_kinds
from tests.cluster.daemons import running_controller, start_controller

CLAIMS, ROUNDS = 4_300, 5
QUICK = {"CLAIMS": 20, "ROUNDS": 1}
MOST_SECONDS = 1.0
NODES = 50
PATIENCE = 900.0
_CONNECTIONS = 8
_ADDRESS = "networking.dra.io/v1alpha1/PodAddress"
_NETWORK = "networking.dra.io/v1alpha1/PodNetwork"
_TOPOLOGY = "networking.dra.io/v1alpha1/NetworkTopology"
_LEADS = re.compile(r"^(\S+) INFO .* leads netdra/", re.MULTILINE)


def run() -> list[Figure]:
    """Seconds from leadership to the address of a claim that waits."""
    with control_plane() as plane, closing(plane.client()) as api:
        serve_kinds(plane, api)
        with running_controller(plane, api), open_workspace(api) as workspace:
            topology = _assigned(plane, workspace)
            seconds = [_take_over(plane, workspace, topology, f"next-{number}") for number in range(ROUNDS)]
    note = f"{CLAIMS} claims have addresses, {ROUNDS} rounds; the slowest took {max(seconds):.2f} s"
    name = "from leadership to the address of the next claim, median"
    return [Figure(name, statistics.median(seconds), "s", MOST_SECONDS, note=note)]


def _assigned(plane: ControlPlane, workspace: Workspace) -> str:
    """Have all claims get addresses; returns their topology."""
    network, topology = workspace.name("net"), workspace.name("lan")
    workspace.create(manifest(_NETWORK, network, spec={"ranges": [{"cidr": "10.0.0.0/16"}]}))
    step = {"name": "lan", "type": "macvlan", "selector": {"cel": "true"}, "network": network}
    steps = [{**step, "config": {"ipam": {"type": "network"}}}]
    workspace.create(manifest(_TOPOLOGY, topology, spec={"steps": steps}))

    def allocate(numbers: range) -> None:
        with closing(plane.client()) as api:
            for number in numbers:
                _allocate(api, workspace.namespace, topology, f"claim-{number}", f"node-{number % NODES}")

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        for done in [pool.submit(allocate, range(first, CLAIMS, _CONNECTIONS)) for first in range(_CONNECTIONS)]:
            done.result()
    until(lambda: _used(workspace.api, network) == CLAIMS, "all claims to have addresses", seconds=PATIENCE)
    return topology


def _allocate(api: Api, namespace: str, topology: str, name: str, node: str) -> None:
    requests = [{"name": "lan", "exactly": {"deviceClassName": f"{topology}-lan"}}]
    made = api.create(manifest(CLAIM, name, namespace, spec={"devices": {"requests": requests}}))
    api.update({**made, "status": identities.allocated(name, topology, ["lan"], node)}, subresource="status")


def _used(api: Api, network: str) -> int:
    return int(api.get(_NETWORK, network).get("status", {}).get("used", 0))


def _take_over(plane: ControlPlane, workspace: Workspace, topology: str, claim: str) -> float:
    """The seconds from the leadership of another controller to the address of a claim that was allocated before."""
    plane.processes["netdra-controller"].stop()
    api, seen = workspace.api, list[datetime]()
    _allocate(api, workspace.namespace, topology, claim, claim)  # a node of its own
    version = api.request("GET", f"{api.path(_ADDRESS, '')}?limit=1")["metadata"]["resourceVersion"]

    def watch() -> None:
        with closing(plane.client()) as other:
            events = other.watch(_ADDRESS, fields=f"spec.nodeName={claim}", since=version, timeout=PATIENCE)
            with closing(events):
                next(found for kind, found in events if kind == "ADDED")
                seen.append(datetime.now(UTC))

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    log = start_controller(plane, api).log
    watching.join()
    (*_, led) = _LEADS.findall(log.read_text())
    return (seen[0] - datetime.fromisoformat(led)).total_seconds()
