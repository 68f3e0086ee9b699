"""The statuses of topologies, policies and schemas, and that writing them again is not a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from netdra.controller import status
from netdra.controller.classes import ClassWrites
from netdra.controller.state import FirstSchemas
from netdra.controller.status import TopologyState
from netdra.exposure.ranks import NO_RIVALS, Rivals
from netdra.kube.store import Change
from netdra.model import documents
from netdra.model.claim import DeviceClass
from netdra.model.custom_device import CustomDevice
from netdra.model.meta import Condition
from netdra.model.node_network import CustomDeviceReport, NodeProblem, PolicyAtNode, PolicyReport
from netdra.model.rollout import ClaimFailure, FailingClaims
from netdra.model.schema import CNIPluginSchema
from tests.builders import exclude, exclusive
from tests.unit.controller.test_classes import topology

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
READY = TopologyState(changes=ClassWrites(names=("net-vf0",)))
NO_FAILURES = FailingClaims(number=0)
FAILING = FailingClaims(
    number=3, nodes=("n1", "n2"), claims=("a/x",), last_error=ClaimFailure(claim="a/x", message="no carrier")
)
FAIL = "3 claims fail on nodes n1, n2; the last error is of a/x: no carrier"
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
        found = status.of_topology(topology(generation=4), READY, NOW)
        assert [(each.type, each.status) for each in found.conditions] == [
            ("Compiled", "True"),
            ("Ready", "True"),
        ]
        assert found.observed_generation == 4
        assert {each.last_transition_time for each in found.conditions} == {"2026-01-02T03:04:05Z"}
        assert found.device_classes == ("net-vf0",)

    def test_recomputing_an_unchanged_status_at_a_later_time_does_not_change_it(self) -> None:
        first = status.of_topology(topology(), READY, NOW)
        assert status.of_topology(replace(topology(), status=first), READY, LATER) == first

    def test_the_time_is_that_of_the_last_difference(self) -> None:
        first = status.of_topology(topology(), READY, NOW)
        refused = TopologyState(changes=READY.changes, problem="no")
        second = status.of_topology(replace(topology(), status=first), refused, LATER)
        times = {each.type: each.last_transition_time for each in second.conditions}
        assert times == {"Compiled": "2026-01-02T03:04:05Z", "Ready": "2026-01-02T04:04:05Z"}

    def test_an_invalid_topology_reports_its_findings_and_keeps_its_device_class_names(self) -> None:
        before = status.of_topology(topology(), READY, NOW)
        seen = TopologyState(findings=("a; b", "c"))
        found = status.of_topology(replace(topology(), status=before), seen, NOW)
        assert said(found.conditions, "Compiled") == ("False", "Unsound", "a; b\nc")
        assert said(found.conditions, "Ready")[:2] == ("False", "Unsound")
        assert found.device_classes == ("net-vf0",)

    @pytest.mark.parametrize(
        ("seen", "metadata", "reason", "text"),
        [
            (
                TopologyState(changes=ClassWrites(foreign=("net-vf0",))),
                {},
                "ForeignDeviceClass",
                '"net-vf0" is not managed by netdra',
            ),
            (TopologyState(problem="no"), {}, "Refused", "no"),
            (
                replace(READY, not_allowed=('plugin "firewall" is not allowed: x; set y',)),
                {},
                "PluginNotAllowed",
                'nodes reject new claims: plugin "firewall" is not allowed: x; set y',
            ),
            (
                TopologyState(),
                GONE,
                "Deleting",
                "deletion waits until no claim uses it (kubectl get networktopologyusage net);",
            ),
        ],
    )
    def test_the_ready_condition_reports_the_reason_and_message_of_an_unready_topology(
        self, seen: TopologyState, metadata: dict[str, Any], reason: str, text: str
    ) -> None:
        found = status.of_topology(topology(**metadata), seen, NOW)
        holds, why, message = said(found.conditions, "Ready")
        assert (holds, why) == ("False", reason)
        assert text in message

    def test_one_with_a_plugin_that_is_not_allowed_has_its_classes_and_keeps_watch_over_them(self) -> None:
        found = status.of_topology(topology(), replace(READY, not_allowed=("x",)), NOW)
        assert found.device_classes == ("net-vf0",)
        assert status.is_ready(replace(topology(), status=found))

    def test_classes_that_are_being_written_are_pending(self) -> None:
        made = documents.convert({"metadata": {"name": "net-vf0"}, "spec": {}}, DeviceClass, "test")
        found = status.of_topology(topology(), TopologyState(changes=ClassWrites(create=(made,))), NOW)
        assert said(found.conditions, "Ready")[:2] == ("False", "Pending")


class TestUsages:
    def test_many_users_are_counted_and_a_few_named(self) -> None:
        users = tuple(f"team/{number:03}" for number in range(100))
        found = status.of_usage(topology(), users, NO_FAILURES, None, NOW)
        assert found.users == 100
        assert found.used_by == users[:16]
        assert said(found.conditions, "InUse")[:2] == ("True", "Allocated")
        again = status.of_usage(topology(), users[1:], NO_FAILURES, found, LATER)
        assert again.conditions == found.conditions, "the time is that of the last difference"

    def test_without_users_the_number_is_written_all_the_same(self) -> None:
        found = status.of_usage(topology(), (), NO_FAILURES, None, NOW)
        assert documents.plain(found)["users"] == 0
        assert said(found.conditions, "InUse")[:2] == ("False", "NoUsers")
        assert status.of_usage(topology(), (), NO_FAILURES, found, LATER) == found

    def test_one_whose_claims_fail_is_degraded_until_none_does(self) -> None:
        users = ("a/x", "a/y", "b/z")
        failing = status.of_usage(topology(), users, FAILING, None, NOW)
        assert said(failing.conditions, "Degraded") == ("True", "ClaimsFailed", FAIL)
        assert documents.plain(failing)["failingClaims"]["number"] == 3
        one = FailingClaims(number=1, nodes=("n1",), last_error=ClaimFailure(claim="a/x", message="no carrier"))
        fewer = status.of_usage(topology(), users, one, failing, LATER)
        text = "1 claim fails on node n1; the last error is of a/x: no carrier"
        assert said(fewer.conditions, "Degraded") == ("True", "ClaimsFailed", text)
        (since,) = {each.last_transition_time for each in fewer.conditions}
        assert since == "2026-01-02T03:04:05Z", "it was degraded before"
        well = status.of_usage(topology(), users, NO_FAILURES, fewer, LATER)
        assert said(well.conditions, "Degraded") == ("False", "NoFailures", "no claim that uses the topology fails")
        assert documents.plain(well)["failingClaims"] == {"number": 0}, "its column shows the number"

    def test_nodes_that_are_not_known_or_too_many_are_not_listed(self) -> None:
        unknown = status.of_usage(topology(), (), FailingClaims(number=2), None, NOW)
        assert said(unknown.conditions, "Degraded")[2] == "2 claims fail"
        nodes = tuple(f"n{number:02}" for number in range(16))
        many = status.of_usage(topology(), (), FailingClaims(number=99, nodes=nodes), None, NOW)
        assert said(many.conditions, "Degraded")[2].endswith("n14, n15 and more")


def at(
    node: str, devices: int = 0, problems: Sequence[str] = (), interfaces: int = 0, **report: Any
) -> tuple[str, PolicyAtNode]:
    """A node's report on a policy."""
    told = tuple(NodeProblem(message=text, policy="p", interfaces=interfaces) for text in problems)
    return node, PolicyAtNode(PolicyReport(name="p", devices=devices, **report), told)


