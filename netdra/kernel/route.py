"""Routes over rtnetlink: add, delete, list. Follows rtnetlink(7) and include/uapi/linux/rtnetlink.h."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from netdra.kernel import uapi
from netdra.kernel.errors import KernelMissingError
from netdra.kernel.netlink import (
    NLM_F_APPEND,
    NLM_F_CREATE,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    Socket,
    attribute,
    attributes,
    nested,
    to_u32,
    u32,
)
from netdra.model.errors import InvalidInputError

_HEADER = struct.Struct("=BBBBBBBBI")
_NEXT_HOP = struct.Struct("=HBBi")
_NO_METRIC = u32(0)
_METRIC_6 = 1024  # IP6_RT_PRIO_USER of <linux/ipv6_route.h>
_TABLES_FOR_ALL = frozenset({uapi.RT_TABLE_DEFAULT, uapi.RT_TABLE_MAIN, uapi.RT_TABLE_LOCAL})
_EVERYWHERE: dict[int, str] = {socket.AF_INET: "0.0.0.0/0", socket.AF_INET6: "::/0"}


class NextHop(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of several next hops of a route.

    Attributes:
        gateway: the router, "" where the destination is on the link.
        if_name: the link's name, "" for that of the route.
        index: the link's index, 0 where only its name is known yet.
        weight: its share of the traffic among the others', 1 to 256.
        on_link: take the gateway as reachable without a route to it.
    """

    gateway: str = ""
    if_name: str = ""
    index: int = 0
    weight: int = 1
    on_link: bool = False


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One route.

    Attributes:
        destination: in CIDR notation; "0.0.0.0/0" or "::/0" is the default route.
        index: the link that it leaves through, 0 if it has several (`links`) or none.
        gateway: the next router, "" where the destination is on the link.
        table: the routing table, 254 is main.
        metric: the priority, 0 lets the kernel choose.
        scope: RT_SCOPE_*; None lets it follow from the gateway.
        on_link: take the gateway as reachable without a route to it.
        source: the preferred source address.
        mtu: the path's MTU, 0 for the link's.
        advmss: the TCP segment size to advertise, 0 for the usual.
        protocol: its origin, RTPROT_*.
        kind: RTN_*: unicast, local, broadcast, unreachable ...
        links: the links of all its next hops.
        gateways: the routers of all its next hops if it has several, in the order of `links`.
        hops: the next hops of a route that is to be added with several; `index` and `gateway` do not count then.
    """

    destination: str
    index: int = 0
    gateway: str = ""
    table: int = uapi.RT_TABLE_MAIN
    metric: int = 0
    scope: int | None = None
    on_link: bool = False
    source: str = ""
    mtu: int = 0
    advmss: int = 0
    protocol: int = uapi.RTPROT_STATIC
    kind: int = uapi.RTN_UNICAST
    links: tuple[int, ...] = ()
    gateways: tuple[str, ...] = ()
    hops: tuple[NextHop, ...] = ()

    @property
    def paths(self) -> tuple[Route, ...]:
        """The route, or one route for each of its next hops: the kernel joins IPv6 routes of one metric into one."""
        hops = zip(self.links, self.gateways, strict=False)
        one = msgspec.structs.replace(self, links=(), gateways=())
        return tuple(msgspec.structs.replace(one, index=index, gateway=gateway) for index, gateway in hops) or (self,)

    @property
    def is_default(self) -> bool:
        """Whether it is a default route."""
        return self.destination in _EVERYWHERE.values()

    @property
    def is_made(self) -> bool:
        """Whether it was made to send through its links, and did not come with an address of theirs."""
        return self.kind == uapi.RTN_UNICAST and (self.protocol != uapi.RTPROT_KERNEL or self.is_default)


def parse(body: bytes) -> Route:
    """The route in an RTM_NEWROUTE or RTM_DELROUTE message."""
    family, length, _, _, table, protocol, scope, kind, flags = _HEADER.unpack_from(body)
    fields = attributes(body, _HEADER.size)
    metrics = attributes(fields.get(uapi.RTA_METRICS, b""))
    index = _number(fields, uapi.RTA_OIF)
    hops = tuple(_hops(fields.get(uapi.RTA_MULTIPATH, b"")))
    return Route(
        destination=_destination(family, fields.get(uapi.RTA_DST), length),
        index=index,
        gateway=_gateway(family, fields),
        table=_number(fields, uapi.RTA_TABLE) or table,
        metric=_number(fields, uapi.RTA_PRIORITY),
        scope=scope,
        on_link=bool(flags & uapi.RTNH_F_ONLINK),
        source=_text(family, fields.get(uapi.RTA_PREFSRC)),
        mtu=_number(metrics, uapi.RTAX_MTU),
        advmss=_number(metrics, uapi.RTAX_ADVMSS),
        protocol=protocol,
        kind=kind,
        links=tuple(link for link, _ in hops) or ((index,) if index else ()),
        gateways=tuple(_router(family, packed) for _, packed in hops),
    )


def dump(sock: Socket, family: int = 0, table: int = uapi.RT_TABLE_UNSPEC, *, through: int = 0) -> list[Route]:
    """The routes of the namespace, of one family, one table and through one link if they are named; without the cache.

    Args:
        sock: a socket in the namespace.
        family: AF_INET or AF_INET6; 0 for both.
        table: a table's number; one that the namespace does not have is empty.
        through: a link's index; also routes through several links with this among them.

    Raises:
        KernelError: the kernel refused.
    """
    families = (family,) if family else (socket.AF_INET, socket.AF_INET6)
    extra = attribute(uapi.RTA_TABLE, u32(table)) if table else b""
    extra += attribute(uapi.RTA_OIF, u32(through)) if through else b""
    routes: list[Route] = []
    for wanted in families:
        header = _HEADER.pack(wanted, 0, 0, 0, 0, 0, 0, 0, 0)
        try:
            bodies = sock.dump(uapi.RTM_GETROUTE, header + extra, doing="cannot list routes")
        except KernelMissingError:
            if not table:
                raise
            continue  # the kernel makes even the main table with its first route
        routes += map(parse, bodies)
    return routes


class MadeRoute(NamedTuple):
    """The part of a route that `is_made` from which the host's links follow; of thousands, only this is kept.

    Attributes:
        key: family, table, destination, source, type of service and metric as bytes.
        hops: its next hops: the link's index, and the gateway's address as bytes (b"" for none).
    """

    key: bytes
    hops: tuple[tuple[int, bytes], ...]

    @property
    def is_default(self) -> bool:
        """Whether it is a default route."""
        return self.key[1] == 0

    @property
    def is_for_all(self) -> bool:
        """Whether it is in a table that the kernel asks for all traffic; others are asked because of a rule alone."""
        return to_u32(self.key[4:8]) in _TABLES_FOR_ALL

    @property
    def is_ipv6(self) -> bool:
        """Whether the message's family is AF_INET6; the others are IPv4."""
        return self.key[0] == socket.AF_INET6


