"""A wait is counted once, by its name, and named when it times out."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from testbed.waiting import account, awaited, until, until_async, waiting

STEP = 0.05
NEVER = 3600.0


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    """An account with nothing in it."""
    account()
    yield
    account()


def test_waited_seconds_are_counted_by_subject_until_read() -> None:
    for subject in ("the kettle", "the toast", "the kettle"):
        with waiting(subject):
            time.sleep(STEP)
    taken = account()
    assert taken.keys() == {"the kettle", "the toast"}
    assert taken["the kettle"] >= 2 * STEP
    assert taken["the toast"] >= STEP
    assert account() == {}


def test_a_wait_within_another_counts_only_for_the_outer_one() -> None:
    with waiting("breakfast"):
        until(lambda: True, "the kettle")
        with waiting("the toast"):
            time.sleep(STEP)
    assert account().keys() == {"breakfast"}
    with waiting("the toast"):
        pass
    assert account().keys() == {"the toast"}


def test_a_failed_wait_is_counted_too() -> None:
    with pytest.raises(ValueError, match="burnt"), waiting("the toast"):
        raise ValueError("burnt")
    assert account().keys() == {"the toast"}


def test_threads_count_each_for_itself_and_those_that_a_coroutine_waits_for_count_once() -> None:
    def wait() -> None:
        with waiting("the kettle"):
            time.sleep(STEP)

    with waiting("breakfast"):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    assert account().keys() == {"the kettle", "breakfast"}

    async def story() -> None:
        with waiting("breakfast"):
            await asyncio.to_thread(wait)

    asyncio.run(story())
    assert account().keys() == {"breakfast"}


def test_coroutines_beside_each_other_each_count_their_own() -> None:
    async def wait(subject: str) -> None:
        with waiting(subject):
            await asyncio.sleep(STEP)

    async def story() -> None:
        await asyncio.gather(wait("the kettle"), wait("the toast"))

    asyncio.run(story())
    assert account().keys() == {"the kettle", "the toast"}


def test_the_answer_is_asked_for_until_it_is_true_and_given_back() -> None:
    answers = iter([0, None, "", "hot"])
    assert until(lambda: next(answers), "the kettle") == "hot"
    assert account()["the kettle"] > 0


def test_a_timeout_names_the_subject_and_its_last_detail() -> None:
    with pytest.raises(TimeoutError, match=r"^waited 0\.1 s for the kettle: it has 20 degrees$"):
        until(lambda: False, "the kettle", seconds=0.1, detail=lambda: "it has 20 degrees")
    with pytest.raises(TimeoutError, match=r"^waited 0 s for the toast$"):
        until(lambda: False, "the toast", seconds=0)
    assert account()["the kettle"] >= 0.1


def test_a_condition_met_at_a_slow_last_check_counts_as_in_time() -> None:
    def slow() -> bool:
        time.sleep(STEP)
        return True

    assert until(slow, "the kettle", seconds=0)


def test_the_slower_the_asking_the_rarer() -> None:
    asked: list[float] = []

    def slow() -> bool:
        asked.append(time.monotonic())
        time.sleep(2 * STEP)
        return len(asked) == 3

    until(slow, "the kettle")
    assert asked[1] - asked[0] >= 6 * STEP


def test_an_async_wait_blocks_no_other_task_with_plain_or_awaited_conditions() -> None:
    async def story() -> None:
        hot: list[bool] = []
        asyncio.get_running_loop().call_later(STEP, hot.append, True)
        await until_async(lambda: hot, "the kettle")

        async def is_cold() -> bool:
            await asyncio.sleep(0)
            return False

        with pytest.raises(TimeoutError, match=r"waited 0\.1 s for the toast: \[True\]"):
            await until_async(is_cold, "the toast", seconds=0.1, detail=lambda: hot)

    asyncio.run(story())
    taken = account()
    assert taken["the kettle"] >= STEP
    assert taken["the toast"] >= 0.1


def test_an_event_is_awaited_and_named_when_it_does_not_come() -> None:
    async def fails() -> None:
        raise TimeoutError("the kettle's own")

    async def story() -> None:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(STEP, event.set)
        assert await awaited(event.wait(), "the kettle")
        with pytest.raises(TimeoutError, match=r"waited 0\.1 s for the toast"):
            await awaited(asyncio.sleep(NEVER), "the toast", seconds=0.1)
        with pytest.raises(TimeoutError, match="the kettle's own"):
            await awaited(fails(), "the kettle")

    asyncio.run(story())
    assert account()["the kettle"] >= STEP