class TestPolicies:
    def test_reports_of_all_nodes_are_added_up(self) -> None:
        reports = [at("n1", 5, ["x"], 385), at("n2", 4, ["x", "y"], 15)]
        found = status.of_policy_rollout(exclusive("p", "true"), reports, NO_FAILURES, None, NOW)
        assert (found.nodes, found.devices) == (2, 9)
        assert [(each.message, each.node, each.nodes, each.interfaces) for each in found.problems] == [
            ("x", "n1", 2, 400),
            ("y", "n2", 1, 15),
        ]
        expected = "on 2 nodes, e.g. n1: x (on 400 interfaces)"
        assert said(found.conditions, "Degraded") == ("True", "FailsOnNodes", expected)

    def test_numbers_are_written_also_where_they_are_zero(self) -> None:
        found = documents.plain(status.of_policy_rollout(exclude("p", "true"), [at("n1")], NO_FAILURES, None, NOW))
        assert (found["nodes"], found["devices"]) == (1, 0)

    def test_a_thousand_different_problems_leave_the_most_frequent(self) -> None:
        reports = [at(f"n{number}", problems=("everywhere", f"only {number}")) for number in range(1000)]
        found = status.of_policy_rollout(exclusive("p", "true"), reports, NO_FAILURES, None, NOW)
        assert len(found.problems) == 16
        assert (found.problems[0].message, found.problems[0].nodes) == ("everywhere", 1000)

    def test_the_order_of_reports_makes_no_difference(self) -> None:
        reports = [at(f"n{number}", number, (f"{number % 3}",)) for number in range(10)]
        first = status.of_policy_rollout(exclusive("p", "true"), reports, NO_FAILURES, None, NOW)
        assert status.of_policy_rollout(exclusive("p", "true"), reversed(reports), NO_FAILURES, None, NOW) == first

    def test_degraded_is_false_with_reason_no_nodes_until_a_node_reports_the_policy(self) -> None:
        found = status.of_policy_rollout(exclusive("p", "true"), (), NO_FAILURES, None, NOW)
        holds, reason, message = said(found.conditions, "Degraded")
        assert (holds, reason) == ("False", "NoNodes")
        assert message == "no node has reported yet that it uses the policy"

    def test_the_degraded_message_counts_nodes_that_still_use_an_older_policy_generation(self) -> None:
        changed = exclusive("p", "true")
        changed = replace(changed, metadata=replace(changed.metadata, generation=2))
        reports = [at("n1", generation=2), at("n2", generation=1)]
        text = "1 of 2 nodes still use an older generation of it"
        found = status.of_policy_rollout(changed, reports, NO_FAILURES, None, NOW)
        assert said(found.conditions, "Degraded")[2] == f"no node reports a problem, and no claim fails; {text}"
        assert (found.nodes, found.updated_nodes) == (2, 1)
        failing = status.of_policy_rollout(
            changed, [*reports, at("n3", problems=["x"], generation=2)], NO_FAILURES, None, NOW
        )
        assert said(failing.conditions, "Degraded")[2].startswith("on 1 nodes, e.g. n3: x; 1 of 3 nodes")

    def test_failing_claims_degrade_a_policy_in_addition_to_the_problems_that_nodes_report(self) -> None:
        policy = exclusive("p", "true")
        found = status.of_policy_rollout(policy, [at("n1", 1)], FAILING, None, NOW)
        assert said(found.conditions, "Degraded") == ("True", "ClaimsFailed", FAIL)
        assert found.failing_claims == FAILING
        both = status.of_policy_rollout(policy, [at("n1", 1, ["x"])], FAILING, found, LATER)
        assert said(both.conditions, "Degraded") == ("True", "FailsOnNodes", f"on 1 nodes, e.g. n1: x; {FAIL}")
        unreported = status.of_policy_rollout(policy, [], FAILING, both, LATER)
        assert said(unreported.conditions, "Degraded")[1] == "ClaimsFailed", "its devices are allocated all the same"
        well = status.of_policy_rollout(policy, [at("n1", 1)], NO_FAILURES, unreported, LATER)
        text = "no node reports a problem, and no claim fails"
        assert said(well.conditions, "Degraded") == ("False", "NoProblems", text)

    def test_the_overlapping_condition_names_each_outranking_policy_and_counts_its_devices(self) -> None:
        reports = [at("n1", outranked={"aaa": 1, "b": 1}), at("n2", outranked={"aaa": 1})]
        found = status.of_policy_rollout(exclusive("p", "true"), reports, NO_FAILURES, None, NOW)
        both = "that this policy also matches"
        text = f'policy "aaa" takes 2 devices {both}; policy "b" takes 1 device {both}'
        assert said(found.conditions, "Overlapping") == ("True", "Outranked", text)
        alone = status.of_policy_rollout(exclusive("p", "true"), [at("n1", 1)], NO_FAILURES, None, NOW)
        assert said(alone.conditions, "Overlapping")[:2] == ("False", "NoOverlap")

    def test_an_invalid_policy_is_not_accepted_and_lists_its_errors(self) -> None:
        found = status.of_policy(exclusive("p", "true"), NO_RIVALS, ("a", "b"), NOW)
        holds, reason, message = said(found.conditions, "Accepted")
        assert (holds, reason, message) == ("False", "Invalid", "a\nb")

    def test_one_of_equal_rank_conflicts_and_the_winner_is_named(self) -> None:
        for name, other in (("a", "b"), ("b", "a")):
            found = status.of_policy(exclusive(name, "true"), Rivals((other,)), (), NOW)
            holds, _, message = said(found.conditions, "Conflicting")
            assert holds == "True"
            assert 'only "a" is used' in message
        alone = status.of_policy(exclude("c", "true"), NO_RIVALS, (), NOW)
        assert said(alone.conditions, "Conflicting")[0] == "False"
        assert said(alone.conditions, "Accepted")[0] == "True"

    def test_a_conflict_among_many_policies_of_one_rank_names_only_the_neighboring_policy(self) -> None:
        subject = '"b" and more policies have the same selector, priority and suffix'
        for name, use in (
            ("a", 'only "a" is used, because its name sorts first'),
            ("c", 'this policy is not used, because "b" sorts before its name'),
        ):
            found = status.of_policy(exclusive(name, "true"), Rivals(("b",), more=True), (), NOW)
            assert said(found.conditions, "Conflicting") == ("True", "SameRank", f"{subject}; {use}")

    def test_recomputing_an_unchanged_status_at_a_later_time_does_not_change_it(self) -> None:
        written = exclusive("p", "true")
        first = status.of_policy(written, NO_RIVALS, (), NOW)
        assert status.of_policy(replace(written, status=first), NO_RIVALS, (), LATER) == first
        rollout = status.of_policy_rollout(written, [at("n", 1)], NO_FAILURES, None, NOW)
        assert status.of_policy_rollout(written, [at("n", 1)], NO_FAILURES, rollout, LATER) == rollout


