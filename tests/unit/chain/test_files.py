import errno
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from netdra.model.errors import TemporaryError
from netdra.ops import files


def test_a_new_file_is_whole_private_and_locked(tmp_path: Path) -> None:
    path = tmp_path / "state" / "a"
    opened = files.create(path, b"one\n", 1)
    assert path.read_bytes() == b"one\n"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    other = os.open(path, os.O_RDWR)
    assert not files.lock(other, 0)
    os.close(opened)
    assert files.lock(other, 0)
    os.close(other)


def test_create_fails_on_an_existing_file_and_replace_overwrites_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    files.replace(path, b"one", 1)
    with pytest.raises(files.ExistsError):
        files.create(path, b"two", 1)
    assert path.read_bytes() == b"one"
    files.replace(path, b"three", 1)
    assert path.read_bytes() == b"three"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_whole_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    files.replace(path, b"one", 1)
    write = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda fd, data: write(fd, data[:1]))
        with pytest.raises(TemporaryError, match="No space left on device"):
            files.replace(path, b"two", 1)
    assert path.read_bytes() == b"one"
    files.replace(path, b"three", 1)
    assert path.read_bytes() == b"three"


def test_it_has_its_name_only_once_its_bytes_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"

    def fails(_fd: int) -> None:
        assert not path.exists()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails)
        with pytest.raises(TemporaryError, match="Input/output error"):
            files.create(path, b"one", 1)
    assert not path.exists()


@pytest.mark.parametrize("unnamed", [True, False], ids=["without a name at first", "where every file has one"])
def test_appear_replaces_a_file_while_open_readers_keep_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unnamed: bool
) -> None:
    if not unnamed:
        monkeypatch.setattr(files, "_open_unnamed", lambda *_: None)
    path = tmp_path / "folder" / "a"
    files.appear(path, b"one", 1.0, mode=0o644)
    with path.open("rb") as opened:
        files.appear(path, b"two", 1.0, mode=0o644)
        assert opened.read() == b"one"
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"two", 0o644)
    assert [each.name for each in path.parent.iterdir()] == ["a"]


def test_concurrent_appear_calls_leave_one_complete_file_and_no_leftovers(tmp_path: Path) -> None:
    path = tmp_path / "a"
    contents = [bytes([65 + number]) * 5000 for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda content: files.appear(path, content, 10.0, mode=0o600), contents * 20))
    assert path.read_bytes() in contents
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_file_that_cannot_be_written_whole_does_not_appear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    write = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda fd, content: write(fd, content[:1]))
        with pytest.raises(TemporaryError, match="cannot be written: No space left on device"):
            files.appear(path, b"one", 1.0, mode=0o600)
    assert not list(tmp_path.iterdir())


def test_a_placed_file_has_its_name_only_once_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    write = os.write

    def written(fd: int, data: bytes) -> int:
        assert list(tmp_path.iterdir()) == []
        return write(fd, data)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", written)
        files.place(path, b"one", 1, mode=0o644)
    assert path.read_bytes() == b"one"
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [0, errno.EOPNOTSUPP, errno.EISDIR])
def test_place_replaces_an_existing_file_on_every_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "a"
    files.place(path, b"one", 1, mode=0o600)
    opening = os.open

    def opened(name: str | Path, flags: int, mode: int = 0o777) -> int:
        if number and flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(number, os.strerror(number))
        return opening(name, flags, mode)

    monkeypatch.setattr(os, "open", opened)
    files.place(path, b"two", 1, mode=0o644)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o644


def test_concurrent_place_calls_wait_for_the_folder_lock_and_write_complete_files(tmp_path: Path) -> None:
    held = os.open(tmp_path, os.O_RDONLY)
    assert files.lock(held, 0)
    with pytest.raises(TemporaryError, match="another process has locked"):
        files.place(tmp_path / "a", b"one", 0.05, mode=0o644)
    os.close(held)
    threads = [
        threading.Thread(target=files.place, args=(tmp_path / name, name.encode() * 5000, 10), kwargs={"mode": 0o644})
        for name in "abcd" * 5
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        name: name.encode() * 5000 for name in "abcd"
    }


def test_one_file_is_written_in_a_folder_at_a_time(tmp_path: Path) -> None:
    held = os.open(tmp_path, os.O_RDONLY)
    assert files.lock(held, 0)
    with pytest.raises(TemporaryError, match="another process has locked"):
        files.replace(tmp_path / "a", b"", 0.05)
    ending = threading.Timer(0.1, os.close, (held,))
    ending.start()
    files.replace(tmp_path / "a", b"", 10)
    ending.join()


def test_a_file_in_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"")
    for write in (files.create, files.replace):
        with pytest.raises(TemporaryError, match="cannot be written"):
            write(tmp_path / "state" / "a", b"", 1)


def test_putting_aside_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TemporaryError, match="cannot be renamed"):
        files.put_aside(tmp_path / "a")


def test_a_copy_for_a_person_is_as_private_as_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    copy = files.copy_aside(tmp_path / "a")
    assert copy.read_bytes() == b"x"
    assert copy.stat().st_mode & 0o777 == 0o600


def test_only_the_newest_files_put_aside_are_kept_and_other_files_remain(tmp_path: Path) -> None:
    for number in range(6):
        aside = tmp_path / f"{number}.jsonl.given-up-0"
        aside.touch()
        os.utime(aside, (100 - number, 100 - number))
    others = [tmp_path / "a.jsonl", tmp_path / "a.jsonl.bad-0"]
    for other in others:
        other.touch()
        os.utime(other, (1, 1))
    files.keep_newest(tmp_path, "given-up", 2)
    assert {*tmp_path.iterdir()} == {*others, tmp_path / "0.jsonl.given-up-0", tmp_path / "1.jsonl.given-up-0"}
    files.keep_newest(tmp_path / "none", "given-up", 2)


@pytest.mark.parametrize("write", [files.place, files.appear])
def test_a_file_that_has_the_content_already_is_left_and_any_other_is_replaced(
    tmp_path: Path, write: Callable[..., None]
) -> None:
    path = tmp_path / "file"

    def written(content: bytes, mode: int) -> tuple[int, int, bytes]:
        write(path, content, 1.0, mode=mode)
        status = path.stat()
        return status.st_mtime_ns, stat.S_IMODE(status.st_mode), path.read_bytes()

    first = written(b"one", 0o644)
    os.utime(path, ns=(1, 1))
    assert written(b"one", 0o644) == (1, *first[1:])
    assert written(b"two", 0o644)[0] > 1
    os.utime(path, ns=(1, 1))
    assert written(b"two", 0o600)[1] == 0o600
    path.unlink()
    path.symlink_to("elsewhere")
    assert written(b"two", 0o600)[2] == b"two"
    assert not path.is_symlink()
