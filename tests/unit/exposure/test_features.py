"""The devices without counters or sharing in the API server: never two devices without mutual exclusion."""

from __future__ import annotations

from netdra.exposure import expose
from netdra.model.device import ExposureResult, Features
from tests.builders import OURS, exclusive, inventory, policy, shared, sriov, vf

NO_COUNTERS = Features(partitionable_devices=False)
NO_SHARING = Features(consumable_capacity=False)
PF = f'{OURS}.type == "pf"'
VF = f'{OURS}.type == "vf"'
NIC = inventory(*sriov("ens1", 2))


def names(result: ExposureResult) -> list[str]:
    return [device.name for device in result.devices]


def test_without_counters_nothing_consumes_any() -> None:
    result = expose(NIC, [shared("a", PF), exclusive("b", VF)], features=NO_COUNTERS)
    assert names(result) == ["ens1", "ens1v0", "ens1v1"]
    assert result.counter_sets == ()
    assert [device.consumes for device in result.devices] == [{}] * 3
    assert result.problems == ()


def test_without_counters_an_interface_is_offered_in_one_way_that_of_the_highest_priority() -> None:
    policies = [
        shared("low", VF, deviceNameSuffix="-a"),
        exclusive("first", VF, deviceNameSuffix="-c", spec={"priority": 300}),
        shared("second", VF, deviceNameSuffix="-b", spec={"priority": 300}),
    ]
    result = expose(NIC, policies, features=NO_COUNTERS)
    assert names(result) == ["ens1v0-c", "ens1v1-c"]
    assert sorted(problem.policy for problem in result.problems) == ["low", "low", "second", "second"]
    assert "gate DRAPartitionableDevices" in result.problems[0].message


def test_without_counters_the_shared_device_of_a_policy_that_makes_both_is_kept() -> None:
    capacity = {"ports": {"value": "64", "requestPolicy": {"default": "1"}}}
    plugins = [{"name": "macvlan"}, {"name": "host-device", "exclusive": True}]
    result = expose(NIC, [policy("p", PF, capacity=capacity, supportedCNIPlugins=plugins)], features=NO_COUNTERS)
    assert [(device.name, device.shared) for device in result.devices] == [("ens1", True)]


def test_without_counters_passthrough_is_not_offered_beside_vfs() -> None:
    whole = exclusive("whole", PF, spec={"priority": 900})
    assert names(expose(NIC, [whole, exclusive("vfs", VF)], features=NO_COUNTERS)) == ["ens1v0", "ens1v1"]
    macvlan = shared("macvlan", PF, deviceNameSuffix="-m")
    result = expose(NIC, [whole, macvlan, exclusive("vfs", VF)], features=NO_COUNTERS)
    assert names(result) == ["ens1-m", "ens1v0", "ens1v1"]
    assert "VFs of it are in use" in result.problems[0].message


def test_without_counters_passthrough_is_offered_while_no_vf_is_used() -> None:
    whole = exclusive("whole", PF)
    assert names(expose(NIC, [whole], features=NO_COUNTERS)) == ["ens1"]
    parent, first, _ = sriov("ens1", 2)
    enslaved = inventory(parent, first, vf(parent, 1, master="br0"))
    assert names(expose(enslaved, [whole], features=NO_COUNTERS)) == []


def test_without_sharing_only_exclusive_devices_are_offered() -> None:
    result = expose(NIC, [shared("a", PF), exclusive("b", PF, deviceNameSuffix="-b")], features=NO_SHARING)
    assert names(result) == ["ens1-b"]
    (problem,) = result.problems
    assert problem.policy == "a"
    assert "gate DRAConsumableCapacity" in problem.message
    assert "none of its devices" in expose(NIC, [shared("a", PF)], features=NO_SHARING).decisions[0].reason
