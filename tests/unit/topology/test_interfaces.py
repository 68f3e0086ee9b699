"""Every interface has its name before anything runs, and no two have the same."""

from collections.abc import Callable

import pytest

from netdra.model.errors import InvalidInputError
from netdra.model.topology import NetworkTopology
from netdra.topology.graph import compile_topology
from netdra.topology.interfaces import assign, examine, foreseen
from netdra.topology.references import Reference
from tests.plans import step

Topology = Callable[..., NetworkTopology]


def names(topology: Topology, *several: str) -> list[dict[str, str]]:
    return list(assign([compile_topology(topology(steps, name=f"t{at}")) for at, steps in enumerate(several)]))


def test_devices_are_numbered_over_all_topologies_of_the_pod(topology: Topology) -> None:
    first = "- {name: a, type: sriov}\n- {name: b, type: sriov}\n- {name: m, type: macvlan, dependOn: [a]}"
    second = "- {name: a, type: host-device}"
    assert names(topology, first, second) == [{"a": "net1", "b": "net2", "m": "net4"}, {"a": "net3"}]


def test_a_name_that_is_given_is_kept_and_its_number_not_used_again(topology: Topology) -> None:
    steps = "- {name: a, type: sriov}\n- {name: b, type: sriov, config: {name: net1}}\n- {name: c, type: sriov}"
    assert names(topology, steps) == [{"a": "net2", "b": "net1", "c": "net3"}]


def test_a_derived_step_creates_the_interface_in_name_and_changes_the_one_in_dev(topology: Topology) -> None:
    steps = """
    - {name: a, type: sriov}
    - {name: v, type: vlan, dependOn: [a], config: {name: data0, master: "{{ a.interfaceName }}"}}
    - {name: t, type: tuning, dependOn: [v], config: {dev: "{{ v.interfaceName }}"}}
    - {name: u, type: tuning, dependOn: [t], config: {dev: data0}}
    """
    assert names(topology, steps) == [{"a": "net1", "v": "data0", "t": "data0", "u": "data0"}]


def test_without_a_name_a_bond_is_bond0_and_a_change_is_of_the_last_dependency(topology: Topology) -> None:
    steps = """
    - {name: a, type: sriov}
    - {name: b, type: sriov}
    - {name: bond, type: bond, dependOn: [a, b]}
    - {name: sbr, type: sbr, dependOn: [a, bond]}
    """
    assert names(topology, steps) == [{"a": "net1", "b": "net2", "bond": "bond0", "sbr": "bond0"}]


def test_an_unknown_plugin_with_a_name_of_its_own_makes_that_interface(topology: Topology) -> None:
    steps = "- {name: a, type: sriov}\n- {name: b, type: tunnel, dependOn: [a], config: {name: tun5}}"
    assert names(topology, steps) == [{"a": "net1", "b": "tun5"}]


def test_a_name_that_only_refers_to_an_interface_is_not_kept_for_another_one(topology: Topology) -> None:
    steps = "- {name: a, type: sriov}\n- {name: t, type: tuning, dependOn: [a], config: {dev: net1}}"
    assert names(topology, steps) == [{"a": "net1", "t": "net1"}]


@pytest.mark.parametrize("name", ["net2", "nte1", "eth1"])
def test_an_interface_that_no_step_makes_is_not_changed(topology: Topology, name: str) -> None:
    steps = f"- {{name: a, type: sriov}}\n- {{name: t, type: tuning, dependOn: [a], config: {{dev: {name}}}}}"
    with pytest.raises(InvalidInputError, match=f'step "t": changes interface "{name}", which no step makes') as error:
        names(topology, steps)
    assert "interfaces are net1" in error.value.hint


def test_an_extra_interface_of_an_unknown_plugin_may_be_changed(topology: Topology) -> None:
    steps = "- {name: a, type: tunnels}\n- {name: t, type: tuning, dependOn: [a], config: {dev: tun7}}"
    assert names(topology, steps) == [{"a": "net1", "t": "tun7"}]


