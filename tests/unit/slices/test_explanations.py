"""Why a claim does not fit, in words: who is in the way, what is left, and never a line per device."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.model.claim import ResourceClaim
from netdra.slices.allocator import Allocation, Allocator, Refusal, SchedulerNode
from netdra.slices.allocator.explain import Explanation, NodeExplanation
from tests.unit.slices.making import alternatives, claim, class_of, counted, device, request, shared, slice_of

ANY = class_of()
KINDS = [class_of(kind, f"device.attributes['dra.networking'].type == '{kind}'") for kind in ("pf", "vf")]


def allocate(allocator: Allocator, *claims: ResourceClaim) -> None:
    for each in claims:
        assert isinstance(allocator.allocate(each), Allocation)


def why(allocator: Allocator, *claims: ResourceClaim) -> list[str]:
    assert isinstance(allocator.allocate(*claims), Refusal)
    return allocator.explain(*claims).lines()


def nic(vfs: int, node: str = "n1") -> list[Any]:
    """A PF with passthrough and VFs."""
    pf = device("enp3s0f0", attributes={"dra.networking/type": "pf"}, draws={"exclusion-slots": vfs + 1})
    virtual = [
        device(f"enp3s0f0v{n}", attributes={"dra.networking/type": "vf"}, draws={"exclusion-slots": 1})
        for n in range(vfs)
    ]
    return counted(pf, *virtual, counters={"exclusion-slots": vfs + 1}, node=node)


def test_a_counter_shortage_names_the_needed_and_free_amounts_and_the_holders() -> None:
    allocator = Allocator(nic(8), KINDS)
    allocate(allocator, claim("x", request(of="vf")))
    assert why(allocator, claim("c", request("pf0", of="pf"))) == [
        "n1:",
        '  c, request "pf0": 1 device of class "pf" requested, 0 available',
        "    PF enp3s0f0: requires exclusion-slots 9, 8 available: VF enp3s0f0v0 is held by claim x",
        '    8 devices: not of class "pf"',
    ]


def test_devices_that_name_another_node_are_counted_apart() -> None:
    some = [device("a", nodeName="n2"), device("b", nodeName="n2"), device("c", nodeName="n1")]
    allocator = Allocator(
        [slice_of(*some, perDeviceNodeSelection=True)], [ANY], nodes=[SchedulerNode("n1"), SchedulerNode("n2")]
    )
    assert why(allocator, claim("c", request("r", count=3))) == [
        "n1:",
        '  c, request "r": 3 devices of class "any" requested, 1 available',
        "    2 devices: are on other nodes",
        "n2:",
        '  c, request "r": 3 devices of class "any" requested, 2 available',
        "    1 device: are on other nodes",
    ]


def test_five_hundred_devices_do_not_make_five_hundred_lines() -> None:
    allocator = Allocator(nic(500), KINDS)
    allocate(allocator, *(claim(f"x{n}", request(of="vf")) for n in range(500)))
    lines = why(allocator, claim("c", request(of="vf")))
    assert lines[2:] == [
        "    VF enp3s0f0v0, VF enp3s0f0v1, VF enp3s0f0v2 and 497 more: held by claims x0, x1, x2 and 497 more",
        '    1 device: not of class "vf"',
    ]


def test_many_nodes_are_summed_up() -> None:
    slices = [each for number in range(40) for each in nic(2, f"n{number:02}")]
    allocator = Allocator(slices, KINDS)
    allocate(allocator, *(claim(f"x{n}", request(of="vf")) for n in range(80)))
    lines = why(allocator, claim("c", request(of="vf")))
    assert len(lines) < 20
    assert lines[-1] == "37 more nodes: 74 in use, 37 not of the class"


def test_a_capacity_shortage_names_the_amount_left_and_the_holders() -> None:
    some = {"bw": {"value": "25G", "requestPolicy": {"default": "5G"}}}
    allocator = Allocator([slice_of(shared("a", some), device("b"))], [ANY])
    allocate(allocator, *(claim(f"x{n}", request(capacity={"requests": {"bw": "5G"}})) for n in range(5)))
    assert why(allocator, claim("c", request(capacity={"requests": {"bw": "10G"}})))[2:] == [
        "    a: requires bw 10G, 0 of 25G left: held by claims x0, x1, x2 and 2 more",
        "    b: does not have the capacity bw",
    ]


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"validValues": ["1", "2"]}, "capacity bw: possible requests are 1, 2, not 3"),
        ({"validRange": {"min": "1", "max": "2"}}, "capacity bw: the maximum request is 2, not 3"),
    ],
)
def test_a_violated_request_policy_is_explained(policy: Any, text: str) -> None:
    some = {"bw": {"value": "9", "requestPolicy": {"default": "1", **policy}}}
    allocator = Allocator([slice_of(shared("a", some))], [ANY])
    assert why(allocator, claim("c", request(capacity={"requests": {"bw": "3"}})))[2:] == [f"    a: {text}"]


def test_an_impossible_capacity_request_blames_no_claim() -> None:
    some = {"bw": {"value": "9", "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "4"}}}}
    allocator = Allocator([slice_of(shared("a", some), shared("b", {"bw": {"value": "3"}}))], [ANY])
    allocate(allocator, *(claim(f"x{n}", request(capacity={"requests": {"bw": "3"}})) for n in range(4)))
    assert why(allocator, claim("c", request(capacity={"requests": {"bw": "5"}})))[2:] == [
        "    a: capacity bw: the maximum request is 4, not 5",
        "    b: requires bw 5, but has only 3 in total",
    ]


def test_capacity_allocated_to_another_request_of_the_claim_is_explained() -> None:
    some = {"bw": {"value": "4", "requestPolicy": {"default": "3"}}}
    allocator = Allocator([slice_of(shared("a", some))], [ANY])
    assert why(allocator, claim("c", request("one"), request("two")))[1:] == [
        '  c, request "two": 1 device of class "any" requested, 0 available after request "one" got a',
        '    a: requires bw 3, 1 of 4 left: allocated to request "one"',
    ]


def test_an_unused_counter_is_explained_with_its_total() -> None:
    pf = device("enp3s0f0", attributes={"dra.networking/type": "pf"}, draws={"exclusion-slots": 3})
    allocator = Allocator(counted(pf, counters={"exclusion-slots": 2}), KINDS)
    assert why(allocator, claim("c", request(of="pf")))[2:] == [
        "    PF enp3s0f0: requires exclusion-slots 3, but the pool has only 2 in total"
    ]


def test_no_line_ends_in_a_colon_with_nothing_behind_it() -> None:
    assert Explanation(nodes=(NodeExplanation("n1", (), ()),)).lines() == [
        "n1: each request can be allocated alone, but no combination of devices was found for all of them"
    ]


def test_a_failing_cel_expression_is_reported_with_its_class_and_device() -> None:
    asking = class_of("asking", 'device.attributes["example.com"].speed > 5')
    allocator = Allocator([slice_of(device("a"))], [asking])
    first, *_ = why(allocator, claim("c", request(of="asking")))
    assert first.startswith('claim c: request "r" of class "asking", device ')
    assert "/a: CEL expression fails on this device at line 1, column 34: Key not found in map" in first
    everything = claim("d", request(of="asking", allocationMode="All"))
    assert 'claim d: request "r" of class "asking", device ' in why(allocator, everything)[0]


def test_an_empty_attribute_value_is_printed_as_empty_quotes() -> None:
    some = [device("a", attributes={"side": "x"}), device("b", attributes={"side": ""})]
    allocator = Allocator([slice_of(*some)], [ANY])
    same = {"matchAttribute": "dra.networking/side"}
    lines = why(allocator, claim("c", request(count=2), constraints=[same]))
    assert lines[-1] == '    b: dra.networking/side is "", but must be x as on the claim\'s other devices'


def test_taints_constraints_and_selectors_are_explained() -> None:
    tainted = device("a", taints=[{"key": "down", "value": "link", "effect": "NoSchedule"}])
    some = [tainted, device("b", attributes={"side": 1}), device("c", attributes={"side": 2}), device("d")]
    allocator = Allocator([slice_of(*some)], [ANY, class_of("none", "device.driver == 'other'")])
    same = {"matchAttribute": "dra.networking/side"}
    assert why(allocator, claim("c", request(count=2), constraints=[same])) == [
        "n1:",
        '  c, request "r": 2 devices of class "any" requested, 1 available',
        "    a: has the taint down=link:NoSchedule, which the request does not tolerate",
        "    c: dra.networking/side is 2, but must be 1 as on the claim's other devices",
        "    d: does not have the attribute dra.networking/side, which a constraint compares",
    ]
    assert why(allocator, claim("c", request("r", "true", "false")))[2:] == [
        "    4 devices: not selected by the request's expression 2"
    ]
    assert why(allocator, claim("c", request(of="none")))[2:] == ['    4 devices: not of class "none"']


def test_a_distinct_attribute_constraint_is_explained() -> None:
    some = [device("a", attributes={"side": 1}), device("b", attributes={"side": 1})]
    apart = {"distinctAttribute": "dra.networking/side"}
    lines = why(Allocator([slice_of(*some)], [ANY]), claim("c", request(count=2), constraints=[apart]))
    assert lines[2:] == ["    b: dra.networking/side is 1, as on another device of the claim"]


def test_requests_fitting_alone_but_not_together_are_explained_in_order() -> None:
    allocator = Allocator(nic(2), KINDS)
    assert why(allocator, claim("c", request("one", of="vf"), request("two", of="pf"))) == [
        "n1:",
        '  c, request "two": 1 device of class "pf" requested, 0 available after request "one" got VF enp3s0f0v0',
        '    PF enp3s0f0: requires exclusion-slots 3, 2 available: VF enp3s0f0v0 is allocated to request "one"',
        '    2 devices: not of class "pf"',
    ]


def test_a_device_allocated_to_another_request_is_explained() -> None:
    allocator = Allocator([slice_of(device("a"))], [ANY])
    lines = why(allocator, claim("c1", request("one")), claim("c2", request("two")))
    assert lines[1:] == [
        '  c2, request "two": 1 device of class "any" requested, 0 available after request "one" got a',
        '    a: is already allocated to request "one"',
    ]


def test_every_alternative_of_a_request_is_explained() -> None:
    allocator = Allocator(nic(1), KINDS)
    allocate(allocator, claim("x", request(of="vf")))
    lines = why(allocator, claim("c", alternatives("r", request("best", of="pf"), request("next", of="vf"))))
    assert [line for line in lines if "requested" in line] == [
        '  c, request "r/best": 1 device of class "pf" requested, 0 available',
        '  c, request "r/next": 1 device of class "vf" requested, 0 available',
    ]


def test_all_devices_that_are_wanted_name_the_one_in_use() -> None:
    allocator = Allocator([slice_of(device("a"), device("b"))], [ANY])
    allocate(allocator, claim("x", namespace="team"))
    assert why(allocator, claim("c", request(allocationMode="All")))[1:] == [
        '  c, request "r": all devices of class "any" requested, 1 available',
        "    a: held by claim team/x",
    ]


def test_all_devices_leave_out_those_that_are_too_small() -> None:
    some = [device(name, capacity={"size": {"value": size}}) for name, size in (("a", "1"), ("b", "4"))]
    allocator = Allocator([slice_of(*some)], [ANY])
    everything = request("all", allocationMode="All", capacity={"requests": {"size": "2"}})
    lines = why(allocator, claim("c", everything, request("none", "false")))
    assert lines[1:] == [
        '  c, request "none": 1 device of class "any" requested, 0 available',
        "    2 devices: not selected by the request's expression 1",
    ]


def test_a_permanent_reason_is_printed_alone_and_an_unusable_pool_is_named() -> None:
    assert why(Allocator([slice_of(device("a"))], []), claim("c")) == ['request "r": DeviceClass "any" not found']
    lines = why(Allocator([slice_of(device("a"), count=2)], [ANY]), claim("c"))
    assert lines == [
        "n1:",
        "  pool n1-pool is not usable: only 1 of its 2 slices exist: it is being updated",
        '  c, request "r": 1 device of class "any" requested, 0 available',
    ]
    assert why(Allocator([], [ANY]), claim("c")) == ["no nodes to try"]
