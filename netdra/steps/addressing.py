"""Addresses and routes of an interface in the pod: from config or an IPAM plugin into the kernel, and out again.

Used by tuning (its own parameters) and by `ipam` (for every step). Addresses go in without duplicate address
detection, which takes IPv6 one to two seconds; routes go in beside others to the same destination, the newest first,
as CNI plugins do it: the pod's first network has its default route too. An IPv6 default route gets a lower metric for
that, since the kernel would use routes of one metric in turn.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Literal

import msgspec

from netdra.kernel import address, link, route, uapi, unlocked
from netdra.kernel.errors import KernelError, KernelMissingError
from netdra.kernel.netlink import Socket
from netdra.kernel.route import NextHop, Route
from netdra.model import texts
from netdra.model.errors import InvalidInputError, PermanentError
from netdra.model.result import CNIAddress, CNIRoute, StepResult
from netdra.steps import sysctl
from netdra.steps.contract import Count, PodSpace, Site

DEFAULT_METRICS: Mapping[bool, int] = {False: 0, True: 1024}
"""By whether a route is of IPv6, the metric that the kernel gives it if none is requested (IP6_RT_PRIO_USER)."""
_SCOPES = {"global": uapi.RT_SCOPE_UNIVERSE, "link": uapi.RT_SCOPE_LINK, "host": uapi.RT_SCOPE_HOST}


class NextHopParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One next hop of several, on the step's interface or on another one of the pod."""

    gateway: str = ""
    dev: str = ""
    weight: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1
    onlink: bool = False


class RouteParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One route as configs write it; `dst`, `gw` and `priority` are CNI's words for the first three.

    `src` is another word for `source`.
    """

    destination: str = ""
    gateway: str = ""
    metric: Count | None = None
    dst: str = ""
    gw: str = ""
    priority: Count | None = None
    scope: Annotated[int, msgspec.Meta(ge=0, le=255)] | Literal["global", "link", "host"] | None = None
    table: Count | None = None
    mtu: Count | None = None
    advmss: Count | None = None
    onlink: bool = False
    source: str = ""
    src: str = ""
    nexthops: Annotated[tuple[NextHopParams, ...], msgspec.Meta(max_length=32)] = ()


class AddedAddressing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Addresses and routes that a step puts on an interface that outlives it; routes have no index yet."""

    if_name: str
    addresses: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()


def checked_address(text: str, where: str, if_name: str = "") -> str:
    """An address with its prefix length, in one spelling of the many that it may have.

    Args:
        where: the step and its parameter.
        if_name: the interface that is to have it.

    Raises:
        InvalidInputError: it is not valid, has no prefix length, or no interface can have it.
    """
    try:
        written = texts.cidr(text)
    except ValueError:
        raise InvalidInputError(
            f'{where}: "{text[:80]}" is not an address with a prefix length, as 10.0.0.5/24', code="ND2001"
        ) from None
    if kind := texts.of_no_interface(written, if_name):
        raise InvalidInputError(
            f'{where}: "{text[:80]}" is {kind}, which no interface can have', hint=texts.OWN_ADDRESS, code="ND2002"
        )
    return written


def checked_route(params: RouteParams, where: str) -> Route:
    """A route as the kernel takes it, without its link.

    Raises:
        InvalidInputError: the destination or a router is not an address, the two do not go together, or a field is
            there by both of its names.
    """
    one, other = texts.said_twice(msgspec.structs.asdict(params))
    if one:
        raise InvalidInputError(
            f"{where}: {one} and {other} are two names of one field", hint="leave one of the two out", code="ND2003"
        )
    gateway, source = params.gateway or params.gw, params.source or params.src
    if gateway and params.nexthops:
        raise InvalidInputError(
            f"{where}: a route has a gateway or nexthops, not both",
            hint="move the gateway into nexthops",
            code="ND2004",
        )
    network = _checked_network(params, where)
    scope = _SCOPES[params.scope] if isinstance(params.scope, str) else params.scope
    return Route(
        destination=network,
        gateway=gateway and texts.ip(gateway),
        metric=params.metric if params.metric is not None else params.priority or 0,
        scope=scope,
        table=params.table or uapi.RT_TABLE_MAIN,
        mtu=params.mtu or 0,
        advmss=params.advmss or 0,
        on_link=params.onlink,
        source=source,
        hops=tuple(
            NextHop(
                gateway=hop.gateway and texts.ip(hop.gateway),
                if_name=hop.dev,
                weight=hop.weight,
                on_link=hop.onlink or params.onlink,
            )
            for hop in params.nexthops
        ),
    )


