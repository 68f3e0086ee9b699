"""The examination of a cluster: what is wrong now, by the stories of `netdra why` and the verdicts of `netdra doctor`.

Run by the console while someone reads it, and by `netdra top`. Nothing is written. A small cluster is examined as by
`netdra why --all-namespaces`. Of a large one, the pods that wait or fail are examined, with the slices of their nodes:
slices of 100,000 devices are not read every few seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from netdra import __version__
from netdra.cluster import reading
from netdra.cluster.fleet import FleetNow, TaintedDevice
from netdra.cluster.listing import ListReader
from netdra.cluster.objects import ClusterState, PlacedPod
from netdra.cluster.reading import EVENTS, PODS, TAINT_RULES, Scope
from netdra.console.fleet import count
from netdra.console.rows import claim_state
from netdra.console.troubles import (
    MAX_SUBJECTS,
    ClusterExamination,
    ClusterTrouble,
    TroubleKind,
    TroubleSubject,
    ordered,
    stuck_pods,
)
from netdra.doctor import cluster_verdicts, process_look, process_verdicts
from netdra.doctor.cluster_verdicts import ClusterFacts, Component
from netdra.doctor.diagnosis import Diagnosis, Unseen, attempt
from netdra.doctor.process_look import ComponentPod
from netdra.doctor.process_verdicts import ProcessFacts
from netdra.kube import resources
from netdra.kube.client import Client, Selection
from netdra.model.claim import ResourceClaim, ResourceClaimSpec, ResourceClaimStatus
from netdra.model.meta import time_of, time_text
from netdra.model.node_network import NodeNetwork
from netdra.model.resource import ResourceSlice
from netdra.story.devices import taint_step
from netdra.story.overview import CauseOfMany, Overview, overview
from netdra.story.plugins import plugin_story
from netdra.story.policies import policy_story
from netdra.story.statement import Story

MAX_DEVICES = 8_000
"""Devices of a cluster up to which all slices are read."""
MAX_PODS = 500
PATIENCE = timedelta(minutes=1)
"""For how long a pod may wait without a cause."""
MAX_NODES = 50
"""Nodes of pods that wait whose slices and reports are read in a large cluster."""
MAX_ADDRESSES = 20_000
TAINTED = "Tainted"
"""The code of the trouble of devices that claims are kept off."""
_LARGE = (
    f"The cluster has more than {MAX_DEVICES} devices: which devices topologies and unscheduled pods lack is on their "
    "own pages."
)
_PAGES: Mapping[str, tuple[str, TroubleKind]] = {
    "Pod": ("pods", "pods"),
    "NetworkTopology": ("topologies", "topologies"),
    "PodNetwork": ("networks", "networks"),
    "DeviceExposurePolicy": ("policies", "policies"),
    "CNIPlugin": ("plugins", "plugins"),
    "Node": ("nodes", "nodes"),
    "Device": ("devices", "devices"),
}
"""By the first word of a story's subject, the page and the kind of its troubles."""
_REASONS = frozenset({"NetworkChanged", "NetworkNotDetached", "NetworkGivenUp", "FailedKillPod"})
"""The events of pods that are not waiting, and have lost their network or cannot end."""


async def examine(client: Client, fleet: FleetNow, namespaces: Sequence[str] = ()) -> ClusterExamination:
    """Examine a cluster.

    Args:
        fleet: the nodes' reports.
        namespaces: the only namespaces whose pods and claims are examined; all if none is named.

    Raises:
        ApiError: the API server does not answer.
    """
    counts = [count(node) for node in fleet.nodes]
    reader = ListReader(client, namespaces)
    is_large = sum(node.devices for node in counts) > MAX_DEVICES
    cluster, notes = await (_read_large if is_large else _read_all)(client, reader, fleet)
    cluster = replace(
        cluster,
        policies=cluster.policies or await reader.of(resources.POLICIES),
        rollouts=await reader.of(resources.POLICY_ROLLOUTS),
        plugins=await reader.of(resources.CNI_PLUGINS),
    )
    found, total = await asyncio.to_thread(judge, cluster)
    processes = await _processes(client)
    tainted = () if cluster.could_read("resourceslices") else fleet.tainted
    troubles = [*found, *processes, *of_nodes(FleetNow(fleet.nodes, tainted))]
    notes = [*dict.fromkeys([*notes, *reader.reader.unread.values()])]
    return ClusterExamination(
        troubles=ordered(troubles),
        checked=time_text(client.now()),
        pods=total,
        stuck=len(stuck_pods(troubles)),
        notes=notes,
        classes=sorted(entry.metadata.name for entry in cluster.classes),
    )


