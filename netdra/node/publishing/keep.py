"""What a pool must go on publishing because claims hold some of its devices: previous, held and wanted → wanted.

Called by `netdra.node.publishing.offering` for each pool that has held devices. Pure. The scheduler charges what is
allocated by what is published now (nothing of it is kept in the claim), so while a device is held

- it stays, with the capacity and the consumption that it was allocated with;
- a counter that it takes whole keeps its value, and one that it takes a part of is never lowered;
- whoever takes all of a counter goes on taking all of it, so that nothing that excluded each other meets.

The rest of the pool becomes what is wanted (decision D3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

import msgspec

from netdra.model import quantity
from netdra.model.resource import MAX_COUNTERS, Counter, CounterSet, Device, DeviceCounterConsumption

Amounts = dict[str, dict[str, Decimal]]
"""Counter set -> counter -> amount."""


class Pool(msgspec.Struct, frozen=True):
    """A pool's counter sets and devices, whatever slices they are in."""

    sets: tuple[CounterSet, ...] = ()
    devices: tuple[Device, ...] = ()


def keep(previous: Pool, held: Iterable[str], wanted: Pool) -> Pool:
    """The pool to publish.

    Args:
        previous: the pool as it is published.
        held: the names of devices that claims have; those that were never published are passed over.
        wanted: the pool as it would be if nothing were held.
    """
    before = {device.name: device for device in previous.devices}
    kept = {name: before[name] for name in sorted(held) if name in before}
    if not kept:
        return wanted
    had, asked = _totals(previous.sets), _totals(wanted.sets)
    totals = _merged(had, asked, [_draws(device) for device in kept.values()])
    present = {device.name for device in wanted.devices}
    devices = [
        _unaltered(kept[device.name], device)
        if device.name in kept
        else _raised(device, before.get(device.name), asked, totals)
        for device in wanted.devices
    ]
    devices += [device for name, device in kept.items() if name not in present]
    return Pool(_sets(totals), tuple(device for device in devices if device.name in kept or _fits(device, totals)))


def _unaltered(published: Device, wanted: Device) -> Device:
    """A held device: what it was allocated with stays, what is told of it (a shared one is allocated again) follows."""
    shared = published.allow_multiple_allocations
    return msgspec.structs.replace(
        published, attributes=wanted.attributes if shared else published.attributes, taints=wanted.taints
    )


def _merged(had: Amounts, asked: Amounts, draws: Sequence[Amounts]) -> Amounts:
    """The counters of both, with the values that those who draw from them need."""
    totals = {name: dict(counters) for name, counters in asked.items()}
    for drawn in draws:
        for name, counters in drawn.items():
            for counter, amount in counters.items():
                value = had.get(name, {}).get(counter, amount)
                known = totals.setdefault(name, {}).get(counter, value)
                totals[name][counter] = value if amount >= value else max(value, known)
    # A counter that is taken whole wins over one that is taken in part.
    for drawn in draws:
        for name, counters in drawn.items():
            for counter, amount in counters.items():
                value = had.get(name, {}).get(counter, amount)
                if amount >= value:
                    totals[name][counter] = value
    return {name: _room(counters, asked.get(name, {}), draws, name) for name, counters in totals.items()}


def _room(
    counters: dict[str, Decimal], asked: Mapping[str, Decimal], draws: Sequence[Amounts], name: str
) -> dict[str, Decimal]:
    """A set takes so many counters: those that are drawn from come first, then the wanted ones."""
    if len(counters) <= MAX_COUNTERS:
        return counters
    needed = [counter for counter in counters if any(counter in drawn.get(name, {}) for drawn in draws)]
    others = [counter for counter in asked if counter not in needed]
    return {counter: counters[counter] for counter in (*needed, *others)[:MAX_COUNTERS]}


def _raised(device: Device, before: Device | None, asked: Amounts, totals: Amounts) -> Device:
    """A device that nobody holds: what it takes follows the counters that are kept for those that somebody holds."""
    draws = _draws(device)
    earlier = _draws(before) if before is not None else {}
    for name, counters in totals.items():
        wanted = asked.get(name, {})
        taken = draws.get(name, {})
        takes_all = _takes_all(device, taken, wanted, asked)
        for counter, total in counters.items():
            value = wanted.get(counter)
            if value is None:
                amount = total if takes_all else earlier.get(name, {}).get(counter, Decimal(0))
            else:
                amount = taken.get(counter, Decimal(0))
                amount += max(Decimal(0), total - value) if amount and amount >= value else 0
            if amount:
                taken[counter] = amount
        if taken:
            draws[name] = taken
    return msgspec.structs.replace(device, consumes_counters=_consumption(device, draws))


def _takes_all(device: Device, taken: Mapping[str, Decimal], wanted: Mapping[str, Decimal], asked: Amounts) -> bool:
    """Whether a device leaves nothing of a set; one that nobody has to be kept from has no counters at all."""
    if not asked:
        return not device.allow_multiple_allocations
    return bool(wanted) and all(taken.get(counter, 0) >= value for counter, value in wanted.items())


def _consumption(device: Device, draws: Amounts) -> tuple[DeviceCounterConsumption, ...]:
    same = _draws(device)
    if same == draws:
        return device.consumes_counters
    return tuple(DeviceCounterConsumption(counter_set=one, counters=_texts(drawn)) for one, drawn in draws.items())


def _fits(device: Device, totals: Amounts) -> bool:
    """Whether all counters that a device takes from are there; one that is not would make the pool invalid."""
    return all(
        counter in totals.get(taken.counter_set, {}) for taken in device.consumes_counters for counter in taken.counters
    )


def _totals(sets: Iterable[CounterSet]) -> Amounts:
    return {one.name: _values(one.counters) for one in sets}


def _draws(device: Device) -> Amounts:
    return {taken.counter_set: _values(taken.counters) for taken in device.consumes_counters}


def _values(counters: Mapping[str, Counter]) -> dict[str, Decimal]:
    return {name: quantity.parse(counter.value) for name, counter in counters.items()}


def _sets(totals: Amounts) -> tuple[CounterSet, ...]:
    return tuple(CounterSet(name=name, counters=_texts(counters)) for name, counters in totals.items())


def _texts(amounts: Mapping[str, Decimal]) -> dict[str, Counter]:
    return {name: Counter(value=quantity.render(amount)) for name, amount in amounts.items()}
