"""The counters by which devices of one NIC exclude each other, and each device's consumption (decisions D2, D3, D4).

The scheduler charges a device's counters once for as long as it has any allocation, and charges nothing for further
shares (KEP-4815 with KEP-5075, from Kubernetes 1.36.2). So two devices exclude each other exactly if together they take
more of some counter than there is. Called by `netdra.exposure.assemble` once per NIC.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice

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


class NicMember(msgspec.Struct, frozen=True, kw_only=True):
    """An interface of a NIC: a VF, another port of its function, or an interface on top of one of these.

    Attributes:
        name: the name from which its counter set is named.
        personas: the devices that it is offered as.
        is_vf: whether it is one of the VFs.
        on: the places of the members that it stands on, however far below.
        on_root: whether it stands on the NIC itself. A VF does; of another port see `shares_function`.
        shares_function: it is another port of the NIC's function, whose VFs are its own, too.
        protected: the devices below it must not be allocated: it is a VF that the host uses, or a policy excludes it.
    """

    name: str
    personas: tuple[Persona, ...]
    is_vf: bool = False
    on: frozenset[int] = frozenset()
    on_root: bool = True
    shares_function: bool = False
    protected: bool = False


class Charges(msgspec.Struct, frozen=True):
    """The counters of a NIC, and how much of each its devices consume.

    Attributes:
        sets: counters with their values, by the name of their set.
        consumes: how much of each counter a device takes, by device and set.
        bandwidth: in Mbit/s, by device of a VF.
    """

    sets: dict[str, dict[str, int]]
    consumes: dict[str, dict[str, dict[str, int]]]
    bandwidth: dict[str, int] = {}


def charge(
    name: str, personas: Sequence[Persona], members: Sequence[NicMember], *, num_vfs: int, link_speed: int
) -> Charges:
    """The counters of a NIC and of all that is with it, without sets that no device takes from.

    A device that is the whole NIC takes all of its exclusion-slots, a device on it takes one (decisions D3, D24).

    Args:
        name: the name from which its counter set is named.
        personas: the devices that the NIC itself is offered as.
        members: the other interfaces of its pool.
        num_vfs: how many VFs there are, known or not.
        link_speed: in Mbit/s; 0 if it is not known.
    """
    slots = _slots(personas, members, num_vfs)
    protected = sum(member.protected for member in members if member.on_root)
    totals = {names.EXCLUSION_SLOTS: slots} if slots else {}
    lenders = [persona for persona in personas if persona.template.shared and lends(persona)]
    stacked = [*filter(lends, chain.from_iterable(member.personas for member in members if _is_on_link(member)))]
    is_shared = bool(lenders or stacked) and len(personas) + sum(len(member.personas) for member in members) > 1
    if link_speed > 0 and (num_vfs or is_shared):
        totals[names.BANDWIDTH] = link_speed
    charges = _interface(name, personas, totals, sets=MAX_COUNTER_CONSUMPTIONS)
    main = names.label(f"{name}-counters")
    if names.EXCLUSION_SLOTS in totals and protected:
        # Protected slots are missing in the value, while the whole NIC still takes all of them: it cannot be allocated.
        charges.sets[main] |= {names.EXCLUSION_SLOTS: slots - protected}
    if names.BANDWIDTH in totals:
        _lend(charges, lenders, main)
    others = [persona for persona in (*lenders, *stacked) if not persona.template.lanes]
    fallback = _fair_share(others, num_vfs=num_vfs, link_speed=link_speed)
    _charge_members(charges, members, totals, main, fallback=min(fallback, link_speed), link_speed=link_speed)
    return _without_idle(charges)


def _lend(charges: Charges, lenders: Iterable[Persona], main: str) -> None:
    """While any claim has a share of a device, all that it could lend is gone from the link."""
    for persona in lenders:
        charges.consumes.setdefault(persona.name, {}).setdefault(main, {})[names.BANDWIDTH] = persona.template.lends


def _slots(personas: Sequence[Persona], members: Sequence[NicMember], num_vfs: int) -> int:
    """How many exclusion-slots a NIC has; 0 if its devices do not exclude each other."""
    unknown = max(0, num_vfs - sum(member.is_vf for member in members))
    slots = sum(_slots_of(member) for member in members if member.on_root) + unknown + 1
    wholes = _exclusives(personas) + sum(_exclusives(member.personas) for member in members if member.shares_function)
    return slots if num_vfs or wholes > 1 or (wholes and slots > 1) else 0


def _charge_members(
    charges: Charges,
    members: Sequence[NicMember],
    totals: Mapping[str, int],
    main: str,
    *,
    fallback: int,
    link_speed: int,
) -> None:
    """Add the counters of the other interfaces, and their devices' consumption of the NIC's own set, `main`."""
    for branch in branches(members):
        parts = [members[place] for place in branch]
        own = _branch(parts, _above(parts, branch) if len(parts) > 1 else ())
        charges.sets.update(own.sets)
        for member in parts:
            for persona in member.personas:
                share = _share(member, persona, fallback=fallback, link_speed=link_speed)
                if member.is_vf:
                    charges.bandwidth[persona.name] = share
                amounts = _of_root(member, persona, totals, share)
                from_main = {main: amounts} if amounts else {}
                charges.consumes[persona.name] = from_main | own.consumes.get(persona.name, {})


def branches(members: Sequence[NicMember]) -> list[list[int]]:
    """The members, grouped by the interfaces below them other than the NIC itself: for example a VF with its VLANs."""
    if not any(member.on for member in members):
        return [[place] for place in range(len(members))]
    head = list(range(len(members)))

    def top(place: int) -> int:
        while head[place] != place:
            place = head[place]
        return place

    for place, member in enumerate(members):
        for below in member.on:
            first, second = sorted((top(place), top(below)))
            head[second] = first
    branch_of: dict[int, list[int]] = {}
    for place in range(len(members)):
        branch_of.setdefault(top(place), []).append(place)
    return list(branch_of.values())


def fits(members: Sequence[NicMember], branch: Sequence[int]) -> bool:
    """Whether the counters of a branch fit into one set: its devices can take from no second one."""
    counted = _branch_counters(members, _above(members, branch)) if len(members) > 1 else ()
    return sum(len(counters) for _, counters in counted) <= MAX_COUNTERS


def _slots_of(member: NicMember) -> int:
    """How many exclusion-slots the NIC has for a member: several of its personas may be in use at once."""
    if member.shares_function:
        return 0
    if member.is_vf or member.protected:
        return 1 if member.protected else at_once(member.personas)
    return at_once(member.personas) if member.personas else 0


def _of_root(member: NicMember, persona: Persona, totals: Mapping[str, int], share: int) -> dict[str, int]:
    """A device's consumption of the NIC's own counters, with its share of the link unless its policy overcommits."""
    lent = share and names.BANDWIDTH in totals and not persona.template.overcommits
    bandwidth = {names.BANDWIDTH: share} if lent else {}
    slots = totals.get(names.EXCLUSION_SLOTS)
    if slots is None or not member.on_root:
        return bandwidth
    if member.shares_function:
        return bandwidth if persona.template.shared else {names.EXCLUSION_SLOTS: slots, **bandwidth}
    return bandwidth if member.protected else {names.EXCLUSION_SLOTS: 1, **bandwidth}


def _above(members: Sequence[NicMember], branch: Sequence[int]) -> list[list[int]]:
    """For each member of a branch, the members that stand on it, by their places in the branch."""
    here = {at: place for place, at in enumerate(branch)}
    levels: list[list[int]] = [[] for _ in branch]
    for place, member in enumerate(members):
        for below in member.on:
            levels[here[below]].append(place)
    return levels


def _branch(members: Sequence[NicMember], above: Sequence[Sequence[int]]) -> Charges:
    """The counters of a branch: one set for all its members, or the set of a member that is alone."""
    if len(members) == 1:
        (alone,) = members
        apart = {names.EXCLUSION_SLOTS: 1} if _exclusives(alone.personas) > 1 else {}
        return _interface(alone.name, alone.personas, apart, sets=1)
    set_name = names.label(f"{members[0].name}-counters")
    counted = _branch_counters(members, above)
    totals: dict[str, int] = {}
    consumes: dict[str, dict[str, dict[str, int]]] = {}
    for member, (mirrors, counters) in zip(members, counted, strict=True):
        totals |= counters
        for persona in member.personas:
            consumed = _own_part(persona, member.personas, mirrors, counters)
            if consumed:
                consumes.setdefault(persona.name, {}).setdefault(set_name, {}).update(consumed)
    for member, stands, (_, counters) in zip(members, above, counted, strict=True):
        slots = names.label(f"{member.name}-{names.EXCLUSION_SLOTS}")
        if slots not in counters:
            continue
        totals[slots] -= sum(members[place].protected for place in stands)
        for upper in (members[place] for place in stands):
            for persona in upper.personas if not upper.protected else ():
                consumes.setdefault(persona.name, {}).setdefault(set_name, {})[slots] = 1
    return Charges({set_name: totals} if totals else {}, consumes)


def _branch_counters(
    members: Sequence[NicMember], above: Sequence[Sequence[int]]
) -> list[tuple[dict[str, dict[str, int]], dict[str, int]]]:
    """For each member its mirrors by persona, and its counters: the mirrors and its slots, under names of its own."""
    made = []
    for member, stands in zip(members, above, strict=True):
        mirrors = {
            persona: {names.label(f"{member.name}-{counter}"): value for counter, value in counters.items()}
            for persona, counters in _mirrors(member.personas, room=MAX_COUNTERS).items()
        }
        counters = {counter: value for mirror in mirrors.values() for counter, value in mirror.items()}
        used = sum(_slots_of(members[place]) for place in stands)
        wholes = _exclusives(member.personas)
        if wholes > 1 or (wholes and used):
            counters = {names.label(f"{member.name}-{names.EXCLUSION_SLOTS}"): used + 1} | counters
        made.append((mirrors, counters))
    return made


def _is_on_link(member: NicMember) -> bool:
    """Whether a member's bandwidth is of the NIC's own link: that of a VLAN on the NIC is, of a VLAN on a VF is not."""
    return member.on_root and not (member.is_vf or member.on or member.shares_function)


def lends(persona: Persona) -> bool:
    """Whether a device has bandwidth by its policy that no other device may have while it is in use."""
    return persona.template.lends > 0 and not persona.template.overcommits


def _fair_share(lenders: Sequence[Persona], *, num_vfs: int, link_speed: int) -> int:
    """Each VF's part of the bandwidth that the lenders leave, in Mbit/s."""
    return left_of_link(lenders, link_speed) // num_vfs if num_vfs else 0