async def _read_all(client: Client, reader: ListReader, _: FleetNow) -> tuple[ClusterState, list[str]]:
    """All objects, as `netdra why --all-namespaces` reads them; with namespaces, the pods of these alone."""
    scopes = [Scope(namespace=place, every=True) for place in reader.namespaces] or [Scope(every=True)]
    parts = [await reading.read(client, scope) for scope in scopes]
    first = parts[0]
    return (
        replace(
            first,
            pods=[pod for part in parts for pod in part.pods],
            events=[event for part in parts for event in part.events],
            ports=[port for part in parts for port in part.ports],
        ),
        [text for part in parts for text in part.unread.values()],
    )


async def _read_large(client: Client, reader: ListReader, fleet: FleetNow) -> tuple[ClusterState, list[str]]:
    """The pods that wait or fail, and the objects of their stories."""
    pending = await reader.of(PODS, lambda pod: pod.has_claims, field_selector="status.phase=Pending")
    events = await reader.of(EVENTS, lambda event: event.is_of_pod_or_claim, field_selector="type=Warning")
    failing = await _find_failing(reader)
    lost = {
        (event.involved_object.namespace, event.involved_object.name) for event in events if event.reason in _REASONS
    }
    known = {(pod.metadata.namespace, pod.metadata.name) for pod in pending}
    others = await _pods(reader, sorted((lost | failing) - known)[:MAX_PODS])
    pods = [*pending, *(pod for pod in others if pod.has_claims)]
    nodes = sorted({pod.spec.node_name for pod in pods} - {""})[:MAX_NODES]
    names = {(pod.metadata.namespace, claim) for pod in pods for _, claim in pod.claim_names()}
    networks = await reader.of(resources.POD_NETWORKS)
    used = sum(network.status.used for network in networks if network.status is not None)
    slices: list[ResourceSlice] = []
    reports: dict[str, NodeNetwork] = {node.metadata.name: node.report for node in fleet.nodes}
    for node in nodes:
        slices += await reader.of(resources.RESOURCE_SLICES, field_selector=f"spec.nodeName={node}")
        reports |= {
            report.name: report
            for report in await reader.of(resources.NODE_NETWORKS, field_selector=f"metadata.name={node}")
        }
    fields: dict[str, Any] = {
        "templates": await reader.of(resources.CLAIM_TEMPLATES),
        "classes": await reader.of(resources.DEVICE_CLASSES),
        "topologies": await reader.of(resources.TOPOLOGIES),
        "usages": await reader.of(resources.TOPOLOGY_USAGES),
        "policies": await reader.of(resources.POLICIES),
        "taint_rules": await reader.of(TAINT_RULES),
        "addresses": await reader.of(resources.POD_ADDRESSES) if used <= MAX_ADDRESSES else (),
        "claims": await client.gather(resources.RESOURCE_CLAIMS, partial(_thin, names)),
        "drivers": await reader.reader.drivers(),
    }
    # Placement is not answered without all slices, and nodes are read for it alone.
    missing = {"resourceslices": "slices", "nodes": "nodes"}
    cluster = ClusterState(
        pods=[pod for pod in pods if not pod.spec.node_name or pod.spec.node_name in nodes],
        slices=slices,
        node_networks=[*reports.values()],
        networks=networks,
        events=events,
        unread={**reader.reader.unread, **missing},
        server_time=time_text(client.now()),
        **fields,
    )
    return cluster, [_LARGE]


async def _find_failing(reader: ListReader) -> set[tuple[str, str]]:
    """The pods whose claims fail."""
    claims = await reader.of(resources.RESOURCE_CLAIMS, lambda claim: claim_state(claim) == "Failing")
    return {
        (claim.metadata.namespace, user.name)
        for claim in claims
        for user in claim.status.reserved_for
        if user.resource == "pods"
    }


