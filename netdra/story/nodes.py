"""Which nodes a pod can run on by its own spec, and the state of netdra's driver on a node. Pure.

Follows the kube-scheduler's NodeAffinity, TaintToleration and NodeUnschedulable plugins (Kubernetes 1.37), as far as
they reject nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from netdra.cluster.objects import ClusterState, PlacedPod, PlacementNode, PodToleration
from netdra.model.core import NodeTaint
from netdra.model.errors import InvalidInputError
from netdra.model.names import DRIVER
from netdra.slices.nodes import HOSTNAME_LABEL, SchedulerNode, named, parse_selector, selects
from netdra.story.statement import Statement, wrong

_BLOCKING = frozenset({"NoSchedule", "NoExecute"})
_UNSCHEDULABLE = NodeTaint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def scheduler_nodes(cluster: ClusterState) -> dict[str, SchedulerNode]:
    """The nodes by name, with their labels; those that slices name where Nodes cannot be read."""
    known = {node.metadata.name: _scheduler_node(node) for node in cluster.nodes}
    published = (one.spec.node_name for one in cluster.slices)
    return known or {name: named(name) for name in sorted(filter(None, published))}


def _scheduler_node(node: PlacementNode) -> SchedulerNode:
    name = node.metadata.name
    return SchedulerNode(name, {HOSTNAME_LABEL: name, **node.metadata.labels})


def exclusions(cluster: ClusterState, pod: PlacedPod) -> dict[str, str]:
    """By node that the pod's spec or the node's taints exclude, the reason."""
    reasons = ((node.metadata.name, _exclusion(node, pod)) for node in cluster.nodes)
    return {name: reason for name, reason in reasons if reason}


def _exclusion(node: PlacementNode, pod: PlacedPod) -> str:
    labels = _scheduler_node(node).labels
    for key, value in (pod.spec.node_selector or {}).items():
        if labels.get(key) != value:
            found = f'is "{labels[key]}"' if key in labels else "is not set"
            return f"nodeSelector requires {key}={value}; the label {found}"
    if not _has_affinity(pod.spec.affinity, _scheduler_node(node)):
        return "the node does not match the pod's required nodeAffinity"
    cordon = (_UNSCHEDULABLE,) if node.spec.unschedulable else ()
    for taint in (*cordon, *(node.spec.taints or ())):
        if taint.effect in _BLOCKING and not _is_tolerated(taint, pod.spec.tolerations or ()):
            value = f"={taint.value}" if taint.value else ""
            return f"the pod does not tolerate the node's taint {taint.key}{value}:{taint.effect}"
    return ""


def _has_affinity(affinity: Any, node: SchedulerNode) -> bool:
    required: Any = affinity
    for field in ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        required = required.get(field) if isinstance(required, Mapping) else None
    if required is None:
        return True
    try:
        return selects(parse_selector(required, "nodeAffinity"), node)
    except InvalidInputError:
        return True  # an operator that is newer than this version of netdra


def _is_tolerated(taint: NodeTaint, tolerations: tuple[PodToleration, ...]) -> bool:
    return any(
        (not entry.effect or entry.effect == taint.effect)
        and (not entry.key or entry.key == taint.key)
        and (entry.operator == "Exists" or entry.value == taint.value)
        for entry in tolerations
    )


def driver_problems(cluster: ClusterState, node: str) -> Iterator[Statement]:
    """The signs that netdra's driver does not run on a node."""
    about = f"Node {node}"
    pod = cluster.driver_of(node)
    if pod is not None and not pod.is_ready:
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        waits = f" ({pod.status.waiting_reason})" if pod.status.waiting_reason else ""
        text = f'netdra\'s driver does not run on node "{node}": pod {name} is not ready{waits}'
        own = f"{pod.metadata.name} -n {pod.metadata.namespace}"
        next_step = f"read its state and its log: kubectl describe pod {own}, and kubectl logs {own}"
        yield wrong(about, text, next_step, reason="DriverNotReady", code="ND5030")
    elif pod is None and cluster.drivers:
        text = f'netdra\'s driver does not run on node "{node}": the node has no pod of netdra-node'
        next_step = "check nodeSelector and tolerations of the DaemonSet netdra-node, and that the node is Ready"
        yield wrong(about, text, next_step, reason="DriverMissing", code="ND5031")
    elif cluster.could_read("nodenetworks") and cluster.report(node) is None:
        text = f'netdra\'s driver has never reported from node "{node}": the node has no NodeNetwork'
        next_step = "check that the DaemonSet netdra-node has a running pod on the node"
        yield wrong(about, text, next_step, reason="DriverMissing", code="ND5032")
    elif node not in cluster.offering_nodes:
        hidden = _hidden(cluster, node)
        why = f"; {hidden[0]}" if hidden else ""
        text = f'node "{node}" publishes no device of {DRIVER}{why}'
        yield wrong(about, text, _offer(cluster, node), reason="NoDevices", details=hidden, code="ND5033")


def _offer(cluster: ClusterState, node: str) -> str:
    if cluster.could_read("deviceexposurepolicies") and not cluster.policies:
        return "create a DeviceExposurePolicy: no policy exists, and devices are not offered without one"
    return f"create or change a DeviceExposurePolicy for its interfaces: kubectl describe nodenetwork {node}"


def _hidden(cluster: ClusterState, node: str) -> list[str]:
    """The reasons why interfaces of a node are hidden."""
    report = cluster.report(node)
    groups = report.status.interfaces if report is not None and report.status is not None else ()
    return [
        f"{', '.join(group.names[:3]) or f'{group.count} of type {group.type}'}: {group.reason}"
        for group in groups
        if group.reason and not group.devices
    ][:6]
