"""Reports writes that other clients undo, by events of the object's owners, or of the object, and a line in the log.

`netdra.kube.undone` notices them. Run by the daemons that write events. The other client is the one that the API server
names in the object's managedFields; of an object that is gone, no client is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta

import msgspec

from netdra.kube.client import FIELD_MANAGER, Client
from netdra.kube.errors import NotFoundError
from netdra.kube.events import ObjectReference, Occurrence, Recorder
from netdra.kube.undone import WrittenObject
from netdra.model.errors import NetdraError, printable
from netdra.model.meta import time_text

log = logging.getLogger(__name__)

REASON = "WriteUndone"
_OWN = (FIELD_MANAGER, f"{FIELD_MANAGER}-controller", f"{FIELD_MANAGER}-webhook")
# The chart's admission policy lets the controller write events of Services with this action only.
_ACTIONS = {"EndpointSlice": "PublishEndpoints"}
_MAX_MANAGER = 128
_RECENT = timedelta(minutes=10)
"""Clients that wrote the object before are not the one that undoes the writes."""
_LATER_SECONDS = 1.0


class FieldsEntry(msgspec.Struct, frozen=True):
    """A client's last write, as the API server notes it."""

    manager: str = ""
    time: str = ""


class _Managed(msgspec.Struct, frozen=True, rename="camel"):
    managed_fields: tuple[FieldsEntry, ...] = ()


class ManagedObject(msgspec.Struct, frozen=True):
    """An object with the clients that wrote it."""

    metadata: _Managed = _Managed()


_managed = msgspec.json.Decoder(ManagedObject)


class UndoneReports:
    """The objects of which other clients undo the writes, reported while `run` runs."""

    def __init__(self, client: Client, recorder: Recorder, changed: Callable[[], None] = lambda: None) -> None:
        """Begin without reports.

        Args:
            changed: called when `notes` have changed.
        """
        self._client = client
        self._recorder = recorder
        self._changed = changed
        self._notes: dict[WrittenObject, str] = {}
        self._timer: asyncio.TimerHandle | None = None

    def notes(self, *, but: str = "") -> tuple[str, ...]:
        """The present reports, each as a text for people.

        Args:
            but: a kind whose objects are left out: a report that is written to the object itself would be another
                content each time, which never waits.
        """
        undone = self._client.undone
        self._notes = {written: note for written, note in self._notes.items() if undone.seconds_left(written) > 0.0}
        return tuple(dict.fromkeys(note for written, note in self._notes.items() if written.kind != but))

    async def run(self) -> None:
        """Report until cancelled."""
        begun: asyncio.Queue[WrittenObject] = asyncio.Queue()
        with self._client.undone.reporting(begun.put_nowait):
            while True:
                await self._report(await begun.get())

    async def _report(self, written: WrittenObject) -> None:
        note = undone_text(written, await _way_of_undoing(self._client, written))
        log.warning("%s", note)
        action = _ACTIONS.get(written.kind, "Write")
        for regarding in _references(written):
            self._recorder.emit(
                Occurrence(regarding=regarding, type="Warning", reason=REASON, action=action, note=note)
            )
        self._client.undone.explain(written, note)
        self._notes[written] = note
        if self._timer is not None:
            self._timer.cancel()
        self._follow_notes()

    def _follow_notes(self) -> None:
        """Report that notes have changed, now and whenever one is over; each further write prolongs its note."""
        self._changed()
        if self.notes():
            left = min(map(self._client.undone.seconds_left, self._notes))
            self._timer = asyncio.get_running_loop().call_later(left + _LATER_SECONDS, self._follow_notes)


def undone_text(written: WrittenObject, way: str) -> str:
    """The report of an object; it is the same for each wait, so that they are one event."""
    name = f"{written.namespace}/{written.name}" if written.namespace else written.name
    return (
        f'{written.kind} "{name}": {way} each time that netdra writes it; netdra writes it again later and later, at '
        "most every 4 minutes. Stop the other client, or remove the object that netdra makes it from"
    )


async def _way_of_undoing(client: Client, written: WrittenObject) -> str:
    try:
        found = _managed.decode(await client.read(written.path, f'get {written.plural} "{written.name}"'))
    except NotFoundError:
        return "another client deletes it, or the garbage collector, because its owner does not exist,"
    except (NetdraError, msgspec.DecodeError):
        return "another client changes it"
    since = time_text(client.now() - _RECENT)
    others = [entry for entry in found.metadata.managed_fields if entry.manager not in _OWN and entry.time >= since]
    if others:
        manager = printable(max(others, key=lambda entry: entry.time).manager, _MAX_MANAGER)
        return f'client "{manager}" (its field manager) changes it'
    # A client that only removes fields is not in the list.
    return "another client, an admission policy, or another process of netdra changes it"


def _references(written: WrittenObject) -> Iterator[ObjectReference]:
    if not written.owners:
        yield ObjectReference(
            api_version=written.api_version, kind=written.kind, name=written.name, namespace=written.namespace
        )
    for owner in written.owners:
        yield ObjectReference(
            api_version=owner.api_version,
            kind=owner.kind,
            name=owner.name,
            namespace=written.namespace if owner.kind in _NAMESPACED else "",
            uid=owner.uid,
        )


_NAMESPACED = frozenset({"ResourceClaim", "Pod", "Service", "Deployment", "DaemonSet"})
"""The kinds of owners that are in the namespace of the object."""
