"""Power cuts on a real ext4: its image is copied after each system call, and the copies are mounted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from netdra.node.claims.store import ClaimStore
from tests.disks import ext4, mounted
from tests.power import RecordedDisk
from tests.unit.node.claims.test_store import UID, claim

_fsync = os.fsync


class Copied(RecordedDisk):
    """An ext4 whose image is copied after each call; beforehand, another program may wait for the disk.

    Attributes:
        copies: each copy, with the claims that were answered by then.
    """

    def __init__(self, folder: Path, *, others: bool) -> None:
        super().__init__(folder)
        self._others = others
        self.copies: list[tuple[Path, frozenset[str]]] = []

    def cut(self) -> None:
        image = self.folder.with_suffix(".img")
        if self._others:
            with (self.folder / "of-another-program").open("ab") as file:
                file.write(b"x")
                file.flush()
                _fsync(file.fileno())
        copied = image.with_name(f"after-{len(self.copies)}.img")
        shutil.copyfile(image, copied)
        self.copies.append((copied, frozenset(self.note)))


@pytest.mark.parametrize("others", [False, True], ids=["alone", "while another program waits for the disk"])
def test_on_ext4_a_record_is_whole_or_absent_at_every_moment_and_there_once_its_claim_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    uids = [f"{UID[:-1]}{number}" for number in range(3)]
    with ext4(tmp_path) as disk, monkeypatch.context() as recording:
        copied = Copied(disk.path, others=others)
        copied.note = []
        copied.install(recording)
        store = ClaimStore.of_state(disk.path)
        for uid in (*uids, uids[0]):
            store.put(claim(uid))
            copied.note.append(uid)
        copied.cut()
    for image, answered in copied.copies:
        with mounted(image) as after:
            left = ClaimStore.of_state(after.path)
            records = left.all()
            assert left.uids() == {record.claim.uid for record in records}
            assert answered <= left.uids()
            assert records == [claim(record.claim.uid) for record in records]
    assert len(copied.copies) > 10
