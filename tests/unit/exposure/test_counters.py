"""The names of counters and how much devices take of them."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.exposure import expose
from netdra.model.device import ExposureResult
from netdra.model.inventory import Interface
from netdra.model.resource import CapacityRequestPolicy
from tests.builders import OURS, exclusive, inventory, named, pf, policy, shared, sriov, vf

NIC = Interface(if_name="eth1", type="nic")
PORTS = {"value": 8, "requestPolicy": {"default": 1}}
VFS = f'{OURS}.type == "vf"'


def counters(result: ExposureResult) -> dict[str, dict[str, int]]:
    return {each.name: dict(each.counters) for each in result.counter_sets}


def bandwidth(default: str, **more: Any) -> dict[str, Any]:
    return {"capacity": {"bandwidth": {"value": "100000", "requestPolicy": {"default": default}}}, **more}


def shares(result: ExposureResult) -> dict[str, int]:
    return {
        device.name: taken["bandwidth"]
        for device in result.devices
        for taken in device.consumes.values()
        if "bandwidth" in taken
    }


def lent(result: ExposureResult) -> dict[str, str | int]:
    name = "dra.networking/bandwidth"
    return {device.name: device.capacity[name].value for device in result.devices if name in device.capacity}


def test_a_mirrored_counter_is_named_after_its_capacity() -> None:
    result = expose(
        inventory(NIC), [shared("a", "true", capacity="seats"), exclusive("b", "true", deviceNameSuffix="-b")]
    )
    assert counters(result) == {"eth1-counters": {"seats-capacity": 64}}


def test_the_suffix_comes_first_where_two_personas_have_a_capacity_of_one_name() -> None:
    names = ["-mac", "-ip", "mac"]
    result = expose(inventory(NIC), [shared(f"p{i}", "true", deviceNameSuffix=name) for i, name in enumerate(names)])
    (found,) = counters(result).values()
    assert {"mac-ports-capacity", "ip-ports-capacity"} < found.keys()
    assert len(found) == 3


def test_counter_names_are_dns_labels_even_if_capacity_names_are_not() -> None:
    policies = [
        shared("a", "true", capacity="example.org/macVLANs"),
        shared("b", "true", capacity="mac_vlans", deviceNameSuffix="-b"),
    ]
    (found,) = counters(expose(inventory(NIC), policies)).values()
    assert len(found) == 2
    assert all(name.islower() and "/" not in name and "_" not in name for name in found)


def test_a_capacity_is_mirrored_as_a_whole_number() -> None:
    policies = [shared("a", "true", capacity="x"), exclusive("b", "true", deviceNameSuffix="-b")]
    half = policy(
        "a",
        "true",
        allowMultipleAllocations=True,
        capacity={"x": {"value": "1500m", "requestPolicy": {"default": "1"}}},
    )
    assert counters(expose(inventory(NIC), [half, policies[1]])) == {"eth1-counters": {"x-capacity": 2}}


def test_a_lone_device_needs_no_counters() -> None:
    assert counters(expose(inventory(NIC, pf("ens1")), [shared("a", "true")])) == {}


def test_a_set_that_nothing_is_taken_from_is_not_published() -> None:
    assert counters(expose(inventory(*sriov("ens1", 4)), [shared("a", named("ens1"))])) == {}


def test_without_a_link_speed_no_bandwidth_is_counted_and_vfs_have_none_to_ask_for() -> None:
    result = expose(inventory(*sriov("ens1", 2, speed=0)), [exclusive("p", "true")])
    assert counters(result) == {"ens1-counters": {"exclusion-slots": 3}}
    assert shares(result) == {}
    assert lent(result) == {"ens1v0": "0", "ens1v1": "0"}


def test_a_vf_takes_a_fair_share_and_passthrough_the_whole_link() -> None:
    result = expose(inventory(*sriov("ens1", 3, speed=100_000)), [exclusive("p", "true")])
    assert shares(result) == {"ens1": 100_000, "ens1v0": 33_333, "ens1v1": 33_333, "ens1v2": 33_333}


def test_vfs_publish_a_bandwidth_share_whether_their_policy_is_exclusive_or_shared() -> None:
    whole, some = [exclusive("vfs", VFS)], [shared("vfs", VFS)]
    assert lent(expose(inventory(*sriov("ens1", 2)), whole)) == {"ens1v0": "50000", "ens1v1": "50000"}
    assert lent(expose(inventory(*sriov("ens1", 2)), some)) == {"ens1v0": "50000", "ens1v1": "50000"}
    shared_vf = expose(inventory(*sriov("ens1", 2)), some).devices[0]
    policy = shared_vf.capacity["dra.networking/bandwidth"].request_policy
    assert policy == CapacityRequestPolicy(default="0"), "who asks for none leaves all to the others"


def test_a_vf_publishes_and_consumes_the_bandwidth_that_its_policy_defines() -> None:
    given = [exclusive("vfs", VFS, capacity={"bandwidth": {"value": "30000"}})]
    result = expose(inventory(*sriov("ens1", 2)), given)
    assert shares(result) == {"ens1v0": 30_000, "ens1v1": 30_000}
    assert lent(result) == {"ens1v0": "30000", "ens1v1": "30000"}


def test_the_default_bandwidth_of_a_shared_pf_does_not_change_the_shares_of_its_vfs() -> None:
    macvlan = policy("pf", named("ens1"), allowMultipleAllocations=True, **bandwidth("750"))
    result = expose(inventory(*sriov("ens1", 2)), [exclusive("vfs", VFS), macvlan])
    assert shares(result) == {"ens1": 100_000, "ens1v0": 50_000, "ens1v1": 50_000}
    given = exclusive("vfs", VFS, capacity={"bandwidth": {"value": "20000"}})
    both = expose(inventory(*sriov("ens1", 2)), [given, macvlan])
    assert shares(both) == {"ens1": 100_000, "ens1v0": 20_000, "ens1v1": 20_000}
    slow = expose(inventory(*sriov("ens1", 2, speed=1000)), [exclusive("vfs", VFS), macvlan])
    assert shares(slow) == {"ens1v0": 500, "ens1v1": 500}


def test_vfs_split_only_the_bandwidth_left_by_the_shared_devices_of_their_pf() -> None:
    capacity = {"bandwidth": {"value": "40000", "requestPolicy": {"default": "0"}}, "ports": PORTS}
    lenders = [
        policy(name, named("ens1"), deviceNameSuffix=f"-{name}", allowMultipleAllocations=True, capacity=capacity)
        for name in ("a", "b")
    ]
    result = expose(inventory(*sriov("ens1", 2)), [exclusive("vfs", VFS), *lenders])
    assert shares(result) == {"ens1-a": 40_000, "ens1-b": 40_000, "ens1v0": 10_000, "ens1v1": 10_000}
    assert counters(result)["ens1-counters"]["bandwidth"] == 100_000


@pytest.mark.parametrize("several", [True, False])
def test_an_interface_on_top_of_a_link_consumes_its_bandwidth_from_the_link(several: bool) -> None:
    capacity = {"bandwidth": {"value": "60000", "requestPolicy": {"default": "60000"}}}
    vlans = [Interface(if_name=f"vlan{number}", type="vlan", lower_devices=("ens1",)) for number in (5, 6)]
    parent = pf("ens1", upper_devices=("vlan5", "vlan6"), host_use=("vlan-parent",))
    on_vlans = policy("vlans", f'{OURS}.type == "vlan"', allowMultipleAllocations=several, capacity=capacity)
    result = expose(inventory(parent, *vlans), [on_vlans])
    assert result.problems == ()
    assert shares(result) == {"vlan5": 60_000, "vlan6": 60_000}
    assert counters(result)["ens1-counters"]["bandwidth"] == 100_000


def test_a_device_exceeding_its_link_bandwidth_is_omitted_unless_its_policy_allows_overcommit() -> None:
    capacity = {"bandwidth": {"value": "50000", "requestPolicy": {"default": "1000"}}}
    given: dict[str, Any] = {"allowMultipleAllocations": True, "capacity": capacity}
    links = inventory(*sriov("ens1", 2, speed=25_000))
    refused = expose(links, [policy("pf", named("ens1"), **given)])
    assert refused.devices == ()
    (problem,) = refused.problems
    assert problem.left_out == "limit"
    assert problem.message.startswith(
        "ens1 is not offered: its bandwidth of 50000 Mbit/s exceeds the link speed, 25000"
    )
    taken = expose(links, [policy("pf", named("ens1"), allowBandwidthOvercommit=True, **given), exclusive("vfs", VFS)])
    assert taken.problems == ()
    assert lent(taken) == {"ens1": "50000", "ens1v0": "12500", "ens1v1": "12500"}
    assert shares(taken) == {"ens1v0": 12_500, "ens1v1": 12_500}


def test_personas_of_a_vf_that_share_it_share_its_bandwidth_too() -> None:
    policies = [shared(name, VFS, deviceNameSuffix=f"-{name}") for name in ("a", "b")]
    result = expose(inventory(*sriov("ens1", 2)), policies)
    assert shares(result) == dict.fromkeys(("ens1v0-a", "ens1v0-b", "ens1v1-a", "ens1v1-b"), 25_000)
    assert counters(result)["ens1-counters"] == {"exclusion-slots": 5, "bandwidth": 100_000}
    assert counters(result)["ens1v0-counters"] == {"a-ports-capacity": 64, "b-ports-capacity": 64}


def test_a_vf_in_host_use_counts_once_however_many_personas_it_has() -> None:
    policies = [shared(name, VFS, deviceNameSuffix=f"-{name}") for name in ("a", "b")]
    parent = pf("ens1", vfs=2)
    result = expose(inventory(parent, vf(parent, 0), vf(parent, 1, master="br0")), policies)
    assert counters(result)["ens1-counters"]["exclusion-slots"] == 3
    assert "exclusion-slots" not in result.devices[-1].consumes["ens1-counters"]


def test_a_vf_without_its_pf_has_a_pool_and_counters_of_its_pfs_name() -> None:
    parent = pf("ens1", vfs=2)
    result = expose(inventory(vf(parent, 0), vf(parent, 1)), [exclusive("p", "true")])
    assert {device.pool for device in result.devices} == {"worker-1/sriov-ens1"}
    assert counters(result) == {"ens1-counters": {"exclusion-slots": 3}}


def test_a_vf_finds_a_pf_whose_name_is_away_by_its_address() -> None:
    parent = pf("", vfs=1)
    child = vf(parent, 0, if_name="eth7")
    result = expose(inventory(parent, child), [exclusive("p", "true")])
    assert len({device.pool for device in result.devices}) == 1
    assert [sorted(device.consumes) for device in result.devices] == [[each.name for each in result.counter_sets]] * 2


def test_more_counters_than_a_set_takes_are_spread_over_two() -> None:
    policies = [shared(f"p{i:02}", "true", deviceNameSuffix=f"-{i}") for i in range(40)]
    result = expose(inventory(NIC), [*policies, exclusive("x", "true", deviceNameSuffix="-x")])
    assert {name: len(each) for name, each in counters(result).items()} == {"eth1-counters": 32, "eth1-counters-2": 8}
    assert max(len(device.consumes) for device in result.devices) == 2


def test_devices_beyond_two_counter_sets_are_omitted_and_reported() -> None:
    policies = [shared(f"p{i:02}", "true", deviceNameSuffix=f"-{i}", spec={"priority": i}) for i in range(65)]
    result = expose(inventory(NIC), policies)
    assert len(result.devices) == 62
    assert sorted(problem.policy for problem in result.problems) == ["p00", "p01", "p02"]
    assert "an interface supports 62 shared devices" in result.problems[0].message
