"""Reads of single objects for verdicts that must not stand on an old copy: each is begun after it was asked for.

Used by `netdra.admission.copy`. Whoever asks for an object while it is being read waits for the next read, because the
answer that is under way may be from before the write that made the question; all who wait share that next read. So a
storm of claims for one topology costs the API server one request at a time, and no claim waits for more than two.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, TypeVar

from netdra.kube.errors import NotFoundError
from netdra.kube.resources import KubernetesObject, Resource

T = TypeVar("T", bound=KubernetesObject)


class Source(Protocol):
    """Where objects are read."""

    async def get(self, resource: Resource[T], name: str) -> T:
        """One object; raises NotFoundError if there is none, ApiError if it is not to be had."""


class Reads:
    """The reads that are under way, and those that are to come. One event loop's."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._next: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._running: dict[tuple[str, str], asyncio.Task[Any]] = {}

    async def get(self, resource: Resource[T], name: str) -> T | None:
        """An object as it is at some moment from now on; None if there is none.

        Raises:
            ApiError: it is not to be had.
        """
        key = resource.plural, name
        reading: asyncio.Task[T | None] | None = self._next.get(key)
        if reading is None:
            reading = asyncio.create_task(self._read(resource, name, key, self._running.get(key)))
            self._next[key] = reading
        return await asyncio.shield(reading)

    async def _read(
        self, resource: Resource[T], name: str, key: tuple[str, str], before: asyncio.Task[Any] | None
    ) -> T | None:
        if before is not None:
            await asyncio.wait((before,))
        own = self._running[key] = self._next.pop(key)
        try:
            return await self._source.get(resource, name)
        except NotFoundError:
            return None
        finally:
            if self._running[key] is own:
                del self._running[key]
