"""A node's report on itself: its interfaces and their results, policies, problems; and its size."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from netdra.model.device import DEFAULT_FEATURES
from netdra.model.inventory import Interface, attributes
from netdra.model.node_network import (
    MAX_NAMES,
    MAX_STATUS,
    InterfaceGroup,
    NodeNetworkStatus,
    NodeNetworkSummary,
    NodeProblem,
    PublishedDevice,
)
from netdra.model.policy import DeviceExposurePolicy
from tests.builders import OURS, exclude, exclusive, named, policy, shared, sriov
from tests.unit.node.publishing.scene import ALL, ETH, ETH_KEY, POLICIES, POOL, Scene, without_netdev

NIC = Interface(if_name="eno1", type="nic", pci_address="0000:05:00.0", mac="02:00:00:00:00:aa", oper_state="up")


def report(scene: Scene, *interfaces: Interface) -> NodeNetworkStatus:
    scene.see(*interfaces)
    return scene.offering.report()


def group_of(status: NodeNetworkStatus, name: str) -> InterfaceGroup:
    (found,) = [group for group in status.interfaces if name in group.names]
    return found


def size(status: NodeNetworkStatus) -> int:
    return len(msgspec.json.encode(status))


def test_interfaces_that_are_alike_and_became_the_same_are_one_entry() -> None:
    status = report(Scene(), *sriov("p0", 12), NIC)
    assert status.summary == NodeNetworkSummary(interfaces=14, offered=13)
    vfs = group_of(status, "p0v3")
    assert (vfs.type, vfs.count, vfs.names[:3], vfs.names[-1]) == ("vf", 12, ("p0v0", "p0v1", "p0v2"), "p0v11")
    assert vfs.devices == (PublishedDevice(policy="vfs"),)
    assert vfs.policies == {"vfs": "wins"}
    hidden = group_of(status, "eno1")
    assert (hidden.type, hidden.state, hidden.devices, hidden.reason) == ("nic", "up", (), "not matched by any policy")


def test_vf_names_are_reported_as_the_common_prefix_before_the_index() -> None:
    pf, *vfs = sriov("p0np0", 3)
    renamed = [replace(each, if_name=f"p0v{each.vf_index}") for each in vfs]
    group = group_of(report(Scene(), pf, *renamed), "p0np0v1")
    assert group.vf_names == "p0v"
    assert group.facts("p0np0v1")[0]["dra.networking/ifName"] == "p0v1"
    odd = [replace(vfs[0], if_name="eth9"), *renamed[1:]]
    group = group_of(report(Scene(), pf, *odd), "p0np0v1")
    assert group.vf_names == ""
    assert "dra.networking/ifName" in group.facts("p0np0v1")[1]


def test_a_device_in_use_is_marked_and_one_whose_interface_is_gone_stays() -> None:
    scene = Scene()
    scene.see(*sriov("p0", 2), ETH)
    scene.hold((POOL, "p0v1"), ETH_KEY)
    pf, first, second = sriov("p0", 2)
    status = report(scene, pf, first, without_netdev(second))
    assert status.summary == NodeNetworkSummary(interfaces=4, offered=4, allocated=2)
    away = group_of(status, "p0v1")
    assert (away.state, away.devices) == ("away", (PublishedDevice(policy="vfs", allocated=True),))
    gone = group_of(status, "eth7")
    assert (gone.state, gone.devices) == ("gone", (PublishedDevice(policy="veths", allocated=True),))
    assert gone.reason == "the interface is gone, and a claim has its device"


def test_an_interface_that_is_hidden_now_and_whose_device_a_claim_has_shows_both() -> None:
    scene = Scene()
    scene.see(ETH)
    scene.hold(ETH_KEY)
    scene.offering.follow((*ALL, exclude("guard", named("eth7"))), DEFAULT_FEATURES)
    found = group_of(report(scene, ETH), "eth7")
    assert found.devices == (PublishedDevice(policy="veths", allocated=True),)
    assert found.reason == 'exclude policy "guard" matches it'
    assert found.policies == {"guard": "excludes", "veths": "overruled"}


def test_a_device_name_that_cannot_be_derived_is_reported_in_full() -> None:
    odd = replace(ETH, if_name="eth0.100")
    policies = (
        shared(
            "both",
            f'{OURS}.type == "veth"',
            deviceNameSuffix="-x",
            supportedCNIPlugins=[{"name": "macvlan"}, {"name": "host-device", "exclusive": True}],
        ),
    )
    scene = Scene(*policies)
    found = group_of(report(scene, odd), "eth0.100")
    published = {device.name for slices in scene.slices.values() for one in slices for device in one.spec.devices}
    assert {name for name, _ in found.published()} == published
    assert len(published) == 2


def test_unmatched_pod_interfaces_are_counted_by_type_unless_a_policy_selects_them() -> None:
    pods = [Interface(if_name=f"veth{number}", type="veth", oper_state="up", mtu=1500) for number in range(300)]
    status = report(Scene(exclusive("one", named("veth7"))), *pods, NIC)
    (counted,) = [group for group in status.interfaces if not group.names]
    assert (counted.type, counted.count, counted.state) == ("veth", 299, "")
    assert counted.reason == "not matched by any policy"
    assert group_of(status, "veth7").count == group_of(status, "eno1").count == 1


def test_each_policy_on_the_node_reports_its_matches_devices_and_errors() -> None:
    here = {"nodeSelector": {"matchLabels": {"zone": "b"}}}
    policies = [
        exclusive("aaa", named("p0v1")),
        exclusive("vfs", f'{OURS}.type == "vf"'),
        exclude("guard", named("p0v2")),
        policy("failing", f'{OURS}.type == "pf" && {OURS}.nope == 1'),
        policy("broken", "true &&"),
        exclusive("elsewhere", "true", spec=here),
    ]
    status = report(Scene(*policies), *sriov("p0", 4))
    found = {each.name: each for each in status.policies}
    assert list(found) == ["aaa", "broken", "failing", "guard", "vfs"]
    assert (found["aaa"].matches, found["aaa"].devices) == (1, 1)
    vfs = found["vfs"]
    assert (vfs.matches, vfs.devices, vfs.outranked, vfs.overruled) == (4, 2, {"aaa": 1}, 1)
    assert (found["guard"].matches, found["guard"].devices) == (1, 0)
    assert (found["failing"].failing, found["broken"].invalid) == (1, True)


def test_a_problem_is_reported_once_per_cause_regardless_of_the_interface_count() -> None:
    """Seen: one typo was 385 problems."""
    typo = exclude("typo", f'{OURS}.ifNmae == "eth0"')
    status = report(Scene(*ALL, typo), *sriov("p0", 384))
    (problem,) = status.problems
    assert (problem.policy, problem.interfaces, problem.example) == ("typo", 385, "p0")
    assert 'Key not found in map : "ifNmae"' in problem.message
    assert "p0v" not in problem.message
    assert status.summary == NodeNetworkSummary(interfaces=385, offered=385, problems=1)


def test_left_out_devices_are_counted_by_reason_and_reported_as_one_problem() -> None:
    veths = f'{OURS}.type == "veth"'
    both = shared("both", veths, supportedCNIPlugins=[{"name": "macvlan"}, {"name": "host-device", "exclusive": True}])
    scene = Scene(both, exclusive("namesake", veths, deviceNameSuffix="-exclusive"))
    status = report(scene, ETH, replace(ETH, if_name="eth8"), replace(ETH, if_name="eth9"))
    assert status.left_out == {"name-taken": 3}
    why = "its device is not offered: another device of the NIC has this name; change the suffix"
    assert status.problems == (NodeProblem(message=why, policy="namesake", interfaces=3, example="eth7"),)


def test_a_device_rejected_by_the_server_is_not_offered_and_is_reported() -> None:
    scene = Scene()
    scene.see(ETH)
    status = scene.offering.report({ETH_KEY: "spec.devices[0].name: too odd"})
    assert status.summary == NodeNetworkSummary(interfaces=1, offered=0, problems=1)
    assert "spec.devices[0].name: too odd" in status.problems[0].message
    assert group_of(status, "eth7").reason == "none of its devices can be published"


def test_the_report_of_a_node_does_not_depend_on_the_order_of_its_interfaces() -> None:
    interfaces = (*sriov("p0", 12), NIC, ETH)
    assert report(Scene(), *interfaces) == report(Scene(), *reversed(interfaces))


LONG = "enp193s0f1npf1"
"""As long as names become on servers with many slots."""


@pytest.mark.parametrize("allocated", [False, True])
def test_a_node_with_two_thousand_devices_reports_less_than_64_kib(allocated: bool) -> None:
    server = [
        replace(each, pci_address=f"000{number}{each.pci_address[4:]}", pf_pci_address=f"000{number}:03:00.0")
        for number in range(8)
        for each in sriov(f"{LONG}{number}", 249)
    ]
    scene = Scene()
    scene.on_bus = {each.pci_address for each in server}
    scene.see(*server)
    if allocated:
        scene.hold(*((pool, name) for pool in scene.slices for name in scene.devices(pool) if "v" in name[-4:]))
    status = report(scene, *server)
    assert size(status) <= MAX_STATUS < 64 * 1024
    assert (status.summary.interfaces, status.summary.offered) == (2000, 2000)
    assert status.summary.allocated == (1992 if allocated else 0)
    assert sum(len(group.names) for group in status.interfaces) == 2000


def test_two_thousand_distinct_interfaces_are_counted_within_the_status_size_limit() -> None:
    """A hostile or a clumsy set of policies makes no report that the API server would refuse."""
    policies: list[DeviceExposurePolicy] = [
        exclusive(f"a-policy-with-a-long-name-{bit}", f"{OURS}.mtu / {2**bit} % 2 == 1", deviceNameSuffix=f"-{bit}")
        for bit in range(11)
    ]
    broken = [policy(f"broken-{number}", "x" * 500 + f" {number}") for number in range(100)]
    many = [Interface(if_name=f"{LONG}{number}", type="nic", mtu=number, oper_state="up") for number in range(2000)]
    status = report(Scene(*policies, *broken), *many)
    assert size(status) <= MAX_STATUS
    assert status.summary.interfaces == sum(group.count for group in status.interfaces) == 2000
    assert status.summary.problems == 100
    assert len(status.problems) <= 32
    assert {each.name for each in status.policies} >= {each.name for each in policies}


def known(status: NodeNetworkStatus, interface: Interface) -> None:
    """A report's facts of an interface are true, and it names the missing ones."""
    group = group_of(status, interface.device_name)
    told, unknown = group.facts(interface.device_name)
    real = attributes(interface)
    assert {name: real[name] for name in told} == told
    assert real.keys() - told.keys() == unknown