async def _pods(reader: ListReader, names: Sequence[tuple[str, str]]) -> list[PlacedPod]:
    """Pods by their names."""
    found: list[PlacedPod] = []
    for namespace, name in names:
        only = Selection(namespace=namespace, field_selector=f"metadata.name={name}")
        found += await reader.reader.list(PODS, only)
    return found


def _thin(names: set[tuple[str, str]], claim: ResourceClaim) -> ResourceClaim:
    """A claim; of one that no examined pod has, its name and its users."""
    if (claim.metadata.namespace, claim.metadata.name) in names:
        return claim
    users = ResourceClaimStatus(reserved_for=claim.status.reserved_for)
    return replace(claim, spec=ResourceClaimSpec(), status=users)


def judge(cluster: ClusterState) -> tuple[list[ClusterTrouble], int]:
    """The troubles of all objects, and the number of pods with claims."""
    found = overview(cluster, "Cluster", cluster.pods, whole=True)
    more = [policy_story(cluster, policy.name) for policy in cluster.policies]
    more += [plugin_story(cluster, plugin.name) for plugin in cluster.plugins]
    troubles = [*of_overview(found), *(trouble for story in more for trouble in _of_story(story))]
    users = {
        (claim.metadata.namespace, user.name)
        for claim in cluster.claims
        for user in claim.status.reserved_for
        if user.resource == "pods"
    }
    pods = {(pod.metadata.namespace, pod.metadata.name) for pod in cluster.pods if pod.has_claims and not pod.has_ended}
    return [*troubles, *_unexplained(cluster, troubles), *_of_taints(tainted_devices(cluster))], len(pods | users)


def tainted_devices(cluster: ClusterState) -> list[TaintedDevice]:
    """The devices that claims are kept off, of the slices that were read; also by DeviceTaintRules."""
    return [
        TaintedDevice(found.node, found.device.name, f"{taint.key}:{taint.effect}", taint.value)
        for found in cluster.devices.values()
        for taint in found.device.blocking_taints[:1]
    ]


def _unexplained(cluster: ClusterState, troubles: Iterable[ClusterTrouble]) -> Iterator[ClusterTrouble]:
    """The pods that have waited for a while without a cause that the objects show."""
    known = {subject for trouble in troubles for subject in trouble.subjects}
    subjects = [
        TroubleSubject("pods", pod.metadata.namespace, pod.metadata.name)
        for pod in cluster.pods
        if pod.has_claims and pod.is_waiting and _is_old(pod, cluster.server_time)
    ]
    left = [subject for subject in subjects if subject not in known]
    if left:
        text = "the pods wait, and neither events nor statuses show a cause"
        yield ClusterTrouble(
            "pods", True, "Waiting", text, "kubectl describe pod", tuple(left[:MAX_SUBJECTS]), len(left)
        )


def _is_old(pod: PlacedPod, now: str) -> bool:
    created = pod.metadata.creation_timestamp
    return not (created and now) or time_of(now) - time_of(created) > PATIENCE


def of_overview(found: Overview) -> Iterator[ClusterTrouble]:
    """The causes of an overview."""
    for cause in found.troubles:
        yield _of_cause(cause)


def _of_cause(found: CauseOfMany) -> ClusterTrouble:
    subjects = tuple(map(subject_of, found.subjects[:MAX_SUBJECTS]))
    _, kind = _PAGES.get(found.subjects[0].partition(" ")[0], ("", "netdra"))
    cause = found.cause
    return ClusterTrouble(
        kind=kind,
        is_error=cause.severity == "error",
        code=cause.reason or "Problem",
        text=cause.coded,
        next_step=cause.next_step,
        subjects=subjects,
        affected=len(found.subjects),
        since=cause.time,
    )


def subject_of(text: str) -> TroubleSubject:
    """The object that a story is about, e.g. `Pod default/db-0`."""
    kind, _, name = text.partition(" ")
    place, slash, rest = name.partition("/")
    page, _ = _PAGES.get(kind, ("", "netdra"))
    return TroubleSubject(page, place, rest) if slash else TroubleSubject(page, "", name)


def _of_story(story: Story) -> Iterator[ClusterTrouble]:
    if story.cause is not None:
        yield _of_cause(CauseOfMany(cause=story.cause, subjects=(story.subject,)))


