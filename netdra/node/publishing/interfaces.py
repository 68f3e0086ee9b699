"""The kernel's interfaces for the event loop: a watcher that reads in a thread of its own, and wakes who follows.

Run by `netdra.node.publishing.service`. The kernel is read while the loop goes on, and nothing is read without an event
or a full reading that is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from netdra.discovery.watch import Change, Watcher
from netdra.kernel.sysfs import Sysfs
from netdra.model.inventory import Inventory, Node

T = TypeVar("T")


class Interfaces:
    """A watcher and its thread.

    Attributes:
        watcher: whose counts anybody may read; what is known, its thread alone.
    """

    def __init__(self, watcher: Watcher, thread: ThreadPoolExecutor) -> None:
        self.watcher = watcher
        self._thread = thread

    @classmethod
    @asynccontextmanager
    async def watching(cls, node: str, sysfs_root: str) -> AsyncIterator[Interfaces]:
        """Read the kernel once, in the network namespace of this process, and listen to it until the end.

        Raises:
            KernelError: the links cannot be listed.
        """
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="interfaces") as thread:
            watcher = await loop.run_in_executor(thread, lambda: Watcher(Node(name=node), sysfs=Sysfs(sysfs_root)))
            with watcher:
                yield cls(watcher, thread)

    async def next(self) -> Change:
        """Wait for events of the kernel, or for a full reading that is due, and tell what is different, maybe nothing.

        Raises:
            KernelError: the links cannot be listed.
        """
        await _readable(self.watcher.fileno(), self.watcher.timeout)
        return await self.run(self.watcher.handle)

    async def inventory(self) -> Inventory:
        """What is known now."""
        return await self.run(lambda: self.watcher.inventory)

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
