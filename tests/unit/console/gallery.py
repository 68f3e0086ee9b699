"""A cluster for the pictures of the console: 12 nodes with SR-IOV NICs and GPUs, pods that run, and troubles.

Slices and reports are netdra's own publishing half's; pods, claims and statuses are written here.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from netdra.cluster.devices import DeviceLine, DeviceLines, hidden_lines, slice_lines
from netdra.cluster.fleet import CountedNode, FleetNow, TaintedDevice
from netdra.cluster.objects import ClusterEvent, ClusterState, PlacedPod, PlacementNode
from netdra.console.access import SignedOnUser
from netdra.console.examination import judge, of_nodes
from netdra.console.fleet import ClassShare, NodeCounts, count
from netdra.console.forecast_page import Forecast
from netdra.console.traffic_page import PodTraffic
from netdra.console.troubles import ClusterExamination, ClusterTrouble, TroubleSubject, ordered, stuck_pods
from netdra.model import documents
from netdra.model.claim import DeviceClass, ResourceClaim
from netdra.model.cni_plugin import CNIPlugin
from netdra.model.device import Features
from netdra.model.inventory import Interface
from netdra.model.node_network import NodeNetwork
from netdra.model.pod_address import PodAddress, family_of, object_name
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice
from netdra.model.rollout import DeviceExposurePolicyRollout, NetworkTopologyUsage
from netdra.model.topology import NetworkTopology
from netdra.node.publishing.offering import Offering
from netdra.node.publishing.plugins import Presence
from netdra.story.traffic import HISTORY, InterfaceTraffic
from netdra.topology.classes import device_classes
from tests import builders
from tests.hollow_nodes import Quiet

NOW = "2026-11-28T12:00:00Z"
GROUP = "networking.dra.io/v1alpha1"
NODES = tuple(f"worker-{number:02}" for number in range(1, 13))
_STEPS = """
- {name: rail0, type: sriov, selector: {cel: 'device.attributes["dra.networking"].pfName == "ens1f0"'}}
- {name: rail1, type: sriov, selector: {cel: 'device.attributes["dra.networking"].pfName == "ens2f0"'}}
- name: bond
  type: bond
  dependOn: [rail0, rail1]
  config: {name: bond0, mode: active-backup, links: ['{{ rail0.interfaceName }}', '{{ rail1.interfaceName }}']}
- {name: data, type: vlan, dependOn: [bond], network: storage, config: {name: data, vlanId: 100, ipam: {type: network}}}
- {name: backup, type: vlan, dependOn: [bond], config: {name: backup, vlanId: 200}}
"""
_RAIL = """
- {name: rail, type: host-device, selector: {cel: 'device.attributes["dra.networking"].physnet == "rail"'}}
"""
_LAN = """
- name: lan
  type: sriov
  selector: {cel: 'device.attributes["dra.networking"].type == "vf"'}
  network: lan
  config: {ipam: {type: network}}
