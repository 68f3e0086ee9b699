"""A key is worked on by one worker at a time until it succeeds, with any additions and any ends of the work."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.kube import queue as queues
from netdra.kube.errors import Status, UnavailableError
from netdra.kube.metrics import KUBE
from netdra.kube.queue import WorkQueue
from netdra.model.errors import PermanentError, TemporaryError
from testbed import virtual_time

FIRST, MOST, REFUSED = 0.2, 3.0, 30.0
ENDS = ("ok", "again", "temporary", "asked", "permanent", "defect", "cancelled")
WAITS = {"again": 0.0, "temporary": 0.0, "asked": 5.0, "permanent": REFUSED, "defect": REFUSED, "cancelled": 0.0}


@dataclass(frozen=True)
class Run:
    key: str
    began: float
    ended: float
    end: str


@dataclass
class Worker:
    """Works on keys as long as the test defines, and ends as it defines; later runs succeed.

    Attributes:
        ends: how the runs of each key end, in their order.
        lasts: how long each run takes, by its number.
    """

    ends: dict[str, list[str]] = field(default_factory=dict)
    lasts: tuple[float, ...] = (0.0,)
    runs: list[Run] = field(default_factory=list)
    busy: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0
    _number: int = 0

    async def __call__(self, key: str) -> float | None:
        began = now()
        self.busy[key] += 1
        self.most_at_once = max(self.most_at_once, self.busy.total())
        assert self.busy[key] == 1, "two workers of one key"
        ends = self.ends.get(key, [])
        end = ends.pop(0) if ends else "ok"
        self._number += 1
        try:
            await asyncio.sleep(self.lasts[self._number % len(self.lasts)])
            return self._end(key, end)
        except asyncio.CancelledError:
            end = end if end == "cancelled" else "stopped"
            raise
        finally:
            self.busy[key] -= 1
            self.runs.append(Run(key, began, now(), end))

    def _end(self, key: str, end: str) -> float | None:
        match end:
            case "temporary":
                raise TemporaryError(f"{key} is busy")
            case "asked":
                raise UnavailableError("too many requests", Status(code=429), retry_after=5.0)
            case "permanent":
                raise PermanentError(f"{key} is refused")
            case "defect":
                raise KeyError(key)
            case "cancelled":
                raise asyncio.CancelledError
        return None if end == "ok" else queues.AGAIN

    def of(self, key: str) -> list[Run]:
        return [run for run in self.runs if run.key == key]


def now() -> float:
    return asyncio.get_running_loop().time()


def made(work: Callable[[str], Awaitable[float | None]], workers: int = 2) -> WorkQueue[str]:
    return WorkQueue("test", work, workers=workers, first=FIRST, most=MOST, refused=REFUSED)


async def stopped(running: asyncio.Task[None]) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def story(work: Worker, tell: Callable[[WorkQueue[str]], Awaitable[None]], workers: int = 2) -> None:
    """Run a queue while `tell` uses it, until no work is left."""

    async def main() -> None:
        queue = made(work, workers)
        running = asyncio.create_task(queue.run())
        await tell(queue)
        await queue.drain()
        assert len(queue) == 0
        await stopped(running)

    virtual_time.run(main())


LAST = -1.0
"""Added to be worked on when no other key is ready."""
adds = st.tuples(
    st.sampled_from("abcd"), st.sampled_from((0.0, 0.0, 0.1, 1.0, 10.0, LAST)), st.sampled_from((0.0, 0.05, 2.0))
)


@settings(max_examples=80, deadline=None)
@given(
    told=st.lists(adds, max_size=25),
    ends=st.dictionaries(st.sampled_from("abcd"), st.lists(st.sampled_from(ENDS), max_size=8)),
    lasts=st.lists(st.sampled_from((0.0, 0.01, 0.5, 4.0)), min_size=1, max_size=5),
    workers=st.integers(1, 4),
)
def test_no_key_is_lost_doubled_or_left_undone(
    told: list[tuple[str, float, float]], ends: dict[str, list[str]], lasts: list[float], workers: int
) -> None:
    work = Worker({key: list(of) for key, of in ends.items()}, tuple(lasts))
    due: list[tuple[str, float]] = []

    async def tell(queue: WorkQueue[str]) -> None:
        for key, after, pause in told:
            if after == LAST:
                queue.add_last(key)
            else:
                queue.add(key, after)
            due.append((key, now()))
            await asyncio.sleep(pause)

    story(work, tell, workers)
    assert work.most_at_once <= workers
    for key, at in due:
        # Whoever adds a key has it worked on from then on, up to a success.
        assert any(run.began >= at and run.end == "ok" for run in work.of(key))
    for key in {key for key, _ in due}:
        assert work.of(key)[-1].end == "ok"
    assert len(work.runs) <= len(told) + sum(len(of) for of in ends.values())


@settings(max_examples=40, deadline=None)
@given(ends=st.lists(st.sampled_from(ENDS[1:]), max_size=12))
def test_a_key_that_goes_on_failing_waits_longer_each_time_and_starts_anew_after_a_success(ends: list[str]) -> None:
    work = Worker({"a": [*ends, "ok", "temporary"]})

    async def tell(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await queue.drain()
        queue.add("a")

    story(work, tell)
    *runs, succeeded, failed, last = work.of("a")
    assert (succeeded.end, failed.end, last.end) == ("ok", "temporary", "ok")
    for number, (run, following) in enumerate(pairwise([*runs, succeeded])):
        bound = min(MOST, FIRST * 2**number)
        assert bound / 2 - 1e-6 <= following.began - run.ended - WAITS[run.end] <= bound + 1e-6
    assert last.began - failed.ended <= FIRST + 1e-6


@settings(max_examples=40, deadline=None)
@given(at=st.sampled_from((0.0, 0.3, 0.6, 5.0)), workers=st.integers(1, 3))
def test_when_it_is_stopped_no_task_is_left_and_nothing_is_lost_for_the_next_run(at: float, workers: int) -> None:
    work = Worker({"a": ["temporary"] * 3, "b": ["permanent"]}, lasts=(0.5, 0.0, 2.0))

    async def main() -> None:
        queue = made(work, workers)
        for key in "abc":
            queue.add(key)
        queue.add("d", 100.0)
        queue.add_last("e")
        running = asyncio.create_task(queue.run())
        await asyncio.sleep(at)
        await stopped(running)
        before = len(work.runs)
        await asyncio.sleep(1000.0)
        assert (len(work.runs), work.busy.total()) == (before, 0)
        again = asyncio.create_task(queue.run())
        await queue.drain()
        await stopped(again)

    virtual_time.run(main())
    assert {run.key for run in work.runs if run.end == "ok"} == set("abcde")


def test_a_key_added_while_it_is_processed_is_processed_once_more() -> None:
    work = Worker(lasts=(1.0,))

    async def tell(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await asyncio.sleep(0.5)
        assert queue.is_busy("a")
        for _ in range(3):
            queue.add("a")

    story(work, tell)
    assert [run.began for run in work.of("a")] == [0.0, 1.0]


def test_keys_come_in_the_order_in_which_they_were_added() -> None:
    work = Worker()

    async def tell(queue: WorkQueue[str]) -> None:
        for key in "badab":
            queue.add(key)

    story(work, tell, workers=1)
    assert [run.key for run in work.runs] == ["b", "a", "d"]


def test_keys_that_can_wait_come_when_no_other_is_ready_unless_they_are_added_again() -> None:
    work = Worker(lasts=(1.0,))

    async def tell(queue: WorkQueue[str]) -> None:
        for key in "stuv":
            queue.add_last(key)
        queue.add("a")
        await asyncio.sleep(1.5)  # s is worked on
        queue.add_last("a")
        queue.add("b")
        queue.add("u")
        queue.add("t", 0.1)

    story(work, tell, workers=1)
    assert [run.key for run in work.runs] == ["a", "s", "b", "u", "t", "v", "a"]


def test_the_shortest_delay_wins_and_an_urgent_key_runs_at_once() -> None:
    work = Worker()

    async def tell(queue: WorkQueue[str]) -> None:
        for after in (10.0, 2.0, 5.0):
            queue.add("a", after)
        queue.add("b", 3600.0)
        queue.add("b")

    story(work, tell)
    assert [(run.key, run.began) for run in work.runs] == [("b", 0.0), ("a", 2.0)]


def test_a_server_that_is_away_is_not_asked_at_the_pace_of_the_changes() -> None:
    work = Worker({"a": ["temporary"] * 100})

    async def tell(queue: WorkQueue[str]) -> None:
        for _ in range(int(10 * MOST / 0.05)):
            queue.add("a")
            await asyncio.sleep(0.05)
        assert len(work.of("a")) <= 30
        work.ends.clear()

    story(work, tell)


def test_a_permanently_failed_key_runs_at_once_when_it_is_added_again() -> None:
    work = Worker({"a": ["permanent"]})

    async def tell(queue: WorkQueue[str]) -> None:
        queue.add("a")
        await asyncio.sleep(1.0)
        queue.add("a")

    story(work, tell)
    assert [run.began for run in work.of("a")] == [0.0, 1.0]


def test_a_key_added_repeatedly_before_the_gate_opens_runs_once() -> None:
    work = Worker()
    gate = asyncio.Event()

    async def through() -> None:
        await gate.wait()

    async def main() -> None:
        queue = WorkQueue("test", work, gate=through)
        running = asyncio.create_task(queue.run())
        for _ in range(3):
            queue.add("a")
            await asyncio.sleep(0.1)
        gate.set()
        await queue.drain()
        await stopped(running)

    virtual_time.run(main())
    assert len(work.of("a")) == 1


def test_all_keys_together_are_repeated_at_a_rate_until_the_first_succeeds() -> None:
    keys = [f"k{number}" for number in range(1000)]
    away = 20.0
    runs: list[float] = []

    async def work(_: str) -> None:
        runs.append(now())
        if now() < away:
            raise TemporaryError("the server is away")

    async def main() -> float:
        queue = made(work, workers=12)
        running = asyncio.create_task(queue.run())
        for key in keys:
            queue.add(key)
        await queue.drain()
        await stopped(running)
        return now()

    ended = virtual_time.run(main())
    repeated = len([at for at in runs if at < away]) - len(keys)
    assert repeated <= queues.RETRIES_AT_ONCE + queues.RETRIES_PER_SECOND * away
    assert ended <= away + MOST + 1.0, "all wait for their own back-off only, once the server is there again"


def test_it_is_measured_as_client_go_measures_its_queues() -> None:
    def value(name: str) -> float:
        return KUBE.registry.get_sample_value(f"netdra_workqueue_{name}", {"queue": "test"}) or 0.0

    names = ("adds_total", "retries_total", "queue_duration_seconds_count", "work_duration_seconds_sum")
    before = {name: value(name) for name in names}

    async def tell(queue: WorkQueue[str]) -> None:
        queue.add("a")
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(0.5)
        assert value("depth") == 1.0

    story(Worker({"a": ["temporary"]}, lasts=(1.0,)), tell, workers=1)
    assert [value(name) - before[name] for name in names] == [3.0, 1.0, 3.0, 3.0]
    assert value("depth") == 0.0


def test_a_defect_is_logged_and_other_keys_are_worked_on(caplog: pytest.LogCaptureFixture) -> None:
    work = Worker({"a": ["defect"]})

    async def tell(queue: WorkQueue[str]) -> None:
        queue.add("a")
        queue.add("b")

    story(work, tell, workers=1)
    assert [run.key for run in work.runs] == ["a", "b", "a"]
    assert "internal error of netdra" in caplog.text
