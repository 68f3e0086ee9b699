"""`ipam: {type: slaac}` of built-in steps: the addresses that the routers of the wire advertise (RFC 4862).

The kernel of the pod's namespace makes the addresses, renews them, and removes those that are advertised no longer. A
step asks for an advertisement (RFC 4861, 6.3.7) and waits until an address can be used. Called by `builtin`; a router's
default route follows the rule of `routers`.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import msgspec

from netdra.kernel import address, link, probe, route, uapi, unlocked
from netdra.kernel.address import Address
from netdra.kernel.errors import KernelMissingError
from netdra.kernel.link import Link
from netdra.model.documents import convert
from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.pod_network import SLAAC_TYPE
from netdra.model.result import StepResult
from netdra.model.topology import is_autoconfigured
from netdra.steps import addressing, sysctl
from netdra.steps.addressing import AddedAddressing
from netdra.steps.contract import Order, PodSpace, Site
from netdra.steps.drift import without_carrier

KEY = "slaac"
"""The key of a built-in step's undo with its `Advertised`."""
RESERVE_SECONDS = 0.5
"""The part of a step's time that is left for the steps after it."""
_ASK_EVERY, _LOOK_EVERY = 1.0, 0.02
# 2: also if the pod forwards packets (Documentation/networking/ip-sysctl.rst).
_SETTINGS = {"autoconf": "1", "accept_ra_pinfo": "1", "accept_ra": "2"}


