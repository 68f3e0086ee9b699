"""The settings of a VF that differ from before, as its PF reports them."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from netdra.cni.plugins import PluginPath
from netdra.kernel import vf
from netdra.kernel.link import Link
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.kernel.sysfs import Sysfs
from netdra.kernel.vf import VF
from netdra.steps import functions
from netdra.steps.contract import Site

BEFORE = VF(
    index=3,
    mac="02:00:00:00:00:01",
    vlan=0,
    spoof_check=True,
    trust=False,
    link_state="auto",
    min_rate=0,
    max_rate=0,
    node_guid="00:11:22:33:44:55:66:77",
    port_guid="00:11:22:33:44:55:66:78",
)


@pytest.mark.parametrize(
    ("now", "told", "matters"),
    [
        ({"vlan": 100}, "VLAN 100, not 0", True),
        ({"vlan": 100, "qos": 3}, "VLAN 100, not 0; QoS 3, not 0", True),
        ({"protocol": "802.1ad"}, "VLAN protocol 802.1ad, not 802.1q", True),
        ({"spoof_check": False}, "spoof check off, not on", True),
        ({"trust": True}, "trust on, not off", True),
        ({"link_state": "enable"}, "link state enable, not auto", True),
        ({"min_rate": 10, "max_rate": 200}, "min rate 10, not 0; max rate 200, not 0", True),
        ({"node_guid": "0:0"}, "node GUID 0:0, not 00:11:22:33:44:55:66:77", True),
        ({"port_guid": "0:0"}, "port GUID 0:0, not 00:11:22:33:44:55:66:78", True),
        ({"trust": None}, "trust unknown, not off", True),
        ({"mac": "02:00:00:00:00:99"}, "MAC 02:00:00:00:00:99, not 02:00:00:00:00:01", False),
    ],
)
def test_each_changed_vf_setting_is_reported_with_its_former_value(
    now: dict[str, object], told: str, matters: bool
) -> None:
    found = tuple(functions.differences(BEFORE, msgspec.structs.replace(BEFORE, **now), "VF 3 of eth0"))
    assert "; ".join(each.text.removeprefix("VF 3 of eth0 has ") for each in found) == told
    assert {each.matters for each in found} == {matters}


def test_unchanged_or_previously_unknown_vf_settings_yield_no_difference() -> None:
    assert not list(functions.differences(BEFORE, BEFORE, "VF 3"))
    silent = VF(index=3)
    assert not list(functions.differences(silent, msgspec.structs.replace(BEFORE, qos=0), "VF 3"))


def test_of_a_vf_that_another_sandbox_has_no_settings_are_recorded_with_its_pf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That sandbox restores them, perhaps before the PF comes back: recorded, they would be given to the VF again."""
    pf, vfs = "0000:81:00.0", ("0000:81:10.0", "0000:81:10.2")
    folder = tmp_path / "bus/pci/devices" / pf
    folder.mkdir(parents=True)
    (folder / "sriov_numvfs").write_text("2")
    for number, address in enumerate(vfs):
        (folder / f"virtfn{number}").symlink_to(f"../{address}")
    trusted = [VF(index=number, mac="02:00:00:00:00:01", trust=True) for number in range(2)]
    monkeypatch.setattr(vf, "read", lambda *_: tuple(trusted))
    site = Site(
        host=cast("Socket", None),
        host_namespace=cast("Namespace", None),
        pod=None,
        container_id="sb",
        arguments={},
        plugins=PluginPath(),
        sysfs=Sysfs(str(tmp_path)),
        deadline=time.monotonic() + 9,
        lock=-1,
        holder=lambda address: "other" if address == vfs[1] else "",
        port_holder=lambda _: "",
    )

    found = functions.all_of(cast("Link", SimpleNamespace(index=7)), pf, site)

    assert found is not None
    assert [(entry.address, entry.before) for entry in found.vfs] == [(vfs[0], trusted[0]), (vfs[1], VF(index=1))]
