"""The desired status of each kind: its conditions, with the time of their last transition. Pure.

`netdra.controller.controller` calls one `of_…` function a kind, and writes the differences. Status from claims and from
nodes' reports is in a kind of its own, which no node watches (decision D54). Conditions follow
k8s.io/apimachinery's meta.SetStatusCondition: the time changes with `status` only, so that the same condition again
changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from netdra.controller.classes import ClassWrites
from netdra.exposure.ranks import Rivals
from netdra.model.custom_device import CustomDevice
from netdra.model.meta import MAX_REPORTED, Condition, time_text
from netdra.model.node_network import CustomDeviceReport, PolicyAtNode
from netdra.model.policy import DeviceExposurePolicy, DeviceExposurePolicyStatus
from netdra.model.rollout import (
    CustomDeviceRolloutStatus,
    DeviceExposurePolicyRolloutStatus,
    FailingClaims,
    NetworkTopologyUsageStatus,
    PolicyProblem,
)
from netdra.model.schema import CNIPluginSchema, CNIPluginSchemaStatus
from netdra.model.topology import NetworkTopology, NetworkTopologyStatus
from netdra.rules import contract, shipped
from netdra.rules.loosened import loosened

MAX_MESSAGE = 4096

CLAIMS_FAILED = "ClaimsFailed"
_PENDING, _NOT_ALLOWED = "Pending", "PluginNotAllowed"
_WRONG = frozenset({"ForeignDeviceClass", _NOT_ALLOWED, "Refused", "Unsound", "WriteUndone"})

PolicyReports = Iterable[tuple[str, PolicyAtNode]]
"""The reports of one policy, each with its node."""

DeviceReports = Iterable[tuple[str, CustomDeviceReport]]
"""The reports of one CustomDevice, each with its node."""


class Desired(msgspec.Struct, frozen=True):
    """One desired condition; `reason` is one word for programs."""

    type: str
    holds: bool
    reason: str
    message: str = ""


def conditions(
    desired: Iterable[Desired], before: Sequence[Condition], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """The conditions of a status.

    Args:
        before: the status as it stands.
        generation: that of the object which was inspected.
        now: the time, with its zone.
    """
    by_type = {condition.type: condition for condition in before}
    return tuple(_condition(condition, by_type.get(condition.type), generation, now) for condition in desired)


def _condition(desired: Desired, before: Condition | None, generation: int, now: datetime) -> Condition:
    made = Condition(
        type=desired.type,
        status="True" if desired.holds else "False",
        reason=desired.reason,
        message=desired.message[:MAX_MESSAGE],
        last_transition_time=time_text(now),
        observed_generation=generation,
    )
    if before is not None and before.status == made.status:
        return replace(made, last_transition_time=before.last_transition_time)
    return made


class TopologyState(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a topology, after its classes were written.

    Attributes:
        changes: the writes that its classes needed.
        problem: the API server's refusals of these, or "".
        undone: the write that waits because another client undoes it, or "".
        not_allowed: why nodes do not run plugins of it, one text each.
    """

    findings: Sequence[str] = ()
    changes: ClassWrites = ClassWrites()
    problem: str = ""
    undone: str = ""
    not_allowed: Sequence[str] = ()


def of_topology(topology: NetworkTopology, seen: TopologyState, now: datetime) -> NetworkTopologyStatus:
    """The desired status."""
    before = topology.status or NetworkTopologyStatus()
    generation = topology.metadata.generation
    desired = (_compiled(seen), _ready(topology, seen))
    return NetworkTopologyStatus(
        observed_generation=generation,
        conditions=conditions(desired, before.conditions, generation, now),
        device_classes=seen.changes.names if not seen.findings else before.device_classes,
    )


def of_usage(
    topology: NetworkTopology,
    users: Sequence[str],
    failing: FailingClaims,
    before: NetworkTopologyUsageStatus | None,
    now: datetime,
) -> NetworkTopologyUsageStatus:
    """The desired status of a topology's usage.

    Args:
        topology: as it is stored.
        users: the claims that use it, as `<namespace>/<name>`, in order.
        failing: those that fail.
        before: the status as it is stored.
        now: the time, with its zone.
    """
    former = before.conditions if before is not None else ()
    return NetworkTopologyUsageStatus(
        users=len(users),
        used_by=tuple(users[:MAX_REPORTED]),
        failing_claims=failing,
        conditions=conditions((_in_use(users), _usage_degraded(failing)), former, topology.metadata.generation, now),
    )


