"""The settings of a VF that differ from before, as its PF reports them."""

from __future__ import annotations

import msgspec
import pytest

from netdra.kernel.vf import VF
from netdra.steps import functions

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
