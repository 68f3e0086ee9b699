"""The registry on a full or read-only disk: registrations hold, the answer reports it, and they are written later."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from netdra.node.registry import table
from netdra.node.registry.table import FILE, RegistrationTable
from testbed.waiting import until_async
from tests.disks import Disk, ext4
from tests.unit.node.kubelet.caller import run
from tests.unit.node.registry.scene import Scene, serving

SIZE = 64 * 1024


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small file system of its own."""
    with TemporaryDirectory(prefix="netdra-disk-") as folder:
        subprocess.run(("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder), check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(("umount", folder), check=True)


def fill(path: Path) -> None:
    """Write until the disk has no room for one more byte."""
    with path.open("wb", buffering=0) as file:
        for size in (4096, 1):
            while True:
                try:
                    file.write(b"x" * size)
                except OSError:
                    break


def test_registrations_on_a_full_disk_hold_and_are_written_once_space_is_free(disk: Path) -> None:
    async def story(scene: Scene) -> None:
        assert (await scene.register("eth0")).message == ""
        fill(disk / "all")
        refused = ""
        for number in range(1, 200):
            answer = await scene.register(f"eth{number}")
            assert answer.success
            refused = answer.message
        # The journal's last block may have had some room.
        assert "it holds, but is lost if the driver restarts" in refused
        assert os.strerror(errno.ENOSPC) in refused
        assert len(scene.table.registrations) == 200
        (disk / "all").unlink()
        assert (await scene.register("eth200")).message == ""

    async def told() -> None:
        async with serving(disk) as scene:
            await story(scene)

    run(told)
    assert {said.device for said in RegistrationTable(disk / FILE).registrations} == {
        f"eth{number}" for number in range(201)
    }


def test_unwritten_registrations_are_written_once_space_is_free_without_a_new_registration(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "REWRITE_SECONDS", 0.05)
    devices = {f"eth{number}" for number in range(200)}

    async def told() -> None:
        async with serving(disk) as scene:
            fill(disk / "all")
            for device in sorted(devices):
                assert (await scene.register(device)).success
            assert os.strerror(errno.ENOSPC) in scene.table.problem
            (disk / "all").unlink()
            await until_async(lambda: not scene.table.problem, "the journal to be written")

    run(told)
    assert {said.device for said in RegistrationTable(disk / FILE).registrations} == devices


def test_registrations_on_a_read_only_disk_hold_and_the_next_registry_still_serves(tmp_path: Path) -> None:
    async def told(disk: Disk) -> None:
        async with serving(disk.path, place=tmp_path) as scene:
            assert (await scene.register("eth0")).message == ""
            disk.abort()
            answer = await scene.register("eth1")
            assert answer.success
            assert os.strerror(errno.EROFS) in answer.message
            assert len(scene.table.registrations) == 2

    async def next_one(disk: Disk) -> None:
        async with serving(disk.path, place=tmp_path) as scene:
            assert [said.device for said in scene.table.registrations] == ["eth0"]
            assert os.strerror(errno.EROFS) in (await scene.register("eth1")).message

    with ext4(tmp_path) as disk:
        run(lambda: told(disk))
        run(lambda: next_one(disk))


def test_a_registry_that_ended_on_a_full_disk_restarts_with_the_records_written_before(disk: Path) -> None:
    async def told() -> None:
        async with serving(disk) as scene:
            assert (await scene.register("eth0")).message == ""
            fill(disk / "all")
            for number in range(1, 200):
                assert (await scene.register(f"eth{number}")).success

    run(told)
    devices = {said.device for said in RegistrationTable(disk / FILE).registrations}
    assert "eth0" in devices
    assert devices == {f"eth{number}" for number in range(len(devices))}, "a line is whole, or is not there"
