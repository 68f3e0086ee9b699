"""The kernel's interfaces for the event loop: a watcher that reads in a thread of its own, and wakes who follows.

Run by `netdra.node.publishing.service`. The kernel is read while the loop goes on, and nothing is read without an event
or a full reading that is due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from netdra.discovery.watch import Watcher
from netdra.model.inventory import Interface, Inventory
from netdra.node.metrics import READ_SECONDS

T = TypeVar("T")


class Interfaces:
    """A watcher and its thread. What is no coroutine is for that thread alone.

    Attributes:
        watcher: whose counts anybody may read.
    """

    def __init__(self, watcher: Watcher, thread: ThreadPoolExecutor) -> None:
        self.watcher = watcher
        self._thread = thread

    @classmethod
    @asynccontextmanager
    async def watching(cls, watch: Callable[[], Watcher]) -> AsyncIterator[Interfaces]:
        """Read the kernel once, and listen to it until the end.

        Args:
            watch: opens the kernel.

        Raises:
            KernelError: the links cannot be listed.
        """
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="interfaces") as thread:
            watcher = await loop.run_in_executor(thread, watch)
            with watcher:
                yield cls(watcher, thread)

    async def next(self, calm: Callable[[], Awaitable[None]]) -> bool:
        """Wait for events of the kernel, or for a full reading that is due, and tell whether to look at it again.

        Args:
            calm: waited for before anything is read.

        Raises:
            KernelError: the links cannot be listed.
        """
        await _readable(self.watcher.fileno(), self.watcher.timeout)
        await calm()
        return await self.run(self._handle)

    def _handle(self) -> bool:
        # A full reading also finds what no event tells of, such as hardware that went while it was in a pod.
        rescans, began = self.watcher.rescans, time.perf_counter()
        changed = bool(self.watcher.handle())
        scanned = self.watcher.rescans != rescans
        READ_SECONDS.labels("scan" if scanned else "event").observe(time.perf_counter() - began)
        return changed or scanned

    @property
    def known(self) -> Inventory:
        """What is known now."""
        return self.watcher.inventory

    def left(self, interface: Interface) -> bool:
        """Whether an interface was seen going to another namespace."""
        return interface.identity in self.watcher.left or any(
            interface.if_name == other.if_name for other in self.watcher.left.values()
        )

    def on_the_bus(self, address: str) -> bool:
        """Whether there is a PCI device of that address."""
        return self.watcher.sysfs.is_folder(f"bus/pci/devices/{address}")

    async def run(self, work: Callable[[], T]) -> T:
        """Do something in the watcher's thread, one thing after the other."""
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
