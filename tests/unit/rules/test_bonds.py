"""Bonds of VFs that send with one MAC address, though the NIC checks the MAC addresses of the VFs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from netdra.model.topology import DeclaredParameter
from netdra.rules.bonds import one_mac
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
