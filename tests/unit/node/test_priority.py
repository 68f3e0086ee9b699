"""Work that can wait lets what pods wait for go first, and is never held up for long."""

from __future__ import annotations

import asyncio

import pytest

from netdra.node import priority
from netdra.node.priority import MAX_SIDE_BY_SIDE, PriorityGate, Turns
from testbed.waiting import PATIENCE


def test_an_idle_priority_gate_delays_no_caller() -> None:
    async def work() -> None:
        async with asyncio.timeout(PATIENCE):
            await PriorityGate().wait()

    asyncio.run(work())


def test_the_gate_opens_when_the_last_of_several_has_ended() -> None:
    async def work() -> None:
        shared = PriorityGate()
        with shared.in_hand():
            with shared.in_hand():
                pass
            waiting = asyncio.ensure_future(shared.wait(1000.0))
            await asyncio.sleep(0.02)
            assert not waiting.done()
        async with asyncio.timeout(PATIENCE):
            await waiting

    asyncio.run(work())


def test_one_that_begins_just_after_another_has_ended_is_let_go_first_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        shared = PriorityGate()
        with shared.in_hand():
            waiting = asyncio.ensure_future(shared.wait())
            await asyncio.sleep(0)  # it waits by now; between the two no time passes for the event loop
        with shared.in_hand():
            await asyncio.sleep(0.2)
            assert not waiting.done()
        async with asyncio.timeout(PATIENCE):
            await waiting

    monkeypatch.setattr(priority, "MOST_SECONDS", 1000.0)
    monkeypatch.setattr(priority, "_AFTERWARDS", 0.05)
    asyncio.run(work())


def test_a_busy_priority_gate_delays_a_caller_only_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        shared = PriorityGate()
        async with asyncio.timeout(PATIENCE):
            with shared.in_hand():
                await shared.wait()

    monkeypatch.setattr(priority, "MOST_SECONDS", 0.01)
    asyncio.run(work())


def test_a_task_that_ends_while_it_waits_for_its_turn_again_gives_back_no_turn_that_it_does_not_have() -> None:
    async def work() -> None:
        turns, done = Turns(PriorityGate()), asyncio.Event()
        busy = most = 0

        async def one() -> None:
            nonlocal busy, most
            async with turns.taken():
                busy += 1
                most = max(most, busy)
                await done.wait()
                busy -= 1

        async def late() -> None:
            async with turns.taken(), asyncio.timeout(0.02), turns.aside():
                others.extend(asyncio.create_task(one()) for _ in range(2 * MAX_SIDE_BY_SIDE))
                await asyncio.sleep(0)

        others: list[asyncio.Task[None]] = []
        with pytest.raises(TimeoutError):
            await late()
        for _ in range(10):
            await asyncio.sleep(0)
        assert (busy, most) == (MAX_SIDE_BY_SIDE, MAX_SIDE_BY_SIDE)
        done.set()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*others)

    asyncio.run(work())
