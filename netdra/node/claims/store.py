"""The prepared claims on disk: one file a claim, which outlives the daemon and the API object (decision D13).

Written and read by `prepare`, also by two daemons at once during a rolling update, and read by whoever asks what is
prepared on this node. What another daemon wrote counts at once: only a file that has not changed is not read again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from netdra.chain import files
from netdra.chain.recollection import Recollection
from netdra.model import names
from netdra.model.errors import InvalidInputError, NetdraError, TemporaryError
from netdra.node.claims.prepared import VERSION, PreparedClaim

log = logging.getLogger(__name__)

FOLDER = "claims"
_SUFFIX = ".json"
_LOCK = ".lock"
_LOCK_SECONDS = 10.0
_one_at_a_time = threading.Lock()  # among the threads of this process, where waiting for the file's lock is polling
_decoder = msgspec.json.Decoder(PreparedClaim)
_known: Recollection[PreparedClaim] = Recollection(lambda text, _: _decoder.decode(text))


class ClaimStore(msgspec.Struct, frozen=True):
    """The prepared claims below a folder of the daemon's state."""

    folder: Path

    @classmethod
    def of_state(cls, state: Path) -> ClaimStore:
        """The claims of a daemon's state folder."""
        return cls(state / FOLDER)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other daemon from preparing or unpreparing meanwhile; short work only.

        Raises:
            TemporaryError: another one has it for too long, or the file system does not take the lock's file.
        """
        path, flags = self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            try:
                lock = os.open(path, flags, files.MODE)
            except FileNotFoundError:
                self.folder.mkdir(parents=True, exist_ok=True, mode=files.FOLDER_MODE)
                lock = os.open(path, flags, files.MODE)
        except OSError as problem:
            raise files.unwritable(path, problem) from None
        deadline = time.monotonic() + _LOCK_SECONDS
        ours = _one_at_a_time.acquire(timeout=_LOCK_SECONDS)
        try:
            if not ours or not files.locked(lock, deadline):
                raise TemporaryError(f"another netdra on this node has held {path} for {_LOCK_SECONDS:.0f} s")
            yield
        finally:
            os.close(lock)
            if ours:
                _one_at_a_time.release()

    def get(self, uid: str) -> PreparedClaim | None:
        """A prepared claim, or None if it is not; a file that cannot be read is put aside and counts as none.

        Raises:
            NetdraError: the uid cannot be a claim's, or the disk cannot be read.
        """
        path = self._path(uid)
        try:
            found = _known.of(path)
            problem = "" if found.version == VERSION else f"version {found.version}, this netdra reads {VERSION}"
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TemporaryError(f"{path} cannot be read: {error.strerror}") from None
        except (msgspec.DecodeError, RecursionError) as error:
            problem = str(error)
        if not problem:
            return found
        aside = files.put_aside(path)
        log.error("prepared claim %s cannot be read (%s) and is kept as %s", path, problem, aside)
        return None

    def has(self, uid: str) -> bool:
        """Whether a claim is written down, readable or not. Takes microseconds.

        Raises:
            InvalidInputError: the uid cannot be a claim's.
        """
        return self._path(uid).exists()

    def all(self) -> list[PreparedClaim]:
        """Every prepared claim that can be read; files that cannot be are put aside."""
        found = []
        uids = self._uids()
        _known.keep(self.folder, [f"{uid}{_SUFFIX}" for uid in uids])
        for uid in uids:
            # One that another daemon just put aside, or that cannot be read just now, does not stop the others.
            with suppress(NetdraError):
                claim = self.get(uid)
                found += [claim] if claim is not None else []
        return found

    def uids(self) -> frozenset[str]:
        """The claims that were prepared and not unprepared since, also those whose files could not be read."""
        found = (name.split(_SUFFIX, 1) for name in self._names())
        return frozenset(parts[0] for parts in found if len(parts) == 2 and parts[0])

    def put(self, claim: PreparedClaim) -> None:
        """Write a claim down, in place of what may be there; whoever reads it from now on sees it, whole.

        Nothing waits for the disk: after a power failure nothing is in a pod, and the kubelet has every claim prepared
        anew. An empty file may be left then, which counts as one that cannot be read.

        Raises:
            NetdraError: the uid cannot be a claim's, or the file system does not take it.
        """
        files.replace(self._path(claim.claim.uid), msgspec.json.encode(claim), _LOCK_SECONDS, lasting=False)

    def remove(self, uid: str) -> None:
        """Forget a claim, and what was put aside of it; one that is not there is no error.

        Raises:
            NetdraError: the uid cannot be a claim's, or its file cannot be removed.
        """
        path = self._path(uid)
        try:
            for each in (path, *self.folder.glob(f"{path.name}.bad-*")):
                each.unlink(missing_ok=True)
        except OSError as problem:
            raise TemporaryError(f"{path} cannot be removed: {problem.strerror}") from None

    def _uids(self) -> list[str]:
        return sorted(
            name.removesuffix(_SUFFIX) for name in self._names() if name.endswith(_SUFFIX) and not name.startswith(".")
        )

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.folder)  # noqa: PTH208 (at each claim and each pod, for all of them)
        except FileNotFoundError:
            return []

    def _path(self, uid: str) -> Path:
        if not names.is_label(uid):
            raise InvalidInputError(f"claim uid {uid[:80]!r} cannot be the name of a file")
        return self.folder / f"{uid}{_SUFFIX}"
