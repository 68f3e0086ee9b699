"""Facts are followed for every device that could be allocated, and no correct topology is warned of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from netdra.model import documents
from netdra.model.claim import ResourceClaim
from netdra.model.meta import ObjectMeta
from netdra.model.resource import Device, DeviceAttribute, ResourcePool, ResourceSlice, ResourceSliceSpec
from netdra.model.topology import NetworkTopology
from netdra.rules import forecasts
from netdra.rules.devices import possible_devices
from netdra.topology.classes import known_classes
from tests import builders

RAIL = "{{ device.attributes.rail }}"
ANY = "selector: {cel: 'true'}"


def node(name: str, *devices: Mapping[str, Any], cni: str = "host-device") -> ResourceSlice:
    """A node's devices, by their attributes; each is named as its interface."""
    made = tuple(
        Device(
            name=str(attributes["ifName"]),
            attributes={key: attribute(value) for key, value in {**attributes, "supportedCNIs": f",{cni},"}.items()},
        )
        for attributes in devices
    )
    pool = ResourcePool(name=name, generation=1, resource_slice_count=1)
    spec = ResourceSliceSpec(driver="dra.networking", pool=pool, node_name=name, devices=made)
    return ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)


def attribute(value: Any) -> DeviceAttribute:
    return DeviceAttribute(int_=value) if isinstance(value, int) else DeviceAttribute(string=value)


def rails(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"ifName": f"ens{at}", "rail": at, "numaNode": at // 2} for at in range(start, start + count)]


def one(config: str) -> NetworkTopology:
    return builders.topology(f"- {{name: nic, type: host-device, {ANY}, config: {{{config}}}}}", "net")


def texts(topology: NetworkTopology, slices: Sequence[ResourceSlice], **more: Any) -> list[str]:
    return [finding.text for finding in forecasts.of_topology(topology, possible_devices(slices), **more)]


def of_claim(topology: NetworkTopology, slices: Sequence[ResourceSlice], requests: Any, **devices: Any) -> list[str]:
    claim = documents.convert(
        {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests, **devices}}}, ResourceClaim, "test"
    )
    classes = known_classes([topology], ())
    offered = possible_devices(slices)
    return [finding.text for finding in forecasts.of_claim(claim, {topology.name: topology}, classes, offered)]


def test_a_value_suitable_for_every_device_yields_no_warning() -> None:
    address = f"10.{RAIL}.{{{{ node.labels['rack'] }}}}.1{{{{ pod.ordinal }}}}/24"
    topology = one(f"name: 'rail{RAIL}', ipam: {{type: static, addresses: [{{address: \"{address}\"}}]}}")
    slices = [node("n1", *rails(8)), node("n2", *rails(8))]
    assert texts(topology, slices, labels={"n1": {"rack": "1"}, "n2": {"rack": "2"}}) == []
    assert texts(topology, slices) == []
    assert of_claim(topology, slices, [{"name": "nic", "exactly": {"deviceClassName": "net-nic", "count": 8}}]) == []


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("name: 'long-name-{{ device.ifName }}'", '"ens100" of node "n1": interface name "long-name-ens100" is longer'),
        ("name: 'r{{ device.attributes.ral }}'", '"ens0" of node "n1" (and 2 more): config.name: {{ device.attributes'),
        (f"vlan: 5, mtu: '{RAIL}'", "found 0."),
        (f"ipam: {{type: static, addresses: [{{address: '10.0.{RAIL}00.1/24'}}]}}", 'found "10.0.000.1/24"'),
        (f"ipam: {{type: static, addresses: [{{address: '10.0.1.{RAIL}/24'}}]}}", "10.0.1.0/24 is the network address"),
        (f"mac: '02:00:00:00:00:0{RAIL}'", 'found "02:00:00:00:00:0100"'),
    ],
)
def test_a_device_with_which_a_pod_would_fail_is_named(config: str, text: str) -> None:
    found = texts(one(config), [node("n1", *rails(2), {"ifName": "ens100", "rail": 100, "numaNode": 0})])
    assert any(text in entry for entry in found), found
    assert all(entry.startswith('NetworkTopology "net", step "nic", device "') for entry in found)