def _checked_network(params: RouteParams, where: str) -> str:
    """The destination of a route whose routers can be reached.

    Raises:
        InvalidInputError: as of `checked_route`.
    """
    destination, gateway = params.destination or params.dst, params.gateway or params.gw
    source = params.source or params.src
    try:
        routers = [hop.gateway for hop in params.nexthops if hop.gateway]
        network = texts.network(destination, gateway or next(iter(routers), ""), source, *routers)
    except ValueError:
        raise InvalidInputError(
            f'{where}: no route can be made to "{destination[:80]}" by "{gateway[:80]}"',
            hint="destination is a network as 10.0.0.0/8, gateway an address of the same family",
            code="ND2005",
        ) from None
    for router in (gateway, *routers):
        what, hint = texts.route_fault(network, router, source, params.scope)
        if what:
            raise InvalidInputError(f"{where}: {what}", hint=hint, code="ND2006")
    return network


def from_ipam(result: StepResult, if_name: str) -> AddedAddressing:
    """The addresses and routes of an IPAM plugin's result; a route without a router gets its family's gateway."""
    gateways = {":" in ip.gateway: ip.gateway for ip in reversed(result.ips) if ip.gateway}
    return AddedAddressing(
        if_name=if_name,
        addresses=tuple(ipaddress.ip_interface(ip.address).with_prefixlen for ip in result.ips),
        routes=tuple(_from_result(entry, gateways.get(":" in entry.dst, "")) for entry in result.routes),
    )


def precedes_eth0(entry: Route) -> bool:
    """Whether it is a default route for all traffic without a metric of its own, so that `eth0` loses the traffic."""
    has_metric = entry.metric not in (0, DEFAULT_METRICS[":" in entry.destination])
    return entry.is_default and entry.table == uapi.RT_TABLE_MAIN and not has_metric


def left_out(entry: Route, source: str, where: str = "") -> str:
    """The note on a default route that the pod does not get; `source` is where it comes from, in words."""
    return (
        f"default route via {entry.gateway or 'the link'} of {source} is not in the pod: it would come before that of "
        f"eth0; set defaultRoute: true in the step, or give the route a metric{where}"
    )


def without_defaults(
    result: StepResult, source: str, allowed: Collection[str] = (), given: Collection[CNIRoute] = ()
) -> tuple[StepResult, tuple[str, ...]]:
    """A plugin's result without default routes that would come before that of `eth0`, and the notes on them.

    Args:
        result: the plugin's.
        source: the plugin, in words.
        allowed: the destinations of default routes that stay.
        given: the routes of the previous result, which stay.
    """
    kept, notes = [], []
    for cni_route, entry in zip(result.routes, from_ipam(result, "").routes, strict=True):
        if cni_route in given or entry.destination in allowed or not precedes_eth0(entry):
            kept.append(cni_route)
        else:
            notes.append(left_out(entry, source))
    return msgspec.structs.replace(result, routes=tuple(kept)), tuple(notes)


def first_metric(pod: PodSpace) -> int:
    """The metric with which an IPv6 default route comes before all others of the pod."""
    listed = route.dump(pod.sock, socket.AF_INET6, uapi.RT_TABLE_MAIN)
    metrics = [entry.metric for entry in listed if entry.is_made and entry.destination == "::/0"]
    return max(1, min(metrics) - 1) if metrics else DEFAULT_METRICS[True]


def ahead(wanted: AddedAddressing, pod: PodSpace) -> AddedAddressing:
    """The same, with a metric for IPv6 default routes by which they come before the default routes of the pod."""
    if not any(precedes_eth0(entry) and ":" in entry.destination for entry in wanted.routes):
        return wanted
    first = first_metric(pod)
    routes = (
        msgspec.structs.replace(entry, metric=first) if precedes_eth0(entry) and ":" in entry.destination else entry
        for entry in wanted.routes
    )
    return msgspec.structs.replace(wanted, routes=tuple(routes))


