"""Which published devices are well, for whoever reports it: the kubelet's health stream takes it from here.

Filled by `netdra.node.publishing.service` with what it publishes: a device with one of netdra's taints is not well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

import msgspec

from netdra.model import names
from netdra.model.resource import Device, ResourceSlice

_WORDS = {
    names.LINK_DOWN: "the link has no carrier",
    names.GONE: "the interface is gone",
    names.TROUBLE: "it could not be given back",
}


class DeviceHealth(msgspec.Struct, frozen=True):
    """How a published device is; `message` says what is wrong with one that is not healthy."""

    pool: str
    device: str
    healthy: bool
    message: str = ""


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

    async def changes(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """Every device first, then those that are not as they were, without end; who is slow misses steps between.

        A device that is no longer published is told once more, as one that is gone.
        """
        told: dict[str, tuple[DeviceHealth, ...]] = {}
        while True:
            turn, now = self._turn, dict(self._pools)
            found = tuple(health for pool in _difference(told, now) for health in pool)
            told = now
            if found:
                yield found
            await turn.wait()


def _difference(
    before: Mapping[str, tuple[DeviceHealth, ...]], now: Mapping[str, tuple[DeviceHealth, ...]]
) -> Iterator[tuple[DeviceHealth, ...]]:
    for pool in {*before, *now}:
        old, new = before.get(pool, ()), now.get(pool, ())
        if old is new:
            continue
        left = {health.device for health in old} - {health.device for health in new}
        yield tuple(health for health in new if health not in old)
        yield tuple(DeviceHealth(pool, name, healthy=False, message=_WORDS[names.GONE]) for name in sorted(left))


def _health(pool: str, device: Device) -> DeviceHealth:
    wrong = [
        _WORDS[taint.key] + (f": {taint.value}" if taint.value else "")
        for taint in device.taints
        if taint.key in _WORDS
    ]
    return DeviceHealth(pool, device.name, healthy=not wrong, message="; ".join(wrong))