@given(
    st.lists(
        st.builds(
            Interface,
            if_name=st.just(""),
            type=st.sampled_from(["nic", "pf", "bridge"]),
            mac=st.sampled_from(["", "02:00:00:00:00:01"]),
            mtu=st.integers(0, 3),
            numa_node=st.integers(-1, 1),
            driver=st.sampled_from(["", "mlx5_core"]),
            ipv4=st.sampled_from([(), ("10.0.0.1/8",)]),
            rdma=st.booleans(),
        ),
        min_size=1,
        max_size=8,
    ),
    st.booleans(),
)
def test_the_reported_facts_of_an_interface_match_the_view_of_a_selector(
    found: list[Interface], tell_all: bool
) -> None:
    interfaces = [replace(each, if_name=f"eth{number}") for number, each in enumerate(found)]
    vfs = sriov("p0", 3)
    status = report(Scene(exclusive("all", "true" if tell_all else f"{OURS}.mtu > 1")), *interfaces, *vfs)
    for interface in (*interfaces, *vfs):
        if any(interface.device_name in group.names for group in status.interfaces):
            known(status, interface)


def test_an_unreadable_fact_is_reported_neither_as_known_nor_as_unknown() -> None:
    unread = replace(NIC, unreadable=("link_speed",))
    told, unknown = group_of(report(Scene(), unread), "eno1").facts("eno1")
    assert "dra.networking/linkSpeed" not in told
    assert "dra.networking/linkSpeed" not in unknown


