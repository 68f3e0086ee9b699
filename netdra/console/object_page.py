"""The page of an object by its kind: its picture, its cause and next step, its timeline, and its facts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from netdra.console.forecast_page import policy_form
from netdra.console.frame import PageLife, facts, link, notes, page, section, state, table, together
from netdra.console.graphs import pod_graphs, topology_graph
from netdra.console.markup import Child, Markup, element
from netdra.console.network_page import network_content
from netdra.console.node_page import node_content
from netdra.console.rows import claim_state, pod_state, topology_state, usage_of
from netdra.console.story_page import summary, timeline
from netdra.console.times import ago
from netdra.model import documents
from netdra.model.claim import ResourceClaim, selected_node
from netdra.model.policy import DeviceExposurePolicy
from netdra.slices.allocator import claim_key
from netdra.story.claims import claim_story
from netdra.story.devices import device_story
from netdra.story.networks import network_story
from netdra.story.objects import ClusterState
from netdra.story.plugins import plugin_story
from netdra.story.pods import pod_story
from netdra.story.policies import policy_story, rollout_of
from netdra.story.statement import Story
from netdra.story.topologies import topology_story

Drawn = tuple[Story | None, Child]
"""An object's story, and the content of its page between the cause and the timeline."""


def object_page(cluster: ClusterState, kind: str, place: str, name: str) -> bytes:
    """The page of an object; `place` is its namespace, or its node, or ""."""
    told, content = _DRAWERS[kind](cluster, place, name)
    title, word, here = (f"{place}/{name}" if place else name), _WORDS[kind], kind.capitalize()
    now = cluster.server_time
    story = (summary(told, now), content, timeline(told, now)) if told is not None else content
    life = PageLife(is_live=True, now=now)
    return page(title, (story, notes(cluster.unread.values())), kind=word, here=here, life=life)


_WORDS = {
    "nodes": "Node",
    "devices": "Device",
    "pods": "Pod",
    "claims": "ResourceClaim",
    "topologies": "NetworkTopology",
    "policies": "DeviceExposurePolicy",
    "networks": "PodNetwork",
    "plugins": "CNIPlugin",
}


def _node(cluster: ClusterState, _: str, name: str) -> Drawn:
    return None, node_content(cluster, name)


def _device(cluster: ClusterState, node: str, name: str) -> Drawn:
    found = next((entry for entry in cluster.devices.values() if (entry.node, entry.device.name) == (node, name)), None)
    holders = cluster.holders.get((found.pool, found.device.name), ()) if found is not None else ()
    every = (
        ("Node", link(node, "nodes", node)),
        ("Pool", found.pool if found is not None else ""),
        ("Claims", together(link(claim_key(claim), *_claim_path(claim)) for claim in holders)),
    )
    rows = [
        (key.removeprefix("dra.networking/"), str(attribute.value))
        for key, attribute in sorted(found.device.attributes.items() if found is not None else ())
    ]
    attributes = section("Attributes", table("Attributes", ("Attribute", "Value"), rows)) if rows else None
    return device_story(cluster, node, name), (facts(every), attributes)


def _claim_path(claim: ResourceClaim) -> tuple[str, str, str]:
    return "claims", claim.metadata.namespace, claim.metadata.name


def _pod(cluster: ClusterState, namespace: str, name: str) -> Drawn:
    told, pod = pod_story(cluster, namespace, name), cluster.pod(namespace, name)
    if pod is None:
        return told, None
    node = pod.spec.node_name
    names = [claim for _, claim in pod.claim_names() if claim]
    every = (
        ("State", state(pod_state(pod))),
        ("Node", link(node, "nodes", node) if node else "not scheduled"),
        ("Claims", together(link(claim, "claims", namespace, claim) for claim in names)),
        ("Created", ago(pod.metadata.creation_timestamp or "", cluster.server_time)),
        ("Traffic", link("its rates", "traffic", node=node, text=f"{namespace}/{name}") if pod.is_running else ""),
    )
    return told, (facts(every), [*pod_graphs(cluster, pod, told.cause.text if told.cause is not None else "")])


def _claim(cluster: ClusterState, namespace: str, name: str) -> Drawn:
    told, claim = claim_story(cluster, namespace, name), cluster.claim(namespace, name)
    if claim is None:
        return told, None
    allocation = claim.status.allocation
    node = selected_node(allocation.node_selector) if allocation is not None else ""
    pods = [entry.name for entry in claim.status.reserved_for if entry.resource == "pods"]
    topologies = sorted({topology.name for topology in cluster.known.asked(claim)})
    every = (
        ("State", state(claim_state(claim))),
        ("Node", link(node, "nodes", node) if node else ""),
        ("Pods", together(link(pod, "pods", namespace, pod) for pod in pods)),
        ("Topologies", together(link(topology, "topologies", topology) for topology in topologies)),
        ("Created", ago(claim.metadata.creation_timestamp or "", cluster.server_time)),
    )
    rows = [
        (
            link(result.device, "devices", node, result.device) if result.is_attachable and node else result.device,
            result.request,
            result.pool,
            result.driver,
        )
        for result in (allocation.devices.results if allocation is not None else ())
    ]
    devices = section("Devices", table("Devices", ("Device", "Request", "Pool", "Driver"), rows)) if rows else None
    return told, (facts(every), devices)


