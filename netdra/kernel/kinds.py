"""The attributes of each kind of link (IFLA_INFO_DATA) as bytes, and back.

Follows include/uapi/linux/if_link.h, if_bonding.h, veth.h. Callers give the result to `link.create` or `link.change`;
words for modes are those of ip-link(8).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from netdra.kernel import link
from netdra.kernel.netlink import attribute, attributes, be16, nested, to_be16, to_u8, to_u16, to_u32, u8, u16, u32
from netdra.model.errors import InvalidInputError

MACVLAN_MODES = {"private": 1, "vepa": 2, "bridge": 4, "passthru": 8, "source": 16}
VLAN_PROTOCOLS = {"802.1q": 0x8100, "802.1ad": 0x88A8}
BOND_MODES = {
    "balance-rr": 0,
    "active-backup": 1,
    "balance-xor": 2,
    "broadcast": 3,
    "802.3ad": 4,
    "balance-tlb": 5,
    "balance-alb": 6,
}
XMIT_HASH_POLICIES = {"layer2": 0, "layer3+4": 1, "layer2+3": 2, "encap2+3": 3, "encap3+4": 4, "vlan+srcmac": 5}
LACP_RATES = {"slow": 0, "fast": 1}
AD_SELECTS = {"stable": 0, "bandwidth": 1, "count": 2}
FAIL_OVER_MACS = {"none": 0, "active": 1, "follow": 2}
PRIMARY_RESELECTS = {"always": 0, "better": 1, "failure": 2}
ARP_VALIDATES = {"none": 0, "active": 1, "backup": 2, "all": 3, "filter": 4, "filter_active": 5, "filter_backup": 6}

_VLAN_ID, _VLAN_PROTOCOL = 1, 5
_VETH_PEER = 1
_VXLAN_LINK = 3
_BRIDGE_VLAN_FILTERING = 7
_BOND_ARP_TARGETS = 8

_BOND: Mapping[str, tuple[int, Callable[[int], bytes], Mapping[str, int] | None]] = {
    "mode": (1, u8, BOND_MODES),
    "active_port": (2, u32, None),
    "miimon": (3, u32, None),
    "updelay": (4, u32, None),
    "downdelay": (5, u32, None),
    "use_carrier": (6, u8, None),
    "arp_interval": (7, u32, None),
    "arp_validate": (9, u32, ARP_VALIDATES),
    "primary": (11, u32, None),
    "primary_reselect": (12, u8, PRIMARY_RESELECTS),
    "fail_over_mac": (13, u8, FAIL_OVER_MACS),
    "xmit_hash_policy": (14, u8, XMIT_HASH_POLICIES),
    "resend_igmp": (15, u32, None),
    "num_peer_notif": (16, u8, None),
    "all_ports_active": (17, u8, None),
    "min_links": (18, u32, None),
    "lp_interval": (19, u32, None),
    "packets_per_port": (20, u32, None),
    "lacp_rate": (21, u8, LACP_RATES),
    "ad_select": (22, u8, AD_SELECTS),
    "ad_actor_sys_prio": (24, u16, None),
    "ad_user_port_key": (25, u16, None),
    "tlb_dynamic_lb": (27, u8, None),
    "peer_notif_delay": (28, u32, None),
}

_BRIDGE: Mapping[str, tuple[int, Callable[[int], bytes]]] = {
    "forward_delay": (1, u32),
    "hello_time": (2, u32),
    "max_age": (3, u32),
    "ageing_time": (4, u32),
    "stp_state": (5, u32),
    "priority": (6, u16),
    "vlan_filtering": (_BRIDGE_VLAN_FILTERING, u8),
    "vlan_protocol": (8, be16),
    "vlan_default_pvid": (39, u16),
}


class Peer(msgspec.Struct, frozen=True):
    """The other end of a veth pair."""

    name: str
    netns_fd: int | None = None
    mac: str | None = None
    mtu: int | None = None


def veth(peer: Peer) -> bytes:
    """The data of a veth; its peer is made with it, in the namespace of its `netns_fd` if it has one."""
    return nested(_VETH_PEER, link.encode(name=peer.name, netns_fd=peer.netns_fd, mac=peer.mac, mtu=peer.mtu))


def vlan(vlan_id: int, protocol: str = "802.1q") -> bytes:
    """The data of a VLAN link; it needs `lower`."""
    number = _choice("vlan protocol", protocol.lower(), VLAN_PROTOCOLS)
    return attribute(_VLAN_ID, u16(vlan_id)) + attribute(_VLAN_PROTOCOL, be16(number))


def macvlan(mode: str = "bridge") -> bytes:
    """The data of a macvlan (or macvtap) link; it needs `lower`."""
    return attribute(1, u32(_choice("macvlan mode", mode, MACVLAN_MODES)))


def vrf(table: int) -> bytes:
    """The data of a VRF whose routes are in that table."""
    return attribute(1, u32(table))


def vxlan(vni: int, *, lower: int = 0, port: int = 4789) -> bytes:
    """The data of a VXLAN link; `lower` is the index of the link that carries it, 0 for none."""
    carried = attribute(_VXLAN_LINK, u32(lower)) if lower else b""
    return attribute(1, u32(vni)) + carried + attribute(7, u8(1)) + attribute(15, be16(port))


def bridge(**options: int) -> bytes:
    """The data of a bridge: `vlan_filtering`, `stp_state`, `vlan_default_pvid` ...; times in hundredths of seconds.

    Raises:
        InvalidInputError: an option is unknown.
    """
    encoded = b""
    for name, value in options.items():
        number, encoder = _BRIDGE[_checked("bridge option", name, _BRIDGE)]
        encoded += attribute(number, encoder(value))
    return encoded


def bond(**options: Any) -> bytes:
    """The data of a bond: options as in the kernel's Documentation/networking/bonding, with words or numbers.

    `arp_targets` is a sequence of IPv4 addresses, `primary` and `active_port` are indexes; times in milliseconds.

    Raises:
        InvalidInputError: an option or its word is unknown.
    """
    encoded = b""
    targets = options.pop("arp_targets", ())
    for name, value in options.items():
        number, encoder, words = _BOND[_checked("bond option", name, _BOND)]
        encoded += attribute(number, encoder(_choice(f"bond {name}", value, words) if words else int(value)))
    if targets:
        listed = (attribute(place, socket.inet_aton(address)) for place, address in enumerate(targets))
        encoded += nested(_BOND_ARP_TARGETS, *listed)
    return encoded


def vlan_id_of(data: bytes) -> int:
    """The VLAN id in a VLAN link's data, 0 if absent."""
    value = attributes(data).get(_VLAN_ID)
    return to_u16(value) if value else 0


