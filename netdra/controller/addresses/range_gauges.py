"""How full the ranges of PodNetworks are, as metrics show it while this process leads.

Set by `netdra.controller.addresses.pod_addresses` whenever it has counted a network. The number of series is bounded:
networks beyond the first `MOST_RANGES` ranges are counted together, as network "other".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from prometheus_client import Gauge

from netdra.controller import metrics
from netdra.model.pod_network import RangeUsage
from netdra.ops.metrics import OTHER

MOST_RANGES = 512
"""How many ranges have series of their own; each has three."""
NEARLY_FULL, FULL = "nearly-full", "full"
_Series = tuple[Gauge, tuple[str, ...]]


class RangeGauges:
    """The used, reserved and free addresses of all networks, and how many of their ranges are nearly full or full."""

    def __init__(self) -> None:
        """Begin without any."""
        self._values: dict[str, Counter[_Series]] = {}
        self._totals: Counter[_Series] = Counter()
        self._users: Counter[_Series] = Counter()
        self._ranges: dict[str, int] = {}

    def note(self, network: str, ranges: Sequence[RangeUsage], free: Sequence[int]) -> None:
        """Show the numbers of a network.

        Args:
            network: its name.
            free: the number of free addresses of each.
        """
        self._ranges.pop(network, None)
        is_shown = sum(self._ranges.values()) + len(ranges) <= MOST_RANGES
        if is_shown:
            self._ranges[network] = len(ranges)
        label = network if is_shown else OTHER
        values = Counter[_Series]({(metrics.RANGES, (label, state)): 0 for state in (NEARLY_FULL, FULL)})
        for usage, left in zip(ranges, free, strict=True):
            for state, count in (("used", usage.used), ("reserved", usage.reserved), ("free", left)):
                values[metrics.RANGE_ADDRESSES, (label, usage.cidr if is_shown else OTHER, state)] += count
            values[metrics.RANGES, (label, FULL)] += not left
            values[metrics.RANGES, (label, NEARLY_FULL)] += bool(left and usage.nearly_full)
        self._replace(network, values)

    def forget(self, network: str) -> None:
        """Show nothing of a network: it is gone, or cannot be used."""
        self._ranges.pop(network, None)
        self._replace(network, Counter())

    def clear(self) -> None:
        """Show none: another process leads."""
        for network in [*self._values]:
            self.forget(network)

    def _replace(self, network: str, new: Counter[_Series]) -> None:
        old = self._values.pop(network, Counter())
        if new:
            self._values[network] = new
        for series in {**old, **new}:
            gauge, labels = series
            self._totals[series] += new[series] - old[series]
            self._users[series] += (series in new) - (series in old)
            if self._users[series]:
                gauge.labels(*labels).set(self._totals[series])
            else:
                del self._totals[series], self._users[series]
                gauge.remove(*labels)
