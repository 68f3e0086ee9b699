"""The cap of taints for health: at most a share of a node's devices, and of the cluster's, at one time. Pure.

Called by `netdra.controller.device_health`. A wrong threshold makes all devices faulty at once; then the share alone is
tainted, and the rest is reported. A taint that was granted stays granted while its fault lasts, so no device takes
turns with another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec


class TaintWish(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A device that is to be tainted; ordered by the begin of its fault.

    Attributes:
        since: when the fault began, in RFC 3339.
        node, pool, device: the device.
    """

    since: str
    node: str
    pool: str
    device: str

    @property
    def key(self) -> tuple[str, str]:
        """Pool and name."""
        return self.pool, self.device


class Granted(msgspec.Struct, frozen=True):
    """The devices that may be tainted, and those that may not, with the number of devices of each node and of all.

    Attributes:
        tainted: may be.
        kept: must not be, because the share of the node or of the cluster is used up.
    """

    tainted: tuple[TaintWish, ...]
    kept: tuple[TaintWish, ...]


def most(devices: int, percent: int) -> int:
    """How many of so many devices may be tainted: the share, rounded down, and one in any case.

    Without the one, a node with a single NIC could never lose a broken one. With 0 percent, the result is 0.
    """
    return max(1, devices * percent // 100) if percent and devices else 0


def grant(
    wishes: Iterable[TaintWish],
    present: Collection[tuple[str, str]],
    devices: Mapping[str, int],
    *,
    node_percent: int,
    cluster_percent: int,
) -> Granted:
    """Choose the devices that may be tainted: those that are, then those with the oldest faults.

    Args:
        wishes: the devices to taint.
        present: pool and name of the devices that are tainted for their health now.
        devices: how many devices with health rules each node has.
        node_percent: the share of a node's devices.
        cluster_percent: the share of all devices.
    """
    of_cluster = most(sum(devices.values()), cluster_percent)
    used: Counter[str] = Counter()
    tainted: list[TaintWish] = []
    kept: list[TaintWish] = []
    for wish in sorted(wishes, key=lambda wish: (wish.key not in present, wish)):
        fits = len(tainted) < of_cluster and used[wish.node] < most(devices.get(wish.node, 0), node_percent)
        (tainted if fits else kept).append(wish)
        used[wish.node] += fits
    return Granted(tuple(tainted), tuple(kept))
