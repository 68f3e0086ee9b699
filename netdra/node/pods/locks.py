"""One lock a sandbox: a hook, its repetition and the reconciler never act on the same pod at once.

Used by `netdra.node.pods.attachments` and `reconcile`. Locks that nobody holds or waits for take no memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


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
