"""Keeps a store equal to the server: lists once, watches from there, and recovers from any trouble by the cheapest way.

Run by the daemons, one for each kind. After a broken connection or the end of a watch comes a watch from the last
resourceVersion seen. After a version that is too old, or any other error, comes a list, whose difference to the store
makes up for deletes that were missed. A list or watch that brings nothing is repeated after a wait that grows.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from netdra.kube import metrics
from netdra.kube.answers import Page, decoder
from netdra.kube.backoff import Backoff
from netdra.kube.client import PAGE, Client, Selection
from netdra.kube.errors import ApiError, GoneError, Status, api_error, no_answer
from netdra.kube.resources import KubernetesObject, Resource
from netdra.kube.store import Store, key_of
from netdra.kube.watch import WatchEvent, watch
from netdra.model.errors import UNREADABLE, NetdraError
from netdra.model.meta import order

log = logging.getLogger(__name__)

T = TypeVar("T", bound=KubernetesObject)


def keep_all(_: object) -> bool:
    """Every object is kept."""
    return True


REFUSALS_BEFORE_LIST = 3


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct, frozen=True):
    """The part of any object that has its key and its version."""

    metadata: _Metadata


_head = msgspec.json.Decoder(_Head)
_status = msgspec.json.Decoder(Status)


@dataclass
class Counts:
    """A reflector's counts so far: for metrics, and for tests that it does not spin."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    failures: int = 0


@dataclass(frozen=True)
class Timing:
    """A reflector's times, in seconds.

    Attributes:
        watch: after how long the server is to end a watch, drawn from this range.
        idle: how long a watch may bring no byte; bookmarks come about once a minute.
        healthy: a watch that lasted this long was a success, even if it brought nothing.
    """

    watch: tuple[int, int] = (300, 600)
    idle: float = 90.0
    healthy: float = 5.0


