"""Whether a device can be used beside the node's devices in use: the scheduler's arithmetic, done once more.

Called at Prepare. Schedulers before 1.36.2 forget what shared devices charge, counters are gone on servers that drop
them (decision D1), and a device's counters may have changed since it was allocated. Pure.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Protocol

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


class DevicesInUse(Protocol):
    """The devices in use by others; devices that no ResourceSlice has any more draw no counters."""

    def of(self, key: DeviceKey) -> Sequence[Holding]:
        """The uses of a device."""

    def has(self, key: DeviceKey) -> bool:
        """Whether a device is in use."""


class Pools:
    """A node's pools as the scheduler counts them: its slices, indexed once for all claims that are compared."""

    def __init__(self, slices: Sequence[ResourceSlice]) -> None:
        """Index a pool when a device of it is compared.

        Args:
            slices: what the node publishes: a wanted device is among it, or is not to be used.
        """
        self._slices = tuple(slices)
        self._pools: dict[str, _Pool] = {}

    def are_of(self, slices: Sequence[ResourceSlice]) -> bool:
        """Whether these are the slices, unchanged."""
        return len(slices) == len(self._slices) and all(map(operator.is_, slices, self._slices))

    def conflict(self, wanted: Holding, uses: DevicesInUse) -> str:
        """Why a device cannot be used beside the devices in use, in words; "" if it can.

        Args:
            wanted: the device, and its claim's part of it.
            uses: the devices in use.
        """
        pool = self._pool(wanted.key[0])
        device = pool.devices.get(wanted.key[1])
        if device is None:
            return "no ResourceSlice of the node has it any more"
        same = uses.of(wanted.key)
        try:
            return _sharing(device, wanted, same) or _capacity(device, wanted, same) or _counters(pool, device, uses)
        except InvalidInputError as problem:
            return problem.what

    def _pool(self, name: str) -> _Pool:
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = _Pool.of(self._slices, name)
        return pool


class _Pool(msgspec.Struct, frozen=True):
    """One pool's newest generation.

    Attributes:
        counters: the value of each counter.
        drawers: by counter, the devices that draw it, in their order, and how much.
    """

    name: str
    devices: Mapping[str, Device]
    counters: Mapping[_Counter, Decimal]
    drawers: Mapping[_Counter, Sequence[tuple[str, QuantityText]]]

    @classmethod
    def of(cls, slices: Sequence[ResourceSlice], name: str) -> _Pool:
        pools = newest(one for one in slices if one.spec.driver == names.DRIVER and one.spec.pool.name == name)
        current = [one.spec for one in pools.get(name, ())]
        devices = {device.name: device for spec in current for device in spec.devices}
        drawers: dict[_Counter, list[tuple[str, QuantityText]]] = {}
        for device in devices.values():
            for counter, amount in _drawn(device).items():
                drawers.setdefault(counter, []).append((device.name, amount))
        return cls(
            name=name,
            devices=devices,
            counters={
                (counters.name, counter): quantity.parse(amount.value)
                for spec in current
                for counters in spec.shared_counters
                for counter, amount in counters.counters.items()
            },
            drawers=drawers,
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


def _counters(pool: _Pool, device: Device, uses: DevicesInUse) -> str:
    """The pool's counter that is short: each device draws its counters once, however often it is shared."""
    for counter, text in _drawn(device).items():
        rivals = [
            (name, quantity.parse(amount))
            for name, amount in pool.drawers[counter]
            if name != device.name and uses.has((pool.name, name))
        ]
        wanted, there = quantity.parse(text), pool.counters.get(counter, Decimal(0))
        drawn = sum((amount for _, amount in rivals), Decimal(0))
        if drawn + wanted > there:
            named = ", ".join(f'"{name}", which {uses.of((pool.name, name))[0].holder} uses' for name, _ in rivals)
            return (
                f"it excludes, and is excluded by, {named or 'no other device'}: counter {counter[1]} of set "
                f"{counter[0]} is {quantity.render(there)}, {quantity.render(drawn)} is consumed, and it consumes "
                f"{quantity.render(wanted)}"
            )
    return ""


def _drawn(device: Device) -> dict[_Counter, QuantityText]:
    return {
        (consumption.counter_set, name): counter.value
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
