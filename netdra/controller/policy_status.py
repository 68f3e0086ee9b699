"""The status of a DeviceExposurePolicy: whether it can be used, what it comes to on all nodes, what fails. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from netdra.controller.conditions import Said, conditions
from netdra.controller.problems import by_message
from netdra.model.meta import MAX_REPORTED
from netdra.model.policy import (
    DeviceExposurePolicy,
    DeviceExposurePolicyStatus,
    Exposure,
    PolicyProblem,
)
from netdra.model.report import PolicyReport

Reports = Iterable[tuple[str, PolicyReport]]
"""Of one policy: the node, and what one of its slices says."""


def status(
    policy: DeviceExposurePolicy,
    policies: Mapping[str, DeviceExposurePolicy],
    wrong: Sequence[str],
    reports: Reports,
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
    found = tuple(reports)
    problems = _problems(found)
    before = policy.status or DeviceExposurePolicyStatus()
    generation = policy.metadata.generation
    said = (_accepted(wrong), _conflicting(policy, policies), _degraded(problems))
    return DeviceExposurePolicyStatus(
        observed_generation=generation,
        nodes=len({node for node, _ in found}),
        devices=sum(report.devices for _, report in found),
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


def _problems(reports: Iterable[tuple[str, PolicyReport]]) -> tuple[PolicyProblem, ...]:
    """What failed, each message once: those of most nodes first."""
    found = by_message((node, report.problems) for node, report in reports)
    return tuple(PolicyProblem(message=message, node=min(nodes), nodes=len(nodes)) for message, nodes in found.items())


def _accepted(wrong: Sequence[str]) -> Said:
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


def _degraded(problems: tuple[PolicyProblem, ...]) -> Said:
    if not problems:
        return Said("Degraded", holds=False, reason="NoProblems", message="no node reports a problem")
    first = problems[0]
    why = f"on {first.nodes} nodes, e.g. {first.node}: {first.message}"
    return Said("Degraded", holds=True, reason="FailsOnNodes", message=why)
