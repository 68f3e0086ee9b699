"""The cost of policy changes with 500 nodes of three pools: the time until every status is right, and the writes.

The nodes are kwok's, which keeps them Ready; their slices are published by netdra's own code from a recorded
inventory, all in one process, and the controller is a process beside. So the time is one for two cores, on which 500
nodes' work is done one after another, beside an API server: the CPU time of the nodes, the
controller and the API server is shown for each, and `bench.hollow_floor` measures the writes alone. Writes are counted
by the API server itself.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from bench import hollow_floor, memory
from bench.bed import control_plane
from bench.figures import Figure
from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from netdra.model import crd, kinds
from testbed import helm
from testbed.api import Api, Object
from testbed.build import program
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.objects import NODE, manifest
from testbed.process import Ports
from tests.hollow_changes import (
    CHANGES,
    EXAMPLE,
    FIRST,
    POLICY,
    PUT_OFF,
    ROLLOUT,
    SLICES,
    STATUSES,
    Change,
    ports,
    recorded,
    says,
    stored_ports,
    wait_status,
    writes,
)
from tests.hollow_nodes import HollowNodes

NODES = 500
KWOK = True
"""Whether kwok keeps the nodes Ready."""
SECONDS = 10.0
WRITES = 2.0
"""Of each slice that a change concerns."""
QUIET_SECONDS = 3.0
CHURNS = 3
IN_A_ROW = 5
APART_SECONDS = 0.5
DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"
POOLS = {"bridge-br-data": "/bridge-br-data", "pf0-vfs": "/sriov-enp3s0f0", "pf1-vfs": "/sriov-enp3s0f1"}
"""By policy, how the pools of its devices end."""
LEASE = "coordination.k8s.io/v1/Lease"
CONTROLLER = "netdra-controller"
BINDING = "rbac.authorization.k8s.io/v1/ClusterRoleBinding"
ACCOUNT = "system:serviceaccount:netdra:netdra-node"
GROUPS = ("system:serviceaccounts", "system:serviceaccounts:netdra", "system:authenticated")
"""All nodes are one user, as their daemons are, and the API server lets no user have all of its time."""
SERVERS = {"API server": "kube-apiserver", "etcd": "etcd", "kwok": "kwok", "controller": CONTROLLER}
# kwok's whole task: it makes a node Ready, and renews its lease.
STAGE = """
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: ready}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
      - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      conditions:
        - {type: Ready, status: "True", reason: Hollow, lastTransitionTime: {{ Now | Quote }}}
"""
QUICK = {"NODES": 2, "KWOK": False, "QUIET_SECONDS": 0.5, "CHURNS": 1, "IN_A_ROW": 2, "APART_SECONDS": 0.1}


@dataclass
class Used:
    """CPU seconds by program since this was made; the nodes are this process."""

    plane: ControlPlane
    before: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.before = self._now()

    def __call__(self) -> dict[str, float]:
        """The CPU seconds used since."""
        return {name: seconds - self.before[name] for name, seconds in self._now().items()}

    def _now(self) -> dict[str, float]:
        found = {
            name: cpu_seconds(self.plane.processes[server].pid)
            for name, server in SERVERS.items()
            if server in self.plane.processes
        }
        return {"nodes": time.process_time(), **found}


@dataclass(frozen=True)
class Cluster:
    """The measured parts: the control plane, a client, and the nodes."""

    plane: ControlPlane
    api: Api
    hollow: HollowNodes

    def memory(self) -> float:
        """The memory of the controller and its worker, in MiB."""
        return resident(self.plane.processes[CONTROLLER].pid)


@dataclass(frozen=True)
class End:
    """How changes ended.

    Attributes:
        rollout: the policy's, as it was when it was right.
        right, written: when that was, and when the last slice was written, as `time.monotonic`.
        used: what it took of the CPU.
        slices: how often a node wrote slices.
        writes: what was written besides.
    """

    rollout: Object
    right: float
    written: float
    used: str
    slices: float
    writes: str


def run() -> Iterator[Figure]:
    """The figures: for each change the seconds until all slices and statuses are right, and the writes of a node."""
    settings = Settings(scheduler=False, controller_manager=False)
    with control_plane(settings) as plane, closing(plane.client()) as api, closing(Ports("127.0.0.1")) as taken:
        paths = sorted((EXAMPLE / "policies").glob("*.yaml"))
        install(api, (yaml.safe_load(path.read_text()) for path in paths))
        uids = make_nodes(api, NODES)
        if KWOK:
            _keep_ready(plane, api, taken.take())
        start_controller(plane, api)
        yield from asyncio.run(_measure(plane, api, uids))
        for change in CHANGES:
            yield from _floor(plane, api, change)
        log = plane.processes[CONTROLLER].log_tail(100_000)
        assert "Traceback" not in log, log


def _floor(plane: ControlPlane, api: Api, change: Change) -> Iterator[Figure]:
    """The writes of a change by a bare client: of its slices, and of its slices and the nodes' reports."""
    pool = POOLS[change.policy] if change.slices == 1 else ""  # what a policy adds is on the devices of all pools
    for name, further in (("slices", False), ("slices and reports", True)):
        bodies = [*hollow_floor.slices(api, pool), *(hollow_floor.reports(api) if further else ())]
        used = Used(plane)
        seconds = hollow_floor.write(plane, bodies)
        note = f"{len(bodies)} writes by a bare client; {_note(used())}"
        yield Figure(f"{change.name}: its {name} by themselves", seconds, "s", 0.0, note)


