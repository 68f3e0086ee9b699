"""The status of each kind as it should be: what holds now, with the time at which it last became different. Pure.

`netdra.controller.controller` calls one `of_…` function a kind, and writes what differs. Conditions follow
k8s.io/apimachinery's meta.SetStatusCondition: the time changes with `status` only, so that saying the same again is no
change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from netdra.controller.classes import Changes
from netdra.model.custom_device import CustomDevice, CustomDeviceStatus
from netdra.model.meta import MAX_REPORTED, Condition, time_text
from netdra.model.node_network import CustomDeviceReport, PolicyAtNode
from netdra.model.policy import DeviceExposurePolicy, DeviceExposurePolicyStatus, Exposure, PolicyProblem
from netdra.model.schema import CNIPluginSchema, CNIPluginSchemaStatus
from netdra.model.topology import NetworkTopology, NetworkTopologyStatus
from netdra.topology import contract, shipped

MAX_MESSAGE = 4096

_PENDING = "Pending"
_WRONG = frozenset({"ForeignDeviceClass", "Refused", "Unsound"})

PolicyReports = Iterable[tuple[str, PolicyAtNode]]
"""Of one policy: the node, and what it says."""

DeviceReports = Iterable[tuple[str, CustomDeviceReport]]
"""Of one CustomDevice: the node, and what it says."""


class Said(msgspec.Struct, frozen=True):
    """One condition as it is to be; `reason` is one word for programs."""

    type: str
    holds: bool
    reason: str
    message: str = ""


def conditions(
    said: Iterable[Said], before: Sequence[Condition], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """The conditions of a status.

    Args:
        said: what holds.
        before: the status as it stands.
        generation: that of the object which was looked at.
        now: the time, with its zone.
    """
    by_type = {condition.type: condition for condition in before}
    return tuple(_condition(condition, by_type.get(condition.type), generation, now) for condition in said)


def _condition(said: Said, before: Condition | None, generation: int, now: datetime) -> Condition:
    made = Condition(
        type=said.type,
        status="True" if said.holds else "False",
        reason=said.reason,
        message=said.message[:MAX_MESSAGE],
        last_transition_time=time_text(now),
        observed_generation=generation,
    )
    if before is not None and before.status == made.status:
        return replace(made, last_transition_time=before.last_transition_time)
    return made


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of a topology, after its classes were written.

    Attributes:
        findings: what is wrong with it.
        changes: what was to be done with its classes.
        problem: what the API server refused of that, or "".
        users: the claims that use it.
    """

    findings: Sequence[str] = ()
    changes: Changes = Changes()
    problem: str = ""
    users: tuple[str, ...] = ()


def of_topology(topology: NetworkTopology, seen: Seen, now: datetime) -> NetworkTopologyStatus:
    """The status as it should be."""
    before = topology.status or NetworkTopologyStatus()
    generation = topology.metadata.generation
    said = (_compiled(seen), _ready(topology, seen), _in_use(seen))
    return NetworkTopologyStatus(
        observed_generation=generation,
        conditions=conditions(said, before.conditions, generation, now),
        device_classes=seen.changes.names if not seen.findings else before.device_classes,
        users=len(seen.users),
        used_by=seen.users[:MAX_REPORTED],
    )


def is_ready(topology: NetworkTopology) -> bool:
    """Whether its classes were said to be as they should be, for the spec that it has now."""
    before = topology.status or NetworkTopologyStatus()
    current = before.observed_generation == topology.metadata.generation
    return current and any(condition.type == "Ready" and condition.status == "True" for condition in before.conditions)


def is_interim(topology: NetworkTopology, seen: Seen) -> bool:
    """Whether what was wrong is over and its classes are only just being written: the next look has more to say.

    Said now, it would hide from the events that what users were warned of has come to its end.
    """
    before = topology.status or NetworkTopologyStatus()
    was_wrong = any(condition.type == "Ready" and condition.reason in _WRONG for condition in before.conditions)
    return was_wrong and _ready(topology, seen).reason == _PENDING


def _compiled(seen: Seen) -> Said:
    if seen.findings:
        return Said("Compiled", holds=False, reason="Unsound", message="\n".join(seen.findings))
    return Said("Compiled", holds=True, reason="Sound", message="the graph and every step's config are sound")


