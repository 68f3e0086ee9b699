"""Configs as the plugins' own pages have them fit the shipped schemas, and names of the node's objects are bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from netdra.model.plan import PlannedDevice
from netdra.model.topology import NetworkTopology
from netdra.rules import confine
from netdra.rules.topologies import check_topology
from netdra.topology.bind import unbound
from tests.builders import with_config
from tests.plans import plan, step

Topology = Callable[..., NetworkTopology]
ROOTS: Mapping[str, Mapping[str, Any]] = {
    "ovs": {"vlan": 100, "mtu": 9000, "trunk": [{"id": 42}, {"minID": 1000, "maxID": 1010}], "ofport_request": 7},
    "ib-sriov": {"pkey": "0x8001", "link_state": "enable", "rdmaIsolation": True, "ibKubernetesEnabled": False},
    "ipoib": {"mtu": 1496},
    "ovn-k8s-cni-overlay": {
        "topology": "localnet",
        "subnets": "10.1.130.0/24",
        "excludeSubnets": "10.1.130.0/27,10.1.130.122/32",
        "vlanID": 33,
        "mtu": 1400,
        "netAttachDefName": "ns1/localnet-network",
        "physicalNetworkName": "tenantblue",
        "allowPersistentIPs": True,
    },
}
WHEREABOUTS = {
    "type": "whereabouts",
    "range": "192.168.2.225/28",
    "exclude": ["192.168.2.229/30", "192.168.2.236/32"],
    "gateway": "192.168.2.1",
    "ipRanges": [{"range": "192.168.10.1/24"}, {"range": "abcd::1/64", "exclude": ["abcd::2/128"]}],
    "network_name": "blue",
    "enable_overlapping_ranges": False,
    "node_slice_size": "/28",
    "log_level": "debug",
}
BOND_CNI = {
    "mode": "balance-tlb",
    "miimon": "100",
    "mtu": 1500,
    "failOverMac": 1,
    "allSlavesActive": 0,
    "tlbDynamicLb": 0,
    "xmitHashPolicy": "layer2+3",
    "links": [{"name": "{{ vf0.interfaceName }}"}, {"name": "{{ vf1.interfaceName }}"}],
}


@pytest.mark.parametrize("kind", sorted(ROOTS))
def test_a_config_of_the_plugins_page_is_sound_and_a_misspelt_one_is_not(topology: Topology, kind: str) -> None:
    root = topology(f"- {{name: a, type: {kind}}}")
    assert [each.text for each in check_topology(with_config(root, ROOTS[kind]))] == []
    wrong = check_topology(with_config(root, {**ROOTS[kind], "vlanIdd": 5}))
    assert any('does not accept parameter "vlanIdd"' in each.text for each in wrong)


@pytest.mark.parametrize("missing", ["topology", "netAttachDefName"])
def test_without_its_topology_ovn_kubernetes_would_attach_the_default_network(topology: Topology, missing: str) -> None:
    root = topology("- {name: a, type: ovn-k8s-cni-overlay}")
    config = {key: value for key, value in ROOTS["ovn-k8s-cni-overlay"].items() if key != missing}
    (finding,) = check_topology(with_config(root, config))
    assert f'requires parameter "{missing}"' in finding.text


@pytest.mark.parametrize("execution", ["Auto", "Binary"])
def test_the_bond_cni_example_config_is_valid_for_both_executions(topology: Topology, execution: str) -> None:
    steps = "- {name: vf0, type: sriov}\n- {name: vf1, type: sriov}\n"
    bond = topology(f"{steps}- {{name: bond0, type: bond, execution: {execution}, dependOn: [vf0, vf1]}}")
    assert check_topology(with_config(bond, BOND_CNI)) == ()
    for value in (False, 0, True, 1):
        assert check_topology(with_config(bond, {**BOND_CNI, "tlbDynamicLb": value})) == ()


def test_whereabouts_gives_addresses_and_reads_no_file_of_the_node(topology: Topology) -> None:
    root = topology("- {name: a, type: macvlan}")
    assert check_topology(with_config(root, {"ipam": WHEREABOUTS})) == ()
    unknown = check_topology(with_config(root, {"ipam": {**WHEREABOUTS, "etcd_host": "x"}}))
    assert [each.path[-1] for each in unknown] == ["etcd_host"]


DEVICE = PlannedDevice(request="r", pool="p", device="p0v1", if_name="p0v1", pci_address="0000:03:00.1")
NAMES = [
    ("ovs", {"bridge": "br-ex"}),
    ("ipoib", {"master": "ib0"}),
    ("ib-sriov", {"deviceID": "0000:09:00.0"}),
]
FILES = [
    ("ovs", {"configuration_path": "/etc/shadow"}),
    ("ovs", {"socket_file": "/run/openvswitch/db.sock"}),
    ("ovs", {"socket_file": "unix:/run/openvswitch/db.sock"}),
    ("ovn-k8s-cni-overlay", {"logFile": "/etc/cron.d/x"}),
    ("macvlan", {"ipam": {"type": "whereabouts", "configuration_path": "/etc/x"}}),
    ("macvlan", {"ipam": {"type": "whereabouts", "kubernetes": {"kubeconfig": "/etc/x"}}}),
    ("macvlan", {"ipam": {"type": "whereabouts", "log_file": "/etc/x"}}),
]


def told(kind: str, config: Mapping[str, Any], *, derived: bool) -> list[str]:
    root = step("vf0", "sriov", "net1", device=DEVICE)
    device = None if derived else DEVICE
    mine = step("mine", kind, "net2", config, after=["vf0"] if derived else [], device=device)
    plans = [plan(root, mine)]
    permits = confine.Permits(plugins=frozenset({"*"}), allows=lambda _: "this node allows none")
    return [each.text for each in confine.check(plans, confine.contracts_of(plans), permits)]


@pytest.mark.parametrize(("kind", "config"), NAMES, ids=str)
def test_no_plugin_takes_another_device_than_the_allocated_one(kind: str, config: dict[str, Any]) -> None:
    (of_root,) = told(kind, config, derived=False)
    assert 'does not match the allocated device "p0v1"' in of_root
    (of_derived,) = told(kind, config, derived=True)
    assert "refers to a device of the node" in of_derived


@pytest.mark.parametrize(("kind", "config"), FILES, ids=str)
def test_no_plugin_is_given_a_path_that_the_node_does_not_allow(kind: str, config: dict[str, Any]) -> None:
    texts = [text for text in told(kind, config, derived=False) if "linkInContainer" not in text]
    assert [("is a path of the node: this node allows none" in text) for text in texts] == [True]


@pytest.mark.parametrize("socket", ["unix:/run/openvswitch/db.sock", "/run/openvswitch/db.sock"])
def test_the_socket_of_open_vswitch_is_written_as_ovs_cni_does_or_as_a_path(topology: Topology, socket: str) -> None:
    root = with_config(topology("- {name: a, type: ovs}"), {"bridge": "br-ex", "socket_file": socket})
    assert check_topology(root) == ()
    assert unbound(root).steps[0].config["socket_file"] == "unix:/run/openvswitch/db.sock"


@pytest.mark.parametrize("socket", ["tcp:10.0.0.1:6640", "unix:run/db.sock", "unix:/run/../etc/x", "unix:unix:/x"])
def test_an_ovs_socket_other_than_a_plain_path_is_rejected(socket: str) -> None:
    (text,) = told("ovs", {"socket_file": socket}, derived=False)
    assert "is not a plain path of the node" in text


def test_the_interface_of_each_is_known_before_it_runs(topology: Topology) -> None:
    steps = "- {name: a, type: ib-sriov}\n- {name: b, type: ovs}\n- {name: c, type: sriov}\n"
    derived = "- {name: d, type: ovn-k8s-cni-overlay, dependOn: [c], config: {netAttachDefName: x/y}}"
    found = unbound(topology(steps + derived))
    assert [each.if_name for each in found.steps] == ["net1", "net2", "net3", "net4"]