def left_of_link(lenders: Sequence[Persona], link_speed: int) -> int:
    """The bandwidth of a link that the lenders leave, in Mbit/s; the whole link if they leave nothing."""
    groups: dict[str, int] = {}
    for lender in lenders:
        group = lender.template.group or f"of {lender.name}"
        groups[group] = max(groups.get(group, 0), lender.template.lends)
    left = link_speed - sum(groups.values())
    return left if left > 0 else link_speed


def _share(member: NicMember, persona: Persona, *, fallback: int, link_speed: int) -> int:
    """A device's bandwidth on its NIC's link, in Mbit/s: as its policy sets it, or for a VF a part of the VF's share.

    Shared personas that may be in use at once divide that share, so that no VF takes another VF's bandwidth.
    """
    if member.is_vf:
        divided = fallback // at_once(member.personas) if persona.template.shared else fallback
        return persona.template.lends or divided
    return min(persona.template.lends, link_speed) if _is_on_link(member) else 0


def _interface(name: str, personas: Sequence[Persona], totals: Mapping[str, int], *, sets: int) -> Charges:
    """The counters that keep one interface's personas apart: `totals`, and the mirrors of the shared personas."""
    mirrors = _mirrors(personas, room=sets * MAX_COUNTERS - len(totals))
    counters = dict(totals)
    for mirror in mirrors.values():
        counters |= mirror
    parts = _split(name, counters)
    place = {counter: set_name for set_name, part in parts.items() for counter in part}
    consumes: dict[str, dict[str, dict[str, int]]] = {}
    for persona in personas:
        for counter, value in _own_part(persona, personas, mirrors, counters).items():
            consumes.setdefault(persona.name, {}).setdefault(place[counter], {})[counter] = value
    return Charges(parts, consumes, {})


