"""Keeps a pool's published devices while claims hold some of them: previous, held and wanted → wanted.

Called by `netdra.node.publishing.offering` for each pool that has held devices. Pure. The scheduler charges allocations
by the present slices (the claim has none of their amounts), so while a device is held

- it stays, with the capacity that it was allocated with, and takes no less of any counter; capacity that providers
  registered of a shared device follows, but not below what its claims consume, and that of pooled VFs follows the VFs;
- no counter that it takes from is lowered;
- a device that takes all of a counter continues taking all of it, so that devices that exclude each other still do;
- it takes more where it should, as far as the other held devices leave room, so that it excludes new personas.

The rest of the pool becomes as wanted (decision D3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType

import msgspec

from netdra.model import names, quantity
from netdra.model.resource import (
    MAX_ATTRIBUTES_AND_CAPACITIES,
    MAX_COUNTER_CONSUMPTIONS,
    MAX_COUNTERS,
    CapacityRequestPolicy,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
)
from netdra.topology.devices import is_pooled

HELD = "held"
"""The counter set and counter by which a device that took from none excludes the devices offered in its place."""
_BANDWIDTH = names.qualified(names.BANDWIDTH)
Amounts = dict[str, dict[str, Decimal]]
"""Counter set -> counter -> amount."""


class PoolContent(msgspec.Struct, frozen=True):
    """A pool's counter sets and devices, of all its slices."""

    sets: tuple[CounterSet, ...] = ()
    devices: tuple[Device, ...] = ()


def retain(
    previous: PoolContent,
    held_names: Iterable[str],
    wanted: PoolContent,
    consumed: Mapping[str, Mapping[str, Decimal]] = MappingProxyType({}),
) -> PoolContent:
    """The pool to publish.

    Args:
        previous: the pool as it is published.
        held_names: the names of devices that claims have; those that were never published are skipped.
        wanted: the pool as it would be if no device were held.
        consumed: by device and by capacity's qualified name, what claims consume of it, as far as that is known.
    """
    before = {device.name: device for device in previous.devices}
    retained = {name: before[name] for name in sorted(held_names) if name in before}
    if not retained:
        return wanted
    present = {device.name: device for device in wanted.devices}
    for name, device in retained.items():
        if is_pooled(device):
            retained[name] = _consumed(device, present.get(name), consumed.get(name, {}).get(_BANDWIDTH, Decimal(0)))
    had, desired = _totals(previous.sets), _totals(wanted.sets)
    totals = _merged(had, desired, [_draws(device) for device in retained.values()])
    draws = _retained_draws(retained, present, had, desired, totals)
    _hold_idle(draws, totals, present, retained)
    needed = {(name, counter) for drawn in draws.values() for name, counters in drawn.items() for counter in counters}
    devices = [
        _retained(retained[device.name], device, draws[device.name], consumed.get(device.name, {}))
        if device.name in retained
        else _raised(device, before.get(device.name), desired, totals, needed)
        for device in wanted.devices
    ]
    devices += [_retained(device, None, draws[name]) for name, device in retained.items() if name not in present]
    ordered = {name: totals[name] for name in (*desired, *sorted(totals.keys() - desired.keys()))}
    return PoolContent(
        _sets(ordered), tuple(device for device in devices if device.name in retained or _fits(device, totals))
    )


def _hold_idle(
    draws: dict[str, Amounts], totals: Amounts, present: Mapping[str, Device], retained: Mapping[str, Device]
) -> None:
    """Have held devices that are not wanted any more, and take no counter, take one, beside devices for one claim."""
    idle = [name for name, drawn in draws.items() if not drawn and name not in present]
    others = (device for name, device in present.items() if name not in retained)
    if idle and not all(device.allow_multiple_allocations for device in others):
        totals[HELD] = {HELD: Decimal(len(idle))}
        draws |= {name: {HELD: {HELD: Decimal(1)}} for name in idle}


def _consumed(device: Device, wanted: Device | None, bandwidth: Decimal) -> Device:
    """A held device of pooled VFs that takes of its PF's link what it should, and no less than its claims consume.

    Of one that is not wanted any more, no claim gets more.
    """
    draws: Amounts = {}
    for counter_set, counters in _draws(device).items():
        should = _draws(wanted).get(counter_set, {}) if wanted is not None else {}
        taken = {
            name: max(should.get(name, Decimal(0)), bandwidth) if name == names.BANDWIDTH else amount
            for name, amount in counters.items()
        }
        draws[counter_set] = {name: amount for name, amount in taken.items() if amount}
    capacity = device.capacity
    if wanted is None:
        capacity = {
            name: DeviceCapacity(value=quantity.render(bandwidth)) if names.qualified(name) == _BANDWIDTH else amount
            for name, amount in capacity.items()
        }
    return msgspec.structs.replace(device, capacity=capacity, consumes_counters=_consumption(device, draws))


