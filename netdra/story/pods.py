"""The story of a pod's network: its claims, where it is scheduled, its devices, its containers, drift. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from netdra.cluster.objects import ClusterEvent, ClusterState, PlacedPod
from netdra.model.claim import (
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    is_reserved_for,
)
from netdra.model.core import PodClaim
from netdra.model.errors import without_hint
from netdra.model.meta import ObjectMeta
from netdra.model.names import DRIVER, IMPLICIT_RESOURCE
from netdra.model.suggestions import hint, listed
from netdra.model.workload import Workload
from netdra.rules import workloads
from netdra.story import claims as of_claims
from netdra.story import placement
from netdra.story.nodes import driver_problems, exclusions
from netdra.story.statement import Statement, Story, absent, done, fact, story_of, wrong

_UNREACHABLE = ("list of registered", "connection error", "connection refused", "code = Unavailable")
"""The kubelet's words for a DRA driver that has not registered, or does not answer."""
_LAST_EVENTS = 6
_STEPS: Mapping[str, str] = {
    "NetworkChanged": "restart the pod to attach its network again, unless the pod itself changed it",
    "NetworkNotAttached": "correct what the text names; the container runtime tries again every few seconds",
    "FailedPrepareDynamicResources": "correct what the text names; the kubelet tries again within about a minute",
    "NetworkNotDetached": "wait: it is tried again, and the device is tainted meanwhile",
    "NetworkGivenUp": "restore the device as described in the text",
    "FailedResourceClaimCreation": "correct the ResourceClaimTemplate, or create it",
}


def pod_story(cluster: ClusterState, namespace: str, name: str) -> Story:
    """The statements about a pod, up to the step that it waits for; a missing or unread pod is one error."""
    subject = f"Pod {namespace}/{name}"
    pod = cluster.pod(namespace, name)
    if pod is None:
        unread = cluster.unread.get("pods", "")
        text = unread or f'Pod "{name}" does not exist in namespace "{namespace}"'
        names = [found.metadata.name for found in cluster.pods if found.metadata.namespace == namespace]
        next_step = "" if unread else hint(name, names, f'pods in namespace "{namespace}":') or "check the namespace"
        return absent(subject, unread, wrong(subject, text, next_step, code="ND5040"))
    return story_of(subject, _state(pod), _statements(cluster, pod), cluster.unread.values())


def _state(pod: PlacedPod) -> str:
    if pod.has_ended:
        how = pod.status.phase if pod.status.phase in ("Succeeded", "Failed") else "deleted"
        reason = f": {pod.status.reason}" if pod.status.reason else ""
        return f"has ended ({how}{reason})"
    if pod.metadata.is_ending:
        return "is being deleted"
    if pod.is_running:
        return f"runs on node {pod.spec.node_name}"
    return f"is on node {pod.spec.node_name} and does not run" if pod.spec.node_name else "is not scheduled"


def _statements(cluster: ClusterState, pod: PlacedPod) -> Iterator[Statement]:
    yield done(pod.called, "was created", time=pod.metadata.creation_timestamp or "")
    if not pod.spec.resource_claims and not _extended(cluster, pod):
        yield fact(pod.called, f"the pod has no claim, so {DRIVER} does nothing for it")
    yield from _after_the_end(cluster, pod) if pod.has_ended else _on_its_way(cluster, pod)
    yield from _ending(cluster, pod)
    yield from _other_events(cluster, pod)


def _on_its_way(cluster: ClusterState, pod: PlacedPod) -> Iterator[Statement]:
    """A pod that starts, runs or is being deleted; a deleted pod needs no claim that it does not have."""
    present = _claims(cluster, pod)
    if not pod.metadata.is_ending:
        yield from _rules(cluster, pod)
        yield from _unknown_resources(cluster, pod)
        for claim in present:
            yield from of_claims.requirements(cluster, claim, holds_back=pod.is_waiting)
        yield from _missing_claims(cluster, pod)
    if pod.spec.node_name:
        yield from _on_node(cluster, pod, present)
    else:
        yield from _scheduling(cluster, pod, present)


def _claims(cluster: ClusterState, pod: PlacedPod) -> list[ResourceClaim]:
    found = (cluster.claim(pod.metadata.namespace, name) for _, name in pod.claim_names() if name)
    return [claim for claim in found if claim is not None]


