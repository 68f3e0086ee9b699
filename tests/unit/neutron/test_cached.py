"""Answers that are kept for a while, and the bound on requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.neutron.cached import Budget, Cached


class Server:
    """Counts what it is asked, and may refuse."""

    def __init__(self) -> None:
        self.asked, self.refuses, self.now = 0, False, 0.0

    async def answer(self) -> int:
        self.asked += 1
        number = self.asked
        await asyncio.sleep(0)
        if self.refuses:
            raise ValueError(number)
        return number


def story(tell: Callable[[Server, Cached[str, int]], Awaitable[None]]) -> None:
    async def told() -> None:
        server = Server()
        await tell(server, Cached(10.0, clock=lambda: server.now))

    asyncio.run(told())


def test_an_answer_is_good_for_a_while_and_of_its_question() -> None:
    async def tell(server: Server, cached: Cached[str, int]) -> None:
        assert [await cached.get("a", server.answer) for _ in range(3)] == [1, 1, 1]
        assert await cached.get("b", server.answer) == 2
        server.now = 9.9
        assert await cached.get("a", server.answer) == 1
        server.now = 10.0
        assert await cached.get("a", server.answer) == 3
        assert await cached.get("a", server.answer, fresh=True) == 4
        assert await cached.get("a", server.answer) == 4
        cached.forget("a")
        assert await cached.get("a", server.answer) == 5
        cached.forget()
        assert await cached.get("a", server.answer) == 6

    story(tell)


def test_many_who_ask_at_once_are_one_request() -> None:
    async def tell(server: Server, cached: Cached[str, int]) -> None:
        assert set(await asyncio.gather(*(cached.get("a", server.answer) for _ in range(50)))) == {1}
        assert server.asked == 1

    story(tell)


def test_an_error_is_for_those_who_wait_for_it_and_is_not_kept() -> None:
    async def tell(server: Server, cached: Cached[str, int]) -> None:
        server.refuses = True
        answers = await asyncio.gather(*(cached.get("a", server.answer) for _ in range(5)), return_exceptions=True)
        assert {type(answer) for answer in answers} == {ValueError}
        assert server.asked == 1
        server.refuses = False
        assert await cached.get("a", server.answer) == 2

    story(tell)


def test_one_who_is_cancelled_leaves_the_answer_to_the_others() -> None:
    async def tell(server: Server, cached: Cached[str, int]) -> None:
        first, second = (asyncio.create_task(cached.get("a", server.answer)) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 1
        with pytest.raises(asyncio.CancelledError):
            await first

    story(tell)


@given(
    per_second=st.floats(min_value=0.5, max_value=100),
    at_once=st.integers(min_value=1, max_value=20),
    pauses=st.lists(st.floats(min_value=0, max_value=3), max_size=60),
)
def test_no_span_of_time_has_more_requests_than_the_budget(
    per_second: float, at_once: int, pauses: list[float]
) -> None:
    now, begun = 0.0, []

    async def sleep(seconds: float) -> None:
        begun.append(now + seconds)

    async def told() -> None:
        nonlocal now
        budget = Budget(per_second, at_once, clock=lambda: now, sleep=sleep)
        for pause in pauses:
            now += pause
            before = len(begun)
            await budget.take()
            if len(begun) == before:
                begun.append(now)

    asyncio.run(told())
    for first in range(len(begun)):
        for last in range(first, len(begun)):
            assert last - first + 1 <= at_once + (begun[last] - begun[first]) * per_second + 1 + 1e-6


def test_without_a_bound_nobody_waits() -> None:
    async def told() -> None:
        budget = Budget(0, 1)
        await asyncio.wait_for(asyncio.gather(*(budget.take() for _ in range(1000))), 5.0)

    asyncio.run(told())