def missing(wanted: AddedAddressing, index: int, pod: PodSpace) -> AddedAddressing:
    """The wanted addresses and routes that the interface of that index does not have yet."""
    if not wanted.addresses and not wanted.routes:
        return wanted
    present = present_among(wanted.addresses, pod.sock, index)
    listed = route.dump(pod.sock) if wanted.routes else ()
    routes = {key for entry in listed for path in entry.paths for key in _keys(path)}
    return AddedAddressing(
        if_name=wanted.if_name,
        addresses=tuple(text for text in wanted.addresses if text not in present),
        routes=tuple(
            entry
            for entry in wanted.routes
            if not {route_key(path, index) for path in located(entry, index, pod).paths} <= routes
        ),
    )


def lost_routes(wanted: AddedAddressing, site: Site) -> tuple[str, ...]:
    """The routes that an interface of the pod does not have, in words; empty if the interface does not exist."""
    index = unlocked.index_of(site.inside.sock, wanted.if_name) if wanted.routes else 0
    lost = missing(msgspec.structs.replace(wanted, addresses=()), index, site.inside).routes if index else ()
    return tuple(
        f'interface "{wanted.if_name}" has lost the route to {entry.destination}'
        + (f" by {entry.gateway}" if entry.gateway else "")
        for entry in lost
    )


def route_key(entry: Route, index: int = 0) -> tuple[str, str, int, int, int]:
    """The part of a route that no other one has: destination, router, link (`index` for none), table and metric."""
    metric = entry.metric or DEFAULT_METRICS[":" in entry.destination]
    return (_spelled(entry.destination), _spelled(entry.gateway), entry.index or index, entry.table, metric)


def located(entry: Route, index: int, pod: PodSpace) -> Route:
    """A route through the link of that index, or through the links that its next hops name.

    Raises:
        PermanentError: the pod has no such link.
    """
    if not entry.hops:
        return msgspec.structs.replace(entry, index=entry.index or index)
    hops = []
    for hop in entry.hops:
        at = unlocked.index_of(pod.sock, hop.if_name) if hop.if_name else index
        if not at:
            raise PermanentError(
                f'route to {entry.destination}: the pod has no interface "{hop.if_name}"',
                hint="let the step depend on the step that makes it",
                code="ND2007",
            )
        hops.append(msgspec.structs.replace(hop, index=at))
    return msgspec.structs.replace(
        entry, hops=tuple(hops), links=tuple(hop.index for hop in hops), gateways=tuple(hop.gateway for hop in hops)
    )


def present_addresses(sock: Socket, index: int) -> set[str]:
    """The addresses of an interface, each spelled as `texts.cidr` spells it: the kernel's texts are the C library's."""
    return {texts.cidr(entry.text) for entry in address.dump(sock, index)}


def present_among(wanted: Collection[str], sock: Socket, index: int) -> set[str]:
    """Those of some addresses that an interface has, spelled as `present_addresses` spells them."""
    return {texts.cidr(entry.text) for entry in address.find(sock, index, wanted)}.intersection(wanted)


def add(wanted: AddedAddressing, index: int, pod: PodSpace) -> None:
    """Put addresses and then routes on the interface of that index, which must be up.

    Raises:
        KernelError: the kernel refused one; those before it are there.
    """
    if any(":" in text for text in wanted.addresses):
        enable_ipv6(wanted.if_name, index, pod)
    for text in wanted.addresses:
        address.add(pod.sock, index, text)
    for entry in wanted.routes:
        route.add(pod.sock, located(entry, index, pod), prepend=True)


def remove(added: AddedAddressing, site: Site) -> None:
    """Take routes and addresses off again; those that are gone already, or went with the namespace, are skipped.

    Raises:
        KernelError: the kernel refused.
    """
    if site.pod is None:
        return
    sock = site.pod.sock
    netdev = link.find(sock, added.if_name)
    if netdev is None:
        return
    for entry in reversed(added.routes):
        with suppress(PermanentError):  # the route went with the link of a next hop
            delete_route(sock, located(entry, netdev.index, site.pod))
    for text in reversed(added.addresses):
        _delete_address(sock, netdev.index, text)


