"""The health service: a stream of what state each device is in, in both versions that kubelets speak.

Started by `plugin` where there is a source. Follows k8s.io/kubelet/pkg/apis/dra-health v1 and v1alpha1: each message
tells of all devices, and the kubelet forgets a state that it has not heard of for the time that the message says.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from netdra.node.kubelet.server import Methods, streaming
from netdra.node.wire import kubelet_pb2 as wire

V1 = "v1.DRAResourceHealth"
V1ALPHA1 = "v1alpha1.DRAResourceHealth"
VERSIONS = (V1, V1ALPHA1)

RESEND_SECONDS = 10.0
FORGET_SECONDS = 30
_MAX_MESSAGE = 1024
_STATES = {"healthy": wire.HEALTHY, "unhealthy": wire.UNHEALTHY, "unknown": wire.UNKNOWN}


class DeviceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one device; `message` says why, for people."""

    pool: str
    device: str
    state: Literal["healthy", "unhealthy", "unknown"]
    message: str = ""


HealthSource = Callable[[], AsyncIterator[Sequence[DeviceHealth]]]
"""Called for each stream: yields the state of all devices at once, and again whenever it changes."""


class HealthService:
    """Streams of the devices' health."""

    def __init__(self, source: HealthSource) -> None:
        self._source = source
        self._closing = asyncio.Event()

    def methods(self) -> Methods:
        """The services as the server takes them."""
        method = streaming(wire.WatchRequest, wire.WatchResponse, self._watch)
        return {f"/{name}/NodeWatchResources": method for name in VERSIONS}

    def close(self) -> None:
        """End all streams; a server does not stop while one is open."""
        self._closing.set()

    async def _watch(self, _: wire.WatchRequest) -> AsyncGenerator[wire.WatchResponse, None]:
        latest: tuple[Sequence[DeviceHealth], ...] = ()
        changed = asyncio.Event()

        async def follow() -> None:
            nonlocal latest
            async for found in self._source():
                latest = (found,)
                changed.set()

        following = asyncio.create_task(follow())
        closing = asyncio.create_task(self._closing.wait())
        try:
            while not closing.done() and not following.done():
                waking = asyncio.create_task(changed.wait())
                await asyncio.wait(
                    (waking, following, closing), timeout=RESEND_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                waking.cancel()
                if closing.done():
                    break
                changed.clear()
                for found in latest:
                    yield _message(found, int(time.time()))
            if following.done():
                await following
        finally:
            for task in (following, closing):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await following


def _message(found: Sequence[DeviceHealth], now: int) -> wire.WatchResponse:
    return wire.WatchResponse(
        devices=[
            wire.DeviceHealth(
                device=wire.DeviceIdentifier(pool_name=each.pool, device_name=each.device),
                health=_STATES[each.state],
                last_updated_time=now,
                health_check_timeout_seconds=FORGET_SECONDS,
                message=each.message[:_MAX_MESSAGE],
            )
            for each in found
        ]
    )
