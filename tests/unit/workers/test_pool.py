"""A pool answers in time or states why not, and is whole again for the next task."""

from __future__ import annotations

import asyncio
import sys

import pytest

from netdra.model.errors import TemporaryError
from netdra.workers import pool as pools
from netdra.workers.pool import (
    WorkerDefectError,
    WorkerEndedError,
    WorkerKilledError,
    WorkerPool,
    WorkersBusyError,
    WorkerTimeoutError,
)
from testbed.pace import stretched
from tests.unit.workers.commands import ABSENT, DEAD, DEAF, DEFECTIVE, GREEDY, LONG, STILLBORN

ECHO = (sys.executable, "-c", "from netdra.workers import process; process.main(lambda body: body.decode())")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that comes is waited for, however slowly the machine starts it."""
    monkeypatch.setattr(pools, "PATIENCE", 60.0)


def test_tasks_are_answered_side_by_side() -> None:
    async def story() -> list[bytes]:
        async with WorkerPool(ECHO, 2, seconds=60.0) as pool:
            return await asyncio.gather(*(pool.ask({"n": number}) for number in range(6)))

    assert asyncio.run(story()) == [f'"{{\\"n\\":{number}}}"'.encode() for number in range(6)]


@pytest.mark.parametrize(
    ("command", "error"),
    [(DEAF, WorkerTimeoutError), (DEAD, WorkerEndedError), (GREEDY, WorkerEndedError), (LONG, WorkerEndedError)],
    ids=["deaf", "dead", "greedy", "long"],
)
def test_a_worker_that_fails_is_replaced(command: tuple[str, ...], error: type[Exception]) -> None:
    async def story() -> None:
        async with WorkerPool(command, 1, seconds=0.2 if command is DEAF else 60.0) as pool:
            pool.command = ECHO
            with pytest.raises(error, match="cannot be checked"):
                await pool.ask(1)
            pool.seconds = 60.0
            assert await pool.ask(2) == b'"2"'
            assert len(pool.running) == 1

    asyncio.run(story())


def test_a_defect_costs_one_answer_and_not_the_worker() -> None:
    async def story() -> None:
        async with WorkerPool(DEFECTIVE, 1, seconds=60.0) as pool:
            (process,) = pool.running
            for _ in range(3):
                with pytest.raises(WorkerDefectError, match=r"KeyError in netdra\.workers\.process\.serve, line \d+"):
                    await pool.ask(2)
                assert await pool.ask(1) == b'"one"'
            assert pool.running == {process}

    asyncio.run(story())


def test_samples_are_done_before_the_first_task() -> None:
    counting = (
        "from netdra.workers import process; done = []; "
        "process.main(lambda body: (done.append(body), len(done))[1], ['a', 'b'])"
    )

    async def story() -> list[bytes]:
        async with WorkerPool((sys.executable, "-c", counting), 1, seconds=60.0) as pool:
            return [await pool.ask(1), await pool.ask(2)]

    assert asyncio.run(story()) == [b"3", b"4"]


def test_waiting_too_long_for_a_worker_raises_a_workers_busy_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "PATIENCE", 0.05)

    async def story() -> None:
        async with WorkerPool(DEAF, 1, seconds=60.0) as pool:
            first = asyncio.create_task(pool.ask(1))
            await asyncio.sleep(0)  # it takes the only worker in its first step
            with pytest.raises(WorkersBusyError):
                await pool.ask(2)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first

    asyncio.run(story())


def test_a_cancelled_question_frees_its_worker_for_the_next_one() -> None:
    async def story() -> None:
        async with WorkerPool(DEAF, 1, seconds=60.0) as pool:
            given_up = asyncio.create_task(pool.ask(1))
            await asyncio.sleep(0)  # it takes the only worker in its first step
            pool.command = ECHO
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            assert await pool.ask(2) == b'"2"'

    asyncio.run(story())


def test_workers_that_never_become_ready_are_reported_at_startup() -> None:
    async def story() -> WorkerPool:
        pool = WorkerPool(STILLBORN, 2)
        with pytest.raises(TemporaryError, match="ended before it was ready"):
            async with pool:
                pass
        return pool

    assert not asyncio.run(story()).running


def test_the_time_of_a_task_begins_when_its_worker_is_ready() -> None:
    enough = stretched(1.0)
    worker = "from netdra.workers import process; process.main(lambda body: body.decode())"
    slow = f"import time; time.sleep({enough}); {worker}"

    async def story() -> bytes:
        async with WorkerPool((sys.executable, "-c", slow), 1, seconds=enough) as pool:
            return await pool.ask(1)

    assert asyncio.run(story()) == b'"1"'


@pytest.mark.parametrize("wrong", [STILLBORN, ABSENT], ids=["stillborn", "absent"])
def test_a_worker_that_does_not_come_is_tried_again(wrong: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "AGAIN_SECONDS", 0.01)

    async def story() -> bytes:
        async with WorkerPool(DEAD, 1, seconds=60.0) as pool:
            pool.command = wrong
            with pytest.raises(WorkerEndedError):
                await pool.ask(1)
            with monkeypatch.context() as patch:
                patch.setattr(pools, "PATIENCE", 0.2)
                with pytest.raises(WorkersBusyError):
                    await pool.ask(2)
            pool.command = ECHO
            return await pool.ask(3)

    assert asyncio.run(story()) == b'"3"'


def test_no_process_is_left() -> None:
    async def story() -> None:
        async with WorkerPool(ECHO, 2) as pool:
            processes = tuple(pool.running)
            assert len(processes) == 2
        assert all(process.returncode is not None for process in processes)

    asyncio.run(story())


def test_a_killed_worker_is_not_blamed_on_its_task() -> None:
    async def story() -> None:
        async with WorkerPool(DEAF, 1, seconds=60.0) as pool:
            asking = asyncio.create_task(pool.ask({}))
            (process,) = pool.running
            await asyncio.sleep(0.1)
            process.kill()
            with pytest.raises(WorkerKilledError, match="was killed"):
                await asking

    asyncio.run(story())