def _own_part(
    persona: Persona,
    personas: Sequence[Persona],
    mirrors: Mapping[str, Mapping[str, int]],
    counters: Mapping[str, int],
) -> Mapping[str, int]:
    """A device's consumption of its interface's counters: all of them, or the mirrors of its group."""
    if not persona.template.shared:
        return counters
    group = persona.template.group
    mates = [mate for mate in personas if mate is persona or (group and mate.template.group == group)]
    return {counter: value for mate in mates for counter, value in mirrors[mate.name].items()}


def _mirrors(personas: Sequence[Persona], *, room: int) -> dict[str, dict[str, int]]:
    """The counters that stand for each persona: a shared persona's capacities, or the first where room is short."""
    mirrors: dict[str, dict[str, int]] = {persona.name: {} for persona in personas}
    if len(personas) < 2:
        return mirrors
    shared = [persona for persona in personas if persona.template.shared]
    wanted = sum(len(persona.template.mirrored) for persona in shared)
    used: set[str] = set()
    often = Counter(capacity for persona in shared for capacity in persona.template.mirrored)
    for persona in shared:
        mirrored = persona.template.mirrored
        for capacity in sorted(mirrored)[: None if wanted <= room else 1]:
            counter = _mirror_name(persona.template.suffix if often[capacity] > 1 else "", capacity, used)
            used.add(counter)
            mirrors[persona.name][counter] = mirrored[capacity]
    return mirrors


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


def at_once(personas: Sequence[Persona]) -> int:
    """How many personas of an interface can be in use at once: one, or the shared ones that no group keeps apart."""
    groups = [persona.template.group for persona in personas if persona.template.shared]
    return max(1, groups.count("") + len(set(groups) - {""}))


def _exclusives(personas: Sequence[Persona]) -> int:
    return sum(not persona.template.shared for persona in personas)


def _without_idle(charges: Charges) -> Charges:
    drawn = {set_name for consumed in charges.consumes.values() for set_name in consumed}
    sets = {name: counters for name, counters in charges.sets.items() if name in drawn}
    return Charges(sets, charges.consumes, charges.bandwidth)
