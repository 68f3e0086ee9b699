"""The kernel's own messages about a link's addresses, neighbours and next hop objects, made into requests.

The kernel forgets these when the link leaves the namespace. A list of known fields never has everything: here the
message itself is kept, without the attributes that only report, and sent again with the link's present index. Routes
are in `route_replay`. Called by `netdra.steps.node_configuration`.
"""

from __future__ import annotations

import ipaddress
import socket
import struct

from netdra.kernel import address, uapi
from netdra.kernel.errors import KernelError, KernelMissingError
from netdra.kernel.netlink import (
    NLA_F_NESTED,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    Request,
    Socket,
    attribute,
    attributes,
    text,
    to_u32,
    u32,
    whole_attributes,
)

AF_BRIDGE = 7
"""The family of entries of a forwarding database, in messages of neighbours."""

_ADDRESS = struct.Struct("=BBBBI")  # struct ifaddrmsg: family, prefix length, flags, scope, index
_LIFETIMES = struct.Struct("=II8x")  # struct ifa_cacheinfo: preferred, valid, when it was made and changed
_NEIGHBOUR = struct.Struct("=BBHiHBB")  # struct ndmsg: family, padding, index, state, flags, type
_NEXTHOP = struct.Struct("=BBBBI")  # struct nhmsg: family, scope, protocol, reserved, flags
_MEMBER = struct.Struct("=IBBH")  # struct nexthop_grp: id, weight, its high byte, reserved
_FOREVER = 0xFFFFFFFF
_FAMILIES = (socket.AF_INET, socket.AF_INET6)

_NEIGHBOUR_REPORTS = frozenset({uapi.NDA_CACHEINFO, uapi.NDA_PROBES})
_NEXTHOP_REPORTS = frozenset({uapi.NHA_OP_FLAGS, uapi.NHA_GROUP_STATS, uapi.NHA_HW_STATS_USED})
_GROUP_REPORTS = frozenset({uapi.NHA_RES_GROUP_PAD, uapi.NHA_RES_GROUP_UNBALANCED_TIME})


def dump_addresses(sock: Socket, index: int) -> list[bytes]:
    """The messages of a link's addresses, as they are to be added: IPv6's list begins with the newest.

    Without temporary ones, which the kernel makes of those that have a router's prefix (net/ipv6/addrconf.c).

    Raises:
        KernelError: the kernel refused.
    """
    bodies: list[bytes] = []
    for family in _FAMILIES:
        header = _ADDRESS.pack(family, 0, 0, 0, index)
        listed = sock.dump(uapi.RTM_GETADDR, header, doing=f"cannot list addresses of link {index}")
        own = [body for body in listed if body[0] == family and not address.parse(body).is_temporary]
        bodies += own if family == socket.AF_INET else reversed(own)
    return bodies


def address_key(body: bytes) -> bytes:
    """The part of an address's message that no other address of its link has: family, length, address and peer."""
    fields = attributes(body, _ADDRESS.size)
    return body[:2] + fields.get(uapi.IFA_LOCAL, b"") + b"/" + fields.get(uapi.IFA_ADDRESS, b"")


def address_bytes(body: bytes) -> bytes:
    """The address itself, as routes have it as their source."""
    fields = attributes(body, _ADDRESS.size)
    return fields.get(uapi.IFA_LOCAL) or fields[uapi.IFA_ADDRESS]


def network(body: bytes) -> str:
    """The network that an address is in, or its peer's, to which the kernel makes a route."""
    packed = attributes(body, _ADDRESS.size)[uapi.IFA_ADDRESS]
    return str(ipaddress.ip_network((packed, body[1]), strict=False))


def add_address(body: bytes, index: int, name: str, preferred: int | None, valid: int | None) -> list[Request]:
    """The requests that add an address again.

    Args:
        body: the message.
        index: the link's index now.
        name: the link's name when the message was read, which is the label of IPv4 addresses without one.
        preferred: the seconds that it is still used for new connections; None for ever.
        valid: the seconds after which the kernel removes it; None for never.
    """
    entry = address.parse(body)
    doing = f"cannot add address {entry.text} to link {index}"
    dropped = {uapi.IFA_CACHEINFO, uapi.IFA_FLAGS}
    pieces = whole_attributes(body, _ADDRESS.size)
    label = attribute(uapi.IFA_LABEL, text(name))
    kept = b"".join(piece for kind, piece in pieces if kind not in dropped and piece != label)
    if entry.flags & uapi.IFA_F_DEPRECATED:
        preferred = 0
    if preferred is not None or valid is not None:
        both = (_FOREVER if seconds is None else seconds for seconds in (preferred, valid))
        kept += attribute(uapi.IFA_CACHEINFO, _LIFETIMES.pack(*both))
    header = _ADDRESS.pack(entry.family, body[1], 0, entry.scope, index)

    def request(flags: int, how: int) -> Request:
        return Request(uapi.RTM_NEWADDR, header + attribute(uapi.IFA_FLAGS, u32(flags)) + kept, doing, how)

    unchecked = entry.flags & (uapi.IFA_F_TENTATIVE | uapi.IFA_F_DADFAILED)
    if entry.family == socket.AF_INET or unchecked or entry.flags & uapi.IFA_F_NODAD:
        return [request(entry.flags, NLM_F_CREATE | NLM_F_EXCL)]
    # It was used before, and routes with it as their source are refused until the detection of duplicates is over. The
    # second request only takes the flag off that left the detection out.
    first = request(entry.flags | uapi.IFA_F_NODAD, NLM_F_CREATE | NLM_F_EXCL)
    return [first, request(entry.flags, NLM_F_REPLACE)]