async def _processes(client: Client) -> list[ClusterTrouble]:
    """The verdicts on netdra's own processes."""
    only = Selection(label_selector=cluster_verdicts.NETDRA_PODS)
    pods = await attempt(client.gather(process_look.PODS, _placed, only))
    if isinstance(pods, Unseen) or not pods:
        return []
    namespace = Counter(place for place, _ in pods).most_common(1)[0][0]
    components = tuple(component for place, component in pods if place == namespace)
    facts = await process_look.look(client, namespace, components)
    found = process_verdicts.verdicts(facts)
    if isinstance(facts.leader, Unseen):
        found = [finding for finding in found if finding.check != process_verdicts.CONTROLLER]
    cluster = ClusterFacts(server="", namespace=namespace, components=components)
    versions = cluster_verdicts.verdicts(cluster, __version__, client.now())
    found += [finding for finding in versions if finding.check == cluster_verdicts.VERSIONS]
    return [_of_verdict(finding, facts, components) for finding in found if finding.level != "ok"]


def _placed(pod: ComponentPod) -> tuple[str, Component]:
    return pod.metadata.namespace, process_look.component(pod)


_CODES = {
    process_verdicts.CONTROLLER: "ControllerNotRunning",
    process_verdicts.WEBHOOK: "WebhookNotReady",
    cluster_verdicts.VERSIONS: "DifferentVersions",
}


def _of_verdict(finding: Diagnosis, facts: ProcessFacts, components: Sequence[Component]) -> ClusterTrouble:
    nodes: list[str] = []
    code = _CODES.get(finding.check, "NetdraProblem")
    kind: TroubleKind = "netdra"
    if finding.check == process_verdicts.NODE and not isinstance(facts.drivers, Unseen):
        off, lacking = process_verdicts.absent(facts.drivers, components)
        is_off = finding.level == "warning"
        nodes, code, kind = (off, "NodeNotReady", "nodes") if is_off else (lacking, "DriverMissing", "nodes")
    subjects = tuple(TroubleSubject("nodes", "", name) for name in nodes[:MAX_SUBJECTS])
    return ClusterTrouble(
        kind,
        finding.level == "error",
        code,
        f"{finding.check}: {finding.coded}",
        finding.fix,
        subjects,
        len(nodes) or 1,
    )


def of_nodes(fleet: FleetNow) -> Iterator[ClusterTrouble]:
    """The problems that nodes report, each once, and devices that are tainted or gone."""
    problems: dict[tuple[str, str], list[str]] = {}
    gone: list[str] = []
    for node in fleet.nodes:
        for problem in node.status.problems if node.status is not None else ():
            problems.setdefault((problem.policy, problem.message), []).append(node.metadata.name)
        if count(node).gone:
            gone.append(node.metadata.name)
    for (policy, message), nodes in problems.items():
        code, step = (
            ("PolicyFails", f"kubectl describe deviceexposurepolicy {policy}") if policy else ("NodeProblem", "")
        )
        subjects = tuple(TroubleSubject("nodes", "", name) for name in nodes[:MAX_SUBJECTS])
        next_step = step or f"kubectl describe nodenetwork {nodes[0]}"
        yield ClusterTrouble("nodes", False, code, message, next_step, subjects, len(nodes))
    if gone:
        subjects = tuple(TroubleSubject("nodes", "", name) for name in gone[:MAX_SUBJECTS])
        text = "interfaces were removed from nodes while claims have their devices"
        yield ClusterTrouble(
            "nodes", False, "DeviceGone", text, "restore the interface, or end the pod that has it", subjects, len(gone)
        )
    yield from _of_taints(fleet.tainted)


def _of_taints(tainted: Sequence[TaintedDevice]) -> Iterator[ClusterTrouble]:
    by_taint: Callable[[TaintedDevice], str] = attrgetter("taint")
    for taint, group in groupby(sorted(tainted, key=by_taint), by_taint):
        devices = list(group)
        subjects = tuple(TroubleSubject("devices", found.node, found.device) for found in devices[:MAX_SUBJECTS])
        value = f" ({devices[0].value})" if devices[0].value else ""
        text = f"the taint {taint}{value} keeps claims without a toleration off the devices"
        yield ClusterTrouble(
            "devices", False, TAINTED, text, taint_step(taint.partition(":")[0]), subjects, len(devices)
        )
