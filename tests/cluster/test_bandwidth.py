"""Claims ask for bandwidth, and the real scheduler never gives more of a link than there is (decision D4)."""

from __future__ import annotations

from typing import Any

import pytest

from netdra.exposure import expose
from netdra.model import documents
from netdra.model.policy import DeviceExposurePolicy
from netdra.slices.pack import pack
from testbed.api import Object
from testbed.objects import CLAIM
from testbed.workspace import Workspace
from tests.builders import OURS, exclusive, inventory, named, pf, policy, shared, sriov

DRIVER = "dra.networking"
VFS = f'{OURS}.type == "vf"'
LINK = 100_000


def node_with(workspace: Workspace, *policies: DeviceExposurePolicy) -> str:
    """A node that publishes a PF with a link of 100 Gbit/s and two VFs."""
    node = workspace.add_node()
    result = expose(inventory(*sriov("ens1", 2, speed=LINK), node=node), policies)
    assert result.problems == ()
    workspace.publish(node, *[documents.plain(each) for each in pack(result, node=node)])
    return node


def lender(name: str, mbits: int) -> DeviceExposurePolicy:
    capacity = {"bandwidth": {"value": str(mbits), "requestPolicy": {"default": "1000"}}}
    more: dict[str, Any] = {"deviceNameSuffix": f"-{name}", "allowMultipleAllocations": True, "capacity": capacity}
    return policy(name, named("ens1"), **more)


def asking(device_class: str, mbits: int) -> Object:
    wanted = {"requests": {f"{DRIVER}/bandwidth": str(mbits)}}
    return {"name": "it", "exactly": {"deviceClassName": device_class, "capacity": wanted}}


def pooled(lanes: int) -> DeviceExposurePolicy:
    return policy("vfs", VFS, pooledVFs={"lanes": lanes}, supportedCNIPlugins=[{"name": "sriov"}])


@pytest.mark.parametrize(
    ("policies", "asked", "expected"),
    [
        ((exclusive("vfs", VFS),), (60_000, 40_000), ["", "ens1v0"]),
        ((pooled(1),), (60_000, 60_000, 40_000), ["ens1-vfs", "", "ens1-vfs"]),
        ((pooled(2),), (60_000, 40_000, 40_000), ["", "ens1-vfs0", "ens1-vfs1"]),
        ((lender("a", 60_000), lender("b", 60_000)), (60_000, 60_000), ["ens1-a", ""]),
    ],
    ids=["vfs", "pooled-vfs", "lanes-of-pooled-vfs", "shared-devices"],
)
def test_a_claim_gets_a_vf_with_as_much_bandwidth_as_it_asks_for_or_none(
    workspace: Workspace, policies: tuple[DeviceExposurePolicy, ...], asked: tuple[int, ...], expected: list[str]
) -> None:
    node = node_with(workspace, *policies)
    anything = workspace.add_class("any", f'device.driver == "{DRIVER}"')
    placed = [workspace.place(asking(anything, mbits), node=node) for mbits in asked]
    assert [bool(reason) for _, reason in placed] == [not device for device in expected]
    assert [workspace.devices(claim)[0] if claim else "" for claim, _ in placed] == expected


def test_a_pod_is_pending_when_the_gid_table_of_a_shared_rdma_device_is_full(workspace: Workspace) -> None:
    """8 entries of RoCE v2: 2 of the host, 2 for each of three pods."""
    node = workspace.add_node()
    nic = pf("ens1", rdma_mode="shared", gid_entries=8, gid_versions=1)
    result = expose(inventory(nic, node=node), [shared("share", "true", supportedCNIPlugins=[{"name": "macvlan"}])])
    assert result.problems == ()
    workspace.publish(node, *[documents.plain(each) for each in pack(result, node=node)])
    anything = workspace.add_class("any", f'device.driver == "{DRIVER}"')
    request = {"name": "it", "exactly": {"deviceClassName": anything}}
    placed = [workspace.place(request, node=node) for _ in range(4)]
    assert [reason for _, reason in placed[:3]] == [""] * 3
    assert "cannot allocate all claims" in placed[3][1]


def test_a_claim_consumes_the_capacity_that_its_plugin_requires(workspace: Workspace) -> None:
    plugin = {"name": "macvlan", "consumePerAllocation": {"seats": "2"}}
    node = node_with(workspace, shared("seats", named("ens1"), capacity="seats", value=5, supportedCNIPlugins=[plugin]))
    anything = workspace.add_class("any", f'device.driver == "{DRIVER}"')
    request = {"name": "it", "exactly": {"deviceClassName": anything}}
    assert [bool(workspace.place(request, node=node)[0]) for _ in range(3)] == [True, True, False]


def test_claims_share_the_bandwidth_of_a_vf_and_claims_without_a_request_consume_none(workspace: Workspace) -> None:
    node = node_with(workspace, shared("vfs", f"{VFS} && {OURS}.vfIndex == 0"))
    vfs = workspace.add_class("vfs", f'device.driver == "{DRIVER}" && {VFS}')
    silent, reason = workspace.place({"name": "it", "exactly": {"deviceClassName": vfs}}, node=node)
    assert reason == ""
    (given,) = workspace.api.get(CLAIM, silent, workspace.namespace)["status"]["allocation"]["devices"]["results"]
    assert given["consumedCapacity"][f"{DRIVER}/bandwidth"] == "0"
    assert [bool(workspace.place(asking(vfs, 30_000), node=node)[0]) for _ in range(2)] == [True, False]
    assert workspace.place(asking(vfs, 20_000), node=node)[1] == ""


@pytest.mark.parametrize(("of_each", "together"), [(40_000, True), (60_000, False)])
def test_shared_devices_of_a_link_are_allocated_together_only_within_its_bandwidth(
    workspace: Workspace, of_each: int, together: bool
) -> None:
    node = node_with(workspace, lender("a", of_each), lender("b", of_each))
    anything = workspace.add_class("any", f'device.driver == "{DRIVER}"')
    claims = [claim for claim, _ in (workspace.place(asking(anything, of_each), node=node) for _ in range(2)) if claim]
    assert [device for claim in claims for device in workspace.devices(claim)] == ["ens1-a", "ens1-b"][: len(claims)]
    assert len(claims) == (2 if together else 1)
