"""An Exposer that is asked again says what a first pass would say."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.exposure import Exposer, expose
from netdra.model.inventory import Interface, Inventory
from tests.builders import OURS, exclude, exclusive, inventory, pf, shared, sriov, vf

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


def test_what_has_not_changed_is_not_made_again() -> None:
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


def test_what_has_gone_is_forgotten() -> None:
    exposer = Exposer(POLICIES)
    for index in range(50):
        exposer.expose(Inventory(node=inventory().node, interfaces=(Interface(if_name=f"br{index}", type="bridge"),)))
    assert len(exposer._offers) == len(exposer._parts) == 1
