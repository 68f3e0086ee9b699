"""What is to be looked at again, and when: a set of keys, each at most once, however often it is noted.

Filled by the stores' callbacks, emptied by `netdra.controller.controller`. A key that is noted while it waits is looked
at once; that is how a thousand nodes' reports become one status. What failed comes again after a wait that grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from netdra.kube.backoff import Backoff


class Key(NamedTuple):
    """An object: its kind, and its name."""

    kind: str
    name: str


class Work:
    """The keys. One event loop's."""

    def __init__(self) -> None:
        self._ready: dict[Key, None] = {}
        self._waiting: dict[Key, asyncio.TimerHandle] = {}
        self._backoffs: dict[Key, Backoff] = {}
        self._wake = asyncio.Event()

    def note(self, key: Key, delay: float = 0.0) -> None:
        """There is work on an object; with a delay, not before so many seconds, and what comes until then is the same.

        Args:
            key: the object.
            delay: seconds.
        """
        if key in self._ready:
            return
        if delay <= 0.0:
            self._forget_timer(key)
            self._ready[key] = None
            self._wake.set()
        elif key not in self._waiting:
            self._waiting[key] = asyncio.get_running_loop().call_later(delay, self._due, key)

    def __len__(self) -> int:
        return len(self._ready) + len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do, now or later."""
        return not self._ready and not self._waiting

    async def run(self, look: Callable[[Key], Awaitable[float | None]]) -> None:
        """Look at one object after the other until cancelled.

        Args:
            look: does the work; the seconds after which it must be done again because it failed, or None if all is
                well. The seconds are the least: a wait that grows comes on top.
        """
        try:
            while True:
                while not self._ready:
                    self._wake.clear()
                    await self._wake.wait()
                key = next(iter(self._ready))
                del self._ready[key]
                again = await look(key)
                if again is None:
                    self._backoffs.pop(key, None)
                else:
                    self.note(key, self._backoffs.setdefault(key, Backoff()).next(again))
        finally:
            for timer in self._waiting.values():
                timer.cancel()
            self._waiting.clear()

    def _due(self, key: Key) -> None:
        self._waiting.pop(key, None)
        self.note(key)

    def _forget_timer(self, key: Key) -> None:
        timer = self._waiting.pop(key, None)
        if timer is not None:
            timer.cancel()
