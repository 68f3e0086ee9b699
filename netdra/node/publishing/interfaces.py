"""The kernel's interfaces: read in a thread of their own, and damped where a fact comes and goes by itself.

`Interfaces` is run by `netdra.node.publishing.service`: the kernel is read while the event loop continues, and only
after an event or when a full reading is due. The first events are read at once; of hundreds a second, many are read
together. `netdra.node.publishing.offering` asks a `Damper` before each pass: a link that flaps would otherwise cost a
write for each flap, on every node with such a cable. The first changes of a link's state, its speed or addresses pass
at once; a withheld change passes as soon as there is a token for it. Interfaces that come and go, and all other facts,
are never withheld.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from netdra.discovery.watch import InterfaceChanges, Watcher
from netdra.kernel.device_files import DeviceFiles
from netdra.kube.backoff import Backoff
from netdra.model.errors import TemporaryError
from netdra.model.identity import PCI
from netdra.model.inventory import Interface, Inventory
from netdra.model.registration import DeviceFile
from netdra.node.metrics import READ_SECONDS, Discovered

log = logging.getLogger(__name__)

BURST = 5
SECONDS_PER_CHANGE = 10.0
READINGS_AT_ONCE = 8
"""How many readings of events follow each other at once."""
SECONDS_PER_READING = 0.05
"""Seconds between further ones."""
SETTLE_SECONDS = 5.0
"""How long the first pass waits for the ends of pairs at most; a second is enough on a machine that is not busy."""
_LEAST_SLEEP = 0.01
_LAST_DIGITS = 1e-6
_Key = tuple[str, str]

T = TypeVar("T")


class Bucket(msgspec.Struct, frozen=True):
    """Tokens as they were at a time, in seconds of the caller's clock; one more comes every so many seconds."""

    tokens: float
    at: float
    most: float = BURST
    seconds: float = SECONDS_PER_CHANGE

    def now(self, now: float) -> float:
        """The tokens at a later time."""
        return min(self.most, self.tokens + (now - self.at) / self.seconds)

    def wait(self, now: float) -> float:
        """Seconds until there is a token; 0.0 if there is one, also if a clock's last digits are missing to it."""
        missing = 1 - self.now(now)
        return missing * self.seconds if missing > _LAST_DIGITS else 0.0

    def less(self, now: float) -> Bucket:
        """The bucket after a token was taken."""
        return msgspec.structs.replace(self, tokens=max(self.now(now) - 1, 0.0), at=now)


class Damper:
    """Each interface as it was admitted last, and a bucket for each that changed lately."""

    def __init__(self) -> None:
        self._published: dict[_Key, Interface] = {}
        self._buckets: dict[_Key, Bucket] = {}
        self._due: float | None = None

    @property
    def due(self) -> float | None:
        """When the first withheld change may pass; None if none is withheld."""
        return self._due

    def damp(self, interfaces: Sequence[Interface], now: float) -> tuple[Interface, ...]:
        """The interfaces as they are to be published now, in the same order.

        Args:
            interfaces: as the kernel has them.
            now: seconds of a clock that never goes back.
        """
        published: dict[_Key, Interface] = {}
        waits: list[float] = []
        for interface in interfaces:
            key = (interface.identity, interface.if_name)
            before = self._published.get(key, interface)
            if before is interface or before == interface:
                published[key] = before
            elif _with_restless(interface, before) != before:
                published[key] = interface
            elif wait := self._bucket(key, now).wait(now):
                published[key] = before
                waits.append(now + wait)
            else:
                published[key] = interface
                self._buckets[key] = self._bucket(key, now).less(now)
        self._published = published
        self._due = min(waits, default=None)
        self._buckets = {
            key: bucket for key, bucket in self._buckets.items() if key in published and bucket.now(now) < BURST
        }
        return tuple(published[interface.identity, interface.if_name] for interface in interfaces)

    def _bucket(self, key: _Key, now: float) -> Bucket:
        return self._buckets.get(key) or Bucket(BURST, now)


def _with_restless(interface: Interface, before: Interface) -> Interface:
    """An interface with the restless facts of another time."""
    return msgspec.structs.replace(
        interface,
        oper_state=before.oper_state,
        link_speed=before.link_speed,
        no_carrier=before.no_carrier,
        ipv4=before.ipv4,
        ipv6=before.ipv6,
    )


