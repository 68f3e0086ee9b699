"""Steps that send with a MAC address that the NIC does not expect of the VF below them."""

from __future__ import annotations

import pytest

from netdra.rules.foreign_macs import check
from netdra.rules.topologies import check_unwise
from tests.builders import topology

OVER = """
- {{name: nic, type: {kind}, selector: {{cel: 'true'}}, config: {{{vf}}}}}
- {{name: other, type: sriov, selector: {{cel: 'true'}}, config: {{spoofchk: "off"}}}}
- {{name: over, type: {over}, dependOn: [{below}], config: {{{config}}}}}
"""
DEFAULTS = {"kind": "sriov", "vf": "", "over": "macvlan", "below": "nic", "config": "mode: bridge"}
VLAN = "id: 7, mac: '02:00:00:00:00:99'"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "macvlan sends with a MAC address of its own, but spoofchk of step nic is not off"),
        ({"vf": 'spoofchk: "on"'}, "spoofchk of step nic is not off"),
        ({"vf": "trust: true"}, "spoofchk of step nic is not off"),
        ({"vf": 'spoofchk: "off"'}, ""),
        ({"kind": "host-device"}, ""),
        ({"below": "other"}, ""),
        ({"config": "mode: passthru"}, ""),
        ({"over": "ipvlan", "config": "mode: l2"}, ""),
        ({"over": "vlan", "config": VLAN}, "vlan sends with a MAC address of its own"),
        ({"over": "vlan", "config": "id: 7"}, ""),
        ({"over": "vlan", "config": VLAN, "vf": "mac: '02:00:00:00:00:99'"}, ""),
        ({"below": "nic, other", "config": "mode: bridge, master: '{{ other.interfaceName }}'"}, ""),
        ({"below": "nic, other", "config": "mode: bridge, master: '{{ nic.interfaceName }}'"}, "spoofchk of step nic"),
    ],
)
def test_a_mac_address_that_is_not_that_of_the_vf_is_warned_of(changes: dict[str, str], text: str) -> None:
    made = topology(OVER.format(**DEFAULTS | changes))
    found = [finding.text for finding in check(made)]

    assert len(found) == bool(text), found
    assert all(text in each for each in found)
    assert set(found) <= {finding.text for finding in check_unwise(made)}


@pytest.mark.parametrize(("kind", "warns"), [("vf", True), ("pf", False)])
def test_a_macvlan_on_a_vf_of_the_node_is_warned_of(kind: str, *, warns: bool) -> None:
    selector = f'device.attributes["dra.networking"].type == "{kind}"'
    made = topology(f"- {{name: lan, type: macvlan, selector: {{cel: '{selector}'}}, config: {{mode: bridge}}}}")
    assert bool([*check(made)]) is warns


def test_two_vfs_with_one_mac_address_are_warned_of() -> None:
    step = "- {{name: {}, type: sriov, selector: {{cel: 'true'}}, config: {{mac: '{}'}}}}\n"
    same = topology(step.format("a", "02:00:00:00:00:AA") + step.format("b", "02:00:00:00:00:aa"))
    different = topology(step.format("a", "02:00:00:00:00:aa") + step.format("b", "02:00:00:00:00:ab"))

    assert ['mac 02:00:00:00:00:aa is also that of step "a"' in finding.text for finding in check(same)] == [True]
    assert [*check(different)] == []
