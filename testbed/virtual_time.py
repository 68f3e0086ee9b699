"""An event loop whose clock jumps to the next timer, for tests of code that waits: hours pass in no time, in order.

Only for code whose every wait is a timer or another task: it must not wait for an outside event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Loop(asyncio.SelectorEventLoop):
    """Time passes only while nothing can be done."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


def run(story: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in time that jumps.

    Raises:
        RuntimeError: it left tasks behind.
    """
    with asyncio.Runner(loop_factory=_Loop) as runner:
        found = runner.run(story)
        loop = runner.get_loop()
        if left := asyncio.all_tasks(loop):
            raise RuntimeError(f"tasks are left: {left}")
        return found
