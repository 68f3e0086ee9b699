"""The counters that keep the devices of one NIC apart, and what each device takes of them (decisions D2, D3, D4).

The scheduler charges a device's counters once for as long as it has any allocation, and charges nothing for further
shares (KEP-4815 with KEP-5075, from Kubernetes 1.36.2). So two devices exclude each other exactly if together they take
more of some counter than there is. Called by `netdra.exposure.assemble` once per NIC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec

from netdra.exposure.templates import Template
from netdra.model import names
from netdra.model.resource import MAX_COUNTER_CONSUMPTIONS, MAX_COUNTERS

MAX_SHARED_OF_NIC = MAX_COUNTER_CONSUMPTIONS * MAX_COUNTERS - 2
"""Each shared persona needs a counter: two sets, but for exclusion-slots and bandwidth."""
MAX_SHARED_OF_VF = MAX_COUNTERS - 1
"""A VF has one set of its own, because its other reference is to the PF's."""


class Persona(msgspec.Struct, frozen=True):
    """A device of an interface, under the name that it got."""

    name: str
    template: Template


class Uses(msgspec.Struct, frozen=True, kw_only=True):
    """A VF of a NIC: its name, its personas, and whether the host itself uses it."""

    name: str
    personas: tuple[Persona, ...]
    in_host_use: bool


class Charges(msgspec.Struct, frozen=True):
    """Counter sets by name, by device what it takes of which set, and by a VF's device its bandwidth in Mbit/s."""

    sets: dict[str, dict[str, int]]
    consumes: dict[str, dict[str, dict[str, int]]]
    bandwidth: dict[str, int] = {}


def charge(name: str, personas: Sequence[Persona], vfs: Sequence[Uses], *, num_vfs: int, link_speed: int) -> Charges:
    """The counters of a NIC and of its VFs; no set that nothing is taken from.

    Args:
        name: what its counter set is named after.
        personas: the devices that it is offered as.
        vfs: the VFs that are known.
        num_vfs: how many VFs there are, known or not.
        link_speed: in Mbit/s; 0 if it is not known.
    """
    taken = sum(vf.in_host_use for vf in vfs)
    slots = sum(1 if vf.in_host_use else _at_once(vf.personas) for vf in vfs) + max(0, num_vfs - len(vfs)) + 1
    totals = {}
    if num_vfs or _exclusives(personas) > 1:
        totals[names.EXCLUSION_SLOTS] = slots
    lenders = [each for each in personas if _lends(each)]
    if link_speed > 0 and (num_vfs or (lenders and len(personas) > 1)):
        totals[names.BANDWIDTH] = link_speed
    found = _interface(name, personas, totals, sets=MAX_COUNTER_CONSUMPTIONS)
    main = names.label(f"{name}-counters")
    if names.EXCLUSION_SLOTS in totals and taken:
        # What the host takes is gone from the value, while passthrough still asks for all: it cannot be had.
        found.sets[main] |= {names.EXCLUSION_SLOTS: slots - taken}
    for persona in lenders if names.BANDWIDTH in totals else ():
        # While it is lent to anybody, all that it could lend is gone from the link.
        found.consumes.setdefault(persona.name, {}).setdefault(main, {})[names.BANDWIDTH] = persona.template.lends
    fallback = next((each.template.bandwidth for each in personas if each.template.bandwidth), 0)
    fallback = fallback or _fair_share(lenders, num_vfs=num_vfs, link_speed=link_speed)
    for vf in vfs:
        apart = {names.EXCLUSION_SLOTS: 1} if _exclusives(vf.personas) > 1 else {}
        own = _interface(vf.name, vf.personas, apart, sets=1)
        found.sets.update(own.sets)
        for persona in vf.personas:
            amounts = {} if vf.in_host_use else {names.EXCLUSION_SLOTS: 1}
            share = _vf_share(persona, vf.personas, fallback=min(fallback, link_speed))
            found.bandwidth[persona.name] = share
            if share and names.BANDWIDTH in totals and not persona.template.overcommits:
                amounts |= {names.BANDWIDTH: share}
            found.consumes[persona.name] = ({main: amounts} if amounts else {}) | own.consumes.get(persona.name, {})
    return _without_idle(found)


