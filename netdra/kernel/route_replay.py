"""The kernel's own messages about routes, made into requests that make the same routes in the same order.

Of several routes of one destination, table, type of service and metric, the kernel uses the first: the order counts,
also among routes that the kernel made itself for addresses, and among those through different links. See `replay`.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from netdra.kernel import route, uapi
from netdra.kernel.netlink import (
    NLM_F_APPEND,
    NLM_F_CREATE,
    Request,
    Socket,
    attribute,
    attributes,
    to_u32,
    u32,
    whole_attributes,
)

_ROUTE = struct.Struct("=BBBBBBBBI")  # struct rtmsg: family, lengths, tos, table, protocol, scope, type, flags
_HOP = struct.Struct("=HBBi")  # struct rtnexthop: length, flags, weight, index
_CACHE = struct.Struct("=8xi")  # struct rta_cacheinfo: users, last use, the ticks until it expires
_TICKS = 100  # a second (USER_HZ)
_FLAGS = uapi.RTNH_F_ONLINK | uapi.RTNH_F_PERVASIVE  # the others report: dead, without carrier, offloaded
_REPORTS = frozenset({uapi.RTA_CACHEINFO, uapi.RTA_IIF, uapi.RTA_EXPIRES})
_HOPS = frozenset({uapi.RTA_OIF, uapi.RTA_GATEWAY, uapi.RTA_VIA, uapi.RTA_MULTIPATH})
_OF_OBJECT = _HOPS | {uapi.RTA_ENCAP, uapi.RTA_ENCAP_TYPE, uapi.RTA_FLOW}
"""A route by a next hop object is reported with what follows from the object, and refused with it."""
_TO_ROUTERS = frozenset({uapi.RTA_GATEWAY, uapi.RTA_VIA, uapi.RTA_MULTIPATH})
_ATTEMPTS = 3
_LINK_LOCAL = b"\xfe\x80"


def dump(sock: Socket) -> list[bytes]:
    """The messages of all routes of the namespace, IPv4's first.

    Where routes change all the time, the last of several lists: a route may then be missing, or listed twice.

    Raises:
        KernelError: the kernel refused.
    """
    bodies: list[bytes] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        header = _ROUTE.pack(family, *[0] * 8)
        for _ in range(_ATTEMPTS):
            listed, is_complete = sock.try_dump(uapi.RTM_GETROUTE, header, doing="cannot list routes")
            if is_complete:
                break
        bodies += (body for body in listed if body[0] == family)
    return bodies


def key(body: bytes) -> bytes:
    """The common part of routes among which only the order decides: all fields by which the kernel looks them up."""
    get = attributes(body, _ROUTE.size).get
    table = get(uapi.RTA_TABLE) or u32(body[4])
    parts = (get(uapi.RTA_PRIORITY, bytes(4)), get(uapi.RTA_DST, b""), get(uapi.RTA_SRC, b""))
    return body[:4] + table + b"".join(parts)


def start(body: bytes) -> tuple[bytes, bytes]:
    """A part of a message that routes of one key have in common, for a quick comparison.

    The kernel writes the table and the destination first (fib_dump_info() in net/ipv4, rt6_fill_node() in net/ipv6).
    """
    return body[:4], body[_ROUTE.size : _ROUTE.size + (16 if body[1] else 8)]


def settable(body: bytes, was: int = 0, index: int = 0) -> bytes:
    """The message without what the kernel only reports; two of the same route are equal.

    Args:
        body: the message, or the result of this function for it.
        was: the index of a link in it.
        index: the index that it is to have instead.
    """
    pieces = whole_attributes(body, _ROUTE.size)
    by_object = any(kind == uapi.RTA_NH_ID for kind, _ in pieces)
    dropped = _REPORTS | _OF_OBJECT if by_object else _REPORTS
    *header, flags = _ROUTE.unpack_from(body)
    encoded = [_ROUTE.pack(*header, 0 if by_object else flags & _FLAGS)]
    for kind, piece in pieces:
        if kind == uapi.RTA_MULTIPATH and not by_object:
            encoded.append(attribute(kind, b"".join(_settable_hops(piece[4:], was, index))))
        elif kind == uapi.RTA_OIF and was and to_u32(piece[4:]) == was and not by_object:
            encoded.append(attribute(kind, u32(index)))
        elif kind not in dropped:
            encoded.append(piece)
    return b"".join(encoded)


class RouteDependencies(NamedTuple):
    """The dependencies of a route: its links, also by a next hop object (0 for none), and its source (b"" for none)."""

    links: frozenset[int]
    nexthop: int
    source: bytes


def dependencies(body: bytes) -> RouteDependencies:
    """Find the links, the next hop object and the source that a route depends on."""
    get = attributes(body, _ROUTE.size).get
    hops, link, number = get(uapi.RTA_MULTIPATH), get(uapi.RTA_OIF), get(uapi.RTA_NH_ID)
    indexes = [index for index, _, _ in _hops(hops)] if hops else []
    if link:
        indexes.append(to_u32(link))
    return RouteDependencies(frozenset(indexes), to_u32(number) if number else 0, get(uapi.RTA_PREFSRC, b""))


def next_hops(body: bytes) -> frozenset[tuple[int, bytes]]:
    """The next hops of a route, each the link's index and the gateway's attribute (b"" for none)."""
    fields = attributes(body, _ROUTE.size)
    if uapi.RTA_MULTIPATH in fields:
        return frozenset((index, _gateway(inner)) for index, _, inner in _hops(fields[uapi.RTA_MULTIPATH]))
    if uapi.RTA_OIF in fields:
        return frozenset({(to_u32(fields[uapi.RTA_OIF]), _gateway(body[_ROUTE.size :]))})
    return frozenset()


def expires(body: bytes) -> float | None:
    """The seconds after which the kernel removes a route; None for never."""
    if body[0] != socket.AF_INET6:
        return None
    cache = attributes(body, _ROUTE.size).get(uapi.RTA_CACHEINFO, b"")
    ticks = _CACHE.unpack_from(cache)[0] if len(cache) >= _CACHE.size else 0
    return ticks / _TICKS if ticks else None


def is_gateway(body: bytes) -> bool:
    """Whether a route needs another one to its next router."""
    return not _TO_ROUTERS.isdisjoint(attributes(body, _ROUTE.size))


def comes_by_itself(body: bytes) -> bool:
    """Whether the kernel makes a route again by its own: those of routers, and those that a link has for IPv6.

    One of a router would stay for good if it were added: the kernel only removes those that it added itself.
    """
    protocol, kind = body[5], body[7]
    if protocol in (uapi.RTPROT_RA, uapi.RTPROT_REDIRECT):
        return True
    if body[0] != socket.AF_INET6 or protocol != uapi.RTPROT_KERNEL:
        return False
    return kind != uapi.RTN_UNICAST or attributes(body, _ROUTE.size).get(uapi.RTA_DST, b"")[:2] == _LINK_LOCAL


def is_of_kernel(body: bytes) -> bool:
    """Whether the kernel made a route for an address."""
    return body[5] == uapi.RTPROT_KERNEL


def is_of_daemon(body: bytes) -> bool:
    """Whether a routing daemon made a route, which adds it again when the link is back."""
    return body[5] >= uapi.RTPROT_GATED and body[5] not in (uapi.RTPROT_RA, uapi.RTPROT_DHCP)


def destination(body: bytes) -> str:
    """The destination of a route in CIDR notation."""
    return route.parse(body).destination


def text(body: bytes) -> str:
    """A route as messages call it."""
    entry = route.parse(body)
    by_object = dependencies(body).nexthop
    via = f" by next hop object {by_object}" if by_object else f" via {entry.gateway}" if entry.gateway else ""
    return f"route to {entry.destination}{via} (table {entry.table})"


def add(body: bytes, *, last: bool = True, expires_in: float | None = None) -> Request:
    """The request that adds a route, before or behind all others of its key; IPv6 knows the latter alone."""
    if expires_in is not None:
        body += attribute(uapi.RTA_EXPIRES, u32(max(1, int(expires_in))))
    how = NLM_F_CREATE | (NLM_F_APPEND if last else 0)
    return Request(uapi.RTM_NEWROUTE, body, lambda: f"cannot add {text(body)}", how)


def delete(body: bytes) -> Request:
    """The request that deletes a route, and no other of its key."""
    return Request(uapi.RTM_DELROUTE, body, lambda: f"cannot delete {text(body)}")


def changes(now: Sequence[bytes], wanted: Sequence[bytes]) -> list[tuple[bytes, bool | None]]:
    """How the routes of one key become those that are wanted, in their order, with the fewest changes.

    Returns:
        Routes, each with True to add it behind the others, False to add it before them, None to delete it.
    """
    same = 0
    while same < min(len(now), len(wanted)) and now[same] == wanted[same]:
        same += 1
    behind = [*((body, None) for body in now[same:]), *((body, True) for body in wanted[same:])]
    if len(now) == same or not wanted or wanted[0][0] != socket.AF_INET:
        return behind
    first = next(place for place in range(len(wanted) + 1) if _in_order(now, wanted[place:]))
    stays = set(wanted[first:])
    gone = [body for body in now if body not in stays]
    before = [*((body, None) for body in gone), *((body, False) for body in reversed(wanted[:first]))]
    return min(behind, before, key=len)


def _in_order(now: Sequence[bytes], wanted: Sequence[bytes]) -> bool:
    """Whether all of some routes are there in their order, others among them aside."""
    among = set(wanted)
    return [body for body in now if body in among] == list(wanted)


def _settable_hops(data: bytes, was: int, index: int) -> Iterator[bytes]:
    for link, head, inner in _hops(data):
        size, flags, weight, _ = _HOP.unpack(head)
        yield _HOP.pack(size, flags & _FLAGS, weight, index if was and link == was else link) + inner


def _hops(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The link of each of several next hops, its header, and its attributes with their padding."""
    offset = 0
    while offset + _HOP.size <= len(data):
        size, _, _, index = _HOP.unpack_from(data, offset)
        if size < _HOP.size:
            return
        end = offset + ((size + 3) & ~3)
        yield index, data[offset : offset + _HOP.size], data[offset + _HOP.size : end]
        offset = end


def _gateway(data: bytes) -> bytes:
    fields = attributes(data)
    return fields.get(uapi.RTA_GATEWAY) or fields.get(uapi.RTA_VIA, b"")