class TestCustomDevices:
    def test_reports_of_all_nodes_are_added_up(self) -> None:
        reports = [
            ("n1", CustomDeviceReport(name="c", desired=1, applied=1)),
            ("n2", CustomDeviceReport(name="c", desired=2, applied=1, problems=("no room",))),
        ]
        found = status.of_custom_device(custom_device(), reports, None, NOW)
        assert (found.desired_number, found.applied_number, found.refusals) == (3, 2, ("no room",))
        assert said(found.conditions, "Applied") == ("False", "NotEverywhere", "applied to 2 of 3 devices: no room")

    def test_one_that_every_device_has_is_applied(self) -> None:
        found = status.of_custom_device(
            custom_device(), [("n", CustomDeviceReport(name="c", desired=1, applied=1))], None, NOW
        )
        assert said(found.conditions, "Applied")[:2] == ("True", "Everywhere")

    def test_one_that_no_node_has_a_device_for_is_not_applied(self) -> None:
        found = status.of_custom_device(custom_device(), (), None, NOW)
        assert said(found.conditions, "Applied")[:2] == ("False", "NoDevice")
        assert (found.desired_number, found.applied_number) == (0, 0)

    def test_a_thousand_different_refusals_leave_sixteen(self) -> None:
        reports = [
            (f"n{at}", CustomDeviceReport(name="c", desired=1, problems=(f"only {at}", "all"))) for at in range(1000)
        ]
        found = status.of_custom_device(custom_device(), reports, None, NOW)
        assert (len(found.refusals), found.refusals[0]) == (16, "all")


