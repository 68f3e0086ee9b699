"""Which devices a claim may have at all (taints, admin access, nodes, pools), and with which configuration."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.model.errors import InvalidInputError
from netdra.slices.allocator import Allocation, Allocator, SchedulerNode
from tests.unit.slices.asking import ANY, devices, plain, refused, results
from tests.unit.slices.making import (
    alternatives,
    claim,
    class_of,
    counted,
    device,
    request,
    shared,
    slice_of,
)


class TestTaints:
    @pytest.mark.parametrize(
        ("taint", "tolerations", "fits"),
        [
            ({"key": "k", "value": "v", "effect": "NoSchedule"}, [], False),
            ({"key": "k", "value": "v", "effect": "NoExecute"}, [], False),
            ({"key": "k", "value": "v", "effect": "None"}, [], True),
            ({"key": "k", "value": "v", "effect": "NoSchedule"}, [{"operator": "Exists"}], True),
            ({"key": "k", "value": "v", "effect": "NoSchedule"}, [{"key": "k", "operator": "Exists"}], True),
            ({"key": "k", "value": "v", "effect": "NoSchedule"}, [{"key": "k", "value": "v"}], True),
            ({"key": "k", "value": "v", "effect": "NoSchedule"}, [{"key": "k", "value": "w"}], False),
            ({"key": "k", "value": "v", "effect": "NoSchedule"}, [{"key": "x", "operator": "Exists"}], False),
            ({"key": "k", "effect": "NoSchedule"}, [{"operator": "Exists", "effect": "NoExecute"}], False),
        ],
    )
    def test_a_taint_needs_a_toleration_of_its_key_value_and_effect(
        self, taint: Any, tolerations: list[Any], fits: bool
    ) -> None:
        allocator = Allocator([slice_of(device("a", taints=[taint]))], [ANY])
        outcome = allocator.allocate(claim("c", request(tolerations=tolerations)))
        assert isinstance(outcome, Allocation) == fits

    def test_tolerations_are_written_into_the_result(self) -> None:
        allocator = Allocator([slice_of(device("a"))], [ANY])
        (result,) = results(allocator, claim("c", request(tolerations=[{"operator": "Exists"}])))
        assert [each.operator for each in result.tolerations] == ["Exists"]


class TestAdminAccess:
    def test_it_reaches_devices_in_use_and_takes_nothing_away(self) -> None:
        allocator = Allocator([slice_of(device("a"))], [ANY], admin_namespaces=["ops"])
        assert devices(allocator, claim("user")) == ["a"]
        (result,) = results(allocator, claim("look", request(adminAccess=True), namespace="ops"))
        assert (result.device, result.admin_access) == ("a", True)
        allocator.release(claim("user"))
        assert devices(allocator, claim("next")) == ["a"]

    def test_it_needs_the_namespaces_label(self) -> None:
        allocator = Allocator([slice_of(device("a"))], [ANY])
        assert "admin-access" in refused(allocator, claim("look", request(adminAccess=True))).reason

    def test_one_claim_gets_each_device_once(self) -> None:
        allocator = Allocator([slice_of(device("a"), device("b"))], [ANY], admin_namespaces=["default"])
        wanted = [request(name, adminAccess=True) for name in ("r1", "r2")]
        assert devices(allocator, claim("look", *wanted)) == ["a", "b"]


class TestNodes:
    def test_slices_reach_nodes_by_selector_and_everywhere(self) -> None:
        selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1"]}]}]}
        slices = [
            slice_of(device("a"), pool="a", nodeSelector=selector),
            slice_of(device("b"), pool="b", allNodes=True),
        ]
        allocator = Allocator(
            slices, [ANY], nodes=[SchedulerNode("n1", {"rack": "r0"}), SchedulerNode("n2", {"rack": "r1"})]
        )
        outcomes = [allocator.allocate(claim(f"c{n}")) for n in range(3)]
        chosen = [
            (outcome.node, outcome.claims[0].status.allocation)
            for outcome in outcomes
            if isinstance(outcome, Allocation)
        ]
        assert [(node, held.devices.results[0].device, held.node_selector) for node, held in chosen if held] == [
            ("n1", "b", None),
            ("n2", "a", selector),
        ]

    def test_devices_may_name_their_nodes_themselves(self) -> None:
        some = [device("a", nodeName="n2"), device("b", allNodes=True), device("c", nodeName="n1")]
        allocator = Allocator(
            [slice_of(*some, perDeviceNodeSelection=True)], [ANY], nodes=[SchedulerNode("n1"), SchedulerNode("n2")]
        )
        assert devices(allocator, claim("c1", request(count=2)), nodes=["n1"]) == ["b", "c"]
        outcome = allocator.allocate(claim("c2"))
        assert isinstance(outcome, Allocation)
        assert outcome.node == "n2"
        assert outcome.claims[0].status.allocation is not None
        assert outcome.claims[0].status.allocation.node_selector == {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]
        }


class TestConfiguration:
    @staticmethod
    def opaque(text: str) -> dict[str, Any]:
        return {"opaque": {"driver": "dra.networking", "parameters": {"is": text}}}

    def test_class_config_precedes_claim_config_and_covers_only_chosen_requests(self) -> None:
        classes = [class_of(name, config=[self.opaque(name)]) for name in ("x", "y", "z")]
        wanted = claim(
            "c",
            request("r1", of="x"),
            alternatives("r2", request("no", "false", of="z"), request("yes", of="y")),
            request("r3", of="x"),
            config=[
                {"requests": ["r2/no"], **self.opaque("not chosen")},
                {"requests": ["r2"], **self.opaque("some")},
                {"requests": ["r1", "r2/yes", "r3"], **self.opaque("all named")},
                self.opaque("all"),
            ],
        )
        outcome = Allocator([slice_of(*plain("a", "b", "c"))], classes).allocate(wanted)
        assert isinstance(outcome, Allocation)
        assert outcome.claims[0].status.allocation is not None
        config = outcome.claims[0].status.allocation.devices.config
        assert [(each.source, each.requests, each.opaque and each.opaque.parameters["is"]) for each in config] == [
            ("FromClass", ("r1", "r3"), "x"),
            ("FromClass", ("r2/yes",), "y"),
            ("FromClaim", ("r2",), "some"),
            ("FromClaim", (), "all named"),
            ("FromClaim", (), "all"),
        ]

    def test_the_same_input_gives_the_same_share_ids_and_different_ones_to_different_shares(self) -> None:
        ids = []
        for _ in range(2):
            allocator = Allocator([slice_of(shared("a"))], [ANY])
            wanted = claim("c1", request("r1"), request("r2"))
            ids.append([one.share_id for one in (*results(allocator, wanted), *results(allocator, claim("c2")))])
        assert ids[0] == ids[1]
        assert len(set(ids[0])) == 3


class TestPools:
    @pytest.mark.parametrize(
        ("slices", "message"),
        [
            (
                [slice_of(device("a", capacity={"x": {"value": "much"}}))],
                'pool "n1-pool", device "a": "much" is not a quantity',
            ),
            ([slice_of(device("a", attributes={"x": {"version": "one"}}))], 'device "dra.networking/n1-pool/a": "one"'),
            ([slice_of(sharedCounters=[{"name": "set", "counters": {"c": {"value": "x"}}}])], 'counter set "set": "x"'),
        ],
    )
    def test_a_value_that_cannot_be_read_names_its_place(self, slices: Any, message: str) -> None:
        with pytest.raises(InvalidInputError, match=message):
            Allocator(slices, [class_of("any", "true")]).allocate(claim("c"))

    def test_only_the_highest_generation_counts(self) -> None:
        slices = [slice_of(device("new"), generation=2, name="b"), slice_of(device("old"), generation=1, name="a")]
        assert devices(Allocator(slices, [ANY]), claim("c")) == ["new"]

    def test_an_incomplete_pool_lends_nothing_and_forbids_to_take_all(self) -> None:
        slices = [slice_of(device("a"), pool="a", count=2), slice_of(device("b"), pool="b")]
        allocator = Allocator(slices, [ANY])
        outcome = refused(allocator, claim("c1", request(allocationMode="All")))
        assert outcome.permanent
        assert "incomplete: only 1 of its 2 slices exist:" in outcome.reason
        assert devices(allocator, claim("c2")) == ["b"]

    def test_a_pool_is_complete_with_slices_of_other_nodes_and_obsolete_with_newer_ones(self) -> None:
        here, there = (slice_of(device(node), node=node, pool="both", name=node, count=2) for node in ("n1", "n2"))
        assert devices(Allocator([here, there], [ANY]), claim("c"), nodes=["n1"]) == ["n1"]
        newer = slice_of(device("x"), node="n2", pool="both", name="x", count=1, generation=2)
        refused(Allocator([here, newer], [ANY]), claim("c"), nodes=["n1"])

    @pytest.mark.parametrize(
        "slices",
        [
            [slice_of(device("a"), device("a"))],
            counted(device("a", draws={"other": 1}), counters={"slots": 1}),
            [slice_of(device("a", draws={"slots": 1}))],
            [
                slice_of(name=f"{number}", count=3, sharedCounters=[{"name": "set", "counters": {"s": {"value": "1"}}}])
                for number in range(2)
            ]
            + [slice_of(device("a"), name="2", count=3)],
        ],
        ids=["device twice", "unknown counter", "unknown set", "set twice"],
    )
    def test_a_pool_that_contradicts_itself_lends_nothing(self, slices: Any) -> None:
        allocator = Allocator(slices, [ANY])
        assert allocator.pools("n1")[0].state == "invalid"
        refused(allocator, claim("c"))
        assert "is not usable" in "\n".join(allocator.explain(claim("c")).lines())