def test_the_policies_of_devices_are_known_again_after_a_restart() -> None:
    scene = Scene()
    scene.see(*sriov("p0", 3), ETH)
    status = scene.offering.report()
    again = Scene(published=dict(scene.slices), reported=status)
    again.hold(ETH_KEY)
    found = group_of(report(again, *sriov("p0", 3)), "eth7")
    assert found.devices == (PublishedDevice(policy="veths", allocated=True),)


def pooled(name: str, lanes: int = 1) -> DeviceExposurePolicy:
    plugins = [{"name": "sriov"}]
    return policy(name, f'{OURS}.type == "vf"', pooledVFs={"lanes": lanes}, supportedCNIPlugins=plugins)


def test_pooled_vfs_are_reported_with_their_device_and_are_not_hidden() -> None:
    status = report(Scene(pooled("vfs")), *sriov("p0", 12))
    assert status.summary == NodeNetworkSummary(interfaces=13, offered=1)
    vfs = group_of(status, "p0v3")
    assert (vfs.count, vfs.devices, vfs.policies, vfs.pools_vfs) == (12, (), {"vfs": "wins"}, False)
    assert vfs.reason == "pooled: one of the 12 VFs of p0-vfs; the node selects any of them for a claim"
    device = group_of(status, "p0-vfs")
    assert (device.pools_vfs, device.state, device.count) == (True, "", 1)
    assert device.devices == (PublishedDevice(policy="vfs"),)
    assert device.reason == ""
    (policies,) = status.policies
    assert (policies.matches, policies.devices) == (12, 1)


