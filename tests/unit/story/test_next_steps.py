"""The next step of an error is a field on its way from the daemon of a node to `netdra why`: never a line of text."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from netdra.chain.report import AttachError, FailedAttachReport, StepFailure, UndoReport, attach_error
from netdra.cluster.objects import ClusterEvent
from netdra.kube.events import Occurrence
from netdra.model.errors import NetdraError, PermanentError, sentence, without_hint
from netdra.model.names import NEXT_STEP
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.node.nri.hooks import Sandbox
from netdra.node.sandboxes.events import PodEvents, message_of
from netdra.node.sandboxes.status import ClaimDevices, device_statuses, failed, unprepared
from netdra.ops import logs
from netdra.story.pods import pod_story
from netdra.story.statement import Statement
from tests.unit.story.making import NODES, TOPOLOGY, claim, cluster, pod, report, slices

PLACED = pod("db-0", "net", spec="nodeName: worker-1")
SANDBOX = Sandbox(id="s1", name="db-0", namespace="apps", uid="uid-of-db-0")
CLAIM = ClaimReference(namespace="apps", name="net", uid="uid-of-net")
DEVICES = ClaimDevices(CLAIM, (PlannedDevice(request="nic", pool="worker-1/nic", device="eth0", share_id=""),))


def of_chain(hint: str) -> NetdraError:
    """A chain whose second step failed after the first one; the first one is undone."""
    named: Any = {"topology": "fast", "plugin": "bond", "execution": "Builtin"}
    failure = StepFailure(**named, step="bond0", message="mode 7 is unknown", hint=hint)
    undone = UndoReport(**named, step="lan", outcome="undone")
    return attach_error(FailedAttachReport(sandbox="s1", netns="n", failures=(failure,), undone=(undone,)))


def of_rule(hint: str) -> NetdraError:
    return PermanentError('device "eth0" is not there', hint=hint)


def from_event(problem: NetdraError) -> Statement:
    """The cause that `why` reports, of the pod's event alone."""
    emitted: list[Occurrence] = []
    PodEvents(emitted.append).report_failure(SANDBOX, problem)
    (occurrence,) = emitted
    annotations = {NEXT_STEP: occurrence.next_step} if occurrence.next_step else {}
    event = msgspec.convert(
        {
            "metadata": {"annotations": annotations},
            "involvedObject": msgspec.to_builtins(occurrence.regarding),
            "reason": occurrence.reason,
            "message": occurrence.note,
            "lastTimestamp": "2026-11-27T10:00:09Z",
        },
        ClusterEvent,
    )
    state = cluster(TOPOLOGY, NODES, report("worker-1"), PLACED, claim("net", "eth0"), slices("eth0"))
    found = pod_story(replace(state, events=[event]), "apps", "db-0").cause
    assert found is not None
    return found


def from_status(problem: NetdraError, *, prepared: bool = True) -> Statement:
    """The cause that `why` reports, of the claim's status alone."""
    message = message_of(problem)
    if prepared:
        outcomes = failed(SANDBOX, [DEVICES], "StepFailed", message, problem.hint)
    else:
        outcomes = (unprepared(DEVICES, message, problem.hint),)
    devices = device_statuses(outcomes, (), "2026-11-27T10:00:09Z")
    state = cluster(TOPOLOGY, NODES, report("worker-1"), PLACED, claim("net", "eth0"), slices("eth0"))
    (entry,) = state.claims
    state = replace(state, claims=[replace(entry, status=replace(entry.status, devices=devices))])
    found = pod_story(state, "apps", "db-0").cause
    assert found is not None
    return found


@pytest.mark.parametrize("problem", [of_chain("use mode 1; see docs/steps.md"), of_rule("use another device")])
def test_the_next_step_of_a_failed_pod_is_that_of_its_error(problem: NetdraError) -> None:
    for found in (from_event(problem), from_status(problem), from_status(problem, prepared=False)):
        assert found.next_step == problem.hint
        assert problem.hint not in found.text
        lines = ["undone: lan"] if isinstance(problem, AttachError) else []
        assert list(found.details) == lines


@pytest.mark.parametrize("problem", [of_chain(""), of_rule("")])
def test_an_error_without_a_next_step_gets_a_general_one(problem: NetdraError) -> None:
    for found in (from_event(problem), from_status(problem), from_status(problem, prepared=False)):
        assert found.next_step.startswith("correct what the text names")


def test_readers_of_the_event_see_the_next_step_beside_the_failure() -> None:
    assert message_of(of_chain("use mode 1")).splitlines() == [
        'NetworkTopology "fast", step "bond0" (bond): mode 7 is unknown; use mode 1',
        "undone: lan",
    ]
    assert "undone: lan; use mode 1" not in str(of_chain("use mode 1"))


def test_the_line_of_the_journal_has_the_next_step_as_a_field(caplog: pytest.LogCaptureFixture) -> None:
    PodEvents(lambda _: None).report_failure(SANDBOX, of_chain("use mode 1"))
    (record,) = caplog.records
    line = msgspec.json.decode(logs.Json().format(record))
    assert line["hint"] == "use mode 1"
    assert record.levelno == logging.WARNING


@pytest.mark.parametrize("what", ["mode 7 is unknown", "mode 7 is unknown.", "is it up?", "no; none;"])
@pytest.mark.parametrize("hint", ["", "use mode 1", "use mode 1; or 2"])
def test_a_text_is_shown_without_the_hint_that_it_ends_with(what: str, hint: str) -> None:
    assert without_hint(sentence(what, hint), hint).rstrip(";") == what.rstrip(";")
    assert without_hint(f"{what} …", hint) == f"{what} …"
