"""`sourceRouting`: traffic from an address of a step's interface leaves by that interface, and ARP answers there alone.

Linux routes by the destination: with two interfaces in one network it sends everything through the first, and answers
ARP requests for any of its addresses on each. So the interface gets a routing table of its own, with copies of its
routes, and a policy rule for each of its addresses that selects the table (ip-rule(8), networking/ip-sysctl).

Called by `netdra.chain.execute` after a step of any kind is done, and before the step is undone. The table's number is
that of no other interface: it follows from the interface's index, and is above all that topologies may use.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterator

import msgspec

from netdra.kernel import address, route, rule, uapi, unlocked
from netdra.kernel.address import Address
from netdra.kernel.errors import KernelExistsError
from netdra.kernel.route import Route
from netdra.model.errors import PermanentError
from netdra.model.result import StepResult
from netdra.model.routing import OWN_TABLES
from netdra.steps import addressing, routing, sysctl
from netdra.steps.contract import Attempts, PodSpace, Site
from netdra.steps.routing import Routing

KEY = "sourceRouting"
"""The part of a step's record that is this module's."""
PRIORITY = 30_000
"""Of the rules: after those of tuning steps without a priority, before the main table's."""
MOST_ROUTES = 1024
_LAST = 0xFFFFFFFF  # the lowest priority of a route
_EVERYWHERE: dict[int, str] = {socket.AF_INET: "0.0.0.0/0", socket.AF_INET6: "::/0"}
_ARP = {"arp_ignore": "1", "arp_announce": "2"}
"""Answer for an address on its own interface alone, and name no other one's address in requests."""


