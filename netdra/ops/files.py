"""Files that survive a crash: written entirely or not at all, locked while in use, renamed where they cannot be read.

Used by `checkpoint` and by other modules that keep state on a node's disk. A file gets its name once its bytes are on
the disk, so a reader sees the old file or the new one, whole. That is so after a power failure too, if the caller asks
for it. Files that are read for each claim and each pod stay decoded in memory (`file_cache`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path

import msgspec

from netdra.model.errors import UNREADABLE, TemporaryError

MODE = 0o600
FOLDER_MODE = 0o700
LOCK_PAUSE = 0.01
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_UNWRITABLE = frozenset({errno.EROFS, errno.EIO})
_TEMPORARY = ".new"  # one a folder: the next process overwrites the one that a killed process left


@lru_cache(maxsize=256)
def joined(folder: Path, name: str) -> Path:
    """The path of a file in a folder. A pod's few paths are needed a dozen times while it begins and ends."""
    return folder / name


class ExistsError(TemporaryError):
    """A file that was to be new is there already."""


def create(path: Path, content: bytes, timeout: float, *, lasting: bool = True) -> int:
    """Write a new file, whole or not at all; return it open for reading and appending, and locked (flock).

    Args:
        path: its name; its folder is made if need be.
        content: all of it.
        timeout: seconds to wait for other processes that write in the same folder.
        lasting: it must be there after a power failure too. If not, nothing waits for the disk, and the file may be cut
            after a power failure.

    Raises:
        ExistsError: there is a file of that name already.
        TemporaryError: the file system does not take it, or other processes write for longer than that.
    """
    try:
        if lasting:
            make_folder(path.parent)
        with folder(path.parent, timeout) as opened_folder:
            if exists(path):
                raise ExistsError(f"{path} already exists", code="ND2275")
            opened = _write_locked(path, content, lasting=lasting)
            try:
                if lasting:
                    os.fsync(opened_folder)
            except BaseException:
                os.close(opened)
                raise
            return opened
    except OSError as problem:
        raise unwritable(path, problem) from None


def replace(path: Path, content: bytes, timeout: float, *, mode: int = MODE, lasting: bool = True) -> os.stat_result:
    """Write a file, whole or not at all, in place of the one that may be there. Arguments as of `create`, and one more.

    Args:
        path: its name.
        content: all of it.
        timeout: seconds to wait for other processes that write in the same folder.
        mode: its permissions.
        lasting: as of `create`.

    Returns:
        The status of the file that was written.

    Raises:
        TemporaryError: the file system does not take it, or other processes write for longer than that; the old file
            stays.
    """
    try:
        if lasting:
            make_folder(path.parent)
        with folder(path.parent, timeout) as opened_folder:
            fd = _write_locked(path, content, mode, lasting=lasting)
            try:
                status = os.fstat(fd)
            finally:
                os.close(fd)
            if lasting:
                os.fsync(opened_folder)
            return status
    except OSError as problem:
        raise unwritable(path, problem) from None


@contextmanager
def saving(path: Path, content: bytes, timeout: float) -> Iterator[Callable[[], os.stat_result]]:
    """Write a file, whole or not at all, that is there after a power failure too, and gets its name in the body.

    The content is on the disk before the body begins, and the name when the context has ended. So nothing waits for the
    disk while the body holds a lock, and the kernel writes the files of several threads to the disk at once.

    Args:
        path: its name; its folder is made if need be.
        content: all of it.
        timeout: as of `create`.

    Yields:
        A function that gives the file its name, in place of the one that may be there, and returns its status. Without
        a call nothing is left.

    Raises:
        TemporaryError: as of `replace`, also from that function.
    """
    with ExitStack() as closing:
        try:
            make_folder(path.parent)
            fd = _open_unnamed(path.parent, content, MODE)
            if fd is not None:
                closing.callback(os.close, fd)
                os.fsync(fd)
        except OSError as problem:
            raise unwritable(path, problem) from None

        def save() -> os.stat_result:
            if fd is None:
                return replace(path, content, timeout)
            try:
                with folder(path.parent, timeout):
                    _rename(fd, path)
                return os.fstat(fd)
            except OSError as problem:
                raise unwritable(path, problem) from None

        yield save
        try:
            if fd is not None and os.fstat(fd).st_nlink:
                sync(path.parent)
        except OSError as problem:
            raise unwritable(path, problem) from None


def sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk.

    Raises:
        OSError: the disk does not take them.
    """
    opened = os.open(folder, _FOLDER_FLAGS)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_folder(path: Path, mode: int = FOLDER_MODE) -> None:
    """Make a folder, if need be with the folders above it, as `Path.mkdir`; they outlast a power failure.

    Raises:
        OSError: it cannot be made.
    """
    if path.is_dir():
        return
    make_folder(path.parent, 0o777)
    path.mkdir(exist_ok=True, mode=mode)
    sync(path.parent)


def place(path: Path, content: bytes, timeout: float, *, mode: int) -> None:
    """Write a file that need not outlast a power failure, whole or not at all, where other programs watch its folder.

    Runtimes watch the folder of CDI specifications. Their library inspects it again when a file is renamed, removed or
    written to, and before 1.1.1 not when one is created (`watch` in pkg/cdi/cache.go), so the file is given its name by
    a rename. The file had no name while it was written (open(2), O_TMPFILE): the runtimes see one change, not five. A
    file that has this content and these permissions already is left as it is.

    Args:
        path: its name.
        content: all of it.
        timeout: as of `create`.
        mode: its permissions.

    Raises:
        TemporaryError: as of `replace`.
    """
    if _has(path, content, mode):
        return
    try:
        with folder(path.parent, timeout):
            if not _write_over(path, content, mode):
                os.close(_write_locked(path, content, mode, lasting=False))
    except OSError as problem:
        raise unwritable(path, problem) from None


def appear(path: Path, content: bytes, timeout: float, *, mode: int) -> None:
    """Write a file that need not outlast a power failure, whole or not at all, in place of the one that may be there.

    A process that has the old file open keeps it. There is a moment without either file. Processes that write at the
    same time are not waited for. A file that has this content and these permissions already is left as it is.

    Args:
        path: its name; its folder is made if need be.
        content: all of it.
        timeout: as of `create`, where the file system knows no files without a name.
        mode: its permissions.

    Raises:
        TemporaryError: as of `replace`.
    """
    if _has(path, content, mode):
        return
    try:
        path.unlink(missing_ok=True)
        if not _write_new(path, content, mode):
            replace(path, content, timeout, mode=mode, lasting=False)
    except OSError as problem:
        raise unwritable(path, problem) from None


@contextmanager
def folder(path: Path, timeout: float) -> Iterator[int]:
    """A folder, made if need be, open and locked: until the context ends no other process writes a file in it.

    Raises:
        TemporaryError: other processes write for longer than the timeout, in seconds, or it cannot be made, opened or
            locked.
    """
    with ExitStack() as closing:
        try:
            try:
                opened = os.open(path, _FOLDER_FLAGS)
            except FileNotFoundError:
                path.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
                opened = os.open(path, _FOLDER_FLAGS)
            closing.callback(os.close, opened)
            is_ours = lock(opened, time.monotonic() + timeout)
        except OSError as problem:
            raise unwritable(path, problem) from None
        if not is_ours:
            raise TemporaryError(f"another process has locked {path} for {timeout:.1f} s", code="ND2276")
        yield opened


def open_lockable(path: Path, flags: int) -> int:
    """Open a file of state, to lock it and to write to it; on a read-only file system for reading alone.

    Raises:
        OSError: it cannot be opened, or has to be made and cannot be.
    """
    try:
        return os.open(path, flags | os.O_CLOEXEC, MODE)
    except OSError as problem:
        if problem.errno not in _UNWRITABLE:
            raise
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise problem from None


def append(fd: int, content: bytes) -> None:
    """Write in one piece or fail.

    Raises:
        OSError: not all of it was written.
    """
    if os.write(fd, content) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def lock(fd: int, deadline: float) -> bool:
    """Lock an open file against every other process (flock); False if another one has it until the deadline."""
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(LOCK_PAUSE)  # flock(2) can wait, but not until a time
        else:
            return True


def put_aside(path: Path, mark: str = "bad") -> Path:
    """Rename a file that cannot be used, so that it is kept for an administrator; return its new name.

    Args:
        path: the file.
        mark: one word for why; it is in the new name.

    Raises:
        TemporaryError: it cannot be renamed, or another process has just done so.
    """
    aside = next(
        name for number in range(1_000_000) if not exists(name := path.with_name(f"{path.name}.{mark}-{number}"))
    )
    try:
        path.rename(aside)
    except OSError as problem:
        raise TemporaryError(f"{path} cannot be renamed: {problem.strerror}", code="ND2277") from None
    return aside


def keep_newest(folder: Path, mark: str, count: int) -> None:
    """Remove the renamed files with a mark, except the newest ones.

    Raises:
        TemporaryError: the disk cannot be read, or a file cannot be removed.
    """
    aged: list[tuple[float, str]] = []
    for name in listed(folder):
        if f".{mark}-" in name:
            with suppress(FileNotFoundError):
                aged.append(((folder / name).stat().st_mtime, name))
    for _, name in sorted(aged)[: max(0, len(aged) - count)]:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError as problem:
            raise TemporaryError(f"{folder / name} cannot be removed: {problem.strerror}", code="ND2278") from None


def copy_aside(path: Path) -> Path:
    """Keep a copy of a damaged file for a person; return its name.

    Raises:
        TemporaryError: it cannot be copied.
    """
    aside = path.with_name(f"{path.name}.damaged")
    try:
        aside.touch(mode=MODE)
        aside.write_bytes(path.read_bytes())
    except OSError as problem:
        raise unwritable(aside, problem) from None
    return aside


def exists(path: Path) -> bool:
    """Whether a file is there. Takes microseconds.

    Raises:
        TemporaryError: the disk cannot be read.
    """
    try:
        os.stat(path)  # noqa: PTH116 (a pod waits for it)
    except FileNotFoundError:
        return False
    except OSError as problem:
        raise unreadable(path, problem) from None
    return True


def listed(folder: Path) -> list[str]:
    """The names in a folder; none where no such folder exists.

    Raises:
        TemporaryError: the disk cannot be read.
    """
    try:
        return os.listdir(folder)  # noqa: PTH208 (names alone)
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise unreadable(folder, problem) from None


def unreadable(path: Path, problem: OSError) -> TemporaryError:
    """The error for a file of which it cannot be read what is in it, or whether it is there."""
    return TemporaryError(f"{path} cannot be read: {problem.strerror}", code="ND2279")


def unwritable(path: Path, problem: OSError) -> TemporaryError:
    """The error for a file that cannot be written."""
    return TemporaryError(
        f"{path} cannot be written: {problem.strerror}",
        hint="check whether its filesystem is full or read-only",
        code="ND2280",
    )


def _has(path: Path, content: bytes, mode: int) -> bool:
    """Whether a file is there with that content and these permissions."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        status = os.fstat(fd)
        is_alike = stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == mode
        return is_alike and status.st_size == len(content) and os.read(fd, len(content) + 1) == content
    except OSError:
        return False
    finally:
        os.close(fd)


