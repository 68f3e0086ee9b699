"""The differences of a VF with a port in Neutron: the settings that a driver may refuse, its addresses and routes.

Used by `sriov`. Settings that isolate the port must be as Neutron has them: MAC, VLAN, the spoof check, a port that is
down. If a driver refuses another setting, the step notes it and continues without.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from netdra.kernel import link, vf
from netdra.kernel.errors import KernelMissingError, KernelRefusedError
from netdra.kernel.link import Link
from netdra.kernel.route import Route
from netdra.kernel.vf import VF
from netdra.model import texts
from netdra.model.plan import PlannedPort
from netdra.model.result import CNIDNS, StepResult
from netdra.steps import addressing
from netdra.steps.addressing import AddedAddressing, RouteParams
from netdra.steps.contract import Order, Site

SETTINGS = ("mac", "vlan", "spoof_check", "trust", "link_state", "min_rate", "max_rate")
"""The settings of a VF that its PF is asked for, as `VF` names them."""


def split(wanted: VF, now: VF) -> tuple[VF, tuple[VF, ...]]:
    """The settings of a port that must be set, and those that a driver may refuse, each of the latter alone.

    A driver that does not report a setting is not asked to leave it off.
    """
    is_down = wanted.link_state == "disable"
    needed = msgspec.structs.replace(
        wanted,
        spoof_check=wanted.spoof_check or None,
        link_state="disable" if is_down else None,
        trust=False if wanted.trust is False and now.trust else None,
        min_rate=None,
        max_rate=None,
    )
    may_fail = []
    if wanted.spoof_check is False and now.spoof_check:
        may_fail.append(VF(index=wanted.index, spoof_check=False))
    if wanted.trust:
        may_fail.append(VF(index=wanted.index, trust=True))
    if wanted.link_state and not is_down and (wanted.link_state != "auto" or now.link_state):
        may_fail.append(VF(index=wanted.index, link_state=wanted.link_state))
    rates = (wanted.min_rate, wanted.max_rate)
    if rates != (None, None) and rates != (now.min_rate or 0, now.max_rate or 0):
        # Many drivers know a maximum alone, and refuse both where a minimum is given: see `attempt`.
        may_fail.append(VF(index=wanted.index, min_rate=wanted.min_rate, max_rate=wanted.max_rate))
    return needed, tuple(may_fail)


def attempt(wanted: VF, now: VF, address: str, pf: Link, site: Site) -> None:
    """Set what a driver may refuse, and note it if it does.

    Raises:
        KernelError: the PF or the VF is gone, or the driver is busy.
    """
    try:
        vf.change(site.host, pf.index, wanted)
    except KernelMissingError:
        raise
    except KernelRefusedError as problem:
        refused = [name for name in SETTINGS if getattr(wanted, name) is not None]
        if wanted.min_rate and wanted.max_rate is not None:
            refused = ["min_rate"]
            alone = VF(index=wanted.index, min_rate=now.min_rate or 0, max_rate=wanted.max_rate)
            if (alone.min_rate, alone.max_rate) != (now.min_rate or 0, now.max_rate or 0):
                attempt(alone, now, address, pf, site)
        for name in refused:
            was, value = getattr(now, name), getattr(wanted, name)
            if (value or 0) != (was or 0):
                site.notes.append(
                    f"{noted(address, name)}{was}, not {value} as its port in Neutron has: {problem.what}"
                )


def is_known(order: Order, address: str, setting: str, value: Any, now: Any) -> bool:
    """Whether a setting has differed from the port's since the start: it is noted, or its driver does not report it."""
    if any(note.startswith(noted(address, setting)) for note in order.noted):
        return True
    return order.port is not None and now is None and value in (False, "auto", 0)


def noted(address: str, setting: str) -> str:
    """How a note on an unchanged setting begins."""
    return f"VF {address}: {setting.replace('_', ' ')} stays "


def choose_mtu(order: Order, port: PlannedPort, mtu: int | None, pf: Link, site: Site) -> int | None:
    """Return the MTU of the port's network, and at most the PF's: longer packets do not get to the wire.

    Args:
        mtu: the MTU in the step's config, which counts where Neutron names none.
        pf: the VF's PF.
        site: gets a note if the PF has less.
    """
    wanted: int = port.settings.mtu
    if not wanted:
        return mtu
    if wanted > pf.mtu:
        site.notes.append(
            f'interface "{order.if_name}" has the MTU {pf.mtu} of PF "{pf.name}", not the {wanted} of its network in '
            "Neutron"
        )
    return min(wanted, pf.mtu)


def added(order: Order, port: PlannedPort) -> AddedAddressing:
    """The addresses and routes of a port, for the step's interface; a default route only if the step requests it.

    Raises:
        InvalidInputError: a text is not an address or route.
    """
    where = f"{order.called}, port {port.port_id}"
    return AddedAddressing(
        if_name=order.if_name,
        addresses=tuple(addressing.checked_address(text, where) for text in port.settings.addresses),
        routes=tuple(entry for entry in _routes(port, where) if order.default_route or not entry.is_default),
    )


def _routes(port: PlannedPort, where: str) -> Iterator[Route]:
    for route in port.settings.routes:
        params = RouteParams(destination=route.destination, gateway=_router(route.gateway))
        yield addressing.checked_route(params, where)


def _router(next_hop: str) -> str:
    """The router of one of Neutron's routes; by an unspecified next hop it means what is on the wire itself."""
    is_none = texts.fits(next_hop, "ip") and ipaddress.ip_address(next_hop).is_unspecified
    return "" if is_none else next_hop


def add_addresses(order: Order, port: PlannedPort, result: StepResult, site: Site) -> StepResult:
    """Give the interface the port's addresses and routes, if it is to have them; return the result with them."""
    wanted = added(order, port)
    if not port.assign_addresses:
        return with_addresses(port, wanted, result, None)
    source = f"port {port.port_id}"
    defaults = (entry for entry in _routes(port, source) if entry.is_default and not order.default_route)
    site.notes.extend(addressing.left_out(entry, source) for entry in defaults)
    pod = site.inside
    addressing.add(addressing.ahead(wanted, pod), link.get(pod.sock, order.if_name).index, pod)
    return with_addresses(port, wanted, result, len(result.interfaces) - 1)


def with_addresses(port: PlannedPort, wanted: AddedAddressing, result: StepResult, place: int | None) -> StepResult:
    """A result with a port's addresses, each with its subnet's gateway; with its routes where the interface has them.

    A gateway makes no route by itself: the pod's default route is its cluster's.
    """
    gateways = port.settings.gateways
    own = addressing.described(StepResult(), wanted.addresses, wanted.routes if place is not None else (), place)
    ips = tuple(msgspec.structs.replace(ip, gateway=_gateway(ip.address, gateways)) for ip in own.ips)
    dns = CNIDNS(nameservers=port.settings.dns) if port.settings.dns else result.dns
    return msgspec.structs.replace(result, ips=(*result.ips, *ips), routes=(*result.routes, *own.routes), dns=dns)


def _gateway(text: str, gateways: Sequence[str]) -> str:
    network = ipaddress.ip_interface(text).network
    return next((gateway for gateway in gateways if ipaddress.ip_address(gateway) in network), "")


def lost_routes(order: Order, port: PlannedPort, site: Site) -> tuple[str, ...]:
    """The routes of the port that the step's interface does not have, in words."""
    return addressing.lost_routes(added(order, port), site)
