"""A file is decoded once, and again after each change."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from netdra.kernel.inotify import changes_of
from netdra.model.errors import TemporaryError
from netdra.ops import files
from netdra.ops.file_cache import MOST_CHANGES, ChangeLog, Changes, FileCache
from tests import refusing
from tests.refusing import Refusal


@pytest.fixture
def decoded() -> list[bytes]:
    """The contents decoded so far."""
    return []


@pytest.fixture
def cache(decoded: list[bytes]) -> FileCache[str]:
    """Files of text."""

    def decode(content: bytes, path: Path) -> str:
        decoded.append(content)
        return f"{path.name}: {content.decode()}"

    return FileCache(decode)


def test_a_file_that_has_not_changed_is_decoded_once(
    tmp_path: Path, cache: FileCache[str], decoded: list[bytes]
) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    assert [cache.of(path) for _ in range(3)] == ["a: one"] * 3
    assert decoded == [b"one"]


def test_an_appended_or_replaced_file_is_decoded_at_once(tmp_path: Path, cache: FileCache[str]) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_text("one")
    cache.of(path)
    with path.open("a") as opened:
        opened.write(" two")
    assert cache.of(path) == "a: one two"
    before = path.stat()
    other.write_text("six two")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.rename(path)
    assert cache.of(path) == "a: six two"
    path.unlink()
    with pytest.raises(FileNotFoundError):
        cache.of(path)


def test_forgotten_files_are_decoded_again(tmp_path: Path, cache: FileCache[str], decoded: list[bytes]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    paths = [tmp_path / "a", folder / "a", folder / "b"]
    for path in paths:
        path.write_text(path.name)
        cache.of(path)
    cache.forget_all_but(folder, ["b"])
    decoded.clear()
    for path in paths:
        cache.of(path)
    assert decoded == [b"a"]


def test_a_remembered_write_is_not_decoded_and_a_later_foreign_write_is(
    tmp_path: Path, cache: FileCache[str], decoded: list[bytes]
) -> None:
    path = tmp_path / "a"
    ours = files.replace(path, b"one", 1.0)
    cache.remember(path, ours, "a: one")
    assert cache.of(path) == "a: one"
    assert not decoded
    first = files.replace(path, b"two", 1.0)
    files.replace(path, b"six", 1.0)
    cache.remember(path, first, "a: two")
    assert cache.of(path) == "a: six"


def test_of_many_files_those_that_have_not_changed_are_known_by_name(tmp_path: Path, cache: FileCache[str]) -> None:
    for name in ("stays", "changes", "goes"):
        (tmp_path / name).write_text(name)
        cache.of(tmp_path / name)
    (tmp_path / "changes").write_text("else")
    (tmp_path / "goes").unlink()
    assert list(cache.unchanged(tmp_path, ["stays", "changes", "goes", "new"])) == ["stays"]


class Node(RuleBasedStateMachine):
    """One process follows a folder, and others change it in every way; it is read as by a process that inspects all."""

    NAMES = st.sampled_from(["a", "b", "c"])

    def __init__(self) -> None:
        super().__init__()
        self.closing = ExitStack()
        top = Path(self.closing.enter_context(TemporaryDirectory(prefix="netdra-")))
        self.folder, self.elsewhere = top / "folder", top / "elsewhere"
        self.elsewhere.mkdir()
        self.followed, self.decoded, self.written = FileCache(self._decode), 0, itertools.count()
        self.closing.enter_context(self.followed.follow(self.folder, changes_of))

    def teardown(self) -> None:
        self.closing.close()

    def _decode(self, content: bytes, path: Path) -> bytes:
        self.decoded += 1
        return content

    def _content(self) -> bytes:
        return str(next(self.written) % 10).encode()

    def _read(self, cache: FileCache[bytes]) -> dict[str, bytes]:
        names = cache.listed(self.folder)
        unchanged = cache.unchanged(self.folder, names)
        return {name: unchanged[name] if name in unchanged else cache.of(self.folder / name) for name in names}

    @rule(name=NAMES)
    def another_process_replaces_a_file(self, name: str) -> None:
        files.replace(self.folder / name, self._content(), 1.0, lasting=False)

    @rule(name=NAMES)
    def this_process_writes_a_file_and_remembers_it(self, name: str) -> None:
        content = self._content()
        status = files.replace(self.folder / name, content, 1.0, lasting=False)
        self.followed.remember(self.folder / name, status, content)

    @rule(name=NAMES)
    def a_file_is_written_to_and_stays_open(self, name: str) -> None:
        with suppress(FileNotFoundError):
            opened = os.open(self.folder / name, os.O_WRONLY | os.O_APPEND)
            self.closing.callback(os.close, opened)
            os.write(opened, self._content())

    @rule(name=NAMES)
    def a_file_is_removed(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    @rule(name=NAMES, other=NAMES)
    def a_file_is_renamed(self, name: str, other: str) -> None:
        with suppress(FileNotFoundError):
            (self.folder / name).rename(self.folder / other)

    @rule()
    def the_folder_is_removed(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @rule()
    def the_folder_is_moved_and_comes_back_after_another_one(self) -> None:
        with suppress(FileNotFoundError):
            self.folder.rename(self.elsewhere / "moved")
            self.folder.mkdir()
            (self.folder / "a").write_bytes(self._content())
            self._agree()
            shutil.rmtree(self.folder)
            (self.elsewhere / "moved").rename(self.folder)

    @rule()
    def nothing_is_decoded_or_inspected_again(self) -> None:
        self._agree()
        decoded = self.decoded
        with mock.patch.object(os, "stat", side_effect=os.stat) as inspected:
            self._read(self.followed)
        assert self.decoded == decoded
        assert inspected.call_count <= len(("listed", "unchanged"))

    @invariant()
    def _agree(self) -> None:
        inspecting = FileCache(self._decode)
        assert self._read(self.followed) == self._read(inspecting)


Node.TestCase.settings = settings(max_examples=20, stateful_step_count=20)
TestFollowedFolder = Node.TestCase


def test_a_folder_is_read_file_by_file_where_the_kernel_reports_no_changes(
    tmp_path: Path, cache: FileCache[str], decoded: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    refused = [TemporaryError("no more watches")] * 6

    def open_changes(folder: Path) -> Changes:
        if refused:
            raise refused.pop()
        return changes_of(folder)

    (tmp_path / "a").write_text("one")
    with cache.follow(tmp_path, open_changes):
        for text in ("one", "two", "two", "three", "four"):
            (tmp_path / "a").write_text(text)
            assert list(cache.listed(tmp_path)) == ["a"]
            cache.unchanged(tmp_path, ["a"])
            assert cache.of(tmp_path / "a") == f"a: {text}"
    assert [record.message for record in caplog.records] == [
        f"{tmp_path}: its files are inspected one by one: no more watches"
    ]


@pytest.mark.parametrize("number", refusing.ERRNOS, ids=errno.errorcode.get)
def test_a_kernel_that_refuses_to_report_changes_hides_none(tmp_path: Path, cache: FileCache[str], number: int) -> None:
    with cache.follow(tmp_path, changes_of):
        for count in itertools.count(1):
            (tmp_path / "a").write_text(str(count))
            with refusing.refusing(Refusal(number, first=count, calls_of="inotify")) as refusal:
                assert list(cache.listed(tmp_path)) == ["a"]
            assert cache.unchanged(tmp_path, ["a"]) == {}
            assert cache.of(tmp_path / "a") == f"a: {count}"
            if not refusal.refused:
                break
    assert count > 1


def test_reports_that_the_kernel_dropped_are_made_up_for(tmp_path: Path, cache: FileCache[str]) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for name in ("stays", "goes"):
        (tmp_path / name).write_text(name)
        cache.of(tmp_path / name)
    with cache.follow(tmp_path, changes_of):
        assert set(cache.unchanged(tmp_path, cache.listed(tmp_path))) == {"stays", "goes"}
        changed, other = tmp_path / "stays", tmp_path / "other"
        for _ in range(limit // 2 + 1):  # a rename is reported twice, and equal reports in a row are one
            changed.rename(other)
            other.rename(changed)
        (tmp_path / "goes").unlink()
        (tmp_path / "new").write_text("new")
        assert set(cache.listed(tmp_path)) == {"stays", "new"}


def test_another_folder_in_the_place_of_a_folder_whose_parent_was_moved_is_read(
    tmp_path: Path, cache: FileCache[str]
) -> None:
    folder = tmp_path / "parent" / "folder"
    folder.mkdir(parents=True)
    (folder / "former").write_text("former")
    with cache.follow(folder, changes_of):
        assert set(cache.listed(folder)) == {"former"}
        (tmp_path / "parent").rename(tmp_path / "moved")
        folder.mkdir(parents=True)
        (folder / "new").write_text("new")
        assert set(cache.listed(folder)) == {"new"}


def test_a_reader_learns_each_change_once_and_after_too_many_that_any_may_have_been() -> None:
    log: ChangeLog[str] = ChangeLog()
    mark, changed = log.since(0)
    assert changed is None
    log.note(["a", "b"])
    mark, changed = log.since(mark)
    assert sorted(changed or ()) == ["a", "b"]
    assert log.since(mark) == (mark, frozenset())
    log.note(map(str, range(MOST_CHANGES)))
    later, changed = log.since(mark)
    assert changed is not None
    assert len(changed) == MOST_CHANGES
    log.note(["one more"])
    assert log.since(mark)[1] is None
    assert log.since(later)[1] == frozenset({"one more"})
    assert ChangeLog[str]().since(later)[1] is None, "a mark of another log"
