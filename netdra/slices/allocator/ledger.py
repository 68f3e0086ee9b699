"""The holders of devices, and the rest of each pool's counters: the only state that outlives one allocation.

Written by `allocator` when a claim is allocated or released, read by `search` and `explain`. An exclusive device has
one holder; a shared one has shares, each with its consumption. Devices held with admin access are not in use. Counters
follow k8s.io/dynamic-resource-allocation v0.37 (structured/internal/incubating, `checkAvailableCounters`): a device
draws its counters once while anyone has it, as it is published now; a pool in which any counter is overdrawn lends to
no device that draws counters at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal

import msgspec

from netdra.model import quantity
from netdra.model.claim import AllocationResult, DeviceRequestAllocationResult
from netdra.model.scheduler_version import SchedulerVersion
from netdra.slices import capacity
from netdra.slices.allocator.pools import Candidate, CounterKey, DeviceKey, Pool, PoolKey

_NOTHING: Mapping[str, Decimal] = {}


class Ledger:
    """The allocated claims and, worked out from them, the devices in use."""

    def __init__(self, version: SchedulerVersion) -> None:
        self._version = version
        self._claims: dict[str, AllocationResult] = {}
        self._holders: dict[DeviceKey, list[str]] = defaultdict(list)
        self._exclusive: set[DeviceKey] = set()
        self._shares: dict[DeviceKey, int] = defaultdict(int)
        self._consumed: dict[DeviceKey, dict[str, Decimal]] = {}
        self._versions: dict[PoolKey, int] = defaultdict(int)

    def __contains__(self, claim: str) -> bool:
        return claim in self._claims

    def get(self, claim: str) -> AllocationResult | None:
        """The devices that an allocated claim holds."""
        return self._claims.get(claim)

    def add(self, claim: str, allocation: AllocationResult) -> None:
        """Enter an allocated claim under its key."""
        self._claims[claim] = allocation
        for result in _charged(allocation):
            key = _key(result)
            self._versions[key[:2]] += 1
            self._holders[key].append(claim)
            if result.share_id is None:
                self._exclusive.add(key)
                continue
            self._shares[key] += 1
            self._consume(key, result, 1)

    def release(self, claim: str) -> AllocationResult | None:
        """Take a claim out and return what it held, or None if it held nothing."""
        allocation = self._claims.pop(claim, None)
        for result in () if allocation is None else _charged(allocation):
            key = _key(result)
            self._versions[key[:2]] += 1
            self._holders[key].remove(claim)
            if result.share_id is None:
                self._exclusive.discard(key)
                continue
            self._shares[key] -= 1
            self._consume(key, result, -1)
        return allocation

    def exclusive(self, device: DeviceKey) -> bool:
        """Whether one claim has the whole device."""
        return device in self._exclusive

    def shared(self, device: DeviceKey) -> bool:
        """Whether at least one claim has a share of it."""
        return self._shares.get(device, 0) > 0

    def in_use(self, device: DeviceKey) -> bool:
        """Whether anyone has it or a share of it: then it draws its counters."""
        return device in self._exclusive or self.shared(device)

    def consumed(self, device: DeviceKey) -> Mapping[str, Decimal]:
        """The total consumption of its shares, by capacity."""
        return self._consumed.get(device, _NOTHING)

    def holders(self, device: DeviceKey) -> tuple[str, ...]:
        """The keys of the claims that have it, without repetition."""
        return tuple(dict.fromkeys(self._holders.get(device, ())))

    def version(self, pool: PoolKey) -> int:
        """A number that changes with everything that is taken from the pool or returned."""
        return self._versions.get(pool, 0)

    def _consume(self, key: DeviceKey, result: DeviceRequestAllocationResult, sign: int) -> None:
        totals = self._consumed.setdefault(key, {})
        for name, amount in capacity.by_name(result.consumed_capacity, result.driver, self._version).items():
            totals[name] = totals.get(name, Decimal(0)) + sign * quantity.parse(amount)


def _charged(allocation: AllocationResult) -> list[DeviceRequestAllocationResult]:
    return [result for result in allocation.devices.results if not result.admin_access]


def _key(result: DeviceRequestAllocationResult) -> DeviceKey:
    return result.driver, result.pool, result.device


class Balance(msgspec.Struct, frozen=True, eq=False):
    """A pool's counters after all allocations: counter -> amount left, and the first that is below zero."""

    left: dict[CounterKey, Decimal]
    overdrawn: CounterKey | None


class Counters:
    """Balances of pools, worked out again only when the ledger changed there."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._balances: dict[int, tuple[int, Balance]] = {}

    def balance(self, pool: Pool) -> Balance:
        """The amounts left of the pool's counters."""
        version = self._ledger.version(pool.key)
        computed = self._balances.get(id(pool))
        if computed is None or computed[0] != version:
            computed = self._balances[id(pool)] = (version, self._count(pool))
        return computed[1]

    def _count(self, pool: Pool) -> Balance:
        left = dict(pool.counters)
        for consumer in pool.consumers:
            if self._ledger.in_use(consumer.key):
                for counter, amount in consumer.consumes.items():
                    left[counter] -= amount
        overdrawn = next((counter for counter, amount in left.items() if amount < 0), None)
        return Balance(left, overdrawn)


def shortage(candidate: Candidate, balance: Balance, drawn: dict[CounterKey, Decimal]) -> CounterKey | None:
    """The first counter that keeps a device from being taken.

    Args:
        candidate: a device of the balance's pool.
        balance: what is left in the pool.
        drawn: what the attempt that asks has drawn from it already.
    """
    if candidate.consumes and balance.overdrawn is not None:
        return balance.overdrawn
    for counter, amount in candidate.consumes.items():
        if amount + drawn.get(counter, 0) > balance.left[counter]:
            return counter
    return None
