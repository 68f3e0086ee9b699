"""The story of a ResourceClaim: its classes and topologies, its allocation, its ports, its devices in pods. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from netdra.cluster.objects import ClusterState, PlacedPod
from netdra.model.claim import (
    AllocatedDeviceStatus,
    DeviceRequestAllocationResult,
    ResourceClaim,
    device_claim,
    selected_node,
)
from netdra.model.errors import without_hint
from netdra.model.names import DRIVER, network_class, network_of_class
from netdra.model.neutron_port import NeutronPort
from netdra.model.suggestions import closest, hint, listed
from netdra.story import networks, placement, topologies
from netdra.story.statement import Statement, Story, absent, done, fact, story_of, wrong
from netdra.topology.selectors import choices

_NEXT_OF: Mapping[str, str] = {
    "NotPrepared": "correct what the text names; the kubelet tries again within about a minute",
    "StepFailed": "correct what the text names; the container runtime tries again every few seconds",
    "NotYet": "wait: it is tried again",
    "NoCarrier": "set up the interface below it on the node; check the cable and the port of the switch",
    "Refused": "correct what the text names, and create the pod again if its claim must change",
}
"""What to do about a device that is not Ready, by the condition's reason."""


def claim_story(cluster: ClusterState, namespace: str, name: str) -> Story:
    """The statements about a claim, in the order of its way; a missing or unread claim is one error."""
    subject = f"ResourceClaim {namespace}/{name}"
    claim = cluster.claim(namespace, name)
    if claim is None:
        unread = cluster.unread.get("resourceclaims", "")
        text = unread or f'ResourceClaim "{name}" does not exist in namespace "{namespace}"'
        names = [found.metadata.name for found in cluster.claims if found.metadata.namespace == namespace]
        next_step = hint(name, names, f'ResourceClaims in namespace "{namespace}":')
        return absent(subject, unread, wrong(subject, text, next_step, code="ND5002"))
    return story_of(subject, state(claim), _statements(cluster, claim), cluster.unread.values())


def state(claim: ResourceClaim) -> str:
    """A claim's state in some words."""
    if claim.metadata.deletion_timestamp:
        return "is being deleted"
    if claim.status.allocation is None:
        return "is not allocated"
    if not claim.status.reserved_for:
        return "is allocated, and no pod uses it"
    return f"is used by {listed((entry.name for entry in claim.status.reserved_for), 3)}"


def _statements(cluster: ClusterState, claim: ResourceClaim) -> Iterator[Statement]:
    subject = _about(claim)
    yield done(subject, "was created", time=claim.metadata.creation_timestamp or "")
    if claim.status.allocation is not None:
        yield from requirements(cluster, claim)
        yield from progress(cluster, claim)
        yield from _users(cluster, claim)
        return
    users = [pod for pod in cluster.pods if any(name == claim.metadata.name for _, name in pod.claim_names())]
    pods = [pod for pod in users if pod.metadata.namespace == claim.metadata.namespace]
    names = listed(pod.metadata.name for pod in pods)
    if pods and all(pod.has_ended for pod in pods):
        yield done(subject, f"named by pods {names}, which have ended: Kubernetes has released its devices")
        return
    yield from requirements(cluster, claim)
    yield from placement.answer(cluster, placement.Question(about=subject, claims=(claim,), excluded={}))
    yield fact(subject, f"named by pods {names}" if pods else "no pod names it: nothing is allocated before")


def _users(cluster: ClusterState, claim: ResourceClaim) -> Iterator[Statement]:
    """The pods that use an allocated claim, and whether one waits for its devices."""
    is_reported = any(status.driver == DRIVER for status in claim.status.devices)
    for user in claim.status.reserved_for:
        pod = cluster.pod(claim.metadata.namespace, user.name) if user.resource == "pods" else None
        if pod is None:
            yield fact(_about(claim), f"reserved for {user.resource} {user.name}")
        elif pod.is_waiting and not is_reported:
            text = f"{pod.called} does not run, and no driver has reported on the claim's devices"
            next_step = f"netdra why pod {pod.metadata.namespace}/{pod.metadata.name}"
            yield wrong(_about(claim), text, next_step, reason="NotReported", code="ND5003")
        else:
            state_of_pod = "runs" if pod.is_running else "has ended" if pod.has_ended else "does not run"
            yield fact(_about(claim), f"{pod.called} {state_of_pod}")


