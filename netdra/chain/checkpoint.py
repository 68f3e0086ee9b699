"""The checkpoint: a sandbox's chain, the steps done, and the former state of each device (decision D13).

One file a sandbox, a journal of JSON lines. The first line, the header, holds the rendered plans; it is written to a
temporary and given its name before anything is done. The others are appended before an act (`Begun`) and after it
(`Done`), each by one write. They are not fsynced: a process that is killed loses nothing that it has written, and after
a power failure the kernel's state that they describe is gone as well. Leases of IPAM plugins and the like outlive the
machine, and the header alone is enough to release them. So the header is fsynced where there may be such leases;
otherwise a power failure may leave an empty file or a part of the header, which means that nothing is to be undone.

Attaching does nothing that it cannot write down. Undoing continues: a pod that ends must not keep its devices because a
file system is full or read-only. Data that it cannot write is kept in this process, and written when that succeeds. If
it never is, the next process undoes a step once more, which changes nothing.

Read and written by `netdra.chain.attach` and `netdra.chain.detach`; a file is locked while it is open.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import msgspec

from netdra.cni.plugins import PluginPath
from netdra.kernel.inotify import changes_of
from netdra.model.errors import UNREADABLE, InvalidInputError, NetdraError, PermanentError, TemporaryError
from netdra.model.plan import Plan
from netdra.model.result import StepResult
from netdra.ops import files
from netdra.ops.file_cache import FileCache

VERSION = 1


class NamespaceId(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod's network namespace: its path, and the number that no other one has until the next boot."""

    path: str
    cookie: int


class PodIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The pod, or any container, that a chain is run for; `sandbox` is CNI_CONTAINERID and keys the checkpoint."""

    sandbox: str
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="entry"):
    pass


class Header(_Entry, frozen=True, kw_only=True, tag="header"):
    """The plans, their pod and namespace; `links` are those of the pod before the first step, None if not known."""

    version: int
    boot_id: str
    pod: PodIdentity
    namespace: NamespaceId
    plugins: PluginPath
    plans: tuple[Plan, ...]
    links: tuple[str, ...] | None = None


class Begun(_Entry, frozen=True, kw_only=True, tag="begun"):
    """A step is about to act: its config with all references resolved, and further data for undoing it."""

    step: str
    config: Mapping[str, Any]
    undo: Mapping[str, Any] = {}


class Amended(_Entry, frozen=True, kw_only=True, tag="amended"):
    """A fuller record of a step that has begun, for undoing it."""

    step: str
    undo: Mapping[str, Any]


class Done(_Entry, frozen=True, kw_only=True, tag="done"):
    """A step has succeeded, with or without notes."""

    step: str
    result: StepResult
    notes: tuple[str, ...] = ()


class Complete(_Entry, frozen=True, kw_only=True, tag="complete"):
    """All steps have succeeded; `links` are the pod's after the last one."""

    links: tuple[str, ...] = ()


class UndoneEntry(_Entry, frozen=True, kw_only=True, tag="undone"):
    """A step is undone, and its device may be another pod's by now."""

    step: str


Entry = Header | Begun | Amended | Done | Complete | UndoneEntry


HELD = "held"
"""The key of a step's undo with the differences of its device, in words, which were left when it was undone last."""