def described(result: StepResult, addresses: Sequence[str], routes: Sequence[Route], place: int | None) -> StepResult:
    """A result with these addresses, on its interface at `place`, and routes.

    An address gets as its gateway the router of the first of the routes that lies in its network.
    """
    ips = tuple(CNIAddress(address=text, gateway=_gateway(text, routes), interface=place) for text in addresses)
    return msgspec.structs.replace(
        result,
        ips=(*result.ips, *ips),
        routes=(*result.routes, *(_described(entry) for entry in routes if not entry.hops)),
    )


def _from_result(cni_route: CNIRoute, gateway: str) -> Route:
    return Route(
        destination=ipaddress.ip_network(cni_route.dst, strict=False).with_prefixlen,
        gateway=cni_route.gw or gateway,
        metric=cni_route.priority or 0,
        scope=cni_route.scope,
        table=cni_route.table or uapi.RT_TABLE_MAIN,
        mtu=cni_route.mtu or 0,
        advmss=cni_route.advmss or 0,
    )


def _keys(path: Route) -> Iterator[tuple[str, str, int, int, int]]:
    """The keys of the wanted routes that a route of the kernel is; `ahead` may have lowered its metric."""
    yield route_key(path)
    if path.is_default and 0 < path.metric < DEFAULT_METRICS[":" in path.destination]:
        yield route_key(msgspec.structs.replace(path, metric=0))


def _spelled(text: str) -> str:
    """An address or a network in one spelling: only of an IPv4 address within IPv6 has the kernel another one."""
    if ":" not in text or "." not in text:
        return text
    return texts.network(text) if "/" in text else texts.ip(text)


def enable_ipv6(if_name: str, index: int, pod: PodSpace) -> None:
    """Let the interface have IPv6 addresses, and keep them when it is set down, as CNI plugins do.

    Raises:
        PermanentError: the kernel has no IPv6, or the MTU of the interface is too small.
        KernelError: the kernel refused.
    """
    disabled, keep = (f"net/ipv6/conf/{if_name}/{name}" for name in ("disable_ipv6", "keep_addr_on_down"))
    wanted = {keep: "1"}
    try:
        if sysctl.read(pod.namespace, (disabled,))[disabled] != "0":
            wanted[disabled] = "0"
        sysctl.write(pod.namespace, wanted)
    except KernelMissingError:
        mtu = link.get(pod.sock, index).mtu
        if mtu >= texts.LEAST_MTU_6 and sysctl.has_ipv6(pod.namespace):
            raise
        if mtu >= texts.LEAST_MTU_6:
            raise PermanentError(
                f'interface "{if_name}" can have no IPv6 address: the kernel of the node has no IPv6 '
                "(ipv6.disable=1 on its command line, or no module ipv6)",
                hint="enable IPv6 on the node, or leave IPv6 addresses out",
                code="ND2008",
            ) from None
        raise PermanentError(
            f'interface "{if_name}" has MTU {mtu} and can have no IPv6 address: the kernel removes IPv6 from an '
            f"interface whose MTU is below {texts.LEAST_MTU_6}",
            hint=f"raise its MTU to {texts.LEAST_MTU_6}, or leave IPv6 addresses out",
            code="ND2009",
        ) from None


def delete_route(sock: Socket, entry: Route) -> None:
    """Delete a route; one that is gone is not an error.

    Raises:
        KernelError: the kernel refused.
    """
    try:
        route.delete(sock, entry)
    except KernelError as problem:
        if not _is_gone(problem):
            raise


def _delete_address(sock: Socket, index: int, text: str) -> None:
    try:
        address.delete(sock, index, text)
    except KernelError as problem:
        if not _is_gone(problem):
            raise


def _is_gone(problem: KernelError) -> bool:
    """Whether it does not exist any more: a kernel without IPv6 does not support requests about it."""
    return isinstance(problem, KernelMissingError) or problem.is_unsupported


def _gateway(text: str, routes: Sequence[Route]) -> str:
    if not routes:  # reading an address takes longer than giving it to the kernel
        return ""
    network = ipaddress.ip_interface(text).network
    return next(
        (entry.gateway for entry in routes if entry.gateway and ipaddress.ip_address(entry.gateway) in network), ""
    )


def _described(entry: Route) -> CNIRoute:
    return CNIRoute(
        dst=entry.destination,
        gw=entry.gateway,
        mtu=entry.mtu or None,
        advmss=entry.advmss or None,
        priority=entry.metric or None,
        table=None if entry.table == uapi.RT_TABLE_MAIN else entry.table,
        scope=entry.scope,
    )
