"""Answers that are kept for a while, and the bound on requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.neutron.cached import Cached, InFlight, RequestBudget


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


def test_concurrent_lookups_of_one_key_share_a_single_request() -> None:
    async def tell(server: Server, cached: Cached[str, int]) -> None:
        assert set(await asyncio.gather(*(cached.get("a", server.answer) for _ in range(50)))) == {1}
        assert server.asked == 1

    story(tell)


def test_an_error_is_returned_to_all_waiters_and_not_cached() -> None:
    async def tell(server: Server, cached: Cached[str, int]) -> None:
        server.refuses = True
        answers = await asyncio.gather(*(cached.get("a", server.answer) for _ in range(5)), return_exceptions=True)
        assert {type(answer) for answer in answers} == {ValueError}
        assert server.asked == 1
        server.refuses = False
        assert await cached.get("a", server.answer) == 2

    story(tell)


def test_a_cancelled_waiter_does_not_cancel_the_request_of_the_others() -> None:
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
        budget = RequestBudget(per_second, at_once, clock=lambda: now, sleep=sleep)
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


def test_a_request_budget_without_a_limit_never_waits() -> None:
    async def told() -> None:
        budget = RequestBudget(0, 1)
        await asyncio.wait_for(asyncio.gather(*(budget.take() for _ in range(1000))), 5.0)

    asyncio.run(told())


class SerialServer:
    """Works on one request at a time, by a clock of its own."""

    def __init__(self, seconds: float, most: int, timeout: float) -> None:
        self.seconds, self.now, self.free_at = seconds, 0.0, 0.0
        self.timeout, self.late, self.done, self.under_way, self.peak = timeout, 0, 0, 0, 0
        self.in_flight = InFlight(most, timeout, clock=lambda: self.now)
        self._ends: list[tuple[float, asyncio.Event]] = []

    async def request(self) -> None:
        async with self.in_flight.turn():
            self.under_way += 1
            self.peak = max(self.peak, self.under_way)
            began = self.now
            self.free_at = max(self.free_at, began) + self.seconds
            event = asyncio.Event()
            self._ends.append((self.free_at, event))
            await event.wait()
            self.late += self.now - began > self.timeout
            self.under_way -= 1
        self.done += 1

    async def work(self, count: int) -> None:
        tasks = [asyncio.create_task(self.request()) for _ in range(count)]
        end = self.done + count
        while self.done < end:
            for _ in range(5):
                await asyncio.sleep(0)
            if self._ends:
                self._ends.sort(key=lambda end: end[0])
                self.now, event = self._ends.pop(0)
                event.set()
        await asyncio.gather(*tasks)


@pytest.mark.parametrize(("seconds", "late"), [(0.1, 0), (1.0, 0), (2.0, 8), (4.0, 8), (10.0, 8)])
def test_a_server_that_works_on_one_request_at_a_time_answers_in_time(seconds: float, late: int) -> None:
    async def told() -> None:
        server = SerialServer(seconds, 8, 15.0)
        await server.work(60)
        assert server.late <= late, "only some of those that were begun before anything was known"
        assert server.peak <= 8

    asyncio.run(told())


def test_more_requests_are_under_way_again_when_answers_are_early() -> None:
    async def told() -> None:
        server = SerialServer(10.0, 8, 15.0)
        await server.work(20)
        assert server.in_flight.limit < 3
        server.seconds = 0.01
        await server.work(80)
        assert server.in_flight.limit > 7

    asyncio.run(told())


def test_cancelled_waiters_do_not_block_the_turns_of_the_others() -> None:
    async def told() -> None:
        in_flight = InFlight(1, 10.0)
        ended = []

        async def request(number: int) -> None:
            async with in_flight.turn():
                await asyncio.sleep(0)
            ended.append(number)

        tasks = [asyncio.create_task(request(number)) for number in range(6)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        tasks[2].cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5.0)
        assert ended == [0, 3, 4, 5]

    asyncio.run(told())
