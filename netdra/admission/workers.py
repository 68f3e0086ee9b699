"""Verdicts on untrusted objects that are costly to review: a verdict comes in time, or the object is refused.

Used by `netdra.admission.server` for all kinds but claims and classes; the processes are `netdra.workers.pool`'s.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

import msgspec

from netdra.admission.messages import AdmissionRequest, Verdict
from netdra.admission.metrics import DEFECTS, WORKERS_REPLACED
from netdra.admission.turns import ClientTurns
from netdra.admission.worker import Task
from netdra.model.errors import with_code
from netdra.review.world import World
from netdra.workers import defects
from netdra.workers.pool import (
    SECONDS,
    WorkerDefectError,
    WorkerEndedError,
    WorkerKilledError,
    WorkerPool,
    WorkersBusyError,
    WorkerTimeoutError,
    command,
)

log = logging.getLogger(__name__)

COMMAND = command("netdra.admission.worker")
COUNT = 2

_verdict = msgspec.json.Decoder(Verdict)


def busy(request: AdmissionRequest) -> Verdict:
    """The refusal of an object when no worker is free in time."""
    what = f'{request.kind.kind} "{request.name}": netdra\'s webhook is busy; try again'
    return Verdict((with_code(what, "ND3097"),))


def unchecked(request: AdmissionRequest, place: str) -> Verdict:
    """The admission of an object in whose check netdra failed at a place: a defect is not an error of it."""
    DEFECTS.labels(request.kind.kind).inc()
    named = f'{request.kind.kind} "{request.name}"'
    log.error("%s: admitted without a check: %s", named, place)
    return Verdict(warnings=(f"{named}: {defects.remark(place)}",))


class Workers:
    """The processes; they run while this is entered.

    Attributes:
        turns: a client takes one before it has an object reviewed.
    """

    def __init__(self, count: int = COUNT, *, seconds: float = SECONDS, command: tuple[str, ...] = COMMAND) -> None:
        """Start nothing yet.

        Args:
            count: how many objects are reviewed at the same time.
            seconds: how long a review may take.
            command: the workers' command.
        """
        self.pool = WorkerPool(command, count, seconds=seconds)
        self.turns = ClientTurns(count)
        self.pool.on_ready = self.turns.set_ready

    async def __aenter__(self) -> Self:
        await self.pool.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.pool.__aexit__(kind, problem, trace)

    async def review(self, request: AdmissionRequest, cluster: World) -> Verdict:
        """The verdict on one object, for a client that has its turn (`turns`); a refusal if none exists in time.

        Args:
            cluster: the part of the cluster that its review needs.
        """
        named = f'{request.kind.kind} "{request.name}"'
        try:
            return _verdict.decode(await self.pool.ask(Task(request, cluster)))
        except WorkersBusyError:
            return busy(request)
        except WorkerDefectError as problem:
            return unchecked(request, problem.what)
        except WorkerKilledError as problem:
            WORKERS_REPLACED.labels("killed").inc()
            log.error("%s: %s", named, problem)
            return Verdict((with_code(f"{named}: {problem.what} during validation; try again", problem.code),))
        except (WorkerTimeoutError, WorkerEndedError) as problem:
            WORKERS_REPLACED.labels("late" if isinstance(problem, WorkerTimeoutError) else "broken").inc()
            log.warning("%s: %s", named, problem.what)
            return Verdict((f"{named}: {problem.text}",))
