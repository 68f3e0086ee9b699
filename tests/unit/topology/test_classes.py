"""Each device of a topology gets a DeviceClass that claims can name."""

import functools
from collections.abc import Callable

import pytest
import yaml

from netdra.model import names
from netdra.model.claim import (
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimSpec,
)
from netdra.model.device import Features
from netdra.model.errors import InvalidInputError
from netdra.model.meta import ObjectMeta
from netdra.model.resource import Device, DeviceAttribute
from netdra.model.topology import NetworkTopology
from netdra.rules.topologies import check_topology
from netdra.slices.allocator import Allocation, Allocator
from netdra.slices.pack import arrange
from netdra.topology.classes import device_classes, parameters, topology_label

Topology = Callable[..., NetworkTopology]
OURS = names.DRIVER
ATTRIBUTES = f'device.attributes["{OURS}"]'


def test_only_root_steps_get_a_device_class(recorded: Topology) -> None:
    classes = device_classes(recorded("ai-bonded-rdma"))
    assert [found.metadata.name for found in classes] == ["ai-bonded-rdma-vf0", "ai-bonded-rdma-vf1"]
    first = classes[0]
    assert first.metadata.labels == {
        "networking.dra.io/topology": "ai-bonded-rdma",
        "networking.dra.io/step": "vf0",
    }
    (config,) = first.spec.config
    assert config.opaque == OpaqueDeviceConfiguration(
        driver="dra.networking", parameters={"networkTopologyRef": {"name": "ai-bonded-rdma"}, "step": "vf0"}
    )


@pytest.mark.parametrize(("lists", "test"), [(False, 'contains(",sriov,")'), (True, 'includes("sriov")')])
def test_a_class_has_one_selector_that_begins_with_the_driver_and_ends_with_the_plugin(
    recorded: Topology, lists: bool, test: str
) -> None:
    (selector,) = device_classes(recorded("ai-bonded-rdma"), Features(list_attributes=lists))[0].spec.selectors
    assert selector.cel is not None
    published = f"{ATTRIBUTES}.supportedCNIs"
    assert selector.cel.expression == (
        'device.driver == "dra.networking" && '
        f'{ATTRIBUTES}.pfName == "enp3s0f0" && '
        f'"rdma" in {ATTRIBUTES} && {ATTRIBUTES}.rdma == true && '
        f"has({published}) && {published}.{test}"
    )


def test_a_step_s_alternatives_stay_together(topology: Topology) -> None:
    steps = [{"name": "a", "type": "sriov", "selector": {"cel": f"{ATTRIBUTES}.a == 1 || {ATTRIBUTES}.c // why"}}]
    (selector,) = device_classes(topology(yaml.safe_dump(steps)))[0].spec.selectors
    assert selector.cel is not None
    alternatives = f'"a" in {ATTRIBUTES} && {ATTRIBUTES}.a == 1 || "c" in {ATTRIBUTES} && {ATTRIBUTES}.c'
    assert selector.cel.expression.startswith(f'device.driver == "dra.networking" && ({alternatives}) && has(')


def test_a_selector_at_the_size_limit_remains_separate_from_its_guard(topology: Topology) -> None:
    cel = f'{ATTRIBUTES}.pfName != "{"a" * 10_170}"'
    steps = [{"name": "a", "type": "sriov", "selector": {"cel": cel}}]
    guard, selector = device_classes(topology(yaml.safe_dump(steps)))[0].spec.selectors
    assert guard.cel is not None
    assert selector.cel is not None
    assert guard.cel.expression.startswith('device.driver == "dra.networking" && has(')
    assert selector.cel.expression == cel