def _rules(cluster: ClusterState, pod: PlacedPod) -> Iterator[Statement]:
    """The findings of the rules for workloads: the same rules as for the webhook's warnings."""
    if not cluster.could_read("resourceclaims", "resourceclaimtemplates", "deviceclasses"):
        return
    for found in workloads.check(_workload(pod), cluster.known):
        place = found.finding.path[-1] if found.finding.path else ""
        decides = found.certain or place in ("resourceClaimName", "resourceClaimTemplateName", "limits")
        yield wrong(
            pod.called,
            found.finding.what,
            found.finding.hint,
            severity="error" if decides and pod.is_waiting else "warning",
            reason="InvalidPod",
            code=found.finding.code,
        )


def _workload(pod: PlacedPod) -> Workload:
    """The pod, with the claims that were created for it in place of their templates."""
    made = {entry.name: entry.resource_claim_name for entry in pod.status.resource_claim_statuses or ()}
    entries = tuple(
        PodClaim(name=entry.name, resource_claim_name=made[entry.name]) if made.get(entry.name) else entry
        for entry in pod.spec.resource_claims or ()
    )
    return replace(pod, spec=replace(pod.spec, resource_claims=entries)).workload


def _amounts(pod: PlacedPod) -> Iterator[tuple[str, str, object]]:
    """The extended resources of the pod's containers: container, resource, amount."""
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        for resource, amount in container.amounts.items():
            domain = resource.partition("/")[0] if "/" in resource else ""
            if domain and (resource.startswith(IMPLICIT_RESOURCE) or not domain.endswith("kubernetes.io")):
                yield container.name, resource, amount


def _resources(cluster: ClusterState) -> dict[str, str]:
    """DeviceClasses by the extended resource that requests them."""
    return {
        entry.spec.extended_resource_name: name
        for name, entry in cluster.known.classes.items()
        if entry.spec.extended_resource_name
    }


def _unknown_resources(cluster: ClusterState, pod: PlacedPod) -> Iterator[Statement]:
    """Extended resources that neither a DeviceClass nor a node provides."""
    if pod.spec.node_name or not cluster.could_read("deviceclasses", "nodes"):
        return
    provided = {*_resources(cluster), *(name for node in cluster.nodes for name in node.status.allocatable or ())}
    for container, resource, _ in _amounts(pod):
        if resource not in provided and not resource.startswith(IMPLICIT_RESOURCE):
            text = f'container "{container}" requests {resource}: no DeviceClass and no node provides this resource'
            next_step = hint(resource, _resources(cluster), "extended resources of DeviceClasses:")
            fallback = "set extendedResourceName in a root step of a NetworkTopology"
            yield wrong(pod.called, text, next_step or fallback, reason="UnknownResource", code="ND5041")


def _extended(cluster: ClusterState, pod: PlacedPod) -> list[ResourceClaim]:
    """The claim that the scheduler would make for the pod's extended resources."""
    resources = _resources(cluster)
    requests: list[DeviceRequest] = []
    for _, resource, amount in _amounts(pod):
        name = resources.get(resource, resource.removeprefix(IMPLICIT_RESOURCE))
        if name in cluster.known.classes and str(amount).isdecimal() and int(str(amount)) > 0:
            exactly = ExactDeviceRequest(device_class_name=name, count=int(str(amount)))
            requests.append(DeviceRequest(name=f"resource-{len(requests)}", exactly=exactly))
    metadata = ObjectMeta(name=f"{pod.metadata.name} (extended resources)", namespace=pod.metadata.namespace)
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=tuple(requests)))
    return [ResourceClaim(metadata=metadata, spec=spec)] if requests else []


def _missing_claims(cluster: ClusterState, pod: PlacedPod) -> Iterator[Statement]:
    """Claims that are still to be created of their template."""
    for event in _events(cluster, pod, "FailedResourceClaimCreation"):
        waits = [name for name, claim in pod.claim_names() if not claim]
        if waits:
            yield _of_event(pod, event, f"claim {listed(waits)} is not created: {event.message}")


