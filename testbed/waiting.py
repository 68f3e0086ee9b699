"""Waiting for what cannot be watched, and an account of what was waited for and how long.

Used by the test bed wherever it waits, and by tests. The account is what `make test` shows of its slowest tests.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 60.0
_PAUSE = 0.02

_inside: ContextVar[bool] = ContextVar("inside", default=False)
_account: defaultdict[str, float] = defaultdict(float)
_lock = Lock()


@contextmanager
def waiting(subject: str) -> Iterator[None]:
    """Count the seconds of a block as waited for a subject ("pods", "kubelet ready").

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
    holds: Callable[[], T],
    subject: str,
    *,
    seconds: float = PATIENCE,
    pause: float = _PAUSE,
    detail: Callable[[], object] | None = None,
) -> T:
    """Ask again and again until the answer is true, and return it.

    Args:
        holds: what is asked.
        subject: what is waited for, in the account and in the error.
        seconds: how long at most.
        pause: seconds between two questions.
        detail: what else the error says, asked at the end.

    Raises:
        TimeoutError: it did not become true in time.
    """
    deadline = time.monotonic() + seconds
    with waiting(subject):
        while not (answer := holds()):
            if time.monotonic() > deadline:
                raise _late(subject, seconds, detail)
            time.sleep(pause)
    return answer


async def until_async(
    holds: Callable[[], T],
    subject: str,
    *,
    seconds: float = PATIENCE,
    pause: float = _PAUSE,
    detail: Callable[[], object] | None = None,
) -> T:
    """`until` for what happens in the same event loop.

    Raises:
        TimeoutError: as `until`.
    """
    deadline = time.monotonic() + seconds
    with waiting(subject):
        while not (answer := holds()):
            if time.monotonic() > deadline:
                raise _late(subject, seconds, detail)
            await asyncio.sleep(pause)
    return answer


def _late(subject: str, seconds: float, detail: Callable[[], object] | None) -> TimeoutError:
    last = "" if detail is None else f": {detail()}"
    return TimeoutError(f"waited {seconds:g} s for {subject}{last}")
