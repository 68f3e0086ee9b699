"""A few worker processes: an answer comes in time, or the worker goes and another takes its place.

Used by `netdra.admission.workers` and `netdra.controller.checks`, which state what a failure means to their users.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import msgspec

from netdra.model.errors import PermanentError, TemporaryError
from netdra.workers.defects import Defect
from netdra.workers.process import DEFECT, LENGTH, READY, frame

log = logging.getLogger(__name__)

SECONDS = 5.0
PATIENCE = 3.0
"""Seconds for a worker to become free; with `SECONDS` together less than the API server waits for a webhook."""
START_SECONDS = 60.0
"""Seconds until a new worker is ready; they count for no task."""
AGAIN_SECONDS = 1.0
_END_SECONDS = 1.0
MAX_ANSWER = 16 * 1024 * 1024


class WorkersBusyError(TemporaryError):
    """No worker became free in time."""


class WorkerTimeoutError(PermanentError):
    """The worker did not answer in time: the task is too costly."""


class WorkerEndedError(PermanentError):
    """The worker ended: the task took more memory than there is."""


class WorkerDefectError(PermanentError):
    """netdra itself failed in the task, so nothing is known of it; the text is the place (`netdra.workers.defects`)."""


class WorkerKilledError(TemporaryError):
    """The worker was killed from outside, by the kernel when the container has no memory left: nothing of the task."""


def command(module: str) -> tuple[str, ...]:
    """How a module is started as a worker."""
    return (sys.executable, "-m", module)


class WorkerPool:
    """The processes; they run while this is entered.

    Attributes:
        on_ready: is called with the number of workers that can be asked, whenever that changes.
    """

    def __init__(self, command: tuple[str, ...], count: int, *, seconds: float = SECONDS) -> None:
        """Start nothing yet.

        Args:
            command: what a worker is.
            count: how many tasks are done at the same time.
            seconds: how long an answer may take.
        """
        self.command = command
        self.seconds = seconds
        self._count = count
        self._free: asyncio.Queue[Process] = asyncio.Queue()
        self._replacing: set[asyncio.Task[None]] = set()
        self._ended = False
        self.running: set[Process] = set()
        self.on_ready: Callable[[int], None] = lambda _: None

    async def __aenter__(self) -> Self:
        """Start the workers, and wait until they are ready.

        Raises:
            TemporaryError: one of them is not in time, or ends before.
        """
        starting = (self._start() for _ in range(self._count))
        try:
            # All are waited for: if one were cancelled while its process starts, the process would have no owner.
            started = await asyncio.gather(*starting, return_exceptions=True)
        except BaseException:
            await self._end_all()
            raise
        failed = [problem for problem in started if isinstance(problem, BaseException)]
        if failed:
            await self._end_all()
            raise failed[0]
        for worker in started:
            assert not isinstance(worker, BaseException)
            self._free.put_nowait(worker)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> None:
        await self._end_all()

    async def ask(self, task: object) -> bytes:
        """The answer to a task, as JSON.

        Raises:
            BusyError: no worker became free in time.
            LateError: no answer came in time.
            EndedError: the worker ended.
            KilledError: it was killed.
            DefectError: netdra has a defect; the worker continues.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                process = await self._free.get()
        except TimeoutError:
            raise WorkersBusyError("all workers are busy", hint="try again", code="ND2287") from None
        kept = False
        try:
            async with asyncio.timeout(self.seconds):
                answer = await _ask(process, task)
            kept = True
        except WorkerDefectError:
            kept = True
            raise
        except TimeoutError:
            raise WorkerTimeoutError(
                f"cannot be checked within {self.seconds:g} s", hint="make its expressions simpler", code="ND2288"
            ) from None
        except (asyncio.IncompleteReadError, OSError, ValueError) as problem:
            log.error("a worker ended: %s", problem)
            if await _is_killed(process):
                hint = "the container may need more memory; the kernel's log names what it killed"
                raise WorkerKilledError("a worker was killed", hint=hint, code="ND2289") from None
            raise WorkerEndedError(
                "cannot be checked in the available memory", hint="make it smaller", code="ND2290"
            ) from None
        finally:
            if kept:
                self._free.put_nowait(process)
            else:
                self.on_ready(self._count - len(self._replacing) - 1)
                # A task of its own, because the caller may be cancelled: without it the pool would stay smaller.
                replacing = asyncio.create_task(self._replace(process))
                self._replacing.add(replacing)
                replacing.add_done_callback(self._note_replacement)
        return answer

    async def _replace(self, process: Process) -> None:
        """End a worker that failed, and start another; that one is tried for as long as it takes."""
        await self._end(process)
        while not self._ended:
            try:
                self._free.put_nowait(await self._start())
            except TemporaryError as problem:
                log.error("%s", problem)
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return

    def _note_replacement(self, replacing: asyncio.Task[None]) -> None:
        self._replacing.discard(replacing)
        self.on_ready(self._count - len(self._replacing))

    async def _start(self) -> Process:
        """A worker that is ready.

        Raises:
            TemporaryError: it cannot be started, is not ready in time, or ends before.
        """
        called = f"a worker ({' '.join(self.command)})"
        try:
            process = await asyncio.create_subprocess_exec(*self.command, stdin=PIPE, stdout=PIPE)
        except OSError as problem:
            raise TemporaryError(f"{called} did not start: {problem.strerror}", code="ND2291") from None
        self.running.add(process)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                await process.stdout.readexactly(len(READY))
        except (TimeoutError, asyncio.IncompleteReadError) as problem:
            await self._end(process)
            late = isinstance(problem, TimeoutError)
            why = f"was not ready within {START_SECONDS:g} s" if late else "ended before it was ready"
            raise TemporaryError(f"{called} {why}", hint="see its messages earlier in the log", code="ND2292") from None
        return process

    async def _end(self, process: Process) -> None:
        self.running.discard(process)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    async def _end_all(self) -> None:
        self._ended = True
        while self.running or self._replacing:
            for process in tuple(self.running):
                await self._end(process)
            if self._replacing:  # not cancelled: a process that just starts would have no owner
                await asyncio.wait(self._replacing, timeout=AGAIN_SECONDS / 10)


async def _is_killed(process: Process) -> bool:
    """Whether a process was ended by SIGKILL; a running one was not."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()
    return process.returncode == -signal.SIGKILL


async def _ask(process: Process, task: object) -> bytes:
    """Put a task to a worker.

    Raises:
        OSError, asyncio.IncompleteReadError: the worker ended.
        ValueError: its answer is not valid.
        WorkerDefectError: netdra failed in the task.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(frame(task))
    await process.stdin.drain()
    head = int.from_bytes(await process.stdout.readexactly(LENGTH), "big")
    length = head & ~DEFECT
    if length > MAX_ANSWER:
        raise ValueError(f"an answer of {length} bytes")
    answer = await process.stdout.readexactly(length)
    if head & DEFECT:
        defect = msgspec.json.decode(answer, type=Defect)
        log.error("%s", defect.report)
        raise WorkerDefectError(defect.place, code="ND2293")
    return answer
