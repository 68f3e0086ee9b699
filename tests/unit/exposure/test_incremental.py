"""An Exposer that is asked again states what a first pass would state."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.cel import CompiledSelector
from netdra.exposure import Exposer, expose
from netdra.exposure.resolve import resolve
from netdra.exposure.templates import rules
from netdra.model.inventory import Interface, Inventory, InventoryNode, attributes
from tests.builders import OURS, exclude, exclusive, inventory, pf, shared, sriov, vf
from tests.effort import cpu

POLICIES = [
    shared("pf-macvlan", f'{OURS}.type == "pf"', deviceNameSuffix="-macvlan"),
    exclusive("pf-whole", f'{OURS}.type == "pf" && {OURS}.mtu > 1000'),
    exclusive("vfs", f'{OURS}.type == "vf"'),
    exclude("bridged", f'{OURS}.masterBridge == "br1"'),
    shared("bridges", f'{OURS}.type == "bridge" && {OURS}.mtu > 1000'),
    exclusive("fails", f'{OURS}["nope"] == {OURS}.mtu', deviceNameSuffix="-f"),
]
CHANGES: list[dict[str, Any]] = [
    {"mtu": 900},
    {"mtu": 9000},
    {"link_speed": 1000},
    {"link_speed": 0},
    {"master": "br0", "master_bridge": "br0"},
    {"master": "br1", "master_bridge": "br1"},
    {"host_uplink": True},
    {"unreadable": ("mtu",)},
    {"num_vfs": 5},
    {"if_name": "renamed"},
]


def start() -> list[Interface]:
    bridges = [Interface(if_name=f"br{index}", type="bridge", mtu=1500) for index in range(3)]
    return [*sriov("ens1", 3), *sriov("ens2", 1, bus=4), *bridges]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 8), st.none() | st.sampled_from(CHANGES)), max_size=6))
def test_after_any_changes_the_answer_is_that_of_a_first_pass(steps: list[tuple[int, dict[str, Any] | None]]) -> None:
    exposer = Exposer(POLICIES)
    interfaces = start()
    for position, change in steps:
        index = position % len(interfaces)
        if change is None and len(interfaces) > 1:
            del interfaces[index]
        elif change is not None:
            interfaces[index] = msgspec.structs.replace(interfaces[index], **change)
        node = inventory(*interfaces)
        assert exposer.expose(node) == expose(node, POLICIES)


def test_a_second_pass_reuses_the_devices_of_unchanged_interfaces() -> None:
    exposer = Exposer(POLICIES)
    before = exposer.expose(inventory(*start()))
    changed = [*start()[:-1], Interface(if_name="br2", type="bridge", mtu=9000)]
    after = exposer.expose(inventory(*changed))
    kept = {id(device) for device in before.devices} & {id(device) for device in after.devices}
    assert len(after.devices) == len(before.devices)
    assert len(kept) == len(before.devices) - 1


def test_a_vf_that_is_enslaved_changes_the_counters_of_its_pf() -> None:
    exposer = Exposer(POLICIES)
    parent = pf("ens1", vfs=1)
    free = exposer.expose(inventory(parent, vf(parent, 0)))
    enslaved = exposer.expose(inventory(parent, vf(parent, 0, master="bond0")))
    assert [each.counters["exclusion-slots"] for each in (*free.counter_sets, *enslaved.counter_sets)] == [2, 1]


def test_labels_of_the_node_count_when_they_change() -> None:
    given_there = exclusive("p", "true", spec={"nodeSelector": {"matchLabels": {"zone": "a"}}})
    exposer = Exposer([given_there])
    nic = Interface(if_name="eth1")
    assert [len(exposer.expose(inventory(nic, labels={"zone": zone})).devices) for zone in "aba"] == [1, 0, 1]


def test_the_exposer_forgets_removed_interfaces() -> None:
    exposer = Exposer(POLICIES)
    for index in range(50):
        exposer.expose(Inventory(node=inventory().node, interfaces=(Interface(if_name=f"br{index}", type="bridge"),)))
    assert len(exposer._offers) == len(exposer._parts) == 1


POLICY_CHANGES = [
    *POLICIES,
    exclusive("vfs", f'{OURS}.type == "vf" && {OURS}.vfIndex > 0'),
    exclusive("vfs", f'{OURS}.type == "vf"', spec={"nodeSelector": {"matchLabels": {"rack": "a"}}}),
    exclude("bridged", f'{OURS}.ifNmae == "br0"'),
    shared("bridges", f'{OURS}.type == "bridge"', additionalAttributes={"rack": "7"}),
    exclusive("fails", f'{OURS}.type == "pf"', deviceNameSuffix="-f"),
]
EDITS = st.one_of(
    st.tuples(st.just("interface"), st.integers(0, 8), st.sampled_from(CHANGES)),
    st.tuples(st.just("policy"), st.booleans(), st.sampled_from(POLICY_CHANGES)),
    st.tuples(st.just("label"), st.just(0), st.sampled_from(["a", "b"])),
)


@settings(max_examples=60)
@given(st.lists(EDITS, max_size=8))
def test_answers_known_from_other_policies_do_not_change_the_result(edits: list[tuple[str, int, Any]]) -> None:
    policies, interfaces, labels = {each.name: each for each in POLICIES}, start(), {"rack": "b"}
    exposer = Exposer(policies.values())
    for kind, which, change in edits:
        if kind == "interface":
            index = which % len(interfaces)
            interfaces[index] = msgspec.structs.replace(interfaces[index], **change)
        elif kind == "label":
            labels = {"rack": change}
        else:
            policies.pop(change.name, None)
            policies |= {change.name: change} if which else {}
            exposer = Exposer(policies.values(), known=exposer.known)
        node = inventory(*interfaces, labels=labels)
        assert exposer.expose(node) == expose(node, policies.values())
        assert exposer.known.answers.keys() == {*interfaces}


def test_a_policy_that_changes_is_asked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    matches = CompiledSelector.matches

    def noted(self: CompiledSelector, device: Any) -> bool:
        asked.append(self.expression)
        return matches(self, device)

    monkeypatch.setattr(CompiledSelector, "matches", noted)
    policies = [exclusive(f"p{number:03}", f'{OURS}.ifName.endsWith("n{number}")') for number in range(300)]
    exposer = Exposer(policies)
    exposer.expose(inventory(*start()))
    assert len(asked) == 300 * len(start())
    asked.clear()
    policies[7] = exclusive("p007", f'{OURS}.ifName.endsWith("s1")')
    Exposer(policies, known=exposer.known).expose(inventory(*start()))
    assert asked == [f'{OURS}.ifName.endsWith("s1")'] * len(start())


def test_resolving_an_interface_takes_four_times_as_long_with_four_times_as_many_policies() -> None:
    def effort(number: int) -> float:
        policies = [exclusive(f"p{at:04}", "true", deviceNameSuffix=f"-s{at}") for at in range(number)]
        made, _ = rules(tuple(policies), InventoryNode(name="n"))
        uplink = Interface(if_name="ens1", type="pf", host_uplink=True)
        return sum(
            cpu(partial(resolve, interface, attributes(interface), made), times=60)
            for interface in (uplink, msgspec.structs.replace(uplink, host_uplink=False))
        )

    assert effort(2000) <= 8 * effort(500)