def test_a_pool_that_a_claim_has_a_vf_of_is_marked() -> None:
    scene = Scene(pooled("vfs", 2))
    scene.see(*sriov("p0", 4))
    scene.hold((POOL, "p0-vfs1"))
    status = report(scene, *sriov("p0", 4))
    assert status.summary == NodeNetworkSummary(interfaces=5, offered=2, allocated=1)
    assert group_of(status, "p0-vfs1").devices == (PublishedDevice(policy="vfs", allocated=True),)
    assert group_of(status, "p0-vfs0").devices == (PublishedDevice(policy="vfs"),)


def in_etcd(*policies: DeviceExposurePolicy) -> int:
    """Bytes of JSON of the slices and the report of a node with 2 PFs of 64 VFs, without managed fields."""
    scene = Scene(*policies)
    second = [
        replace(each, pci_address=f"0001{each.pci_address[4:]}", pf_pci_address=each.pf_pci_address and "0001:03:00.0")
        for each in sriov("p1", 64)
    ]
    status = report(scene, *sriov("p0", 64), *second)
    slices = [one for pool in scene.slices.values() for one in pool]
    return size(status) + sum(len(msgspec.json.encode(one)) for one in slices)


def test_a_node_with_two_pfs_of_64_pooled_vfs_takes_less_than_ten_kilobytes() -> None:
    """Measured: 6.1 KB pooled, 141.1 KB with a device per VF; 8.2 and 143.7 KB if each PF is a device, too."""
    pfs, vfs = POLICIES
    assert in_etcd(pooled("vfs")) <= 8_000
    assert in_etcd(pooled("vfs")) * 20 < in_etcd(vfs)
    assert in_etcd(pfs, pooled("vfs")) <= 10_000


@pytest.mark.parametrize(
    "page", ["CHANGELOG.md", "docs/policies.md", "docs/pooled-vfs.md", "docs/decisions/D53-pooled-vfs.md"]
)
def test_the_pages_name_the_size_of_pooled_vfs_that_is_measured(page: str) -> None:
    text = (Path(__file__).parents[4] / page).read_text()
    assert f" {in_etcd(pooled('vfs')) / 1000:.1f} KB" in text


@given(st.sets(st.integers(0, 24), min_size=1))
def test_vfs_of_a_pf_are_reported_by_their_indexes(numbers: set[int]) -> None:
    vfs = [each for each in sriov("p0", 25)[1:] if each.vf_index in numbers]
    groups = [group for group in report(Scene(), *vfs).interfaces if group.type == "vf"]
    assert sorted(name for group in groups for name in group.names) == sorted(vf.device_name for vf in vfs)
    for group in groups:
        assert bool(group.listed) is not bool(group.vfs)
        for index in range(25):
            assert group.has(f"p0v{index}") is (f"p0v{index}" in group.names)
        assert not group.has("p0v007")
        assert not group.has("p0v")


def test_indexes_that_were_written_by_hand_name_a_bounded_number_of_vfs() -> None:
    group = InterfaceGroup(type="vf", count=2, attributes={"pfName": "p0"}, vfs="0-999999,5-7")
    assert len(group.names) == MAX_NAMES
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"type": "vf", "count": 2, "vfs": "0-"}, InterfaceGroup)


def test_a_report_counts_the_slots_used_by_the_fullest_device() -> None:
    scene = Scene()
    status = report(scene, *sriov("p0", 2), NIC)
    devices = [device for slices in scene.slices.values() for one in slices for device in one.spec.devices]
    most = max(len(device.attributes) + len(device.capacity) for device in devices)
    assert 20 < status.used_slots == most <= 32
    assert report(Scene()).used_slots == 0