def dump_nexthops(sock: Socket, index: int) -> list[bytes]:
    """The messages of the next hop objects of a link, then those of the groups that contain them.

    Raises:
        KernelError: the kernel refused.
    """
    doing = f"cannot list next hop objects of link {index}"
    header = _NEXTHOP.pack(0, 0, 0, 0, 0)
    try:
        listed = sock.dump(uapi.RTM_GETNEXTHOP, header + attribute(uapi.NHA_OIF, u32(index)), doing=doing)
        ids = {nexthop_id(body) for body in listed}
        groups = sock.dump(uapi.RTM_GETNEXTHOP, header + attribute(uapi.NHA_GROUPS, b""), doing=doing) if ids else []
    except KernelError as problem:
        if problem.is_unsupported:  # before 5.3
            return []
        raise
    return [_settable_nexthop(body) for body in (*listed, *(body for body in groups if ids & members(body)))]


def find_nexthop(sock: Socket, number: int) -> bytes | None:
    """The message of the next hop object of a number; None if it does not exist.

    Raises:
        KernelError: the kernel refused.
    """
    body = _NEXTHOP.pack(0, 0, 0, 0, 0) + attribute(uapi.NHA_ID, u32(number))
    try:
        (found,) = sock.request(uapi.RTM_GETNEXTHOP, body, doing=f"cannot read next hop object {number}")
    except KernelMissingError:
        return None
    return _settable_nexthop(found)


def nexthop_id(body: bytes) -> int:
    """The number of a next hop object, from 1."""
    return to_u32(attributes(body, _NEXTHOP.size)[uapi.NHA_ID])


