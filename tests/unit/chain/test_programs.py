"""The facts on well-known programs: sriov-cni's notes of a VF, and a config for CHECK."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest

from netdra.chain import flow, programs
from netdra.chain.flow import ChainStep
from netdra.cni.plugins import PluginPath
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.kernel.sysfs import Sysfs
from netdra.model.plan import PlannedDevice
from netdra.steps.contract import Site
from tests.plans import plan, step

VF = PlannedDevice(request="r", pool="p", device="vf0", if_name="vf0", pci_address="0000:41:10.4")
NETNS = "/var/run/netns/pod1"


def site_with_root(root: Path) -> Site:
    return Site(
        host=cast("Socket", None),
        host_namespace=cast("Namespace", None),
        pod=None,
        container_id="sb",
        arguments={},
        plugins=PluginPath(root=str(root)),
        sysfs=Sysfs(),
        deadline=time.monotonic() + 9,
        lock=-1,
        holder=lambda _: "",
    )


def task(kind: str, **facts: Any) -> ChainStep:
    (only,) = flow.tasks([plan(step("vf", kind, "net1", binary=True, **facts))]).values()
    return only


@pytest.mark.parametrize(
    ("kind", "config", "device", "noted", "stays"),
    [
        ("sriov", {}, VF, NETNS, False),
        ("sriov", {"deviceID": VF.pci_address}, None, NETNS, False),
        ("sriov", {}, VF, "/var/run/netns/another", True),
        ("host-device", {}, VF, NETNS, True),
        ("sriov", {"deviceID": "../x"}, None, NETNS, True),
    ],
)
def test_the_note_that_the_pods_namespace_has_a_vf_is_removed_and_no_other(
    tmp_path: Path, kind: str, config: dict[str, Any], device: PlannedDevice | None, noted: str, stays: bool
) -> None:
    note = tmp_path / "var/lib/cni/sriov/pci" / VF.pci_address
    note.parent.mkdir(parents=True)
    note.write_text(noted)
    programs.forget_device(task(kind, device=device), config, site_with_root(tmp_path), NETNS)
    assert note.exists() is stays
    programs.forget_device(task(kind, device=device), config, site_with_root(tmp_path / "none"), NETNS)


@pytest.mark.parametrize(
    ("config", "later", "checked"),
    [
        ({"mtu": 1500, "vlanId": 7}, [{"mtu": 1400}], {"mtu": 1400, "vlanId": 7}),
        ({"mtu": 1500}, [{"mtu": 1400}, {"mtu": 1300}, {"promisc": True}], {"mtu": 1300}),
        ({"vlanId": 7}, [{"mtu": 1400}], {"vlanId": 7}),
        ({"txQLen": 5, "promisc": True}, [{"txqlen": 6, "promisc": False}], {"txQLen": 6, "promisc": False}),
        ({"mtu": 1500}, [], {"mtu": 1500}),
        ({"sysctl": {"a": "1", "b": "2"}}, [{"sysctl": {"b": "3", "c": "4"}}], {"sysctl": {"a": "1", "b": "3"}}),
    ],
)
def test_a_program_is_checked_with_the_values_that_tuning_has_set_after_it(
    config: dict[str, Any], later: list[dict[str, Any]], checked: dict[str, Any]
) -> None:
    assert programs.as_tuned(config, later) == checked
