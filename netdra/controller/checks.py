"""The errors of policies and topologies, found by a worker process and remembered until the objects change.

Asked by `netdra.controller.controller` at each look, so almost every answer is remembered. An expression that takes too
long costs its object a few seconds once, and never holds up the process that leads.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from netdra.controller.metrics import DEFECTS
from netdra.controller.worker import PolicyTask, TopologyTask
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.topology import NetworkTopology
from netdra.review.world import World
from netdra.workers.pool import (
    SECONDS,
    WorkerDefectError,
    WorkerEndedError,
    WorkerPool,
    WorkersBusyError,
    WorkerTimeoutError,
    command,
)

log = logging.getLogger(__name__)

COMMAND = command("netdra.controller.worker")
_Key = tuple[str, str]
_texts = msgspec.json.Decoder(tuple[str, ...])


class Checks:
    """The worker, and its last answer for each object; it runs while this is entered."""

    def __init__(self, *, seconds: float = SECONDS, command: tuple[str, ...] = COMMAND) -> None:
        """Start nothing yet.

        Args:
            seconds: how long the check of one object may take.
        """
        self.pool = WorkerPool(command, 1, seconds=seconds)
        self._checked: dict[_Key, tuple[Any, tuple[str, ...]]] = {}
        self._late: dict[_Key, Any] = {}

    async def __aenter__(self) -> Self:
        await self.pool.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.pool.__aexit__(kind, problem, trace)

    async def errors(self, value: DeviceExposurePolicy | NetworkTopology, world: World) -> tuple[str, ...]:
        """The errors of an object; none if it can be used.

        Args:
            value: as it is stored.
            world: the schemas of the cluster.

        Raises:
            BusyError, KilledError: the worker cannot answer just now, or was killed; the object stays
            unjudged.
        """
        schemas = ((name, schema.spec) for name, schema in world.schemas.items())
        subject = (value.spec, *schemas)
        bare = msgspec.structs.replace(value, status=None)
        if isinstance(bare, NetworkTopology):
            return await self._ask(("topology", value.name), subject, TopologyTask(bare, world))
        return await self._ask(("policy", value.name), subject, PolicyTask(bare, world))

    def forget(self, kind: Literal["policy", "topology"], name: str) -> None:
        """Forget the answer for an object that is gone."""
        self._checked.pop((kind, name), None)
        self._late.pop((kind, name), None)

    async def _ask(self, key: _Key, subject: Any, task: PolicyTask | TopologyTask) -> tuple[str, ...]:
        checked = self._checked.get(key)
        if checked is not None and checked[0] == subject:
            return checked[1]
        try:
            texts = _texts.decode(await self.pool.ask(task))
        except WorkerDefectError as problem:
            # A defect of netdra is not an error of the object; nodes check it again.
            log.error('%s "%s" is used without a check: %s', *key, problem.what)
            DEFECTS.labels(key[0]).inc()
            texts = ()
        except (WorkerTimeoutError, WorkerEndedError) as problem:
            # The first time, it may be the machine's fault; an answer stays until its object changes.
            if self._late.get(key) != subject:
                self._late[key] = subject
                raise WorkersBusyError(f"{' '.join(map(str, key))}: {problem.what}", code=problem.code) from None
            texts = (problem.text,)
        self._late.pop(key, None)
        self._checked[key] = (subject, texts)
        return texts