def made(body: bytes) -> MadeRoute | None:
    """The route in an RTM_NEWROUTE or RTM_DELROUTE message if it `is_made`, else None."""
    # Of the kernel's own routes, only the header is read.
    if body[7] != uapi.RTN_UNICAST or (body[5] == uapi.RTPROT_KERNEL and body[1]):
        return None
    get = attributes(body, _HEADER.size).get
    table = get(uapi.RTA_TABLE) or u32(body[4])
    hops = tuple(_hops(get(uapi.RTA_MULTIPATH, b"")))
    if not hops and (index := get(uapi.RTA_OIF)):
        hops = ((to_u32(index), get(uapi.RTA_GATEWAY) or get(uapi.RTA_VIA, b"")),)
    parts = (table, get(uapi.RTA_PRIORITY, _NO_METRIC), get(uapi.RTA_DST, b""), get(uapi.RTA_SRC, b""))
    return MadeRoute(body[:4] + b"".join(parts), hops)


def dump_made(sock: Socket, *, through: int = 0) -> list[MadeRoute]:
    """The routes of all tables and both families that `is_made`.

    Args:
        sock: a socket in the namespace.
        through: a link's index: only routes with this link among theirs.

    Raises:
        KernelError: the kernel refused.
    """
    extra = attribute(uapi.RTA_OIF, u32(through)) if through else b""
    routes: list[MadeRoute] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        header = _HEADER.pack(family, 0, 0, 0, 0, 0, 0, uapi.RTN_UNICAST, 0)
        bodies = sock.dump(uapi.RTM_GETROUTE, header + extra, doing="cannot list routes")
        routes += (route for body in bodies if (route := made(body)) is not None)
    return routes


def add(sock: Socket, route: Route, *, replace: bool = False, append: bool = False, prepend: bool = False) -> None:
    """Add a route.

    Args:
        sock: a socket in the namespace.
        route: the route; its `links` do not count.
        replace: change the route to that destination where there is one, instead of failing.
        append: add it beside another route of the same destination and metric.
        prepend: the same, and let it come first.

    Raises:
        KernelExistsError: there is such a route.
        InvalidInputError: it has neither link nor gateway.
        KernelError: the kernel refused (ENETUNREACH: the gateway cannot be reached).
    """
    if not route.index and not route.gateway and not route.hops and route.kind == uapi.RTN_UNICAST:
        raise InvalidInputError(f"route to {route.destination} has neither a link nor a gateway", code="ND2246")
    how = NLM_F_REPLACE if replace else NLM_F_APPEND if append else 0 if prepend else NLM_F_EXCL
    doing = f"cannot add route to {_described(route)}"
    sock.request(uapi.RTM_NEWROUTE, _body(route), flags=NLM_F_CREATE | how, doing=doing)