def requirements(cluster: ClusterState, claim: ResourceClaim, *, holds_back: bool = True) -> Iterator[Statement]:
    """The errors in the classes and topologies that a claim needs.

    Args:
        cluster: the objects.
        holds_back: whether the claim still needs them.
    """
    wanted = device_claim(claim)[0]
    named = dict.fromkeys(choice.device_class_name for request in wanted.requests for choice in choices(request))
    present = {entry.metadata.name for entry in cluster.classes}
    for name in named if cluster.could_read("deviceclasses") and holds_back else ():
        if name not in present:
            yield _unknown_class(cluster, claim, name)
    for topology in cluster.known.asked(claim):
        if claim.status.allocation is None or topology.status is not None:
            yield from topologies.readiness(topology, cluster.world, holds_back=holds_back)


def _unknown_class(cluster: ClusterState, claim: ResourceClaim, name: str) -> Statement:
    of = [topology for topology in cluster.topologies if name.startswith(f"{topology.name}-")]
    text = f'DeviceClass "{name}" of the claim does not exist'
    if network := network_of_class(name):
        if any(entry.name == network for entry in cluster.networks):
            text += (
                "; netdra's controller makes it only with the feature gates DRAConsumableCapacity and DRADeviceTaints"
            )
            next_step = "netdra doctor --only cluster; without these gates, remove the request from the claim"
        else:
            text += f'; PodNetwork "{network}" does not exist'
            there = [entry.name for entry in cluster.networks]
            meant = closest(network, there)
            classes = listed(map(network_class, there))
            next_step = f"create it, or request another PodNetwork's DeviceClass: {classes}" if there else "create it"
            next_step = f'did you mean "{network_class(meant)}"?' if meant else next_step
    elif of:
        topology = max(of, key=lambda entry: len(entry.name))
        steps = [f"{topology.name}-{step.name}" for step in topology.spec.steps if step.is_root]
        is_step = name in steps
        text += f'; NetworkTopology "{topology.name}" ' + ("is not compiled" if is_step else "has no such root step")
        next_step = f"read its conditions: netdra why topology {topology.name}" if is_step else hint(name, steps)
    else:
        text += ", and no NetworkTopology would make it"
        next_step = hint(name, (entry.metadata.name for entry in cluster.classes), "DeviceClasses:")
        next_step = next_step or "create the NetworkTopology of which the class is made"
    return wrong(_about(claim), text, next_step, reason="UnknownDeviceClass", code="ND5004")


def progress(cluster: ClusterState, claim: ResourceClaim, pod: PlacedPod | None = None) -> Iterator[Statement]:
    """The progress of an allocated claim.

    Args:
        cluster: the objects.
        claim: the claim, allocated.
        pod: the pod whose story it is; None for all pods of the claim.
    """
    allocation = claim.status.allocation
    assert allocation is not None
    results = [result for result in allocation.devices.results if not result.pod_network]
    where = listed(dict.fromkeys(_node(cluster, claim, result) for result in results), 3)
    devices = listed((f"{result.request}={result.device}" for result in results), 4)
    text = f"allocated on node {where}: {devices}" if results else "allocated without devices"
    yield done(_about(claim), text, time=allocation.allocation_timestamp or "", reason="Allocated")
    yield from _lost(cluster, claim, results)
    for port in cluster.ports:
        if port.spec.claim.uid == claim.metadata.uid:
            yield from _of_port(port)
    yield from networks.addresses(cluster, claim)
    for status in claim.status.devices:
        if status.driver == DRIVER:
            yield from _of_device(claim, status, pod)


def _node(cluster: ClusterState, claim: ResourceClaim, result: DeviceRequestAllocationResult) -> str:
    """The node of an allocated device, which may not be published any more."""
    found = cluster.devices.get((result.pool, result.device))
    if found is not None:
        return found.node
    selector = claim.status.allocation.node_selector if claim.status.allocation is not None else None
    return selected_node(selector) or result.pool.partition("/")[0]


def _lost(
    cluster: ClusterState, claim: ResourceClaim, results: Sequence[DeviceRequestAllocationResult]
) -> Iterator[Statement]:
    """Allocated devices of netdra that are not published any more, or tainted."""
    if not cluster.could_read("resourceslices"):
        return
    for result in results:
        if not result.is_attachable:
            continue
        found = cluster.devices.get((result.pool, result.device))
        if found is None:
            text = f'device "{result.device}" of pool "{result.pool}" is allocated, but not published'
            yield wrong(
                _about(claim),
                text,
                f"netdra why device {_node(cluster, claim, result)}/{result.device}",
                severity="warning",
                reason="DeviceGone",
                code="ND5007",
            )
        for taint in found.device.blocking_taints if found is not None else ():
            value = f"={taint.value}" if taint.value else ""
            yield wrong(
                _about(claim),
                f'device "{result.device}" has the taint {taint.key}{value}:{taint.effect}',
                f"netdra why device {_node(cluster, claim, result)}/{result.device}",
                severity="warning",
                reason="DeviceTainted",
                time=taint.time_added or "",
                code="ND5008",
            )


