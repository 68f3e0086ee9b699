"""`netdra plan --cluster` compares nodes' present slices with their future ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from netdra.cli.plan import command
from netdra.exposure.changes import ClusterNow, DeviceChange, compare
from netdra.model.device import DEFAULT_FEATURES
from netdra.model.inventory import Interface
from netdra.model.meta import ObjectMeta
from netdra.model.node_network import NodeNetwork
from netdra.model.plan import PlannedDevice
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice
from netdra.node.view import HeldDevice
from tests.builders import OURS, exclude, exclusive, named, policy, shared, sriov
from tests.effort import calls
from tests.unit.node.publishing.scene import NODE, POOL, Scene, without_netdev

VFS = exclusive("vfs", f'{OURS}.type == "vf"', "sriov")
PFS = exclusive("pfs", f'{OURS}.type == "pf"')


@pytest.fixture
def now() -> ClusterNow:
    """A node with a PF and three VFs, of which one is in use."""
    scene = Scene()
    scene.offering.follow((VFS, PFS), DEFAULT_FEATURES)
    scene.hold((POOL, "p0v1"))
    scene.see(*sriov("p0", 3))
    report = NodeNetwork(
        metadata=ObjectMeta(name=NODE),
        api_version="networking.dra.io/v1alpha1",
        kind="NodeNetwork",
        status=scene.offering.report(),
    )
    slices: list[ResourceSlice] = [each for pool in scene.slices.values() for each in pool]
    return ClusterNow(labels={NODE: {"rack": "a"}}, reports=(report,), policies=(VFS, PFS), slices=slices)


def line(device: str, now: str = "", after: str = "", *, allocated: bool = False) -> DeviceChange:
    return DeviceChange(node=NODE, pool=POOL, device=device, now=now, after=after, allocated=allocated)


def differing(now: ClusterNow, *written: DeviceExposurePolicy, without: Sequence[str] = ()) -> list[DeviceChange]:
    lines, notes = compare(now, written, without)
    assert notes == []
    return [each for each in lines if each.differs]


def test_unchanged_devices_are_listed_with_their_policy(now: ClusterNow) -> None:
    assert compare(now, [VFS])[0] == [
        line("p0", "pfs", "pfs"),
        line("p0v0", "vfs", "vfs"),
        line("p0v1", "vfs", "vfs", allocated=True),
        line("p0v2", "vfs", "vfs"),
    ]


def test_hidden_offered_and_taken_over_devices_are_listed(now: ClusterNow) -> None:
    guard = exclude("guard", named("p0v1"))
    macvlans = shared("macvlans", f'{OURS}.type == "pf"', deviceNameSuffix="-macvlan")
    other = exclusive("aaa", named("p0"))
    assert differing(now, guard, macvlans, other) == [
        line("p0", "pfs", "aaa"),
        line("p0-macvlan", after="macvlans"),
        line("p0v1", "vfs", allocated=True),
    ]


def test_a_policy_of_the_same_name_is_changed(now: ClusterNow) -> None:
    assert differing(now, exclusive("pfs", f"{OURS}.vfIndex == 0")) == [line("p0", "pfs"), line("p0v0", "vfs", "pfs")]


def test_a_policy_can_be_deleted(now: ClusterNow) -> None:
    assert differing(now, without=["vfs"]) == [
        line("p0v0", "vfs"),
        line("p0v1", "vfs", allocated=True),
        line("p0v2", "vfs"),
    ]


def test_a_policy_holds_on_the_nodes_that_it_selects(now: ClusterNow) -> None:
    elsewhere = exclude("guard", "true", nodeSelector={"matchLabels": {"rack": "b"}})
    here = exclude("guard", "true", nodeSelector={"matchLabels": {"rack": "a"}})
    assert differing(now, elsewhere) == []
    assert len(differing(now, here)) == 4


def test_an_unknown_result_is_reported_and_not_guessed(now: ClusterNow) -> None:
    lines, notes = compare(now, [exclude("guard", f'{OURS}.pciAddress == "0000:03:00.1"')])
    assert [each.after for each in lines] == ["pfs", "?", "vfs", "?"]
    assert notes == [f"node {NODE}: the report on 2 interfaces is incomplete, so the result is unknown"]


def test_a_node_without_a_report_is_named(now: ClusterNow) -> None:
    lines, notes = compare(replace(now, reports=()), [exclude("guard", "true")])
    assert [(each.device, each.now, each.after) for each in lines] == [
        (name, "?", "?") for name in ("p0", "p0v0", "p0v1", "p0v2")
    ]
    assert notes == [f"{NODE}: no report, so the result of the policies is unknown"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing argument 'PATH...'"),
        (["--cluster"], "Missing argument 'PATH...'"),
        (["--diff"], "--diff needs --cluster"),
        (["--without", "x"], "--without needs --cluster"),
        (["--cluster", "--inventory", "x"], "--inventory and --cluster cannot be combined"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 2
    assert said in done.output


def pooled_vfs(name: str, lanes: int = 1, cel: str = f'{OURS}.type == "vf"', **more: Any) -> DeviceExposurePolicy:
    return policy(name, cel, pooledVFs={"lanes": lanes}, supportedCNIPlugins=[{"name": "sriov"}], **more)


def reported(*policies: DeviceExposurePolicy, holding: Sequence[tuple[str, str]] = ()) -> ClusterNow:
    """A node with a PF and three VFs that these policies offer."""
    scene = Scene()
    scene.offering.follow(policies, DEFAULT_FEATURES)
    scene.hold(*holding)
    scene.see(*sriov("p0", 3))
    return now_of(scene, *policies)


def now_of(scene: Scene, *policies: DeviceExposurePolicy) -> ClusterNow:
    """The cluster with a scene's node, as that reports itself and publishes its slices."""
    report = NodeNetwork(
        metadata=ObjectMeta(name=NODE),
        api_version="networking.dra.io/v1alpha1",
        kind="NodeNetwork",
        status=scene.offering.report(),
    )
    slices = [each for pool in scene.slices.values() for each in pool]
    return ClusterNow(labels={NODE: {}}, reports=(report,), policies=policies, slices=slices)


