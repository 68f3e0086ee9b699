"""Elect one of several equal processes by a Lease (coordination.k8s.io/v1), and run its work while it leads.

Used by the controller. The rules are client-go's: the holder of the lease renews it; if it has not done so for the
lease's duration, another process may take it, and the write decides between two that try (resourceVersion). Only
durations on the process's own clock count, never the times in the lease, so skewed clocks do no harm.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from netdra.kube.client import Client
from netdra.kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from netdra.kube.metrics import LEADERSHIPS, LEADS
from netdra.kube.resources import Resource
from netdra.model.meta import ObjectMeta, micro_time_text
from netdra.ops.boot import since_boot
from netdra.ops.health import CheckResult

log = logging.getLogger(__name__)

RELEASE_SECONDS = 3.0


class LeaseSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The lease's holder, for how long after the last renewal, and since when."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The object by which the processes elect their leader."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


LEASES = Resource("coordination.k8s.io/v1", "leases", Lease, namespaced=True, renewed=True)


@dataclass(frozen=True)
class Terms:
    """In seconds: how long a lease holds, the deadline for its renewal, and the wait between tries.

    A leader that could not renew stops before other processes may take over, so that two never work at one time.
    """

    duration: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0


@dataclass
class Election:
    """One process's part in an election.

    Attributes:
        namespace, name: of the lease.
        identity: this process, e.g. its pod's name; no other may have the same.
    """

    client: Client
    namespace: str
    name: str
    identity: str
    terms: Terms = field(default_factory=Terms)
    clock: Callable[[], float] = since_boot
    _lease: Lease | None = None
    _changed: float = 0.0
    _renewed: float = -math.inf
    _asked: float = -math.inf
    _writing: bool = False

    @property
    def leads(self) -> bool:
        """Whether this process leads for certain; ask before a write that two processes must not do.

        It is false for a moment after a suspension, until the lease could be renewed.
        """
        return self.clock() - self._renewed < self.terms.deadline

    def check(self) -> CheckResult:
        """Whether this process leads or another one holds the lease, as a check of its health: both are well."""
        if self.leads:
            return CheckResult(ok=True, detail=f"leads {self.namespace}/{self.name}")
        holder = self._lease.spec.holder_identity if self._lease is not None else ""
        fresh = self.clock() - self._asked < self.terms.duration
        if holder and holder != self.identity and fresh:
            return CheckResult(ok=True, detail=f"waits for {self.namespace}/{self.name}, which is held by {holder}")
        return CheckResult(ok=False, detail=f"the lease {self.namespace}/{self.name} cannot be read or renewed")

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait to be elected, run the work while that lasts, and again; returns when the work does.

        The work is cancelled when leadership is lost. The lease is released when this ends, in any way.
        """
        try:
            while True:
                await self._win()
                log.info("%s leads %s/%s", self.identity, self.namespace, self.name)
                LEADERSHIPS.labels(self.name).inc()
                LEADS.labels(self.name).set(1)
                if await self._lead(work):
                    return
                log.warning("%s no longer leads %s/%s", self.identity, self.namespace, self.name)
        finally:
            await self._release()

    async def _win(self) -> None:
        while True:
            if await self._try():
                return
            await asyncio.sleep(self.terms.retry * random.uniform(1.0, 1.2))  # noqa: S311 (not all at once)

    async def _lead(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Run the work and renew the lease beside it; returns whether the work has ended."""
        working = asyncio.ensure_future(work())
        renewing = asyncio.create_task(self._renew())
        try:
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
            if renewing.done():
                renewing.result()
            return working.done()
        finally:
            self._renewed = -math.inf
            LEADS.labels(self.name).set(0)
            renewing.cancel()
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working

    async def _renew(self) -> None:
        """Renew the lease; returns when it is another process's, or could not be renewed within the deadline."""
        while (left := self._renewed + self.terms.deadline - self.clock()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await asyncio.sleep(self.terms.retry)
                    if await self._try() is False:
                        return

    async def _try(self) -> bool | None:
        """Take or renew the lease if that is allowed; returns whether it is ours now, None if that is unknown."""
        asked = self.clock()
        try:
            if self._lease is None or self._lease.spec.holder_identity != self.identity:
                await self._look()
            if self._lease is not None and self._is_held_by_another(self._lease):
                return False
            self._writing = True
            if self._lease is None:
                metadata = ObjectMeta(name=self.name, namespace=self.namespace)
                self._lease = await self.client.create(LEASES, self._ours(Lease(metadata=metadata)))
            else:
                self._lease = await self.client.replace(LEASES, self._ours(self._lease))
            self._writing = False
        except (ConflictError, AlreadyExistsError, NotFoundError):
            # Another process was quicker; the next try reads its lease.
            self._lease = None
            return None
        except ApiError as problem:
            log.warning("%s", problem)
            return None
        # Other processes count from the time when they saw the renewal, which is after the request.
        self._renewed = asked
        return True

    async def _look(self) -> None:
        """Read the lease, and note when it was seen to change."""
        try:
            lease = await self.client.get(LEASES, self.name, self.namespace)
        except NotFoundError:
            self._lease = None
            return
        self._asked = self.clock()
        if self._lease is None or lease.metadata.resource_version != self._lease.metadata.resource_version:
            self._changed = self.clock()
        self._lease = lease

    def _is_held_by_another(self, lease: Lease) -> bool:
        holder = lease.spec.holder_identity
        expired = self.clock() - self._changed >= lease.spec.lease_duration_seconds
        return bool(holder) and holder != self.identity and not expired

    def _ours(self, lease: Lease) -> Lease:
        """The lease as it is when this process has just renewed it."""
        now = micro_time_text(datetime.now(UTC))
        renewing = lease.spec.holder_identity == self.identity
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=math.ceil(self.terms.duration),
            acquire_time=lease.spec.acquire_time if renewing else now,
            renew_time=now,
            lease_transitions=lease.spec.lease_transitions + (not renewing),
        )
        return msgspec.structs.replace(lease, spec=spec)

    async def _release(self) -> None:
        """Let other processes take the lease at once instead of when it runs out.

        A write without an answer, because this process ends or the connection broke, may have been done: then the lease
        is no longer as it was last seen, and is read again.
        """
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                while not await self._is_released():
                    self._writing = True

    async def _is_released(self) -> bool:
        """Release the lease if this process has it; returns False if it was written meanwhile."""
        if self._writing:
            await self._look()
        if self._lease is None or self._lease.spec.holder_identity != self.identity:
            return True
        spec = msgspec.structs.replace(self._lease.spec, holder_identity="", lease_duration_seconds=1)
        try:
            await self.client.replace(LEASES, msgspec.structs.replace(self._lease, spec=spec))
        except ConflictError:
            return False
        return True
