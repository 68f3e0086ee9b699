"""What a recorded tree cannot say, and somebody knows: which interfaces carry the node's own traffic.

Routes are not in sysfs, so of a recorded tree it is unknown of every interface, and unknown protects. Called by the
commands that read inventories; on a live machine the kernel is asked.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from netdra.model.errors import InvalidInputError
from netdra.model.inventory import Interface, Inventory

NONE = "none"
_FIELD = "host_uplink"
_COUNTED = "hostUplink:"


def with_uplinks(inventory: Inventory, uplinks: Sequence[str]) -> Inventory:
    """The inventory with what is told of the node's uplinks in the place of what is unknown.

    Args:
        inventory: as it was recorded.
        uplinks: the interfaces that the node's default routes leave through, or `none` alone. What they stand on, and
            what stands on them, is an uplink too.

    Raises:
        InvalidInputError: there is no such interface, or the inventory knows of all of them itself.
    """
    given = f"--uplink {', '.join(uplinks)}"
    if not any(_FIELD in each.unreadable for each in inventory.interfaces):
        what = f"{given}: the inventory itself says which interfaces carry the node's own traffic"
        raise InvalidInputError(what, hint="leave --uplink out; it is for recorded trees, in which routes are missing")
    if NONE in uplinks and len(set(uplinks)) > 1:
        raise InvalidInputError(f"{given}: none, and some", hint=f"give the uplinks alone, or {NONE} alone")
    known = {each.if_name: each for each in inventory.interfaces if each.if_name}
    for name in uplinks:
        if name not in known and name != NONE:
            close = difflib.get_close_matches(name, known, n=3)
            hint = f"did you mean {' or '.join(close)}?" if close else f'name an interface of the node, or "{NONE}"'
            raise InvalidInputError(f'--uplink {name}: node "{inventory.node.name}" has no such interface', hint=hint)
    carrying = _carrying([name for name in uplinks if name != NONE], known)
    told = tuple(_told(each, each.if_name in carrying) for each in inventory.interfaces)
    counts = {what: count for what, count in inventory.unreadable.items() if not what.startswith(_COUNTED)}
    return replace(inventory, interfaces=told, unreadable=counts)


def _told(interface: Interface, carries: bool) -> Interface:
    if _FIELD not in interface.unreadable:
        return interface
    unreadable = tuple(field for field in interface.unreadable if field != _FIELD)
    return replace(interface, host_uplink=carries, unreadable=unreadable)


def _carrying(uplinks: Iterable[str], known: Mapping[str, Interface]) -> frozenset[str]:
    """The uplinks with all that they stand on and all that stands on them."""
    below = _closure(uplinks, {name: each.lower_devices for name, each in known.items()})
    above = _closure(uplinks, {name: (*each.upper_devices, each.master) for name, each in known.items()})
    return below | above


def _closure(start: Iterable[str], step: Mapping[str, Sequence[str]]) -> frozenset[str]:
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name in step and name not in seen:
            seen.add(name)
            waiting += step[name]
    return frozenset(seen)