def test_vfs_to_be_pooled_are_listed_with_their_pool_devices() -> None:
    vfs = replace(pooled_vfs("pooled", 2), spec=replace(pooled_vfs("pooled", 2).spec, priority=500))
    assert differing(reported(VFS, PFS), vfs) == [
        line("p0-vfs0", after="pooled"),
        line("p0-vfs1", after="pooled"),
        line("p0v0", "vfs"),
        line("p0v1", "vfs"),
        line("p0v2", "vfs"),
    ]


def test_pooled_vfs_that_stay_are_one_device_and_another_policy_does_not_change_them() -> None:
    lines, notes = compare(reported(pooled_vfs("pooled")), [PFS])
    assert (lines, notes) == ([line("p0", after="pfs"), line("p0-vfs", "pooled", "pooled")], [])


def test_changed_lanes_and_removed_pools_are_listed() -> None:
    now = reported(pooled_vfs("pooled"))
    assert differing(now, pooled_vfs("pooled", 5)) == [
        line("p0-vfs", "pooled"),
        line("p0-vfs0", after="pooled"),
        line("p0-vfs1", after="pooled"),
        line("p0-vfs2", after="pooled"),
    ]
    assert differing(now, without=["pooled"]) == [line("p0-vfs", "pooled")]
    assert differing(now, VFS, without=["pooled"]) == [
        line("p0-vfs", "pooled"),
        *(line(f"p0v{number}", after="vfs") for number in range(3)),
    ]