def _scheduling(cluster: ClusterState, pod: PlacedPod, present: list[ResourceClaim]) -> Iterator[Statement]:
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    if gates:
        text = f"the pod has scheduling gates, so the scheduler ignores it: {listed(gates)}"
        yield wrong(
            pod.called,
            text,
            "remove the gates, or wait for the controller that does",
            reason="SchedulingGated",
            code="ND5042",
        )
        return
    condition = pod.condition("PodScheduled")
    excluded = exclusions(cluster, pod)
    wanted = [*present, *(_extended(cluster, pod) if pod.status.extended_resource_claim_status is None else ())]
    found: list[Statement] = []
    if wanted:
        question = placement.Question(about=pod.called, claims=wanted, excluded=excluded)
        found = [*placement.answer(cluster, question)]
        yield from found
    message = condition.message if condition is not None and condition.status == "False" else ""
    is_known = any(statement.is_problem for statement in found)
    if message and not is_known:
        next_step = "make room for the pod on such a node, or change what the text names"
        details = [f"{node}: {reason}" for node, reason in list(excluded.items())[:6]]
        text = f"the scheduler does not place the pod: {message}"
        time = condition.time if condition is not None else ""
        yield wrong(pod.called, text, next_step, reason="Unschedulable", time=time, details=details, code="ND5043")
    elif message:
        yield fact(pod.called, f"the scheduler: {message}", time=condition.time if condition is not None else "")
    else:
        yield fact(pod.called, "the scheduler has not reported a decision yet")


def _on_node(cluster: ClusterState, pod: PlacedPod, present: list[ResourceClaim]) -> Iterator[Statement]:
    condition = pod.condition("PodScheduled")
    time = condition.time if condition is not None else ""
    yield done(pod.called, f"scheduled to node {pod.spec.node_name}", time=time, reason="Scheduled")
    is_reported = False
    for claim in present:
        if claim.status.allocation is None:
            if not pod.metadata.is_ending:
                text = f"ResourceClaim {claim.metadata.name} is not allocated, although the pod is on a node"
                next_step = "create the pod without nodeName: the scheduler allocates claims"
                yield wrong(pod.called, text, next_step, reason="NotAllocated", code="ND5044")
            continue
        for statement in of_claims.progress(cluster, claim, pod):
            is_reported = is_reported or statement.severity == "error"
            yield statement
        is_reported = is_reported or any(status.driver == DRIVER for status in claim.status.devices)
    if pod.is_running:
        yield done(pod.called, "all containers run", time=_ready_since(pod))
        yield from _drift(cluster, pod)
    elif pod.is_waiting:
        yield from _not_started(cluster, pod, is_reported=is_reported)


def _ready_since(pod: PlacedPod) -> str:
    ready = pod.condition("ContainersReady")
    return ready.time if ready is not None else ""


def _not_started(cluster: ClusterState, pod: PlacedPod, *, is_reported: bool) -> Iterator[Statement]:
    """The signs of a pod that waits on its node."""
    failed = _events(cluster, pod, "FailedPrepareDynamicResources")
    unreachable = next((event for event in failed[-1:] if any(text in event.message for text in _UNREACHABLE)), None)
    if unreachable is not None and not is_reported:
        text = f'the kubelet of node "{pod.spec.node_name}" cannot reach the driver {DRIVER}: the driver does not run'
        next_step = f"check that the pod of netdra-node on {pod.spec.node_name} runs: netdra doctor"
        time, details = unreachable.time, [unreachable.message]
        yield wrong(pod.called, text, next_step, reason="DriverNotRunning", time=time, details=details, code="ND5045")
    if not is_reported:
        yield from driver_problems(cluster, pod.spec.node_name)
    if unreachable is None and not is_reported:
        yield from _failures(cluster, pod, failed)
    for container in pod.status.container_statuses or ():
        waiting = container.state.get("waiting")
        reason = str(waiting.get("reason", "")) if isinstance(waiting, Mapping) else ""
        if reason not in ("", "ContainerCreating", "PodInitializing"):
            assert isinstance(waiting, Mapping)
            text = f'container "{container.name}" waits: {reason}: {waiting.get("message", "")}'
            next_step = f"see its events: kubectl describe pod {pod.metadata.name} -n {pod.metadata.namespace}"
            yield wrong(pod.called, text.rstrip(": "), next_step, reason=reason, code="ND5046")


