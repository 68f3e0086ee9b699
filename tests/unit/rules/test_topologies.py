"""All checks of a topology are made in one call, and every finding has its place in the topology."""

from collections.abc import Callable

from netdra.model.topology import NetworkTopology
from netdra.rules.topologies import check_together, check_topology

Topology = Callable[..., NetworkTopology]


def test_each_kind_of_check_is_made_and_points_at_the_step_as_it_was_declared(topology: Topology) -> None:
    wrong = topology("""
    - {name: w, type: vlan, dependOn: [a], config: {name: y, id: 5, master: "{{ a.interfaceName }}"}}
    - {name: v, type: vlan, dependOn: [a], config: {name: x, id: 5, master: "{{ a.interfaceName }}"}}
    - {name: a, type: sriov, selector: {cel: "1"}, config: {vlan: 4095}}
    """)
    found = {finding.path: finding.what for finding in check_topology(wrong)}
    assert found.keys() == {
        ("spec", "steps", 2, "selector", "cel"),
        ("spec", "steps", 2, "config", "vlan"),
        ("spec", "steps", 1, "config", "id"),
    }
    assert "must be a bool" in found["spec", "steps", 2, "selector", "cel"]
    assert "is already created by step" in found["spec", "steps", 1, "config", "id"]


def test_plans_are_checked_only_if_interfaces_have_names(topology: Topology) -> None:
    wrong = topology("""
    - {name: a, type: sriov}
    - {name: w, type: vlan, dependOn: [a], config: {name: eth0, id: 5, master: "{{ a.interfaceName }}"}}
    - {name: v, type: vlan, dependOn: [a], config: {name: x, id: 5, master: "{{ a.interfaceName }}"}}
    """)
    assert [finding.path for finding in check_topology(wrong)] == [("spec", "steps", 1, "config", "name")]


def test_a_sound_topology_has_no_findings(recorded: Topology) -> None:
    assert check_topology(recorded("ai-bonded-rdma")) == ()


def test_a_clash_between_topologies_is_reported_for_the_later_one(topology: Topology) -> None:
    first = topology("- {name: c, type: sriov, extendedResourceName: x.org/vf}", name="a-b")
    second = topology("- {name: b-c, type: sriov, extendedResourceName: x.org/vf}", name="a")
    found = list(check_together({"a-b": first, "a": second}))
    assert [(name, finding.path) for name, finding in found] == [
        ("a", ("spec", "steps", 0, "name")),
        ("a", ("spec", "steps", 0, "extendedResourceName")),
    ]