def vrf_table_of(data: bytes) -> int:
    """The table in a VRF's data, 0 if absent."""
    value = attributes(data).get(1)
    return to_u32(value) if value else 0


def vlan_protocol_of(data: bytes) -> str:
    """The protocol in a VLAN link's data, "" if absent."""
    protocol = attributes(data).get(_VLAN_PROTOCOL)
    number = to_be16(protocol) if protocol else 0
    return next((name for name, value in VLAN_PROTOCOLS.items() if value == number), "")


def vlan_filtering_of(data: bytes) -> bool:
    """Whether a bridge's data report that it filters VLANs."""
    value = attributes(data).get(_BRIDGE_VLAN_FILTERING)
    return bool(value and to_u8(value))


def bond_mode_of(data: bytes) -> str:
    """The mode in a bond's data, "" if absent."""
    value = attributes(data).get(_BOND["mode"][0])
    return _word(BOND_MODES, to_u8(value)) if value else ""


def bond_follows_member_of(data: bytes) -> bool:
    """Whether a bond's data report that its MAC is always that of its active member (fail_over_mac "active")."""
    value = attributes(data).get(_BOND["fail_over_mac"][0])
    return bool(value and to_u8(value) == FAIL_OVER_MACS["active"])


def _word(words: Mapping[str, int], number: int) -> str:
    return next((name for name, value in words.items() if value == number), str(number))


def _choice(what: str, value: str | int, words: Mapping[str, int]) -> int:
    """The number of a word; a number that is one of the choices may stand for itself."""
    if value in words:
        return words[str(value)]
    if str(value).isdigit() and int(value) in words.values():
        return int(value)
    raise InvalidInputError(f'{what} "{value}" is unknown', hint=f"known: {', '.join(words)}", code="ND2240")


def _checked(what: str, name: str, options: Mapping[str, object]) -> str:
    if name not in options:
        raise InvalidInputError(f'{what} "{name}" is unknown', hint=f"known: {', '.join(options)}", code="ND2241")
    return name
