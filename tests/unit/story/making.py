"""A cluster's objects for stories, from YAML or as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from netdra.cluster.objects import ClusterEvent, ClusterState, PlacedPod, PlacementNode, TaintRule
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.names import NEXT_STEP
from netdra.model.neutron_port import NeutronPort
from netdra.model.node_network import NodeNetwork
from netdra.model.pod_address import PodAddress
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice
from netdra.model.rollout import NetworkTopologyUsage
from netdra.model.topology import NetworkTopology
from netdra.topology.classes import device_classes
from testbed import yaml

_FIELDS: Mapping[str, tuple[str, type]] = {
    "Pod": ("pods", PlacedPod),
    "ResourceClaim": ("claims", ResourceClaim),
    "ResourceClaimTemplate": ("templates", ResourceClaimTemplate),
    "DeviceClass": ("classes", DeviceClass),
    "ResourceSlice": ("slices", ResourceSlice),
    "Node": ("nodes", PlacementNode),
    "NodeNetwork": ("node_networks", NodeNetwork),
    "NetworkTopology": ("topologies", NetworkTopology),
    "NetworkTopologyUsage": ("usages", NetworkTopologyUsage),
    "DeviceExposurePolicy": ("policies", DeviceExposurePolicy),
    "NeutronPort": ("ports", NeutronPort),
    "PodNetwork": ("networks", PodNetwork),
    "PodAddress": ("addresses", PodAddress),
    "DeviceTaintRule": ("taint_rules", TaintRule),
    "Event": ("events", ClusterEvent),
}


def cluster(*texts: str, unread: Mapping[str, str] | None = None) -> ClusterState:
    """The objects of YAML documents, and the DeviceClasses of their topologies."""
    fields: dict[str, Any] = {}
    for text in texts:
        for document in yaml.safe_load_all(text):
            field, kind = _FIELDS[document["kind"]]
            fields.setdefault(field, []).append(msgspec.convert(document, kind))
    classes = [each for topology in fields.get("topologies", ()) for each in device_classes(topology)]
    return ClusterState(**{**fields, "classes": [*fields.get("classes", ()), *classes]}, unread=unread or {})


READY = "status: {conditions: [{type: Ready, status: 'True', reason: DeviceClassesReady}]}"
TOPOLOGY = f"""
apiVersion: networking.dra.io/v1alpha1
kind: NetworkTopology
metadata: {{name: fast}}
spec:
  steps:
  - {{name: nic, type: host-device, selector: {{cel: 'device.attributes["dra.networking"].type == "nic"'}}}}
{READY}
"""
NODES = """
{kind: Node, metadata: {name: worker-1, labels: {zone: a}}}
---
{kind: Node, metadata: {name: worker-2, labels: {zone: b}}, spec: {taints: [{key: gpu, effect: NoSchedule}]}}
"""


def slices(
    *devices: str, node: str = "worker-1", taints: str = "[]", kind: str = "nic", plugin: str = "host-device"
) -> str:
    """A node's devices in one pool."""
    listed = "".join(
        f"""
  - name: {name}
    taints: {taints}
    attributes:
      dra.networking/ifName: {{string: {name}}}
      dra.networking/type: {{string: {kind}}}
      dra.networking/linkSpeed: {{int: 25000}}
      dra.networking/supportedCNIs: {{string: ',{plugin},'}}"""
        for name in devices
    )
    return f"""
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: {node}-{kind}}}
spec:
  driver: dra.networking
  nodeName: {node}
  pool: {{name: {node}/{kind}, generation: 1, resourceSliceCount: 1}}
  devices: {listed}
"""


def claim(name: str, *devices: str, more: str = "", status: str = "", device_class: str = "fast-nic") -> str:
    """A claim for one NIC; with devices of worker-1, it has these."""
    results = ", ".join(
        f"{{request: nic, driver: dra.networking, pool: worker-1/nic, device: {device}}}" for device in devices
    )
    allocation = f"allocation: {{allocationTimestamp: '2026-11-27T10:00:02Z', devices: {{results: [{results}]}}}}"
    return f"""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: {name}, namespace: apps, uid: uid-of-{name}, creationTimestamp: '2026-11-27T10:00:00Z'}}
spec: {{devices: {{requests: [{{name: nic, exactly: {{deviceClassName: {device_class}{more}}}}}]}}}}
status:
  reservedFor: {"[{resource: pods, name: db-0, uid: uid-of-db-0}]" if devices else "[]"}
  {allocation if devices else ""}
  {status}
"""


def pod(name: str, *claims: str, spec: str = "", status: str = "phase: Pending", listed: bool = True) -> str:
    """A pod with claims."""
    entries = ", ".join(f"{{name: {each}, resourceClaimName: {each}}}" for each in claims)
    lists = ", ".join(f"{{name: {each}}}" for each in claims) if listed else ""
    return f"""
kind: Pod
metadata: {{name: {name}, namespace: apps, uid: uid-of-{name}, creationTimestamp: '2026-11-27T10:00:01Z'}}
spec:
  containers: [{{name: main, resources: {{claims: [{lists}]}}}}]
  resourceClaims: [{entries}]
  {spec}
status:
  {status}
"""


def event(
    reason: str,
    message: str,
    *,
    uid: str = "uid-of-db-0",
    time: str = "2026-11-27T10:00:09Z",
    next_step: str = "",
) -> str:
    """An event of the pod db-0."""
    metadata = {"annotations": {NEXT_STEP: next_step}} if next_step else {}
    about = f"{{kind: Pod, namespace: apps, name: db-0, uid: {uid}}}"
    return yaml.safe_dump(
        {"kind": "Event", "involvedObject": yaml.safe_load(about), "reason": reason, "message": message}
        | {"metadata": metadata, "type": "Warning", "lastTimestamp": time}
    )


UNSCHEDULABLE = """conditions:
  - {type: PodScheduled, status: 'False', reason: Unschedulable, message: '0/2 nodes are available',
     lastTransitionTime: '2026-11-27T10:00:01Z'}"""
"""The status of a pod that the scheduler has rejected."""
RUNNING = """phase: Running
  conditions: [{type: PodScheduled, status: 'True', lastTransitionTime: '2026-11-27T10:00:02Z'}]
  containerStatuses: [{name: main, state: {running: {startedAt: '2026-11-27T10:00:05Z'}}}]"""
"""The status of a pod that runs."""


def report(node: str = "worker-1", **fields: Any) -> str:
    """A node's NodeNetwork."""
    return yaml.safe_dump(
        {
            "apiVersion": "networking.dra.io/v1alpha1",
            "kind": "NodeNetwork",
            "metadata": {"name": node},
            "status": fields,
        }
    )
