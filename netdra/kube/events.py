"""Writes events of events.k8s.io/v1 about objects, without flooding the server.

Used by the daemons. `Recorder.emit` returns at once. An occurrence that repeats within minutes becomes the series of
the first event, written now and then. Each object and each namespace has a share of the new events, so none silences
the others; the newest occurrences replace older ones. Events are a courtesy: an event that cannot be written is dropped
after a while, and the daemon does not wait for it.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeVar

import msgspec

from netdra.kube.client import Client
from netdra.kube.errors import NotFoundError
from netdra.kube.metrics import EVENTS_DROPPED, EVENTS_WRITTEN
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.kube.resources import Resource
from netdra.model import names
from netdra.model.errors import NetdraError, TemporaryError, cut_mark
from netdra.model.meta import ObjectMeta, micro_time_text
from netdra.ops.metrics import outcome_of

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

MAX_NOTE = 1024
_CUT = "…"
MAX_OF_AN_OBJECT, MAX_OF_A_NAMESPACE = 20, 512
"""How many new events of an object, and of a namespace, are written at once, and in `SERIES_SECONDS` after that."""
MAX_OPEN = 512
"""How many occurrences are remembered."""
SERIES_SECONDS = 360.0
WRITE_AGAIN_SECONDS = 10.0
MOST_WAIT = 60.0
DEFAULT_NAMESPACE = "default"


class ObjectReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The object that an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class EventSeries(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How often an event occurred, and when last."""

    count: int
    last_observed_time: str


class Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An event about an object: `reason` and `action` are words for programs, `note` is for people."""

    metadata: ObjectMeta
    event_time: str | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference | None = None
    note: str = ""
    type: str = ""
    series: EventSeries | None = None


EVENTS = Resource("events.k8s.io/v1", "events", Event, namespaced=True)


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence; equal ones are one event.

    Attributes:
        regarding: the object that it is about.
        type: whether it is a problem.
        reason: one word for programs.
        action: another one, for the action that was done or tried.
        note: the text for people, with the next step.
        next_step: the next step alone, for programs; "" if none.
    """

    regarding: ObjectReference
    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str
    next_step: str = ""


@dataclass
class PendingEvent:
    """An event that may still become a series. Times are in seconds of the recorder's clock."""

    occurrence: Occurrence
    first: str
    last: str
    last_at: float
    count: int = 1
    written: int = 0
    name: str = ""
    tried_at: float = 0.0

    def due_in(self, now: float) -> float:
        """In how many seconds it should be written; the first time at once."""
        return 0.0 if not self.tried_at else max(0.0, self.tried_at + WRITE_AGAIN_SECONDS - now)


@dataclass
class Share:
    """The new events of each object, or of each namespace: some at once, then as many in `SERIES_SECONDS`.

    It reads no clock. The rule is that of a token bucket, by the time at which the bucket is full again (GCRA).

    Attributes:
        most: how many are written at once.
    """

    most: int
    _full: dict[Hashable, float] = field(default_factory=dict)

    def due_in(self, whose: Hashable, now: float) -> float:
        """In how many seconds the next event may be written, 0 if now."""
        return max(0.0, self._full.get(whose, now) + SERIES_SECONDS / self.most - SERIES_SECONDS - now)

    def take(self, whose: Hashable, now: float) -> None:
        """Count a new event."""
        if len(self._full) > 2 * MAX_OPEN:
            self._full = {key: full for key, full in self._full.items() if full > now}
        self._full[whose] = max(self._full.get(whose, now), now) + SERIES_SECONDS / self.most


@dataclass
class Book:
    """The events of the last minutes. It reads no clock and writes nothing.

    Attributes:
        dropped: how many occurrences were not and will not be written.
    """

    dropped: int = 0
    _entries: dict[Occurrence, PendingEvent] = field(default_factory=dict)
    _of_object: Counter[ObjectReference] = field(default_factory=Counter)
    _of_namespace: Counter[str] = field(default_factory=Counter)
    _objects: Share = field(default_factory=lambda: Share(MAX_OF_AN_OBJECT))
    _namespaces: Share = field(default_factory=lambda: Share(MAX_OF_A_NAMESPACE))

    def note(self, occurrence: Occurrence, now: float, time_text: str) -> PendingEvent:
        """Note an occurrence; returns its entry. If the book is full, an older entry is dropped."""
        self._forget(now)
        entry = self._entries.pop(occurrence, None)
        if entry is None:
            self._make_room(occurrence.regarding)
            entry = PendingEvent(occurrence, time_text, time_text, now)
            self._of_object[occurrence.regarding] += 1
            self._of_namespace[_home(occurrence.regarding)] += 1
        else:
            entry.count += 1
            entry.last, entry.last_at = time_text, now
        self._entries[occurrence] = entry
        return entry

    def entry(self, occurrence: Occurrence) -> PendingEvent | None:
        """The entry of an occurrence, if there is one."""
        return self._entries.get(occurrence)

    def unwritten(self) -> list[PendingEvent]:
        """The entries that are not written as they are now, in the order of their last occurrence."""
        return [entry for entry in self._entries.values() if entry.count > entry.written]

    def drop(self, entry: PendingEvent) -> None:
        """Forget an event that cannot be written, and count its unwritten occurrences as dropped."""
        self.dropped += entry.count - entry.written
        if self._entries.pop(entry.occurrence, None) is not None:
            regarding = entry.occurrence.regarding
            _decrease(self._of_object, regarding)
            _decrease(self._of_namespace, _home(regarding))

    def new_in(self, regarding: ObjectReference, now: float) -> float:
        """In how many seconds a new event about an object may be written, 0 if now."""
        return max(self._objects.due_in(regarding, now), self._namespaces.due_in(_home(regarding), now))

    def take_new(self, regarding: ObjectReference, now: float) -> None:
        """Count a new event about an object."""
        self._objects.take(regarding, now)
        self._namespaces.take(_home(regarding), now)

    def _forget(self, now: float) -> None:
        for entry in [*self._entries.values()]:
            if now - entry.last_at < SERIES_SECONDS:
                return  # as all that follow: they are in the order of their last occurrence
            self.drop(entry)

    def _make_room(self, regarding: ObjectReference) -> None:
        """Drop the oldest entry of an object that has too many, or else of the namespace that has most."""
        entries = self._entries.values()
        if self._of_object[regarding] >= MAX_OF_AN_OBJECT:
            self.drop(next(entry for entry in entries if entry.occurrence.regarding == regarding))
        elif len(self._entries) >= MAX_OPEN:
            namespace = max(self._of_namespace, key=self._of_namespace.__getitem__)
            self.drop(next(entry for entry in entries if _home(entry.occurrence.regarding) == namespace))