def _failures(cluster: ClusterState, pod: PlacedPod, failed: list[ClusterEvent]) -> Iterator[Statement]:
    """The last failures that events report, where the claims' statuses report none."""
    for event in (*failed[-1:], *_events(cluster, pod, "NetworkNotAttached")[-1:]):
        yield _of_event(pod, event, event.message)


def _drift(cluster: ClusterState, pod: PlacedPod) -> Iterator[Statement]:
    for event in _events(cluster, pod, "NetworkChanged")[-1:]:
        yield _of_event(pod, event, f"the network is not as it was attached: {event.message}")


def _after_the_end(cluster: ClusterState, pod: PlacedPod) -> Iterator[Statement]:
    """How a pod ended, and the state of its claims: Kubernetes releases claims, and deletes those made for the pod."""
    if pod.spec.node_name:
        yield done(pod.called, f"was scheduled to node {pod.spec.node_name}", reason="Scheduled")
    if pod.status.message:
        yield fact(pod.called, pod.status.message, reason=pod.status.reason)
    if pod.status.phase == "Failed" and not pod.has_run:
        for statement in _failures(cluster, pod, _events(cluster, pod, "FailedPrepareDynamicResources")):
            yield replace(statement, next_step="correct what the text names, and create the pod again")
    named = {entry.resource_claim_name for entry in pod.spec.resource_claims or ()}
    for _, name in pod.claim_names():
        if name and cluster.could_read("resourceclaims"):
            yield _left(cluster, pod, name, is_own=name not in named)


def _left(cluster: ClusterState, pod: PlacedPod, name: str, *, is_own: bool) -> Statement:
    """The state of a claim of a pod that has ended.

    Args:
        cluster: the objects.
        name: the claim's name.
        is_own: whether the claim was created for the pod.
    """
    claim = cluster.claim(pod.metadata.namespace, name)
    about = f"ResourceClaim {pod.metadata.namespace}/{name}"
    if claim is None and is_own:
        return done(about, "was created for the pod, and Kubernetes has deleted it since the pod ended")
    if claim is None:
        return fact(about, "was deleted")
    if is_reserved_for(claim, pod.metadata.uid):
        return fact(about, "is still reserved for the pod; Kubernetes releases claims of pods that have ended")
    if claim.status.allocation is None:
        return done(about, "is not allocated: Kubernetes has released its devices since the pod ended")
    return fact(about, f"was released by the pod, and {of_claims.state(claim)}")


def _ending(cluster: ClusterState, pod: PlacedPod) -> Iterator[Statement]:
    """The failures that keep a deleted pod, or its devices."""
    if pod.metadata.deletion_timestamp:
        kept = f"; finalizers keep the object: {listed(pod.metadata.finalizers)}" if pod.metadata.finalizers else ""
        yield fact(pod.called, f"the pod is deleted{kept}", time=pod.metadata.deletion_timestamp)
    for reason in ("NetworkNotDetached", "NetworkGivenUp", "FailedKillPod"):
        for event in () if pod.is_waiting else _events(cluster, pod, reason)[-1:]:
            yield _of_event(pod, event, event.message)


def _events(cluster: ClusterState, pod: PlacedPod, reason: str) -> list[ClusterEvent]:
    found = cluster.events_of("Pod", pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)
    return [event for event in found if event.reason == reason]


def _of_event(pod: PlacedPod, event: ClusterEvent, text: str) -> Statement:
    """The failure is in the first line; the others state the outcome of other steps."""
    cause, *others = text.splitlines() or [""]
    next_step = event.next_step or _STEPS.get(event.reason, "")
    cause = without_hint(cause, event.next_step)
    return wrong(pod.called, cause, next_step, code="ND5058", reason=event.reason, time=event.time, details=others)


def _other_events(cluster: ClusterState, pod: PlacedPod) -> Iterator[Statement]:
    """The last events, for facts that no other statement has."""
    found = cluster.events_of("Pod", pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)
    for event in [event for event in found if event.reason != "FailedScheduling"][-_LAST_EVENTS:]:
        often = f" ({event.times} times)" if event.times > 1 else ""
        text = f"event {event.reason}{often}: {event.message}"
        yield fact(pod.called, " ".join(text.split()), reason=event.reason, time=event.time)