@dataclass
class Reflector(Generic[T]):
    """Keeps one store equal to one selection of one kind.

    Attributes:
        keeps: whether an object is kept, for conditions that are not in the server's selections.
        vital: whether the process's health depends on it.
        problem: why the store is not current just now, "" if it is.
    """

    client: Client
    resource: Resource[T]
    store: Store[T]
    selection: Selection = field(default_factory=Selection)
    timing: Timing = field(default_factory=Timing)
    backoff: Backoff = field(default_factory=Backoff)
    clock: Callable[[], float] = time.monotonic
    counts: Counts = field(default_factory=Counts)
    keeps: Callable[[T], bool] = keep_all
    vital: bool = True
    problem: str = ""
    _refusals: int = 0
    _shown: tuple[int, int] = (0, 0)

    async def run(self) -> None:
        """Continue until cancelled; no answer of the server ends it."""
        if self.vital:
            self.client.following.append(self)
        try:
            await self._follow()
        finally:
            self.client.following[:] = [reflector for reflector in self.client.following if reflector is not self]
            self._show(0, 0)

    @property
    def plural(self) -> str:
        """The kind's name in URLs."""
        return self.resource.plural

    @property
    def synced(self) -> bool:
        """Whether the store has been equal to the server once."""
        return self.store.synced

    async def _follow(self) -> None:
        while True:
            try:
                await self._list()
                while True:
                    await self._watch_again()
            except NetdraError as problem:
                await self._pause(problem)
            except UNREADABLE as problem:
                await self._pause(no_answer(self._what, problem))

    async def _list(self) -> None:
        """Take every object of the server's list; all others are gone."""
        self.counts.lists += 1
        metrics.LISTS.labels(self.plural).inc()
        present: set[str] = set()
        version = ""
        async with aclosing(self._pages()) as pages:
            async for page in pages:
                version = page.metadata.resource_version
                # A server that was restored from a backup counts again from there: equal versions then prove nothing.
                restored = order(version) < order(self.store.version)
                present.update(self._take(item, afresh=restored) for item in page.items or ())
        for key in [key for key in (*self.store.objects, *self.store.unreadable) if key not in present]:
            self.store.remove(key)
        self.store.advance(version)
        self._heard()
        self._end_trouble()

    async def _pages(self) -> AsyncGenerator[Page]:
        """The pages of the server's list; the server makes the next one while one is taken."""
        upcoming: asyncio.Task[Page] | None = self._page("")
        try:
            while upcoming is not None:
                page = await upcoming
                upcoming = self._page(page.metadata.continue_) if page.metadata.continue_ else None
                await asyncio.sleep(0)  # it is asked for
                yield page
        finally:
            if upcoming is not None:
                upcoming.cancel()
                await asyncio.gather(upcoming, return_exceptions=True)

    def _page(self, continue_: str) -> asyncio.Task[Page]:
        return asyncio.create_task(self.client.page(self.resource, self.selection, limit=PAGE, continue_=continue_))

    async def _watch_again(self) -> None:
        """Watch until the stream ends or breaks; a break that needs no new list is not an error.

        Raises:
            NetdraError: the store has to be listed again.
        """
        began, version = self.clock(), self.store.version
        trouble: ApiError | None = None
        try:
            await self._watch()
        except GoneError:
            raise
        except ApiError as problem:
            trouble = problem
        lasted, silent = self.clock() - began, self.store.version == version
        if lasted >= self.timing.healthy:
            self.backoff.reset()
        elif trouble is None and silent:
            trouble = no_answer(self._what, ConnectionError("the server ended the watch immediately"))
        if trouble is None:
            return
        # A server that refuses may not like the version. A server that is silent where bookmarks are due may have been
        # restored from a backup: it sends nothing at all after a version that it has not reached.
        self._refusals += trouble.status.code != 0
        if self._refusals >= REFUSALS_BEFORE_LIST or (silent and lasted >= self.timing.idle):
            self._refusals = 0
            raise trouble
        await self._pause(trouble)

    async def _watch(self) -> None:
        self.counts.watches += 1
        metrics.WATCHES.labels(self.plural).inc()
        async with watch(
            self.client,
            self.resource,
            self.selection,
            self.store.version,
            seconds=random.randint(*self.timing.watch),  # noqa: S311 (spreads load, hides nothing)
            idle_seconds=self.timing.idle,
        ) as events:
            self._end_trouble()
            async for event in events:
                self._apply(event)

    def _apply(self, event: WatchEvent) -> None:
        """Take one event into the store.

        Raises:
            ApiError: the event is an error, or makes no sense; the store has to be listed again.
        """
        if event.type == "ERROR":
            problem = api_error(self._what, _status.decode(event.object))
            raise GoneError(problem.what, problem.status, retry_after=problem.retry_after)
        self.counts.events += 1
        metrics.EVENTS.labels(self.plural).inc()
        metadata = _head.decode(event.object).metadata
        if order(metadata.resource_version) < order(self.store.version):
            raise GoneError(f"API server: {self._what}: resource versions went backwards", Status(reason="Expired"))
        if event.type in {"ADDED", "MODIFIED"}:
            self._take(event.object)
        elif event.type == "DELETED":
            self.store.remove(key_of(metadata.namespace, metadata.name))
        if metadata.resource_version != self.store.version:
            self.store.advance(metadata.resource_version)
            self.backoff.reset()
        self._heard()

    def _take(self, raw: msgspec.Raw, *, afresh: bool = False) -> str:
        """Put an object into the store unless it is there in this version, and return its key."""
        metadata = _head.decode(raw).metadata
        key = key_of(metadata.namespace, metadata.name)
        stored = self.store.objects.get(key)
        if not afresh and stored is not None and stored.metadata.resource_version == metadata.resource_version:
            return key
        try:
            decoded = decoder(self.resource.type).decode(raw)
            if self.keeps(decoded):
                self.store.put(key, decoded)
            else:
                self.store.remove(key)
        except UNREADABLE as problem:
            log.warning('%s "%s" cannot be read: %s', self.resource.plural, key, problem)
            self.store.put_unreadable(key, str(problem))
        return key

    async def _pause(self, problem: NetdraError) -> None:
        self.counts.failures += 1
        metrics.FAILURES.labels(self.plural).inc()
        if problem.what != self.problem:
            self.problem = problem.what
            log.warning("%s", problem)
        await asyncio.sleep(self.backoff.next(problem.retry_after if isinstance(problem, ApiError) else 0.0))

    def _end_trouble(self) -> None:
        self._refusals = 0
        if self.problem:
            log.info("%s: recovered from: %s", self._what, self.problem)
            self.problem = ""

    def _heard(self) -> None:
        metrics.LAST_EVENT.labels(self.plural).set(time.time())
        self._show(len(self.store.objects), len(self.store.unreadable))

    def _show(self, objects: int, unreadable: int) -> None:
        """Set this store's share of the gauges: several stores may have objects of one kind."""
        before, self._shown = self._shown, (objects, unreadable)
        metrics.OBJECTS.labels(self.plural).inc(objects - before[0])
        metrics.UNREADABLE.labels(self.plural).inc(unreadable - before[1])

    @property
    def _what(self) -> str:
        return f"watch {self.resource.plural}"
