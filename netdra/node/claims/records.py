"""The records of a node's claims by the devices that they have, kept up with the files: for the checks at Prepare.

Called by `prepare` under the store's lock. Reading all records of a node for each claim would take longer than all
other work of Prepare. So only those are read that a daemon of the node has changed since the last claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from types import MappingProxyType
from typing import Any, TypeVar

from netdra.model.errors import InvalidInputError
from netdra.node.claims.store import ClaimStore, PreparedClaim, is_record, uid_of
from netdra.node.view import HeldKey
from netdra.ops import files
from netdra.ops.file_cache import ChangeLog
from netdra.topology.devices import DeviceKey

_K = TypeVar("_K")
_NONE: Mapping[str, PreparedClaim] = MappingProxyType({})


class Records:
    """The records of claims by the claims' devices. A file counts by its content, and not by its name."""

    def __init__(self, records: Mapping[str, PreparedClaim] = _NONE, names: Iterable[str] = ()) -> None:
        """Begin with these.

        Args:
            records: the records, by the names of their files.
            names: the names of all files of claims, also of those that cannot be read.
        """
        self._records: dict[str, PreparedClaim] = {}
        self._claims: Counter[str] = Counter()
        self._held: Counter[HeldKey] = Counter()
        self._log: ChangeLog[HeldKey] = ChangeLog()
        self._of_device: dict[DeviceKey, dict[str, PreparedClaim]] = {}
        self._of_vf: dict[str, dict[str, PreparedClaim]] = {}
        self._unread: set[str] = set()
        for name in (*names, *records):
            self.note(name, records.get(name), is_there=True)

    def __contains__(self, uid: str) -> bool:
        """Whether a claim has a record that can be read."""
        return uid in self._claims

    @property
    def held(self) -> AbstractSet[HeldKey]:
        """The devices that all claims have."""
        return self._held.keys()

    def changed(self, mark: int) -> tuple[int, frozenset[HeldKey] | None]:
        """The devices that came or went since a mark, as `netdra.node.view.Recorded`."""
        return self._log.since(mark)

    @property
    def unreadable(self) -> set[str]:
        """The claims whose records cannot be read."""
        return {uid for name in self._unread if (uid := uid_of(name)) and uid not in self}

    def of_device(self, key: DeviceKey) -> Collection[PreparedClaim]:
        """The records of the claims that have a device, or a share of it."""
        return self._of_device.get(key, _NONE).values()

    def of_vf(self, vf: str) -> Collection[PreparedClaim]:
        """The records of the claims that have a VF, by its PCI address, under any device."""
        return self._of_vf.get(vf, _NONE).values()

    def note(self, name: str, record: PreparedClaim | None, *, is_there: bool) -> None:
        """Note a file as it is now: its record, if it can be read, and whether it is there."""
        former = self._records.pop(name, None)
        if record is not None:
            self._records[name] = record
        if former is not record:
            self._replace(name, former, record)
        if is_there and (record is None or uid_of(name) != record.claim.uid):
            self._unread.add(name)
        else:
            self._unread.discard(name)

    def _replace(self, name: str, former: PreparedClaim | None, record: PreparedClaim | None) -> None:
        if former is not None:
            _subtract(self._claims, [former.claim.uid])
            _subtract(self._held, former.held)
            self._log.note(former.held)
            for index, key in self._places(former):
                del index[key][name]
                if not index[key]:
                    del index[key]
        if record is not None:
            self._claims[record.claim.uid] += 1
            self._held.update(record.held)
            self._log.note(record.held)
            for index, key in self._places(record):
                index.setdefault(key, {})[name] = record

    def _places(self, record: PreparedClaim) -> Iterator[tuple[dict[Any, dict[str, PreparedClaim]], object]]:
        """The indexes with a record, each with the record's key there."""
        for key in {device.key for device in record.owned}:
            yield self._of_device, key
        for vf in record.vfs:
            yield self._of_vf, vf


class FollowedRecords:
    """The records of a store."""

    def __init__(self, store: ClaimStore) -> None:
        """Read nothing yet."""
        self._store, self._records, self._mark = store, Records(), 0

    def update(self) -> Records:
        """The records as they are now, valid while the caller has the store's lock.

        Raises:
            TemporaryError: the disk cannot be read. The devices of a missing claim would count as free.
        """
        while True:
            mark, names = self._store.changed(self._mark)
            given_up = self._store.given_up()
            if names is None or given_up:
                self._read_all(given_up)
                self._mark = 0 if given_up else mark  # which changes no file
                return self._records
            for name in names:
                self._read(name)
            self._mark = mark
            if not names:
                return self._records

    def _read_all(self, given_up: AbstractSet[str]) -> None:
        records = self._store.by_name()  # renames damaged files: they are listed after that
        self._records = Records(records, [name for name in self._store.names() if uid_of(name) not in given_up])

    def _read(self, name: str) -> None:
        """Note a file as it is now. A damaged one is renamed, which is another change."""
        uid, record = uid_of(name), None
        if not uid:
            return
        if is_record(name):
            with suppress(files.NewerStateError, InvalidInputError):
                record = self._store.get(uid)
        self._records.note(name, record, is_there=files.exists(self._store.folder / name))


def _subtract(counter: Counter[_K], keys: Iterable[_K]) -> None:
    for key in keys:
        counter[key] -= 1
        if not counter[key]:
            del counter[key]
