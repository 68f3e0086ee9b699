"""What is left of each pool's counters.

Called by `search` and `explain`. Follows k8s.io/dynamic-resource-allocation v0.37 (structured/internal/incubating,
`checkAvailableCounters`): a device draws its counters once while anyone has it, as it is published now; a pool in which
any counter is overdrawn lends to no device that draws counters at all.
"""

from __future__ import annotations

from decimal import Decimal

import msgspec

from netdra.slices.allocator.ledger import Ledger
from netdra.slices.allocator.pools import Candidate, CounterKey, Pool


class Balance(msgspec.Struct, frozen=True, eq=False):
    """A pool's counters after what is allocated: counter -> amount left, and the first that is below zero."""

    left: dict[CounterKey, Decimal]
    overdrawn: CounterKey | None


class Counters:
    """Balances of pools, worked out again only when the ledger changed there."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._balances: dict[int, tuple[int, Balance]] = {}

    def balance(self, pool: Pool) -> Balance:
        """What is left of the pool's counters."""
        version = self._ledger.version(pool.key)
        known = self._balances.get(id(pool))
        if known is None or known[0] != version:
            known = self._balances[id(pool)] = (version, self._count(pool))
        return known[1]

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
