"""The resources of shared devices: capacities with their request policies, and counters that keep personas apart."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from netdra.model import quantity
from netdra.model.claim import ResourceClaim
from netdra.slices.allocator import Allocation, Allocator
from tests.unit.slices.making import claim, class_of, counted, device, request, shared, slice_of

ANY = class_of()
BY_NAME = [
    class_of(name, f"device.attributes['dra.networking'].name == '{name}'") for name in ("pf", "mac", "ip", "vf")
]


def consumed(capacity: dict[str, Any], *requests: Any) -> list[dict[str, str | int]]:
    """The consumption of claims that request these amounts of "bw", one after the other, until one does not fit."""
    allocator = Allocator([slice_of(shared("a", capacity))], [ANY])
    found: list[dict[str, str | int]] = []
    for number, amount in enumerate(requests):
        wanted: dict[str, Any] = {} if amount is None else {"capacity": {"requests": {"bw": amount}}}
        outcome = allocator.allocate(claim(f"c{number}", request(**wanted)))
        if not isinstance(outcome, Allocation):
            break
        assert outcome.claims[0].status.allocation is not None
        found.append(dict(outcome.claims[0].status.allocation.devices.results[0].consumed_capacity))
    return found


def policy(**fields: Any) -> dict[str, Any]:
    return {"bw": {"value": "10", "requestPolicy": {"default": "1", **fields}}}


class TestCapacity:
    def test_without_a_policy_the_first_claim_takes_all_unless_it_asks_for_less(self) -> None:
        assert consumed({"bw": {"value": "10"}}, None, "1") == [{"bw": "10"}]
        assert consumed({"bw": {"value": "10"}}, "4", "6", "1") == [{"bw": "4"}, {"bw": "6"}]

    def test_the_default_is_consumed_where_nothing_is_asked_for(self) -> None:
        capacity = policy(default="3")
        assert consumed(capacity, None, None, None, None) == [{"bw": "3"}] * 3

    def test_every_capacity_is_consumed_and_all_must_fit(self) -> None:
        capacity = policy() | {"slots": {"value": "2", "requestPolicy": {"default": "1"}}}
        assert consumed(capacity, "3", None, None) == [{"bw": "3", "slots": "1"}, {"bw": "1", "slots": "1"}]

    @pytest.mark.parametrize(
        ("limits", "asked", "got"),
        [
            ({"min": "2", "max": "8", "step": "3"}, "1", "2"),
            ({"min": "2", "max": "8", "step": "3"}, "2", "2"),
            ({"min": "2", "max": "8", "step": "3"}, "3", "5"),
            ({"min": "2", "max": "8", "step": "3"}, "8", "8"),
            ({"min": "2", "max": "8", "step": "3"}, "9", None),
            ({"min": "2", "max": "8"}, "3500m", "3500m"),
            ({"min": "2", "max": "8"}, "8001m", None),
            ({"min": "500m", "step": "1"}, "400m", "500m"),
            ({"min": "500m", "step": "1"}, "500m", "1"),
            ({"min": "1", "step": "1"}, "1500m", "2"),
            ({"min": "1", "step": "1"}, "100u", "1"),
        ],
    )
    def test_a_range_raises_to_its_minimum_rounds_up_to_a_step_and_ends_at_its_maximum(
        self, limits: Any, asked: str, got: str | None
    ) -> None:
        assert consumed(policy(default="2", validRange=limits), asked) == ([] if got is None else [{"bw": got}])

    def test_the_result_is_written_in_the_steps_unit(self) -> None:
        capacity = {
            "bw": {"value": "10Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}}
        }
        assert consumed(capacity, "1500Mi", "1") == [{"bw": "2Gi"}, {"bw": "1Gi"}]

    @pytest.mark.parametrize(("asked", "got"), [("1", "1"), ("2", "4"), ("4", "4"), ("5", None)])
    def test_valid_values_round_up_to_the_next_of_them(self, asked: str, got: str | None) -> None:
        assert consumed(policy(validValues=["1", "4"]), asked) == ([] if got is None else [{"bw": got}])

    @pytest.mark.parametrize("asked", ["9223372036854775808", "9223372036854775807"])
    def test_a_request_that_cannot_be_rounded_gives_the_claim_up(self, asked: str) -> None:
        capacity = policy(validRange={"min": "0", "step": "10"}, default="10")
        allocator = Allocator([slice_of(shared("a", capacity)), slice_of(device("b", capacity={"bw": {"value": "9E"}}),
                                                                         pool="z")], [ANY])  # fmt: skip
        outcome = allocator.allocate(claim("c", request(capacity={"requests": {"bw": asked}})))
        assert not isinstance(outcome, Allocation)
        assert outcome.permanent
        assert "too large to be rounded" in outcome.reason

    def test_an_unknown_capacity_leaves_the_device_out(self) -> None:
        allocator = Allocator([slice_of(shared("a"), device("b", capacity={"bw": {"value": "1"}}))], [ANY])
        outcome = allocator.allocate(claim("c", request(capacity={"requests": {"bw": "1"}})))
        assert isinstance(outcome, Allocation)
        assert outcome.claims[0].status.allocation is not None
        (result,) = outcome.claims[0].status.allocation.devices.results
        assert (result.device, result.share_id, dict(result.consumed_capacity)) == ("b", None, {})

    def test_capacity_consumed_by_a_share_is_free_after_its_release(self) -> None:
        allocator = Allocator([slice_of(shared("a", policy(default="6")))], [ANY])
        assert isinstance(allocator.allocate(claim("c1")), Allocation)
        assert not isinstance(allocator.allocate(claim("c2")), Allocation)
        allocator.release(claim("c1"))
        assert isinstance(allocator.allocate(claim("c2")), Allocation)


class TestCounters:
    """PF passthrough, macvlan and ipvlan personas of which only one kind may be in use, and VFs (decision D2)."""

    VFS = 3

    def allocator(self) -> Allocator:
        total = {"exclusion-slots": self.VFS + 1, "macvlan-capacity": 64, "ipvlan-capacity": 64}
        group = {"macvlan-capacity": 64, "ipvlan-capacity": 64}

        def name(text: str) -> dict[str, str]:
            return {"dra.networking/name": text}

        devices = [
            device("pf", attributes=name("pf"), draws=total),
            shared("mac", attributes=name("mac"), draws=group),
            shared("ip", attributes=name("ip"), draws=group),
            *(device(f"vf{n}", attributes=name("vf"), draws={"exclusion-slots": 1}) for n in range(self.VFS)),
        ]
        return Allocator(counted(*devices, counters=total), BY_NAME)

    @staticmethod
    def fits(allocator: Allocator, *classes: str) -> list[bool]:
        claims = [claim(f"{of}{number}", request(of=of)) for number, of in enumerate(classes)]
        return [isinstance(allocator.allocate(each), Allocation) for each in claims]

    def test_passthrough_excludes_everything_and_is_excluded_by_anything(self) -> None:
        assert self.fits(self.allocator(), "pf", "vf", "mac", "ip", "pf") == [True, False, False, False, False]
        for first in ("vf", "mac", "ip"):
            assert self.fits(self.allocator(), first, "pf") == [True, False]

    def test_personas_of_a_group_exclude_each_other_and_shares_of_one_are_charged_once(self) -> None:
        assert self.fits(self.allocator(), "mac", "mac", "ip", "mac") == [True, True, False, True]

    def test_virtual_functions_coexist_with_shared_personas(self) -> None:
        assert self.fits(self.allocator(), "vf", "mac", "vf", "vf", "vf") == [True, True, True, True, False]

    def test_counters_come_back_with_the_last_share(self) -> None:
        allocator = self.allocator()
        assert self.fits(allocator, "mac", "mac") == [True, True]
        allocator.release(claim("mac0"))
        assert self.fits(allocator, "ip") == [False]
        allocator.release(claim("mac1"))
        assert self.fits(allocator, "ip") == [True]

    def test_one_claim_may_take_two_shares_and_pays_once(self) -> None:
        wanted = claim("c", request("r1", of="mac"), request("r2", of="mac"))
        allocator = self.allocator()
        assert isinstance(allocator.allocate(wanted), Allocation)
        assert self.fits(allocator, "ip") == [False]

    def test_within_one_claim_they_exclude_each_other_too(self) -> None:
        wanted = claim("c", request("r1", of="mac"), request("r2", of="ip"))
        assert not isinstance(self.allocator().allocate(wanted), Allocation)

    def test_backtracking_gives_counters_back(self) -> None:
        draws = {"slots": 2}
        some = [device("a", draws=draws, attributes={"dra.networking/side": 1}),
                device("b", draws={"slots": 1}, attributes={"dra.networking/side": 2}),
                device("c", draws={"slots": 1}, attributes={"dra.networking/side": 2})]  # fmt: skip
        allocator = Allocator(counted(*some, counters={"slots": 2}), [ANY])
        wanted = claim("c", request(count=2))
        outcome = allocator.allocate(wanted)
        assert isinstance(outcome, Allocation)
        assert outcome.claims[0].status.allocation is not None
        assert [one.device for one in outcome.claims[0].status.allocation.devices.results] == ["b", "c"]

    def test_a_counter_below_zero_closes_the_pool_for_all_that_draw(self) -> None:
        free = counted(device("a", draws={"x": 2}), device("b", draws={"y": 1}), device("c"), counters={"x": 2, "y": 1})
        taken = Allocator(free, [ANY]).allocate(claim("old"))
        assert isinstance(taken, Allocation)
        less = counted(device("a", draws={"x": 2}), device("b", draws={"y": 1}), device("c"), counters={"x": 1, "y": 1})
        allocator = Allocator(less, [ANY], allocated=taken.claims)
        assert isinstance(allocator.allocate(claim("c1")), Allocation)
        assert not isinstance(allocator.allocate(claim("c2")), Allocation)
        assert "is exceeded by 1: a is held by claim old\n" in "\n".join(allocator.explain(claim("c2")).lines())

    def test_a_device_that_is_published_for_two_nodes_draws_for_both(self) -> None:
        sets = [{"name": "set", "counters": {"slots": {"value": "3"}}}]
        slices = [
            slice_of(pool="both", name="0", count=3, sharedCounters=sets),
            slice_of(device("a", draws={"slots": 1}), device("b", draws={"slots": 2}), pool="both", name="1", count=3),
            slice_of(device("a", draws={"slots": 1}), node="n2", pool="both", name="2", count=3),
        ]
        allocator = Allocator(slices, [ANY])
        assert isinstance(allocator.allocate(claim("c1"), nodes=["n1"]), Allocation)
        assert not isinstance(allocator.allocate(claim("c2"), nodes=["n1"]), Allocation)

    def test_admin_access_is_charged_while_it_is_allocated_and_not_afterwards(self) -> None:
        some = [device("a", draws={"slots": 1}), device("b", draws={"slots": 1})]
        allocator = Allocator(counted(*some, counters={"slots": 1}), [ANY], admin_namespaces=["default"])

        def look(name: str, count: int) -> ResourceClaim:
            return claim(name, request(adminAccess=True, count=count))

        assert not isinstance(allocator.allocate(look("two", 2)), Allocation)
        assert isinstance(allocator.allocate(look("one", 1)), Allocation)
        assert isinstance(allocator.allocate(claim("user")), Allocation)
        assert not isinstance(allocator.allocate(look("late", 1)), Allocation)


@pytest.mark.parametrize(
    ("value", "like", "text"),
    [(2048, "1Ki", "2Ki"), (2049, "1Ki", "2049"), (0, "1Gi", "0"), (2**30, "5", str(2**30)), (3 * 2**30, "1Mi", "3Gi")],
)
def test_quantities_keep_a_binary_unit(value: int, like: str, text: str) -> None:
    assert quantity.render(value, like=like) == text
    assert quantity.parse(text) == Decimal(value)
