"""After thousands of pods with random faults, the driver's memory, descriptors and files are as before.

A few dozen pods in a test run, drawn as `tests.draws` states. `make soak` has 10,000 (NETDRA_MANY_PODS), and inspects
everything after each 1,000.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests import draws
from tests.cluster.sandboxes.many import AT_ONCE, Node, Remains, allocations, running
from tests.cluster.sandboxes.scene import Scene

PODS = int(os.environ.get("NETDRA_MANY_PODS") or 56)
PART = min(1000, PODS // 2)
"""After how many pods everything is inspected; the first part fills what is bounded."""
SECONDS_EACH = 1.0


class Defects(logging.Handler):
    """Collects the errors that netdra logs; pytest would keep every line, and grow."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Collect a line."""
        self.lines.append(self.format(record))


@contextmanager
def defects() -> Iterator[list[str]]:
    """The errors that netdra logs in this context."""
    log, handler = logging.getLogger("netdra"), Defects()
    log.addHandler(handler)
    log.propagate = False
    try:
        yield handler.lines
    finally:
        log.propagate = True
        log.removeHandler(handler)


async def many(node: Node, tell: Callable[[str], None]) -> None:
    """All pods, part by part.

    Raises:
        AssertionError: something has grown since the first part.
    """
    before: Remains | None = None
    for part in range(1, PODS // PART + 1):
        began = time.monotonic()
        for _ in range(PART // AT_ONCE):
            await node.round()
        now = await node.remains(before)
        tell(f"{part * PART} pods, the last {PART} in {time.monotonic() - began:.0f} s: {now}; {dict(node.done)}")
        assert before is None or not now.growth(before), node.done
        before = before or now


@pytest.mark.timeout(120 + SECONDS_EACH * PODS)
def test_after_many_pods_with_faults_nothing_has_grown(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("NETDRA_SOAK_SEED") or draws.seed())

    def tell(line: str) -> None:
        if PODS >= 1000:
            with capsys.disabled():
                print(f"\nseed {seed}: {line}", flush=True)

    async def story() -> list[str]:
        async with running(scene, random.Random(seed), allocations(scene)) as node:
            with defects() as lines:
                await many(node, tell)
            return [*node.problems, *lines]

    assert asyncio.run(story()) == [], f"seed {seed}"