def _open_unnamed(folder: Path, content: bytes, mode: int) -> int | None:
    """Open a file without a name; None where the file system knows none (open(2), O_TMPFILE).

    Raises:
        OSError: the file system does not take it.
    """
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, MODE)
    except OSError:
        return None
    try:
        os.fchmod(fd, mode)
        append(fd, content)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _give_name(fd: int, name: str) -> None:
    """Give an open file a name.

    Raises:
        FileExistsError: another file has it.
    """
    # With a descriptor it calls linkat(2), which alone follows the symbolic link to the file; the path is absolute.
    os.link(f"/proc/self/fd/{fd}", name, src_dir_fd=fd, follow_symlinks=True)


def _write_new(path: Path, content: bytes, mode: int) -> bool:
    """Give a file its name when all is in it; False where that cannot be done without the folder's lock.

    Raises:
        OSError: the file system does not take it.
    """
    fd = _open_unnamed(path.parent, content, mode)
    if fd is None:
        return False
    try:
        _give_name(fd, str(path))
    except FileExistsError:
        return False  # another process has just written it
    finally:
        os.close(fd)
    return True


def _write_over(path: Path, content: bytes, mode: int) -> bool:
    """Give a file its name by a rename when all is in it; False where the file system knows no files without a name.

    Raises:
        OSError: the file system does not take it.
    """
    fd = _open_unnamed(path.parent, content, mode)
    if fd is None:
        return False
    try:
        _rename(fd, path)
    finally:
        os.close(fd)
    return True


def _rename(fd: int, path: Path) -> None:
    """Give an open file without a name the name of the one that may be there. Its folder is locked.

    Raises:
        OSError: the file system does not take it.
    """
    temporary = f"{path.parent}/{_TEMPORARY}"
    try:
        _give_name(fd, temporary)
    except FileExistsError:  # of a process that was killed: the folder is locked
        os.unlink(temporary)  # noqa: PTH108 (a pod waits for each of these)
        _give_name(fd, temporary)
    os.rename(temporary, path)  # noqa: PTH104


def _write_locked(path: Path, content: bytes, mode: int = MODE, *, lasting: bool = True) -> int:
    """Write a file, if it is to last to the disk before it has its name; it is returned open and locked."""
    temporary = f"{path.parent}/{_TEMPORARY}"
    fd = os.open(temporary, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_size:  # cutting an empty one would have ext4 write it to the disk when it is closed
            os.ftruncate(fd, 0)
        os.fchmod(fd, mode)  # the umask is the process's, and a file that was left here has a mode of its own
        append(fd, content)
        if lasting:
            os.fsync(fd)
        os.rename(temporary, path)  # noqa: PTH104 (a pod waits for each of these)
    except BaseException:
        os.close(fd)
        raise
    return fd


class NewerStateError(TemporaryError):
    """A file of a newer netdra: it is left as it is, for the newer netdra to read when it is back."""

    def __init__(self, what: str, version: int, newest: int) -> None:
        super().__init__(
            f"{what} has version {version}, but this netdra supports version {newest}; a newer netdra wrote it",
            hint="run the newer netdra on this node (helm rollback or upgrade); drain the node before "
            "another downgrade",
            code="ND2302",
        )


class _Versioned(msgspec.Struct, frozen=True):
    version: int


_versioned = msgspec.json.Decoder(_Versioned)


def refuse_newer(text: bytes, newest: int, what: str) -> None:
    """Inspect the version alone of a file, whose format may be newer than this netdra.

    Args:
        text: JSON, an object with its `version`; anything else counts as not newer.
        newest: the newest version that is read.
        what: the file, for the message.

    Raises:
        NewerStateError: the file's version is newer.
    """
    try:
        version = _versioned.decode(text).version
    except UNREADABLE:
        return
    if version > newest:
        raise NewerStateError(what, version, newest)
