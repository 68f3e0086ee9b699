"""The routes that programs and routers give a pod: its default routes follow the rule of its plans.

The default routes of `eth0` are the pod's, unless a step requests its own: by `defaultRoute`, by one among the `routes`
of its config, or by a metric. Any other that a program brings is removed after its ADD, and those of `eth0` that the
program has replaced are restored. Built-in steps do not add such a route in the first place (`netdra.steps`). Called
by `execute`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from netdra.chain.flow import ChainStep
from netdra.kernel import route, uapi, unlocked
from netdra.kernel.errors import KernelError
from netdra.kernel.route import Route
from netdra.model import texts
from netdra.model.result import StepResult
from netdra.model.topology import is_autoconfigured
from netdra.steps import addressing, routers
from netdra.steps.addressing import AddedAddressing
from netdra.steps.contract import PodSpace, Site

ROUTES = "routes"
"""The key of a binary's undo with the pod's routes, as `PodRoutes`."""
_ROUTER_SETTINGS = frozenset({"accept_ra", "accept_ra_defrtr", "accept_ra_pinfo", "autoconf"})
_OF_THE_KERNEL = frozenset({uapi.RTPROT_KERNEL, uapi.RTPROT_RA, uapi.RTPROT_REDIRECT})


class PodRoutes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The routes of a pod around the ADD of a program.

    Attributes:
        defaults: the default routes before it, through other links that the pod had before its first step.
        own: those before it through the step's interface.
        interfaces: the routes of the step's interfaces after it.
    """

    defaults: tuple[Route, ...] = ()
    own: tuple[Route, ...] = ()
    interfaces: tuple[AddedAddressing, ...] = ()


def observe(task: ChainStep, links: Iterable[str], site: Site) -> PodRoutes:
    """The pod's default routes before the ADD of a program; `links` are those of the pod before its first step.

    Raises:
        KernelError: the kernel refused.
    """
    pod = site.inside
    own = unlocked.index_of(pod.sock, task.step.if_name)
    others = {unlocked.index_of(pod.sock, name) for name in links} - {own}
    defaults = _defaults(pod)
    return PodRoutes(
        defaults=tuple(entry for entry in defaults if entry.index in others),
        own=tuple(entry for entry in defaults if entry.index == own),
    )


def settle(
    task: ChainStep, config: Mapping[str, Any], before: PodRoutes, previous: StepResult, result: StepResult, site: Site
) -> tuple[StepResult, PodRoutes]:
    """Apply the rule after a program's ADD; return its result, and the routes to record. `site` gets the notes.

    Args:
        task: the step.
        config: its config, without references.
        before: the routes before its ADD.
        previous: the previous result.
        result: the program's.
        site: where.

    Raises:
        KernelError: the kernel refused.
    """
    pod, requested = site.inside, task.step.default_route
    made = {entry.name for entry in result.interfaces if entry.sandbox == pod.path} - {
        entry.name for entry in previous.interfaces
    }
    indexes = {name: index for name in sorted(made | {task.step.if_name}) if (index := _index(name, pod))}
    for name in made & indexes.keys():
        routers.follow_rule(name, indexes[name], pod, requested=requested)
    known = {addressing.route_key(entry) for entry in before.own}
    present = _defaults(pod)
    new = [
        entry
        for entry in present
        if entry.index in indexes.values()
        and addressing.precedes_eth0(entry)
        and entry.protocol != uapi.RTPROT_RA
        and addressing.route_key(entry) not in known
    ]
    _add_lost(before.defaults, present, pod)
    allowed = {entry.destination for entry in new} if requested else _listed(config)
    if kept := [entry for entry in new if entry.destination in allowed]:
        _bring_forward(kept, pod)
    for entry in new:
        if entry.destination not in allowed:
            route.delete(pod.sock, entry)
            site.notes.append(addressing.left_out(entry, f'plugin "{task.step.type}"'))
    if not requested:
        result, _ = addressing.without_defaults(result, "", allowed, previous.routes)
    interfaces = tuple(AddedAddressing(if_name=name, routes=_added(index, pod)) for name, index in indexes.items())
    known_routes = tuple(entry for entry in interfaces if entry.routes)
    return result, msgspec.structs.replace(before, own=(), interfaces=known_routes)