def _retained(
    published: Device, wanted: Device | None, draws: Amounts, consumed: Mapping[str, Decimal] = MappingProxyType({})
) -> Device:
    """A held device: its allocated facts stay; the facts of a shared device, which other claims may get, follow."""
    shared = wanted is not None and published.allow_multiple_allocations and wanted.allow_multiple_allocations
    attributes, capacity = (
        _followed_facts(published, wanted, consumed)
        if shared and wanted is not None
        else (_renamed(published.attributes), published.capacity)
    )
    return msgspec.structs.replace(
        published,
        attributes=attributes,
        capacity=capacity,
        taints=wanted.taints if wanted is not None else published.taints,
        consumes_counters=_consumption(published, draws),
    )


def _renamed(attributes: Mapping[str, DeviceAttribute]) -> Mapping[str, DeviceAttribute]:
    """Attributes under the names by which new devices have them: former versions did not leave out netdra's domain."""
    return {names.own_short(name): attribute for name, attribute in attributes.items()}


def _followed_facts(
    published: Device, wanted: Device, consumed: Mapping[str, Decimal]
) -> tuple[Mapping[str, DeviceAttribute], Mapping[str, DeviceCapacity]]:
    """The attributes and capacity of a shared device that claims have.

    Attributes follow, and so does capacity that providers registered. A capacity that they lower or remove below what
    claims consume is what these consume: no claim gets more of it, and who asks for none of it still gets the device. A
    new fact waits until there is room for it.
    """
    attributes = dict(wanted.attributes)
    capacity = {name: amount for name, amount in published.capacity.items() if not _is_providers(name)}
    if is_pooled(published) and is_pooled(wanted):
        # Its parts are made with regard to the shares of claims; the bandwidth is unknown while the PF has no carrier.
        capacity |= {name: amount for name, amount in wanted.capacity.items() if not _is_providers(name)}
    for name in filter(_is_providers, (*published.capacity, *wanted.capacity)):
        amount = _at_least(consumed.get(name, Decimal(0)), wanted.capacity.get(name))
        if amount is not None:
            capacity[name] = amount
    new_capacity = [name for name in capacity if name not in published.capacity]
    new_attributes = [name for name in attributes if _is_providers(name) and name not in published.attributes]
    while len(attributes) + len(capacity) > MAX_ATTRIBUTES_AND_CAPACITIES and (new_capacity or new_attributes):
        if new_capacity:
            del capacity[new_capacity.pop()]
        else:
            del attributes[new_attributes.pop()]
    return attributes, capacity


def _at_least(consumed: Decimal, wanted: DeviceCapacity | None) -> DeviceCapacity | None:
    """A capacity of a provider, at least as high as the consumption of claims; None if it is gone and not consumed."""
    if wanted is not None and quantity.parse(wanted.value) >= consumed:
        return wanted
    if not consumed:
        return None
    policy = wanted.request_policy if wanted is not None else CapacityRequestPolicy(default="0")
    return DeviceCapacity(value=quantity.render(consumed), request_policy=policy)


def _is_providers(name: str) -> bool:
    return "/" in name and not name.startswith(f"{names.DRIVER}/")


def _merged(had: Amounts, desired: Amounts, drawn: Sequence[Amounts]) -> Amounts:
    """The wanted counters, and the counters that held devices draw from, which are not lowered."""
    totals = {name: dict(counters) for name, counters in desired.items()}
    for draws in drawn:
        for name, counters in draws.items():
            for counter, amount in counters.items():
                value = had.get(name, {}).get(counter, amount)
                total = totals.setdefault(name, {}).get(counter, value)
                totals[name][counter] = max(value, total)
    return {name: _room(name, counters, desired.get(name, {}), drawn) for name, counters in totals.items()}


def _room(
    name: str, counters: dict[str, Decimal], desired: Mapping[str, Decimal], drawn: Sequence[Amounts]
) -> dict[str, Decimal]:
    """As many counters as fit into a set: those that held devices draw from come first, then the wanted ones."""
    if len(counters) <= MAX_COUNTERS:
        return counters
    needed = [counter for counter in counters if any(counter in draws.get(name, {}) for draws in drawn)]
    others = [counter for counter in desired if counter not in needed]
    return {counter: counters[counter] for counter in (*needed, *others)[:MAX_COUNTERS]}