class SlaacParams(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The `ipam` of a step: how long to wait for an address, in seconds."""

    type: str
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=60)] = 5


class Advertised(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The data for undoing: the sysctls that the step changes, as they were, and the addresses that the kernel made."""

    if_name: str
    settings: Mapping[str, str] = {}
    addresses: tuple[str, ...] = ()


def wanted(order: Order) -> SlaacParams | None:
    """How a step's config asks for autoconfiguration, or None.

    Raises:
        InvalidInputError: a field is not valid.
    """
    if not is_autoconfigured(order.config):
        return None
    return convert(order.config["ipam"], SlaacParams, f"{order.called}, ipam")


def observe(order: Order, site: Site) -> Advertised:
    """The interface's settings as they are, once the interface is there. Enables IPv6 on it.

    Raises:
        InvalidInputError: the step has no interface.
        PermanentError: the interface can have no IPv6 address.
        KernelError: the kernel refused.
    """
    pod, found = site.inside, _interface(order, site.inside)
    addressing.enable_ipv6(found.name, found.index, pod)
    now = sysctl.read(pod.namespace, tuple(map(partial(_path, found.name), _SETTINGS)))
    changed = {path: value for path, value in now.items() if value != _SETTINGS[_setting(path)]}
    return Advertised(if_name=order.if_name, settings=changed)


def apply(order: Order, params: SlaacParams, record: Advertised, site: Site) -> Advertised:
    """Let the kernel follow the routers, and wait for addresses; return the record with them.

    Raises:
        TemporaryError: no router advertised an address in time.
        KernelError: the kernel refused.
    """
    pod, found = site.inside, _interface(order, site.inside)
    sysctl.write(pod.namespace, {path: _SETTINGS[_setting(path)] for path in record.settings})
    until = time.monotonic() + min(params.timeout_seconds, max(0.0, site.remaining() - RESERVE_SECONDS))
    ask_at = 0.0
    while not (usable := _usable(found.index, pod)):
        now = time.monotonic()
        if now >= until:
            raise _too_late(order, params, found, pod)
        if now >= ask_at:
            _ask(found, pod)
            ask_at = now + _ASK_EVERY
        time.sleep(_LOOK_EVERY)
    return msgspec.structs.replace(record, addresses=tuple(entry.text for entry in usable))


def undo(record: Advertised, site: Site) -> None:
    """Restore the settings of the interface, and remove the addresses; what is gone already is skipped.

    Raises:
        KernelError: the kernel refused.
    """
    if site.pod is None:
        return
    sysctl.give_back(site.pod.namespace, record.settings)
    addressing.remove(AddedAddressing(if_name=record.if_name, addresses=record.addresses), site)
    index = unlocked.index_of(site.pod.sock, record.if_name)
    if not index or not record.settings:
        return  # the interface is gone, or follows routers without the step, too
    for entry in route.dump(site.pod.sock, socket.AF_INET6, uapi.RT_TABLE_MAIN, through=index):
        # The kernel keeps the route to a router's prefix for its lifetime, also without an address of it.
        is_to_prefix = entry.destination in map(_network, record.addresses) and not entry.gateway
        if entry.protocol == uapi.RTPROT_RA or is_to_prefix:
            with suppress(KernelMissingError):
                route.delete(site.pod.sock, entry)


def without_advertised(expected: StepResult, undos: Iterable[Mapping[str, Any]]) -> StepResult:
    """A result without the addresses of routers: routers may replace them while the pod runs."""
    records = [msgspec.convert(undo[KEY], Advertised) for undo in undos if KEY in undo]
    advertised = {text for record in records for text in record.addresses}
    kept = tuple(ip for ip in expected.ips if ip.address not in advertised)
    return msgspec.structs.replace(expected, ips=kept) if len(kept) < len(expected.ips) else expected


def check(order: Order, site: Site) -> tuple[str, ...]:
    """Whether the interface still has an address that a router advertised, in words.

    Raises:
        KernelError: the kernel refused.
    """
    found = link.find(site.inside.sock, order.if_name)
    if found is None or _usable(found.index, site.inside):
        return ()  # other checks report a missing interface
    return (f'interface "{order.if_name}" has no address that a router advertised',)


def _interface(order: Order, pod: PodSpace) -> Link:
    found = link.find(pod.sock, order.if_name)
    if found is None:
        raise InvalidInputError(
            f'{order.called}: ipam "{SLAAC_TYPE}" needs a network interface, and the step has none',
            hint="leave ipam out of a step whose device is used without the kernel's network stack",
            code="ND2063",
        )
    return found


def _usable(index: int, pod: PodSpace) -> list[Address]:
    """The addresses of an interface that a router advertised, and that the kernel has found to be unique."""
    return [
        entry for entry in _advertised(index, pod) if not entry.flags & (uapi.IFA_F_TENTATIVE | uapi.IFA_F_DADFAILED)
    ]


def _advertised(index: int, pod: PodSpace) -> list[Address]:
    return [
        entry
        for entry in address.dump(pod.sock, index, socket.AF_INET6)
        # Kernels before 5.18 do not report the origin of an address: there, those of routers are not permanent.
        if entry.protocol == uapi.IFAPROT_KERNEL_RA or (not entry.protocol and not entry.flags & uapi.IFA_F_PERMANENT)
        if not entry.is_link_local and not entry.is_temporary
    ]


def _ask(found: Link, pod: PodSpace) -> None:
    if probe.can_probe(found):
        pod.namespace.visit(lambda: probe.solicit_routers(found))


def _too_late(order: Order, params: SlaacParams, found: Link, pod: PodSpace) -> TemporaryError:
    """The error of a step that got no address."""
    advertised = _advertised(found.index, pod)
    called = f'{order.called}: interface "{order.if_name}"'
    if any(entry.flags & uapi.IFA_F_DADFAILED for entry in advertised):
        text = f"{called}: another machine on the wire has the address {advertised[0].text}"
        return TemporaryError(
            text, hint="find the machine with the same MAC address, or give the pod another one", code="ND2064"
        )
    now = link.find(pod.sock, order.if_name)
    if now is not None and (reason := without_carrier(now)):
        return TemporaryError(
            f"{order.called}: {reason}, so it hears no router", hint="connect the interface", code="ND2065"
        )
    return TemporaryError(
        f"{called} got no IPv6 address within {params.timeout_seconds} s: no router of the wire advertised a prefix",
        hint="check that a router advertises a prefix with the autonomous flag, or raise timeoutSeconds",
        code="ND2066",
    )


def _network(text: str) -> str:
    return ipaddress.ip_interface(text).network.with_prefixlen


def _path(if_name: str, setting: str) -> str:
    return f"net/ipv6/conf/{if_name}/{setting}"


def _setting(path: str) -> str:
    return path.rpartition("/")[2]