def is_ready(topology: NetworkTopology) -> bool:
    """Whether the status reports that its classes are as they should be, for the present spec."""
    before = topology.status or NetworkTopologyStatus()
    current = before.observed_generation == topology.metadata.generation
    return current and any(
        condition.type == "Ready" and (condition.status == "True" or condition.reason == _NOT_ALLOWED)
        for condition in before.conditions
    )


def is_interim(topology: NetworkTopology, seen: TopologyState) -> bool:
    """Whether a problem is over and the classes are only just being written: the next look has the final status.

    If this status were written, the end of the problem that users were warned of would get no event.
    """
    before = topology.status or NetworkTopologyStatus()
    was_wrong = any(condition.type == "Ready" and condition.reason in _WRONG for condition in before.conditions)
    return was_wrong and _ready(topology, seen).reason == _PENDING


def _compiled(seen: TopologyState) -> Desired:
    if seen.findings:
        return Desired("Compiled", holds=False, reason="Unsound", message="\n".join(seen.findings))
    return Desired("Compiled", holds=True, reason="Sound", message="the graph and the config of every step are valid")


def _ready(topology: NetworkTopology, seen: TopologyState) -> Desired:
    if topology.metadata.deletion_timestamp:
        # The number would change with each of them, and every node would receive it.
        listed = f"kubectl get networktopologyusage {topology.name}"
        why = f"deletion waits until no claim uses it ({listed}); new claims cannot be allocated"
        return Desired("Ready", holds=False, reason="Deleting", message=why)
    if seen.findings:
        why = "DeviceClasses are not changed until the topology is valid"
        return Desired("Ready", holds=False, reason="Unsound", message=why)
    if seen.changes.foreign:
        named = ", ".join(f'"{name}"' for name in seen.changes.foreign)
        why = f"DeviceClass {named} is not managed by netdra and not changed; delete it, or rename the step"
        return Desired("Ready", holds=False, reason="ForeignDeviceClass", message=why)
    if seen.problem:
        return Desired("Ready", holds=False, reason="Refused", message=seen.problem)
    if seen.undone:
        return Desired("Ready", holds=False, reason="WriteUndone", message=seen.undone)
    if not seen.changes.done:
        return Desired("Ready", holds=False, reason=_PENDING, message="DeviceClasses are being written")
    if seen.not_allowed:
        why = "; ".join(seen.not_allowed)
        return Desired("Ready", holds=False, reason=_NOT_ALLOWED, message=f"nodes reject new claims: {why}")
    return Desired("Ready", holds=True, reason="DeviceClassesReady", message="all DeviceClasses are up to date")


def _in_use(users: Sequence[str]) -> Desired:
    if users:
        why = "claims are allocated through its DeviceClasses; its steps cannot be changed while pods are attached"
        return Desired("InUse", holds=True, reason="Allocated", message=why)
    return Desired("InUse", holds=False, reason="NoUsers", message="no claim is allocated through its DeviceClasses")


def _usage_degraded(failing: FailingClaims) -> Desired:
    if failing.number:
        return Desired("Degraded", holds=True, reason=CLAIMS_FAILED, message=_failures(failing))
    return Desired("Degraded", holds=False, reason="NoFailures", message="no claim that uses the topology fails")


def _failures(failing: FailingClaims) -> str:
    """The number of claims that fail, the nodes, and the last error."""
    subject = f"{failing.number} claims fail" if failing.number > 1 else "1 claim fails"
    more = " and more" if len(failing.nodes) == MAX_REPORTED else ""
    nodes = f"node {failing.nodes[0]}" if len(failing.nodes) == 1 else f"nodes {', '.join(failing.nodes)}{more}"
    where = f" on {nodes}" if failing.nodes else ""
    last = failing.last_error
    return (
        f"{subject}{where}; the last error is of {last.claim}: {last.message}"
        if last is not None
        else f"{subject}{where}"
    )


