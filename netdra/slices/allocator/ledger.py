"""Who holds what: the allocator's only state that outlives one allocation.

Written by `allocator` when a claim is allocated or released, read by `search` and `explain`. An exclusive device has
one holder; a shared one has shares, each with what it consumes. Devices held with admin access are not in use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal

from netdra.model import quantity
from netdra.model.claim import AllocationResult, DeviceRequestAllocationResult
from netdra.slices.allocator.pools import DeviceKey, PoolKey

_NOTHING: Mapping[str, Decimal] = {}


class Ledger:
    """The allocated claims and, worked out from them, the devices in use."""

    def __init__(self) -> None:
        self._claims: dict[str, AllocationResult] = {}
        self._holders: dict[DeviceKey, list[str]] = defaultdict(list)
        self._exclusive: set[DeviceKey] = set()
        self._shares: dict[DeviceKey, int] = defaultdict(int)
        self._consumed: dict[DeviceKey, dict[str, Decimal]] = {}
        self._versions: dict[PoolKey, int] = defaultdict(int)

    def __contains__(self, claim: str) -> bool:
        return claim in self._claims

    def get(self, claim: str) -> AllocationResult | None:
        """What an allocated claim holds."""
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
        """What its shares consume together, by capacity."""
        return self._consumed.get(device, _NOTHING)

    def holders(self, device: DeviceKey) -> tuple[str, ...]:
        """The keys of the claims that have it, without repetition."""
        return tuple(dict.fromkeys(self._holders.get(device, ())))

    def version(self, pool: PoolKey) -> int:
        """A number that changes with everything that is taken from the pool or given back."""
        return self._versions.get(pool, 0)

    def _consume(self, key: DeviceKey, result: DeviceRequestAllocationResult, sign: int) -> None:
        totals = self._consumed.setdefault(key, {})
        for name, amount in result.consumed_capacity.items():
            totals[name] = totals.get(name, Decimal(0)) + sign * quantity.parse(amount)


def _charged(allocation: AllocationResult) -> list[DeviceRequestAllocationResult]:
    return [result for result in allocation.devices.results if not result.admin_access]


def _key(result: DeviceRequestAllocationResult) -> DeviceKey:
    return result.driver, result.pool, result.device