@pytest.mark.parametrize("plain", ["enp4s0f0", "enp8s0f0"])
def test_a_device_without_an_attribute_of_the_class_does_not_block_other_devices(
    recorded: Topology, plain: str
) -> None:
    attributes = {
        "type": DeviceAttribute(string="pf"),
        "supportedCNIs": DeviceAttribute(string=",ovn-k8s-cni-overlay,"),
    }
    network = {"physicalNetworkName": DeviceAttribute(string="localnet1")}
    devices = (Device(name=plain, attributes=attributes), Device(name="enp6s0f0", attributes=attributes | network))
    slices = [found for device in devices for found in arrange(device.name, (), (device,), node="worker-1")]
    allocator = Allocator(slices, device_classes(recorded("ovnk-localnet")))
    request = ExactDeviceRequest(device_class_name="ovnk-localnet-localnet-port")
    claims = DeviceClaim(requests=(DeviceRequest(name="port", exactly=request),))
    claim = ResourceClaim(metadata=ObjectMeta(name="it", namespace="here"), spec=ResourceClaimSpec(devices=claims))
    found = allocator.allocate(claim)
    assert isinstance(found, Allocation), found
    assert found.claims[0].status.allocation is not None
    assert [each.device for each in found.claims[0].status.allocation.devices.results] == ["enp6s0f0"]


@pytest.mark.parametrize(
    ("cel", "problem"),
    [
        ("device.attributes[", "CEL expression does not compile"),
        ("(" * 40 + "true" + ")" * 40, "too deep"),
        (
            functools.reduce(lambda text, _: f"({text} ? {ATTRIBUTES}.a : {ATTRIBUTES}.b)", range(25), "true"),
            "is too complex to guard its map keys: longer than 10240 bytes",
        ),
    ],
)
def test_an_invalid_class_selector_is_reported_once_with_its_path(topology: Topology, cel: str, problem: str) -> None:
    made = topology(yaml.safe_dump([{"name": "a", "type": "sriov", "selector": {"cel": cel}}]))
    (finding,) = check_topology(made)
    assert problem in finding.what
    assert finding.path == ("spec", "steps", 0, "selector", "cel")
    with pytest.raises(InvalidInputError):
        device_classes(made)


def test_an_extended_resource_is_passed_on(topology: Topology) -> None:
    (first,) = device_classes(topology("- {name: a, type: sriov, extendedResourceName: example.org/physnet2}"))
    (second,) = device_classes(topology("- {name: b, type: sriov}"))
    assert (first.spec.extended_resource_name, second.spec.extended_resource_name) == ("example.org/physnet2", None)


def test_a_name_that_is_too_long_for_a_label_s_value_is_shortened_there_alone(topology: Topology) -> None:
    name = "a" * 100
    (found,) = device_classes(topology("- {name: vf, type: sriov}", name=name))
    assert found.metadata.name == f"{name}-vf"
    assert len(found.metadata.labels[names.TOPOLOGY_LABEL]) == 63


def test_a_class_name_that_is_too_long_is_refused(topology: Topology) -> None:
    name = ".".join(["a" * 60] * 4)
    with pytest.raises(InvalidInputError, match=r'step "longer-step": the DeviceClass\'s name .* has 255 characters'):
        device_classes(topology("- {name: longer-step, type: sriov}", name=name))


def test_an_unsound_topology_has_no_classes(topology: Topology) -> None:
    with pytest.raises(InvalidInputError, match="needs a selector"):
        device_classes(topology("- {name: a, type: sriov, selector: null}"))


def test_only_our_parameters_about_a_topology_are_read() -> None:
    meant = {"networkTopologyRef": {"name": "t"}, "step": "s"}
    found = parameters(OpaqueDeviceConfiguration(driver=OURS, parameters=meant), "here")
    assert found is not None
    assert (found.network_topology_ref.name, found.step) == ("t", "s")
    assert parameters(None, "here") is None
    assert parameters(OpaqueDeviceConfiguration(driver="gpu.nvidia.com", parameters=meant), "here") is None
    assert parameters(OpaqueDeviceConfiguration(driver=OURS, parameters={"mtu": 1}), "here") is None
    assert parameters(OpaqueDeviceConfiguration(driver=OURS, parameters=[]), "here") is None
    with pytest.raises(InvalidInputError, match=r'here: opaque parameters: .*"step"'):
        parameters(OpaqueDeviceConfiguration(driver=OURS, parameters={"networkTopologyRef": {"name": "t"}}), "here")


@pytest.mark.parametrize("length", [1, 62, 63, 64, 253])
def test_the_label_of_a_topology_is_its_name_if_that_fits_a_label(length: int) -> None:
    name = "t" * length
    label = topology_label(name)
    assert len(label) <= names.MAX_LABEL
    assert (label == name) is (length <= names.MAX_LABEL)
