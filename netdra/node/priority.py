"""The priority gate: the runtime's hooks and the kubelet's calls, which pods wait for, go before all other work.

All parts of the daemon share one interpreter, and the event of a link that a hook moves is work for other parts at just
that moment: a thread that has to take the interpreter back after each call of the kernel loses milliseconds to them. So
publishing, statuses and other work that can wait await the gate first. Entered by `netdra.node.sandboxes` and
`netdra.node.kubelet`; one event loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from netdra.node.turns import KeyedLocks, run_in_turn

T = TypeVar("T")

MOST_SECONDS = 0.5
"""How long other work is held up at most, by however many hooks, unless it waits with a limit of its own."""
MAX_SIDE_BY_SIDE = 8
"""How many of the kubelet's claims are worked on at one time."""
_AFTERWARDS = 0.003  # seconds: the answer is on its way, and the next call in a row may come


class PriorityGate:
    """The hooks and calls in progress, which pods wait for."""

    def __init__(self) -> None:
        self._in_hand = 0
        self._clear = asyncio.Event()
        self._clear.set()
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def in_hand(self) -> Iterator[None]:
        """A hook or call is in progress until the context ends."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def out_of_hand(self) -> Iterator[None]:
        """The hook or call waits for something else until the context ends, and holds up nothing meanwhile."""
        self._leave()
        try:
            yield
        finally:
            self._enter()

    def _enter(self) -> None:
        self._in_hand += 1
        self._clear.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self) -> None:
        self._in_hand -= 1
        if not self._in_hand:
            self._timer = asyncio.get_running_loop().call_later(_AFTERWARDS, self._clear.set)

    async def wait(self, most: float | None = None) -> None:
        """Wait until nothing is in progress, at most so many seconds (MOST_SECONDS)."""
        if self._clear.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(MOST_SECONDS if most is None else most):
                await self._clear.wait()


class _Turn:
    """A task's turn: whether it has it just now."""

    def __init__(self) -> None:
        self.is_held = True


class Turns:
    """The claims in progress: one task a claim, and `MAX_SIDE_BY_SIDE` of the kubelet's, counted at the gate.

    Work on a claim that has begun continues to its end and keeps its turn, even if the caller is cancelled.
    """

    def __init__(self, gate: PriorityGate) -> None:
        self._gate = gate
        self._free = asyncio.Semaphore(MAX_SIDE_BY_SIDE)
        self._current: ContextVar[_Turn | None] = ContextVar("current", default=None)
        self._claims = KeyedLocks()

    async def run(self, claim: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do the work of a kubelet's call on a claim, by uid, alone and as one of few.

        Raises:
            NetdraError: of the work.
        """
        return await run_in_turn(self._alone_and_taken(claim), work, f"claim {claim}")

    async def run_alone(self, claim: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do other work on a claim, by uid, alone. It must not be called by work that has the claim's turn.

        Raises:
            NetdraError: of the work.
        """
        return await run_in_turn(self._claims.locked(claim), work, f"claim {claim}")

    @asynccontextmanager
    async def _alone_and_taken(self, claim: str) -> AsyncIterator[None]:
        # The claim's own turn comes first: a repeated call for a claim whose work hangs must not be one of the few.
        async with self._claims.locked(claim), self.taken():
            yield

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the context ends."""
        await self._free.acquire()
        turn = _Turn()
        mark = self._current.set(turn)
        try:
            with self._gate.in_hand():
                yield
        finally:
            self._current.reset(mark)
            if turn.is_held:
                self._free.release()

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Give other tasks this task's turn, if it has one, while it waits for something outside of the node.

        At its end the task waits for a turn again. A task that is cancelled meanwhile ends without one.
        """
        turn = self._current.get()
        if turn is None or not turn.is_held:
            yield
            return
        with self._gate.out_of_hand():
            self._free.release()
            turn.is_held = False
            try:
                yield
            finally:
                await self._free.acquire()
                turn.is_held = True