async def _measure(plane: ControlPlane, api: Api, uids: dict[str, str]) -> list[Figure]:
    figures: list[Figure] = []
    config = find_config(plane.kubeconfig(ACCOUNT, GROUPS))
    hollow = HollowNodes(lambda: Client(connect(config)))
    cluster = Cluster(plane, api, hollow)
    begun, used = time.monotonic(), Used(plane)
    async with hollow.running(uids, recorded()):
        await hollow.settled(lambda node: len(node.store.objects) == SLICES)
        for name, devices in FIRST:
            await asyncio.to_thread(wait_status, api, name, len(uids), devices, failing=False)
        took = time.monotonic() - begun
        figures.append(Figure("everything published for the first time", took, "s", 0.0, _note(used())))
        for change in CHANGES:
            figures += await _change(cluster, change)
        memory = [cluster.memory()]
        for number in range(CHURNS):
            figures += await _churn(cluster, number)
            memory.append(cluster.memory())
    note = f"{', '.join(f'{each:.0f}' for each in memory)} MiB after the changes, and after each round of them"
    return [*figures, Figure("memory of the controller", memory[-1], "MiB", 0.0, note)]


async def _change(cluster: Cluster, change: Change) -> list[Figure]:
    """One change, until everything is as it must be."""
    before, begun, used = writes(cluster.plane), time.monotonic(), Used(cluster.plane)
    await asyncio.to_thread(cluster.api.patch, POLICY, change.policy, {"spec": change.spec})
    end = await _end(cluster, change, before, used)
    stored = await asyncio.to_thread(cluster.api.get, ROLLOUT, change.policy)
    assert stored["status"] == end.rollout["status"], "the status was right before it settled"
    return [
        Figure(f"{change.name}: until all is right", max(end.right, end.written) - begun, "s", SECONDS, end.used),
        Figure(f"{change.name}: until the last slice is written", end.written - begun, "s"),
        Figure(f"{change.name}: from then until the status is right", max(0.0, end.right - end.written), "s"),
        Figure(f"{change.name}: writes of a node", end.slices, "", WRITES * change.slices, end.writes),
    ]


async def _churn(cluster: Cluster, number: int) -> list[Figure]:
    """Several changes of one policy in a row, while nodes still write what came of the ones before."""
    name = f"{IN_A_ROW} changes in a row"
    before, used = writes(cluster.plane), Used(cluster.plane)
    for count in range(IN_A_ROW):
        change = ports(100 + 10 * number + count)
        await asyncio.to_thread(cluster.api.patch, POLICY, change.policy, {"spec": change.spec})
        begun = time.monotonic()
        await asyncio.sleep(APART_SECONDS)
    end = await _end(cluster, change, before, used)
    nodes, last = cluster.hollow.nodes, change.spec["exposure"]["capacity"]["ports"]["value"]
    stored = await asyncio.to_thread(stored_ports, cluster.api, nodes)
    assert stored == dict.fromkeys(nodes, last), "a lost update"
    return [
        Figure(
            f"{name}: until all is right after the last", max(end.right, end.written) - begun, "s", SECONDS, end.used
        ),
        Figure(f"{name}: writes of a node", end.slices, "", IN_A_ROW, end.writes),
    ]


