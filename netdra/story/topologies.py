"""The story of a NetworkTopology: compiled, its DeviceClasses, its plugins on nodes, its devices, its claims. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from netdra.cluster.objects import ClusterState
from netdra.model.errors import without_hint
from netdra.model.names import TOPOLOGY_LABEL
from netdra.model.suggestions import hint, listed
from netdra.model.topology import NetworkTopology
from netdra.review.objects import review
from netdra.review.world import World
from netdra.story import shortage
from netdra.story.statement import Statement, Story, absent, done, fact, story_of, wrong
from netdra.story.usage import ClassUse, class_uses
from netdra.topology.classes import class_name, topology_label


def topology_story(cluster: ClusterState, name: str) -> Story:
    """The statements about a topology and its claims; a missing or unread topology is one error."""
    subject = f"NetworkTopology {name}"
    topology = cluster.topology(name)
    if topology is None:
        unread = cluster.unread.get("networktopologies", "")
        text = unread or f'NetworkTopology "{name}" does not exist'
        next_step = hint(name, (entry.name for entry in cluster.topologies), "NetworkTopologies:")
        return absent(subject, unread, wrong(subject, text, next_step, code="ND5054"))
    return story_of(subject, _state(topology), _statements(cluster, topology), cluster.unread.values())


def _state(topology: NetworkTopology) -> str:
    conditions = topology.status.conditions if topology.status is not None else ()
    failing = next((condition for condition in conditions if condition.status == "False"), None)
    if failing is not None:
        return f"is not {failing.type} ({failing.reason})"
    return "is Ready" if conditions else "is not compiled yet"


def _statements(cluster: ClusterState, topology: NetworkTopology) -> Iterator[Statement]:
    about = f"NetworkTopology {topology.name}"
    for condition in topology.status.conditions if topology.status is not None else ():
        if condition.status == "True":
            text = f"{condition.type}: {condition.message}"
            yield done(about, text, reason=condition.reason, time=condition.last_transition_time)
    yield from readiness(topology, cluster.world)
    yield from _classes(cluster, topology)
    yield from _devices(cluster, topology)
    nodes = [report.name for report in cluster.node_networks]
    yield from (_warning(statement) for statement in shortage.missing_plugins(cluster, [topology], nodes))
    yield from _usage(cluster, topology)


def readiness(topology: NetworkTopology, world: World, *, holds_back: bool = True) -> Iterator[Statement]:
    """The conditions of a topology that do not hold, and warnings about frames that its pods may lose."""
    about = f"NetworkTopology {topology.name}"
    conditions = topology.status.conditions if topology.status is not None else ()
    if not conditions:
        text = f'NetworkTopology "{topology.name}" has no status: netdra\'s controller has not compiled it'
        yield wrong(
            about,
            text,
            "check that netdra's controller runs: netdra doctor",
            severity="warning",
            reason="NoStatus",
            code="ND5005",
        )
    for condition in conditions:
        if condition.status == "False":
            next_step = _TOPOLOGY_STEPS.get(condition.reason, "correct what the text names")
            message = without_hint(condition.message, next_step)
            yield wrong(
                about,
                f'NetworkTopology "{topology.name}" is not {condition.type}: {message}',
                next_step,
                severity="error" if holds_back and condition.reason != "Pending" else "warning",
                reason=condition.reason,
                time=condition.last_transition_time,
                code="ND5006",
            )
    for finding in review(topology, world).warnings:
        if finding.rule:
            yield wrong(about, finding.what, finding.hint, severity="warning", reason=finding.rule, code=finding.code)


_TOPOLOGY_STEPS: Mapping[str, str] = {  # a message may end with its step
    "PluginNotAllowed": "allow the plugin on the nodes (chart value node.allowPlugins), or use another step type",
    "Unsound": "correct the topology: netdra validate --cluster",
    "ForeignDeviceClass": "delete it, or rename the step",
    "Refused": "correct what the API server rejects",
    "WriteUndone": "Stop the other client, or remove the object that netdra makes it from",
    "Pending": "wait: the controller writes the DeviceClasses",
    "Deleting": "end the claims that use it, or use another topology",
}


def _warning(statement: Statement) -> Statement:
    """The same as a warning: the plugin may be meant for other nodes."""
    return msgspec.structs.replace(statement, severity="warning", details=())


def _classes(cluster: ClusterState, topology: NetworkTopology) -> Iterator[Statement]:
    if not cluster.could_read("deviceclasses"):
        return
    label = topology_label(topology.name)
    present = {entry.metadata.name for entry in cluster.classes if entry.metadata.labels.get(TOPOLOGY_LABEL) == label}
    for step in topology.spec.steps:
        name = class_name(topology.name, step.name)
        if step.is_root and name not in present:
            text = f'DeviceClass "{name}" of step "{step.name}" does not exist'
            next_step = "check that netdra's controller runs: netdra doctor"
            yield wrong(f"NetworkTopology {topology.name}", text, next_step, reason="NoDeviceClass", code="ND5055")


def _devices(cluster: ClusterState, topology: NetworkTopology) -> Iterator[Statement]:
    """The devices of each root step."""
    if not cluster.could_read("resourceslices", "deviceclasses"):
        return
    names = [class_name(topology.name, step.name) for step in topology.spec.steps if step.is_root]
    for use in class_uses(cluster, names):
        about, text = f"DeviceClass {use.device_class}", _counted(use)
        if use.devices:
            yield done(about, text)
        else:
            next_step = "offer such interfaces by a DeviceExposurePolicy, or change the step's selector"
            yield wrong(about, text, next_step, reason="NoDevice", code="ND5056")


def _counted(use: ClassUse) -> str:
    if use.problem:
        return use.problem
    if not use.devices:
        return f'no device of the cluster matches DeviceClass "{use.device_class}"'
    devices, nodes = f"device{'s' * (use.devices != 1)}", f"node{'s' * (use.nodes != 1)}"
    return f"{use.devices} {devices} on {use.nodes} {nodes}, {use.free} free"


def _usage(cluster: ClusterState, topology: NetworkTopology) -> Iterator[Statement]:
    usage = next((entry for entry in cluster.usages if entry.metadata.name == topology.name), None)
    if usage is None or usage.status is None:
        return
    about, status = f"NetworkTopology {topology.name}", usage.status
    if status.users:
        yield fact(about, f"used by {status.users} claim{'s' * (status.users != 1)}: {listed(status.used_by, 4)}")
    for condition in status.conditions:
        if (condition.type, condition.status) == ("Degraded", "True"):
            failing = status.failing_claims.claims
            next_step = f"netdra why claim {failing[0]}" if failing else "netdra why --all-namespaces"
            time = condition.last_transition_time
            yield wrong(
                about, f"Degraded: {condition.message}", next_step, reason=condition.reason, time=time, code="ND5057"
            )
