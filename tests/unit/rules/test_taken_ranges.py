"""Ranges of PodNetworks that overlap with those of Services, pods and Neutron's subnets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from netdra.model.core import ClusterNode, ServiceCIDR
from netdra.model.neutron_port import NeutronPort
from netdra.rules import taken_ranges
from netdra.rules.taken_ranges import TakenRange
from tests.unit.networks.builders import network

SERVICES = TakenRange(cidr="10.96.0.0/12", use="services", owner='ServiceCIDR "kubernetes"')
PODS = TakenRange(cidr="10.244.1.0/24", use="pods", owner='Node "node-1"')
SUBNET = TakenRange(cidr="10.77.0.0/25", use="neutron", owner='network "blue" of Neutron', vlan=100, physnet="physnet2")


def test_the_ranges_of_objects() -> None:
    node = {"metadata": {"name": "node-1"}, "spec": {"podCIDRs": ["10.244.1.0/24", "fd00:1::/64"]}}
    assert [found.cidr for found in taken_ranges.of_node(msgspec.convert(node, ClusterNode))] == [
        "10.244.1.0/24",
        "fd00:1::/64",
    ]
    bare = msgspec.convert({"metadata": {"name": "node-1"}}, ClusterNode)
    assert [*taken_ranges.of_node(bare)] == []
    services = {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/12"]}}
    assert [*taken_ranges.of_services(msgspec.convert(services, ServiceCIDR))] == [SERVICES]
    claim = {"name": "c", "uid": "u"}
    spec = {"claim": claim, "request": "vf", "pool": "p", "device": "d", "nodeName": "n", "topology": "t", "step": "s"}
    value = {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "NeutronPort",
        "metadata": {"name": "port"},
        "spec": {**spec, "physnet": "physnet2", "pciAddress": "", "host": "n"},
        "status": {"networkName": "blue", "settings": {"mac": "", "vlan": 100, "addresses": ["10.77.0.5/25", "x"]}},
    }
    assert [*taken_ranges.of_port(msgspec.convert(value, NeutronPort))] == [SUBNET]


@pytest.mark.parametrize(
    ("subnet", "taken", "text"),
    [
        ("10.100.0.0/16", SERVICES, 'overlaps with the Service addresses 10.96.0.0/12 of ServiceCIDR "kubernetes"'),
        ("10.244.0.0/16", PODS, 'overlaps with the pod addresses 10.244.1.0/24 of Node "node-1"'),
        ("10.77.0.0/16", SUBNET, 'overlaps with subnet 10.77.0.0/25 of network "blue" of Neutron'),
        ("10.78.0.0/16", SUBNET, ""),
        ("2001:db8::/64", SERVICES, ""),
    ],
)
def test_a_range_that_is_used_for_something_else_is_a_warning(subnet: str, taken: TakenRange, text: str) -> None:
    found = [finding.what for finding in taken_ranges.overlaps(network(subnet), [taken])]
    assert found == ([f'PodNetwork "storage": range {subnet} {text}'] if text else [])


def test_pods_are_routed_to_the_whole_subnet_but_addresses_are_of_its_part() -> None:
    part = network({"cidr": "10.77.0.0/16", "first": "10.77.1.0", "last": "10.77.1.9"})
    assert [*taken_ranges.overlaps(part, [SUBNET])] == []
    assert len([*taken_ranges.overlaps(part, [msgspec.structs.replace(PODS, cidr="10.77.9.0/24")])]) == 1


@pytest.mark.parametrize(("wire", "count"), [({"vlan": 100}, 1), ({"vlan": 7}, 0), ({"physnet": "other"}, 0), ({}, 1)])
def test_another_wire_does_not_overlap(wire: dict[str, Any], count: int) -> None:
    assert len([*taken_ranges.overlaps(network("10.77.0.0/16", **wire), [SUBNET])]) == count


def test_many_nodes_are_one_warning() -> None:
    nodes = [msgspec.structs.replace(PODS, cidr=f"10.244.{at}.0/24", owner=f'Node "node-{at}"') for at in range(3)]
    (finding,) = taken_ranges.overlaps(network("10.1.0.0/24", "10.244.0.0/16"), nodes)
    assert finding.what.endswith('the pod addresses 10.244.0.0/24 of Node "node-0" and 2 more')
    assert finding.path == ("spec", "ranges", 1)


def test_a_network_that_is_wrong_has_no_warnings() -> None:
    assert taken_ranges.near(network("10.96.0.1/12"), [SERVICES]) == ()