@dataclass
class Recorder:
    """Takes events from the process and writes them while `run` runs.

    Attributes:
        controller: the reporting controller, e.g. `dra.networking/node`.
        instance: one of several, e.g. the node's name.
    """

    client: Client
    controller: str
    instance: str
    clock: Callable[[], float] = time.monotonic
    book: Book = field(default_factory=Book)
    _queue: WorkQueue[Occurrence] = field(init=False)
    _counted: int = 0
    _is_ending: bool = False

    def __post_init__(self) -> None:
        self._queue = WorkQueue("events", self._write, first=WRITE_AGAIN_SECONDS, most=MOST_WAIT)

    def emit(self, occurrence: Occurrence) -> None:
        """Note an occurrence; it is written soon."""
        # A name from the kernel may contain bytes that are not text, which JSON cannot represent.
        note = _short(occurrence.note.encode(errors="replace"))
        next_step = _short(occurrence.next_step.encode(errors="replace"))
        short = msgspec.structs.replace(occurrence, note=note, next_step=next_step)
        now = self.clock()
        entry = self.book.note(short, now, _now())
        self._count_drops()
        self._queue.add(short, entry.due_in(now))

    async def run(self) -> None:
        """Write due events, until cancelled."""
        await self._queue.run()

    async def flush(self) -> None:
        """Wait, while `run` runs, until all is written, due or not: for a process that is about to end."""
        self._is_ending = True
        for entry in self.book.unwritten():
            self._queue.add(entry.occurrence)
        try:
            await self._queue.drain()
        finally:
            self._is_ending = False

    async def _write(self, occurrence: Occurrence) -> float | None:
        """Write an occurrence's event or series, if it has changed."""
        entry = self.book.entry(occurrence)
        if entry is None or entry.count == entry.written:
            return None
        if not entry.name and not self._is_ending:
            wait = self.book.new_in(occurrence.regarding, self.clock())
            if wait > 0.0:
                self._queue.add(occurrence, max(wait, WRITE_AGAIN_SECONDS))
                return None
        count = entry.count
        entry.tried_at = self.clock()
        try:
            if entry.name:
                series = msgspec.to_builtins(EventSeries(count=count, last_observed_time=entry.last))
                await self.client.merge(EVENTS, entry.name, {"series": series}, _home(entry.occurrence.regarding))
            else:
                self.book.take_new(occurrence.regarding, entry.tried_at)
                entry.name = (await self.client.create(EVENTS, self._event(entry))).metadata.name
            entry.written = count
            EVENTS_WRITTEN.labels("ok").inc()
        except NotFoundError:
            # The server keeps events for an hour only: a longer series starts again with a new event, if its namespace
            # exists.
            if entry.name:
                entry.name = ""
                return AGAIN
            self._drop(entry)
        except NetdraError as problem:
            EVENTS_WRITTEN.labels(outcome_of(problem)).inc()
            log.info("event not written: %s", problem)
            if isinstance(problem, TemporaryError):
                return AGAIN
            self._drop(entry)
        return None

    def _drop(self, entry: PendingEvent) -> None:
        self.book.drop(entry)
        self._count_drops()

    def _count_drops(self) -> None:
        EVENTS_DROPPED.inc(self.book.dropped - self._counted)
        self._counted = self.book.dropped

    def _event(self, entry: PendingEvent) -> Event:
        occurrence = entry.occurrence
        name = names.subdomain(occurrence.regarding.name)[: names.MAX_SUBDOMAIN - 17]
        series = EventSeries(count=entry.count, last_observed_time=entry.last) if entry.count > 1 else None
        return Event(
            metadata=ObjectMeta(
                name=f"{name}.{secrets.token_hex(8)}",
                namespace=_home(occurrence.regarding),
                annotations={names.NEXT_STEP: occurrence.next_step} if occurrence.next_step else {},
            ),
            event_time=entry.first,
            reporting_controller=self.controller,
            reporting_instance=self.instance,
            action=occurrence.action,
            reason=occurrence.reason,
            regarding=occurrence.regarding,
            note=occurrence.note,
            type=occurrence.type,
            series=series,
        )


def _decrease(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _home(regarding: ObjectReference) -> str:
    """Events of objects without a namespace are kept in `default`."""
    return regarding.namespace or DEFAULT_NAMESPACE


def _now() -> str:
    return micro_time_text(datetime.now(UTC))


def _short(note: bytes) -> str:
    """A note that is not longer than the API server takes, with a mark where it was cut; it keeps its code."""
    text = note.decode()
    if len(note) <= MAX_NOTE:
        return text
    mark = cut_mark(text, note[: MAX_NOTE - len(_CUT.encode())].decode(errors="ignore"))
    return f"{note[: MAX_NOTE - len(mark.encode())].decode(errors='ignore')}{mark}"