class StepState(msgspec.Struct, frozen=True, kw_only=True):
    """A step that has begun, by the journal."""

    config: Mapping[str, Any]
    undo: Mapping[str, Any]
    result: StepResult | None = None
    notes: tuple[str, ...] = ()
    undone: bool = False

    @property
    def held(self) -> str:
        """Why its device is held: the device is not what it was; "" if that is not so, or not tried yet."""
        text = "" if self.undone else self.undo.get(HELD, "")
        return text if isinstance(text, str) else ""


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint's content. `steps` are those that have begun, in that order; `damaged` counts unreadable lines.

    `links` are the pod's when it was complete.
    """

    header: Header
    steps: Mapping[str, StepState] = {}
    complete: bool = False
    links: tuple[str, ...] = ()
    damaged: int = 0

    @property
    def held(self) -> Mapping[str, str]:
        """By step, why its device is held after the pod has ended."""
        return {key: state.held for key, state in self.steps.items() if state.held}


class BadCheckpointError(PermanentError):
    """A checkpoint that cannot be read."""


_decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


def read(text: bytes, name: str) -> Saved:
    """The checkpoint in a file's bytes. A last line without its end counts as not written.

    Raises:
        NewerStateError: a newer netdra has written it.
        BadCheckpointError: it has no readable header, or is of a version that never was.
    """
    lines = text.split(b"\n")[:-1]
    if lines:
        files.refuse_newer(lines[0], VERSION, f"checkpoint {name}")
    header = _entry(lines[0]) if lines else None
    if not isinstance(header, Header):
        raise BadCheckpointError(f"checkpoint {name} does not have a readable header", code="ND2105")
    if header.version != VERSION:
        raise BadCheckpointError(
            f"checkpoint {name} has version {header.version}; this netdra supports version {VERSION}", code="ND2106"
        )
    saved = Saved(header=header)
    for line in lines[1:]:
        saved = folded(saved, _entry(line))
    return saved


def _entry(line: bytes) -> Entry | None:
    try:
        return _decoder.decode(line)
    except UNREADABLE:
        return None


def folded(saved: Saved, entry: Entry | None) -> Saved:
    """The content with one more entry; an entry that makes no sense where it stands is damage."""
    match entry:
        case Complete():
            return msgspec.structs.replace(saved, complete=True, links=entry.links)
        case Begun():
            return _with_step(saved, entry.step, StepState(config=entry.config, undo=entry.undo))
        case Amended() if entry.step in saved.steps:
            return _with_step(saved, entry.step, msgspec.structs.replace(saved.steps[entry.step], undo=entry.undo))
        case Done() if entry.step in saved.steps:
            done = msgspec.structs.replace(saved.steps[entry.step], result=entry.result, notes=entry.notes)
            return _with_step(saved, entry.step, done)
        case UndoneEntry() if entry.step in saved.steps:
            return _with_step(saved, entry.step, msgspec.structs.replace(saved.steps[entry.step], undone=True))
        case _:
            return msgspec.structs.replace(saved, damaged=saved.damaged + 1)


def _with_step(saved: Saved, step: str, state: StepState) -> Saved:
    return msgspec.structs.replace(saved, steps={**saved.steps, step: state})


def _relocated(saved: Saved, path: str) -> Saved:
    """The content as if the pod's namespace had been at another path when the steps were done."""
    former = saved.header.namespace.path

    def result_at(result: StepResult | None) -> StepResult | None:
        return result and msgspec.structs.replace(
            result,
            interfaces=tuple(
                msgspec.structs.replace(entry, sandbox=path) if entry.sandbox == former else entry
                for entry in result.interfaces
            ),
        )

    steps = {key: msgspec.structs.replace(state, result=result_at(state.result)) for key, state in saved.steps.items()}
    return msgspec.structs.replace(saved, steps=steps)


SUFFIX = ".jsonl"
_FLOCK = struct.Struct("hhqqi4x")


_cache: FileCache[Saved] = FileCache(lambda text, path: read(text, str(path)))
_unwritten: dict[Path, tuple[Entry, ...]] = {}  # what undoing could not write down, of this process


class CheckpointExistsError(TemporaryError):
    """A sandbox has a checkpoint already."""


