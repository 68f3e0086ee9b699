"""What a policy change costs with 500 nodes of three pools: the time until every status is right, and the writes.

The nodes are kwok's, which keeps them Ready; their slices are published by netdra's own code from a recorded
inventory, all in one process, and the controller is a process beside. So the time is one for two cores, on which 500
nodes' work is done after one another; the writes are what the API server itself counts.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.figures import Figure
from bench.hollow_nodes import HollowNode, HollowNodes
from netdra.kube.client import Client
from netdra.kube.connection import connect, find_config
from netdra.model import crd, documents, kinds
from netdra.model.inventory import Interface
from testbed.api import Api, Object
from testbed.build import program
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.objects import NODE, manifest
from testbed.process import Ports

NODES = 500
SECONDS = 10.0
STATUSES = "deviceexposurepolicies/status"
WRITES = 2.0
QUIET_SECONDS = 3.0
SLICES = 5
"""Of a node of the example."""
DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"
POLICY = "networking.dra.io/v1alpha1/DeviceExposurePolicy"
LEASE = "coordination.k8s.io/v1/Lease"
EXAMPLE = Path(__file__).parents[1] / "examples" / "worker-1"
# All that kwok is told to do: a node that is not Ready becomes so, and its lease is renewed.
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
_COUNTED = re.compile(r"apiserver_request_total\{([^}]*)\} (\S+)")
_WRITING = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})


@dataclass(frozen=True)
class Change:
    """A change of a policy, and what its status must say in the end.

    Attributes:
        name: what is changed, for the figure.
        policy: the policy's name.
        spec: what is changed in its spec.
        devices: how many devices of a node it then makes.
        failing: whether it fails on every node.
    """

    name: str
    policy: str
    spec: Object
    devices: int
    failing: bool = False


CHANGES = (
    Change("a capacity", "bridge-br-data", {"exposure": {"capacity": {"ports": {"value": "32"}}}}, 1),
    Change("a selector, fewer devices", "pf1-vfs", {"selector": {"cel": "PF1_VFS && LOW"}}, 2),
    Change("an attribute of VFs", "pf0-vfs", {"exposure": {"additionalAttributes": {"tier": "gold"}}}, 8),
    Change("a selector that fails everywhere", "pf1-vfs", {"selector": {"cel": "MISSING"}}, 0, failing=True),
)
_EXPRESSIONS = {
    "PF1_VFS && LOW": (
        'device.attributes["dra.networking"].type == "vf" && '
        'device.attributes["dra.networking"].pfName == "enp3s0f1" && '
        'device.attributes["dra.networking"].vfIndex < 2'
    ),
    "MISSING": 'device.attributes["dra.networking"].pfName == "enp3s0f1" && device.attributes["bctl"].rdma',
}


def run() -> list[Figure]:
    """The figures: for each change the seconds until all slices and statuses are right, and the writes of a node."""
    settings = Settings(scheduler=False, controller_manager=False)
    with ControlPlane(settings) as plane, closing(plane.client()) as api, closing(Ports("127.0.0.1")) as ports:
        _install(api)
        uids = dict(_nodes(plane, api, ports.take()))
        _controller(plane, api)
        return asyncio.run(_measure(plane, api, uids))


async def _measure(plane: ControlPlane, api: Api, uids: dict[str, str]) -> list[Figure]:
    figures: list[Figure] = []
    config = find_config(plane.kubeconfig())
    hollow = HollowNodes(lambda: Client(connect(config)))
    begun = time.monotonic()
    async with hollow.running(uids, recorded()):
        await hollow.settled(lambda node: len(node.store.objects) == SLICES)
        for name, devices in (("bridge-br-data", 1), ("pf0-vfs", 8), ("pf1-vfs", 4)):
            await asyncio.to_thread(wait_status, api, name, len(uids), devices, failing=False)
        note = f"{len(uids)} nodes x 3 pools in one process, load {os.getloadavg()[0]:.1f}"
        figures.append(Figure("everything published for the first time", time.monotonic() - begun, "s", 0.0, note))
        for change in CHANGES:
            figures += await _change(plane, api, hollow, change)
    return figures


async def _change(plane: ControlPlane, api: Api, hollow: HollowNodes, change: Change) -> list[Figure]:
    before, begun, used = writes(plane), time.monotonic(), time.process_time()
    await asyncio.to_thread(api.patch, POLICY, change.policy, {"spec": spec_of(change)})
    right = asyncio.create_task(
        asyncio.to_thread(wait_status, api, change.policy, len(hollow.nodes), change.devices, failing=change.failing)
    )
    await hollow.settled(lambda node: says(node, change))
    published = time.monotonic()
    found = await right
    took, used = time.monotonic() - begun, time.process_time() - used
    behind = time.monotonic() - published
    # A write that is late, or one that is not needed, would come now.
    await asyncio.sleep(QUIET_SECONDS)
    after = writes(plane)
    stored = await asyncio.to_thread(api.get, POLICY, change.policy)
    assert stored["status"] == found["status"], "the status was right before it settled"
    slices = after["resourceslices"] - before["resourceslices"]
    statuses = after[STATUSES] - before[STATUSES]
    note = (
        f"{slices:.0f} writes of slices, {statuses:.0f} of statuses; {used:.1f} s of it the nodes' own CPU time, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    return [
        Figure(f"{change.name}: until all slices and statuses are right", took, "s", SECONDS, note),
        Figure(f"{change.name}: of these, status behind the last slice", behind, "s", 0.0, note),
        Figure(f"{change.name}: writes of a node", slices / len(hollow.nodes), "", WRITES, note),
    ]


def says(node: HollowNode, change: Change) -> bool:
    """Whether a node's slices are as they must be after a change: nothing was lost on the way."""
    devices = [device for one in node.published for device in one.spec.devices]
    if change.policy == "bridge-br-data":
        return [device.capacity["dra.networking/ports"].value for device in devices if device.name == "br-data"] == [
            "32"
        ]
    if change.policy == "pf0-vfs":
        found = [device for device in devices if device.name.startswith("enp3s0f0v")]
        return len(found) == change.devices and all("dra.networking/tier" in one.attributes for one in found)
    return len([device for device in devices if device.name.startswith("enp3s0f1v")]) == change.devices


