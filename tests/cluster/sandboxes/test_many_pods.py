"""After thousands of pods with random faults, the driver's memory, descriptors and files are as before.

A hundred pods in a test run, drawn as `tests.draws` states; `make soak` has 10,000 (NETDRA_MANY_PODS), and inspects
everything after each 1,000.
"""

from __future__ import annotations

import asyncio
import os
import random
import time

import pytest

from tests import draws
from tests.cluster.sandboxes.many import AT_ONCE, Remains, allocations, running
from tests.cluster.sandboxes.scene import Scene

PODS = int(os.environ.get("NETDRA_MANY_PODS") or 80)
PART = min(1000, PODS // 2)
"""After how many pods everything is inspected; the first part fills what is bounded."""


@pytest.mark.timeout(60 + PODS)
def test_after_many_pods_with_faults_nothing_has_grown(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    found = allocations(scene)
    seed = draws.seed()

    async def story() -> None:
        async with running(scene, random.Random(seed), found) as node:
            before: Remains | None = None
            for part in range(PODS // PART):
                began = time.monotonic()
                for _ in range(PART // AT_ONCE):
                    await node.round()
                now = await node.remains(before)
                with capsys.disabled():
                    print(f"\n{(part + 1) * PART} pods, {time.monotonic() - began:.0f} s, seed {seed}: {now.memory >> 10} KiB, {now.objects} objects, "
                        f"{now.descriptors} descriptors, {now.tasks} tasks, {now.threads} threads, {len(now.files)} files; {dict(node.done)}", flush=True)
                with capsys.disabled(): print(node.problems)
                if os.environ.get("DBG"):
                    import gc, collections
                    h = collections.Counter(str(type(o)) for o in gc.get_objects())
                    if 'h0' in globals():
                        with capsys.disabled(): print((h-globals()['h0']).most_common(25))
                    globals()['h0']=h
                if before is not None:
                    assert not [*now.growth(before), *now.growth_of_memory(before)], f"seed {seed}: {node.done}"
                before = before or now

    import logging
    lg=logging.getLogger("netdra"); lg.propagate=False; lg.addHandler(logging.NullHandler())
    asyncio.run(story())
    lg.propagate=True
