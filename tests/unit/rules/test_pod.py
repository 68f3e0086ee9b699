"""Settings that the kernel or the node would refuse are found in the plan."""

from collections.abc import Callable, Mapping

import msgspec
import pytest

from netdra.model.plan import Plan, PlannedDevice
from netdra.model.topology import NetworkTopology
from netdra.rules.pod import check_plans
from netdra.topology.bind import unbound

Topology = Callable[..., NetworkTopology]


def texts(*plans: Plan, binaries: set[str] | None = None) -> list[str]:
    return [finding.text for finding in check_plans(plans, binaries)]


def on_devices(plan: Plan, mtus: Mapping[str, int]) -> Plan:
    """The plan with a device of that MTU for the root steps named."""
    return msgspec.structs.replace(
        plan,
        steps=tuple(
            msgspec.structs.replace(
                step,
                device=PlannedDevice(
                    request="", pool="p", device="d", if_name=f"host-{step.name}", mtu=mtus[step.name]
                ),
            )
            if step.name in mtus
            else step
            for step in plan.steps
        ),
    )


BONDED = """
- {name: a, type: sriov}
- {name: b, type: sriov}
- name: bond
  type: bond
  dependOn: [a, b]
  config: {links: [{name: "{{ a.interfaceName }}"}, {name: "{{ b.interfaceName }}"}]}
- {name: v, type: vlan, dependOn: [bond], config: {name: data0, id: 5, master: "{{ bond.interfaceName }}"}}
- {name: t, type: tuning, dependOn: [v], config: {dev: "{{ v.interfaceName }}", mtu: 9000}}
"""


def test_a_sound_plan_is_left_alone(topology: Topology, recorded: Topology) -> None:
    for name in ("bonded-vlan-topology", "ai-bonded-rdma", "ovnk-localnet-tuned"):
        assert texts(unbound(recorded(name))) == []
    assert texts(on_devices(unbound(topology(BONDED)), {"a": 9000, "b": 9000})) == []


def test_an_mtu_above_that_of_the_interface_under_it_is_found(topology: Topology) -> None:
    plan = on_devices(unbound(topology(BONDED)), {"a": 9000, "b": 1500})
    (finding,) = check_plans([plan])
    assert finding.text == (
        'NetworkTopology "net", step "t": mtu 9000 exceeds the 1500 of "bond0", the interface below it; '
        'raise the MTU of "bond0" in an earlier step, or on the node (ND1112)'
    )
    assert finding.path == ("steps", 4, "config", "mtu")


def test_an_mtu_that_a_step_before_sets_counts(topology: Topology) -> None:
    raised = BONDED.replace("config: {links", "config: {mtu: 9000, links")
    assert texts(on_devices(unbound(topology(raised)), {"a": 1500, "b": 1500})) == []
    own = BONDED.replace("id: 5", "id: 5, mtu: 1600")
    assert len(texts(on_devices(unbound(topology(own)), {"a": 1500, "b": 1500}))) == 2


def test_a_device_that_an_interface_is_stacked_on_limits_its_mtu(topology: Topology) -> None:
    plan = unbound(topology("- {name: m, type: macvlan, config: {mtu: 9000}}"))
    assert texts(plan) == []
    assert texts(on_devices(plan, {"m": 9000})) == []
    assert 'exceeds the 1500 of "host-m"' in texts(on_devices(plan, {"m": 1500}))[0]


def test_a_moved_device_may_be_given_any_mtu(topology: Topology) -> None:
    steps = "- {name: a, type: host-device}\n- {name: t, type: tuning, dependOn: [a], config: {mtu: 9000}}"
    assert texts(on_devices(unbound(topology(steps)), {"a": 1500})) == []


VLANS = """
- {name: a, type: sriov}
- {name: b, type: sriov}
- {name: v, type: vlan, dependOn: [a], config: {name: x, id: 5, master: "{{ a.interfaceName }}"}}
- {name: w, type: vlan, dependOn: [a, b], config: {name: y, %s}}
"""


@pytest.mark.parametrize(
    ("config", "clash"),
    [
        ("id: 5, master: '{{ a.interfaceName }}'", True),
        ("vlanId: 5, master: net1, protocol: 802.1Q", True),
        ("id: 5, master: '{{ a.interfaceName }}', protocol: 802.1ad", False),
        ("id: 6, master: '{{ a.interfaceName }}'", False),
        ("id: 5, master: '{{ b.interfaceName }}'", False),
    ],
)
def test_a_vlan_is_made_once_on_an_interface(topology: Topology, config: str, clash: bool) -> None:
    found = texts(unbound(topology(VLANS % config)))
    expected = 'NetworkTopology "net", step "w": VLAN 5 of "net1" is already created by step "v"'
    assert [each.startswith(expected) for each in found] == ([True] if clash else [])


@pytest.mark.parametrize(
    ("links", "what"),
    [
        ("[]", "the bond has 0 member, fewer than 2"),
        ("[{name: net1}]", "the bond has 1 member, fewer than 2"),
        ("[{name: '{{ a.interfaceName }}'}, {name: net1}, {name: net2}]", '"net1" is already a member of the bond'),
        ("[{name: '{{ a.mac }}'}, {name: '{{ b.mac }}'}]", ""),
        ("['{{ a.interfaceName }}', net2]", ""),
    ],
)
def test_a_bond_has_two_members_that_are_not_the_same(topology: Topology, links: str, what: str) -> None:
    steps = "- {name: a, type: sriov}\n- {name: b, type: sriov}\n"
    steps += f"- {{name: c, type: bond, dependOn: [a, b], config: {{links: {links}}}}}"
    assert [what in each for each in texts(unbound(topology(steps)))] == ([True] if what else [])