def _ready(topology: NetworkTopology, seen: Seen) -> Said:
    if topology.metadata.deletion_timestamp:
        users = len(seen.users)
        why = f"deletion waits for {users} user{'s' * (users != 1)}; new claims cannot be allocated"
        return Said("Ready", holds=False, reason="Deleting", message=why)
    if seen.findings:
        why = "DeviceClasses are left as they are until the topology is sound"
        return Said("Ready", holds=False, reason="Unsound", message=why)
    if seen.changes.foreign:
        named = ", ".join(f'"{name}"' for name in seen.changes.foreign)
        why = f"DeviceClass {named} is not netdra's and is left as it is; delete it, or rename the step"
        return Said("Ready", holds=False, reason="ForeignDeviceClass", message=why)
    if seen.problem:
        return Said("Ready", holds=False, reason="Refused", message=seen.problem)
    if not seen.changes.done:
        return Said("Ready", holds=False, reason=_PENDING, message="DeviceClasses are being written")
    return Said("Ready", holds=True, reason="DeviceClassesReady", message="every DeviceClass is as it should be")


def _in_use(seen: Seen) -> Said:
    if seen.users:
        why = "claims are allocated through its DeviceClasses; while pods are attached, its steps cannot be changed"
        return Said("InUse", holds=True, reason="Allocated", message=why)
    return Said("InUse", holds=False, reason="NoUsers", message="no claim is allocated through its DeviceClasses")


def of_policy(
    policy: DeviceExposurePolicy,
    policies: Mapping[str, DeviceExposurePolicy],
    wrong: Sequence[str],
    reports: PolicyReports,
    now: datetime,
) -> DeviceExposurePolicyStatus:
    """The status as it should be.

    Args:
        policy: as it is stored.
        policies: all of them, by name.
        wrong: why it cannot be used.
        reports: what nodes say of it.
        now: the time, with its zone.
    """
    ordered = sorted(reports, key=lambda entry: entry[0])
    problems = _problems(ordered)
    before = policy.status or DeviceExposurePolicyStatus()
    generation = policy.metadata.generation
    said = (
        _policy_accepted(wrong),
        _conflicting(policy, policies),
        _degraded(problems, ordered, generation),
        _overlapping(ordered),
    )
    return DeviceExposurePolicyStatus(
        observed_generation=generation,
        nodes=len(ordered),
        devices=sum(node.report.devices for _, node in ordered),
        conditions=conditions(said, before.conditions, generation, now),
        problems=problems[:MAX_REPORTED],
    )


def rivals(policy: DeviceExposurePolicy, policies: Mapping[str, DeviceExposurePolicy]) -> Iterator[str]:
    """Policies that say something else with the same rank of the same devices, so that only the name decides."""
    for name, other in sorted(policies.items()):
        if (
            name != policy.name
            and _subject(other) == _subject(policy)
            and other.spec.action == policy.spec.action == "expose"
        ):
            yield name


def _subject(policy: DeviceExposurePolicy) -> tuple[object, ...]:
    spec = policy.spec
    suffix = (spec.exposure or Exposure()).device_name_suffix
    return spec.selector.cel.strip(), spec.node_selector, spec.priority, suffix


def _problems(reports: PolicyReports) -> tuple[PolicyProblem, ...]:
    """What failed, each message once: those of most nodes first, then of most interfaces."""
    seen: dict[str, PolicyProblem] = {}
    for node, report in reports:
        for problem in report.problems:
            so_far = seen.get(problem.message, PolicyProblem(message=problem.message, node=node))
            seen[problem.message] = msgspec.structs.replace(
                so_far, nodes=so_far.nodes + 1, interfaces=so_far.interfaces + problem.interfaces
            )
    return tuple(sorted(seen.values(), key=lambda problem: (-problem.nodes, -problem.interfaces, problem.message)))


def _policy_accepted(wrong: Sequence[str]) -> Said:
    if wrong:
        return Said("Accepted", holds=False, reason="Invalid", message="\n".join(wrong))
    return Said("Accepted", holds=True, reason="Valid", message="the policy can be used")


def _conflicting(policy: DeviceExposurePolicy, policies: Mapping[str, DeviceExposurePolicy]) -> Said:
    others = tuple(rivals(policy, policies))
    if not others:
        return Said("Conflicting", holds=False, reason="NoConflict", message="no other policy is of its rank")
    winner = min(policy.name, *others)
    named = ", ".join(f'"{name}"' for name in others)
    why = f'{named} has the same selector, priority and suffix; "{winner}" alone is used, because its name sorts first'
    return Said("Conflicting", holds=True, reason="SameRank", message=why)


