"""After any damage of a tree, discovery reports the rest and never raises."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netdra.discovery.scan import scan_recorded
from netdra.model.inventory import Inventory
from tests.trees import sriov_machine


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def scramble(path: Path) -> None:
    if path.is_file() and not path.is_symlink():
        path.write_bytes(b"\xff\x00-9\n\xc3\n")


def empty(path: Path) -> None:
    if path.is_file() and not path.is_symlink():
        path.write_bytes(b"")


def loop(path: Path) -> None:
    remove(path)
    path.symlink_to(path.name)


def dangle(path: Path) -> None:
    remove(path)
    path.symlink_to("../../nowhere/0000:00:00.0")


def misdirect(path: Path) -> None:
    remove(path)
    path.symlink_to("..")


def swap(path: Path) -> None:
    """A file becomes a folder, a folder a file."""
    was_folder = path.is_dir()
    remove(path)
    if was_folder:
        path.write_text("7\n")
    else:
        path.mkdir()


def duplicate(path: Path) -> None:
    """A neighbour with a strange name: a line break and a byte that is not UTF-8."""
    name = os.fsdecode(b"odd\n\xff" + path.name.encode(errors="surrogateescape")[:20])
    if not (path.parent / name).is_symlink():
        (path.parent / name).symlink_to(path.name)


DAMAGES: tuple[Callable[[Path], None], ...] = (remove, scramble, empty, loop, dangle, misdirect, swap, duplicate)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("intact")
    sriov_machine(root)
    return root


@settings(max_examples=40)
@given(data=st.data())
def test_no_damage_raises(data: st.DataObject, intact: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "sys"
        shutil.copytree(intact, root, symlinks=True)
        places = sorted(path.relative_to(root) for path in root.rglob("*") if len(path.relative_to(root).parts) > 1)
        chosen = st.tuples(st.sampled_from(places), st.sampled_from(DAMAGES))
        for place, damage in data.draw(st.lists(chosen, min_size=1, max_size=12)):
            if os.path.lexists(root / place):
                damage(root / place)
        inventory = scan_recorded(str(root))
    assert msgspec.json.decode(msgspec.json.encode(inventory), type=Inventory) == inventory