def members(body: bytes) -> frozenset[int]:
    """The numbers of the next hop objects in a group; empty for an object that is not a group."""
    group = attributes(body, _NEXTHOP.size).get(uapi.NHA_GROUP, b"")
    return frozenset(member[0] for member in _MEMBER.iter_unpack(group[: len(group) // _MEMBER.size * _MEMBER.size]))


def nexthop_on(body: bytes, index: int) -> bytes:
    """A next hop object's message with another index of its link; of a group, the same."""
    pieces = whole_attributes(body, _NEXTHOP.size)
    link = attribute(uapi.NHA_OIF, u32(index))
    return body[: _NEXTHOP.size] + b"".join(link if kind == uapi.NHA_OIF else piece for kind, piece in pieces)


def add_nexthop(body: bytes) -> Request:
    """The request that adds a next hop object again; a group that has lost members gets them again."""
    group = members(body)
    doing = f"cannot add next hop {'group' if group else 'object'} {nexthop_id(body)}"
    return Request(uapi.RTM_NEWNEXTHOP, body, doing, NLM_F_CREATE | (NLM_F_REPLACE if group else NLM_F_EXCL))


def _settable_nexthop(body: bytes) -> bytes:
    """The message without what the kernel only reports, and refuses in a request."""
    family, _, protocol, _, flags = _NEXTHOP.unpack_from(body)
    header = _NEXTHOP.pack(family, 0, protocol, 0, flags & uapi.RTNH_F_ONLINK)
    kept = []
    for kind, piece in whole_attributes(body, _NEXTHOP.size):
        if kind == uapi.NHA_RES_GROUP:
            inner = whole_attributes(piece, 4)
            inside = b"".join(part for number, part in inner if number not in _GROUP_REPORTS)
            kept.append(attribute(kind | NLA_F_NESTED, inside))
        elif kind == uapi.NHA_ENCAP:
            kept.append(attribute(kind | NLA_F_NESTED, piece[4:]))  # reported without the flag, and refused so
        elif kind not in _NEXTHOP_REPORTS:
            kept.append(piece)
    return header + b"".join(kept)


def dump_neighbours(sock: Socket, index: int) -> list[bytes]:
    """The messages of a link's configured neighbours: permanent, proxied, learned from outside.

    Also static entries of forwarding databases: the link's own, and those of its bridge.

    Raises:
        KernelError: the kernel refused.
    """
    bodies: list[bytes] = []
    which = attribute(uapi.NDA_IFINDEX, u32(index))
    doing = f"cannot list neighbours of link {index}"
    for family in _FAMILIES:
        for flags in (0, uapi.NTF_PROXY):
            header = _NEIGHBOUR.pack(family, 0, 0, 0, 0, flags, 0)
            bodies += sock.dump(uapi.RTM_GETNEIGH, header + which, doing=doing)
    bodies += sock.dump(uapi.RTM_GETNEIGH, _NEIGHBOUR.pack(AF_BRIDGE, 0, 0, index, 0, 0, 0), doing=doing)
    return [_settable_neighbour(body) for body in bodies if _is_configured(body, index)]


def neighbour_on(body: bytes, index: int) -> bytes:
    """A neighbour's message with another index of its link."""
    family, _, _, _, state, flags, kind = _NEIGHBOUR.unpack_from(body)
    return _NEIGHBOUR.pack(family, 0, 0, index, state, flags, kind) + body[_NEIGHBOUR.size :]


def add_neighbour(body: bytes) -> Request:
    """The request that adds a neighbour again."""
    how = NLM_F_CREATE | (0 if body[0] == AF_BRIDGE else NLM_F_REPLACE)
    return Request(uapi.RTM_NEWNEIGH, body, f"cannot add {neighbour_text(body)}", how)


def forwarded(body: bytes) -> str:
    """The MAC of an entry of a forwarding database; "" for another neighbour."""
    mac = attributes(body, _NEIGHBOUR.size).get(uapi.NDA_LLADDR, b"") if body[0] == AF_BRIDGE else b""
    return mac.hex(":")


def neighbour_text(body: bytes) -> str:
    """A neighbour as messages call it."""
    family, _, _, _, _, flags, _ = _NEIGHBOUR.unpack_from(body)
    fields = attributes(body, _NEIGHBOUR.size)
    if family == AF_BRIDGE:
        return f"forwarding entry {fields.get(uapi.NDA_LLADDR, b'').hex(':')}"
    what = "proxied neighbour" if flags & uapi.NTF_PROXY else "neighbour"
    return f"{what} {socket.inet_ntop(family, fields[uapi.NDA_DST])}"


def _is_configured(body: bytes, index: int) -> bool:
    """Whether an entry of a link was configured, and the kernel neither made it by itself nor learned it."""
    family, _, _, link, state, flags, _ = _NEIGHBOUR.unpack_from(body)
    fields = attributes(body, _NEIGHBOUR.size)
    mac = fields.get(uapi.NDA_LLADDR, b"")
    if link != index:
        return False
    if family == AF_BRIDGE:
        return bool(mac) and _is_static_forwarding(mac, state, flags)
    extended = to_u32(fields[uapi.NDA_FLAGS_EXT]) if uapi.NDA_FLAGS_EXT in fields else 0
    if uapi.NDA_DST not in fields:
        return False
    if flags & (uapi.NTF_PROXY | uapi.NTF_EXT_LEARNED) or extended & uapi.NTF_EXT_MANAGED:
        return True
    # The kernel makes those of groups and broadcasts itself (NUD_NOARP), with an address of many.
    return bool(state & (uapi.NUD_PERMANENT | uapi.NUD_NOARP)) and any(mac) and not mac[0] & 1


def _is_static_forwarding(mac: bytes, state: int, flags: int) -> bool:
    """Whether an entry of a forwarding database is static.

    A bridge makes the permanent entry of its port itself. Groups among the link's own come and go with the programs
    that joined them.
    """
    if flags & uapi.NTF_SELF:
        return bool(state & uapi.NUD_PERMANENT) and not mac[0] & 1
    return bool(state & uapi.NUD_NOARP)


def _settable_neighbour(body: bytes) -> bytes:
    """The message without what the kernel only reports; a managed entry without what the kernel resolved."""
    family, _, _, index, state, flags, kind = _NEIGHBOUR.unpack_from(body)
    pieces = whole_attributes(body, _NEIGHBOUR.size)
    dropped = _NEIGHBOUR_REPORTS
    extended = attributes(body, _NEIGHBOUR.size).get(uapi.NDA_FLAGS_EXT)
    if extended is not None and to_u32(extended) & uapi.NTF_EXT_MANAGED:
        state, dropped = 0, dropped | {uapi.NDA_LLADDR}
    if family == AF_BRIDGE:
        dropped = dropped | {uapi.NDA_MASTER}
    header = _NEIGHBOUR.pack(family, 0, 0, index, state, flags, kind)
    return header + b"".join(piece for number, piece in pieces if number not in dropped)
