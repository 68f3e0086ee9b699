"""Which published devices are well, for whoever reports it: the kubelet's health stream takes it from here.

Filled by `netdra.node.publishing.service` with what it publishes: a device with one of netdra's taints is not well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping

from netdra.model import names
from netdra.model.resource import Device, ResourceSlice
from netdra.node.view import DeviceHealth
from netdra.topology.devices import DeviceKey

_WORDS = {
    names.LINK_DOWN: "the link has no carrier",
    names.GONE: "the interface is gone",
    names.TROUBLE: "it could not be given back",
}


class Health:
    """The health of all published devices, as it is now and as it changes."""

    def __init__(self) -> None:
        self._pools: dict[str, tuple[DeviceHealth, ...]] = {}
        self._turn = asyncio.Event()

    def publish(self, pools: Mapping[str, Iterable[ResourceSlice]]) -> None:
        """These pools are published like this from now on; one without slices is not any more."""
        changed = False
        for pool, slices in pools.items():
            found = tuple(_health(pool, device) for one in slices for device in one.spec.devices)
            changed = changed or self._pools.get(pool, ()) != found
            if found:
                self._pools[pool] = found
            else:
                self._pools.pop(pool, None)
        if changed:
            turn, self._turn = self._turn, asyncio.Event()
            turn.set()

    async def states(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """Every device at once, and again whenever one changes, without end; who is slow misses steps between.

        A device that is no longer published is told once more, as one that is gone.
        """
        told: frozenset[DeviceKey] = frozenset()
        while True:
            turn = self._turn
            now = tuple(each for pool in self._pools.values() for each in pool)
            keys = frozenset((each.pool, each.device) for each in now)
            if keys or told:
                yield (*now, *(_gone(*key) for key in sorted(told - keys)))
            told = keys
            await turn.wait()


def _gone(pool: str, device: str) -> DeviceHealth:
    return DeviceHealth(pool, device, healthy=False, message=_WORDS[names.GONE])


def _health(pool: str, device: Device) -> DeviceHealth:
    wrong = [
        _WORDS[taint.key] + (f": {taint.value}" if taint.value else "")
        for taint in device.taints
        if taint.key in _WORDS
    ]
    return DeviceHealth(pool, device.name, healthy=not wrong, message="; ".join(wrong))