class CheckpointJournal:
    """A sandbox's checkpoint, open and locked against every other process. Close it, or remove it when all is undone.

    Several threads may append to it. Programs that act for a step inherit the descriptor `inherited`: as long as one of
    them runs, `await_programs` waits, so the next process, after a crash, does not undo what is still being done.
    Closing ends that: a daemon that a program has left running after its end is not waited for.

    Attributes:
        inherited: -1 until `hold` or `await_programs` is called: most chains run no programs.
        keeps_devices: a step is undone, but the disk still names the sandbox as the holder of its device.
    """

    def __init__(self, path: Path, lock: int, saved: Saved, size: int, *, is_readable: bool = True) -> None:
        self.path, self.saved = path, _with_unwritten(path, saved)
        self._lock, self._size, self._is_readable = lock, size, is_readable
        self._one_at_a_time = threading.Lock()
        self.inherited = -1
        self.keeps_devices = False

    def append(self, entry: Entry) -> None:
        """Write one entry down.

        Raises:
            TemporaryError: the file system does not take it; the journal is as it was.
        """
        with self._one_at_a_time:
            try:
                self._write(entry)
            except OSError as problem:
                raise files.unwritable(self.path, problem) from None
            self.saved = folded(self.saved, entry)

    def note(self, entry: Entry) -> None:
        """Write one entry of undoing down, with those that could not be written before, or remember it for later."""
        with self._one_at_a_time:
            self.saved = folded(self.saved, entry)
            entries = (*_unwritten.pop(self.path, ()), entry)
            try:
                self._write(*entries)
            except OSError:
                _unwritten[self.path] = entries

    def relocate(self, path: str) -> None:
        """Have the results name the pod's namespace by the path that it has now; the file stays as it is."""
        if path != self.saved.header.namespace.path:
            self.saved = _relocated(self.saved, path)

    def _write(self, *entries: Entry) -> None:
        """Write entries in one piece.

        Raises:
            OSError: the file system does not take them; the journal is as it was.
        """
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        try:
            files.append(self._lock, lines)
        except OSError:
            with suppress(OSError):  # a cut line that stays is counted as damage
                os.ftruncate(self._lock, self._size)
            raise
        self._size += len(lines)

    def hold(self) -> None:
        """From now on, programs that are given `inherited` are waited for.

        Raises:
            TemporaryError: the file cannot be opened or locked.
        """
        try:
            if self._open_inherited():
                fcntl.fcntl(self.inherited, fcntl.F_OFD_SETLK, _record_lock(fcntl.F_RDLCK))
        except OSError as problem:
            raise files.unreadable(self.path, problem) from None

    def await_programs(self, timeout: float) -> bool:
        """Wait until the programs of a process that is gone have ended; False if they do not in time.

        From then on the programs that are given `inherited` are waited for, as after `hold`.

        Raises:
            TemporaryError: the file cannot be opened or locked.
        """
        deadline = time.monotonic() + timeout
        try:
            while self._is_inherited():
                if time.monotonic() > deadline:
                    return False
                time.sleep(files.LOCK_PAUSE)  # as for flock(2): it can wait, but not until a time
        except OSError as problem:
            raise files.unreadable(self.path, problem) from None
        self.hold()
        return True

    def close(self) -> None:
        """Let other processes have the checkpoint, which stays; closing twice is not an error."""
        if self.inherited >= 0:
            with suppress(OSError):
                fcntl.fcntl(self.inherited, fcntl.F_OFD_SETLK, _record_lock(fcntl.F_UNLCK))
            os.close(self.inherited)
            self.inherited = -1
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _open_inherited(self) -> bool:
        """Open `inherited` unless it is open; False if the file cannot be read any more.

        It has a lock of another kind, on an open file of its own: it lives on in programs that inherit the file. A lock
        for reading and a question need no file that is open for writing (fs/locks.c, check_fmode_for_setlk()).
        """
        if self.inherited < 0 and self._is_readable:
            self.inherited = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        return self.inherited >= 0

    def _is_inherited(self) -> bool:
        """Whether a program of another process has the file."""
        if not self._open_inherited():
            return False
        asked = fcntl.fcntl(self.inherited, fcntl.F_OFD_GETLK, _record_lock(fcntl.F_WRLCK))
        return bool(_FLOCK.unpack(asked)[0] != fcntl.F_UNLCK)

    def remove(self) -> None:
        """Remove the checkpoint: nothing is left to undo.

        Raises:
            TemporaryError: the file cannot be removed; it is closed anyway, and its steps may be undone again.
        """
        try:
            if not self._is_readable:  # it may have more than this process knows
                raise TemporaryError(f"checkpoint {self.path} cannot be read", code="ND2107")
            self.path.unlink(missing_ok=True)
            _unwritten.pop(self.path, None)
        except OSError as problem:
            raise TemporaryError(
                f"checkpoint {self.path} cannot be removed: {problem.strerror}", code="ND2108"
            ) from None
        finally:
            self.close()