def _of_port(port: NeutronPort) -> Iterator[Statement]:
    about = f"NeutronPort {port.metadata.namespace}/{port.name}"
    bound = port.bound
    if bound is None:
        text = (
            f'the port of device "{port.spec.device}" has no Bound condition: the controller has not asked for it yet'
        )
        next_step = "check that netdra's controller runs with neutron.cloudsSecret: netdra doctor"
        yield wrong(about, text, next_step, severity="warning", reason="NotAsked", code="ND5009")
        return
    if bound.status != "True":
        hint = port.next_step
        cause = without_hint(bound.message, hint)
        text = f'the port of device "{port.spec.device}" is not Bound in Neutron: {bound.reason}: {cause}'
        next_step = hint or 'see "When a port is not Bound" in docs/neutron.md'
        yield wrong(about, text, next_step, reason=bound.reason, time=bound.last_transition_time, code="ND5010")
        return
    yield done(about, f"Bound: {bound.message}", reason=bound.reason, time=bound.last_transition_time)
    for condition in (port.current, port.enforced):
        if condition is not None and condition.status == "False":
            yield wrong(
                about,
                condition.message,
                "create the pod again to apply the port's settings",
                severity="warning",
                reason=condition.reason,
                time=condition.last_transition_time,
                code="ND5011",
            )


def _of_device(claim: ResourceClaim, status: AllocatedDeviceStatus, pod: PlacedPod | None) -> Iterator[Statement]:
    """The statements that the node's driver reports about a device."""
    about = f'{_about(claim)}, device "{status.device}"'
    for condition in status.conditions or ():
        if not isinstance(condition, Mapping):
            continue
        time, reason = str(condition.get("lastTransitionTime", "")), str(condition.get("reason", ""))
        message, holds = str(condition.get("message", "")), condition.get("status") == "True"
        if condition.get("type") == "Ready" and holds:
            yield done(about, _attached(status), reason=reason, time=time, details=_steps(status.data, pod))
        elif not holds:
            what = "is not prepared" if reason == "NotPrepared" else "is not attached"
            what = what if condition.get("type") == "Ready" else f"is not {condition.get('type')}"
            cause, *others = message.splitlines() or [""]
            hint = _hint(status.data) if condition.get("type") == "Ready" else ""
            text = f'device "{status.device}" {what}: {without_hint(cause, hint)}'
            yield wrong(
                about, text, hint or _NEXT_OF.get(reason, ""), reason=reason, time=time, details=others, code="ND5012"
            )


def _hint(data: Any) -> str:
    """The next step that the node's driver reports beside the condition `Ready`; "" if none."""
    step = data.get("nextStep") if isinstance(data, Mapping) else None
    return step if isinstance(step, str) else ""


def _attached(status: AllocatedDeviceStatus) -> str:
    data = status.network_data
    if data is None:
        return "is attached"
    addresses = f" with {listed(data.ips, 4)}" if data.ips else ""
    mac = f", MAC {data.hardware_address}" if data.hardware_address else ""
    return f"is attached as {data.interface_name or 'a device without an interface'}{addresses}{mac}"


def _steps(data: Any, pod: PlacedPod | None) -> Iterator[str]:
    """The steps that ran in a pod, in their order."""
    pods = data.get("pods") if isinstance(data, Mapping) else None
    for entry in pods if isinstance(pods, list) else ():
        if not isinstance(entry, Mapping) or (pod is not None and entry.get("uid") != pod.metadata.uid):
            continue
        steps = entry.get("steps")
        for step in steps if isinstance(steps, list) else ():
            if isinstance(step, Mapping) and step.get("step"):
                interface = f" → {step['interface']}" if step.get("interface") else ""
                yield f"step {step['step']} ({step.get('type', '')}){interface}{_addresses(step.get('result'))}"


def _addresses(result: Any) -> str:
    ips = result.get("ips") if isinstance(result, Mapping) else None
    found = [str(ip.get("address", "")) for ip in ips if isinstance(ip, Mapping)] if isinstance(ips, list) else []
    return f" {listed(found, 4)}" if found else ""


def _about(claim: ResourceClaim) -> str:
    return f"ResourceClaim {claim.metadata.namespace}/{claim.metadata.name}"
