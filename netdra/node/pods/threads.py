"""Where the blocking work of hooks is done, and who waits for whom: threads of three kinds, and one lock a sandbox.

Made by `netdra.node.pods.service` for `attachments`. A pool makes its threads when it has work for them, and none waits
for what another may hang in. A hook, its repetition and the reconciler never act on the same pod at once; locks that
nobody holds or waits for take no memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass

WORKERS = 8
UNDO_WORKERS = 2
"""Of sandboxes whose plugins do not answer so many are undone at once, and nobody else waits for them."""


@dataclass(frozen=True)
class Threads:
    """The threads of one node's pods, all in the host's network namespace.

    Attributes:
        work: attaching and taking down.
        undoing: taking down what a plugin does not answer for.
        looking: looks at the kernel that take microseconds, which a pod without claims may need.
    """

    work: ThreadPoolExecutor
    undoing: ThreadPoolExecutor
    looking: ThreadPoolExecutor

    @classmethod
    def made(cls, initializer: Callable[[], object] | None = None) -> Threads:
        """New ones.

        Args:
            initializer: is called in each thread before its first work.
        """
        return cls(
            work=ThreadPoolExecutor(WORKERS, "pods", initializer),
            undoing=ThreadPoolExecutor(UNDO_WORKERS, "pods-undo", initializer),
            looking=ThreadPoolExecutor(1, "pods-look", initializer),
        )

    def drop_undoing(self) -> None:
        """Begin no more of what may hang: it is in checkpoints."""
        self.undoing.shutdown(wait=False, cancel_futures=True)

    def shutdown(self) -> None:
        """Wait for what is being done."""
        for each in (self.work, self.looking):
            each.shutdown()


class Locks:
    """Locks by key. One event loop's."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._interested: dict[str, int] = {}

    def is_free(self, key: str) -> bool:
        """Whether nobody holds the key's lock."""
        return key not in self._locks

    @asynccontextmanager
    async def held(self, key: str) -> AsyncIterator[None]:
        """Wait for the key's lock, and hold it as long as this is entered."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._interested[key] = self._interested.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._interested[key] -= 1
            if not self._interested[key]:
                del self._interested[key], self._locks[key]