def create(directory: Path, header: Header, timeout: float, *, lasting: bool = True) -> CheckpointJournal:
    """Begin a sandbox's checkpoint: the header is written when this returns.

    Args:
        directory: the folder of checkpoints.
        header: the chain to be run.
        timeout: seconds to wait for other processes that begin one.
        lasting: it is to be there after a power failure too, because something that a step does is.

    Raises:
        CheckpointExistsError: there is one already.
        TemporaryError: the file system does not take it.
    """
    path = path_of(directory, header.pod.sandbox)
    line = msgspec.json.encode(header) + b"\n"
    try:
        lock = files.create(path, line, timeout, lasting=lasting)
    except files.ExistsError as problem:
        raise CheckpointExistsError(problem.what, code=problem.code) from None
    _unwritten.pop(path, None)  # of another process's checkpoint of that name
    try:
        return CheckpointJournal(path, lock, Saved(header=header), len(line))
    except BaseException:
        os.close(lock)
        raise


def open_existing(directory: Path, sandbox: str, timeout: float) -> CheckpointJournal | None:
    """A sandbox's checkpoint once no other process has it open, or None if none exists.

    On a read-only file system it is opened for reading, and where it cannot be read any more it is what this process
    has last read of it: undoing continues with both.

    Args:
        directory: the folder of checkpoints.
        sandbox: the sandbox's id.
        timeout: seconds to wait for a process that has it.

    Raises:
        BadCheckpointError: it cannot be read.
        TemporaryError: it is locked for longer than that; NewerStateError.
    """
    path = path_of(directory, sandbox)
    deadline = time.monotonic() + timeout
    while True:
        try:
            lock = files.open_lockable(path, os.O_RDWR | os.O_APPEND)
            try:
                if files.lock(lock, deadline) and _is_still(path, lock):
                    return _open_locked(path, lock)
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)
        except FileNotFoundError:
            _unwritten.pop(path, None)
            return None
        except OSError as problem:
            remembered = _cache.last(path) if problem.errno == errno.EIO else None
            if remembered is None:
                raise files.unreadable(path, problem) from None
            try:
                nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as further:
                raise files.unreadable(path, further) from None
            return CheckpointJournal(path, nothing, remembered, 0, is_readable=False)
        if time.monotonic() > deadline:
            raise TemporaryError(
                f"sandbox {sandbox} is still being attached or detached after {timeout:.1f} s", code="ND2109"
            )


def follow(directory: Path) -> AbstractContextManager[None]:
    """Have the kernel report the changes of checkpoints until the context ends, so that they are not all inspected."""
    return _cache.follow(directory, changes_of)


def sandboxes(directory: Path) -> tuple[str, ...]:
    """The sandboxes that have a checkpoint, whether it can be read or not.

    Raises:
        TemporaryError: the folder cannot be read.
    """
    return tuple(name.removesuffix(SUFFIX) for name in _names(directory))


def load(directory: Path, sandbox: str) -> Saved:
    """A sandbox's checkpoint as it stands, without locking it; read again only if it has changed.

    Raises:
        InvalidInputError: the id cannot be a sandbox's.
        FileNotFoundError: the sandbox has no checkpoint.
        TemporaryError: the disk cannot be read.
        BadCheckpointError: it cannot be read.
        NewerStateError: a newer netdra has written it.
    """
    path = path_of(directory, sandbox)
    return _with_unwritten(path, _cached(path))