def test_a_device_that_the_selector_rejects_or_the_type_cannot_attach_does_not_count() -> None:
    selector = 'device.attributes["dra.networking"].rail < 2'
    steps = f"- {{name: nic, type: host-device, selector: {{cel: '{selector}'}}, config: {{mtu: '{RAIL}500'}}}}"
    assert texts(builders.topology(steps), [node("n1", *rails(1, 5))]) == []
    wrong = one("name: 'r{{ device.attributes.none }}'")
    assert texts(wrong, [node("n1", *rails(2), cni="macvlan")]) == []
    assert len(texts(wrong, [node("n1", *rails(2))])) == 1


def test_a_label_that_a_node_lacks_is_named_if_the_labels_are_known() -> None:
    topology = one("name: \"r{{ node.labels['rack'] }}\"")
    slices = [node("n1", *rails(1)), node("n2", *rails(1))]
    assert texts(topology, slices) == []
    (found,) = texts(topology, slices, labels={"n1": {"rack": "1"}, "n2": {}})
    assert 'node "n2" does not have a label "rack"' in found
    assert "kubectl label node n2 rack=<value>" in found


def test_steps_whose_interfaces_have_one_name_on_every_node_are_warned_of() -> None:
    step = f"{ANY}, type: host-device, config: {{name: 'n{{{{ device.attributes.numaNode }}}}'}}"
    topology = builders.topology(f"- {{name: a, {step}}}\n- {{name: b, {step}}}")
    (found,) = texts(topology, [node("n1", *rails(2))])
    assert 'step "b": interface "n0" is also that of step "a", with every device' in found
    assert texts(topology, [node("n1", *rails(4))]) == []
    assert texts(topology, [node("n1", *rails(1))]) == [found]


class TestClaims:
    NUMA = "name: 'n{{ device.attributes.numaNode }}'"

    def wish(self, count: int = 2, **exactly: Any) -> list[dict[str, Any]]:
        return [{"name": "nic", "exactly": {"deviceClassName": "net-nic", "count": count, **exactly}}]

    def test_several_devices_with_one_name_are_warned_of(self) -> None:
        (found,) = of_claim(one(self.NUMA), [node("n1", *rails(4))], self.wish())
        assert 'step "nic" of NetworkTopology "net" would make interface "n0" twice in the pod' in found
        assert of_claim(one(self.NUMA), [node("n1", *rails(4))], self.wish(1)) == []

    def test_a_constraint_or_a_selector_that_keeps_them_apart_counts(self) -> None:
        slices = [node("n1", *rails(4))]
        apart = [{"distinctAttribute": "dra.networking/numaNode"}]
        assert of_claim(one(self.NUMA), slices, self.wish(), constraints=apart) == []
        elsewhere = [{"requests": ["other"], "distinctAttribute": "dra.networking/numaNode"}]
        assert len(of_claim(one(self.NUMA), slices, self.wish(), constraints=elsewhere)) == 1
        same = [{"matchAttribute": "dra.networking/numaNode"}]
        assert len(of_claim(one(self.NUMA), slices, self.wish(), constraints=same)) == 1
        even = [{"cel": {"expression": 'device.attributes["dra.networking"].rail % 2 == 0'}}]
        assert of_claim(one(self.NUMA), slices, self.wish(selectors=even)) == []

    def test_devices_of_two_nodes_are_in_no_pod_together(self) -> None:
        slices = [node("n1", *rails(1)), node("n2", *rails(1))]
        assert of_claim(one(self.NUMA), slices, self.wish()) == []

    def test_a_name_of_the_pod_or_the_node_alone_is_that_of_all_devices(self) -> None:
        for fact in ("pod.ordinal", "node.labels['rack']"):
            assert of_claim(one(f'name: "r{{{{ {fact} }}}}"'), [node("n1", *rails(2))], self.wish())