def of_policy(
    policy: DeviceExposurePolicy, rivals: Rivals, wrong: Sequence[str], now: datetime
) -> DeviceExposurePolicyStatus:
    """The desired status.

    Args:
        policy: as it is stored.
        rivals: the other policies of its rank.
        wrong: why it cannot be used.
        now: the time, with its zone.
    """
    before = policy.status or DeviceExposurePolicyStatus()
    generation = policy.metadata.generation
    desired = (_policy_accepted(wrong), _conflicting(policy, rivals))
    return DeviceExposurePolicyStatus(
        observed_generation=generation, conditions=conditions(desired, before.conditions, generation, now)
    )


def of_policy_rollout(
    policy: DeviceExposurePolicy,
    reports: PolicyReports,
    failing: FailingClaims,
    before: DeviceExposurePolicyRolloutStatus | None,
    now: datetime,
) -> DeviceExposurePolicyRolloutStatus:
    """The desired status of a policy's rollout.

    Args:
        policy: as it is stored.
        reports: the nodes' reports of it.
        failing: the claims of its devices that fail.
        before: the status as it is stored.
        now: the time, with its zone.
    """
    ordered = sorted(reports, key=lambda entry: entry[0])
    problems = _problems(ordered)
    generation = policy.metadata.generation
    updated = sum(node.report.generation >= generation for _, node in ordered)
    desired = (_degraded(problems, failing, len(ordered), len(ordered) - updated), _overlapping(ordered))
    return DeviceExposurePolicyRolloutStatus(
        observed_generation=generation,
        nodes=len(ordered),
        updated_nodes=updated,
        devices=sum(node.report.devices for _, node in ordered),
        conditions=conditions(desired, before.conditions if before is not None else (), generation, now),
        failing_claims=failing,
        problems=problems[:MAX_REPORTED],
    )


def _problems(reports: PolicyReports) -> tuple[PolicyProblem, ...]:
    """The problems, each message once, in the order of the number of nodes and then of interfaces."""
    seen: dict[str, PolicyProblem] = {}
    for node, report in reports:
        for problem in report.problems:
            so_far = seen.get(problem.message, PolicyProblem(message=problem.message, node=node))
            seen[problem.message] = msgspec.structs.replace(
                so_far, nodes=so_far.nodes + 1, interfaces=so_far.interfaces + problem.interfaces
            )
    return tuple(sorted(seen.values(), key=lambda problem: (-problem.nodes, -problem.interfaces, problem.message)))


def _policy_accepted(wrong: Sequence[str]) -> Desired:
    if wrong:
        return Desired("Accepted", holds=False, reason="Invalid", message="\n".join(wrong))
    return Desired("Accepted", holds=True, reason="Valid", message="the policy is valid")


def _conflicting(policy: DeviceExposurePolicy, rivals: Rivals) -> Desired:
    if not rivals.names:
        return Desired(
            "Conflicting",
            holds=False,
            reason="NoConflict",
            message="no other policy has the same selector, priority and suffix",
        )
    named = ", ".join(f'"{name}"' for name in rivals.names)
    subject = f"{named} and more policies have" if rivals.more else f"{named} has"
    winner = min(policy.name, *rivals.names)
    # Of many policies the one that is used is not named: each of them would have to be written when it goes.
    if rivals.more and winner != policy.name:
        use = f"this policy is not used, because {named} sorts before its name"
    else:
        use = f'only "{winner}" is used, because its name sorts first'
    why = f"{subject} the same selector, priority and suffix; {use}"
    return Desired("Conflicting", holds=True, reason="SameRank", message=why)


def _degraded(problems: tuple[PolicyProblem, ...], failing: FailingClaims, nodes: int, behind: int) -> Desired:
    waiting = f"; {behind} of {nodes} nodes still use an older generation of it" if behind else ""
    if problems:
        first = problems[0]
        where = f" (on {first.interfaces} interfaces)" if first.interfaces else ""
        why = f"on {first.nodes} nodes, e.g. {first.node}: {first.message}{where}{waiting}"
        also = f"; {_failures(failing)}" if failing.number else ""
        return Desired("Degraded", holds=True, reason="FailsOnNodes", message=f"{why}{also}")
    if failing.number:
        return Desired("Degraded", holds=True, reason=CLAIMS_FAILED, message=f"{_failures(failing)}{waiting}")
    if not nodes:
        return Desired(
            "Degraded", holds=False, reason="NoNodes", message="no node has reported yet that it uses the policy"
        )
    return Desired(
        "Degraded", holds=False, reason="NoProblems", message=f"no node reports a problem, and no claim fails{waiting}"
    )


