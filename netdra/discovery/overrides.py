"""Facts that a recorded tree does not have and a user gives: the interfaces that the node uses, also for its traffic.

Routes and addresses are not in sysfs, so in a recorded tree both uses are unknown for every interface, and unknown
protects. Called by the commands that read inventories; on a live machine the kernel is asked. The physical network
that a NIC is wired to can only be given by a user, on a live machine too.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from netdra.discovery.assemble import closure
from netdra.model.errors import InvalidInputError
from netdra.model.inventory import Interface, Inventory, wire_all

NONE = "none"
STATED = "stated"
"""The host's use of an interface that a user has named by an option."""
_FIELD, _USE = "host_uplink", "host_use"


def with_uplinks(inventory: Inventory, uplinks: Sequence[str]) -> Inventory:
    """The inventory with the node's uplinks as they are given, where they were unknown.

    Args:
        inventory: as it was recorded.
        uplinks: the interfaces that the node's default routes leave through, or `none` alone. The interfaces below and
            above them are uplinks too.

    Raises:
        InvalidInputError: no such interface exists, or the inventory knows all of them itself.
    """
    what = "the interfaces that carry the node's traffic"
    by_name = _checked(inventory, uplinks, field=_FIELD, option="--uplink", what=what, missing="routes are")
    carrying = _carrying([name for name in uplinks if name != NONE], by_name)
    interfaces = tuple(_with_uplink(interface, interface.if_name in carrying) for interface in inventory.interfaces)
    return replace(inventory, interfaces=interfaces, unreadable=_without(inventory.unreadable, "hostUplink"))


def with_host_use(inventory: Inventory, used: Sequence[str]) -> Inventory:
    """The inventory with the host's use of interfaces as it is given, where it was unknown.

    Uses that the tree itself shows stay: a port of a bridge is in use, named or not.

    Args:
        inventory: as it was recorded.
        used: the interfaces that the host has addresses or routes on, or uses otherwise, or `none` alone.

    Raises:
        InvalidInputError: no such interface exists, or the inventory knows all of them itself.
    """
    what = "the interfaces that the host uses"
    _checked(inventory, used, field=_USE, option="--host-use", what=what, missing="addresses and routes are")
    interfaces = tuple(
        replace(
            interface,
            host_use=(*interface.host_use, STATED)
            if interface.if_name and interface.if_name in used
            else interface.host_use,
            unreadable=tuple(field for field in interface.unreadable if field != _USE),
        )
        for interface in inventory.interfaces
    )
    return replace(inventory, interfaces=interfaces, unreadable=_without(inventory.unreadable, "hostUse"))


def with_physnets(inventory: Inventory, physnets: Mapping[str, tuple[str, ...]]) -> Inventory:
    """The inventory with the physical networks that NICs are wired to, in the place of those that it had.

    Args:
        inventory: as it was recorded or read.
        physnets: by physical network, NICs by name or PCI address.
    """
    node = replace(inventory.node, physnets=physnets)
    wired = node.wired
    return replace(inventory, node=node, interfaces=wire_all(wired, inventory.interfaces))


def _checked(
    inventory: Inventory, named: Sequence[str], *, field: str, option: str, what: str, missing: str
) -> dict[str, Interface]:
    """The interfaces by name, if the given names can be meant."""
    argument = f"{option} {', '.join(named)}"
    if not any(field in interface.unreadable for interface in inventory.interfaces):
        hint = f"omit {option}; it is for recorded trees in which {missing} missing"
        raise InvalidInputError(f"{argument}: the inventory itself contains {what}", hint=hint, code="ND2283")
    if NONE in named and len(set(named)) > 1:
        hint = f"use either {('uplinks' if field == _FIELD else 'interfaces')} or {NONE}"
        raise InvalidInputError(f'{argument}: "none" cannot be combined with names', hint=hint, code="ND2284")
    by_name = {interface.if_name: interface for interface in inventory.interfaces if interface.if_name}
    for name in named:
        if name not in by_name and name != NONE:
            close = difflib.get_close_matches(name, by_name, n=3)
            hint = f"did you mean {' or '.join(close)}?" if close else f'use an interface of the node, or "{NONE}"'
            raise InvalidInputError(
                f'{option} {name}: node "{inventory.node.name}" does not have this interface', hint=hint, code="ND2285"
            )
    return by_name


def _without(unreadable: Mapping[str, int], fact: str) -> dict[str, int]:
    return {what: count for what, count in unreadable.items() if not what.startswith(f"{fact}:")}


def _with_uplink(interface: Interface, carries: bool) -> Interface:
    if _FIELD not in interface.unreadable:
        return interface
    unreadable = tuple(field for field in interface.unreadable if field != _FIELD)
    return replace(interface, host_uplink=carries, unreadable=unreadable)


def _carrying(uplinks: Iterable[str], by_name: Mapping[str, Interface]) -> frozenset[str]:
    """The uplinks with the interfaces below and above them."""
    lower = {name: entry.lower_devices for name, entry in by_name.items()}
    upper = {name: (*entry.upper_devices, entry.master) for name, entry in by_name.items()}
    every = closure(uplinks, lambda name: lower.get(name, ())) | closure(uplinks, lambda name: upper.get(name, ()))
    return frozenset(every & by_name.keys())
