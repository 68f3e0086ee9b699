"""With any calls, one thread acts on an object, and a caller gets the end of the work when it has ended."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model.errors import TemporaryError
from netdra.node.priority import MAX_SIDE_BY_SIDE, PriorityGate, Turns
from netdra.node.turns import KeyedLocks, run_in_turn
from testbed.waiting import PATIENCE

KEYS = ("a", "b")
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from(KEYS)),
        st.tuples(st.just("cancel"), st.integers(0, 20)),
        st.tuples(st.just("end"), st.integers(0, 20)),
        st.tuples(st.just("fail"), st.integers(0, 20)),
        st.tuples(st.just("wait"), st.just(0)),
    ),
    max_size=25,
)


@dataclass
class Work:
    """A call's work: a thread that cannot be cancelled."""

    key: str
    may_end: threading.Event = field(default_factory=threading.Event)
    has_ended: bool = False
    fails: bool = False


@dataclass
class Story:
    """Calls for a few objects, and their threads."""

    pool: ThreadPoolExecutor
    locks: KeyedLocks = field(default_factory=KeyedLocks)
    acting: Counter[str] = field(default_factory=Counter)
    calls: list[tuple[asyncio.Task[None], Work]] = field(default_factory=list)
    begun: list[Work] = field(default_factory=list)

    def call(self, key: str) -> None:
        work = Work(key)
        self.calls.append((asyncio.create_task(self._call(work)), work))

    async def _call(self, work: Work) -> None:
        await run_in_turn(self.locks.locked(work.key), lambda: self._act(work), work.key)
        assert work.has_ended, "a caller was answered before the work had ended"

    async def _act(self, work: Work) -> None:
        self.begun.append(work)
        await asyncio.get_running_loop().run_in_executor(self.pool, self._thread, work)
        if work.fails:
            raise TemporaryError("the thread failed")

    def _thread(self, work: Work) -> None:
        self.acting[work.key] += 1
        assert self.acting[work.key] == 1, "two threads act on one object"
        assert work.may_end.wait(PATIENCE)
        self.acting[work.key] -= 1
        work.has_ended = True

    def act(self, name: str, at: int) -> None:
        if name == "cancel" and self.calls:
            self.calls[at % len(self.calls)][0].cancel()
        if name in ("end", "fail") and self.begun:
            work = self.begun[at % len(self.begun)]
            work.fails = work.fails or (name == "fail" and not work.may_end.is_set())
            work.may_end.set()


@given(ACTS)
def test_any_order_of_calls_cancellations_and_ends_leaves_one_thread_an_object(
    acts: list[tuple[str, str | int]],
) -> None:
    async def main(pool: ThreadPoolExecutor) -> None:
        story = Story(pool)
        for name, what in acts:
            if isinstance(what, str):
                story.call(what)
            else:
                story.act(name, what)
            if name == "wait":
                await asyncio.sleep(0.001)
            await asyncio.sleep(0)
        while len(asyncio.all_tasks()) > 1:
            for work in story.begun:
                work.may_end.set()
            await asyncio.sleep(0.001)
        for task, work in story.calls:
            if task.cancelled():
                continue
            problem = task.exception()
            assert problem is None or (isinstance(problem, TemporaryError) and work.fails), problem
        assert all(work.has_ended for work in story.begun)
        assert not story.locks._locks

    with ThreadPoolExecutor(30) as pool:
        asyncio.run(main(pool))


def test_a_caller_that_leaves_before_its_turn_leaves_no_work_behind() -> None:
    async def main() -> None:
        locks, begun = KeyedLocks(), list[str]()

        async def work() -> None:
            begun.append("work")

        async with locks.locked("a"):
            waiting = asyncio.create_task(run_in_turn(locks.locked("a"), work, "a"))
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await asyncio.sleep(0.01)
        assert not begun
        assert not locks._locks

    asyncio.run(main())


def test_repeated_calls_for_a_claim_that_hangs_take_no_places_of_others() -> None:
    async def main() -> None:
        turns, may_end, done = Turns(PriorityGate()), asyncio.Event(), list[str]()

        async def hangs() -> None:
            await may_end.wait()

        async def works() -> None:
            done.append("other")

        calls = [asyncio.create_task(turns.run("stuck", hangs)) for _ in range(MAX_SIDE_BY_SIDE * 2)]
        await asyncio.sleep(0.01)
        for call in calls:
            call.cancel()
        more = [asyncio.create_task(turns.run("stuck", hangs)) for _ in range(MAX_SIDE_BY_SIDE * 2)]
        async with asyncio.timeout(PATIENCE):
            await turns.run("other", works)
        assert done == ["other"]
        may_end.set()
        await asyncio.gather(*calls, *more, return_exceptions=True)

    asyncio.run(main())


def test_after_its_caller_left_a_waiting_claim_gives_its_place_back() -> None:
    async def main() -> None:
        turns, may_end = Turns(PriorityGate()), asyncio.Event()
        inside = asyncio.Event()

        async def waits_aside() -> None:
            async with turns.aside():
                inside.set()
                await may_end.wait()

        call = asyncio.create_task(turns.run("a", waits_aside))
        await inside.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        may_end.set()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(turns.run(str(number), waits_aside) for number in range(MAX_SIDE_BY_SIDE)))
        assert turns._free._value == MAX_SIDE_BY_SIDE

    asyncio.run(main())
