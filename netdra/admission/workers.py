"""Verdicts on untrusted objects that are costly to review: a verdict comes in time, or the object is refused.

Used by `netdra.admission.server` for all kinds but claims and classes; the processes are `netdra.workers.pool`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import msgspec

from netdra.admission.cluster import Cluster
from netdra.admission.messages import AdmissionRequest, Verdict
from netdra.admission.metrics import WORKERS_REPLACED
from netdra.admission.worker import Task
from netdra.workers.pool import SECONDS, WorkerEndedError, WorkerPool, WorkersBusyError, WorkerTimeoutError, command

log = logging.getLogger(__name__)

COMMAND = command("netdra.admission.worker")
COUNT = 2
TURN_SECONDS = 1.5
"""How long an asker's request waits for its others; with the pool's times less than the API server waits."""

_verdict = msgspec.json.Decoder(Verdict)


class Workers:
    """The processes; they run while this is entered."""

    def __init__(self, count: int = COUNT, *, seconds: float = SECONDS, command: tuple[str, ...] = COMMAND) -> None:
        """Start nothing yet.

        Args:
            count: how many objects are reviewed at the same time.
            seconds: how long a review may take.
            command: the workers' command.
        """
        self.pool = WorkerPool(command, count, seconds=seconds)
        self._most = max(1, count - 1)
        self._turns: dict[str, tuple[asyncio.Semaphore, set[object]]] = {}

    async def __aenter__(self) -> Self:
        await self.pool.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.pool.__aexit__(kind, problem, trace)

    async def review(self, request: AdmissionRequest, cluster: Cluster, asker: str = "") -> Verdict:
        """The verdict on one object; a refusal if there is none in time.

        Args:
            request: the request.
            cluster: the part of the cluster that its review needs.
            asker: the client, whose requests never go to all workers at once; "" if they may.
        """
        named = f'{request.kind.kind} "{request.name}"'
        try:
            async with self._turn(asker):
                return _verdict.decode(await self.pool.ask(Task(request, cluster)))
        except WorkersBusyError:
            return Verdict((f"{named}: netdra's webhook is busy; try again",))
        except (WorkerTimeoutError, WorkerEndedError) as problem:
            WORKERS_REPLACED.labels("late" if isinstance(problem, WorkerTimeoutError) else "broken").inc()
            log.warning("%s: %s", named, problem.what)
            return Verdict((f"{named}: {problem.what}; {problem.hint}",))

    @asynccontextmanager
    async def _turn(self, asker: str) -> AsyncIterator[None]:
        """Leave a worker to others.

        Raises:
            BusyError: it takes too long until the asker's other requests are answered.
        """
        if not asker:
            yield
            return
        room, waiting = self._turns.setdefault(asker, (asyncio.Semaphore(self._most), set()))
        itself = object()
        waiting.add(itself)
        try:
            try:
                async with asyncio.timeout(TURN_SECONDS):
                    await room.acquire()
            except TimeoutError:
                raise WorkersBusyError("too many questions at once", hint="try again") from None
            try:
                yield
            finally:
                room.release()
        finally:
            waiting.discard(itself)
            if not waiting:
                del self._turns[asker]
