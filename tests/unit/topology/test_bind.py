"""An allocated claim and its topology become a plan, or an error that states what the claim lacks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from netdra.model import documents, names
from netdra.model.claim import ResourceClaim
from netdra.model.errors import InvalidInputError, TemporaryError, without_code
from netdra.model.meta import ObjectMeta
from netdra.model.plan import Binding, PlannedDevice
from netdra.model.resource import Device, DeviceAttribute, ResourcePool, ResourceSlice, ResourceSliceSpec
from netdra.model.topology import NetworkTopology
from netdra.topology.bind import EXTENDED_RESOURCE_CLAIM, bind, unbound
from netdra.topology.devices import DeviceKey, from_slices

Topology = Callable[..., NetworkTopology]
POOL = "n1/sriov-pf"
DEVICES = {
    (POOL, f"vf{index}"): PlannedDevice(
        request="",
        pool=POOL,
        device=f"vf{index}",
        if_name=f"pfv{index}",
        pci_address=f"0000:03:00.{index}",
        vf_index=index,
    )
    for index in range(8)
}
ONE = "- {name: vf, type: sriov}\n- {name: t, type: tuning, dependOn: [vf], config: {dev: '{{ vf.interfaceName }}'}}"
TWO = "- {name: vf0, type: sriov}\n- {name: vf1, type: sriov}\n- {name: b, type: bond, dependOn: [vf0, vf1]}"


def result(request: str, device: str, **further: Any) -> dict[str, Any]:
    return {"request": request, "driver": names.DRIVER, "pool": POOL, "device": device, **further}


def config(topology: str, step: str, *requests: str, source: str = "FromClass") -> dict[str, Any]:
    meant = {"networkTopologyRef": {"name": topology}, "step": step}
    return {"source": source, "requests": list(requests), "opaque": {"driver": names.DRIVER, "parameters": meant}}


def claim(
    results: Sequence[dict[str, Any]], configs: Sequence[dict[str, Any]], name: str = "c", **metadata: Any
) -> ResourceClaim:
    return documents.convert(
        {
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", **metadata},
            "spec": {},
            "status": {"allocation": {"devices": {"results": list(results), "config": list(configs)}}},
        },
        ResourceClaim,
        "test",
    )


def bound(
    claims: Sequence[ResourceClaim],
    *topologies: NetworkTopology,
    devices: Mapping[DeviceKey, PlannedDevice] = DEVICES,
) -> Binding:
    return bind(claims, {topology.name: topology for topology in topologies}, devices)


def test_each_device_goes_to_the_step_of_its_class(topology: Topology) -> None:
    made = claim(
        [result("vf1", "vf5"), result("vf0", "vf3"), {**result("gpu", "gpu-0"), "driver": "gpu.nvidia.com"}],
        [config("net", "vf0", "vf0"), config("net", "vf1", "vf1")],
    )
    (plan,) = bound([made], topology(TWO)).plans
    assert (plan.topology, plan.claim.namespace, plan.claim.name, plan.claim.uid) == ("net", "ns", "c", "uid-c")
    vf0, vf1, bond = plan.steps
    assert vf0.device is not None
    assert vf1.device is not None
    assert (vf0.device.device, vf0.device.request, vf0.device.pci_address) == ("vf3", "vf0", "0000:03:00.3")
    assert (vf1.device.device, vf1.if_name, vf1.network, vf1.execution) == ("vf5", "net2", "net-vf1", "Builtin")
    assert (bond.device, bond.if_name, bond.depend_on) == (None, "bond0", ("vf0", "vf1"))


def test_share_and_consumption_are_kept(topology: Topology) -> None:
    shared = result("vf", "vf1", shareID="s-1", consumedCapacity={"dra.networking/macvlans": 1})
    (plan,) = bound([claim([shared], [config("net", "vf", "vf")])], topology(ONE)).plans
    device = plan.steps[0].device
    assert device is not None
    assert (device.share_id, device.consumed_capacity) == ("s-1", {"dra.networking/macvlans": "1"})


def test_bond_members_ignore_the_keep_list_of_a_policy_unless_the_step_sets_one(topology: Topology) -> None:
    keeping = {key: msgspec.structs.replace(device, keep=("addresses",)) for key, device in DEVICES.items()}
    made = claim(
        [result("vf0", "vf0"), result("vf1", "vf1"), result("vf2", "vf2")],
        [config("net", step, step) for step in ("vf0", "vf1", "vf2")],
    )
    steps = TWO.replace("vf1, type: sriov", "vf1, type: sriov, keep: [mtu]") + "\n- {name: vf2, type: sriov}"
    (plan,) = bound([made], topology(steps), devices=keeping).plans
    assert {step.name: step.kept for step in plan.steps} == {"vf0": (), "vf1": ("mtu",), "vf2": ("addresses",), "b": ()}


def test_a_config_without_requests_is_for_all_of_them(topology: Topology) -> None:
    (plan,) = bound([claim([result("vf", "vf1")], [config("net", "vf")])], topology(ONE)).plans
    assert plan.steps[0].device is not None


def test_a_topology_reference_from_the_claim_author_is_ignored(topology: Topology) -> None:
    made = claim([result("vf", "vf1")], [config("net", "vf", "vf", source="FromClaim")])
    binding = bound([made], topology(ONE))
    assert binding.plans == ()
    assert [plain.device.device for plain in binding.plain] == ["vf1"]


def test_interfaces_are_numbered_over_all_claims_of_the_pod(topology: Topology) -> None:
    claims = [
        claim([result("vf", "vf1")], [config("one", "vf", "vf")], name="first"),
        claim([result("vf0", "vf2"), result("vf1", "vf3")], [config("two", "vf0", "vf0"), config("two", "vf1", "vf1")]),
    ]
    plans = bound(claims, topology(ONE, name="one"), topology(TWO, name="two")).plans
    assert [step.if_name for plan in plans for step in plan.steps if step.device] == ["net1", "net2", "net3"]


def test_one_claim_may_hold_several_topologies(topology: Topology) -> None:
    made = claim(
        [result("vf0", "vf1"), result("vf", "vf2"), result("vf1", "vf3")],
        [config("two", "vf0", "vf0"), config("two", "vf1", "vf1"), config("one", "vf", "vf")],
    )
    plans = bound([made], topology(ONE, name="one"), topology(TWO, name="two")).plans
    assert [(plan.topology, plan.steps[0].if_name) for plan in plans] == [("two", "net1"), ("one", "net3")]


@pytest.mark.parametrize("covered", ["vf", "vf/fast"])
def test_the_alternative_that_was_chosen_is_bound_by_the_name_of_its_request(topology: Topology, covered: str) -> None:
    (plan,) = bound([claim([result("vf/fast", "vf1")], [config("net", "vf", covered)])], topology(ONE)).plans
    assert plan.steps[0].device is not None
    assert plan.steps[0].device.request == "vf/fast"


def test_an_alternative_may_have_the_step_s_name_itself(topology: Topology) -> None:
    made = claim([result("any/vf", "vf1")], [config("net", "vf", "any/vf"), config("other", "x", "any/x")])
    (plan,) = bound([made], topology(ONE)).plans
    assert plan.steps[0].device is not None


def test_a_missing_root_step_is_refused_in_the_words_that_users_know(recorded: Topology) -> None:
    made = claim([result("vf0", "vf1")], [config("ai-bonded-rdma", "vf0", "vf0")], name="ai-gpu-bonded-rdma")
    with pytest.raises(InvalidInputError) as caught:
        bound([made], recorded("ai-bonded-rdma"))
    assert " ".join(without_code(str(caught.value)).split()) == (
        'NetworkTopology "ai-bonded-rdma" root step "vf1" has no matching device request in '
        'ResourceClaim "ai-gpu-bonded-rdma". The ResourceClaim must contain a request named "vf1" with '
        'deviceClassName "ai-bonded-rdma-vf1".'
    )


def test_a_request_with_another_name_does_not_match_a_root_step(topology: Topology) -> None:
    made = claim([result("nic", "vf1")], [config("net", "vf", "nic")])
    with pytest.raises(InvalidInputError, match='must contain a request named "vf" with'):
        bound([made], topology(ONE))


def test_a_device_of_the_topology_that_no_step_takes_is_refused(topology: Topology) -> None:
    made = claim([result("vf", "vf1"), result("more", "vf2")], [config("net", "vf")])
    with pytest.raises(InvalidInputError, match='request "more": its DeviceClass belongs to step "vf"'):
        bound([made], topology(ONE))


def test_a_claim_for_extended_resources_is_bound_by_class_alone(topology: Topology) -> None:
    made = claim(
        [result("container-0-request-0", "vf1"), result("container-1-request-0", "vf2")],
        [config("net", "vf")],
        annotations={EXTENDED_RESOURCE_CLAIM: "true"},
        ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u", "controller": True}],
    )
    plans = bound([made], topology(ONE)).plans
    assert [(plan.steps[0].if_name, plan.steps[1].if_name) for plan in plans] == [("net1", "net1"), ("net2", "net2")]


@pytest.mark.parametrize(
    "owners",
    [
        [],
        [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u"}],
        [{"apiVersion": "v1", "kind": "ConfigMap", "name": "web", "uid": "u", "controller": True}],
        [{"apiVersion": "example.com/v1", "kind": "Pod", "name": "web", "uid": "u", "controller": True}],
    ],
)
def test_an_extended_resource_annotation_without_a_controlling_pod_is_ignored(
    topology: Topology, owners: list[dict[str, Any]]
) -> None:
    made = claim(
        [result("mine", "vf1")],
        [config("net", "vf")],
        annotations={EXTENDED_RESOURCE_CLAIM: "true"},
        ownerReferences=owners,
    )
    with pytest.raises(InvalidInputError, match='root step "vf" has no matching device request'):
        bound([made], topology(ONE))


def test_a_topology_of_one_device_is_run_once_for_each_that_was_asked_for(topology: Topology) -> None:
    plans = bound([claim([result("vf", "vf1"), result("vf", "vf2")], [config("net", "vf")])], topology(ONE)).plans
    assert [plan.steps[0].device.device for plan in plans if plan.steps[0].device] == ["vf1", "vf2"]
    assert [plan.steps[0].if_name for plan in plans] == ["net1", "net2"]


def test_a_root_step_among_several_is_one_device(topology: Topology) -> None:
    made = claim(
        [result("vf0", "vf1"), result("vf0", "vf2"), result("vf1", "vf3")],
        [config("net", "vf0", "vf0"), config("net", "vf1", "vf1")],
    )
    with pytest.raises(InvalidInputError, match='request "vf0" requests several devices, but root step "vf0"'):
        bound([made], topology(TWO))


def test_a_device_with_admin_access_is_its_owner_s_and_no_step_s(topology: Topology) -> None:
    binding = bound([claim([result("vf", "vf1", adminAccess=True)], [config("net", "vf")])], topology(ONE))
    assert binding.plans == ()
    assert [(plain.device.device, plain.admin_access) for plain in binding.plain] == [("vf1", True)]


def test_a_class_that_names_two_topologies_is_refused(topology: Topology) -> None:
    made = claim([result("vf", "vf1")], [config("net", "vf", "vf"), config("other", "vf", "vf")])
    with pytest.raises(InvalidInputError, match='several NetworkTopologies: step "vf" of "net", step "vf" of "other"'):
        bound([made], topology(ONE))


def test_parameters_that_cannot_be_read_are_refused(topology: Topology) -> None:
    broken = config("net", "vf", "vf")
    broken["opaque"]["parameters"] = {"networkTopologyRef": "net"}
    with pytest.raises(InvalidInputError, match=r'ResourceClaim "ns/c", request "vf": opaque parameters'):
        bound([claim([result("vf", "vf1")], [broken])], topology(ONE))


def test_a_missing_allocation_topology_or_device_is_a_temporary_error(topology: Topology) -> None:
    waiting = documents.convert({"metadata": {"name": "c"}, "spec": {}}, ResourceClaim, "test")
    with pytest.raises(TemporaryError, match='ResourceClaim "c" is not allocated'):
        bound([waiting], topology(ONE))
    with pytest.raises(TemporaryError, match='NetworkTopology "gone", which does not exist'):
        bound([claim([result("vf", "vf1")], [config("gone", "vf")])], topology(ONE))
    with pytest.raises(TemporaryError, match='device "vf99" of pool "n1/sriov-pf" is not known'):
        bound([claim([result("vf", "vf99")], [config("net", "vf")])], topology(ONE))


def test_interfaces_that_clash_within_the_pod_are_refused(topology: Topology) -> None:
    steps = ONE + "\n- {name: v, type: vlan, dependOn: [vf], config: {name: data0}}"
    made = claim([result("vf", "vf1"), result("vf", "vf2")], [config("net", "vf")])
    with pytest.raises(InvalidInputError, match='interface "data0" is also that of step "v"'):
        bound([made], topology(steps))


def test_without_a_claim_a_plan_has_no_devices(topology: Topology) -> None:
    assert [(step.name, step.if_name, step.device) for step in unbound(topology(ONE)).steps] == [
        ("vf", "net1", None),
        ("t", "net1", None),
    ]


def _slice(driver: str, generation: int, device: Device) -> ResourceSlice:
    pool = ResourcePool(name=POOL, generation=generation, resource_slice_count=1)
    return ResourceSlice(
        metadata=ObjectMeta(name="s"), spec=ResourceSliceSpec(driver=driver, pool=pool, devices=(device,))
    )


def test_the_facts_of_a_device_are_read_from_the_newest_slices_of_ours() -> None:
    device = Device(
        name="vf1",
        attributes={
            "dra.networking/ifName": DeviceAttribute(string="pfv1"),
            "vfIndex": DeviceAttribute(int_=1),
            "dra.networking/mtu": DeviceAttribute(int_=9000),
            "dra.networking/mac": DeviceAttribute(int_=5),
            "example.org/type": DeviceAttribute(string="x"),
            "dra.networking/pciAddress": DeviceAttribute(string="0000:03:00.1"),
        },
    )
    old = Device(name="old")
    slices = [_slice("dra.networking", 2, device), _slice("dra.networking", 1, old), _slice("other", 9, old)]
    assert from_slices(slices) == {
        (POOL, "vf1"): PlannedDevice(
            request="", pool=POOL, device="vf1", if_name="pfv1", vf_index=1, mtu=9000, pci_address="0000:03:00.1"
        )
    }


BRIDGE = {
    ("p", "br-data"): PlannedDevice(request="", pool="p", device="br-data", if_name="br-data", type="bridge"),
}


def bridge_port(config_text: str, topology: Topology) -> Binding:
    made = topology(f"- {{name: port, type: bridge, config: {config_text}}}")
    allotted = {"request": "port", "driver": names.DRIVER, "pool": "p", "device": "br-data"}
    return bind([claim([allotted], [config("net", "port", "port")])], {made.name: made}, BRIDGE)


@pytest.mark.parametrize("written", ["{mtu: 1400}", "{mtu: 1400, bridge: br-data}"])
def test_a_plugin_config_receives_the_allocated_interface(written: str, topology: Topology) -> None:
    (plan,) = bridge_port(written, topology).plans
    assert plan.steps[0].config == {"mtu": 1400, "bridge": "br-data"}


def test_another_interface_than_the_allocated_one_is_refused(topology: Topology) -> None:
    with pytest.raises(InvalidInputError, match="bridge is 'br-int', but the device that was allocated is \"br-data\""):
        bridge_port("{bridge: br-int}", topology)
