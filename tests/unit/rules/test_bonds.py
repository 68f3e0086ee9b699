"""Bonds of VFs that the NIC or the switch does not carry, and bonds that do not survive the loss of a link."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from netdra.model.topology import DeclaredParameter
from netdra.rules.bonds import failover, one_mac
from netdra.rules.topologies import check_unwise
from netdra.topology.graph import examine
from tests.builders import topology

BOND = """
- {{name: a, type: {kind}, selector: {{cel: 'true'}}, config: {{{vf}}}}}
- {{name: b, type: {kind}, selector: {{cel: 'true'}}, config: {{spoofchk: "off"}}}}
- name: bond0
  type: bond
  dependOn: [a, b]
  config: {{{bond}, links: ["{{{{ a.interfaceName }}}}", "{{{{ b.interfaceName }}}}"]}}
"""


@pytest.mark.parametrize(
    ("bond", "vf", "warns"),
    [
        ("mode: active-backup", "", True),
        ("mode: active-backup", 'spoofchk: "on"', True),
        ("mode: active-backup", "spoofchk: true", True),
        ("mode: active-backup", 'trust: "on"', True),
        ("mode: active-backup, failOverMac: follow", "", True),
        ("mode: 802.3ad, failOverMac: active", "", True),
        ("mode: active-backup, failOverMac: active", "", False),
        ("mode: 1, failOverMac: 1", "", False),
        ("mode: active-backup", 'spoofchk: "off"', False),
        ("mode: 802.3ad", "spoofchk: false", False),
        ("mode: active-backup, failOverMac: '{{ params.p }}'", "", False),
        ("mode: active-backup", "spoofchk: '{{ params.p }}'", False),
    ],
)
def test_a_bond_with_one_mac_is_warned_of_unless_spoofchk_of_all_vfs_is_off(bond: str, vf: str, *, warns: bool) -> None:
    made = topology(BOND.format(kind="sriov", vf=vf, bond=bond))
    made = replace(made, spec=replace(made.spec, parameters=(DeclaredParameter(name="p", enum=("on", "active")),)))
    assert examine(made)[1] == ()
    found = [finding.text for finding in one_mac(made)]

    assert len(found) == warns, found
    assert all("spoofchk of step a is not off" in text for text in found)
    assert [finding.text for finding in check_unwise(made) if "spoofchk" in finding.text] == found


def test_a_bond_of_other_devices_is_in_order() -> None:
    assert [*one_mac(topology(BOND.format(kind="host-device", vf="", bond="mode: active-backup")))] == []


PFS = """
- {{name: a, type: sriov, selector: {{cel: '{one}'}}, config: {{{vf}}}}}
- {{name: b, type: sriov, selector: {{cel: '{other}'}}}}
- name: bond0
  type: bond
  execution: {execution}
  dependOn: [a, b]
  config: {{{bond}, links: [{links}]}}
"""
PF0, PF1 = (f'device.attributes["dra.networking"].pfName == "nic{number}"' for number in (0, 1))
DEFAULTS = {
    "one": PF0,
    "other": PF1,
    "vf": "",
    "execution": "Auto",
    "bond": "mode: active-backup",
    "links": "{name: net1}, {name: net2}",
}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, ""),
        ({"execution": "Binary"}, ""),
        ({"bond": "mode: active-backup, miimon: 50"}, ""),
        ({"bond": "mode: active-backup, miimon: 0"}, "miimon 0 disables the link monitor"),
        ({"bond": "mode: active-backup, miimon: '0'", "execution": "Binary"}, "miimon 0 disables the link monitor"),
        ({"bond": "mode: active-backup, miimon: 0, arpInterval: 100, arpIpTarget: [192.0.2.1]"}, ""),
        ({"vf": "linkState: enable"}, 'step "a": linkState enable hides a lost link'),
        ({"vf": "linkState: auto"}, ""),
        (
            {"vf": "linkState: enable", "bond": "mode: active-backup, arpInterval: 100, arpIpTarget: [192.0.2.1]"},
            "",
        ),
        ({"bond": "mode: 802.3ad"}, "most NICs do not forward them from a VF"),
        ({"bond": "mode: 4"}, "most NICs do not forward them from a VF"),
        ({"other": PF0}, 'the VFs of steps "a" and "b" are of one PF, nic0'),
        ({"other": f"{PF0} || {PF1}"}, ""),
        ({"other": f"!({PF0})"}, ""),
        ({"links": "{name: net1}, {name: eth7}"}, 'no step before the bond creates an interface "eth7"'),
        ({"links": "'{{ a.interfaceName }}', '{{ b.interfaceName }}'"}, ""),
    ],
)
def test_a_bond_that_does_not_survive_the_loss_of_a_link_is_warned_of(changes: dict[str, str], text: str) -> None:
    made = topology(PFS.format(**DEFAULTS | changes))
    found = [finding.text for finding in failover(made)]

    assert len(found) == bool(text), found
    assert all(text in each for each in found)
    assert set(found) <= {finding.text for finding in check_unwise(made)}


def test_a_bond_of_whole_nics_may_use_lacp() -> None:
    assert [*failover(topology(BOND.format(kind="host-device", vf="", bond="mode: 802.3ad")))] == []
