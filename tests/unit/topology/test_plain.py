"""A device that no topology describes becomes a plan of one step: its class's, or its policy's first that can be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model import documents, names
from netdra.model.claim import OpaqueDeviceConfiguration, ResourceClaim
from netdra.model.errors import InvalidInputError, NetdraError
from netdra.model.meta import ObjectMeta
from netdra.model.plan import Plan, PlannedDevice
from netdra.model.resource import Device, DeviceAttribute, ResourcePool, ResourceSlice, ResourceSliceSpec
from netdra.topology import plain
from netdra.topology.bind import bind
from netdra.topology.devices import from_slices

POOL = "n1/nic-eth1"


def parameters(kind: str = "host-device", **further: Any) -> dict[str, Any]:
    return {
        "apiVersion": "networking.dra.io/v1alpha1",
        "kind": "DeviceParameters",
        "step": {"type": kind, **further},
    }


def device(*plugins: str, kind: str = "nic", **facts: Any) -> PlannedDevice:
    known = {"request": "net", "pool": POOL, "device": "eth1", "if_name": "eth1", "type": kind}
    return PlannedDevice(**{**known, **facts}, supported_cnis=plugins)


def bound(*devices: PlannedDevice, said: Any = None, source: str = "FromClass", **result: Any) -> Any:
    results = [
        {"request": each.request, "driver": names.DRIVER, "pool": each.pool, "device": each.device, **result}
        for each in devices
    ]
    config = [{"source": source, "requests": [], "opaque": {"driver": names.DRIVER, "parameters": said}}]
    claim = documents.convert(
        {
            "metadata": {"name": "c", "namespace": "ns", "uid": "u"},
            "spec": {"devices": {"requests": [{"name": "net", "exactly": {"deviceClassName": "fast-nics"}}]}},
            "status": {"allocation": {"devices": {"results": results, "config": config if said is not None else []}}},
        },
        ResourceClaim,
        "test",
    )
    return bind([claim], {}, {(each.pool, each.device): each for each in devices})


def plan_of(*plugins: str, said: Any = None, **facts: Any) -> Plan:
    (plan,) = bound(device(*plugins, **facts), said=said).plans
    assert isinstance(plan, Plan)
    return plan


@pytest.mark.parametrize(
    ("kind", "plugins", "expected"),
    [
        ("vf", ("vfio-pci", "host-device", "sriov"), "sriov"),
        ("vf", ("vfio-pci", "host-device"), "host-device"),
        ("vf", ("vfio-pci",), "vfio-pci"),
        ("pf", ("sriov", "host-device"), "host-device"),
        ("nic", ("ipvlan", "macvlan"), "macvlan"),
        ("nic", ("ipvlan",), "ipvlan"),
        ("bridge", ("bridge",), "bridge"),
        ("pf", ("sriov",), ""),
        ("nic", ("ovn-k8s-cni-overlay",), ""),
        ("nic", (), ""),
    ],
)
def test_the_step_without_a_configuration_is_the_first_that_can_be(
    kind: str, plugins: tuple[str, ...], expected: str
) -> None:
    assert plain.default_type(device(*plugins, kind=kind)) == expected


def test_a_device_becomes_a_plan_of_one_step() -> None:
    plan = plan_of("macvlan")
    (step,) = plan.steps
    assert plan.topology == ""
    assert (step.name, step.type, step.if_name, step.network) == ("net", "macvlan", "net1", "fast-nics")
    assert step.config == {"master": "eth1"}
    assert step.device == device("macvlan")


def test_the_device_class_decides_the_plugin_and_its_config() -> None:
    said = parameters("macvlan", config={"mode": "bridge", "name": "data0"}, execution="Binary")
    (step,) = plan_of("host-device", "macvlan", said=said).steps
    assert (step.type, step.if_name, step.execution) == ("macvlan", "data0", "Binary")
    assert step.config == {"mode": "bridge", "name": "data0", "master": "eth1"}


def test_a_device_without_an_attachable_plugin_is_listed_separately() -> None:
    binding = bound(device("ovn-k8s-cni-overlay"))
    assert binding.plans == ()
    assert [each.admin_access for each in binding.plain] == [False]


def test_a_device_with_admin_access_is_never_touched() -> None:
    binding = bound(device("host-device"), said=parameters(), adminAccess=True)
    assert binding.plans == ()
    assert [each.admin_access for each in binding.plain] == [True]


def test_several_devices_of_a_request_are_several_plans() -> None:
    devices = [device("host-device", device=name, if_name=name) for name in ("eth1", "eth2")]
    plans = bound(*devices).plans
    assert [(plan.steps[0].device.device, plan.steps[0].if_name) for plan in plans] == [
        ("eth1", "net1"),
        ("eth2", "net2"),
    ]


def test_device_parameters_from_the_claim_author_are_ignored() -> None:
    plan, *_ = bound(device("host-device"), said=parameters("macvlan"), source="FromClaim").plans
    assert plan.steps[0].type == "host-device"


def test_the_plugins_are_read_from_a_slice_in_both_forms() -> None:
    for attribute in (DeviceAttribute(string=",sriov,host-device,"), DeviceAttribute(strings=("sriov", "host-device"))):
        published = ResourceSlice(
            metadata=ObjectMeta(name="s"),
            spec=ResourceSliceSpec(
                driver=names.DRIVER,
                pool=ResourcePool(name=POOL, generation=1, resource_slice_count=1),
                devices=(Device(name="eth1", attributes={"dra.networking/supportedCNIs": attribute}),),
            ),
        )
        assert from_slices([published])[POOL, "eth1"].supported_cnis == ("sriov", "host-device")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"kind": "Other"}, 'neither a networkTopologyRef nor DeviceParameters; .*kind is "Other"'),
        ([1], "neither a networkTopologyRef nor DeviceParameters"),
        ("text", "neither a networkTopologyRef nor DeviceParameters"),
        (parameters("../../bin/sh"), r'type "../../bin/sh" is not a valid CNI plugin name'),
        (parameters(""), 'type "" is not a valid CNI plugin name'),
        (parameters(config={"type": "x"}), "config.type is written by netdra"),
        (parameters(config={"a": ["{{ vf0.interfaceName }}"]}), "refers to another step, which does not exist"),
        (parameters(config={"a": "{{ nonsense"}), "opens a reference that is not closed"),
        (parameters(unknown=1), 'unknown field "unknown"'),
        ({**parameters(), "step": None}, "expected an object"),
        (parameters("tuning"), '"tuning" is not among the plugins .* lists \\(host-device\\)'),
    ],
)
def test_invalid_device_parameters_are_rejected_with_the_class_named(said: Any, message: str) -> None:
    origin = 'ResourceClaim "ns/c", request "net", DeviceClass "fast-nics"'
    with pytest.raises(InvalidInputError, match=f"(?s){origin}.*{message}"):
        bound(device("host-device"), said=said)


NESTED: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=30,
)


@given(NESTED)
def test_arbitrary_json_as_opaque_parameters_raises_only_a_netdra_error(said: Any) -> None:
    opaque = OpaqueDeviceConfiguration(driver=names.DRIVER, parameters=said)
    with pytest.raises(NetdraError):
        plain.parameters(opaque, "test")


@given(NESTED, st.text(max_size=70))
def test_a_step_of_arbitrary_type_and_config_is_rejected_or_gives_an_encodable_plan(config: Any, kind: str) -> None:
    try:
        (plan,) = bound(device(), said=parameters(kind, config=config)).plans
    except NetdraError:
        return
    assert "/" not in plan.steps[0].type
    assert msgspec.json.encode(plan)


@pytest.mark.parametrize("said", [parameters(config={"a": "x" * 10_000}), parameters(config={"k" * 300: 1})])
def test_long_texts_do_no_harm(said: Any) -> None:
    with pytest.raises(NetdraError) as caught:
        bound(device("macvlan"), said=said)
    assert len(caught.value.what) < 2000


def test_ten_kibibytes_of_brackets_are_refused() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    opaque = OpaqueDeviceConfiguration(driver=names.DRIVER, parameters=parameters(config={"a": deep}))
    with pytest.raises(NetdraError):
        plain.parameters(opaque, "test")
