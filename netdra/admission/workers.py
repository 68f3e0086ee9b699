"""A few worker processes that review what is untrusted and costly: a verdict comes in time, or the worker goes.

Used by `netdra.admission.server` for all kinds but claims. A worker that does not answer in time, or ends, is replaced,
and the object that it had is refused.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from types import TracebackType
from typing import Self

import msgspec

from netdra.admission.cluster import Cluster
from netdra.admission.messages import AdmissionRequest, Verdict
from netdra.admission.metrics import WORKERS_REPLACED
from netdra.admission.worker import LENGTH, Task, frame

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "netdra.admission.worker")
COUNT = 2
SECONDS = 5.0
PATIENCE = 3.0
"""Seconds for a worker to become free; with `SECONDS` together less than what the API server waits."""

_verdict = msgspec.json.Decoder(Verdict)


class Workers:
    """The processes; they run while this is entered."""

    def __init__(self, count: int = COUNT, *, seconds: float = SECONDS, command: tuple[str, ...] = COMMAND) -> None:
        """Start nothing yet.

        Args:
            count: how many objects are reviewed at the same time.
            seconds: how long a review may take.
            command: what a worker is.
        """
        self._count = count
        self._seconds = seconds
        self._command = command
        self._free: asyncio.Queue[Process | None] = asyncio.Queue()
        self._running: set[Process] = set()

    async def __aenter__(self) -> Self:
        for _ in range(self._count):
            self._free.put_nowait(await self._start())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: TracebackType | None
    ) -> None:
        for process in tuple(self._running):
            await self._end(process)

    async def review(self, request: AdmissionRequest, cluster: Cluster) -> Verdict:
        """The verdict on one object; a refusal where there is none in time."""
        named = f'{request.kind.kind} "{request.name}"'
        try:
            async with asyncio.timeout(PATIENCE):
                process = await self._free.get()
        except TimeoutError:
            return Verdict((f"{named}: netdra's webhook is busy; try again",))
        kept: Process | None = None
        try:
            if process is None:
                process = await self._start()
            async with asyncio.timeout(self._seconds):
                verdict = await _ask(process, Task(request, cluster))
            kept = process
        except TimeoutError:
            WORKERS_REPLACED.labels("late").inc()
            verdict = Verdict((f"{named}: cannot be checked within {self._seconds:g} s; make its expressions simpler",))
        except (asyncio.IncompleteReadError, OSError, msgspec.DecodeError) as problem:
            WORKERS_REPLACED.labels("broken").inc()
            log.error("%s ended a worker: %s", named, problem)
            verdict = Verdict((f"{named}: cannot be checked in the memory that there is; make it smaller",))
        finally:
            if process is not None and kept is None:
                await self._end(process)
            self._free.put_nowait(kept)
        return verdict

    async def _start(self) -> Process:
        process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE)
        self._running.add(process)
        return process

    async def _end(self, process: Process) -> None:
        self._running.discard(process)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _ask(process: Process, task: Task) -> Verdict:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(frame(task))
    await process.stdin.drain()
    length = int.from_bytes(await process.stdout.readexactly(LENGTH), "big")
    return _verdict.decode(await process.stdout.readexactly(length))
