"""Work is done once however often it is noted, in time, and again when it failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from netdra.controller.work import Key, Work
from testbed.waiting import PATIENCE

A, B = Key("k", "a"), Key("k", "b")


def done(story: Callable[[Work], None], look: Callable[[Key], float | None], count: int) -> list[Key]:
    """The first so many keys that were looked at."""

    async def main() -> list[Key]:
        work, looked, enough = Work(), [], asyncio.Event()

        async def one(key: Key) -> float | None:
            looked.append(key)
            if len(looked) == count:
                enough.set()
            return look(key)

        story(work)
        running = asyncio.create_task(run(work, one))
        async with asyncio.timeout(PATIENCE):
            await enough.wait()
        running.cancel()
        return looked

    return asyncio.run(main())


async def run(work: Work, look: Callable[[Key], Awaitable[float | None]]) -> None:
    await work.run(look)


def test_what_is_noted_several_times_is_done_once_and_in_order() -> None:
    def story(work: Work) -> None:
        for key in (A, B, A, A, B):
            work.note(key)
        work.note(Key("k", "end"))

    assert done(story, lambda _: None, 3) == [A, B, Key("k", "end")]


def test_what_may_wait_waits_and_is_done_once() -> None:
    def story(work: Work) -> None:
        for _ in range(1000):
            work.note(A, 0.01)
        work.note(B)

    assert done(story, lambda _: None, 2) == [B, A]


def test_what_becomes_urgent_does_not_wait() -> None:
    async def main() -> None:
        work = Work()
        work.note(A, 3600)
        work.note(A)
        looked = asyncio.Event()

        async def look(_: Key) -> None:
            looked.set()

        running = asyncio.create_task(run(work, look))
        async with asyncio.timeout(PATIENCE):
            await looked.wait()
        assert work.idle
        running.cancel()

    asyncio.run(main())


def test_what_failed_is_done_again_and_holds_up_nothing() -> None:
    tries = {A: 0, B: 0}

    def look(key: Key) -> float | None:
        tries[key] += 1
        return 0.0 if key == A and tries[A] < 3 else None

    def story(work: Work) -> None:
        work.note(A)
        work.note(B)

    assert done(story, look, 4) == [A, B, A, A]
