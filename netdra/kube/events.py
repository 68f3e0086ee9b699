"""Writes events of events.k8s.io/v1 about objects, without flooding the server.

Used by the daemons. `Recorder.emit` returns at once. An occurrence that repeats within minutes becomes the series of
the first event, written now and then; an object with too many events gets no more. Events are a courtesy: an event that
cannot be written is dropped after a while, and the daemon does not wait for it.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import msgspec

from netdra.kube.client import Client
from netdra.kube.errors import NotFoundError
from netdra.kube.metrics import EVENTS_WRITTEN
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.kube.resources import Resource
from netdra.model import names
from netdra.model.errors import NetdraError, TemporaryError
from netdra.model.meta import ObjectMeta, micro_time_text
from netdra.ops.metrics import outcome_of

log = logging.getLogger(__name__)

MAX_NOTE = 1024
_CUT = "…"
MAX_OF_AN_OBJECT = 20
MAX_OPEN = 512
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
    """An occurrence; equal ones are one event."""

    regarding: ObjectReference
    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str


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
class Book:
    """The events of the last minutes. It reads no clock and writes nothing.

    Attributes:
        dropped: how many occurrences were not and will not be written.
    """

    dropped: int = 0
    _entries: dict[Occurrence, PendingEvent] = field(default_factory=dict)

    def note(self, occurrence: Occurrence, now: float, time_text: str) -> PendingEvent | None:
        """Note an occurrence; returns its entry, or None if it will not be written."""
        self._forget(now)
        entry = self._entries.get(occurrence)
        if entry is not None:
            entry.count += 1
            entry.last, entry.last_at = time_text, now
        elif len(self._entries) >= MAX_OPEN or self._count_of(occurrence.regarding) >= MAX_OF_AN_OBJECT:
            self.dropped += 1
            return None
        else:
            entry = self._entries[occurrence] = PendingEvent(occurrence, time_text, time_text, now)
        return entry

    def entry(self, occurrence: Occurrence) -> PendingEvent | None:
        """The entry of an occurrence, if there is one."""
        return self._entries.get(occurrence)

    def unwritten(self) -> list[PendingEvent]:
        """The entries that are not written as they are now, in the order of their first occurrence."""
        return [entry for entry in self._entries.values() if entry.count > entry.written]

    def drop(self, entry: PendingEvent) -> None:
        """Drop an entry."""
        self.dropped += entry.count - entry.written
        self._entries.pop(entry.occurrence, None)

    def _forget(self, now: float) -> None:
        for entry in [entry for entry in self._entries.values() if now - entry.last_at >= SERIES_SECONDS]:
            self.drop(entry)

    def _count_of(self, regarding: ObjectReference) -> int:
        return sum(occurrence.regarding == regarding for occurrence in self._entries)


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

    def __post_init__(self) -> None:
        self._queue = WorkQueue("events", self._write, first=WRITE_AGAIN_SECONDS, most=MOST_WAIT)

    def emit(self, occurrence: Occurrence) -> None:
        """Note an occurrence; it is written soon."""
        # A name from the kernel may have bytes that are no text, which JSON has no place for.
        note = _short(occurrence.note.encode(errors="replace"))
        short = msgspec.structs.replace(occurrence, note=note)
        now = self.clock()
        entry = self.book.note(short, now, _now())
        if entry is not None:
            self._queue.add(short, entry.due_in(now))

    async def run(self) -> None:
        """Write due events, until cancelled."""
        await self._queue.run()

    async def flush(self) -> None:
        """Wait, while `run` runs, until all is written, due or not: for a process that is about to end."""
        for entry in self.book.unwritten():
            self._queue.add(entry.occurrence)
        await self._queue.drain()

    async def _write(self, occurrence: Occurrence) -> float | None:
        """Write an occurrence's event or series, if it has changed."""
        entry = self.book.entry(occurrence)
        if entry is None or entry.count == entry.written:
            return None
        count = entry.count
        entry.tried_at = self.clock()
        try:
            if entry.name:
                series = msgspec.to_builtins(EventSeries(count=count, last_observed_time=entry.last))
                await self.client.merge(EVENTS, entry.name, {"series": series}, _home(entry.occurrence.regarding))
            else:
                entry.name = (await self.client.create(EVENTS, self._event(entry))).metadata.name
            entry.written = count
            EVENTS_WRITTEN.labels("ok").inc()
        except NotFoundError:
            # The server keeps events for an hour only: a series that goes on after that begins anew, if its namespace
            # is there.
            if entry.name:
                entry.name = ""
                return AGAIN
            self.book.drop(entry)
        except NetdraError as problem:
            EVENTS_WRITTEN.labels(outcome_of(problem)).inc()
            log.info("event not written: %s", problem)
            if isinstance(problem, TemporaryError):
                return AGAIN
            self.book.drop(entry)
        return None

    def _event(self, entry: PendingEvent) -> Event:
        occurrence = entry.occurrence
        name = names.subdomain(occurrence.regarding.name)[: names.MAX_SUBDOMAIN - 17]
        series = EventSeries(count=entry.count, last_observed_time=entry.last) if entry.count > 1 else None
        return Event(
            metadata=ObjectMeta(name=f"{name}.{secrets.token_hex(8)}", namespace=_home(occurrence.regarding)),
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


def _home(regarding: ObjectReference) -> str:
    """Events of objects without a namespace are kept in `default`."""
    return regarding.namespace or DEFAULT_NAMESPACE


def _now() -> str:
    return micro_time_text(datetime.now(UTC))


def _short(note: bytes) -> str:
    """A note that is not longer than the API server takes, with a mark where it was cut."""
    if len(note) <= MAX_NOTE:
        return note.decode()
    return f"{note[: MAX_NOTE - len(_CUT.encode())].decode(errors='ignore')}{_CUT}"
