"""The configuration that a moved netdev keeps in the pod: addresses, routes, rules and permanent neighbours.

Called by `builtin` for the step types that move a netdev. The kernel forgets addresses and routes when a netdev changes
its namespace (`moving`), so they are taken from the step's record and given to the interface in the pod. Policy rules
belong to a namespace and not to a netdev: those of the node stay there, and the pod gets its own.

Addresses that a DHCP client or a router gave become permanent in the pod: no client there renews them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress

import msgspec

from netdra.kernel import neighbour, rule, uapi, unlocked
from netdra.kernel.errors import KernelExistsError, KernelMissingError
from netdra.kernel.neighbour import Neighbour
from netdra.kernel.route import Route
from netdra.kernel.rule import PolicyRule
from netdra.model.errors import PermanentError
from netdra.model.kept import Keep
from netdra.model.result import StepResult
from netdra.steps import addressing
from netdra.steps.addressing import AddedAddressing
from netdra.steps.contract import Order, Site
from netdra.steps.netdevs import Moved

MOST = 1024
"""Addresses, routes, rules and neighbours of one device; a routing daemon may have made many thousands."""
_SHARED_TABLES = frozenset({uapi.RT_TABLE_UNSPEC, uapi.RT_TABLE_DEFAULT, uapi.RT_TABLE_MAIN, uapi.RT_TABLE_LOCAL})


class Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The interface's configuration in the pod; routes have no index, and rules name the interface as the pod does.

    `left_out` are notes on its configuration on the node that the pod does not get.
    """

    addresses: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[PolicyRule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    left_out: tuple[str, ...] = ()


def observe(order: Order, moved: Moved | None, site: Site) -> Kept | None:
    """The configuration that the step's device keeps; None if only the parts that move with it.

    Args:
        order: the step.
        moved: its netdev as it is on the node; None if the device has none.
        site: where.

    Raises:
        PermanentError: it is too much.
        KernelError: the kernel refused.
    """
    if moved is None or not set(order.keep) - {"mtu"}:
        return None
    kept = of_record(moved, order.keep, default_route=order.default_route)
    if "rules" in order.keep:
        kept = msgspec.structs.replace(kept, rules=tuple(_rules(moved, kept.routes, site)))
    number = sum(map(len, (kept.addresses, kept.routes, kept.rules, kept.neighbours)))
    if number > MOST:
        raise PermanentError(
            f'{order.called}: device "{moved.name}" has {number} addresses, routes, rules and neighbours on the node, '
            f"more than {MOST} that it can keep",
            hint="keep fewer kinds of them, or find out which program on the node adds them",
            code="ND2037",
        )
    return kept


def of_record(moved: Moved, keep: Collection[Keep], *, default_route: bool) -> Kept:
    """The configuration that a netdev keeps of its own record: everything but rules."""
    addresses = tuple(entry.text for entry in moved.addresses if entry.scope == uapi.RT_SCOPE_UNIVERSE)
    left_out: list[str] = []
    if "addresses" in keep and not addresses:
        left_out.append(f'device "{moved.name}" had no address on the node, so the pod has none to keep')
    routes: list[Route] = []
    for entry in moved.routes if "routes" in keep else ():
        if entry.protocol == uapi.RTPROT_KERNEL:
            continue  # the pod's kernel makes its own with the address
        if _comes_first(entry) and not default_route:
            left_out.append(addressing.left_out(entry, f'device "{moved.name}"', " on the node"))
            continue
        routes.append(msgspec.structs.replace(entry, index=0, links=()))
    return Kept(
        addresses=addresses if "addresses" in keep else (),
        routes=tuple(routes),
        neighbours=moved.neighbours if "neighbours" in keep else (),
        left_out=tuple(left_out),
    )


def apply(order: Order, kept: Kept, result: StepResult, site: Site) -> StepResult:
    """Give the interface what it keeps, and return the step's result with its addresses and routes.

    Raises:
        KernelError: the kernel refused; what was done before stays until the step is undone.
    """
    pod = site.inside
    index = unlocked.index_of(pod.sock, order.if_name)
    own = AddedAddressing(if_name=order.if_name, addresses=kept.addresses, routes=kept.routes)
    addressing.add(addressing.ahead(own, pod), index, pod)
    for known in kept.neighbours:
        neighbour.add(pod.sock, index, known)
    for wanted in kept.rules:
        with suppress(KernelExistsError):
            rule.add(pod.sock, wanted)
    site.notes.extend(kept.left_out)
    return addressing.described(result, kept.addresses, kept.routes, result.place_of(order.if_name))


def undo(kept: Kept, site: Site) -> None:
    """Take the rules off the pod; all else goes when the netdev leaves it.

    Raises:
        KernelError: the kernel refused.
    """
    if site.pod is None:
        return
    for entry in reversed(kept.rules):
        with suppress(KernelMissingError):
            rule.delete(site.pod.sock, entry)


def _rules(moved: Moved, routes: Collection[Route], site: Site) -> Iterator[PolicyRule]:
    """The node's rules about a netdev, or about a table of its own that a route of it is in."""
    tables = {entry.table for entry in routes} - _SHARED_TABLES
    for entry in rule.dump(site.host):
        if moved.name in (entry.input, entry.output) or entry.table in tables:
            yield rule.renamed(entry, moved.name, moved.pod_name)


def _comes_first(entry: Route) -> bool:
    """Whether it is a default route of the table that all traffic takes, and not behind others."""
    is_default = entry.destination.endswith("/0")
    last = addressing.DEFAULT_METRICS[":" in entry.destination]
    return is_default and entry.table == uapi.RT_TABLE_MAIN and entry.metric <= last
