"""The status of a DeviceExposurePolicy: whether it can be used, what it comes to on all nodes, what fails. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from netdra.controller.conditions import Said, conditions
from netdra.model.meta import MAX_REPORTED
from netdra.model.node_network import PolicyAtNode
from netdra.model.policy import (
    DeviceExposurePolicy,
    DeviceExposurePolicyStatus,
    Exposure,
    PolicyProblem,
)

Reports = Iterable[tuple[str, PolicyAtNode]]
"""Of one policy: the node, and what it says."""


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
    found = sorted(reports, key=lambda entry: entry[0])
    problems = _problems(found)
    before = policy.status or DeviceExposurePolicyStatus()
    generation = policy.metadata.generation
    said = (
        _accepted(wrong),
        _conflicting(policy, policies),
        _degraded(problems, found, generation),
        _overlapping(found),
    )
    return DeviceExposurePolicyStatus(
        observed_generation=generation,
        nodes=len(found),
        devices=sum(each.report.devices for _, each in found),
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


def _problems(reports: Reports) -> tuple[PolicyProblem, ...]:
    """What failed, each message once: those of most nodes first, then of most interfaces."""
    seen: dict[str, PolicyProblem] = {}
    for node, each in reports:
        for problem in each.problems:
            known = seen.get(problem.message, PolicyProblem(message=problem.message, node=node))
            seen[problem.message] = msgspec.structs.replace(
                known, nodes=known.nodes + 1, interfaces=known.interfaces + problem.interfaces
            )
    return tuple(sorted(seen.values(), key=lambda each: (-each.nodes, -each.interfaces, each.message)))


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


def _degraded(problems: tuple[PolicyProblem, ...], reports: Sequence[tuple[str, PolicyAtNode]], now: int) -> Said:
    behind = sum(each.report.generation < now for _, each in reports)
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
    for _, each in reports:
        taken.update(each.report.outranked)
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