def delete(sock: Socket, route: Route) -> None:
    """Delete the first route with all fields of `route`; its protocol and scope do not count.

    An IPv6 route without a metric is the one with the metric that the kernel chooses, not that with the least one.

    Raises:
        KernelMissingError: none exists.
        KernelError: the kernel refused.
    """
    # Zeros and RT_SCOPE_NOWHERE (255) match any (fib_table_delete() in net/ipv4/fib_trie.c).
    metric = route.metric or (_METRIC_6 if ":" in route.destination else 0)
    anywhere = msgspec.structs.replace(route, protocol=0, scope=255, kind=0, metric=metric)
    sock.request(uapi.RTM_DELROUTE, _body(anywhere), doing=f"cannot delete route to {_described(route)}")


def _body(route: Route) -> bytes:
    destination = ipaddress.ip_network(route.destination, strict=False)
    family = socket.AF_INET if destination.version == 4 else socket.AF_INET6
    # A table over 255 does not fit the header: the attribute then counts alone.
    table = route.table if route.table < 256 else 0
    flags = uapi.RTNH_F_ONLINK if route.on_link else 0
    scope = route.scope if route.scope is not None else _scope(route)
    header = _HEADER.pack(family, destination.prefixlen, 0, 0, table, route.protocol, scope, route.kind, flags)
    encoded = [attribute(uapi.RTA_TABLE, u32(route.table))]
    if destination.prefixlen:
        encoded.append(attribute(uapi.RTA_DST, destination.network_address.packed))
    encoded += (
        attribute(kind, u32(value))
        for kind, value in ((uapi.RTA_OIF, 0 if route.hops else route.index), (uapi.RTA_PRIORITY, route.metric))
        if value
    )
    if route.hops:
        encoded.append(attribute(uapi.RTA_MULTIPATH, b"".join(_hop(family, hop) for hop in route.hops)))
    elif route.gateway:
        encoded.append(_via(family, ipaddress.ip_address(route.gateway)))
    if route.source:
        encoded.append(attribute(uapi.RTA_PREFSRC, ipaddress.ip_address(route.source).packed))
    metrics = ((uapi.RTAX_MTU, route.mtu), (uapi.RTAX_ADVMSS, route.advmss))
    if any(value for _, value in metrics):
        encoded.append(nested(uapi.RTA_METRICS, *(attribute(kind, u32(value)) for kind, value in metrics if value)))
    return header + b"".join(encoded)


def _hop(family: int, hop: NextHop) -> bytes:
    via = _via(family, ipaddress.ip_address(hop.gateway)) if hop.gateway else b""
    flags = uapi.RTNH_F_ONLINK if hop.on_link else 0
    return _NEXT_HOP.pack(_NEXT_HOP.size + len(via), flags, hop.weight - 1, hop.index) + via


def _via(family: int, gateway: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bytes:
    """The gateway; an IPv4 route over an IPv6 router names the family too (RTA_VIA)."""
    if (family == socket.AF_INET) == (gateway.version == 4):
        return attribute(uapi.RTA_GATEWAY, gateway.packed)
    other = socket.AF_INET if gateway.version == 4 else socket.AF_INET6
    return attribute(uapi.RTA_VIA, struct.pack("=H", other) + gateway.packed)


def _gateway(family: int, fields: dict[int, bytes]) -> str:
    if uapi.RTA_VIA in fields:
        return _router(family, fields[uapi.RTA_VIA])
    return _text(family, fields.get(uapi.RTA_GATEWAY))


def _router(family: int, packed: bytes) -> str:
    """The gateway of one of several next hops, as `_hops` yields it."""
    if len(packed) in (4, 16):
        return _text(family, packed)
    return _text(struct.unpack_from("=H", packed)[0], packed[2:]) if packed else ""


def _scope(route: Route) -> int:
    """The default scope of ip-route(8): IPv4 routes without a gateway reach no farther than the link."""
    reached = route.gateway or any(hop.gateway for hop in route.hops)
    on_the_link = not reached and ":" not in route.destination and route.kind == uapi.RTN_UNICAST
    return uapi.RT_SCOPE_LINK if on_the_link else uapi.RT_SCOPE_UNIVERSE


def _hops(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The link and the gateway of each of several next hops."""
    offset = 0
    while offset + _NEXT_HOP.size <= len(data):
        size, _, _, index = _NEXT_HOP.unpack_from(data, offset)
        if size < _NEXT_HOP.size:
            return
        get = attributes(data[offset : offset + size], _NEXT_HOP.size).get
        yield index, get(uapi.RTA_GATEWAY) or get(uapi.RTA_VIA, b"")
        offset += (size + 3) & ~3


def _destination(family: int, packed: bytes | None, length: int) -> str:
    if packed is None:
        return _EVERYWHERE.get(family, "")
    return f"{_text(family, packed)}/{length}"


def _text(family: int, packed: bytes | None) -> str:
    return str(socket.inet_ntop(family, packed)) if packed and family in _EVERYWHERE else ""


def _number(fields: dict[int, bytes], kind: int) -> int:
    return to_u32(fields[kind]) if kind in fields else 0


def _described(route: Route) -> str:
    via = f" via {route.gateway}" if route.gateway else ""
    if route.hops:
        via = f" via {' and '.join(hop.gateway or f'link {hop.index}' for hop in route.hops)}"
    return f"{route.destination}{via} on link {route.index} (table {route.table})"
