"""Events report problems to users when they begin and when they end, and never twice."""

from __future__ import annotations

import pytest

from netdra.controller.writing import claim_references, drift, notices
from netdra.kube.events import ObjectReference
from netdra.model.claim import ResourceClaimConsumerReference
from netdra.model.meta import Condition, ObjectMeta, OwnerReference

NET = ObjectReference(api_version="networking.dra.io/v1alpha1", kind="NetworkTopology", name="net")
READY = Condition(type="Ready", status="True", reason="DeviceClassesReady", message="fine", observed_generation=1)
FOREIGN = Condition(type="Ready", status="False", reason="ForeignDeviceClass", message="x", observed_generation=1)
PENDING = Condition(type="Ready", status="False", reason="Pending", observed_generation=1)
DEGRADED = Condition(type="Degraded", status="True", reason="FailsOnNodes", message="1 node", observed_generation=1)


def told(before: Condition | None, after: Condition) -> list[tuple[str, str, str, str]]:
    found = notices(NET, (before,) if before else (), (after,))
    return [(each.type, each.reason, each.action, each.note) for each in found]


@pytest.mark.parametrize("before", [None, READY, PENDING], ids=["nothing", "ready", "pending"])
def test_a_new_problem_condition_emits_a_warning_event(before: Condition | None) -> None:
    assert told(before, FOREIGN) == [("Warning", "ForeignDeviceClass", "WriteDeviceClasses", "x")]


def test_a_resolved_problem_emits_a_normal_event() -> None:
    assert told(FOREIGN, READY) == [("Normal", "DeviceClassesReady", "WriteDeviceClasses", "fine")]


@pytest.mark.parametrize(
    ("before", "after"), [(None, READY), (None, PENDING), (PENDING, READY), (READY, READY), (FOREIGN, FOREIGN)]
)
def test_healthy_pending_and_unchanged_conditions_emit_no_events(before: Condition | None, after: Condition) -> None:
    assert told(before, after) == []


def test_a_changed_message_emits_an_event_only_if_the_generation_changed_too() -> None:
    more = Condition(type="Degraded", status="True", reason="FailsOnNodes", message="2 nodes", observed_generation=1)
    assert told(DEGRADED, more) == []
    changed = Condition(type="Degraded", status="True", reason="FailsOnNodes", message="2 nodes", observed_generation=2)
    assert told(DEGRADED, changed) == [("Warning", "FailsOnNodes", "Expose", "2 nodes")]


def test_failing_claims_emit_one_event_when_they_begin_and_one_when_they_end() -> None:
    failing = Condition(type="Degraded", status="True", reason="ClaimsFailed", message="1 claim", observed_generation=1)
    more = Condition(type="Degraded", status="True", reason="ClaimsFailed", message="9 claims", observed_generation=1)
    well = Condition(type="Degraded", status="False", reason="NoFailures", message="none", observed_generation=1)
    assert told(None, failing) == [("Warning", "ClaimsFailed", "Attach", "1 claim")]
    assert told(failing, more) == []
    assert told(more, well) == [("Normal", "NoFailures", "Attach", "none")]
    assert told(None, well) == []


def test_drift_names_the_classes() -> None:
    assert '"net-a", "net-b" was changed' in drift(NET, ["net-a", "net-b"]).note


def test_an_event_of_a_claim_is_also_one_of_its_pods() -> None:
    owners = (OwnerReference(api_version="v1", kind="Pod", name="owner", uid="u1", controller=True),)
    users = (
        ResourceClaimConsumerReference(resource="pods", name="user", uid="u2"),
        ResourceClaimConsumerReference(resource="podgroups", name="group", uid="u3", api_group="scheduling.k8s.io"),
    )
    of_template, named = (
        ObjectMeta(name="c", namespace="ns", owner_references=owners),
        ObjectMeta(name="c", namespace="ns"),
    )

    assert [(entry.kind, entry.name) for entry in claim_references(of_template, users)][1:] == [("Pod", "owner")]
    assert [(entry.kind, entry.name) for entry in claim_references(named, users)][1:] == [("Pod", "user")]
    assert [(entry.kind, entry.name) for entry in claim_references(named)] == [("ResourceClaim", "c")]