def _overlapping(reports: Sequence[tuple[str, PolicyAtNode]]) -> Desired:
    """Whether other policies take devices that this policy matches: by rank, so it is not a mistake by itself."""
    outranked: Counter[str] = Counter()
    for _, report in reports:
        outranked.update(report.report.outranked)
    if not outranked:
        return Desired(
            "Overlapping",
            holds=False,
            reason="NoOverlap",
            message="no other policy takes interfaces that this policy matches",
        )
    first, *others = (
        f'policy "{name}" takes {number} device{("s" if number > 1 else "")} that this policy also matches'
        for name, number in sorted(outranked.items(), key=lambda entry: (-entry[1], entry[0]))
    )
    more = f"; so do {len(others)} others" if len(others) > 1 else f"; {others[0]}" if others else ""
    return Desired("Overlapping", holds=True, reason="Outranked", message=first + more)


def of_schema(schema: CNIPluginSchema, first: str, now: datetime) -> CNIPluginSchemaStatus:
    """The desired status.

    Args:
        schema: as it is stored.
        first: the schema of its plugin that counts, by name.
        now: the time, with its zone.
    """
    before = schema.status or CNIPluginSchemaStatus()
    generation = schema.metadata.generation
    desired = (_schema_accepted(schema, first),)
    return CNIPluginSchemaStatus(
        observed_generation=generation,
        conditions=conditions(desired, before.conditions, generation, now),
    )


def _schema_accepted(schema: CNIPluginSchema, first: str) -> Desired:
    compiled, findings = contract.examine(schema)
    if findings:
        why = "\n".join(finding.text for finding in findings)
        return Desired("Accepted", holds=False, reason="Contradictory", message=why)
    plugin = schema.spec.plugin
    if first != schema.metadata.name:
        why = (
            f'"{first}" also describes plugin "{plugin}" and is used, because its name sorts first; delete one of them'
        )
        return Desired("Accepted", holds=False, reason="Duplicate", message=why)
    why = f'topologies are validated against it for plugin "{plugin}"'
    if plugin in shipped.names():
        why = f"{why}, instead of netdra's built-in schema"
    if looser := loosened(compiled):
        why = f"{why}; {looser}"
    return Desired("Accepted", holds=True, reason="Valid", message=why)


def of_custom_device(
    device: CustomDevice, reports: DeviceReports, before: CustomDeviceRolloutStatus | None, now: datetime
) -> CustomDeviceRolloutStatus:
    """The desired status of a CustomDevice's rollout.

    Args:
        device: as it is stored.
        reports: the nodes' reports of it.
        before: the status as it is stored.
        now: the time, with its zone.
    """
    entries = tuple(reports)
    devices = sum(report.desired for _, report in entries)
    applied = sum(report.applied for _, report in entries)
    refusals = _refusals(entries)
    generation = device.metadata.generation
    desired = (_applied(device, devices, applied, refusals),)
    return CustomDeviceRolloutStatus(
        observed_generation=generation,
        desired_number=devices,
        applied_number=applied,
        conditions=conditions(desired, before.conditions if before is not None else (), generation, now),
        refusals=refusals[:MAX_REPORTED],
    )


def _refusals(reports: DeviceReports) -> tuple[str, ...]:
    """Each reason once, in the order of the number of nodes."""
    nodes = Counter(text for _, report in reports for text in dict.fromkeys(report.problems))
    return tuple(sorted(nodes, key=lambda text: (-nodes[text], text)))


def _applied(device: CustomDevice, desired: int, applied: int, refusals: tuple[str, ...]) -> Desired:
    if not desired:
        why = f'no selected node reports a device "{device.spec.device}"'
        return Desired("Applied", holds=False, reason="NoDevice", message=why)
    if applied < desired:
        why = f"applied to {applied} of {desired} devices" + (f": {refusals[0]}" if refusals else "")
        return Desired("Applied", holds=False, reason="NotEverywhere", message=why)
    return Desired("Applied", holds=True, reason="Everywhere", message="applied to every selected device")