class Interfaces:
    """A watcher and its thread. Methods that are not coroutines are for that thread alone.

    Attributes:
        watcher: any thread may read its counts.
        metrics: those of the watcher.
    """

    def __init__(self, watcher: Watcher, thread: ThreadPoolExecutor, files: DeviceFiles) -> None:
        self.watcher = watcher
        self.metrics = Discovered(watcher)
        self._thread = thread
        self._files = files
        self._seen: dict[str, DeviceFile] = {}
        self._readings = Bucket(READINGS_AT_ONCE, time.monotonic(), READINGS_AT_ONCE, SECONDS_PER_READING)

    @classmethod
    @asynccontextmanager
    async def watching(cls, watch: Callable[[], Watcher], files: DeviceFiles) -> AsyncIterator[Interfaces]:
        """Read the kernel once, and listen to it until the end.

        Args:
            watch: opens the kernel; tried again while it fails for a reason that may pass.
            files: the device files that pods may be given.

        Raises:
            KernelError: the kernel refuses.
        """
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="interfaces") as thread:
            watcher, backoff = None, Backoff()
            while watcher is None:
                try:
                    watcher = await loop.run_in_executor(thread, watch)
                except TemporaryError as problem:
                    log.warning("the interfaces cannot be read yet: %s", problem.what)
                    await asyncio.sleep(backoff.next())
            with watcher:
                yield cls(watcher, thread, files)

    async def next(self, clear: Callable[[], Awaitable[None]]) -> InterfaceChanges | None:
        """Wait for events of the kernel, or until a full reading is due.

        Args:
            clear: awaited before the kernel is read.

        Returns:
            The changes, none after a full reading that found none; None without any and without one.

        Raises:
            KernelError: the kernel's events cannot be read.
        """
        await _readable(self.watcher.fileno(), self.watcher.timeout)
        wait = self._readings.wait(time.monotonic())
        if wait:
            await asyncio.sleep(wait)
        self._readings = self._readings.less(time.monotonic())
        await clear()
        return await self.run(self._handle)

    async def settle(self) -> None:
        """Wait until it is known whose the ends of pairs are that the first reading found, for SETTLE_SECONDS at most.

        Pairs of pods that come and go meanwhile are not waited for.

        Raises:
            KernelError: the kernel's events cannot be read.
        """
        first, until = self.watcher.arriving, time.monotonic() + SETTLE_SECONDS
        while first & self.watcher.arriving and time.monotonic() < until:
            await asyncio.sleep(max(self.watcher.settling, _LEAST_SLEEP))
            await self.run(self._handle)

    def _handle(self) -> InterfaceChanges | None:
        # A full reading also finds changes without an event, such as hardware that went while it was in a pod.
        rescans, began = self.watcher.rescans, time.perf_counter()
        changes = self.watcher.handle()
        scanned = self.watcher.rescans != rescans
        READ_SECONDS.labels("scan" if scanned else "event").observe(time.perf_counter() - began)
        self.metrics.count()
        return changes if changes or scanned else None

    @property
    def inventory(self) -> Inventory:
        """The node's interfaces as they were read last."""
        return self.watcher.inventory

    def left(self, interface: Interface) -> bool:
        """Whether an interface was seen going to another namespace."""
        return interface.identity in self.watcher.left or any(
            interface.if_name == other.if_name for other in self.watcher.left.values()
        )

    def on_the_bus(self, address: str, bus: str = PCI) -> bool:
        """Whether there is a device of that address on a bus; also if that is not known (decision D59)."""
        return not self.watcher.sysfs.liveness(f"bus/{bus}/devices/{address}").is_gone

    def device_file(self, path: str) -> DeviceFile:
        """The state of a device file, read now, and remembered for `files_changed`."""
        file = self._seen[path] = self._files.look(path)
        return file

    def files_changed(self, paths: Sequence[str]) -> bool:
        """Whether a device file has changed since it was inspected last, or was never inspected."""
        self._seen = {path: file for path, file in self._seen.items() if path in paths}
        return any(self._seen.get(path) != self._files.look(path) for path in paths)

    async def run(self, work: Callable[[], T]) -> T:
        """Do work in the watcher's thread, one piece after the other."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


async def _readable(descriptor: int, seconds: float) -> None:
    """Wait until a descriptor is ready, or the time is over."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        async with asyncio.timeout(seconds):
            await ready.wait()
    except TimeoutError:
        return
    finally:
        loop.remove_reader(descriptor)