def test_a_name_may_be_made_of_names_that_are_known(topology: Topology) -> None:
    steps = (
        "- {name: a, type: sriov}\n- {name: v, type: vlan, dependOn: [a], config: {name: '{{ a.interfaceName }}.5'}}"
    )
    assert names(topology, steps) == [{"a": "net1", "v": "net1.5"}]


V = "- {name: a, type: sriov}\n- {name: v, type: vlan, dependOn: [a], config: {name: %s}}"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a234567890123456", 'step "v": interface name "a234567890123456" is longer than 15 bytes'),
        ("éééééééé", "longer than 15 bytes"),
        ("eth0", '"eth0" is not free in a pod'),
        ("lo", "not free"),
        ("all", "not free"),
        ("..", "not free"),
        ("a/b", "has a sign"),
        ("'a b'", "has a sign"),
        ('"a\\tb"', "has a sign"),
        ("a:1", "has a sign"),
        ("eth%d", "has a sign"),
        ("\u0435th0", "has a sign"),
        ("5", "config.name is a number, not an interface's name"),
        ("[x]", "config.name is a list, not an interface's name"),
        ("'{{ a.mac }}'", "is not known before the steps run"),
        ("'{{ a.interfaceName }}'", 'interface "net1" is also that of step "a"'),
    ],
)
def test_a_name_that_cannot_be_is_refused_before_anything_runs(topology: Topology, name: str, why: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        names(topology, V % name)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("name", "code"),
    [("5", "ND1292"), ("[net7]", "ND1292"), ('"{{ a.mac }}"', "ND1293"), ("a-name-of-16-byte", "ND1291")],
)
def test_an_error_in_a_name_has_the_code_of_its_cause(topology: Topology, name: str, code: str) -> None:
    steps = f"- {{name: a, type: sriov}}\n- {{name: v, type: vlan, dependOn: [a], config: {{id: 5, name: {name}}}}}"
    _, (error,) = examine([compile_topology(topology(steps))])
    assert (error.code, error.path) == (code, ("spec", "steps", 1, "config", "name"))


def test_two_topologies_of_one_pod_cannot_make_the_same_interface(topology: Topology) -> None:
    with pytest.raises(InvalidInputError) as caught:
        names(topology, V % "data0", V % "data0")
    assert 'NetworkTopology "t1", step "v": interface "data0" is also that of step "v" of NetworkTopology "t0"' in str(
        caught.value
    )


def test_an_interface_cannot_be_changed_before_it_is_made(topology: Topology) -> None:
    steps = V % "data0" + "\n- {name: t, type: tuning, dependOn: [a], config: {dev: data0}}"
    with pytest.raises(InvalidInputError) as caught:
        names(topology, steps)
    assert 'step "t": changes interface "data0" of step "v", which may not have run by then' in str(caught.value)
    assert 'add "v" to dependOn' in str(caught.value)


def test_a_pods_first_interface_is_not_a_steps_to_change(topology: Topology) -> None:
    steps = "- {name: a, type: sriov}\n- {name: t, type: tuning, dependOn: [a], config: {dev: eth0}}"
    with pytest.raises(InvalidInputError, match='"eth0" is not free'):
        names(topology, steps)


def test_static_addresses_are_foreseen_up_to_the_first_that_is_not_known() -> None:
    addresses = [
        {"address": text} for text in ("10.0.0.5/24", "fd00::5/64", "{{ other.ips[0].address }}", "10.0.0.6/24")
    ]
    made = step("a", "macvlan", "net1", {"ipam": {"type": "static", "addresses": addresses}})
    assert foreseen([made]) == {
        Reference("a", "interfaceName"): "net1",
        Reference("a", "ips", 0): "10.0.0.5/24",
        Reference("a", "ips", 1): "fd00::5/64",
    }


def test_a_plugin_that_makes_no_interface_passes_on_that_of_the_only_step_before_it() -> None:
    def named(kind: str, *after: str) -> object:
        before = [step("a", "macvlan", "net1"), step("b", "macvlan", "net2")]
        return foreseen([*before, step("t", kind, "net3", after=after)]).get(Reference("t", "interfaceName"))

    assert named("tuning", "b") == "net2"
    assert named("tuning", "a", "b") is None
    assert named("of-a-vendor", "b") is None
    assert named("vlan", "a", "b") == "net3"
