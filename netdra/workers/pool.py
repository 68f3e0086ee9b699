"""A few worker processes: an answer comes in time, or the worker goes and another takes its place.

Used by `netdra.admission.workers` and `netdra.controller.checks`, which say what a failure means to their users.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from types import TracebackType
from typing import Self

from netdra.model.errors import PermanentError, TemporaryError
from netdra.workers.process import LENGTH, frame

log = logging.getLogger(__name__)

SECONDS = 5.0
PATIENCE = 3.0
"""Seconds for a worker to become free; with `SECONDS` together less than the API server waits for a webhook."""
MAX_ANSWER = 16 * 1024 * 1024


class BusyError(TemporaryError):
    """No worker became free in time."""


class LateError(PermanentError):
    """The worker did not answer in time: the task is too costly."""


class EndedError(PermanentError):
    """The worker ended: the task took more memory than there is."""


def command(module: str) -> tuple[str, ...]:
    """How a module is started as a worker."""
    return (sys.executable, "-m", module)


class Pool:
    """The processes; they run while this is entered."""

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
        self._free: asyncio.Queue[Process | None] = asyncio.Queue()
        self.running: set[Process] = set()

    async def __aenter__(self) -> Self:
        try:
            for _ in range(self._count):
                self._free.put_nowait(await self._start())
        except BaseException:
            await self._end_all()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> None:
        await self._end_all()

    async def ask(self, task: object) -> bytes:
        """The answer to a task, as JSON.

        Raises:
            BusyError: no worker became free in time.
            LateError: there is no answer in time.
            EndedError: the worker ended.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                process = await self._free.get()
        except TimeoutError:
            raise BusyError("all workers are busy", hint="try again") from None
        kept: Process | None = None
        try:
            if process is None:
                process = await self._start()
            async with asyncio.timeout(self.seconds):
                answer = await _ask(process, task)
            kept = process
        except TimeoutError:
            raise LateError(
                f"cannot be checked within {self.seconds:g} s", hint="make its expressions simpler"
            ) from None
        except (asyncio.IncompleteReadError, OSError, ValueError) as problem:
            log.error("a worker ended: %s", problem)
            raise EndedError("cannot be checked in the memory that there is", hint="make it smaller") from None
        finally:
            # First of all, for what follows may be cancelled: without its place the pool would be smaller for good.
            self._free.put_nowait(kept)
            if process is not None and kept is None:
                await self._end(process)
        return answer

    async def _start(self) -> Process:
        process = await asyncio.create_subprocess_exec(*self.command, stdin=PIPE, stdout=PIPE)
        self.running.add(process)
        return process

    async def _end(self, process: Process) -> None:
        self.running.discard(process)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    async def _end_all(self) -> None:
        for process in tuple(self.running):
            await self._end(process)


async def _ask(process: Process, task: object) -> bytes:
    """Put a task to a worker.

    Raises:
        OSError, asyncio.IncompleteReadError: the worker ended.
        ValueError: its answer is none.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(frame(task))
    await process.stdin.drain()
    length = int.from_bytes(await process.stdout.readexactly(LENGTH), "big")
    if length > MAX_ANSWER:
        raise ValueError(f"an answer of {length} bytes")
    return await process.stdout.readexactly(length)
