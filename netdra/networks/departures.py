"""When an address may go to another pod: its former pod no longer has it, and it was not in use for some time. Pure.

Called by `netdra.controller.addresses.pod_addresses`. That a claim is gone or deallocated proves nothing: a pod that
was deleted by force runs on until the kubelet ends it. The node states in its NodeNetwork which released addresses its
pods still have (decision D74). Times of objects were written by other clocks, so none counts for longer than its own
interval.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import datetime

from netdra.model.meta import order, time_of
from netdra.model.node_network import NodeNetwork, NodeNetworkReport
from netdra.model.pod_address import PodAddress
from netdra.model.pod_network import CONFLICT_SECONDS, KEEP_SECONDS, PodNetwork


def has_left(address: PodAddress, report: NodeNetworkReport | NodeNetwork | None) -> bool:
    """Return whether its former node reports that no pod has a released address any more.

    Args:
        address: an address without a claim.
        report: the report of the node that it names; None if none exists.
    """
    spec = address.spec
    if not spec.node_name:
        return True
    if spec.claim is not None or report is None or report.status is None:
        return False
    if report.status.released_version < order(address.metadata.resource_version):
        return False
    plain = spec.address.partition("/")[0]
    return all((entry.network, entry.address) != (spec.network, plain) for entry in report.status.unassigned_addresses)


def interval(address: PodAddress, network: PodNetwork | None, *, keeps: bool) -> float:
    """For how many seconds an address without a claim is not assigned to other owners, from the time in its spec.

    Args:
        network: its PodNetwork; None if it is gone.
        keeps: whether it is kept for its owner's next claim.
    """
    if address.spec.lease is not None:
        return math.inf
    if address.spec.conflict_since:
        return CONFLICT_SECONDS
    if network is None:
        return KEEP_SECONDS if keeps else 0.0  # it may be created again
    return max(network.spec.quarantine, network.spec.keep if keeps else 0)


class Intervals:
    """How much of an interval is left that began at a time in an object.

    The time may be of a clock that is ahead: the interval ends at the latest its own length after this process has
    first read the time.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without any.

        Args:
            clock: seconds that are not set.
        """
        self._clock = clock
        self._first: dict[str, tuple[str, float]] = {}

    def left(self, name: str, since: str, seconds: float, now: datetime) -> float:
        """The seconds that are left, 0 if none.

        Args:
            name: the object's name.
            since: the time in the object, in RFC 3339.
            seconds: the interval's length.
            now: the time, with its zone.
        """
        text, first = self._first.setdefault(name, (since, self._clock()))
        if text != since:
            first = self._clock()
            self._first[name] = since, first
        # Times of objects have whole seconds.
        by_time = seconds + 1.0 - (now - time_of(since)).total_seconds()
        return max(0.0, min(by_time, seconds - (self._clock() - first)))

    def forget(self, name: str) -> None:
        """Drop the begin of an object's interval; an unknown name is not an error."""
        self._first.pop(name, None)
