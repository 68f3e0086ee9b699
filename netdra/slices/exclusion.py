"""Whether a device can be used beside the node's devices in use: the scheduler's arithmetic, done once more.

Called at Prepare. Schedulers before 1.36.2 forget what shared devices charge, counters are gone on servers that drop
them (decision D1), and a device's counters may have changed since it was allocated. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

import msgspec

from netdra.model import names, quantity
from netdra.model.errors import InvalidInputError
from netdra.model.resource import Device, QuantityText, ResourceSlice, newest
from netdra.slices.capacity import Consumption, parse, shortage

DeviceKey = tuple[str, str]
"""A device's pool and name."""

_Counter = tuple[str, str]


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """A device in use.

    Attributes:
        key: pool and name.
        holder: who has it, for messages.
        share_id: which share of it, "" for an exclusive device.
        consumed: how much of each of its capacities.
    """

    key: DeviceKey
    holder: str
    share_id: str = ""
    consumed: Mapping[str, QuantityText] = {}


def conflict(slices: Sequence[ResourceSlice], wanted: Holding, holdings: Iterable[Holding]) -> str:
    """Why a device cannot be used beside the devices in use, in words; "" if it can.

    Args:
        slices: what the node publishes: the device is among it, or is not to be used.
        wanted: the device, and its claim's part of it.
        holdings: the devices of others; devices that are no longer published draw no counters.
    """
    pool = _Pool.of(slices, wanted.key[0])
    device = pool.devices.get(wanted.key[1])
    if device is None:
        return "it is no longer published"
    others = [entry for entry in holdings if entry.key[0] == wanted.key[0]]
    same = [other for other in others if other.key == wanted.key]
    try:
        return _sharing(device, wanted, same) or _capacity(device, wanted, same) or _counters(pool, device, others)
    except InvalidInputError as problem:
        return problem.what


class _Pool(msgspec.Struct, frozen=True):
    """One pool's newest generation."""

    devices: Mapping[str, Device]
    counters: Mapping[_Counter, Decimal]

    @classmethod
    def of(cls, slices: Sequence[ResourceSlice], name: str) -> _Pool:
        pools = newest(one for one in slices if one.spec.driver == names.DRIVER and one.spec.pool.name == name)
        current = [one.spec for one in pools.get(name, ())]
        return cls(
            devices={device.name: device for spec in current for device in spec.devices},
            counters={
                (counters.name, counter): quantity.parse(amount.value)
                for spec in current
                for counters in spec.shared_counters
                for counter, amount in counters.counters.items()
            },
        )


def _sharing(device: Device, wanted: Holding, same: Sequence[Holding]) -> str:
    if device.allow_multiple_allocations != bool(wanted.share_id):
        return (
            "the device is shared now, but the claim was allocated exclusively"
            if not wanted.share_id
            else "the device is exclusive now, but the claim was allocated a share"
        )
    if same and not device.allow_multiple_allocations:
        return f"{same[0].holder} uses it"
    return ""


def _capacity(device: Device, wanted: Holding, same: Sequence[Holding]) -> str:
    """The capacity of a shared device that is short, or was not consumed as its policy states (decision D5)."""
    if not device.allow_multiple_allocations:
        return ""
    capacities = {name: parse(capacity) for name, capacity in device.capacity.items()}
    consumed = {names.qualified(name): amount for name, amount in wanted.consumed.items()}
    shares: dict[str, Consumption] = {}
    for name, capacity in capacities.items():
        text = consumed.get(names.qualified(name))
        if text is None:
            return f"its claim was not allocated any of its capacity {name}"
        share = shares[name] = Consumption(quantity.parse(text), text)
        free = capacity.valid_range is None and not capacity.valid_values
        if capacity.default is not None and free and share.amount < capacity.default:
            return (
                f"its claim was allocated {text} of capacity {name}, but one allocation consumes "
                f"{capacity.default_text}"
            )
    used = _used(capacities, same)
    short = shortage(shares, capacities, used)
    if short is None:
        return ""
    holders = ", ".join(dict.fromkeys(entry.holder for entry in same)) or "no other claim"
    return (
        f"capacity {short} is {capacities[short].text}: {quantity.render(used[short])} is allocated "
        f"({holders}), and {shares[short].text} more was allocated"
    )


def _counters(pool: _Pool, device: Device, others: Sequence[Holding]) -> str:
    """The pool's counter that is short: each device draws its counters once, however often it is shared."""
    wanted = _drawn(device)
    if not wanted:
        return ""
    drawn: dict[_Counter, Decimal] = {}
    drawers: dict[_Counter, list[str]] = {}
    holders = {other.key[1]: other.holder for other in reversed(others)}  # the first one of each
    for name in dict.fromkeys(other.key[1] for other in others):
        other, holder = pool.devices.get(name), holders[name]
        if other is None or name == device.name:
            continue
        for counter, amount in _drawn(other).items():
            drawn[counter] = drawn.get(counter, Decimal(0)) + amount
            drawers.setdefault(counter, []).append(f'"{name}", which {holder} uses')
    for counter, amount in wanted.items():
        there, gone = pool.counters.get(counter, Decimal(0)), drawn.get(counter, Decimal(0))
        if gone + amount > there:
            rivals = ", ".join(drawers.get(counter, ())) or "no other device"
            return (
                f"it excludes, and is excluded by, {rivals}: counter {counter[1]} of set {counter[0]} "
                f"is {quantity.render(there)}, {quantity.render(gone)} is consumed, and it consumes "
                f"{quantity.render(amount)}"
            )
    return ""


def _drawn(device: Device) -> dict[_Counter, Decimal]:
    return {
        (consumption.counter_set, name): quantity.parse(counter.value)
        for consumption in device.consumes_counters
        for name, counter in consumption.counters.items()
    }


def _used(capacities: Iterable[str], holdings: Iterable[Holding]) -> dict[str, Decimal]:
    """How much holdings have consumed of each capacity."""
    used = {names.qualified(name): Decimal(0) for name in capacities}
    for holding in holdings:
        for name, text in holding.consumed.items():
            if (qualified := names.qualified(name)) in used:
                used[qualified] += quantity.parse(text)
    return {name: used[names.qualified(name)] for name in capacities}
