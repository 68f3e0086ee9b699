"""Lets what pods wait for go first: hooks of the runtime and calls of the kubelet before publishing and statuses.

All of the daemon shares one interpreter, and the event of a link that a hook moves is work for other parts in just that
moment: a thread that has to take the interpreter back after each call of the kernel loses milliseconds to them. So work
that can wait awaits the gate first. Entered by `netdra.node.pods` and `netdra.node.kubelet`; one event loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar

MOST_SECONDS = 0.5
"""How long work that can wait is held up at most, by however many hooks, unless it says otherwise."""
MAX_SIDE_BY_SIDE = 8
"""How many of the kubelet's claims are worked on at one time."""
_AFTERWARDS = 0.003  # seconds: the answer is on its way, and the next one in a row may be there


class PriorityGate:
    """What is in hand that a pod waits for."""

    def __init__(self) -> None:
        self._in_hand = 0
        self._clear = asyncio.Event()
        self._clear.set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """Whether something is in hand, or just was."""
        return not self._clear.is_set()

    @contextmanager
    def in_hand(self) -> Iterator[None]:
        """Something that a pod waits for is in hand until the context ends."""
        self._taken()
        try:
            yield
        finally:
            self._left()

    @contextmanager
    def out_of_hand(self) -> Iterator[None]:
        """What is in hand waits for something else until the context ends, so nothing is held up for it meanwhile."""
        self._left()
        try:
            yield
        finally:
            self._taken()

    def _taken(self) -> None:
        self._in_hand += 1
        self._clear.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _left(self) -> None:
        self._in_hand -= 1
        if not self._in_hand:
            self._timer = asyncio.get_running_loop().call_later(_AFTERWARDS, self._clear.set)

    async def wait(self, most: float | None = None) -> None:
        """Wait until nothing is in hand, at most so many seconds (MOST_SECONDS)."""
        if self._clear.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(MOST_SECONDS if most is None else most):
                await self._clear.wait()


class Turns:
    """The kubelet's claims that are worked on: `MAX_SIDE_BY_SIDE` at one time, each in hand at the gate."""

    def __init__(self, gate: PriorityGate) -> None:
        self._gate = gate
        self._free = asyncio.Semaphore(MAX_SIDE_BY_SIDE)
        self._has_one: ContextVar[bool] = ContextVar("has_one", default=False)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the context ends."""
        async with self._free:
            mark = self._has_one.set(True)
            try:
                with self._gate.in_hand():
                    yield
            finally:
                self._has_one.reset(mark)

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Let others have the turn that the task has, if it has one, while it waits for something outside of the node.

        At its end the task waits for a turn again.
        """
        if not self._has_one.get():
            yield
            return
        with self._gate.out_of_hand():
            self._free.release()
            try:
                yield
            finally:
                await self._free.acquire()
