"""The traffic of pods as the console shows it: drivers are read while a page asks, and the last readings are kept.

Called by `netdra.console.live_cluster`. The source is that of `netdra top --traffic`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from netdra.cluster.driver_pages import DriverPages, list_drivers, read_drivers
from netdra.console.traffic_page import PodTraffic
from netdra.kube.client import Client
from netdra.kube.errors import RefusedError
from netdra.model.errors import NetdraError
from netdra.story import traffic
from netdra.story.traffic import InterfaceTraffic, TrafficReading

EVERY_SECONDS = 2.0
"""The least time between two readings; a driver reads its counters once a second at most."""
KEPT_SECONDS = 30.0
"""For how long readings are kept that no page asks for."""
MAX_DRIVERS = 32
"""Drivers that are read for one page; of a larger cluster, a page shows one node."""
_TOO_MANY = f"More than {MAX_DRIVERS} nodes run netdra. Open the traffic of one node from the page of the node."
_NO_DRIVER = "Check that netdra node runs there: netdra doctor"
_FIRST = "The rates follow in some seconds, after a second reading. Without a script, reload the page."
_NONE = "No pod has an interface of netdra."
_OFF = "Set node.traffic.enabled in the chart."
_NO_RIGHT = "Set console.traffic in the chart, or grant the right to get pods/proxy in netdra's namespace."


class DriverPlace(NamedTuple):
    """Where drivers serve their metrics: netdra's namespace, and the port of their pods."""

    namespace: str = "netdra"
    port: int = 8490


@dataclass
class _Followed:
    """The last two readings of one page's nodes, and the rates: a full node's reading takes a megabyte."""

    readings: list[TrafficReading] = field(default_factory=list)
    at: float = 0.0
    found: PodTraffic = field(default_factory=PodTraffic)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class TrafficFollower:
    """The rates of pods' interfaces, of all nodes or of one."""

    def __init__(self, client: Client, place: DriverPlace) -> None:
        """Read nothing yet.

        Args:
            place: where drivers serve their metrics.
        """
        self._client, self._place = client, place
        self._followed: dict[str, _Followed] = {}

    async def now(self, node: str) -> PodTraffic:
        """The rates on a node, or with "" on all, from readings that are two seconds old at most.

        A problem of the drivers or the API server is part of the result.
        """
        now = time.monotonic()
        self._followed = {
            name: entry
            for name, entry in self._followed.items()
            if entry.lock.locked() or now - entry.at < KEPT_SECONDS
        }
        followed = self._followed.setdefault(node, _Followed())
        async with followed.lock:
            if not followed.at or time.monotonic() - followed.at >= EVERY_SECONDS:
                followed.found = await self._read(followed, node)
                followed.at = time.monotonic()
        return followed.found

    async def _read(self, followed: _Followed, node: str) -> PodTraffic:
        namespace, port = self._place
        try:
            drivers = await list_drivers(self._client, namespace, node, MAX_DRIVERS + 1)
            if len(drivers) > MAX_DRIVERS:
                return PodTraffic(next_step=_TOO_MANY)
            found = await read_drivers(self._client, namespace, drivers, port)
            last = await asyncio.to_thread(traffic.read, time.monotonic(), found.pages)
        except NetdraError as problem:
            followed.readings.clear()
            return _refused(problem)
        followed.readings = [*followed.readings[-1:], last]
        return await asyncio.to_thread(_rates, followed.readings, found, followed.found.rows)


def _refused(problem: NetdraError) -> PodTraffic:
    """Why no driver could be read, and the next step."""
    cause = problem.__cause__ if isinstance(problem.__cause__, NetdraError) else problem
    is_right = isinstance(cause, RefusedError) and cause.cause == "permission"
    step = _NO_RIGHT if is_right else problem.hint or _NO_DRIVER
    return PodTraffic(problem=cause.what if is_right else problem.what, next_step=_sentence(step))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}".removesuffix(".") + "."


def _rates(readings: Sequence[TrafficReading], found: DriverPages, before: Sequence[InterfaceTraffic]) -> PodTraffic:
    unread = tuple(f'Node "{node}": {problem.what}' for node, problem in sorted(found.refused.items()))
    if len(readings) < 2:
        return PodTraffic(next_step=_FIRST, unread=unread)
    if not any(traffic.is_measured(page) for page in found.pages.values()):
        return PodTraffic(problem="The drivers do not export the counters.", next_step=_OFF, unread=unread)
    return PodTraffic(traffic.continued(traffic.rates(readings), before), next_step=_NONE, unread=unread)
