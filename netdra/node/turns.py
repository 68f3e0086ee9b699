"""Work on one object, one task at a time: work that has begun continues to its end, even if its caller is cancelled.

A server cancels the handler of a call when the caller's deadline passes or its connection drops, but a
thread that the handler waits for cannot be cancelled. If the handler's lock were released then, a second call for the
same object would act beside that thread, and would answer that all is done. So the lock is held by a task of its own,
which the handler only waits for. Used for sandboxes (`netdra.node.sandboxes.table`) and for claims
(`netdra.node.claims.prepare`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from netdra.model.errors import NetdraError

log = logging.getLogger(__name__)

T = TypeVar("T")


async def run_in_turn(
    turn: AbstractAsyncContextManager[None], work: Callable[[], Coroutine[Any, Any, T]], subject: str
) -> T:
    """Wait for a turn and do some work in it; return the work's result.

    A caller that is cancelled while it waits releases its turn. Once the work has begun it continues to its end
    without the caller, and the turn is held until then.

    Args:
        turn: entered before the work begins, and left when it has ended.
        work: makes the coroutine that does the work.
        subject: the object, for the log.

    Raises:
        NetdraError: of the work.
    """
    has_begun = False

    async def act() -> T:
        nonlocal has_begun
        async with turn:
            has_begun = True
            return await work()

    task = asyncio.create_task(act())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if has_begun:
            task.add_done_callback(lambda ended: _log_outcome(ended, subject))
        else:
            task.cancel()
        raise


def _log_outcome(task: asyncio.Task[Any], subject: str) -> None:
    """Log the outcome of work whose caller did not wait for it."""
    if task.cancelled():
        return
    problem = task.exception()
    if problem is None:
        log.info("%s: completed after its caller had left", subject)
    elif isinstance(problem, NetdraError):
        log.warning("%s: failed after its caller had left: %s", subject, problem)
    else:
        log.error("%s: failed after its caller had left: a defect of netdra", subject, exc_info=problem)


class KeyedLocks:
    """A lock for each key in use or waited for. One event loop's."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def locked(self, key: str) -> AbstractAsyncContextManager[None]:
        """A key's lock, as a context that can be entered once."""
        return _KeyedLock(self._locks, key)


class _KeyedLock(AbstractAsyncContextManager[None]):
    def __init__(self, locks: dict[str, tuple[asyncio.Lock, int]], key: str) -> None:
        self._locks, self._key = locks, key

    async def __aenter__(self) -> None:
        lock, users = self._locks.get(self._key, (asyncio.Lock(), 0))
        self._locks[self._key] = lock, users + 1
        try:
            await lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._locks[self._key][0].release()
        self._leave()

    def _leave(self) -> None:
        lock, users = self._locks[self._key]
        if users == 1:
            del self._locks[self._key]
        else:
            self._locks[self._key] = lock, users - 1
