"""Policies that were written to keep a node's daemon busy, past any webhook: the node continues, and reports them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from testbed.api import Objects
from testbed.control_plane import ControlPlane
from testbed.pace import within
from testbed.workspace import Workspace
from tests.cluster.publishing.scene import EVENT, about, policy, publishing
from tests.kernel.conftest import Machine, new_machine

LETTERS = '"' + "a" * 9000 + '"'
ATTACKS = {
    "backtracking": f'{LETTERS}.find("a*a*a*a*b") != ""',
    "memory": LETTERS + '.replace("a", "aa")' * 20 + ' == ""',
    "instructions": '[1, 2, 3, 4, 5, 6, 7, 8, 9].all(x, "aaaaaaaaa".matches(r"(\\pL{10}){20}"))',
    "file": 'timestamp("2026-01-01T00:00:00Z").getHours("../../../dev/watchdog") == 1',
    "costly": '[1, 2, 3, 4, 5, 6, 7, 8].all(a, "' + "a" * 1000 + '".matches("(a{10}){9}b"))',
}
"""The first and the last are within bounds: they are asked, and match nothing."""
REFUSED = {"memory", "instructions", "file"}
PUBLISHED_SECONDS = 3.0
TURN_SECONDS = 0.3
"""How long hooks, probes and the rest may wait for their turn; the interpreter's lock is given on every few ms."""


@pytest.fixture
def machine() -> Iterator[Machine]:
    """The node's network namespace."""
    yield from new_machine()


async def longest_turn(ended: asyncio.Event) -> float:
    """The longest that another task of the daemon waits for the event loop."""
    longest = 0.0
    while not ended.is_set():
        before = time.monotonic()
        await asyncio.sleep(0.005)
        longest = max(longest, time.monotonic() - before)
    return longest


@pytest.mark.usefixtures("custom_kinds")
def test_a_node_publishes_in_time_under_hostile_cel_policies_and_reports_rejected_ones(
    control_plane: ControlPlane, workspace: Workspace, machine: Machine
) -> None:
    async def story() -> None:
        for number in range(20):
            machine.veth(f"eth{number}", f"far{number}")
        policy(workspace)
        written = {name: policy(workspace, cel, name)["metadata"]["name"] for name, cel in ATTACKS.items()}
        async with publishing(control_plane, workspace, machine) as scene:
            await scene.devices(*(f"eth{number}" for number in range(20)))
            ended = asyncio.Event()
            turns = asyncio.create_task(longest_turn(ended))
            with within(PUBLISHED_SECONDS, "a new interface in the slices") as pace:
                machine.veth("eth99", "far99")
                await scene.wait(lambda found: "eth99" in found)
            ended.set()
            assert await turns < TURN_SECONDS * pace.slowness

            def told(events: Objects) -> bool:
                return all(about(events, written[name]) for name in REFUSED)

            events = await asyncio.to_thread(workspace.api.wait_for_all, EVENT, told)
            for name in REFUSED:
                assert "does not compile" in about(events, written[name])[0]["note"]
            assert not any(about(events, written[name]) for name in set(ATTACKS) - REFUSED)

    asyncio.run(story())
