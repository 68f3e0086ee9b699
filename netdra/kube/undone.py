"""Writes that another client undoes, as a garbage collector or a policy that mutates does: noticed, and delayed.

Used by `netdra.kube.client` for each write, and by writers whose objects get other names each time. A reconciler writes
only what differs. So a write with the content of the last one means that another client undid that one. A few are done
at once: a kubelet that restarts deletes a driver's slices, and an operator may delete an object. Those that follow
wait, longer each time, so that netdra and the other client do not load the API server. A write with another content
never waits. `netdra.kube.undone_reports` reports the waits. It reads no clock but the given one.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from netdra.kube.errors import ApiError, Status
from netdra.kube.metrics import UNDONE
from netdra.model.errors import TemporaryError
from netdra.model.meta import OwnerReference

log = logging.getLogger(__name__)

_MANY = 1024
"""From this number of remembered writes on, old ones are forgotten."""
_METADATA = ("name", "namespace", "uid", "finalizers", "ownerReferences")
"""The metadata that netdra decides on: versions, and labels and annotations of others, are not part of a content."""
_TIMES = re.compile(rb'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"')
"""A condition that is written again has a later time."""


@dataclass(frozen=True)
class Pace:
    """How fast an object is written again and again, in seconds.

    Attributes:
        free: how many writes of the same content are done at once.
        first: the first wait; each further one is twice as long.
        most: the longest wait.
        forget: after this time, and twice the last wait, a write was not undone.
    """

    free: int = 3
    first: float = 10.0
    most: float = 240.0
    forget: float = 60.0

    def wait(self, count: int) -> float:
        """The seconds between the write with this number, from 1 on, and the next one."""
        return 0.0 if count < self.free else min(self.most, self.first * 2.0 ** min(count - self.free, 30))


PACE = Pace()


@dataclass(frozen=True)
class WrittenObject:
    """An object that is written, as the write knows it.

    Attributes:
        method: the HTTP method of the write.
        key: identifies the object among all that the process writes.
        path: the object's path in the API server's URLs.
        plural: its kind's name in URLs.
        api_version, kind, name, namespace: its identity for people.
        owners: the objects that it belongs to.
    """

    method: str
    key: str
    path: str
    plural: str
    api_version: str
    kind: str
    name: str
    namespace: str = ""
    owners: tuple[OwnerReference, ...] = ()


class UndoneError(ApiError, TemporaryError):
    """A write waits because another client has undone the last ones; it is due after `retry_after` seconds."""


@dataclass
class _Write:
    """The last write to an object, and how many had its content one after the other."""

    content: bytes
    version: str
    at: float
    count: int = 1
    delayed: bool = False
    note: str = ""


@dataclass
class UndoneWrites:
    """The last writes of a process, by method and path.

    Attributes:
        clock: in seconds; it never goes back.
    """

    pace: Pace = PACE
    clock: Callable[[], float] = time.monotonic
    _writes: dict[tuple[str, str], _Write] = field(default_factory=dict)
    _listeners: list[Callable[[WrittenObject], None]] = field(default_factory=list)
    _most: int = _MANY

    def __len__(self) -> int:
        """How many writes are remembered."""
        return len(self._writes)

    @contextmanager
    def reporting(self, listener: Callable[[WrittenObject], None]) -> Iterator[None]:
        """Call a listener whenever writes to an object begin to wait longer."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def check(self, written: WrittenObject, content: bytes) -> None:
        """Check whether a write is due.

        Args:
            content: a digest of the content, see `digest`.

        Raises:
            UndoneError: it waits.
        """
        last = self._last(written)
        if last is None or last.content != content:
            return
        wait = last.at + self.pace.wait(last.count) - self.clock()
        if wait <= 0.0:
            return
        if not last.delayed:
            last.delayed = True
            if not self._listeners:
                log.warning("%s", _text(written))
            for listener in tuple(self._listeners):
                listener(written)
        what = last.note or _text(written)
        raise UndoneError(what, Status(message=what), retry_after=wait)

    def note(self, written: WrittenObject, content: bytes, version: str = "") -> None:
        """Note a write that the API server has done.

        Args:
            content: a digest of the content.
            version: the object's resourceVersion then. A write that did not change it was not needed: it came from a
                copy that was not up to date.
        """
        last, now = self._last(written), self.clock()
        # Objects that netdra deletes itself are not undone by another client.
        if opposite := {"POST": "DELETE", "DELETE": "POST"}.get(written.method):
            self._writes.pop((opposite, written.key), None)
        if last is None or last.content != content:
            self._forget(now)
            self._writes[written.method, written.key] = _Write(content, version, now)
        elif not version or last.version != version:
            UNDONE.labels(written.plural).inc()
            last.count, last.version, last.at, last.delayed = last.count + 1, version, now, False

    def explain(self, written: WrittenObject, note: str) -> None:
        """Note a better text for an object's errors."""
        if (last := self._last(written)) is not None:
            last.note = note

    def seconds_left(self, written: WrittenObject) -> float:
        """For how many seconds an object counts as undone from now on; 0 if it does not."""
        last = self._last(written)
        if last is None or last.count < self.pace.free:
            return 0.0
        return last.at + self._lasts(last) - self.clock()

    def _last(self, written: WrittenObject) -> _Write | None:
        last = self._writes.get((written.method, written.key))
        if last is not None and self.clock() - last.at > self._lasts(last):
            del self._writes[written.method, written.key]
            return None
        return last

    def _lasts(self, last: _Write) -> float:
        """After how many seconds a write was not undone."""
        return max(self.pace.forget, 2 * self.pace.wait(last.count))

    def _forget(self, now: float) -> None:
        """Forget the writes that were not undone, if there are many."""
        if len(self._writes) < self._most:
            return
        self._writes = {key: last for key, last in self._writes.items() if now - last.at <= self._lasts(last)}
        self._most = max(_MANY, 2 * len(self._writes))


def _text(written: WrittenObject) -> str:
    return f'{written.kind} "{written.name}": another client undoes what netdra writes; netdra writes it less often'


class HeadMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The owners and the version in an object's metadata."""

    owner_references: tuple[OwnerReference, ...] = ()
    resource_version: str = ""


class ObjectHead(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of an object that a write is reported with."""

    kind: str = ""
    metadata: HeadMeta = HeadMeta()


_head = msgspec.json.Decoder(ObjectHead)
_parts = msgspec.json.Decoder(dict[str, msgspec.Raw])


def head(body: bytes) -> ObjectHead:
    """The parts of an object that a write is reported with."""
    return _head.decode(body)


def digest(body: bytes, drawn: Iterable[str] = ()) -> bytes:
    """A short stand-in for the fields that a request's body sets, without versions, times, and the additions of others.

    Args:
        body: the object, or a part of it.
        drawn: the fields with values that are drawn at random each time.
    """
    parts = _parts.decode(body)
    metadata = _parts.decode(parts.pop("metadata", msgspec.Raw(b"{}")))
    parts = {name: value for name, value in parts.items() if name not in drawn}
    kept = {name: metadata[name] for name in _METADATA if name in metadata}
    return hashlib.sha256(_TIMES.sub(b'""', msgspec.json.encode((parts, kept)))).digest()[:16]
