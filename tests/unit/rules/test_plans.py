"""Only the rules make checked plans, and they are checked again only when what they were checked against changed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import netdra
from netdra.model import documents
from netdra.model.errors import InvalidInputError
from netdra.model.plan import Plan, PlannedDevice
from netdra.model.schema import CNIPluginSchema
from netdra.node.permits import NodePermits
from netdra.rules.confine import Permits
from netdra.rules.plans import CheckedPlans, check, combined, filled, permits_digest, restored, schemas_digest
from netdra.rules.topologies import check_topology
from netdra.topology.bind import unbound
from tests import builders
from tests.plans import plan, step

SOURCES = Path(netdra.__file__).parent


def device(name: str, number: int = 1) -> PlannedDevice:
    return PlannedDevice(request="r", pool="p", device=name, if_name=name, pci_address=f"0000:03:00.{number}")


def vf(name: str, /, **config: object) -> Plan:
    """A claim's plan, as it is bound without the pod's other claims."""
    return plan(step("vf", "sriov", "net1", config, device=device(name)), topology=f"of-{name}")


def addressed(name: str, address: str) -> Plan:
    return vf(name, ipam={"type": "static", "addresses": [{"address": address}]})


def schema(name: str, cni_type: str = "loopback", parameter: str = "mtu") -> CNIPluginSchema:
    written = {
        "apiVersion": "cni.networking.k8s.io/v1alpha1",
        "kind": "CNIPluginSchema",
        "metadata": {"name": name},
        "spec": {
            "cniType": cni_type,
            "configParameters": {"optional": [{"name": parameter, "type": "string", "format": "hostPath"}]},
        },
    }
    return documents.convert(written, CNIPluginSchema, "test")


def test_nothing_but_the_rules_makes_checked_plans() -> None:
    with pytest.raises(TypeError, match=r"only netdra\.rules\.plans makes CheckedPlans"):
        CheckedPlans((vf("a"),), "", "", None)
    makers = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if "CheckedPlans" in (text := path.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == "CheckedPlans"
    }
    assert makers == {"rules/plans.py"}


def test_checked_plans_are_the_same_when_they_are_read_from_a_record() -> None:
    checked = check([vf("a")], [schema("ours")], Permits(plugins=frozenset({"sriov"})))
    assert checked.plans == (vf("a"),)
    assert restored(list(checked.plans), checked.schemas, checked.permits) == checked


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (vf("a", minTxRate=9, maxTxRate=3), "minTxRate 9 exceeds maxTxRate 3"),
        (vf("a", minTxRate=None, min_tx_rate=9, maxTxRate=3), "minTxRate 9 exceeds maxTxRate 3"),
        (plan(step("vf", "sriov", "net1", {"mtu": 1}, device=device("a"), binary=True)), "does not accept parameter"),
        (vf("a", pciBusID="0000:00:02.0"), "pciBusID"),
        (
            plan(step("any", "loopback", "net1", device=device("a"))),
            "is not allowed: it does not have a CNIPluginSchema",
        ),
    ],
    ids=["values", "values by another name", "programs", "names", "permits"],
)
def test_one_call_asks_every_rule(wrong: Plan, text: str) -> None:
    with pytest.raises(InvalidInputError, match=text):
        check([vf("b"), wrong], permits=Permits())


def test_findings_of_a_topology_are_those_of_its_author_each_once() -> None:
    topology = builders.topology("- {name: vf, type: sriov, config: {minTxRate: 9, maxTxRate: 3}}")
    (finding,) = check_topology(topology)
    with pytest.raises(InvalidInputError) as caught:
        check([unbound(topology)], topologies=[topology])
    assert (caught.value.what, caught.value.hint) == (finding.what, finding.hint)


def test_a_node_path_is_rejected_only_where_the_cluster_schema_declares_one() -> None:
    plans = [plan(step("any", "loopback", "net1", {"mtu": "/etc/shadow"}, device=device("a")))]
    permits = Permits(plugins=frozenset({"loopback"}), allows=lambda _: "this node allows none")
    assert check(plans, permits=permits).plans == tuple(plans)
    with pytest.raises(InvalidInputError, match="this node allows none"):
        check(plans, [schema("ours")], permits)


def test_the_digest_of_schemas_is_that_of_their_content() -> None:
    first, second = schema("a"), schema("b", "sriov")
    assert schemas_digest([first, second]) == schemas_digest([second, first])
    assert schemas_digest([replace(first, metadata=replace(first.metadata, resource_version="9"))]) == schemas_digest(
        [first]
    )
    assert len({schemas_digest(each) for each in ([], [first], [first, second], [schema("a", parameter="x")])}) == 4
    shipped = replace(first.metadata, labels={"networking.dra.io/shipped": "a"})
    assert schemas_digest([replace(first, metadata=shipped)]) == schemas_digest([])


@given(st.lists(st.lists(st.sampled_from("abcd"), unique=True), max_size=6))
def test_the_digest_of_schemas_is_that_of_the_last_ones_asked_for(asked: list[list[str]]) -> None:
    schemas = {name: schema(name) for name in "abcd"}
    for names in asked:
        copies = [replace(schemas[name]) for name in names]
        assert schemas_digest([schemas[name] for name in names]) == schemas_digest(copies)
        changed = [*copies[1:], *(schema(name, parameter="x") for name in names[:1])]
        assert (schemas_digest(changed) == schemas_digest(copies)) == (not names)


def test_the_digest_of_permits_is_that_of_the_options() -> None:
    options = (
        None,
        Permits(),
        Permits(plugins=frozenset({"a"})),
        Permits(folders=("/a",)),
        Permits(folders=("/a", "/b")),
    )
    assert len({permits_digest(each) for each in options}) == len(options)
    assert permits_digest(Permits(folders=("/b", "/a"))) == permits_digest(options[-1])


def test_addresses_that_are_filled_in_later_must_fit_together() -> None:
    checked = check([vf("a"), vf("b")])
    filled_in = filled(checked, [addressed("a", "10.0.0.1/24"), addressed("b", "10.0.0.2/24")])
    assert (len(filled_in.plans), filled_in.schemas) == (2, checked.schemas)
    with pytest.raises(InvalidInputError, match=r"address 10\.0\.0\.1 is already assigned to .*"):
        filled(checked, [addressed("a", "10.0.0.1/24"), addressed("b", "10.0.0.1/24")])


def test_a_claim_alone_is_run_as_it_was_checked() -> None:
    checked = check([vf("a")])
    assert combined([checked]) is checked


def test_interfaces_are_numbered_over_all_claims() -> None:
    several = combined([check([vf("a")]), check([vf("b")])])
    assert [entry.if_name for each in several.plans for entry in each.steps] == ["net1", "net2"]
    assert (several.schemas, several.permits) == (schemas_digest([]), permits_digest(None))


def test_claims_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"address 10\.0\.0\.1 is already assigned to .*"):
        combined([check([addressed("a", "10.0.0.1/24")]), check([addressed("b", "10.0.0.1/24")])])


def test_two_claims_cannot_name_one_interface() -> None:
    with pytest.raises(InvalidInputError, match='"data"'):
        combined([check([vf("a", name="data")]), check([vf("b", name="data")])])


def test_digests_that_differ_are_checked_again() -> None:
    several = combined([check([vf("a")], permits=Permits()), check([vf("b")])])
    assert several.permits == ""


class TestConfirmation:
    def test_plans_that_were_checked_against_the_same_are_not_checked_again(self) -> None:
        permits = NodePermits(schemas=lambda: (schema("ours"),))
        wrong = restored([vf("a", pciBusID="0000:00:02.0")], *self.digests(permits))
        assert permits.confirm(wrong) is wrong

    def test_a_stricter_node_rejects_a_previously_checked_plan(self) -> None:
        checked = NodePermits(plugins=("*",)).check([plan(step("any", "loopback", "net1", device=device("a")))])
        with pytest.raises(InvalidInputError, match="is not allowed: it does not have a CNIPluginSchema"):
            NodePermits().confirm(checked)

    def test_a_schema_that_came_later_counts(self) -> None:
        checked = NodePermits(plugins=("*",)).check(
            [plan(step("any", "loopback", "net1", {"mtu": "/etc/shadow"}, device=device("a")))]
        )
        with pytest.raises(InvalidInputError, match="this node allows none"):
            NodePermits(plugins=("*",), schemas=lambda: (schema("ours"),)).confirm(checked)

    def test_while_the_schemas_are_not_known_those_of_the_record_count(self) -> None:
        permits = NodePermits(schemas=lambda: (schema("ours"),))
        checked = permits.check([plan(step("any", "loopback", "net1", device=device("a")))])
        assert NodePermits(schemas=lambda: None).confirm(checked) is checked

    def test_plans_that_are_confirmed_have_the_digests_of_now(self) -> None:
        permits = NodePermits(plugins=("sriov",))
        confirmed = permits.confirm(NodePermits().check([vf("a")]))
        assert (confirmed.schemas, confirmed.permits) == self.digests(permits)

    @staticmethod
    def digests(permits: NodePermits) -> tuple[str, str]:
        checked = permits.check([vf("z")])
        return checked.schemas, checked.permits


def test_a_plan_with_unresolved_device_facts_is_rejected() -> None:
    with pytest.raises(
        InvalidInputError, match=r"config\.mtu: \{\{ device\.attributes\.mtu \}\} has no value"
    ) as problem:
        check([vf("a", mtu="{{ device.attributes.mtu }}")])
    assert "only a node that prepares a claim knows it" in problem.value.hint


@pytest.mark.parametrize(
    ("mtu", "text"), [(9000, ""), (10, "to be at least 68, found 10"), ("jumbo", 'to be integer, found "jumbo"')]
)
def test_the_value_of_a_fact_is_checked_by_the_plugins_schema_when_it_is_known(mtu: object, text: str) -> None:
    written = builders.topology("- {name: vf, type: sriov, config: {mtu: '{{ device.attributes.own }}'}}", "of-a")
    if not text:
        assert check([vf("a", mtu=mtu)], topologies=[written]).plans
        return
    with pytest.raises(InvalidInputError, match=text):
        check([vf("a", mtu=mtu)], topologies=[written])