def _topology(cluster: ClusterState, _: str, name: str) -> Drawn:
    told, topology = topology_story(cluster, name), cluster.topology(name)
    if topology is None:
        return told, None
    usage = usage_of(cluster, name)
    using = [key.split("/", 1) for key in usage.used_by]
    every = (
        ("State", state(topology_state(topology, usage))),
        ("Claims", usage.users or ""),
        ("Failing", usage.failing_claims.number or ""),
        ("Used by", together(link("/".join(key), "claims", *key) for key in using[:8] if len(key) == 2)),
        ("Created", ago(topology.metadata.creation_timestamp or "", cluster.server_time)),
    )
    return told, (facts(every), section("Graph", topology_graph(cluster, topology)), _yaml(topology))


def _yaml(entry: object) -> Markup:
    """The object as it is written, folded."""
    plain = documents.plain(entry)
    plain["metadata"] = {"name": plain["metadata"]["name"]}
    plain.pop("status", None)
    written = element("pre", documents.to_yaml([plain]))
    return element("details", element("summary", "YAML"), written)


def _policy(cluster: ClusterState, _: str, name: str) -> Drawn:
    told = policy_story(cluster, name)
    policy = next((entry for entry in cluster.policies if entry.name == name), None)
    if policy is None:
        return told, None
    rollout = rollout_of(cluster, name)
    problems = [
        (problem.message, problem.nodes, link(problem.node, "nodes", problem.node) if problem.node else "")
        for problem in rollout.problems
    ]
    every = (
        ("Action", policy.spec.action),
        ("Priority", policy.spec.priority),
        ("Selector", element("code", policy.spec.selector.cel)),
        ("Offers", f"{rollout.devices} devices on {rollout.nodes} nodes"),
        ("Up to date", f"{rollout.updated_nodes} of {rollout.nodes} nodes"),
        ("Created", ago(policy.metadata.creation_timestamp or "", cluster.server_time)),
    )
    failing = table("Problems on nodes", ("Problem", "Nodes", "For example"), problems) if problems else None
    return told, (facts(every), failing, _offers(cluster, policy), _trial(policy))


def _offers(cluster: ClusterState, policy: DeviceExposurePolicy) -> Markup | None:
    """The result of a policy on each node that reports it."""
    rows = [
        (
            link(report.name, "nodes", report.name),
            own.matches,
            own.devices,
            own.overruled,
            sum(own.outranked.values()),
            own.failing,
        )
        for report in cluster.node_networks
        for own in (report.status.policies if report.status is not None else ())
        if own.name == policy.name
    ]
    columns = ("Node", "Matches", "Devices", "Overruled", "Outranked", "Failing")
    return section("On nodes", table(f"{len(rows)} nodes", columns, rows, numeric=1)) if rows else None


def _trial(policy: DeviceExposurePolicy) -> Markup:
    """The form that shows the result of a changed policy."""
    plain = documents.plain(policy)
    plain["metadata"] = {"name": policy.name}
    plain.pop("status", None)
    return section("Try a change", policy_form(documents.to_yaml([plain]), ""))


def _network(cluster: ClusterState, _: str, name: str) -> Drawn:
    network = next((entry for entry in cluster.networks if entry.name == name), None)
    told = network_story(cluster, name)
    if network is None:
        return told, None
    return told, network_content(cluster, network)


def _plugin(cluster: ClusterState, _: str, name: str) -> Drawn:
    told, plugin = plugin_story(cluster, name), next((entry for entry in cluster.plugins if entry.name == name), None)
    if plugin is None:
        return told, None
    status = plugin.status
    failures = [
        (link(failure.node, "nodes", failure.node), failure.message)
        for failure in (status.failures if status is not None else ())
    ]
    every = (
        ("Image", plugin.spec.image),
        ("Program", plugin.spec.binary_path),
        ("Schema", status.schema if status else ""),
    )
    return told, (facts(every), table("Failures", ("Node", "Failure"), failures) if failures else None)


_DRAWERS: Mapping[str, Callable[[ClusterState, str, str], Drawn]] = {
    "nodes": _node,
    "devices": _device,
    "pods": _pod,
    "claims": _claim,
    "topologies": _topology,
    "policies": _policy,
    "networks": _network,
    "plugins": _plugin,
}