def test_an_interface_is_a_member_of_one_bond(topology: Topology) -> None:
    second = (
        BONDED
        + """
- name: again
  type: bond
  dependOn: [a, b]
  config: {name: bond1, links: [{name: "{{ b.interfaceName }}"}, {name: other}]}
"""
    )
    (found,) = texts(unbound(topology(second)))
    assert 'step "again": "net2" is already a member of the bond of step "bond"' in found


def test_a_plugin_that_the_node_lacks_is_found(topology: Topology) -> None:
    steps = """
    - {name: a, type: macvlan, config: {ipam: {type: host-local}}}
    - {name: t, type: tuning, dependOn: [a], execution: Binary}
    - {name: u, type: tuning, dependOn: [a]}
    """
    plan = unbound(topology(steps))
    assert texts(plan) == []
    assert texts(plan, binaries={"macvlan", "host-local", "tuning"}) == []
    missing = texts(plan, binaries=set())
    assert [
        'CNI plugin "macvlan" is not installed' in missing[0],
        'IPAM plugin "host-local" is not installed' in missing[1],
    ] == [True, True]
    assert 'step "t": CNI plugin "tuning" is not installed on this node; install it in the CNI path' in missing[2]
    assert len(missing) == 3


@pytest.mark.parametrize("plugin", ["vlan", "ptp", "dummy"])
def test_a_plugin_that_fails_without_ipam_is_refused_without_it(topology: Topology, plugin: str) -> None:
    steps = "- {name: a, type: sriov}\n- {name: b, type: %s, dependOn: [a], execution: Binary, config: {ipam: %s}}"
    (found,) = texts(unbound(topology(steps % (plugin, "{}"))))
    assert f'step "b": the CNI plugin "{plugin}" requires ipam, even for DEL' in found
    assert texts(unbound(topology(steps % (plugin, "{type: static}")))) == []


def test_a_vlan_that_netdra_makes_needs_no_ipam(topology: Topology) -> None:
    steps = "- {name: a, type: sriov}\n- {name: b, type: vlan, dependOn: [a], config: {id: 5}}"
    assert texts(unbound(topology(steps))) == []


@pytest.mark.parametrize(
    "config",
    [
        "addresses: ['::ffff:224.0.0.1/96', 127.0.0.5/8, 240.0.0.1/24, 0.0.0.5/24, 10.0.0.0/24, 'fd00::/64']",
        "addresses: [169.254.1.1/16, 169.254.1.1/24, 'fe80::1/64']",
        "addresses: ['fd00::5/64'], mtu: 68, args: {cni: {mtu: 1280}}",
        "addresses: [10.0.0.5/24], mtu: 68",
        "addresses: ['{{ nic.ips[0].address }}'], mtu: 68",
        "routes: [{dst: 10.9.0.0/16, gw: 10.0.0.9}, {dst: 10.9.0.0/16, gw: 10.0.0.9, metric: 5}]",
        "routes: [{dst: 10.9.0.0/16, gw: 10.0.0.9}, {dst: 10.9.0.0/16, gw: 10.0.0.9, mtu: 1400}]",
        "routes: [{dst: 'fd01::/64', gw: 'fd00::9', scope: host}, {dst: 'fd01::/64', gw: 'fd00::8'}]",
        "routes: [{dst: 10.9.0.0/16, scope: host}, {dst: 10.9.0.0/16, scope: link}]",
    ],
)
def test_addresses_and_routes_that_the_kernel_takes_are_left_alone(topology: Topology, config: str) -> None:
    steps = "- {name: nic, type: host-device}\n- {name: t, type: tuning, dependOn: [nic], config: {CONFIG}}"
    twice = (
        steps.replace("CONFIG", config)
        + "\n- {name: u, type: tuning, dependOn: [t], config: {addresses: ['fe80::1/64']}}"
    )
    assert texts(unbound(topology(twice))) == []


@pytest.mark.parametrize(
    "range_of",
    [
        "{subnet: 10.0.0.0/24, rangeStart: 10.0.0.5, rangeEnd: 10.0.0.5}",
        "{subnet: 10.0.0.0/24, rangeStart: '{{ nic.ips[0].address }}'}",
        "{subnet: 'fd00::/64', rangeEnd: 'fd00::ffff'}",
        "{rangeStart: 10.0.0.5}",
    ],
)
def test_ranges_that_host_local_takes_are_left_alone(topology: Topology, range_of: str) -> None:
    steps = """
    - {name: nic, type: host-device}
    - {name: m, type: macvlan, dependOn: [nic], config: {ipam: {type: host-local, ranges: [[RANGE]]}}}"""
    assert texts(unbound(topology(steps.replace("RANGE", range_of)))) == []


@pytest.mark.parametrize("master", ["net1", "eth0", "{{ nic.interfaceName }}", "data0"])
@pytest.mark.parametrize("other", ["{name: o, type: macvlan, config: {name: data0}}", "{name: o, type: unheard-of}"])
def test_a_vlan_master_may_be_any_interface_a_step_creates_or_may_create(
    topology: Topology, master: str, other: str
) -> None:
    steps = """
    - {name: nic, type: host-device}
    - OTHER
    - {name: v, type: vlan, dependOn: [nic], config: {id: 5, master: "MASTER"}}"""
    assert texts(unbound(topology(steps.replace("MASTER", master).replace("OTHER", other)))) == []