"""


def _object(kind: str, name: str, group: str = GROUP, **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"{kind}-{name}", "creationTimestamp": "2026-11-20T09:00:00Z"}
    return {"apiVersion": group, "kind": kind, "metadata": metadata, **fields}


def _condition(kind: str, status: str, reason: str, message: str, time: str = "2026-11-28T11:38:00Z") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time}


def interfaces(number: int) -> tuple[Interface, ...]:
    """The interfaces of a node: two ports at each of two NUMA nodes, and the ports of the machine itself."""
    speeds = {"speed": 25_000} if number % 4 == 0 else {}
    first = builders.sriov("ens1f0", 8, bus=0x3B, numa_node=0, pcie_root="pci0000:3a", **speeds)
    second = builders.sriov("ens2f0", 8, bus=0xAF, numa_node=1, pcie_root="pci0000:ae", **speeds)
    onboard: dict[str, Any] = {"type": "nic", "mtu": 1500, "link_speed": 10_000, "pcie_root": "pci0000:00"}
    return (
        *first,
        *second,
        Interface(
            if_name="eno1", mac="b0:7b:25:00:00:01", oper_state="up", host_use=("address",), numa_node=0, **onboard
        ),
        Interface(if_name="eno2", mac="b0:7b:25:00:00:02", oper_state="down", numa_node=0, **onboard),
    )


@cache
def policies() -> tuple[DeviceExposurePolicy, ...]:
    """Two policies, of which the second fails on nodes."""
    ours = builders.OURS
    made = [
        builders.exclusive("vfs", f'{ours}.type == "vf"', "sriov"),
        builders.exclusive("uplinks", f'{ours}.type == "pf" && {ours}.physnet == "fast"', "host-device"),
    ]
    accepted = {"conditions": [_condition("Accepted", "True", "Valid", "the policy is valid")]}
    return tuple(
        documents.convert({**documents.plain(policy), "status": accepted}, DeviceExposurePolicy, "gallery")
        for policy in made
    )


@cache
def published() -> tuple[tuple[ResourceSlice, ...], tuple[NodeNetwork, ...]]:
    """The slices and the reports of all nodes."""
    slices: list[ResourceSlice] = []
    reports: list[NodeNetwork] = []
    for number, node in enumerate(NODES):
        offering = Offering(node, {})
        offering.follow(policies()[:1], Features(), Presence(("sriov", "bond", "vlan")), ())
        found = builders.inventory(*interfaces(number), node=node)
        offered = offering.update(found, {}, (), Quiet(), time.monotonic())
        slices += [one for of_pool in offered.slices.values() for one in of_pool]
        status = documents.plain(offering.report())
        taken = {device for of_node, device in _TAKEN.values() if of_node == node}
        used = len(taken)
        groups: list[dict[str, Any]] = []
        for group in status["interfaces"]:
            if group["type"] == "vf" and used:
                share = min(used, group["count"])
                used -= share
                groups.append({**group, "count": share, "devices": [{"policy": "vfs", "allocated": True}]})
                group = {**group, "count": group["count"] - share}
            groups.append(group)
        problems = [{"message": 'policy "uplinks": no such key: physnet', "policy": "uplinks", "interfaces": 2}]
        status |= {"interfaces": groups, "problems": problems if number in (1, 6) else []}
        status["summary"]["problems"] = len(status["problems"])
        status["policies"] = [{"name": "vfs", "generation": 2, "matches": 16, "devices": 16}]
        reports.append(documents.convert(_object("NodeNetwork", node, status=status), NodeNetwork, "gallery"))
    return tuple(slices), tuple(reports)


_TAKEN = {
    **{f"db-{index}": (NODES[index % 5], f"v{index // 5}") for index in range(12)},
    **{f"db-{index}-b": (NODES[index % 5], f"w{index // 5}") for index in range(12)},
    **{f"api-{index}": (NODES[4], f"v{3 + index}") for index in range(4)},
    **{f"web-{index}": (NODES[7], f"v{index}") for index in range(6)},
}


def gpus(node: str) -> ResourceSlice:
    """The GPUs of a node, at the PCIe roots of its NICs."""
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "resource.kubernetes.io/pcieRoot": {"string": root},
                "model": {"string": "H200"},
                "resource.kubernetes.io/pciBusID": {"string": f"0000:{0x3C + index:02x}:00.0"},
            },
        }
        for index, root in enumerate(("pci0000:3a", "pci0000:3a", "pci0000:ae", "pci0000:ae"))
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices}
    return msgspec.convert({"metadata": {"name": f"{node}-gpu"}, "spec": spec}, ResourceSlice)


@cache
def topologies() -> tuple[NetworkTopology, ...]:
    """Three topologies; no device matches the second."""
    ready = {
        "conditions": [
            _condition("Compiled", "True", "Valid", "the graph is valid"),
            _condition("Ready", "True", "DeviceClassesReady", "all DeviceClasses are up to date"),
        ]
    }
    texts = {
        "storage-lan": _STEPS,
        "gpu-rail": _RAIL,
        "web-lan": _LAN,
    }
    return tuple(
        documents.convert(
            {**documents.plain(builders.topology(text, name)), "status": ready}, NetworkTopology, "gallery"
        )
        for name, text in texts.items()
    )


def _allocation(results: Sequence[tuple[str, str, str]], node: str, topology: str) -> dict[str, Any]:
    made = {entry.metadata.name: documents.plain(entry) for each in topologies() for entry in device_classes(each)}
    config = [
        {"source": "FromClass", "requests": [request], **entry}
        for request, _, _ in results
        for entry in made[f"{topology}-{request}"]["spec"].get("config", ())
    ]
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    return {
        "devices": {
            "results": [
                {"request": request, "driver": "dra.networking", "pool": pool, "device": device}
                for request, pool, device in results
            ],
            "config": config,
        },
        "nodeSelector": {"nodeSelectorTerms": terms},
    }


def _device(node: str, pf: str, index: int) -> tuple[str, str]:
    """The pool and the name of a VF."""
    for one in published()[0]:
        for device in one.spec.devices:
            if one.spec.node_name == node and device.name == f"{pf}v{index}":
                return one.spec.pool.name, device.name
    raise AssertionError(node, pf, index)


def claim(
    namespace: str, pod: str, topology: str, found: Sequence[tuple[str, str, str]] = (), node: str = "", **status: Any
) -> ResourceClaim:
    """A claim of a pod for the root steps of a topology."""
    roots = [step.name for entry in topologies() if entry.name == topology for step in entry.spec.steps if step.is_root]
    requests = [{"name": name, "exactly": {"deviceClassName": f"{topology}-{name}"}} for name in roots]
    made = _object("ResourceClaim", f"{pod}-net", "resource.k8s.io/v1", spec={"devices": {"requests": requests}})
    made["metadata"] |= {"namespace": namespace, "uid": f"claim-{pod}", "creationTimestamp": "2026-11-28T11:40:00Z"}
    users = [{"resource": "pods", "name": pod, "uid": f"pod-{pod}"}]
    if found:
        made["status"] = {"allocation": _allocation(found, node, topology), "reservedFor": users, **status}
    return msgspec.convert(made, ResourceClaim)


def pod(namespace: str, name: str, node: str = "", *, is_running: bool = False, message: str = "") -> PlacedPod:
    """A pod with one claim."""
    state = (
        {"running": {"startedAt": "2026-11-28T11:41:00Z"}}
        if is_running
        else {"waiting": {"reason": "ContainerCreating"}}
    )
    scheduled = {
        "type": "PodScheduled",
        "status": "True" if node else "False",
        "message": message,
        "lastTransitionTime": "2026-11-28T11:40:05Z",
    }
    made = {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": f"pod-{name}",
            "creationTimestamp": "2026-11-28T11:40:00Z",
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"claims": [{"name": "net"}]}}],
            "resourceClaims": [{"name": "net", "resourceClaimName": f"{name}-net"}],
        },
        "status": {
            "phase": "Running" if is_running else "Pending",
            "conditions": [scheduled],
            "containerStatuses": [{"name": "main", "state": state}] if node else [],
        },
    }
    return msgspec.convert(made, PlacedPod)


def event(namespace: str, name: str, reason: str, message: str, count: int, time: str) -> ClusterEvent:
    """A warning about a pod."""
    about = {"kind": "Pod", "namespace": namespace, "name": name, "uid": f"pod-{name}"}
    made = {
        "involvedObject": about,
        "type": "Warning",
        "reason": reason,
        "message": message,
        "count": count,
        "lastTimestamp": time,
    }
    return msgspec.convert(made, ClusterEvent)


def _done(pod: str, steps: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    reports = [
        {
            "topology": "storage-lan",
            "step": step,
            "type": step,
            "interface": interface,
            "result": {"ips": [{"address": address}] if address else []},
        }
        for step, interface, address in steps
    ]
    return {"data": {"pods": [{"uid": f"pod-{pod}", "steps": reports}]}}


def _databases() -> Iterator[tuple[PlacedPod, ResourceClaim]]:
    """Pods that run."""
    for index in range(12):
        name, node = f"db-{index}", NODES[index % 5]
        found = [(step, *_device(node, pf, index // 5)) for step, pf in (("rail0", "ens1f0"), ("rail1", "ens2f0"))]
        steps = [
            ("rail0", "net1", ""),
            ("rail1", "net2", ""),
            ("bond", "bond0", ""),
            ("data", "data", f"10.77.0.{10 + index}/24"),
            ("backup", "backup", f"10.78.0.{10 + index}/24"),
        ]
        devices = [
            {
                "driver": "dra.networking",
                "pool": found[0][1],
                "device": found[0][2],
                "conditions": [_condition("Ready", "True", "Attached", "attached")],
                "networkData": {"interfaceName": "data", "ips": [f"10.77.0.{10 + index}/24"]},
                **_done(name, steps),
            }
        ]
        yield pod("shop", name, node, is_running=True), claim("shop", name, "storage-lan", found, node, devices=devices)


FAILURE = 'NetworkTopology "storage-lan", step "data": VLAN 100 on bond0: the kernel has no VLAN support (EOPNOTSUPP)'


def _failing() -> Iterator[tuple[PlacedPod, ResourceClaim]]:
    """Pods whose network cannot be attached."""
    for index in range(4):
        name, node = f"api-{index}", NODES[4]
        found = [(step, *_device(node, pf, 3 + index)) for step, pf in (("rail0", "ens1f0"), ("rail1", "ens2f0"))]
        ready = _condition("Ready", "False", "StepFailed", FAILURE, "2026-11-28T11:44:00Z")
        devices = [
            {"driver": "dra.networking", "pool": pool, "device": device, "conditions": [ready]}
            for _, pool, device in found
        ]
        yield pod("shop", name, node), claim("shop", name, "storage-lan", found, node, devices=devices)


def _lonely() -> Iterator[tuple[PlacedPod, ResourceClaim]]:
    """Pods of a full PodNetwork, and pods for which no device exists."""
    for index in range(6):
        name, node = f"web-{index}", NODES[7]
        found = [("lan", *_device(node, "ens1f0", index))]
        yield pod("web", name, node, is_running=index < 4), claim("web", name, "web-lan", found, node)
    for index in range(3):
        name = f"train-{index}"
        yield (
            pod("ml", name, message="0/12 nodes are available: 12 cannot allocate all claims."),
            claim("ml", name, "gpu-rail"),
        )


def network(name: str, cidr: str, used: int, total: int, **changed: Any) -> PodNetwork:
    """A PodNetwork with counted addresses."""
    full = used >= total
    conditions = [_condition("Ready", "True", "Valid", "the network can be used")]
    conditions.append(
        _condition(
            "AddressesAvailable",
            "False" if full else "True",
            "NoFreeAddress" if full else "Available",
            f"range {cidr} has no free address" if full else "every range has a free address",
        )
    )
    status = {
        "conditions": conditions,
        "ranges": [{"cidr": cidr, "total": total, "used": used, "reserved": 2, "nearlyFull": full}],
        "users": used,
        "total": total,
        "used": used,
        "reserved": 2,
    }
    spec = {"ranges": [{"cidr": cidr, **changed}]}
    return documents.convert(_object("PodNetwork", name, spec=spec, status=status), PodNetwork, "gallery")


def address(
    network: str, text: str, namespace: str, pod: str, topology: str, step: str, *, is_claimed: bool = True
) -> PodAddress:
    """An assigned address, or a reserved one."""
    owner = {"namespace": namespace, "pod": pod, "claim": "net", "topology": topology, "step": step}
    spec: dict[str, Any] = {"network": network, "address": text, "families": [family_of(text)], "owner": owner}
    spec |= (
        {"claim": {"name": f"{pod}-net", "uid": f"claim-{pod}"}, "nodeName": NODES[0]}
        if is_claimed
        else {"keptSince": "2026-11-28T11:50:00Z"}
    )
    made = _object("PodAddress", object_name(network, text.partition("/")[0]), spec=spec)
    return documents.convert(made, PodAddress, "gallery")


def _usage(name: str, users: int, failing: Sequence[str] = ()) -> NetworkTopologyUsage:
    conditions = [_condition("InUse", "True", "Allocated", f"{users} claims use it")]
    conditions.append(
        _condition("Degraded", "True", "ClaimsFailed", f"{len(failing)} claims fail: {', '.join(failing)}")
        if failing
        else _condition("Degraded", "False", "NoFailures", "no claim that uses the topology fails")
    )
    status = {
        "users": users,
        "usedBy": [f"shop/db-{at}-net" for at in range(min(users, 8))],
        "conditions": conditions,
        "failingClaims": {"number": len(failing), "claims": list(failing)},
    }
    return documents.convert(_object("NetworkTopologyUsage", name, status=status), NetworkTopologyUsage, "gallery")


def _rollout(name: str, nodes: int, devices: int, problem: str = "") -> DeviceExposurePolicyRollout:
    conditions = (
        [_condition("Degraded", "True", "FailsOnNodes", f"{problem}; on 2 nodes")]
        if problem
        else [_condition("Degraded", "False", "NoProblems", "no node reports a problem, and no claim fails")]
    )
    problems = [{"message": problem, "node": NODES[1], "nodes": 2, "interfaces": 4}] if problem else []
    status = {"nodes": nodes, "updatedNodes": nodes, "devices": devices, "conditions": conditions, "problems": problems}
    return documents.convert(
        _object("DeviceExposurePolicyRollout", name, status=status), DeviceExposurePolicyRollout, "gallery"
    )


def _plugin() -> CNIPlugin:
    status = {
        "desiredNodes": 12,
        "readyNodes": 11,
        "conditions": [_condition("Installed", "False", "Failing", "1 of 12 nodes does not have the plugin")],
        "failures": [{"node": NODES[10], "message": "the image cannot be pulled: not found"}],
    }
    spec = {"image": "registry.example.com/ovs-cni:1.2.0", "binaryPath": "/usr/bin/ovs"}
    return documents.convert(_object("CNIPlugin", "ovs", spec=spec, status=status), CNIPlugin, "gallery")


@cache
def cluster() -> ClusterState:
    """All objects."""
    pairs = [*_databases(), *_failing(), *_lonely()]
    slices, reports = published()
    classes: list[DeviceClass] = [made for topology in topologies() for made in device_classes(topology)]
    addresses = [
        address("storage", f"10.77.0.{10 + index}/24", "shop", f"db-{index}", "storage-lan", "data")
        for index in range(12)
    ]
    addresses += [
        address("storage", f"10.77.0.{40 + index}/24", "shop", f"old-{index}", "storage-lan", "data", is_claimed=False)
        for index in range(2)
    ]
    addresses += [
        address("lan", f"10.90.0.{2 + index}/29", "web", f"web-{index}", "web-lan", "lan") for index in range(4)
    ]
    addresses += [
        address("storage", f"10.77.0.{22 + index}/24", "shop", f"api-{index}", "storage-lan", "data")
        for index in range(4)
    ]
    events = [
        event("shop", f"api-{index}", "NetworkNotAttached", FAILURE, 16, "2026-11-28T11:58:00Z") for index in range(4)
    ]
    events += [
        event(
            "ml",
            f"train-{index}",
            "FailedScheduling",
            "0/12 nodes are available: 12 cannot allocate all claims.",
            9,
            "2026-11-28T11:57:00Z",
        )
        for index in range(3)
    ]
    return ClusterState(
        pods=[pod for pod, _ in pairs],
        claims=[claim for _, claim in pairs],
        classes=classes,
        slices=[*slices, *map(gpus, NODES)],
        nodes=[
            msgspec.convert({"metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}}, PlacementNode)
            for node in NODES
        ],
        node_networks=reports,
        topologies=topologies(),
        usages=[
            _usage("storage-lan", 16, [f"shop/api-{at}-net" for at in range(4)]),
            _usage("gpu-rail", 0),
            _usage("web-lan", 6),
        ],
        policies=policies(),
        rollouts=[_rollout("vfs", 12, 192), _rollout("uplinks", 12, 0, 'policy "uplinks": no such key: physnet')],
        plugins=[_plugin()],
        networks=[
            network("storage", "10.77.0.0/24", 16, 253, gateway="10.77.0.1", exclude=["10.77.0.200-10.77.0.220"]),
            network("lan", "10.90.0.0/29", 4, 4, gateway="10.90.0.1", exclude=["10.90.0.6"]),
        ],
        addresses=addresses,
        events=events,
        server_time=NOW,
    )


@cache
def examination() -> ClusterExamination:
    """The troubles, with a driver that does not run."""
    nodes = [msgspec.convert(msgspec.to_builtins(report), CountedNode) for report in published()[1]]
    tainted = [
        TaintedDevice(NODES[9], f"ens1f0v{at}", "dra.networking/link-down:NoSchedule", "ens1f0") for at in range(8)
    ]
    troubles, total = judge(cluster())
    missing = ClusterTrouble(
        "nodes",
        True,
        "DriverMissing",
        "not ready on 1 nodes whose devices are offered or used (worker-12): worker-12 has no pod of it",
        "check the DaemonSet's nodeSelector and tolerations: kubectl -n netdra describe daemonsets",
        (TroubleSubject("nodes", "", NODES[11]),),
        1,
    )
    found = ordered([*troubles, missing, *of_nodes(FleetNow(nodes, tainted))])
    return ClusterExamination(
        found,
        "2026-11-28T11:59:48Z",
        total,
        len(stuck_pods(found)),
        classes=sorted(entry.metadata.name for entry in cluster().classes),
        number=1,
    )


@cache
def fleet() -> list[NodeCounts]:
    """The nodes in numbers."""
    counted = [count(msgspec.convert(msgspec.to_builtins(report), CountedNode)) for report in published()[1]]
    return [node._replace(tainted=8) if node.name == NODES[9] else node for node in counted]


@cache
def traffic() -> PodTraffic:
    """The rates of the databases' interfaces: waves of different heights, one that drops, one with errors."""
    rows = []
    for index in range(12):
        most = 3.1e9 / (index + 1) ** 2
        wave = [0.55 + 0.45 * math.sin(0.7 * at + index) for at in range(HISTORY)]
        rows.append(
            InterfaceTraffic(
                node=NODES[index % 5],
                namespace="shop",
                pod=f"db-{index}",
                claim=f"db-{index}-net",
                interface="data",
                device=f"ens1f0v{index // 5}",
                network="storage",
                receive_bytes=most * wave[-1] * 0.8,
                transmit_bytes=most * wave[-1] * 0.2,
                drops=40.0 if index == 3 else 0.0,
                errors=2.5 if index == 5 else 0.0,
                bandwidth=3_125_000_000 if index < 8 else 0,
                history=tuple(most * value for value in wave),
            )
        )
    rows.append(InterfaceTraffic(node=NODES[7], namespace="web", pod="web-0", interface="lan", history=(0.0,) * 4))
    return PodTraffic(rows, unread=[f'Node "{NODES[11]}": no answer'])