def _degraded(problems: tuple[PolicyProblem, ...], reports: Sequence[tuple[str, PolicyAtNode]], now: int) -> Said:
    behind = sum(report.report.generation < now for _, report in reports)
    waiting = f"; {behind} of {len(reports)} nodes still follow an older generation of it" if behind else ""
    if problems:
        first = problems[0]
        where = f" (on {first.interfaces} interfaces)" if first.interfaces else ""
        why = f"on {first.nodes} nodes, e.g. {first.node}: {first.message}{where}{waiting}"
        return Said("Degraded", holds=True, reason="FailsOnNodes", message=why)
    if not reports:
        return Said(
            "Degraded", holds=False, reason="NoNodes", message="no node has reported that it follows the policy"
        )
    return Said("Degraded", holds=False, reason="NoProblems", message=f"no node reports a problem{waiting}")


def _overlapping(reports: Sequence[tuple[str, PolicyAtNode]]) -> Said:
    """Whether other policies take devices that this one matches: by rank, so it is no mistake by itself."""
    taken: Counter[str] = Counter()
    for _, report in reports:
        taken.update(report.report.outranked)
    if not taken:
        return Said(
            "Overlapping", holds=False, reason="NoOverlap", message="no other policy takes what this one matches"
        )
    first, *others = (
        f'policy "{name}" takes {number} device{"s" if number > 1 else ""} that this one matches'
        for name, number in sorted(taken.items(), key=lambda entry: (-entry[1], entry[0]))
    )
    more = f"; so do {len(others)} others" if len(others) > 1 else f"; {others[0]}" if others else ""
    return Said("Overlapping", holds=True, reason="Outranked", message=first + more)


def of_schema(schema: CNIPluginSchema, schemas: Mapping[str, CNIPluginSchema], now: datetime) -> CNIPluginSchemaStatus:
    """The status as it should be."""
    before = schema.status or CNIPluginSchemaStatus()
    generation = schema.metadata.generation
    said = (_schema_accepted(schema, schemas),)
    return CNIPluginSchemaStatus(
        observed_generation=generation,
        source="netdra" if schema.is_shipped else "own",
        conditions=conditions(said, before.conditions, generation, now),
    )


def _schema_accepted(schema: CNIPluginSchema, schemas: Mapping[str, CNIPluginSchema]) -> Said:
    _, findings = contract.examine(schema)
    if findings:
        why = "\n".join(finding.text for finding in findings)
        return Said("Accepted", holds=False, reason="Contradictory", message=why)
    plugin = schema.spec.plugin
    own = [schema for schema in shipped.own_of(schemas.values()) if schema.spec.plugin == plugin]
    first = min((entry.metadata.name for entry in own if not contract.examine(entry)[1]), default="")
    if schema.is_shipped:
        if first:
            why = f'"{first}" describes plugin "{plugin}" too and counts in its place'
            return Said("Accepted", holds=False, reason="Replaced", message=why)
        return Said("Accepted", holds=True, reason="Shipped", message=f'netdra ships it for plugin "{plugin}"')
    if first != schema.metadata.name:
        why = f'"{first}" describes plugin "{plugin}" too and counts, because its name sorts first; delete one of them'
        return Said("Accepted", holds=False, reason="Duplicate", message=why)
    instead = " in place of the one that netdra ships" if plugin in shipped.names() else ""
    why = f'topologies are held against it for plugin "{plugin}"{instead}'
    return Said("Accepted", holds=True, reason="Valid", message=why)


def of_custom_device(device: CustomDevice, reports: DeviceReports, now: datetime) -> CustomDeviceStatus:
    """The status as it should be."""
    entries = tuple(reports)
    desired = sum(report.desired for _, report in entries)
    applied = sum(report.applied for _, report in entries)
    refusals = _refusals(entries)
    before = device.status or CustomDeviceStatus()
    generation = device.metadata.generation
    said = (_applied(device, desired, applied, refusals),)
    return CustomDeviceStatus(
        observed_generation=generation,
        desired_number=desired,
        applied_number=applied,
        conditions=conditions(said, before.conditions, generation, now),
        refusals=refusals[:MAX_REPORTED],
    )


def _refusals(reports: DeviceReports) -> tuple[str, ...]:
    """Each reason once: those of most nodes first."""
    nodes = Counter(text for _, report in reports for text in dict.fromkeys(report.problems))
    return tuple(sorted(nodes, key=lambda text: (-nodes[text], text)))


def _applied(device: CustomDevice, desired: int, applied: int, refusals: tuple[str, ...]) -> Said:
    if not desired:
        why = f'no node that is selected reports a device "{device.spec.device}"'
        return Said("Applied", holds=False, reason="NoDevice", message=why)
    if applied < desired:
        why = f"{applied} of {desired} devices have it" + (f": {refusals[0]}" if refusals else "")
        return Said("Applied", holds=False, reason="NotEverywhere", message=why)
    return Said("Applied", holds=True, reason="Everywhere", message="every device that is meant has it")