def spec_of(change: Change) -> Object:
    """What is written of a policy's spec."""
    text: Any = change.spec.get("selector", {}).get("cel")
    return {"selector": {"cel": _EXPRESSIONS[text]}} if text else change.spec


def wait_status(api: Api, policy: str, nodes: int, devices: int, *, failing: bool) -> Object:
    """Wait until a policy's status says that all nodes have it, and what it comes to."""

    def is_right(found: Object | None) -> bool:
        status = (found or {}).get("status", {})
        if found is None or status.get("observedGeneration") != found["metadata"]["generation"]:
            return False
        problems = status.get("problems", [])
        failed = bool(problems) and problems[0]["nodes"] == nodes
        return (status.get("nodes", 0), status.get("devices", 0), failed) == (nodes, nodes * devices, failing)

    found = api.wait_for(POLICY, policy, is_right, timeout=300.0)
    assert found is not None
    return found


def writes(plane: ControlPlane) -> dict[str, float]:
    """How many writes of each resource the API server has taken so far, by its own count."""
    found: dict[str, float] = {"resourceslices": 0.0, STATUSES: 0.0}
    for labels, count in _COUNTED.findall(plane.kubectl("get", "--raw", "/metrics")):
        said = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if said["verb"] in _WRITING:
            name = "/".join(filter(None, (said["resource"], said["subresource"])))
            found[name] = found.get(name, 0.0) + float(count)
    return found


def recorded() -> tuple[Interface, ...]:
    """The interfaces of the example's node."""
    path = EXAMPLE / "inventory.json"
    return documents.inventory(path.read_text(), str(path)).interfaces


def _install(api: Api) -> None:
    for kind in kinds.KINDS:
        api.create(crd.manifest(kind))
    for kind in kinds.KINDS:
        api.wait_for(DEFINITION, kind.name, _is_established)
    for path in sorted((EXAMPLE / "policies").glob("*.yaml")):
        api.create(yaml.safe_load(path.read_text()))


def _is_established(found: Object | None) -> bool:
    conditions = (found or {}).get("status", {}).get("conditions", [])
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _nodes(plane: ControlPlane, api: Api, port: int) -> Iterator[tuple[str, str]]:
    """Have kwok's nodes made, and wait until it keeps all of them Ready; their names and uids."""
    made = [api.create(manifest(NODE, f"hollow-{number}")) for number in range(NODES)]

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
    for node in made:
        yield node["metadata"]["name"], node["metadata"]["uid"]


def _is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _controller(plane: ControlPlane, api: Api) -> None:
    command = [sys.executable, "-m", "netdra", "controller", f"--kubeconfig={plane.kubeconfig()}"]
    api.create(manifest("v1/Namespace", "netdra"))
    plane.run("netdra-controller", command, lambda: bool(api.list(LEASE, "netdra")), {**os.environ, "PYTHONPATH": "."})