def _retained_draws(
    retained: Mapping[str, Device], present: Mapping[str, Device], had: Amounts, desired: Amounts, totals: Amounts
) -> dict[str, Amounts]:
    """Each held device's amounts: its former ones, whole counters where it had them, and more if there is room."""
    drawn = {name: _followed(_draws(device), had, totals) for name, device in retained.items()}
    left = {name: dict(counters) for name, counters in totals.items()}
    for draws in drawn.values():
        _subtract(left, draws)
    for name in [name for name in drawn if name in present]:
        should = _followed(_draws(present[name]), desired, totals)
        more = _more(should, drawn[name])
        sets = {*drawn[name], *more}
        if _is_left(left, more) and len(sets) <= MAX_COUNTER_CONSUMPTIONS:
            _subtract(left, more)
            drawn[name] = {
                counter_set: {**drawn[name].get(counter_set, {}), **more.get(counter_set, {})}
                for counter_set in {**drawn[name], **more}
            }
    return drawn


def _followed(draws: Amounts, values: Amounts, totals: Amounts) -> Amounts:
    """The amounts after counters have changed: a device that takes all of a counter, or more, continues doing so."""
    followed: Amounts = {}
    for name, counters in draws.items():
        for counter, amount in counters.items():
            value = values.get(name, {}).get(counter, amount)
            total = totals.get(name, {}).get(counter, value)
            raised = max(Decimal(0), total - value) if amount >= value else Decimal(0)
            followed.setdefault(name, {})[counter] = amount + raised
    return followed


def _more(should: Amounts, does: Amounts) -> Amounts:
    """The counters that should be taken from and are not."""
    missing = {
        name: {counter: amount for counter, amount in counters.items() if counter not in does.get(name, {})}
        for name, counters in should.items()
    }
    return {name: counters for name, counters in missing.items() if counters}


def _is_left(left: Amounts, draws: Amounts) -> bool:
    return all(
        amount <= left.get(name, {}).get(counter, -1)
        for name, counters in draws.items()
        for counter, amount in counters.items()
    )


def _subtract(left: Amounts, draws: Amounts) -> None:
    for name, counters in draws.items():
        for counter, amount in counters.items():
            left[name][counter] -= amount


def _raised(
    device: Device, before: Device | None, desired: Amounts, totals: Amounts, needed: set[tuple[str, str]]
) -> Device:
    """A device that no claim holds; its amounts follow the counters that held devices draw from."""
    draws = _followed(_draws(device), desired, totals)
    earlier = _draws(before) if before is not None else {}
    for name, counters in totals.items():
        wanted = desired.get(name, {})
        if name == HELD:
            draws_all = not device.allow_multiple_allocations and len(draws) < MAX_COUNTER_CONSUMPTIONS
        else:
            draws_all = _draws_all(device, draws.get(name, {}), wanted, desired)
        for counter, total in counters.items():
            idle = (name, counter) in needed and counter not in draws.get(name, {})
            if counter not in wanted or idle:
                amount = total if draws_all else earlier.get(name, {}).get(counter, Decimal(0))
                if amount:
                    draws.setdefault(name, {})[counter] = amount
    return msgspec.structs.replace(device, consumes_counters=_consumption(device, draws))


def _draws_all(device: Device, drawn: Mapping[str, Decimal], wanted: Mapping[str, Decimal], desired: Amounts) -> bool:
    """Whether a device leaves nothing of a set; a device that excludes no other has no counters at all.

    A shared device never does: if it takes all counters of a set, these are its own mirrors, and no other device's.
    """
    if device.allow_multiple_allocations or not desired:
        return not device.allow_multiple_allocations
    return bool(wanted) and all(drawn.get(counter, 0) >= value for counter, value in wanted.items())


def _consumption(device: Device, draws: Amounts) -> tuple[DeviceCounterConsumption, ...]:
    own = _draws(device)
    if own == draws:
        return device.consumes_counters
    # Always in one order, or the same amounts would be written again.
    ordered = (*(name for name in own if name in draws), *sorted(draws.keys() - own.keys()))
    return tuple(DeviceCounterConsumption(counter_set=name, counters=_texts(draws[name])) for name in ordered)


def _fits(device: Device, totals: Amounts) -> bool:
    """Whether all counters that a device takes from are there; a missing one would make the pool invalid."""
    return all(
        counter in totals.get(consumption.counter_set, {})
        for consumption in device.consumes_counters
        for counter in consumption.counters
    )


def _totals(sets: Iterable[CounterSet]) -> Amounts:
    return {counter_set.name: _values(counter_set.counters) for counter_set in sets}


def _draws(device: Device) -> Amounts:
    return {consumption.counter_set: _values(consumption.counters) for consumption in device.consumes_counters}


def _values(counters: Mapping[str, Counter]) -> dict[str, Decimal]:
    return {name: quantity.parse(counter.value) for name, counter in counters.items()}


def _sets(totals: Amounts) -> tuple[CounterSet, ...]:
    return tuple(CounterSet(name=name, counters=_texts(counters)) for name, counters in totals.items())


def _texts(amounts: Mapping[str, Decimal]) -> dict[str, Counter]:
    return {name: Counter(value=quantity.render(amount)) for name, amount in amounts.items()}
