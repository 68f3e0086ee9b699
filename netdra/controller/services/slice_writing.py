"""Writes the EndpointSlices of a Service, each by itself: where the API server refuses one, the others follow the pods.

Called by `netdra.controller.services.endpoints`; `netdra.services.slices` works out the writes and their order. An
endpoint of a pod that is gone leaves its slice in any case: its address may be another tenant's by now.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from http import HTTPStatus

from msgspec.structs import replace

from netdra.controller import metrics
from netdra.kube.client import Client
from netdra.kube.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from netdra.kube.resources import ENDPOINT_SLICES
from netdra.kube.undone import UndoneError
from netdra.model.service import MANAGED_BY, MANAGER, EndpointSlice
from netdra.ops.metrics import counted
from netdra.services.slices import EndpointKey, SliceWrite, SliceWrites

log = logging.getLogger(__name__)


@dataclass
class WriteResult:
    """The result of the writes of a Service.

    Attributes:
        refused: the refusals of the API server.
        failure: the first write that is not possible just now.
        changed: whether a slice was changed meanwhile.
    """

    refused: list[ApiError] = field(default_factory=list)
    failure: ApiError | None = None
    changed: bool = False


class SliceWriter:
    """Writes slices, and knows the names that other managers' slices have."""

    def __init__(self, client: Client) -> None:
        """Begin without names."""
        self._client = client
        self._taken: dict[str, set[str]] = {}

    def taken(self, key: str) -> AbstractSet[str]:
        """The names for slices of a Service that other managers' slices have."""
        return self._taken.get(key, frozenset())

    def forget(self, key: str) -> None:
        """Forget a Service."""
        self._taken.pop(key, None)

    async def write(self, key: str, writes: SliceWrites) -> WriteResult:
        """Write the slices of a Service.

        Raises:
            ApiError: the API server does not answer.
        """
        done = WriteResult()
        shortened = [await self._shorten(step, done) if step.moved else step for step in writes.steps]
        pending, missing = [*filter(None, shortened)], set[EndpointKey]()
        while pending:
            step = _choose_next(pending)
            pending.remove(step)
            if not await _succeeds(self._step(key, step, done), done):
                missing |= step.gained
                pending = _possible(pending, missing)
        return done

    async def _shorten(self, step: SliceWrite, done: WriteResult) -> SliceWrite | None:
        """Remove the endpoints that are gone before the others move to slices that may be refused.

        Returns the write that is left, None if the slice had to be deleted.
        """
        if step.before is None or step.remaining is None:
            return step
        try:
            stored = await self._replace(step.remaining)
        except RefusedError:
            if not step.loses:
                return step
            done.changed = True
            await _succeeds(self._delete(step.before), done)
            return None
        except (ConflictError, NotFoundError):
            done.changed = True
            return step
        except UnavailableError as problem:
            _note_failure(problem, done)
            return step
        version = stored.metadata.resource_version
        after = step.after
        if after is not None:
            after = replace(after, metadata=replace(after.metadata, resource_version=version))
        return step._replace(before=stored, after=after)

    async def _step(self, key: str, step: SliceWrite, done: WriteResult) -> None:
        if step.before is None:
            assert step.after is not None
            await self._create(key, step.after)
        elif step.after is None:
            await self._delete(step.before)
        else:
            try:
                await self._replace(step.after)
            except RefusedError:
                if step.loses and not step.moved:
                    await _succeeds(self._remove_dead(step.before, step.remaining), done)
                raise

    async def _remove_dead(self, before: EndpointSlice, remaining: EndpointSlice | None) -> None:
        """Remove the endpoints that are gone from a slice whose desired state is refused, or else the whole slice."""
        try:
            if remaining is not None:
                await self._replace(remaining)
        except RefusedError:
            log.info('EndpointSlice "%s" cannot be changed, and is deleted', before.metadata.name)
            await self._delete(before)

    async def _create(self, key: str, entry: EndpointSlice) -> None:
        """Create a slice; a name that another manager's slice has is not tried again.

        Raises:
            ApiError: it cannot be created just now, or exists.
        """
        try:
            with counted(metrics.SLICE_WRITES, "create"):
                await self._client.create(ENDPOINT_SLICES, entry)
        except AlreadyExistsError:
            stored = await self._client.get(ENDPOINT_SLICES, entry.metadata.name, entry.metadata.namespace)
            if stored.metadata.labels.get(MANAGED_BY) != MANAGER:
                self._taken.setdefault(key, set()).add(entry.metadata.name)
            raise

    async def _replace(self, entry: EndpointSlice) -> EndpointSlice:
        with counted(metrics.SLICE_WRITES, "update"):
            return await self._client.replace(ENDPOINT_SLICES, entry)

    async def _delete(self, entry: EndpointSlice) -> None:
        try:
            with counted(metrics.SLICE_WRITES, "delete"):
                await self._client.delete(ENDPOINT_SLICES, entry)
        except NotFoundError:
            log.debug('EndpointSlice "%s" is deleted already', entry.metadata.name)


def _choose_next(pending: Sequence[SliceWrite]) -> SliceWrite:
    """The next write: the first whose endpoints do not move to a slice that is still to be written."""
    awaited = frozenset[EndpointKey]().union(*(step.gained for step in pending if step.moved))
    return next((step for step in pending if not step.moved or step.moved.isdisjoint(awaited)), pending[0])


def _possible(pending: Sequence[SliceWrite], missing: set[EndpointKey]) -> list[SliceWrite]:
    """The writes that are left where endpoints stay in their former slices because their new ones were refused."""
    possible = [*pending]
    while blocked := [step for step in possible if step.moved & missing]:
        missing.update(*(step.gained for step in blocked))
        possible = [step for step in possible if step not in blocked]
    return possible


async def _succeeds(write: Awaitable[None], done: WriteResult) -> bool:
    """Await a write, and note the reason if it is not done.

    Raises:
        ApiError: the API server does not answer, or wants to be left alone.
    """
    try:
        await write
    except (AlreadyExistsError, ConflictError, NotFoundError) as problem:
        log.debug("EndpointSlices changed meanwhile: %s", problem)
        done.changed = True
    except RefusedError as problem:
        if problem.cause == "terminating":
            log.debug("%s", problem)
        else:
            done.refused.append(problem)
    except UndoneError as problem:
        done.failure = done.failure or problem
    except UnavailableError as problem:
        _note_failure(problem, done)
    else:
        return True
    return False


def _note_failure(problem: UnavailableError, done: WriteResult) -> None:
    if problem.status.code in (0, HTTPStatus.TOO_MANY_REQUESTS):
        raise problem
    done.failure = done.failure or problem
