"""What is removed from folders, as the kernel tells it."""

from __future__ import annotations

import select
import uuid
from pathlib import Path

import pytest

from netdra.kernel import netns
from netdra.kernel.errors import KernelMissingError
from netdra.kernel.inotify import Removals
from netdra.kernel.netns import Namespace


def waited(removals: Removals) -> tuple[str, ...] | None:
    assert select.select([removals], [], [], 30)[0]
    return removals.read()


def test_a_name_that_is_removed_or_moved_away_is_told_and_no_other_change(tmp_path: Path) -> None:
    with Removals() as removals:
        removals.watch(str(tmp_path))
        removals.watch(str(tmp_path))
        for name in ("a", "b", "c"):
            (tmp_path / name).write_text(name)
        assert removals.read() == ()
        (tmp_path / "a").unlink()
        (tmp_path / "b").rename(tmp_path.parent / f"{tmp_path.name}-b")
        (tmp_path / "new").touch()
        (tmp_path / "new").rename(tmp_path / "c")
        assert waited(removals) == ("a", "b", "new")
        assert removals.read() == ()


def test_the_end_of_a_named_namespace_is_told_by_its_name_whoever_holds_it() -> None:
    name = f"netdra-test-{uuid.uuid4().hex[:8]}"
    with Removals() as removals, Namespace.create(name):
        removals.watch(netns.NAMED)
        netns.delete(name)
        assert name in (waited(removals) or ())


def test_when_a_folder_goes_something_may_have_gone_untold(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with Removals() as removals:
        removals.watch(str(folder))
        folder.rmdir()
        assert waited(removals) is None
        with pytest.raises(KernelMissingError):
            removals.watch(str(folder))


def test_a_file_is_no_folder_and_closing_twice_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    removals = Removals()
    with pytest.raises(Exception, match="Not a directory"):
        removals.watch(str(tmp_path / "file"))
    removals.close()
    removals.close()
