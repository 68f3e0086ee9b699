"""The checkpoint: what a sandbox's chain is, what was done, and what each thing was before (decision D13).

One file a sandbox, a journal of JSON lines. The first line, the header, holds the rendered plans; it is written to a
temporary, fsynced and given its name before anything is done. The others are appended before an act (`Begun`) and
after it (`Done`), each by one write. They are not fsynced: a process that is killed loses nothing that it has written,
and after a power failure the kernel's state that they describe is gone as well. What outlives the machine, the leases
of IPAM plugins, is released by the header alone.

Read and written by `netdra.chain.attach` and `netdra.chain.detach`; a file is locked while it is open.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from netdra.cni.plugins import PluginPath
from netdra.model.errors import InvalidInputError, PermanentError, TemporaryError
from netdra.model.plan import Plan
from netdra.model.result import StepResult

VERSION = 1
SUFFIX = ".jsonl"
_TEMPORARY = ".new"  # one for all: what a process that was killed left of it is overwritten by the next
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LOCK_PAUSE = 0.01
_FLOCK = struct.Struct("hhqqi4x")


class Namespace(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod's network namespace: where it was found, and the number that no other one has until the next boot."""

    path: str
    cookie: int


class Pod(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The pod, or any container, that a chain is run for; `sandbox` is CNI_CONTAINERID and keys the checkpoint."""

    sandbox: str
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="entry"):
    pass


class Header(_Entry, frozen=True, kw_only=True, tag="header"):
    """What is to be done, for whom and where."""

    version: int
    boot_id: str
    pod: Pod
    namespace: Namespace
    plugins: PluginPath
    plans: tuple[Plan, ...]


class Begun(_Entry, frozen=True, kw_only=True, tag="begun"):
    """A step is about to act: its config with all references resolved, and what undoing it needs beside that."""

    step: str
    config: Mapping[str, Any]
    undo: Mapping[str, Any] = {}


class Amended(_Entry, frozen=True, kw_only=True, tag="amended"):
    """A step that has begun knows more of what undoing it needs."""

    step: str
    undo: Mapping[str, Any]


class Done(_Entry, frozen=True, kw_only=True, tag="done"):
    """A step has succeeded, with something to say or not."""

    step: str
    result: StepResult
    notes: tuple[str, ...] = ()


class Complete(_Entry, frozen=True, kw_only=True, tag="complete"):
    """All steps have succeeded."""


class Undone(_Entry, frozen=True, kw_only=True, tag="undone"):
    """A step is undone, and what it had may be another pod's by now."""

    step: str


Entry = Header | Begun | Amended | Done | Complete | Undone


class StepState(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal says of a step that has begun."""

    config: Mapping[str, Any]
    undo: Mapping[str, Any]
    result: StepResult | None = None
    notes: tuple[str, ...] = ()
    undone: bool = False


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint says. `steps` are those that have begun, in that order; `damaged` counts unreadable lines."""

    header: Header
    steps: Mapping[str, StepState] = {}
    complete: bool = False
    damaged: int = 0


class BadCheckpointError(PermanentError):
    """A checkpoint that cannot be read."""


class CheckpointExistsError(TemporaryError):
    """A sandbox has a checkpoint already."""


_decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


def boot_id() -> str:
    """What tells this boot of the machine from every other one."""
    return _BOOT_ID.read_text().strip()


def read(text: bytes, name: str) -> Saved:
    """The checkpoint in a file's bytes. A last line without its end counts as not written.

    Raises:
        BadCheckpointError: it has no readable header, or is of another version.
    """
    lines = text.split(b"\n")[:-1]
    header = _entry(lines[0]) if lines else None
    if not isinstance(header, Header):
        raise BadCheckpointError(f"checkpoint {name} has no readable header")
    if header.version != VERSION:
        raise BadCheckpointError(f"checkpoint {name} is of version {header.version}, this netdra reads {VERSION}")
    saved = Saved(header=header)
    for line in lines[1:]:
        saved = _folded(saved, _entry(line))
    return saved


class Journal:
    """A sandbox's checkpoint, open and locked against every other process. Close it, or remove it when all is undone.

    Several threads may append to it. `held` is handed to programs that act for a step: as long as one of them runs,
    `await_programs` waits, so whoever comes after a crash does not undo what is still being done.
    """

    def __init__(self, path: Path, lock: int, saved: Saved, size: int) -> None:
        self.path, self.saved = path, saved
        self._lock, self._size = lock, size
        self._one_at_a_time = threading.Lock()
        # A lock of another kind, on an open file of its own: it lives on in programs that inherit that.
        self.held = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def append(self, entry: Entry) -> None:
        """Write one entry down.

        Raises:
            TemporaryError: the file system does not take it; the journal is as it was.
        """
        line = msgspec.json.encode(entry) + b"\n"
        with self._one_at_a_time:
            try:
                _write(self._lock, line)
            except OSError as problem:
                os.ftruncate(self._lock, self._size)
                raise _unwritable(self.path, problem) from None
            self._size += len(line)
            self.saved = _folded(self.saved, entry)

    def hold(self) -> None:
        """From now on, programs that are given `held` are waited for."""
        fcntl.fcntl(self.held, fcntl.F_OFD_SETLK, _record_lock(fcntl.F_RDLCK))

    def await_programs(self, timeout: float) -> bool:
        """Wait until the programs of a process that is gone have ended; False if they do not in time."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.fcntl(self.held, fcntl.F_OFD_SETLK, _record_lock(fcntl.F_WRLCK))
            except (BlockingIOError, PermissionError):
                if time.monotonic() > deadline:
                    return False
                time.sleep(_LOCK_PAUSE)  # as for flock(2): it can wait, but not until a time
            else:
                return True

    def close(self) -> None:
        """Let others have it; it stays."""
        os.close(self.held)
        os.close(self._lock)

    def remove(self) -> None:
        """Nothing is left to undo."""
        self.path.unlink(missing_ok=True)
        self.close()


def create(directory: Path, header: Header, timeout: float) -> Journal:
    """Begin a sandbox's checkpoint: the header is on the disk when this returns.

    Args:
        directory: where checkpoints are kept.
        header: what is to be done.
        timeout: seconds to wait for others who begin one.

    Raises:
        CheckpointExistsError: there is one already.
        TemporaryError: the file system does not take it.
    """
    path = path_of(directory, header.pod.sandbox)
    line = msgspec.json.encode(header) + b"\n"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        one_at_a_time = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not _locked(one_at_a_time, time.monotonic() + timeout):
                raise TemporaryError(f"another process has held {directory} for {timeout:.1f} s")
            lock = _published(path, line)
            os.fsync(one_at_a_time)
        finally:
            os.close(one_at_a_time)
    except OSError as problem:
        raise _unwritable(path, problem) from None
    return Journal(path, lock, Saved(header=header), len(line))


def open_existing(directory: Path, sandbox: str, timeout: float) -> Journal | None:
    """A sandbox's checkpoint once no one else has it open, or None if there is none.

    Args:
        directory: where checkpoints are kept.
        sandbox: the sandbox's id.
        timeout: seconds to wait for a process that has it.

    Raises:
        BadCheckpointError: it cannot be read.
        TemporaryError: it is locked for longer than that.
    """
    path = path_of(directory, sandbox)
    deadline = time.monotonic() + timeout
    while True:
        try:
            lock = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise TemporaryError(f"checkpoint {path} cannot be read: {problem.strerror}") from None
        try:
            if _locked(lock, deadline) and _is_still(path, lock):
                return _opened(path, lock)
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
        if time.monotonic() > deadline:
            raise TemporaryError(f"sandbox {sandbox} is still being attached or detached after {timeout:.1f} s")


def load_all(directory: Path) -> tuple[list[Saved], list[tuple[Path, BadCheckpointError]]]:
    """All checkpoints, as they stand and without locking them, and the files that cannot be read."""
    good: list[Saved] = []
    bad: list[tuple[Path, BadCheckpointError]] = []
    for path in sorted(_files(directory)):
        try:
            good.append(read(path.read_bytes(), str(path)))
        except FileNotFoundError:
            continue
        except BadCheckpointError as problem:
            bad.append((path, problem))
    return good, bad


def put_aside(path: Path) -> Path:
    """Rename a file that cannot be read, so that it is kept for a person and stops no one; return its new name."""
    aside = next(
        name for number in range(1_000_000) if not (name := path.with_name(f"{path.name}.bad-{number}")).exists()
    )
    path.rename(aside)
    return aside


def copy_aside(path: Path) -> Path:
    """Keep a copy of a damaged file for a person; return its name."""
    aside = path.with_name(f"{path.name}.damaged")
    aside.write_bytes(path.read_bytes())
    return aside


def path_of(directory: Path, sandbox: str) -> Path:
    """Where a sandbox's checkpoint is.

    Raises:
        InvalidInputError: the id cannot be the name of a file.
    """
    if not sandbox or sandbox.startswith(".") or "/" in sandbox or "\0" in sandbox or len(sandbox) > 200:
        raise InvalidInputError(f"sandbox id {sandbox[:200]!r} cannot be the name of a file")
    return directory / f"{sandbox}{SUFFIX}"


def _files(directory: Path) -> Iterator[Path]:
    if directory.is_dir():
        yield from (path for path in directory.iterdir() if path.suffix == SUFFIX and not path.name.startswith("."))


def _entry(line: bytes) -> Entry | None:
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None


def _folded(saved: Saved, entry: Entry | None) -> Saved:
    """What is known after one more entry; an entry that makes no sense where it stands is damage."""
    match entry:
        case Complete():
            return msgspec.structs.replace(saved, complete=True)
        case Begun():
            return _with_step(saved, entry.step, StepState(config=entry.config, undo=entry.undo))
        case Amended() if entry.step in saved.steps:
            return _with_step(saved, entry.step, msgspec.structs.replace(saved.steps[entry.step], undo=entry.undo))
        case Done() if entry.step in saved.steps:
            done = msgspec.structs.replace(saved.steps[entry.step], result=entry.result, notes=entry.notes)
            return _with_step(saved, entry.step, done)
        case Undone() if entry.step in saved.steps:
            return _with_step(saved, entry.step, msgspec.structs.replace(saved.steps[entry.step], undone=True))
        case _:
            return msgspec.structs.replace(saved, damaged=saved.damaged + 1)


def _with_step(saved: Saved, step: str, state: StepState) -> Saved:
    return msgspec.structs.replace(saved, steps={**saved.steps, step: state})


def _opened(path: Path, lock: int) -> Journal:
    text = os.pread(lock, os.fstat(lock).st_size, 0)
    saved = read(text, str(path))
    size = text.rfind(b"\n") + 1
    os.ftruncate(lock, size)
    return Journal(path, lock, saved, size)


def _record_lock(kind: int) -> bytes:
    """A struct flock (fcntl(2)) over the whole file; no process owns it, the open file does."""
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)


def _locked(lock: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOCK_PAUSE)  # flock(2) can wait, but not until a time
        else:
            return True


def _is_still(path: Path, lock: int) -> bool:
    """Whether the open file is the one of that name: it may have been removed while we waited for its lock."""
    try:
        return os.path.samestat(path.stat(), os.fstat(lock))
    except FileNotFoundError:
        return False


def _published(path: Path, line: bytes) -> int:
    """A new file with one line, on the disk before it has its name, and locked. One at a time in its folder."""
    if path.exists():
        raise CheckpointExistsError(f"checkpoint {path} is there already")
    temporary = path.with_name(_TEMPORARY)
    lock = os.open(temporary, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write(lock, line)
        os.fsync(lock)
        temporary.rename(path)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _write(fd: int, line: bytes) -> None:
    if os.write(fd, line) != len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _unwritable(path: Path, problem: OSError) -> TemporaryError:
    return TemporaryError(
        f"checkpoint {path} cannot be written: {problem.strerror}", hint="see whether its file system is full"
    )
