"""Waits for conditions that cannot be watched, and an account of the waits and their lengths.

Used by the test bed wherever it waits, and by tests. `make test` shows the account for its slowest tests.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 60.0
_PAUSE, _MOST_PAUSE = 0.02, 3.0
_TIMES_AS_LONG = 6

_inside: ContextVar[bool] = ContextVar("inside", default=False)
_account: defaultdict[str, float] = defaultdict(float)
_lock = Lock()


@contextmanager
def waiting(subject: str) -> Iterator[None]:
    """Count the seconds of a block as waited for a subject ("pods", "the kubelet to be ready").

    A block inside another one counts for the outer one alone.
    """
    if _inside.get():
        yield
        return
    token = _inside.set(True)
    started = time.monotonic()
    try:
        yield
    finally:
        _inside.reset(token)
        with _lock:
            _account[subject] += time.monotonic() - started


def account() -> dict[str, float]:
    """The seconds that were waited since the last call, by subject."""
    with _lock:
        taken = dict(_account)
        _account.clear()
    return taken


def until(
    holds: Callable[[], T | None],
    subject: str,
    *,
    seconds: float = PATIENCE,
    detail: Callable[[], object] | None = None,
) -> T:
    """Ask again and again until the answer is true, and return it.

    Args:
        holds: the question.
        subject: the name of the wait, in the account and in the error.
        seconds: how long at most.
        detail: what else the error states, asked at the end.

    Raises:
        TimeoutError: it did not become true in time.
    """
    deadline = time.monotonic() + seconds
    with waiting(subject):
        while True:
            asked = time.monotonic()
            if answer := holds():
                return answer
            if asked > deadline:
                raise _late(subject, seconds, detail)
            time.sleep(_pause(asked))


async def until_async(
    holds: Callable[[], object],
    subject: str,
    *,
    seconds: float = PATIENCE,
    detail: Callable[[], object] | None = None,
) -> None:
    """`until` for events in the same event loop; the question may be a coroutine.

    Raises:
        TimeoutError: as `until`.
    """
    deadline = time.monotonic() + seconds
    with waiting(subject):
        while True:
            asked = time.monotonic()
            answer = holds()
            if await answer if inspect.isawaitable(answer) else answer:
                return
            if asked > deadline:
                raise _late(subject, seconds, detail)
            await asyncio.sleep(_pause(asked))


async def awaited(event: Awaitable[T], subject: str, *, seconds: float = PATIENCE) -> T:
    """Await what comes by itself, such as `asyncio.Event.wait`.

    Raises:
        TimeoutError: it did not come in time.
    """
    with waiting(subject):
        try:
            async with asyncio.timeout(seconds) as patience:
                return await event
        except TimeoutError:
            if patience.expired():
                raise _late(subject, seconds, None) from None
            raise


def _pause(asked: float) -> float:
    """How long to wait before asking again: longer than asking took, since the work often needs the same core."""
    return min(max(_PAUSE, _TIMES_AS_LONG * (time.monotonic() - asked)), _MOST_PAUSE)


def _late(subject: str, seconds: float, detail: Callable[[], object] | None) -> TimeoutError:
    last = "" if detail is None else f": {detail()}"
    return TimeoutError(f"waited {seconds:g} s for {subject}{last}")
