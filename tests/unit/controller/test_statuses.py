"""What is said of topologies, policies and schemas, and that saying it again is no change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from netdra.controller import policy_status, schema_status, topology_status
from netdra.controller.classes import Changes
from netdra.controller.topology_status import Seen
from netdra.model import documents, report
from netdra.model.claim import DeviceClass
from netdra.model.errors import InvalidInputError
from netdra.model.meta import Condition
from netdra.model.report import PolicyReport, ReportedSlice
from netdra.model.schema import CNIPluginSchema
from netdra.topology.findings import Finding
from tests.builders import exclude, exclusive, policy
from tests.unit.controller.test_classes import topology

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
READY = Seen(changes=Changes(names=("net-vf0",)))
GONE = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def said(conditions: tuple[Condition, ...], kind: str) -> tuple[str, str, str]:
    (found,) = [each for each in conditions if each.type == kind]
    return found.status, found.reason, found.message


def schema(name: str, plugin: str, **spec: Any) -> CNIPluginSchema:
    value = {
        "apiVersion": "cni.networking.k8s.io/v1alpha1",
        "kind": "CNIPluginSchema",
        "metadata": {"name": name, "generation": 3},
        "spec": {"cniType": plugin, **spec},
    }
    return documents.convert(value, CNIPluginSchema, "test")


class TestTopologies:
    def test_one_that_is_sound_and_has_its_classes_is_ready(self) -> None:
        found = topology_status.status(topology(generation=4), READY, NOW)
        assert [(each.type, each.status) for each in found.conditions] == [
            ("Compiled", "True"),
            ("Ready", "True"),
            ("InUse", "False"),
        ]
        assert found.observed_generation == 4
        assert {each.last_transition_time for each in found.conditions} == {"2026-01-02T03:04:05Z"}
        assert found.device_classes == ("net-vf0",)

    def test_saying_the_same_later_is_no_change(self) -> None:
        first = topology_status.status(topology(), READY, NOW)
        assert topology_status.status(replace(topology(), status=first), READY, LATER) == first

    def test_the_time_is_that_of_the_last_difference(self) -> None:
        first = topology_status.status(topology(), READY, NOW)
        used = Seen(changes=READY.changes, users=("a/b",))
        second = topology_status.status(replace(topology(), status=first), used, LATER)
        times = {each.type: each.last_transition_time for each in second.conditions}
        assert times == {
            "Compiled": "2026-01-02T03:04:05Z",
            "Ready": "2026-01-02T03:04:05Z",
            "InUse": "2026-01-02T04:04:05Z",
        }

    def test_an_unsound_one_says_why_and_keeps_the_names_of_its_classes(self) -> None:
        before = topology_status.status(topology(), READY, NOW)
        seen = Seen(findings=(Finding(what="a", hint="b"), Finding(what="c")))
        found = topology_status.status(replace(topology(), status=before), seen, NOW)
        assert said(found.conditions, "Compiled") == ("False", "Unsound", "a; b\nc")
        assert said(found.conditions, "Ready")[:2] == ("False", "Unsound")
        assert found.device_classes == ("net-vf0",)

    @pytest.mark.parametrize(
        ("seen", "metadata", "reason", "text"),
        [
            (Seen(changes=Changes(foreign=("net-vf0",))), {}, "ForeignDeviceClass", '"net-vf0" is not netdra'),
            (Seen(problem="no"), {}, "Refused", "no"),
            (Seen(users=("a/b",)), GONE, "Deleting", "when its 1 users are gone"),
        ],
    )
    def test_what_keeps_it_from_being_ready_is_said(
        self, seen: Seen, metadata: dict[str, Any], reason: str, text: str
    ) -> None:
        found = topology_status.status(topology(**metadata), seen, NOW)
        status, why, message = said(found.conditions, "Ready")
        assert (status, why) == ("False", reason)
        assert text in message

    def test_classes_that_are_being_written_are_pending(self) -> None:
        made = documents.convert({"metadata": {"name": "net-vf0"}, "spec": {}}, DeviceClass, "test")
        found = topology_status.status(topology(), Seen(changes=Changes(create=(made,))), NOW)
        assert said(found.conditions, "Ready")[:2] == ("False", "Pending")

    def test_many_users_are_counted_and_a_few_named(self) -> None:
        users = tuple(f"team/{number:03}" for number in range(100))
        found = topology_status.status(topology(), Seen(users=users), NOW)
        assert found.users == 100
        assert found.used_by == users[:16]
        assert said(found.conditions, "InUse")[:2] == ("True", "Allocated")


class TestPolicies:
    def test_reports_of_all_nodes_are_added_up(self) -> None:
        reports = [
            ("n1", PolicyReport(devices=3)),
            ("n1", PolicyReport(devices=2, problems=("x",))),
            ("n2", PolicyReport(devices=4, problems=("x", "y"))),
        ]
        found = policy_status.status(exclusive("p", "true"), {}, reports, NOW)
        assert (found.nodes, found.devices) == (2, 9)
        assert [(each.message, each.node, each.nodes) for each in found.problems] == [("x", "n1", 2), ("y", "n2", 1)]
        assert said(found.conditions, "Degraded") == ("True", "FailsOnNodes", "on 2 nodes, e.g. n1: x")
        assert said(found.conditions, "Accepted")[0] == "True"

    def test_a_thousand_different_problems_leave_the_most_frequent(self) -> None:
        reports = [(f"n{at}", PolicyReport(problems=("everywhere", f"only {at}"))) for at in range(1000)]
        found = policy_status.status(exclusive("p", "true"), {}, reports, NOW)
        assert len(found.problems) == 16
        assert (found.problems[0].message, found.problems[0].nodes) == ("everywhere", 1000)

    def test_the_order_of_reports_makes_no_difference(self) -> None:
        reports = [(f"n{at}", PolicyReport(devices=at, problems=(f"{at % 3}",))) for at in range(10)]
        first = policy_status.status(exclusive("p", "true"), {}, reports, NOW)
        assert policy_status.status(exclusive("p", "true"), {}, reversed(reports), NOW) == first

    def test_one_that_cannot_be_used_says_why(self) -> None:
        found = policy_status.status(policy("p", "device.driver =="), {}, (), NOW)
        status, reason, message = said(found.conditions, "Accepted")
        assert (status, reason) == ("False", "Invalid")
        assert message.startswith("spec.selector.cel: CEL expression does not compile")

    def test_one_of_equal_rank_conflicts_and_the_winner_is_named(self) -> None:
        several = {"a": exclusive("a", "true"), "b": exclusive("b", "true"), "c": exclude("c", "true")}
        for name in ("a", "b"):
            status, _, message = said(policy_status.status(several[name], several, (), NOW).conditions, "Conflicting")
            assert status == "True"
            assert '"a" alone is used' in message
        assert said(policy_status.status(several["c"], several, (), NOW).conditions, "Conflicting")[0] == "False"

    def test_saying_the_same_later_is_no_change(self) -> None:
        written = exclusive("p", "true")
        first = policy_status.status(written, {}, [("n", PolicyReport(devices=1))], NOW)
        again = policy_status.status(replace(written, status=first), {}, [("n", PolicyReport(devices=1))], LATER)
        assert again == first


class TestSchemas:
    def test_the_first_of_several_for_a_plugin_counts(self) -> None:
        both = {"a": schema("a", "x"), "b": schema("b", "x"), "c": schema("c", "y")}
        assert said(schema_status.status(both["a"], both, NOW).conditions, "Accepted")[0] == "True"
        assert said(schema_status.status(both["b"], both, NOW).conditions, "Accepted")[:2] == ("False", "Duplicate")
        assert schema_status.status(both["c"], both, NOW).observed_generation == 3

    def test_one_that_contradicts_itself_is_not_accepted(self) -> None:
        wrong = schema("a", "x", input={"prevResult": {"interfaces": {"minItems": 3, "maxItems": 1}}})
        assert said(schema_status.status(wrong, {"a": wrong}, NOW).conditions, "Accepted")[1] == "Contradictory"


class TestReports:
    def test_reports_survive_the_way_through_an_annotation(self) -> None:
        reports = {"b": PolicyReport(devices=1), "a": PolicyReport(problems=("x",))}
        text = report.to_text(reports)
        assert text == '{"a":{"problems":["x"]},"b":{"devices":1}}'
        assert report.of_slice(self.slice(text)) == reports

    def test_a_slice_without_one_reports_nothing(self) -> None:
        assert report.of_slice(self.slice("")) == {}

    def test_one_that_cannot_be_read_names_the_slice(self) -> None:
        with pytest.raises(InvalidInputError, match=r'ResourceSlice "s", annotation networking\.dra\.io/policies'):
            report.of_slice(self.slice("{"))

    def slice(self, text: str) -> ReportedSlice:
        value = {
            "metadata": {"name": "s", "annotations": {report.ANNOTATION: text}},
            "spec": {"driver": "dra.networking", "nodeName": "n"},
        }
        return documents.convert(value, ReportedSlice, "test")
