"""Which devices a claim gets: order, selectors, requests, constraints."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.model.claim import ResourceClaim
from netdra.slices.allocator import Allocation, Allocator
from tests.unit.slices.asking import ANY, devices, names, plain, refused, results
from tests.unit.slices.making import (
    alternatives,
    claim,
    class_of,
    device,
    request,
    shared,
    slice_of,
)


class TestOrder:
    def test_pools_go_by_driver_and_name_slices_by_name_and_devices_as_published(self) -> None:
        slices = [
            slice_of(device("z"), pool="b"),
            slice_of(device("y"), device("x"), pool="a", name="s2", count=2),
            slice_of(device("w"), pool="a", name="s1", count=2),
            slice_of(device("v"), pool="c", driver="a.example"),
        ]
        allocator = Allocator(slices, [ANY])
        assert [devices(allocator, claim(f"c{n}"))[0] for n in range(5)] == ["v", "w", "y", "x", "z"]

    def test_pools_with_binding_conditions_come_last(self) -> None:
        waiting = device("a", bindingConditions=["ready"], bindingFailureConditions=["failed"])
        allocator = Allocator([slice_of(waiting, pool="a"), slice_of(device("b"), pool="b")], [ANY])
        first, second = results(allocator, claim("c", request(count=2)))
        assert (first.device, second.device) == ("b", "a")
        assert (second.binding_conditions, second.binding_failure_conditions) == (("ready",), ("failed",))

    def test_the_first_node_by_name_that_fits_is_chosen_unless_nodes_are_named(self) -> None:
        slices = [slice_of(device("a"), node=node) for node in ("n2", "n10", "n1")]
        allocator = Allocator(slices, [ANY])
        chosen = [allocator.allocate(claim(f"c{n}"), nodes=nodes) for n, nodes in enumerate((None, ["n2"], None))]
        assert [outcome.node for outcome in chosen if isinstance(outcome, Allocation)] == ["n1", "n2", "n10"]

    def test_claims_of_a_pod_are_allocated_together_on_one_node_or_not_at_all(self) -> None:
        slices = [slice_of(device("a"), node="n1"), slice_of(device("a"), device("b"), node="n2")]
        allocator = Allocator(slices, [ANY])
        assert devices(allocator, claim("c1"), claim("c2")) == ["a", "b"]
        refused(allocator, claim("c3"), claim("c4"))
        assert devices(allocator, claim("c3")) == ["a"]

    def test_an_allocated_claim_keeps_its_devices_and_ties_the_pod_to_its_node(self) -> None:
        slices = [slice_of(device("a"), device("b"), node=node) for node in ("n1", "n2")]
        allocator = Allocator(slices, [ANY])
        outcome = allocator.allocate(claim("held"), nodes=["n2"])
        assert isinstance(outcome, Allocation)
        both = allocator.allocate(outcome.claims[0], claim("new"))
        assert isinstance(both, Allocation)
        assert (both.node, both.claims[0]) == ("n2", outcome.claims[0])

    def test_a_released_device_can_be_allocated_again(self) -> None:
        allocator = Allocator([slice_of(device("a"))], [ANY])
        assert devices(allocator, claim("c1")) == ["a"]
        refused(allocator, claim("c2"))
        assert allocator.release(claim("c1"))
        assert not allocator.release(claim("c1"))
        assert devices(allocator, claim("c2")) == ["a"]

    def test_claims_that_are_allocated_in_the_input_hold_their_devices(self) -> None:
        first = Allocator([slice_of(device("a"), device("b"))], [ANY]).allocate(claim("c1"))
        assert isinstance(first, Allocation)
        allocator = Allocator([slice_of(device("a"), device("b"))], [ANY], allocated=[*first.claims, claim("open")])
        assert devices(allocator, claim("c2")) == ["b"]


class TestSelectors:
    def test_class_and_request_selectors_must_all_hold(self) -> None:
        allocator = Allocator([slice_of(*plain("a", "b", "c"))], [class_of("some", names("b", "c"), "true")])
        assert devices(allocator, claim("c1", request("r", names("a", "c"), of="some"))) == ["c"]

    def test_an_expression_that_fails_gives_the_claim_up_if_its_device_is_reached(self) -> None:
        slices = [slice_of(*plain("a"), device("b")), slice_of(*plain("a"), node="n2")]
        allocator = Allocator(slices, [class_of("some", names("a"))])
        assert devices(allocator, claim("c1", request(of="some"))) == ["a"]
        outcome = refused(allocator, claim("c2", request(of="some")))
        assert outcome.permanent
        assert "name" in outcome.reason

    def test_an_expression_that_fails_on_a_device_in_use_does_no_harm(self) -> None:
        allocator = Allocator([slice_of(device("a"), *plain("b"))], [ANY, class_of("some", names("b"))])
        assert devices(allocator, claim("c1")) == ["a"]
        assert devices(allocator, claim("c2", request(of="some"))) == ["b"]

    @pytest.mark.parametrize(
        ("wanted", "reason"),
        [
            (request(of="none"), 'DeviceClass "none" not found'),
            (request("r", "device.nonsense"), "does not compile"),
            ({"name": "r"}, "neither exactly nor firstAvailable"),
            (request(count=33), "requests at least 33 devices; the limit is 32"),
            (request(capacity={"requests": {"x": "many"}}), '"many" is not a quantity'),
        ],
    )
    def test_a_claim_that_cannot_be_met_anywhere_is_refused_for_good(self, wanted: Any, reason: str) -> None:
        outcome = refused(Allocator([slice_of(device("a"))], [ANY]), claim("c", wanted))
        assert outcome.permanent
        assert reason in outcome.reason


class TestRequests:
    def test_a_later_request_makes_an_earlier_one_choose_again(self) -> None:
        allocator = Allocator([slice_of(*plain("a", "b"))], [ANY])
        assert devices(allocator, claim("c", request("r1"), request("r2", names("a")))) == ["b", "a"]

    def test_count_takes_devices_in_their_order(self) -> None:
        allocator = Allocator([slice_of(*plain("a", "b", "c"))], [ANY])
        assert devices(allocator, claim("c1", request("r1", count=2), request("r2"))) == ["a", "b", "c"]

    def test_the_first_satisfiable_alternative_is_allocated_and_named_in_the_result(self) -> None:
        allocator = Allocator([slice_of(*plain("a", "b"))], [ANY])
        wanted = alternatives("r", request("best", names("b")), request("good", count=2), request("poor"))
        found = [results(allocator, claim(f"c{n}", wanted))[0] for n in range(2)]
        assert [(one.request, one.device) for one in found] == [("r/best", "b"), ("r/poor", "a")]

    def test_an_alternative_that_makes_the_result_too_long_is_passed_over(self) -> None:
        allocator = Allocator([slice_of(*plain(*(f"d{n:02}" for n in range(40))))], [ANY])
        wanted = [request("r1", count=30), alternatives("r2", request("many", count=3), request("few", count=2))]
        assert results(allocator, claim("c", *wanted))[-1].request == "r2/few"

    def test_all_takes_every_device_that_is_selected_and_large_enough(self) -> None:
        some = [device(name, capacity={"size": {"value": size}}) for name, size in (("a", "1"), ("b", "3"), ("c", "4"))]
        allocator = Allocator([slice_of(*some)], [ANY])
        wanted = request(allocationMode="All", capacity={"requests": {"size": "2"}})
        assert devices(allocator, claim("c", wanted)) == ["b", "c"]

    def test_allocation_mode_all_fails_if_a_device_is_in_use_or_none_matches(self) -> None:
        allocator = Allocator([slice_of(*plain("a", "b"))], [ANY])
        everything = request(allocationMode="All")
        assert devices(allocator, claim("c1")) == ["a"]
        assert not refused(allocator, claim("c2", everything)).permanent
        refused(allocator, claim("c3", request("r", "false", allocationMode="All")))

    def test_two_requests_may_share_a_device_that_allows_it_and_one_request_may_not(self) -> None:
        allocator = Allocator([slice_of(shared("a"), shared("b"))], [ANY])
        assert devices(allocator, claim("c1", request("r1"), request("r2"))) == ["a", "a"]
        assert devices(allocator, claim("c2", request("r1", count=2))) == ["a", "b"]
        refused(allocator, claim("c3", request("r1", count=3)))

    def test_a_search_beyond_the_step_limit_fails_permanently(self) -> None:
        many = [device(f"d{n}", attributes={"dra.networking/side": 1}) for n in range(30)]
        odd = device("odd", attributes={"dra.networking/side": 2})
        last = request("odd", "device.attributes['dra.networking'].side == 2")
        same = {"matchAttribute": "dra.networking/side"}
        allocator = Allocator([slice_of(*many, odd)], [ANY], max_steps=1000)
        outcome = refused(allocator, claim("c", request(count=20), last, constraints=[same]))
        assert outcome.permanent
        assert "too many combinations" in outcome.reason

    def test_a_claim_whose_search_is_too_long_is_named_among_several(self) -> None:
        many = [device(f"d{n}", attributes={"dra.networking/side": 1}) for n in range(30)]
        odd = device("odd", attributes={"dra.networking/side": 2})
        last = request("odd", "device.attributes['dra.networking'].side == 2")
        hard = claim("hard", request(count=20), last, constraints=[{"matchAttribute": "dra.networking/side"}])
        allocator = Allocator([slice_of(*many, odd)], [ANY], max_steps=1000)
        for claims in ((hard, claim("easy")), (claim("easy"), hard)):
            assert refused(allocator, *claims).reason == "claim hard: too many combinations of devices"

    @pytest.mark.parametrize("last", [request("r2", "false"), request("r2", allocationMode="All")])
    def test_a_long_search_for_an_impossible_request_ends_without_trying_all_combinations(self, last: Any) -> None:
        some = [device(f"d{n}", attributes={"dra.networking/side": n % 2}) for n in range(20)]
        allocator = Allocator([slice_of(*some)], [ANY])
        held = claim("held", request("r", "device.attributes['dra.networking'].side == 1"))
        assert devices(allocator, held) == ["d1"]
        outcome = refused(allocator, claim("c", request("r1", count=10), last))
        assert outcome.reason == "c: cannot be allocated on 1 node"

    def test_a_long_search_for_the_only_device_of_a_request_finds_it(self) -> None:
        some = [device(f"d{n:02}", attributes={"dra.networking/side": 1 if n < 12 else 2}) for n in range(20)]
        only = device("only", attributes={"dra.networking/side": 2, "dra.networking/mark": "x"})
        last = request("last", "'mark' in device.attributes['dra.networking']")
        wanted = claim("c", request(count=7), last, constraints=[{"matchAttribute": "dra.networking/side"}])
        found = devices(Allocator([slice_of(*some, only)], [ANY]), wanted)
        assert found == [*(f"d{n}" for n in range(12, 19)), "only"]


class TestConstraints:
    @staticmethod
    def allocator(*values: Any) -> Allocator:
        some = [
            device(f"d{n}", attributes={} if value is None else {"dra.networking/side": value})
            for n, value in enumerate(values)
        ]
        return Allocator([slice_of(*some)], [ANY])

    @staticmethod
    def claim_of(count: int, **constraint: Any) -> ResourceClaim:
        return claim("c", request(count=count), constraints=[constraint])

    def test_match_attribute_wants_one_value_and_devices_without_it_are_left_out(self) -> None:
        wanted = self.claim_of(2, matchAttribute="dra.networking/side")
        assert devices(self.allocator(None, 1, 2, 2), wanted) == ["d2", "d3"]

    @pytest.mark.parametrize("values", [(1, "1"), (1, True), ("1", {"version": "1.0.0"}), (1, 2)])
    def test_values_of_different_types_never_match(self, values: tuple[Any, Any]) -> None:
        refused(self.allocator(*values), self.claim_of(2, matchAttribute="dra.networking/side"))

    def test_distinct_attribute_wants_another_value_on_each(self) -> None:
        wanted = self.claim_of(2, distinctAttribute="dra.networking/side")
        assert devices(self.allocator(1, None, 1, 3), wanted) == ["d0", "d3"]

    def test_lists_match_while_something_is_common_to_all(self) -> None:
        values = (["a", "b"], ["b", "c"], ["c", "a"], ["b"])
        assert devices(self.allocator(*values), self.claim_of(3, matchAttribute="dra.networking/side")) == [
            "d0", "d1", "d3",
        ]  # fmt: skip
        assert devices(self.allocator(*values, ["d"]), self.claim_of(2, distinctAttribute="dra.networking/side")) == [
            "d0", "d4",
        ]  # fmt: skip

    def test_a_constraint_binds_only_the_requests_that_it_names(self) -> None:
        allocator = self.allocator(1, 2, 1)
        same = {"requests": ["r1", "r3"], "matchAttribute": "dra.networking/side"}
        wanted = claim("c", request("r1"), request("r2"), request("r3"), constraints=[same])
        assert devices(allocator, wanted) == ["d0", "d1", "d2"]

    def test_a_constraint_may_name_one_alternative(self) -> None:
        same = {"requests": ["r1", "r2/same"], "matchAttribute": "dra.networking/side"}
        wanted = claim("c", request("r1"), alternatives("r2", request("same"), request("other")), constraints=[same])
        assert [one.request for one in results(self.allocator(1, 2), wanted)] == ["r1", "r2/other"]

    def test_an_attribute_may_be_published_without_the_drivers_domain(self) -> None:
        some = [device("a", attributes={"side": 1}), device("b", attributes={"dra.networking/side": 1})]
        wanted = self.claim_of(2, matchAttribute="dra.networking/side")
        assert devices(Allocator([slice_of(*some)], [ANY]), wanted) == ["a", "b"]

    def test_all_devices_under_a_constraint_that_keeps_one_out_is_an_error(self) -> None:
        wanted = claim("c", request(allocationMode="All"), constraints=[{"matchAttribute": "dra.networking/side"}])
        assert refused(self.allocator(1, 2), wanted).permanent

    def test_a_broken_constraint_for_all_devices_is_permanent_even_without_free_capacity(self) -> None:
        some = [shared(name, attributes={"dra.networking/side": side}) for name, side in (("a", 1), ("b", 2))]
        allocator = Allocator([slice_of(*some)], [ANY])
        full: Any = {"capacity": {"requests": {"slots": "64"}}}
        second = request("r", "device.attributes['dra.networking'].side == 2", **full)
        assert devices(allocator, claim("full", second)) == ["b"]
        same = {"matchAttribute": "dra.networking/side"}
        assert refused(allocator, claim("c", request(allocationMode="All"), constraints=[same])).permanent
        assert not refused(allocator, claim("c", request(allocationMode="All"))).permanent
