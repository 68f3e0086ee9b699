"""Attributes of a link's message that `Link` lacks: sizes, per-link sysctls, the settings of a bridge's port.

Follows include/uapi/linux/if_link.h; the sysctls are those of `IFLA_AF_SPEC`, where the kernel has the values of all
files below /proc/sys/net/ipv4/conf/<link> and ipv6/conf/<link> in arrays (include/uapi/linux/ip.h and ipv6.h). So they
cost no file and no further request. Read and restored by `netdra.steps.settings`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from netdra.kernel import link, uapi
from netdra.kernel.errors import from_os_error
from netdra.kernel.netlink import Message, Socket, attribute, attributes, nested, text, to_u16, to_u32, u8, u16, u32

_AF_INET, _AF_INET6 = 2, 10
_SIZES = {
    "gso_max_size": uapi.IFLA_GSO_MAX_SIZE,
    "gso_max_segs": uapi.IFLA_GSO_MAX_SEGS,
    "gro_max_size": uapi.IFLA_GRO_MAX_SIZE,
    "gso_ipv4_max_size": uapi.IFLA_GSO_IPV4_MAX_SIZE,
    "gro_ipv4_max_size": uapi.IFLA_GRO_IPV4_MAX_SIZE,
}
# IFLA_BRPORT_*, with the size in bytes.
_PORT = {
    "priority": (2, 2), "cost": (3, 4), "hairpin": (4, 1), "guard": (5, 1), "root_block": (6, 1), "fastleave": (7, 1),
    "learning": (8, 1), "flood": (9, 1), "proxy_arp": (10, 1), "proxy_arp_wifi": (12, 1), "mcast_router": (25, 1),
    "mcast_flood": (27, 1), "mcast_to_unicast": (28, 1), "vlan_tunnel": (29, 1), "bcast_flood": (30, 1),
    "group_fwd_mask": (31, 2), "neigh_suppress": (32, 1), "isolated": (33, 1), "mcast_hosts_limit": (37, 4),
    "locked": (39, 1), "mab": (40, 1), "mcast_max_groups": (42, 4), "neigh_vlan_suppress": (43, 1),
}  # fmt: skip
_READ = {1: lambda data: data[0], 2: to_u16, 4: to_u32}
_WRITE = {1: u8, 2: u16, 4: u32}

IPV4: Sequence[str] = (
    "forwarding", "mc_forwarding", "proxy_arp", "accept_redirects", "secure_redirects", "send_redirects",
    "shared_media", "rp_filter", "accept_source_route", "bootp_relay", "log_martians", "tag", "arp_filter", "medium_id",
    "disable_xfrm", "disable_policy", "force_igmp_version", "arp_announce", "arp_ignore", "promote_secondaries",
    "arp_accept", "arp_notify", "accept_local", "src_valid_mark", "proxy_arp_pvlan", "route_localnet",
    "igmpv2_unsolicited_report_interval", "igmpv3_unsolicited_report_interval", "ignore_routes_with_linkdown",
    "drop_unicast_in_l2_multicast", "drop_gratuitous_arp", "bc_forwarding", "arp_evict_nocarrier",
)  # fmt: skip
"""The files of ipv4/conf in the order of the kernel's array."""
IPV6: Sequence[str] = (
    "forwarding", "hop_limit", "mtu", "accept_ra", "accept_redirects", "autoconf", "dad_transmits",
    "router_solicitations", "router_solicitation_interval", "router_solicitation_delay", "use_tempaddr",
    "temp_valid_lft", "temp_prefered_lft", "regen_max_retry", "max_desync_factor", "max_addresses",
    "force_mld_version", "accept_ra_defrtr", "accept_ra_pinfo", "accept_ra_rtr_pref", "router_probe_interval",
    "accept_ra_rt_info_max_plen", "proxy_ndp", "optimistic_dad", "accept_source_route", "mc_forwarding",
    "disable_ipv6", "accept_dad", "force_tllao", "ndisc_notify", "mldv1_unsolicited_report_interval",
    "mldv2_unsolicited_report_interval", "suppress_frag_ndisc", "accept_ra_from_local", "use_optimistic",
    "accept_ra_mtu", "stable_secret", "use_oif_addrs_only", "accept_ra_min_hop_limit", "ignore_routes_with_linkdown",
    "drop_unicast_in_l2_multicast", "drop_unsolicited_na", "keep_addr_on_down", "router_solicitation_max_interval",
    "seg6_enabled", "seg6_require_hmac", "enhanced_dad", "addr_gen_mode", "disable_policy",
    "accept_ra_rt_info_min_plen", "ndisc_tclass", "rpl_seg_enabled", "ra_defrtr_metric", "ioam6_enabled", "ioam6_id",
    "ioam6_id_wide", "ndisc_evict_nocarrier", "accept_untracked_na", "accept_ra_min_lft", "force_forwarding",
)  # fmt: skip
"""The files of ipv6/conf in the order of the kernel's array."""
READ_ONLY = frozenset({"mc_forwarding", "stable_secret"})
"""Places of both arrays that cannot be written, or that the kernel leaves empty."""
FILES_ALONE = ("ra_honor_pio_life", "ra_honor_pio_pflag", "regen_min_advance")
"""Files of ipv6/conf that are in no array (kernel 6.12)."""
# The array has these in milliseconds, the files in seconds.
_SECONDS = frozenset({
    "router_solicitation_interval", "router_solicitation_delay", "router_solicitation_max_interval",
    "router_probe_interval",
})  # fmt: skip
_UNSIGNED = frozenset({"ra_defrtr_metric", "ioam6_id_wide"})