class GallerySource:
    """A source of the console that has the gallery."""

    problem, version, now = "", "1", NOW

    def fleet(self) -> Sequence[NodeCounts]:
        return fleet()

    async def examination(self) -> ClusterExamination:
        return examination()

    async def shares(self, chosen: str) -> Mapping[str, ClassShare]:
        return {}

    async def of_user(self, user: SignedOnUser) -> GallerySource:
        return self

    async def objects(self, kind: str, place: str, name: str) -> ClusterState:
        return cluster()

    async def read_list(self, kind: str) -> ClusterState:
        return cluster()

    async def devices(self, node: str, matches: Callable[[DeviceLine], bool]) -> DeviceLines:
        lines = [line for one in published()[0] for line in slice_lines(one, {}, ())]
        lines += [line for report in published()[1] for line in hidden_lines(report)]
        kept = [line for line in lines if matches(line) and node in ("", line.node)]
        return DeviceLines(kept[:2000], len(lines))

    async def traffic(self, node: str) -> PodTraffic:
        return traffic()

    async def addresses(self, text: str) -> Sequence[PodAddress]:
        return [entry for entry in cluster().addresses if entry.spec.address.startswith(text)]

    async def forecast(self, policies: Sequence[DeviceExposurePolicy], node: str) -> Forecast:
        return Forecast(0, 0, 0, 0, 0, ())

    async def wait_fleet(self, since: str) -> None:
        await asyncio.sleep(60)

    async def wait_objects(self, kind: str, place: str, name: str) -> None:
        await asyncio.sleep(60)

    async def wait_list(self, kind: str) -> None:
        await asyncio.sleep(60)