def restore(before: PodRoutes, site: Site) -> None:
    """Add the default routes of other links again that the pod had and has lost.

    Raises:
        KernelError: the kernel refused to list the routes.
    """
    if site.pod is not None and before.defaults:
        _add_lost(before.defaults, _defaults(site.pod), site.pod)


def recorded(undo: Mapping[str, Any]) -> PodRoutes:
    """The routes in the undo of a program."""
    return msgspec.convert(undo.get(ROUTES, {}), PodRoutes)


def lost(undo: Mapping[str, Any], site: Site) -> tuple[str, ...]:
    """The routes that a program's interfaces had after its ADD and have lost, in words.

    Raises:
        KernelError: the kernel refused.
    """
    return tuple(text for entry in recorded(undo).interfaces for text in addressing.lost_routes(entry, site))


def unrequested(
    if_name: str, configs: Iterable[Mapping[str, Any]], final: StepResult, site: Site, *, default_route: bool
) -> tuple[str, ...]:
    """The addresses and default routes that routers have given to an interface and no step requests, in words.

    Args:
        if_name: the interface.
        configs: those of all steps on it. One that sets how the interface follows routers requests what they give.
        final: the results of all steps. An interface without an address in them may have those of routers.
        site: where.
        default_route: whether a step on it requests a default route.

    Raises:
        KernelError: the kernel refused.
    """
    index = unlocked.index_of(site.inside.sock, if_name)
    if not index or any(map(_follows_routers, configs)):
        return ()
    place = final.place_of(if_name)
    has_addresses = any(ip.interface == place for ip in final.ips)
    found = routers.unrequested(if_name, index, site.inside, addresses=has_addresses, defaults=not default_route)
    return tuple(found)


def _follows_routers(config: Mapping[str, Any]) -> bool:
    """Whether a step lets its interface follow routers, by `ipam` or by a sysctl."""
    settings = config.get("sysctl")
    named = settings.items() if isinstance(settings, Mapping) else ()
    return is_autoconfigured(config) or any(
        str(path).replace("/", ".").rpartition(".")[2] in _ROUTER_SETTINGS and str(value) != "0"
        for path, value in named
    )


def _add_lost(wanted: Iterable[Route], present: Iterable[Route], pod: PodSpace) -> None:
    known = {addressing.route_key(entry) for entry in present}
    for entry in wanted:
        if addressing.route_key(entry) not in known:
            with suppress(KernelError):  # its link, or the address that leads to its router, is gone
                route.add(pod.sock, entry, append=True)


def _bring_forward(entries: Sequence[Route], pod: PodSpace) -> None:
    """Let requested default routes come before those of other links."""
    first = {":" in entry.destination: entry for entry in reversed(_defaults(pod))}
    for entry in reversed(entries):
        is_ipv6 = ":" in entry.destination
        if not is_ipv6 and addressing.route_key(first[is_ipv6]) == addressing.route_key(entry):
            continue
        route.delete(pod.sock, entry)
        addressing.add(addressing.ahead(AddedAddressing(if_name="", routes=(entry,)), pod), entry.index, pod)


def _listed(config: Mapping[str, Any]) -> set[str]:
    """The default routes among the `routes` of a step's config, by destination."""
    listed = config.get("routes")
    entries = (entry for entry in listed if isinstance(entry, Mapping)) if isinstance(listed, list | tuple) else ()
    destinations = {entry.get("destination", entry.get("dst")) for entry in entries}
    return {text for text in destinations if isinstance(text, str) and text.endswith("/0")}


def _defaults(pod: PodSpace) -> tuple[Route, ...]:
    """The default routes of the main table, one for each next hop."""
    listed = route.dump(pod.sock, table=uapi.RT_TABLE_MAIN)
    return tuple(path for entry in listed if entry.is_default and entry.is_made for path in entry.paths)


def _added(index: int, pod: PodSpace) -> tuple[Route, ...]:
    """The routes through a link that neither the kernel nor a router has made, without the link."""
    listed = (path for entry in route.dump(pod.sock, through=index) if entry.is_made for path in entry.paths)
    return tuple(
        msgspec.structs.replace(path, index=0, links=())
        for path in listed
        if path.index == index and path.protocol not in _OF_THE_KERNEL
    )


def _index(name: str, pod: PodSpace) -> int:
    """The index of an interface, 0 for none; a result may name one that cannot exist."""
    return unlocked.index_of(pod.sock, name) if texts.fits(name, "ifname") else 0
