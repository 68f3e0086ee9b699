"""A problem is reported once, to the object concerned, for as long as it lasts."""

from __future__ import annotations

from dataclasses import dataclass, field

from netdra.kube.events import Occurrence
from netdra.kube.features import Dropped
from netdra.model.device import Problem
from netdra.model.plan import ClaimReference
from netdra.node.publishing.announce import ProblemEvents
from netdra.node.publishing.publisher import PoolWrites, RefusedDevice
from netdra.node.view import VFTrouble


@dataclass
class Told:
    """An emitter that keeps its occurrences."""

    occurrences: list[Occurrence] = field(default_factory=list)

    def emit(self, occurrence: Occurrence) -> None:
        self.occurrences.append(occurrence)


def test_a_problem_is_reported_once_until_it_disappears() -> None:
    told = Told()
    events = ProblemEvents(told, "worker-1")
    failing, left_out = Problem(policy="p", message="fails on eth0"), Problem(policy="", message="left out")
    events.report_problems((failing, left_out))
    events.report_problems((failing, left_out))
    assert [(each.reason, each.regarding.kind, each.regarding.name) for each in told.occurrences] == [
        ("PolicyProblem", "DeviceExposurePolicy", "p"),
        ("DeviceLeftOut", "Node", "worker-1"),
    ]
    events.report_problems(())
    events.report_problems((failing,))
    assert [each.note for each in told.occurrences[2:]] == ["fails on eth0"]


def test_a_cause_is_reported_once_and_not_again_for_another_interface() -> None:
    told = Told()
    events = ProblemEvents(told, "worker-1")
    seen = [
        Problem(policy="p", message=f"eth{at} is not matched: no such key", device=f"eth{at}", cause="no such key")
        for at in range(5)
    ]
    events.report_problems(seen[:4])
    events.report_problems(seen)
    assert [each.note for each in told.occurrences] == ["no such key\n(on 4 interfaces, eth0, eth1, eth2 and 1 more)"]
    events.report_problems(())
    events.report_problems(seen[:1])
    assert told.occurrences[1].note == "eth0 is not matched: no such key"


def test_dropped_fields_name_the_gate_once_and_refusals_the_device() -> None:
    told = Told()
    events = ProblemEvents(told, "worker-1")
    written = PoolWrites(
        dropped=(Dropped("devices[0].taints", "DRADeviceTaints"), Dropped("devices[1].taints", "DRADeviceTaints")),
        refusals=(RefusedDevice("eth0", "too long"),),
    )
    events.report_write("pool", written)
    events.report_write("pool", written)
    assert [each.reason for each in told.occurrences] == ["DeviceRefused", "FieldDropped"]
    assert '"eth0"' in told.occurrences[0].note
    assert "DRADeviceTaints" in told.occurrences[1].note
    events.forget("pool")
    events.report_write("pool", PoolWrites(refusals=(RefusedDevice("eth0", "too long"),)))
    assert len(told.occurrences) == 3


def test_the_trouble_of_a_pooled_vf_is_an_event_of_its_claim_until_it_went_away() -> None:
    told = Told()
    events = ProblemEvents(told, "worker-1")
    claim = ClaimReference(namespace="ns", name="c", uid="c-1")
    gone = VFTrouble(claim=claim, vf="0000:03:00.2", name="p0v0", reason="VFGone", message="VF p0v0 is gone")
    events.report_vf_troubles((), (gone,))
    events.report_vf_troubles((gone,), (gone,))
    (told_once,) = told.occurrences
    assert (told_once.reason, told_once.type, told_once.note) == ("VFGone", "Warning", "VF p0v0 is gone")
    about = told_once.regarding
    assert (about.kind, about.namespace, about.name, about.uid) == ("ResourceClaim", "ns", "c", "c-1")
    events.report_vf_troubles((gone,), ())
    events.report_vf_troubles((), (gone,))
    assert len(told.occurrences) == 2
