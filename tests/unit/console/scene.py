"""A small cluster as the console reads it: one node with a NIC, its VFs, a GPU, a bond; a pod with a graph."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from netdra.cli.console_objects import slice_lines
from netdra.console.access import SignedOnUser
from netdra.console.fleet import ClassShare, NodeCounts
from netdra.console.forecast_page import Forecast, ForecastDevice
from netdra.console.rows import DeviceLine, DeviceLines
from netdra.console.traffic_page import PodTraffic
from netdra.console.troubles import ClusterExamination
from netdra.model.claim import DeviceClass, ResourceClaim
from netdra.model.errors import TemporaryError
from netdra.model.node_network import NodeNetwork
from netdra.model.pod_address import PodAddress
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.story.objects import ClusterEvent, ClusterState, PlacedPod
from netdra.story.traffic import InterfaceTraffic
from tests.builders import topology

NODE = "worker-1"
HOSTILE = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>\u202e\x1b[2J\x00&amp;"
"""A name that breaks out of whatever does not escape it."""
ROOT = "resource.kubernetes.io/pcieRoot"
STEPS = """
- {name: a, type: host-device, selector: {cel: "true"}}
- {name: b, type: host-device, selector: {cel: "true"}}
- {name: bond, type: bond, dependOn: [a, b], config: {name: bond0, mode: active-backup}}
- {name: vlan, type: vlan, dependOn: [bond], config: {name: data, vlanId: 100}}
"""


def slices(driver: str, pool: str, devices: Mapping[str, Mapping[str, Any]], **more: Any) -> ResourceSlice:
    written = {
        "metadata": {"name": f"{pool.replace('/', '-')}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": NODE,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": name, "attributes": facts, **more} for name, facts in devices.items()],
        },
    }
    return msgspec.convert(written, ResourceSlice)


def vf(index: int, name: str = "") -> dict[str, Any]:
    texts = {"ifName": name or f"enp3s0f0v{index}", "type": "vf", "pfName": "enp3s0f0"}
    return {
        ROOT: {"string": "pci0000:00"},
        **{f"dra.networking/{key}": {"string": text} for key, text in texts.items()},
    }


def report(*groups: Mapping[str, Any], node: str = NODE, problems: Sequence[Mapping[str, Any]] = ()) -> NodeNetwork:
    status = {"interfaces": list(groups), "problems": list(problems), "summary": {"problems": len(problems)}}
    head = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "NodeNetwork"}
    return msgspec.convert({**head, "metadata": {"name": node}, "status": status}, NodeNetwork)


GROUPS: tuple[Mapping[str, Any], ...] = (
    {"type": "vf", "count": 2, "names": ["enp3s0f0v0", "enp3s0f0v1"], "devices": [{"policy": "vfs"}]},
    {
        "type": "pf",
        "count": 1,
        "names": ["enp3s0f0"],
        "reason": "the host uses it",
        "attributes": {"hostUse": "address"},
    },
    {"type": "bond", "count": 1, "names": ["bond0"], "reason": "no policy matches it"},
)


def claim(
    device: str = "enp3s0f0v0", uid: str = "pod-uid", *, steps: Iterable[Mapping[str, Any]] = (), message: str = ""
) -> ResourceClaim:
    result = {"request": "a", "driver": "dra.networking", "pool": f"{NODE}/pf", "device": device}
    ready = {"type": "Ready", "status": "False" if message else "True", "reason": "Step", "message": message}
    status = {
        **{key: value for key, value in result.items() if key != "request"},
        "conditions": [ready],
        "data": {"pods": [{"uid": uid, "steps": list(steps)}]},
    }
    written = {
        "metadata": {"name": "db-net", "namespace": "default", "uid": "claim-uid"},
        "spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "net-a"}}]}},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "db-0", "uid": uid}],
            "devices": [status],
        },
    }
    return msgspec.convert(written, ResourceClaim)


def device_class() -> DeviceClass:
    opaque = {"networkTopologyRef": {"name": "net"}, "step": "a"}
    full = {"apiVersion": "networking.dra.io/v1alpha1", "kind": "DeviceParameters", **opaque}
    config = [{"opaque": {"driver": "dra.networking", "parameters": full}}]
    return msgspec.convert({"metadata": {"name": "net-a"}, "spec": {"config": config}}, DeviceClass)


def pod(*, running: bool = True, **metadata: Any) -> PlacedPod:
    state = {"running": {}} if running else {"waiting": {"reason": "ContainerCreating"}}
    written = {
        "metadata": {"name": "db-0", "namespace": "default", "uid": "pod-uid", **metadata},
        "spec": {
            "nodeName": NODE,
            "containers": [{"name": "main"}],
            "resourceClaims": [{"name": "net", "resourceClaimName": "db-net"}],
        },
        "status": {
            "phase": "Running" if running else "Pending",
            "containerStatuses": [{"name": "main", "state": state}],
        },
    }
    return msgspec.convert(written, PlacedPod)


def event(message: str, reason: str = "NetworkNotAttached") -> ClusterEvent:
    about = {"kind": "Pod", "namespace": "default", "name": "db-0"}
    written = {"involvedObject": about, "type": "Warning", "reason": reason, "message": message}
    return msgspec.convert(written, ClusterEvent)


def net() -> NetworkTopology:
    return topology(STEPS)


def cluster(**changed: Any) -> ClusterState:
    gpu = {ROOT: {"string": "pci0000:00"}, "model": {"string": "H200"}}
    usual: dict[str, Any] = {
        "slices": (
            slices("dra.networking", f"{NODE}/pf", {"enp3s0f0v0": vf(0), "enp3s0f0v1": vf(1)}),
            slices("gpu.example.com", NODE, {"gpu-0": gpu}),
        ),
        "node_networks": (report(*GROUPS),),
        "claims": (claim(),),
        "classes": (device_class(),),
        "topologies": (net(),),
        "pods": (pod(),),
    }
    return ClusterState(**usual | changed)


class FixedSource:
    """A source whose cluster is as it is given, until `change` is called."""

    def __init__(self, found: ClusterState | None = None, nodes: Sequence[NodeCounts] = (NodeCounts(NODE, 2),)) -> None:
        self.cluster, self.nodes = found or cluster(), nodes
        self.problem, self.version, self.now = "", "1", "2026-11-28T12:00:00Z"
        self.failure: TemporaryError | None = None
        self.forecasts: list[tuple[Sequence[DeviceExposurePolicy], str]] = []
        self.users: list[SignedOnUser] = []
        self._changed = asyncio.Event()

    def fleet(self) -> Sequence[NodeCounts]:
        return self.nodes

    async def examination(self) -> ClusterExamination:
        return ClusterExamination(checked=self.now, classes=("net-a",))

    async def shares(self, chosen: str) -> Mapping[str, ClassShare]:
        return {NODE: ClassShare(2, 1)}

    async def of_user(self, user: SignedOnUser) -> FixedSource:
        self.users.append(user)
        return self

    async def listed(self, kind: str) -> ClusterState:
        return await self.objects(kind, "", "")

    async def devices(self, node: str, matches: Callable[[DeviceLine], bool]) -> DeviceLines:
        lines = [line for one in self.cluster.slices for line in slice_lines(one, {}, ())]
        return DeviceLines([line for line in lines if matches(line)], len(lines))

    async def addresses(self, text: str) -> Sequence[PodAddress]:
        return ()

    async def traffic(self, node: str) -> PodTraffic:
        return PodTraffic([InterfaceTraffic(node=NODE, namespace="default", pod="db-0", interface="net1")])

    async def objects(self, kind: str, place: str, name: str) -> ClusterState:
        if self.failure is not None:
            raise self.failure
        return self.cluster

    async def forecast(self, policies: Sequence[DeviceExposurePolicy], node: str) -> Forecast:
        self.forecasts.append((policies, node))
        return Forecast(1, 0, 0, 1, 1, [ForecastDevice(NODE, "enp3s0f0v0", "vfs", "", allocated=True)])

    async def wait_fleet(self, since: str) -> None:
        await self._changed.wait()

    async def wait_objects(self, kind: str, place: str, name: str) -> None:
        await self._changed.wait()

    async def wait_list(self, kind: str) -> None:
        await self._changed.wait()

    def change(self) -> None:
        self.version += "1"
        self._changed.set()
