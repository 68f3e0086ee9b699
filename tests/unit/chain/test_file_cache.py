"""A file is decoded once, and again after each change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from netdra.ops import files
from netdra.ops.files import FileCache


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