def custom_device() -> CustomDevice:
    value = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "CustomDevice",
        "metadata": {"name": "c", "generation": 2},
        "spec": {"provider": "bctl", "device": "enp1s0", "attributes": {"rdma": {"bool": True}}},
    }
    return documents.convert(value, CustomDevice, "test")


def first(one: CNIPluginSchema, every: Mapping[str, CNIPluginSchema]) -> str:
    index = FirstSchemas()
    for name, each in every.items():
        index.update(Change(name, None, each))
    return index.of(one)


class TestSchemas:
    def test_the_first_of_several_for_a_plugin_counts(self) -> None:
        both = {"a": schema("a", "x"), "b": schema("b", "x"), "c": schema("c", "y")}
        assert said(status.of_schema(both["a"], first(both["a"], both), NOW).conditions, "Accepted")[0] == "True"
        assert said(status.of_schema(both["b"], first(both["b"], both), NOW).conditions, "Accepted")[:2] == (
            "False",
            "Duplicate",
        )
        assert status.of_schema(both["c"], first(both["c"], both), NOW).observed_generation == 3

    def test_one_that_contradicts_itself_is_not_accepted(self) -> None:
        wrong = schema("a", "x", input={"prevResult": {"interfaces": {"minItems": 3, "maxItems": 1}}})
        assert (
            said(status.of_schema(wrong, first(wrong, {"a": wrong}), NOW).conditions, "Accepted")[1] == "Contradictory"
        )

    def test_a_custom_schema_overrides_the_built_in_schema_and_its_status_lists_its_parameters(self) -> None:
        own = schema("vlan", "vlan", configParameters={"optional": [{"name": "vendorKey", "type": "integer"}]})
        accepted = said(status.of_schema(own, first(own, {"vlan": own}), NOW).conditions, "Accepted")
        assert accepted[:2] == ("True", "Valid")
        assert 'for plugin "vlan", instead of netdra\'s built-in schema; it accepts vendorKey' in accepted[2]

    def test_one_that_contradicts_itself_takes_the_place_of_no_other(self) -> None:
        wrong = schema("a", "vlan", input={"prevResult": {"interfaces": {"minItems": 3, "maxItems": 1}}})
        every = {"a": wrong, "b": schema("b", "vlan")}
        assert said(status.of_schema(every["b"], first(every["b"], every), NOW).conditions, "Accepted")[0] == "True"