def load_all(directory: Path) -> tuple[list[Saved], list[tuple[Path, NetdraError]]]:
    """All checkpoints, as they stand and without locking them, and the files whose content makes no sense.

    Raises:
        TemporaryError: the disk cannot be read. Devices of a missing checkpoint would count as free.
    """
    good: list[Saved] = []
    bad: list[tuple[Path, NetdraError]] = []
    names = sorted(_names(directory))
    unchanged = _cache.unchanged(directory, names)
    for name in names:
        saved = unchanged.get(name)
        if saved is not None and not _unwritten:
            good.append(saved)
            continue
        path = directory / name
        try:
            good.append(_with_unwritten(path, saved or _cached(path)))
        except FileNotFoundError:
            continue
        except (BadCheckpointError, files.NewerStateError) as problem:
            bad.append((path, problem))
    return good, bad


def changed(directory: Path, mark: int) -> tuple[int, bool, Mapping[str, Saved | None]]:
    """The checkpoints that have changed since a mark, without entries that could not be written down yet.

    Args:
        directory: the checkpoints' folder.
        mark: the first value of an earlier answer, 0 for none.

    Returns:
        The mark of this answer; whether these are all checkpoints, as of `FileCache.changed`; and the checkpoints by
        their file's name, None for one that is gone or makes no sense.

    Raises:
        TemporaryError: the disk cannot be read.
    """
    mark, names = _cache.changed(directory, mark)
    checkpoints: dict[str, Saved | None] = {}
    for name in _names(directory) if names is None else filter(_is_checkpoint, names):
        try:
            checkpoints[name] = _cached(directory / name)
        except (FileNotFoundError, BadCheckpointError, files.NewerStateError):
            checkpoints[name] = None
    return mark, names is None, checkpoints


def _cached(path: Path) -> Saved:
    try:
        return _cache.of(path)
    except IsADirectoryError as problem:
        raise BadCheckpointError(f"checkpoint {path} cannot be read: {problem.strerror}", code="ND2110") from None


def path_of(directory: Path, sandbox: str) -> Path:
    """The path of a sandbox's checkpoint.

    Raises:
        InvalidInputError: the id cannot be the name of a file.
    """
    if (
        not sandbox
        or sandbox.startswith(".")
        or "/" in sandbox
        or "\0" in sandbox
        or len(sandbox.encode("utf-8", "replace")) > 200
    ):
        raise InvalidInputError(f"sandbox ID {sandbox[:200]!r} is not a valid file name", code="ND2111")
    return files.joined(directory, f"{sandbox}{SUFFIX}")


def _names(directory: Path) -> list[str]:
    return [name for name in _cache.listed(directory) if _is_checkpoint(name)]


def _is_checkpoint(name: str) -> bool:
    return name.endswith(SUFFIX) and not name.startswith(".")


def _open_locked(path: Path, lock: int) -> CheckpointJournal | None:
    text = os.pread(lock, os.fstat(lock).st_size, 0)
    if b"\n" not in text:  # only a power failure leaves it so: a checkpoint has no name before it has its first line
        with suppress(OSError):  # else it is removed when it is next opened
            path.unlink(missing_ok=True)
        os.close(lock)
        return None
    saved = read(text, str(path))
    size = text.rfind(b"\n") + 1
    if size < len(text):
        with suppress(OSError):  # a cut line that stays is counted as damage
            os.ftruncate(lock, size)
    return CheckpointJournal(path, lock, saved, size)


def _with_unwritten(path: Path, saved: Saved) -> Saved:
    """A file's content with the results of undoing that could not be written."""
    for entry in _unwritten.get(path, ()):
        saved = folded(saved, entry)
    return saved


def _record_lock(kind: int) -> bytes:
    """A struct flock (fcntl(2)) over the whole file; no process owns it, the open file does."""
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)


def _is_still(path: Path, lock: int) -> bool:
    """Whether the open file is the one of that name: it may have been removed while we waited for its lock."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(lock))  # noqa: PTH116 (a pod waits for it)
    except FileNotFoundError:
        return False
