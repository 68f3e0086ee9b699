"""The story of a device of a node: its interface, its policy, its taints, the claims and pods that have it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from netdra.cluster.objects import ClusterState, DeviceInSlice
from netdra.model.claim import ResourceClaim
from netdra.model.names import DRIVER, UNHEALTHY
from netdra.model.node_network import DeviceFault, InterfaceGroup
from netdra.model.resource import DeviceTaint
from netdra.model.suggestions import hint, listed
from netdra.slices.allocator import claim_key
from netdra.story import claims as of_claims
from netdra.story.nodes import driver_problems
from netdra.story.statement import Statement, Story, done, fact, story_of, wrong

_SHOWN = ("type", "ifName", "pciAddress", "pfName", "linkSpeed", "operState", "numaNode", "physnet", "supportedCNIs")
_TAINTS = {
    f"{DRIVER}/link-down": "connect the link or its switch port",
    f"{DRIVER}/gone": "restore the interface, or end the pod that still has the device",
    f"{DRIVER}/trouble": "follow the reason that the taint names",
    f"{DRIVER}/withdrawn": "let a policy offer it again, or end the pod that still has it",
}
_REPAIR = "check the cable, the transceiver and the switch's port, or correct the threshold: docs/health.md"


def device_story(cluster: ClusterState, node: str, name: str) -> Story:
    """The story of a device, or of an interface that is not a device."""
    subject = f"Device {node}/{name}"
    found = next((entry for entry in cluster.devices.values() if (entry.node, entry.device.name) == (node, name)), None)
    unread = cluster.unread.values()
    if found is not None:
        return story_of(subject, _state(cluster, found), _statements(cluster, found), unread)
    if not cluster.could_read("resourceslices"):
        return story_of(subject, "cannot be read", [wrong(subject, cluster.unread["resourceslices"], code="ND5013")])
    return story_of(subject, "is not published", _unpublished(cluster, node, name), unread)


def _holders(cluster: ClusterState, found: DeviceInSlice) -> tuple[ResourceClaim, ...]:
    return cluster.holders.get((found.pool, found.device.name), ())


def _state(cluster: ClusterState, found: DeviceInSlice) -> str:
    holders = _holders(cluster, found)
    if holders:
        return f"is allocated to {listed(map(claim_key, holders), 3)}"
    return "is published and free" if cluster.could_read("resourceclaims") else "is published"


def _statements(cluster: ClusterState, found: DeviceInSlice) -> Iterator[Statement]:
    about = f"Device {found.node}/{found.device.name}"
    facts = ((name, found.attribute(name)) for name in _SHOWN)
    shown = ", ".join(f"{name}={str(value).strip(',')}" for name, value in facts if value not in (None, "", -1, 0))
    yield done(about, f"published in pool {found.pool}: {shown}", details=_capacity(found))
    yield from _policy(cluster, found, about)
    for taint in found.device.blocking_taints:
        value = f"={taint.value}" if taint.value else ""
        text = f"the taint {taint.key}{value}:{taint.effect} keeps claims without a toleration off the device"
        if taint.key == UNHEALTHY and _faults(cluster, found):
            continue
        step = _TAINTS.get(taint.key) or _rule(cluster, found, taint) or taint_step(taint.key)
        yield wrong(about, text, step, reason="Tainted", time=taint.time_added or "", code="ND5014")
    yield from _unhealthy(cluster, found, about)
    for claim in _holders(cluster, found):
        pods = listed((entry.name for entry in claim.status.reserved_for), 3) or "no pod"
        yield fact(about, f"allocated to ResourceClaim {claim_key(claim)}, used by {pods}")
        yield from (entry for entry in of_claims.progress(cluster, claim) if found.device.name in entry.object)


def taint_step(key: str) -> str:
    """The next step for a device's taint."""
    return _TAINTS.get(key, "remove the taint, or tolerate it")


def _faults(cluster: ClusterState, found: DeviceInSlice) -> tuple[DeviceFault, ...]:
    """The faults of a device that its node reports."""
    report = cluster.report(found.node)
    faults = report.status.faults if report is not None and report.status is not None else ()
    return tuple(fault for fault in faults if (fault.pool, fault.device) == (found.pool, found.device.name))


def _unhealthy(cluster: ClusterState, found: DeviceInSlice, about: str) -> Iterator[Statement]:
    """The faults of a device, and whether it is tainted for them."""
    tainted = any(taint.key == UNHEALTHY for taint in found.device.blocking_taints)
    for fault in _faults(cluster, found):
        wanted = fault.effect != "Report"
        taint = f"tainted with {fault.effect}" if tainted and wanted else ""
        beyond = "not tainted: too many devices are faulty at this time (event HealthCapReached)" if wanted else ""
        effect = taint or beyond or "only reported"
        yield wrong(about, f"{fault.text}; {effect}", _REPAIR, reason="Faulty", time=fault.since, code="ND5015")


def _capacity(found: DeviceInSlice) -> Iterator[str]:
    for name, capacity in found.device.capacity.items():
        yield f"capacity {name.removeprefix(f'{DRIVER}/')}: {capacity.value}"


def _rule(cluster: ClusterState, found: DeviceInSlice, taint: DeviceTaint) -> str:
    rules = (rule for rule in cluster.taint_rules if rule.applies_to(DRIVER, found.pool, found.device.name))
    rule = next((rule for rule in rules if rule.spec.taint == taint), None)
    return f'DeviceTaintRule "{rule.metadata.name}" sets it: remove the rule, or tolerate the taint' if rule else ""


def _groups(cluster: ClusterState, node: str) -> tuple[InterfaceGroup, ...]:
    report = cluster.report(node)
    return report.status.interfaces if report is not None and report.status is not None else ()


def _policy(cluster: ClusterState, found: DeviceInSlice, about: str) -> Iterator[Statement]:
    for group in _groups(cluster, found.node):
        for name, device in group.published():
            if name == found.device.name and device.policy:
                yield done(about, f'offered by DeviceExposurePolicy "{device.policy}"')


def _unpublished(cluster: ClusterState, node: str, name: str) -> Iterator[Statement]:
    about = f"Device {node}/{name}"
    if cluster.could_read("nodes") and cluster.node(node) is None:
        nodes = [entry.metadata.name for entry in cluster.nodes]
        yield wrong(about, f'node "{node}" does not exist', hint(node, nodes, "nodes:"), reason="NoNode", code="ND5016")
        return
    hidden = next((group for group in _groups(cluster, node) if group.has(name)), None)
    if hidden is not None:
        devices = listed(device.called(name) for device in hidden.devices)
        text = f'interface "{name}" is published as {devices}' if devices else f'interface "{name}" is hidden'
        text += f": {hidden.reason}" if hidden.reason else ""
        yield wrong(
            about,
            text,
            "change the policies: netdra plan --cluster --diff shows the result",
            reason="Hidden",
            code="ND5017",
        )
        return
    yield from driver_problems(cluster, node)
    names = [entry.device.name for entry in cluster.devices.values() if entry.node == node]
    text = f'node "{node}" has no device and no interface "{name}"'
    yield wrong(about, text, hint(name, names, "its devices:"), reason="NoDevice", code="ND5018")