async def _end(cluster: Cluster, change: Change, before: Mapping[str, float], used: Used) -> End:
    """Wait until all slices and the status are as a change makes them, and see that nothing comes after that.

    Args:
        cluster: where.
        change: the last one.
        before: the writes until the first one.
        used: counts from then.
    """
    hollow = cluster.hollow
    waiting = asyncio.create_task(asyncio.to_thread(_right, cluster, change))
    await hollow.settled(lambda node: says(node, change))
    rollout, right = await waiting
    written, note = max(node.written for node in hollow.nodes.values()), _note(used())
    # A write that is late, or one that is not needed, would come now.
    await asyncio.sleep(QUIET_SECONDS)
    after = writes(cluster.plane)
    slices = (after["resourceslices"] - before["resourceslices"]) / len(hollow.nodes)
    return End(rollout, right, written, note, slices, _written(before, after))


def _right(cluster: Cluster, change: Change) -> tuple[Object, float]:
    """Wait until the policy's rollout is right; the rollout, and when that was."""
    nodes = len(cluster.hollow.nodes)
    return wait_status(cluster.api, change.policy, nodes, change.devices, failing=change.failing), time.monotonic()


def _note(used: Mapping[str, float]) -> str:
    shares = ", ".join(f"{name} {seconds:.1f}" for name, seconds in used.items())
    return f"CPU seconds: {shares}; load {os.getloadavg()[0]:.1f}"


def _written(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    statuses, put_off = (after[name] - before[name] for name in (STATUSES, PUT_OFF))
    return f"and {statuses:.0f} of statuses; {put_off:.0f} requests were answered with 429"


def cpu_seconds(pid: int | None) -> float:
    """The CPU seconds of a process and its children so far."""
    used = 0
    for each in with_children(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        used += int(fields[11]) + int(fields[12])
    return used / os.sysconf("SC_CLK_TCK")


def resident(pid: int | None) -> float:
    """The sum of the resident sizes of a process and its children, in MiB."""
    return memory.resident(with_children(pid))


def with_children(pid: int | None) -> list[int]:
    """A process and its children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())] if pid else []


def install(api: Api, policies: Iterable[Object]) -> None:
    """Have the API server serve netdra's kinds, with policies, and let the nodes' account do everything."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": ACCOUNT}
    api.create({**manifest(BINDING, "hollow"), "roleRef": role, "subjects": [subject]})
    for queue in helm.objects(helm.installed("netdra"), "flow-control.yaml"):
        api.create(queue)
    for kind in kinds.KINDS:
        api.apply(crd.manifest(kind))
    for kind in kinds.KINDS:
        api.wait_for(DEFINITION, kind.name, _is_established)
    for policy in policies:
        api.create(policy)


def _is_established(found: Object | None) -> bool:
    conditions = (found or {}).get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def make_nodes(api: Api, count: int) -> dict[str, str]:
    """Make nodes that no kubelet keeps Ready; their uids by name."""
    made = (api.create(manifest(NODE, f"hollow-{number}")) for number in range(count))
    return {node["metadata"]["name"]: node["metadata"]["uid"] for node in made}


def _keep_ready(plane: ControlPlane, api: Api, port: int) -> None:
    def ready() -> bool:
        return all(_is_ready(node) for node in api.list(NODE))

    stage = plane.folder / "kwok.yaml"
    stage.write_text(STAGE)
    command = [
        *(str(program("kwok")), "--manage-all-nodes=true", "--node-ip=127.0.0.1", f"--config={stage}"),
        "--node-lease-duration-seconds=40",
        *(f"--kubeconfig={plane.kubeconfig()}", f"--server-address=127.0.0.1:{port}"),
    ]
    plane.run("kwok", command, ready)


def _is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def start_controller(plane: ControlPlane, api: Api) -> None:
    """Start netdra's controller as a process of the control plane's."""
    command = [sys.executable, "-m", "netdra", "controller", f"--kubeconfig={plane.kubeconfig()}"]
    api.create(manifest("v1/Namespace", "netdra"))
    plane.run(CONTROLLER, command, lambda: bool(api.list(LEASE, "netdra")), {**os.environ, "PYTHONPATH": "."})
