"""GIDs are a capacity of shared devices with RoCE: one entry for each address and version, as the kernel does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdra.exposure import expose
from netdra.kernel.rdma import GidTable, gid_table
from netdra.kernel.sysfs import Sysfs
from netdra.model.policy import DeviceExposurePolicy
from tests.builders import exclusive, inventory, pf, policy, shared

OWN = {"gids": {"value": "40", "requestPolicy": {"default": "1"}}}
ROOM = [f"a{number}" for number in range(2)]


def share(**exposure: Any) -> DeviceExposurePolicy:
    return shared("share", "true", supportedCNIPlugins=[{"name": "macvlan"}], **exposure)


@pytest.mark.parametrize(
    ("made", "facts", "expected"),
    [
        (share(), {"gid_entries": 128, "gid_versions": 2, "rdma_mode": "shared"}, ("124", "4")),
        (share(), {"gid_entries": 128, "gid_versions": 1, "rdma_mode": "shared"}, ("126", "2")),
        (share(), {"gid_entries": 128, "gid_versions": 2, "rdma_mode": ""}, ("124", "4")),
        (share(), {"gid_entries": 128, "gid_versions": 2, "rdma_mode": "exclusive"}, None),
        (share(), {"gid_entries": 7, "gid_versions": 2, "rdma_mode": "shared"}, None),
        (share(), {"rdma_mode": "shared"}, None),
        (exclusive("x", "true"), {"gid_entries": 128, "gid_versions": 2, "rdma_mode": "shared"}, None),
        (
            policy("own", "true", allowMultipleAllocations=True, capacity=OWN),
            {"gid_entries": 128, "gid_versions": 2, "rdma_mode": "shared"},
            ("40", "1"),
        ),
    ],
    ids=["both-versions", "v2", "unknown-mode", "exclusive-mode", "tiny", "no-roce", "whole-device", "policy"],
)
def test_a_shared_device_with_roce_has_the_gids_that_the_host_does_not_need(
    made: DeviceExposurePolicy, facts: dict[str, Any], expected: tuple[str, str] | None
) -> None:
    found = expose(inventory(pf("ens1", **facts)), [made])
    (device,) = found.devices
    gids = device.capacity.get("dra.networking/gids")
    assert (None if gids is None else (gids.value, gids.request_policy and gids.request_policy.default)) == expected
    assert found.problems == ()


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ({}, {"ens1-one": "62", "ens1-two": "62"}),
        ({"exclusionGroup": "rx-handler"}, {"ens1-one": "124", "ens1-two": "124"}),
        ({"capacity": OWN}, {"ens1-one": "124", "ens1-two": "40"}),
    ],
    ids=["both-at-once", "one-group", "own-amount"],
)
def test_shared_devices_of_a_nic_that_can_be_allocated_at_once_divide_its_gid_table(
    second: dict[str, Any], expected: dict[str, str]
) -> None:
    ports = {"ports": {"value": "64", "requestPolicy": {"default": "1"}}}
    both: dict[str, Any] = {"allowMultipleAllocations": True, "capacity": ports}
    group = {name: value for name, value in second.items() if name == "exclusionGroup"}
    one = policy("one", "true", supportedCNIPlugins=[{"name": "macvlan"}], deviceNameSuffix="-one", **both | group)
    two = policy("two", "true", supportedCNIPlugins=[{"name": "vlan"}], deviceNameSuffix="-two", **both | second)

    found = expose(inventory(pf("ens1", gid_entries=128, gid_versions=2, rdma_mode="shared")), [one, two])

    assert {device.name: device.capacity["dra.networking/gids"].value for device in found.devices} == expected


@pytest.mark.parametrize("bandwidth", [False, True])
def test_gids_that_a_full_device_has_no_place_for_are_reported(bandwidth: bool) -> None:
    ports = {"ports": {"value": "64", "requestPolicy": {"default": "1"}}}
    rate = {"bandwidth": {"value": "100000", "requestPolicy": {"default": "0"}}} if bandwidth else {}
    made = policy(
        "share",
        "true",
        allowMultipleAllocations=True,
        capacity=ports | rate,
        additionalAttributes=dict.fromkeys(ROOM, "x"),
    )
    found = expose(inventory(pf("ens1", gid_entries=128, gid_versions=2)), [made])
    (device,) = found.devices
    assert len(device.attributes) + len(device.capacity) == 32
    assert ("dra.networking/gids" in device.capacity) is not bandwidth
    told = ["ens1: capacity gids is not published for lack of space; the scheduler does not count GIDs"]
    assert [problem.message for problem in found.problems] == told * bandwidth


def _port(root: Path, link_layer: str, types: list[str], entries: int) -> Sysfs:
    port = root / "class/infiniband/mlx5_0/ports/1"
    (port / "gid_attrs/types").mkdir(parents=True)
    (port / "gids").mkdir()
    (port / "link_layer").write_text(f"{link_layer}\n")
    for number in range(entries):
        (port / "gids" / str(number)).write_text("0000:0000:0000:0000:0000:0000:0000:0000\n")
    for number, kind in enumerate(types):
        (port / "gid_attrs/types" / str(number)).write_text(f"{kind}\n")
    return Sysfs(str(root))


@pytest.mark.parametrize(
    ("link_layer", "types", "entries", "expected"),
    [
        ("Ethernet", ["IB/RoCE v1", "RoCE v2", "IB/RoCE v1", "RoCE v2"], 255, (255, 2)),
        ("Ethernet", ["RoCE v2"], 1024, (1024, 1)),
        ("Ethernet", [], 128, (128, 2)),
        ("InfiniBand", ["IB/RoCE v1"], 128, (0, 0)),
        ("Ethernet", [], 0, (0, 0)),
    ],
)
def test_the_gid_table_of_a_port_is_read_from_sysfs(
    tmp_path: Path, link_layer: str, types: list[str], entries: int, expected: tuple[int, int]
) -> None:
    assert gid_table(_port(tmp_path, link_layer, types, entries), "mlx5_0") == GidTable(*expected)
