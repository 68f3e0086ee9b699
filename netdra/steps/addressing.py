"""Addresses and routes of an interface in the pod: from config or an IPAM plugin into the kernel, and out again.

Used by tuning (its own parameters) and by `ipam` (for every step). Addresses go in without duplicate address
detection, which takes IPv6 one to two seconds; routes go in beside others to the same destination, the newest first,
as CNI plugins do it: the pod's first network has its default route too.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from netdra.kernel import address, link, route, uapi
from netdra.kernel.errors import KernelMissingError
from netdra.kernel.netlink import Socket
from netdra.kernel.route import Route
from netdra.model import texts
from netdra.model.errors import InvalidInputError
from netdra.model.result import CNIAddress, CNIRoute, StepResult
from netdra.steps import sysctl
from netdra.steps.contract import Count, PodSpace, Site

_SCOPES = {"global": uapi.RT_SCOPE_UNIVERSE, "link": uapi.RT_SCOPE_LINK, "host": uapi.RT_SCOPE_HOST}


class RouteParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One route as configs write it; `dst`, `gw` and `priority` are CNI's words for the first three."""

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


class Added(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Addresses and routes that a step puts on an interface that outlives it; routes have no index yet."""

    if_name: str
    addresses: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()


def checked_address(text: str, where: str) -> str:
    """An address with its prefix length, in the kernel's spelling.

    Raises:
        InvalidInputError: it is none, or has no prefix length.
    """
    try:
        return texts.cidr(text)
    except ValueError:
        raise InvalidInputError(f'{where}: "{text[:80]}" is no address with a prefix length, as 10.0.0.5/24') from None


def checked_route(params: RouteParams, where: str) -> Route:
    """A route as the kernel takes it, but for its link.

    Raises:
        InvalidInputError: the destination or a router is no address, or the two are of different families.
    """
    destination, gateway = params.destination or params.dst, params.gateway or params.gw
    try:
        network = texts.network(destination, gateway, params.source)
    except ValueError:
        raise InvalidInputError(
            f'{where}: no route can be made to "{destination[:80]}" by "{gateway[:80]}"',
            hint="destination is a network as 10.0.0.0/8, gateway an address of the same family",
        ) from None
    scope = _SCOPES[params.scope] if isinstance(params.scope, str) else params.scope
    return Route(
        destination=network,
        gateway=gateway,
        metric=params.metric if params.metric is not None else params.priority or 0,
        scope=scope,
        table=params.table or uapi.RT_TABLE_MAIN,
        mtu=params.mtu or 0,
        advmss=params.advmss or 0,
        on_link=params.onlink,
        source=params.source,
    )


def from_ipam(result: StepResult, if_name: str) -> Added:
    """What an IPAM plugin's result asks for; a route without a router goes over the gateway of its family's address."""
    gateways = {":" in each.gateway: each.gateway for each in reversed(result.ips) if each.gateway}
    return Added(
        if_name=if_name,
        addresses=tuple(ipaddress.ip_interface(each.address).with_prefixlen for each in result.ips),
        routes=tuple(_from_result(each, gateways.get(":" in each.dst, "")) for each in result.routes),
    )


def missing(wanted: Added, index: int, pod: PodSpace) -> Added:
    """What of it the interface of that index does not have yet."""
    if not wanted.addresses and not wanted.routes:
        return wanted
    present = {each.text for each in address.dump(pod.sock, index)} if wanted.addresses else set()
    routes = {_key(each) for each in route.dump(pod.sock)} if wanted.routes else set()
    return Added(
        if_name=wanted.if_name,
        addresses=tuple(each for each in wanted.addresses if each not in present),
        routes=tuple(each for each in wanted.routes if _key(each, index) not in routes),
    )


def add(wanted: Added, index: int, pod: PodSpace) -> None:
    """Put addresses and then routes on the interface of that index, which must be up.

    Raises:
        KernelError: the kernel refused one; those before it are there.
    """
    if any(":" in each for each in wanted.addresses):
        _enable_ipv6(wanted.if_name, pod)
    for each in wanted.addresses:
        address.add(pod.sock, index, each)
    for each_route in wanted.routes:
        route.add(pod.sock, msgspec.structs.replace(each_route, index=index), prepend=True)


def remove(added: Added, site: Site) -> None:
    """Take routes and addresses off again; what is gone already, or has gone with the namespace, is passed over.

    Raises:
        KernelError: the kernel refused.
    """
    if site.pod is None:
        return
    sock = site.pod.sock
    found = link.find(sock, added.if_name)
    if found is None:
        return
    for each in reversed(added.routes):
        _delete_route(sock, msgspec.structs.replace(each, index=found.index))
    for text in reversed(added.addresses):
        _delete_address(sock, found.index, text)


def described(result: StepResult, addresses: Sequence[str], routes: Sequence[Route], place: int | None) -> StepResult:
    """A result with these addresses, on its interface at `place`, and routes.

    An address gets as its gateway the router of the first of the routes that lies in its network.
    """
    ips = tuple(CNIAddress(address=text, gateway=_gateway(text, routes), interface=place) for text in addresses)
    return msgspec.structs.replace(
        result, ips=(*result.ips, *ips), routes=(*result.routes, *(_described(each) for each in routes))
    )


def _from_result(found: CNIRoute, gateway: str) -> Route:
    return Route(
        destination=ipaddress.ip_network(found.dst, strict=False).with_prefixlen,
        gateway=found.gw or gateway,
        metric=found.priority or 0,
        scope=found.scope,
        table=found.table or uapi.RT_TABLE_MAIN,
        mtu=found.mtu or 0,
        advmss=found.advmss or 0,
    )


def _key(found: Route, index: int = 0) -> tuple[str, str, int, int, int]:
    # IPv6 routes without a metric get 1024 (include/uapi/linux/ipv6_route.h, IP6_RT_PRIO_USER).
    metric = found.metric or (1024 if ":" in found.destination else 0)
    return (found.destination, found.gateway, found.index or index, found.table, metric)


def _enable_ipv6(if_name: str, pod: PodSpace) -> None:
    """Let the interface have IPv6 addresses, and keep them when it is set down, as CNI plugins do."""
    disabled, keep = (f"net/ipv6/conf/{if_name}/{name}" for name in ("disable_ipv6", "keep_addr_on_down"))
    wanted = {keep: "1"}
    if sysctl.read(pod.namespace, (disabled,))[disabled] != "0":
        wanted[disabled] = "0"
    sysctl.write(pod.namespace, wanted)


def _delete_route(sock: Socket, each: Route) -> None:
    try:
        route.delete(sock, each)
    except KernelMissingError:
        return


def _delete_address(sock: Socket, index: int, text: str) -> None:
    try:
        address.delete(sock, index, text)
    except KernelMissingError:
        return


def _gateway(text: str, routes: Sequence[Route]) -> str:
    if not routes:  # reading an address takes longer than giving it to the kernel
        return ""
    network = ipaddress.ip_interface(text).network
    return next((each.gateway for each in routes if each.gateway and ipaddress.ip_address(each.gateway) in network), "")


def _described(each: Route) -> CNIRoute:
    return CNIRoute(
        dst=each.destination,
        gw=each.gateway,
        mtu=each.mtu or None,
        advmss=each.advmss or None,
        priority=each.metric or None,
        table=None if each.table == uapi.RT_TABLE_MAIN else each.table,
        scope=each.scope,
    )