def sizes(message: Message) -> dict[str, int]:
    """How much a link hands to its driver, and takes from it, at once: the setting names of `link.change`."""
    return {name: to_u32(message[kind]) for name, kind in _SIZES.items() if kind in message}


def group(message: Message) -> int:
    """The link's group, 0 by default."""
    return to_u32(message[uapi.IFLA_GROUP]) if uapi.IFLA_GROUP in message else 0


def sysctls(message: Message) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The values of `IPV4` and `IPV6` as the kernel has them; empty without that protocol (an MTU below 1280: IPv6)."""
    families = attributes(message.get(uapi.IFLA_AF_SPEC, b""))
    ipv4 = attributes(families.get(_AF_INET, b"")).get(uapi.IFLA_INET_CONF, b"")
    ipv6 = attributes(families.get(_AF_INET6, b"")).get(uapi.IFLA_INET6_CONF, b"")
    return struct.unpack_from(f"={len(ipv4) // 4}i", ipv4), struct.unpack_from(f"={len(ipv6) // 4}i", ipv6)


def sysctl_text(name: str, value: int) -> str:
    """A value of `sysctls` as its file has it."""
    if name in _SECONDS and value >= 0:
        return str(value // 1000)
    return str(value & 0xFFFFFFFF if name in _UNSIGNED else value)


def read_sysctl(path: str) -> str:
    """The value of a file below /proc/sys/net of the calling thread's namespace.

    Raises:
        KernelMissingError: no such setting exists.
        KernelError: it cannot be read; EIO where a secret is not set.
    """
    try:
        descriptor = os.open(f"/proc/sys/net/{path}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 4096).decode().strip()
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise from_os_error(problem, f"cannot read sysctl net/{path}") from None


def write_sysctl(path: str, value: str) -> None:
    """Set a file below /proc/sys/net of the calling thread's namespace.

    Raises:
        KernelMissingError: no such setting exists.
        KernelError: the kernel refused the value.
    """
    try:
        Path("/proc/sys/net", path).write_text(value)
    except OSError as problem:
        raise from_os_error(problem, f"cannot set sysctl net/{path}") from None


def bridge_port(message: Message) -> dict[str, int]:
    """The settings of a bridge's port; none for a link that is not a port of a bridge."""
    info = attributes(message.get(uapi.IFLA_LINKINFO, b""))
    if info.get(uapi.IFLA_INFO_SLAVE_KIND, b"").rstrip(b"\0") != b"bridge":
        return {}
    data = attributes(info.get(uapi.IFLA_INFO_SLAVE_DATA, b""))
    return {name: _READ[size](data[kind]) for name, (kind, size) in _PORT.items() if kind in data}


def change_bridge_port(sock: Socket, index: int, wanted: Mapping[str, int]) -> None:
    """Set settings of a bridge's port, all in one message.

    Raises:
        KernelError: the link is not a port of a bridge, or the kernel refused.
    """
    data = (attribute(_PORT[name][0], _WRITE[_PORT[name][1]](value)) for name, value in wanted.items())
    info = attribute(uapi.IFLA_INFO_SLAVE_KIND, text("bridge")), nested(uapi.IFLA_INFO_SLAVE_DATA, *data)
    body = link.encode(index=index) + nested(uapi.IFLA_LINKINFO, *info)
    sock.request(uapi.RTM_NEWLINK, body, doing=f"cannot set {', '.join(wanted)} of bridge port {index}")
