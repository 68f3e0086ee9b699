"""The story of a DeviceExposurePolicy: accepted, its result on nodes, the problems that nodes report. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from netdra.cluster.objects import ClusterState
from netdra.model.meta import Condition
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.rollout import DeviceExposurePolicyRolloutStatus
from netdra.model.suggestions import hint, listed
from netdra.story.statement import Statement, Story, absent, done, fact, story_of, wrong

_BAD = {"Accepted": "False", "Degraded": "True"}
"""The conditions that report an error, with the status that does."""


def policy_story(cluster: ClusterState, name: str) -> Story:
    """The statements about a policy and its rollout; a missing or unread policy is one error."""
    subject = f"DeviceExposurePolicy {name}"
    policy = next((entry for entry in cluster.policies if entry.name == name), None)
    if policy is None:
        unread = cluster.unread.get("deviceexposurepolicies", "")
        text = unread or f'DeviceExposurePolicy "{name}" does not exist'
        next_step = hint(name, (entry.name for entry in cluster.policies), "DeviceExposurePolicies:")
        return absent(subject, unread, wrong(subject, text, next_step, code="ND5047"))
    statements = tuple(_statements(cluster, policy))
    is_failing = any(statement.severity == "error" for statement in statements)
    return story_of(subject, "fails" if is_failing else "is applied", statements, cluster.unread.values())


def rollout_of(cluster: ClusterState, name: str) -> DeviceExposurePolicyRolloutStatus:
    """The result of a policy on the nodes, as far as it is reported."""
    found = next((entry for entry in cluster.rollouts if entry.metadata.name == name), None)
    return found.status if found is not None and found.status is not None else DeviceExposurePolicyRolloutStatus()


def _statements(cluster: ClusterState, policy: DeviceExposurePolicy) -> Iterator[Statement]:
    about, rollout = f"DeviceExposurePolicy {policy.name}", rollout_of(cluster, policy.name)
    for condition in (*(policy.status.conditions if policy.status is not None else ()), *rollout.conditions):
        yield _of_condition(about, condition, rollout)
    for problem in rollout.problems:
        where = f"{problem.nodes} nodes, e.g. {problem.node}" if problem.nodes > 1 else f"node {problem.node}"
        yield fact(about, f"{where}: {problem.message}")
    yield fact(
        about,
        f"{rollout.devices} devices on {rollout.nodes} nodes; {rollout.updated_nodes} of these use this generation",
    )


def _of_condition(about: str, condition: Condition, rollout: DeviceExposurePolicyRolloutStatus) -> Statement:
    text, time = f"{condition.type}: {condition.message}", condition.last_transition_time
    if _BAD.get(condition.type) == condition.status:
        failing = rollout.failing_claims.claims
        next_step = f"netdra why claim {failing[0]}" if failing else "correct its selector, or its nodeSelector"
        details = [f"fails: {listed(failing, 4)}"] if failing else ()
        return wrong(about, text, next_step, reason=condition.reason, time=time, details=details, code="ND5048")
    if (condition.type, condition.status) == ("Overlapping", "True"):
        return fact(about, text, reason=condition.reason, time=time)
    return done(about, text, reason=condition.reason, time=time)