def test_a_pool_that_loses_some_of_its_vfs_stays() -> None:
    assert differing(reported(pooled_vfs("pooled")), exclude("guard", named("p0v1"))) == []


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2), st.booleans())
def test_the_pooled_devices_that_are_foreseen_are_those_that_the_node_makes(
    before: int, after: int, own: int, raised: bool
) -> None:
    """With any pooled VFs before and after, beside a VF that is a device of its own."""
    first = pooled_vfs("pooled", before)
    second = pooled_vfs("pooled", after, cel=f'{OURS}.type == "vf" && {OURS}.vfIndex != {own}' if raised else "true")
    single = exclusive("single", f"{OURS}.vfIndex == {own}", "sriov")
    lines, notes = compare(reported(first), [second, single])
    made = {each.name for slices in reported(second, single).slices for each in slices.spec.devices}
    assert notes == []
    assert {each.device for each in lines if each.after} == made


def test_a_lane_of_vfs_in_pods_stays_though_no_policy_matches_these_there() -> None:
    driven = pooled_vfs("pooled", 3, cel=f'{OURS}.type == "vf" && {OURS}.mtu > 0')
    scene = Scene()
    scene.offering.follow((driven,), DEFAULT_FEATURES)
    pf, first, second, third = sriov("p0", 3)
    scene.see(pf, first, second, third)
    scene.holding = [HeldDevice(key=(POOL, "p0-vfs2"), claim="c", facts=_chosen(third))]
    scene.see(pf, first, second, without_netdev(third))
    now = now_of(scene, driven)
    assert [(each.device, each.now, each.after) for each in compare(now, [PFS])[0]] == [
        ("p0", "", "pfs"),
        *((f"p0-vfs{number}", "pooled", "pooled") for number in range(3)),
    ]


def _chosen(vf: Interface) -> PlannedDevice:
    return PlannedDevice(
        request="r", pool=POOL, device="p0-vfs2", type="vf", pci_address=vf.pci_address, share_id="s", pooled=True
    )


def several(count: int, *policies: DeviceExposurePolicy, vfs: int = 3) -> ClusterNow:
    """As many nodes with a PF each, whose VFs have MAC addresses of their own; every other node is in rack b."""
    nodes = []
    for number in range(count):
        scene = Scene()
        scene.offering.follow(policies, DEFAULT_FEATURES)
        scene.see(
            *(replace(each, mac=f"02:00:00:00:{number:02x}:{at:02x}") for at, each in enumerate(sriov("p0", vfs)))
        )
        (report,) = now_of(scene, *policies).reports
        nodes.append(replace(report, metadata=ObjectMeta(name=f"n{number:02}")))
    labels = {report.name: {"rack": "ab"[number % 2]} for number, report in enumerate(nodes)}
    return ClusterNow(labels=labels, reports=nodes, policies=policies, slices=())


IN_B = {"nodeSelector": {"matchLabels": {"rack": "b"}}}
CHANGES = (
    exclude("guard", named("p0v1")),
    exclude("guard", f'{OURS}.mac == "02:00:00:00:01:01"'),
    exclude("guard", f"{OURS}.vfIndex > 0", **IN_B),
    exclusive("aaa", f'{OURS}.type == "vf" && {OURS}.vfIndex < 2'),
    exclusive("pfs", f"{OURS}.vfIndex == 0"),
    pooled_vfs("pooled", 2, spec={"priority": 500}),
)


@given(st.lists(st.sampled_from(CHANGES), min_size=1, max_size=3, unique_by=lambda each: each.name))
def test_a_node_among_others_is_planned_as_if_it_were_alone(written: list[DeviceExposurePolicy]) -> None:
    now = FOUR
    lines, notes = compare(now, written)
    alone = [
        compare(replace(now, reports=(each,), labels={each.name: now.labels[each.name]}), written)
        for each in now.reports
    ]
    assert lines == [each for of_node, _ in alone for each in of_node]
    assert notes == [each for _, of_node in alone for each in of_node]


FOUR = several(4, VFS, PFS)


def test_nodes_that_are_alike_cost_no_evaluation() -> None:
    def effort(count: int) -> int:
        now = several(count, VFS, PFS, vfs=16)
        return calls(lambda: compare(now, [CHANGES[2]]))

    few, many = effort(4), effort(12)
    devices = (12 - 4) * 17
    assert many - few < 60 * devices
