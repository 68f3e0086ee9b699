"""Device files of all kinds, made by mknod: those that pods may get, and the errors for the others."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from netdra.kernel.device_files import DeviceFiles
from netdra.kernel.sysfs import Sysfs
from tests.device_files import LOCAL, make, new_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with new_folder() as made:
        yield made


def allowing(folder: Path, *more: str) -> DeviceFiles:
    return DeviceFiles([f"{folder}/*", *more])


def test_it_comes_and_goes_and_becomes_another_one(folder: Path) -> None:
    files = allowing(folder)
    path = folder / "fpga0"
    assert files.look(str(path)).missing
    make(path)
    assert files.look(str(path)).number == LOCAL
    path.unlink()
    make(path, (240, 8))
    assert files.look(str(path)).number == (240, 8)


@pytest.mark.parametrize(
    "number",
    [
        (1, 1),
        (1, 2),
        (1, 4),
        (1, 11),
        (1, 12),
        (10, 144),
        (10, 227),
        (10, 231),
        (10, 236),
        (21, 0),
        (90, 0),
        (162, 1),
        (202, 3),
    ],
    ids=lambda number: ":".join(map(str, number)),
)
def test_memory_ports_processors_and_disks_are_given_under_no_name(folder: Path, number: tuple[int, int]) -> None:
    path = make(folder / "fpga0", number)
    problem = allowing(folder).look(str(path)).problem
    assert f"is device {number[0]}:{number[1]}, which pods never get" in problem


def test_a_device_of_a_disk_subsystem_in_sysfs_is_rejected_for_pods(folder: Path, tmp_path: Path) -> None:
    device = tmp_path / "dev/char/240:7"
    device.mkdir(parents=True)
    (device / "subsystem").symlink_to("../../../class/nvme")
    path = make(folder / "fpga0")
    assert "which pods never get" in DeviceFiles([f"{folder}/*"], Sysfs(str(tmp_path))).look(str(path)).problem


def test_a_symlink_must_lead_to_an_allowed_device(folder: Path) -> None:
    make(folder / "fpga0")
    (folder / "good").symlink_to("fpga0")
    (folder / "memory").symlink_to("/dev/mem")
    (folder / "passwords").symlink_to("/etc/passwd")
    (folder / "around").symlink_to("../../etc/passwd")
    (folder / "loop").symlink_to("loop")
    (folder / "nowhere").symlink_to("fpga9")
    make(folder / "real", (1, 1))
    (folder / "copy").symlink_to("real")
    files = allowing(folder)
    assert files.look(f"{folder}/good").number == LOCAL
    for name, rule in {
        "memory": "leads to /dev/mem, which is not allowed",
        "passwords": "leads to /etc/passwd, which is not allowed",
        "around": "leads to /etc/passwd, which is not allowed",
        "copy": "is device 1:1, which pods never get",
        "loop": "is not a device; only character devices",
        "nowhere": "does not exist",
    }.items():
        file = files.look(f"{folder}/{name}")
        assert (file.number, rule in file.problem) == (None, True), file.problem
    named = DeviceFiles([f"{folder}/good"]).look(f"{folder}/good")
    assert f"leads to {folder}/fpga0, which is not allowed" in named.problem


def test_a_folder_on_the_way_may_be_a_link_too(folder: Path) -> None:
    (folder / "cards").mkdir()
    make(folder / "cards" / "fpga0")
    (folder / "by-id").symlink_to("cards")
    (folder / "out").symlink_to("/etc")
    files = DeviceFiles([f"{folder}/by-id/*", f"{folder}/cards/*", f"{folder}/out/*"])
    assert files.look(f"{folder}/by-id/fpga0").number == LOCAL
    assert "leads to /etc/passwd" in files.look(f"{folder}/out/passwd").problem


def test_a_path_without_a_character_device_is_named_in_the_error(folder: Path) -> None:
    make(folder / "disk", (7, 0), stat.S_IFBLK)
    (folder / "plain").write_text("")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    files = allowing(folder)
    for name, kind in {
        "disk": "a block device",
        "plain": "a plain file",
        "folder": "a folder",
        "pipe": "not a device",
    }.items():
        assert f"is {kind}; only character devices are supported" in files.look(f"{folder}/{name}").problem