class SourceRouted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The additions for one interface, and the sysctls as they were. Routes have no index, unless they have no link."""

    if_name: str
    table: int
    routing: Routing
    routes: tuple[Route, ...] = ()
    barriers: tuple[Route, ...] = ()
    sysctl: dict[str, str] = {}


def observe(called: str, if_name: str, result: StepResult, site: Site) -> SourceRouted:
    """The rules and routes that a step's interface lacks for source routing. Changes nothing.

    Args:
        called: the step as messages call it.
        if_name: its interface.
        result: the step's result, which has the routers of its addresses.
        site: where.

    Raises:
        PermanentError: the interface has no address, or too many routes.
        KernelError: the kernel refused.
    """
    pod = site.inside
    index = unlocked.index_of(pod.sock, if_name)
    own = [entry for entry in address.dump(pod.sock, index) if _counts(entry)] if index else []
    if not own:
        raise PermanentError(
            f'{called}: sourceRouting is set, but interface "{if_name}" has no address',
            hint="set it on the step that gives the interface its addresses",
            code="ND2067",
        )
    wanted = _wanted(if_name, index, own, result, pod)
    if len(wanted.routes) > MOST_ROUTES:
        raise PermanentError(
            f'{called}: interface "{if_name}" has {len(wanted.routes)} routes; sourceRouting copies {MOST_ROUTES}',
            hint="use fewer routes",
            code="ND2068",
        )
    return missing(wanted, index, pod)


def apply(added: SourceRouted, site: Site) -> None:
    """Add the table's routes, and then the rules that lead to it.

    Raises:
        KernelError: the kernel refused; what was done before stays until the step is undone.
    """
    pod = site.inside
    index = unlocked.index_of(pod.sock, added.if_name)
    sysctl.write(pod.namespace, {path: _ARP[path.rpartition("/")[2]] for path in added.sysctl})
    for entry in added.routes:
        route.add(pod.sock, msgspec.structs.replace(entry, index=index), prepend=True)
    for entry in added.barriers:
        try:
            route.add(pod.sock, entry)
        except KernelExistsError:
            continue
    routing.add(added.routing, index, pod)


def undo(added: SourceRouted, site: Site) -> None:
    """Remove rules and routes, and restore the sysctls; what is gone already is skipped.

    Raises:
        KernelError: the kernel refused; all are tried.
    """
    if site.pod is None:
        return
    attempts, pod = Attempts(), site.pod
    attempts.run(lambda: routing.remove(added.routing, 0, site))
    index = unlocked.index_of(pod.sock, added.if_name)
    gone = [*added.barriers]
    gone += (msgspec.structs.replace(entry, index=index) for entry in reversed(added.routes) if index)
    for entry in gone:
        attempts.run(lambda entry=entry: addressing.delete_route(pod.sock, entry))  # type: ignore[misc]
    attempts.run(lambda: sysctl.give_back(pod.namespace, added.sysctl))
    attempts.result()


def check(added: SourceRouted, changed: Collection[str], site: Site) -> tuple[str, ...]:
    """The rules and routes that are gone, in words; none if the interface is gone, which is a drift of its step.

    Args:
        added: the record of `observe`.
        changed: the sysctls that later steps have set, by path.
        site: where.

    Raises:
        KernelError: the kernel refused.
    """
    pod = site.inside
    index = unlocked.index_of(pod.sock, added.if_name)
    if not index:
        return ()
    lost = missing(added, index, pod)
    return (
        *(f"{routing.described(entry)} is gone" for entry in lost.routing.rules),
        *(f"route to {entry.destination} in table {added.table} is gone" for entry in (*lost.routes, *lost.barriers)),
        *(f"sysctl {path} is not {_ARP[path.rpartition('/')[2]]}" for path in lost.sysctl if path not in changed),
    )


def missing(wanted: SourceRouted, index: int, pod: PodSpace) -> SourceRouted:
    """The part of it that the pod does not have; the sysctls that differ have their present values."""
    present = {_key(entry) for entry in route.dump(pod.sock, table=wanted.table) for entry in entry.paths}
    paths = [f"net/ipv4/conf/{wanted.if_name}/{name}" for name in _ARP]
    values = sysctl.read(pod.namespace, paths)
    return SourceRouted(
        if_name=wanted.if_name,
        table=wanted.table,
        routing=routing.missing(wanted.routing, index, pod),
        routes=tuple(
            entry for entry in wanted.routes if _key(msgspec.structs.replace(entry, index=index)) not in present
        ),
        barriers=tuple(entry for entry in wanted.barriers if _key(entry) not in present),
        sysctl={path: value for path, value in values.items() if value != _ARP[path.rpartition("/")[2]]},
    )


def _wanted(if_name: str, index: int, own: list[Address], result: StepResult, pod: PodSpace) -> SourceRouted:
    table = OWN_TABLES + index
    routes = list(_copies(index, table, pod))
    barriers = []
    for family in sorted({entry.family for entry in own}):
        everywhere = _EVERYWHERE[family]
        if any(entry.destination == everywhere for entry in routes):
            continue
        router = _router(if_name, family, result)
        if router:
            routes.append(Route(destination=everywhere, gateway=router, table=table))
        elif all(entry.valid is None for entry in own if entry.family == family):
            # Without it, the main table's route would count, and lead through another interface.
            barriers.append(Route(destination=everywhere, table=table, metric=_LAST, kind=uapi.RTN_UNREACHABLE))
    rules = tuple(
        rule.made(entry.family, priority=PRIORITY, table=table, source=f"{entry.text.partition('/')[0]}/{bits}")
        for entry in own
        for bits in (32 if entry.family == socket.AF_INET else 128,)
    )
    routing_ = Routing(if_name=if_name, rules=rules)
    return SourceRouted(if_name=if_name, table=table, routing=routing_, routes=tuple(routes), barriers=tuple(barriers))


def _counts(entry: Address) -> bool:
    return entry.scope == uapi.RT_SCOPE_UNIVERSE and not entry.is_temporary


def _copies(index: int, table: int, pod: PodSpace) -> Iterator[Route]:
    """The main table's routes through the interface, for its own table: those to its networks first."""
    listed = [
        path
        for entry in route.dump(pod.sock, table=uapi.RT_TABLE_MAIN, through=index)
        for path in entry.paths
        if path.index == index and path.kind == uapi.RTN_UNICAST and not path.destination.startswith("fe80:")
    ]
    for entry in sorted(listed, key=lambda entry: bool(entry.gateway)):
        yield msgspec.structs.replace(
            entry,
            index=0,
            links=(),
            gateways=(),
            table=table,
            protocol=uapi.RTPROT_STATIC,
            # The kernel refuses an address as the source while it is not yet checked for duplicates.
            source="" if ":" in entry.destination else entry.source,
        )


def _router(if_name: str, family: int, result: StepResult) -> str:
    """The router of the interface's first address of a family that has one, by the step's result; "" for none."""
    place = result.place_of(if_name)
    version = 4 if family == socket.AF_INET else 6
    for ip in result.ips:
        if ip.interface == place and ip.gateway and ipaddress.ip_address(ip.gateway).version == version:
            return ip.gateway
    return ""


def _key(entry: Route) -> tuple[str, str, int, int]:
    metric = entry.metric or addressing.DEFAULT_METRICS[":" in entry.destination]
    index = entry.index if entry.kind == uapi.RTN_UNICAST else 0  # an unreachable one of IPv6 is on the loopback
    return entry.destination, entry.gateway, index, metric
