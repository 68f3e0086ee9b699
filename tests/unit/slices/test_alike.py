"""Nodes that are alike for a claim are searched once; answers and reasons are those of searching each of them."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from netdra.cel import CelEvaluationError, compile_selector
from netdra.model.claim import DeviceClass, ResourceClaim
from netdra.model.resource import ResourceSlice
from netdra.slices.allocator import Allocator, Refusal, named, search
from netdra.slices.allocator.alike import grouped, matching
from netdra.slices.allocator.pools import Candidate
from netdra.slices.allocator.wishes import SelectorCache, Selectors
from netdra.slices.nodes import SchedulerNode
from tests import draws
from tests.drawn.cases import MAX_STEPS, Case, draw
from tests.drawn.claims import NAMESPACE, classes
from tests.effort import calls
from tests.unit.slices.making import DRIVER, claim, class_of, request, slice_of
from tests.unit.slices.making import device as device_of

NODES = ("n0", "n1", "n2", "n3", "n4")
CASES = 60


def on(node: str, slices: list[Any], source: random.Random) -> Iterator[ResourceSlice]:
    """The slices on another node; with devices that differ in facts without a request, and maybe in more."""
    change = source.choice(("", "", "attribute", "capacity", "taint", "missing", "generation"))
    with_devices = [at for at, each in enumerate(slices) if each["spec"].get("devices")]
    chosen = source.choice(with_devices or [0])  # a drawn node may offer nothing
    for number, each in enumerate(copy.deepcopy(slices)):
        spec = each["spec"]
        each["metadata"]["name"] = f"{each['metadata'].get('name', '')}-{number}-{node}"
        spec["pool"]["name"] += f"-{node}"
        if "nodeName" in spec:
            spec["nodeName"] = node
        devices = spec.get("devices") or []
        for at, device in enumerate(devices):
            device.setdefault("attributes", {})["serial"] = {"string": f"{node}-{at}"}
        if number == chosen and change == "missing":
            continue
        if number == chosen and change == "generation":
            spec["pool"]["generation"] += 1
        for one in devices if number == chosen else ():
            if change == "attribute":
                one["attributes"] = {"serial": one["attributes"]["serial"]}
            if change == "capacity" and one.get("capacity"):
                one["capacity"].pop(source.choice(sorted(one["capacity"])))
            if change == "taint":
                one["taints"] = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
        yield msgspec.convert(each, ResourceSlice)


def allocator(case: Case, slices: list[ResourceSlice]) -> Allocator:
    known = [msgspec.convert(each, DeviceClass) for each in classes()]
    nodes = [named(name) for name in NODES]
    return Allocator(slices, known, nodes=nodes, admin_namespaces=[NAMESPACE], max_steps=MAX_STEPS)


def one_by_one(node: SchedulerNode, tasks: Any) -> None:
    """No node is like another one."""


def test_answers_and_explanations_are_those_of_searching_every_node(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = [0, 0]
    find = search.find

    def counted(*given: Any, **more: Any) -> bool:
        searches[-1] += 1
        return find(*given, **more)

    monkeypatch.setattr(search, "find", counted)
    for number in range(draws.count(CASES, 500)):
        source = random.Random(f"alike {number}")
        case = draw("alike", number, "n")
        slices = [entry for node in NODES for entry in on(node, case.slices, source)]
        quick, slow = allocator(case, slices), allocator(case, slices)
        monkeypatch.setattr(slow._alike, "kind", one_by_one)
        held: dict[str, list[ResourceClaim]] = {}
        for step in case.steps:
            for each in held.pop(step.leaves, ()):
                assert quick.release(each) == slow.release(each)
            claims = [msgspec.convert(each, ResourceClaim) for each in step.claims]
            if not claims:
                continue
            searches.append(0)
            answer = quick.allocate(*claims)
            searches.append(0)
            assert answer == slow.allocate(*claims), case.name
            if isinstance(answer, Refusal):
                assert quick.explain(*claims) == slow.explain(*claims), case.name
            else:
                held[step.pod] = claims
    assert sum(searches[::2]) < 0.8 * sum(searches[1::2])


@pytest.mark.parametrize(
    ("expression", "attributes"),
    [
        ('device.driver == "d" && device.attributes["d"].type == "vf"', {("d", "type")}),
        ('has(device.attributes["d"].a) || "b" in device.attributes["e"]', {("d", "a"), ("e", "b")}),
        ('device.attributes["d"]["a"] == device.attributes["d"].?b.orValue(1)', {("d", "a"), ("d", "b")}),
        ('device.capacity["d"].x.isGreaterThan(quantity("1")) && device.allowMultipleAllocations', set()),
        ('device.attributes["d"].names.exists(name, name == "a")', {("d", "names")}),
        ('dyn(device.attributes["d"]).exists(name, name == "a")', None),
        ('"d" in device.attributes', None),
        ('device.attributes[device.driver].a == "b"', None),
        ('device.attributes["d"]["a" + "b"] == 1', None),
        ('[device].all(one, one.attributes["d"].a == 1)', None),
    ],
)
def test_a_selector_depends_on_the_attributes_that_it_names(
    expression: str, attributes: set[tuple[str, str]] | None
) -> None:
    found = compile_selector(expression).attributes
    assert found == (None if attributes is None else frozenset(attributes))


def test_a_node_more_on_which_a_claim_does_not_fit_costs_no_search() -> None:
    def effort(number: int) -> int:
        slices = [
            slice_of(
                *(device_of(f"v{at}", attributes={"serial": f"{node}-{at}", "type": "vf"}) for at in range(20)),
                node=f"n{node}",
            )
            for node in range(number)
        ]
        made = Allocator(slices, [class_of("any")])
        nowhere = claim("c", request("a"), request("b", f'device.attributes["{DRIVER}"].type == "x"'))
        return calls(lambda: (made.allocate(nowhere), made.explain(nowhere)))

    few, many = effort(50), effort(200)
    devices = (200 - 50) * 20
    assert many - few < 12 * devices


OF_CLASSES = (
    'device.attributes["dra.networking"].speed >= 25',
    'device.attributes["dra.networking"].speed >= 25 && device.attributes["dra.networking"].name == "d3"',
    'device.capacity["dra.networking"].slots.isGreaterThan(quantity("1"))',
    "device.allowMultipleAllocations",
    '"other.example.com" in device.attributes',
    'device.attributes["dra.networking"].missing == "x"',
    'device.attributes["other.example.com"].speed == 1',
)
"""Expressions on attributes, capacities and all of a device, and some that fail on a device."""


def test_devices_match_as_if_each_was_asked() -> None:
    source = random.Random(draws.seed())
    devices = []
    for number in range(200):
        attributes: dict[str, Any] = {"name": f"d{number}", "speed": source.choice((10, 25, "fast"))}
        attributes |= source.choice(({}, {"odd": True}, {"other.example.com/speed": 1}))
        capacity = source.choice(({}, {"slots": {"value": "1"}}, {"slots": {"value": "8"}}))
        devices.append(
            device_of(
                f"d{number}",
                attributes=attributes,
                capacity=capacity,
                allowMultipleAllocations=bool(capacity) and source.random() < 0.5,
            )
        )
    parts = [slice_of(*devices[at : at + 100], node=f"n{at}") for at in (0, 100)]
    found = Allocator(parts, [class_of()])
    candidates = [each for node in found.nodes for pool in found.pools(node) for each in pool.candidates]
    assert len(candidates) == len(devices)
    cache = SelectorCache()
    asked = [cache.of([text]) for text in OF_CLASSES]
    assert [selectors.attributes is None for selectors in asked].count(True) == 1
    groups = grouped(asked, candidates)
    for text, selectors in zip(OF_CLASSES, asked, strict=True):
        alone = SelectorCache().of([text])
        wanted = {each.key for each in candidates if holds(alone, each)}
        assert {each.key for each in matching(selectors, groups)} == wanted, text


def holds(selectors: Selectors, candidate: Candidate) -> bool:
    try:
        return selectors.first_false(candidate) < 0
    except CelEvaluationError:
        return False


def test_a_class_is_asked_once_of_all_devices_with_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """With each device asked, 20,000 devices of 8 classes take 2.3 s of CPU time; with each kind, 0.3 s."""
    devices = [device_of(f"d{at}", attributes={"name": f"d{at}", "speed": at % 3 * 25}) for at in range(120)]
    found = Allocator([slice_of(*devices)], [class_of()])
    candidates = [each for node in found.nodes for pool in found.pools(node) for each in pool.candidates]
    selectors = SelectorCache().of(OF_CLASSES[:1])
    asked: list[Candidate] = []
    first_false = Selectors.first_false

    def counted(self: Selectors, candidate: Candidate) -> int:
        asked.append(candidate)
        return first_false(self, candidate)

    monkeypatch.setattr(Selectors, "first_false", counted)
    assert len([*matching(selectors, grouped([selectors], candidates))]) == 80
    assert len(asked) == 3