def _lends(persona: Persona) -> bool:
    """Whether claims share a device's bandwidth, and what they have of it must be kept from others."""
    return persona.template.shared and persona.template.lends > 0 and not persona.template.overcommits


def _fair_share(lenders: Sequence[Persona], *, num_vfs: int, link_speed: int) -> int:
    """What is left for each VF of the link, if its shared devices are in use, too; all of it if they leave nothing."""
    groups: dict[str, int] = {}
    for each in lenders:
        group = each.template.group or f"of {each.name}"
        groups[group] = max(groups.get(group, 0), each.template.lends)
    left = link_speed - sum(groups.values())
    return (left if left > 0 else link_speed) // num_vfs if num_vfs else 0


def _vf_share(persona: Persona, personas: Sequence[Persona], *, fallback: int) -> int:
    """The bandwidth of a persona of a VF, in Mbit/s: what its policy says, or a part of the VF's share.

    Shared personas that may be in use at once divide the share, so that one VF never takes another's.
    """
    divided = fallback // _at_once(personas) if persona.template.shared else fallback
    return persona.template.lends or divided


def _interface(name: str, personas: Sequence[Persona], totals: Mapping[str, int], *, sets: int) -> Charges:
    """The counters that keep one interface's personas apart: those given, and a mirror of what each shared one has."""
    mirrors = _mirrors(personas, room=sets * MAX_COUNTERS - len(totals))
    counters = dict(totals)
    for mirror in mirrors.values():
        counters |= mirror
    parts = _split(name, counters)
    place = {counter: set_name for set_name, part in parts.items() for counter in part}
    consumes: dict[str, dict[str, dict[str, int]]] = {}
    for persona in personas:
        taken = counters
        if persona.template.shared:
            group = persona.template.group
            mates = [each for each in personas if each is persona or (group and each.template.group == group)]
            taken = {counter: value for mate in mates for counter, value in mirrors[mate.name].items()}
        for counter, value in taken.items():
            consumes.setdefault(persona.name, {}).setdefault(place[counter], {})[counter] = value
    return Charges(parts, consumes, {})


def _mirrors(personas: Sequence[Persona], *, room: int) -> dict[str, dict[str, int]]:
    """The counters that stand for each persona: for a shared one its capacities, or the first where room is short."""
    found: dict[str, dict[str, int]] = {persona.name: {} for persona in personas}
    if len(personas) < 2:
        return found
    shared = [persona for persona in personas if persona.template.shared]
    wanted = sum(len(persona.template.mirrored) for persona in shared)
    used: set[str] = set()
    often = Counter(capacity for persona in shared for capacity in persona.template.mirrored)
    for persona in shared:
        mirrored = persona.template.mirrored
        for capacity in sorted(mirrored)[: None if wanted <= room else 1]:
            counter = _mirror_name(persona.template.suffix if often[capacity] > 1 else "", capacity, used)
            used.add(counter)
            found[persona.name][counter] = mirrored[capacity]
    return found


def _mirror_name(suffix: str, capacity: str, used: set[str]) -> str:
    prefix = f"{suffix.strip('-')}-" if suffix.strip("-") else ""
    name = names.label(f"{prefix}{capacity}-capacity")
    # Suffixes that differ only by their dashes, or a capacity of another domain, may read the same.
    return name if name not in used else names.label(f"{suffix}/{capacity}-capacity")


def _split(name: str, counters: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Sets of no more counters than a set takes; the first one holds those that VFs take from."""
    rest = iter(counters.items())
    sets: dict[str, dict[str, int]] = {}
    while part := dict(islice(rest, MAX_COUNTERS)):
        sets[names.label(f"{name}-counters" if not sets else f"{name}-counters-{len(sets) + 1}")] = part
    return sets


def _at_once(personas: Sequence[Persona]) -> int:
    """How many personas of a VF can be in use at one time: one, or the shared ones that no group keeps apart."""
    groups = [persona.template.group for persona in personas if persona.template.shared]
    return max(1, groups.count("") + len(set(groups) - {""}))


def _exclusives(personas: Sequence[Persona]) -> int:
    return sum(not persona.template.shared for persona in personas)


def _without_idle(charges: Charges) -> Charges:
    drawn = {set_name for taken in charges.consumes.values() for set_name in taken}
    sets = {name: counters for name, counters in charges.sets.items() if name in drawn}
    return Charges(sets, charges.consumes, charges.bandwidth)
