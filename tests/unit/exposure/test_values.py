"""Values that a policy reads of the node, facts that it publishes beside the others, and the preset made of both."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from netdra.cli.main import cli
from netdra.exposure import check, expose
from netdra.exposure.templates import allocatable_of
from netdra.model import documents
from netdra.model.device import ExposureResult
from netdra.model.inventory import Interface
from netdra.model.policy import DeviceExposurePolicy
from netdra.slices.pack import layout
from testbed import yaml
from tests.builders import exclusive, inventory, named, policy

NIC = Interface(if_name="eth1", type="nic", mac="02:00:00:00:00:01", ipv4=("10.0.0.1/24", "10.0.0.2/24"))
OTHER = Interface(if_name="eth2", type="nic", mac="02:00:00:00:00:02", ipv4=("10.0.1.1/24",))
COUNT = {"count": {"valueFrom": {"nodeAllocatable": "pods"}, "requestPolicy": {"default": "1"}}}


def reads(**exposure: Any) -> DeviceExposurePolicy:
    return policy("p", named("eth1"), allowMultipleAllocations=True, capacity=COUNT, **exposure)


def offered(*policies: DeviceExposurePolicy, **allocatable: str) -> ExposureResult:
    here = inventory(NIC, OTHER)
    node = msgspec.structs.replace(here.node, allocatable=allocatable)
    return expose(msgspec.structs.replace(here, node=node), policies)


@pytest.mark.parametrize(("pods", "value"), [("110", "110"), ("250", "250"), ("1", "1")])
def test_a_capacity_takes_its_value_from_the_allocatable_resources_of_the_node(pods: str, value: str) -> None:
    (device,) = offered(reads(), pods=pods).devices
    assert device.capacity["dra.networking/count"].value == value
    assert layout(offered(reads(), pods=pods), node="n").problems == ()


def test_a_missing_node_resource_is_reported_and_the_policy_offers_no_devices() -> None:
    found = offered(reads(), cpu="4")
    assert found.devices == ()
    (problem,) = found.problems
    assert 'node "worker-1" does not have "pods" among its allocatable resources' in problem.message
    assert problem.left_out == "policy-invalid"


def test_a_node_resource_below_the_default_request_is_reported() -> None:
    capacity = {"count": {**COUNT["count"], "requestPolicy": {"default": "5"}}}
    wants = policy("p", named("eth1"), allowMultipleAllocations=True, capacity=capacity)
    assert check(wants) == ()
    found = offered(wants, pods="3")
    assert found.devices == ()
    assert any("exceeds the capacity of the device" in problem.message for problem in found.problems)


@pytest.mark.parametrize(
    ("capacity", "message"),
    [
        ({"requestPolicy": {"default": "1"}}, "has neither of value and valueFrom"),
        ({"value": "1", "valueFrom": {"nodeAllocatable": "pods"}}, "has both of value and valueFrom"),
    ],
)
def test_a_capacity_requires_exactly_one_of_value_and_value_from(capacity: dict[str, Any], message: str) -> None:
    (error,) = check(policy("p", "true", allowMultipleAllocations=True, capacity={"count": capacity}))
    assert message in error.text


def test_only_node_resources_that_policies_read_are_collected() -> None:
    assert allocatable_of([reads(), exclusive("x", "true")]) == {"pods"}


def test_an_additional_fact_is_published_by_its_policy_and_empty_on_other_devices() -> None:
    found = offered(reads(additionalFacts=["ipv4"]), exclusive("q", named("eth2")), pods="9")
    shown = {device.name: device.attributes["dra.networking/ipv4"] for device in found.devices}
    assert shown == {"eth1": "10.0.0.1/24,10.0.0.2/24", "eth2": ""}


@pytest.mark.parametrize("name", ["mtu", "ipv5", "dra.networking/ifName"])
def test_an_additional_fact_that_is_not_optional_is_rejected(name: str) -> None:
    findings = check(reads(additionalFacts=[name]))
    assert any("is not one of the optional facts" in finding.what for finding in findings)


def test_facts_take_the_room_of_attributes() -> None:
    wants = reads(additionalFacts=["ipv4", "ipv6", "alias", "altName"])
    assert any("a device supports" in finding.what for finding in check(wants))


class TestPreset:
    def made(self, *options: str) -> DeviceExposurePolicy:
        done = CliRunner().invoke(cli, ["preset", "shared", *options])
        assert done.exit_code == 0
        return documents.convert(yaml.safe_load(done.output), DeviceExposurePolicy, "preset")

    def test_it_shares_each_physical_interface_by_the_nodes_pods_and_comes_last(self) -> None:
        preset = self.made()
        assert check(preset) == ()
        found = offered(preset, pods="110")
        assert {device.name for device in found.devices} == {"eth1", "eth2"}
        assert all(device.shared for device in found.devices)
        assert {device.capacity["dra.networking/count"].value for device in found.devices} == {"110"}
        own = exclusive("own", named("eth1"))
        assert [device.policy for device in offered(preset, own, pods="110").devices] == ["own", "shared"]

    def test_the_nodes_own_traffic_is_left_alone_unless_that_is_asked_for(self) -> None:
        uplink = inventory(msgspec.structs.replace(NIC, host_uplink=True, host_use=("default-route",)))
        here = msgspec.structs.replace(uplink, node=msgspec.structs.replace(uplink.node, allocatable={"pods": "9"}))
        assert expose(here, [self.made()]).devices == ()
        assert len(expose(here, [self.made("--host-uplink", "--plugin", "ipvlan")]).devices) == 1

    def test_other_kinds_are_named(self) -> None:
        assert '"veth"' in self.made("--type", "veth").spec.selector.cel
