"""Why no device of a class exists for a claim: driver, policies, plugins, or no such hardware. Pure.

Called by `placement` where no single change of a claim would help.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from netdra.cluster.objects import ClusterState
from netdra.model.claim import ResourceClaim, selected_node
from netdra.model.errors import sentence
from netdra.model.names import DRIVER
from netdra.model.suggestions import listed
from netdra.model.topology import NetworkTopology
from netdra.slices.allocator import Explanation, RequestReport
from netdra.story.nodes import driver_problems
from netdra.story.statement import Statement, wrong
from netdra.topology.needed import run_by

MAX_NODES = 3


def statements(
    cluster: ClusterState,
    about: str,
    claims: Sequence[ResourceClaim],
    nodes: Sequence[str],
    explanation: Explanation,
    details: tuple[str, ...],
) -> Iterator[Statement]:
    """The causes, the likeliest first, and the allocator's explanation.

    Args:
        about: the object that waits.
        claims: those that are not allocated.
        nodes: the nodes that can be used.
        explanation: the allocator's.
        details: the explanation in lines.
    """
    if not nodes:
        text = "no node can be used: the pod's nodeSelector, affinity or tolerations exclude every node"
        yield wrong(about, text, "change them, or label a node", reason="NoNodes", details=details, code="ND5049")
        return
    request = _first_request(explanation)
    topologies = [topology for claim in claims for topology in cluster.known.asked(claim)]
    yield from missing_plugins(cluster, topologies, nodes)
    yield from empty_nodes(cluster, nodes) if len(nodes) > 1 else ()
    yield from _conflicts(cluster, topologies)
    yield _tied(about, claims, details) if request is None else _generic(cluster, about, nodes, request, details)


def _first_request(explanation: Explanation) -> RequestReport | None:
    return next((request for report in explanation.nodes for request in report.requests), None)


def missing_plugins(
    cluster: ClusterState, topologies: Sequence[NetworkTopology], nodes: Sequence[str]
) -> Iterator[Statement]:
    """The programs of topologies that nodes lack."""
    for topology in topologies:
        lacking: dict[str, list[str]] = {}
        reasons: dict[str, str] = {}
        for node in nodes:
            report = cluster.report(node)
            status = report.status if report is not None else None
            for missing in status.missing_plugins if status is not None else ():
                if missing.name in _programs(topology):
                    lacking.setdefault(missing.name, []).append(node)
                    reasons[missing.name] = reasons.get(missing.name) or missing.reason
        for plugin, where in lacking.items():
            why = f": {reasons[plugin]}" if reasons[plugin] else ""
            named = f"node{'s' * (len(where) > 1)} {listed(where, MAX_NODES)}"
            text = f'{named} cannot run CNI plugin "{plugin}", which NetworkTopology "{topology.name}" requires{why}'
            next_step = "install the plugin on the nodes (kubectl get cniplugins), and allow it (node.allowPlugins)"
            yield wrong(f"NetworkTopology {topology.name}", text, next_step, reason="PluginMissing", code="ND5050")


def _programs(topology: NetworkTopology) -> frozenset[str]:
    return frozenset(name for step in topology.spec.steps for name, _ in run_by(step))


def empty_nodes(cluster: ClusterState, nodes: Sequence[str]) -> Iterator[Statement]:
    """The nodes without any device, if no node has one; one node of each kind of problem."""
    if cluster.offering_nodes.intersection(nodes):
        return
    seen: Counter[str] = Counter()
    for node in nodes:
        for statement in driver_problems(cluster, node):
            seen[statement.reason] += 1
            if seen[statement.reason] == 1:
                yield statement


def _conflicts(cluster: ClusterState, topologies: Sequence[NetworkTopology]) -> Iterator[Statement]:
    """Policies that are not used, and would offer devices for the topologies' types."""
    types = {step.type for topology in topologies for step in topology.spec.steps if step.is_root}
    for policy in cluster.policies:
        exposure = policy.spec.exposure
        offered = {plugin.name for plugin in exposure.supported_cni_plugins} if exposure is not None else set()
        if offered and types.isdisjoint(offered):
            continue
        for condition in policy.status.conditions if policy.status is not None else ():
            is_wrong = (condition.type, condition.status) in (("Accepted", "False"), ("Conflicting", "True"))
            loses = condition.type != "Conflicting" or f'"{policy.name}" alone' not in condition.message
            if is_wrong and loses:
                text = f'DeviceExposurePolicy "{policy.name}" is not used: {condition.message}'
                next_step = "give one of the two policies another priority, selector or deviceNameSuffix"
                next_step = next_step if condition.type == "Conflicting" else "correct the policy"
                yield wrong(
                    f"DeviceExposurePolicy {policy.name}", text, next_step, reason=condition.reason, code="ND5051"
                )


def _tied(about: str, claims: Sequence[ResourceClaim], details: tuple[str, ...]) -> Statement:
    """No node is left to try: allocated claims tie the others to nodes that differ, or that the pod excludes."""
    nodes = {
        claim.metadata.name: selected_node(claim.status.allocation.node_selector) or "other nodes"
        for claim in claims
        if claim.status.allocation is not None
    }
    held = listed(f"{name} on {node}" for name, node in nodes.items())
    text = f"no node that the pod can use has the devices of its allocated claims: {held}"
    next_step = (
        f"end the pods that use {listed(nodes)}: Kubernetes releases the claim, and the scheduler allocates it again"
    )
    return wrong(about, text, next_step, reason="Unallocatable", details=details, code="ND5052")


def _generic(
    cluster: ClusterState, about: str, nodes: Sequence[str], request: RequestReport, details: tuple[str, ...]
) -> Statement:
    """No device of the class; with the devices that the nodes offer."""
    kinds = Counter(
        str(found.attribute("type") or "unknown") for found in cluster.devices.values() if found.node in nodes
    )
    offered = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or f"no device of {DRIVER}"
    where = f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
    wanted = request.wanted or "all"
    text = (
        f'ResourceClaim {request.claim}, request "{request.request}": {request.available} of {wanted} devices of '
        f'class "{request.device_class}" are available on {where}, which offer {offered}'
    )
    text = sentence(text, ", ".join(f"{_devices(len(entry.devices))} {entry.text}" for entry in request.obstacles[:2]))
    next_step = "offer matching interfaces by a DeviceExposurePolicy, or change the class or its topology's selector"
    return wrong(about, text, next_step, reason="NoDevice", details=details, code="ND5053")


def _devices(count: int) -> str:
    return f"{count} device{'s' * (count != 1)}"
