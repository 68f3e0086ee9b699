"""Prepared claims on disk: whole or not at all, read back alike, and never blocking others."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.model.resource import DeviceAttribute
from netdra.node.claims import store as stores
from netdra.node.claims.records import FollowedRecords
from netdra.node.claims.store import ClaimStore, KeptDevice, PreparedClaim, PreparedDevice
from netdra.ops.files import NewerStateError

UID = "7b0e8a5e-0000-4000-8000-000000000001"


def claim(uid: str = UID) -> PreparedClaim:
    kept = KeptDevice(
        told=PreparedDevice(requests=("main/sub",), pool="p", device="d", cdi_ids=("x/y=z",), share_id="s"),
        facts=PlannedDevice(request="main/sub", pool="p", device="d", consumed_capacity={"a/b": "1"}),
        attributes={
            "dra.networking/a": DeviceAttribute(bool_=False),
            "dra.networking/b": DeviceAttribute(strings=("x", "y")),
        },
    )
    return PreparedClaim(
        boot_id="b", claim=ClaimReference(namespace="ns", name="c", uid=uid), devices=(kept,), pod_claim_name="net"
    )


def test_a_stored_claim_is_read_back_until_it_is_removed(tmp_path: Path) -> None:
    store = ClaimStore.of_state(tmp_path)
    assert store.get(UID) is None
    assert (store.all(), store.uids()) == ([], frozenset())
    for _ in range(2):
        store.put(claim())
    assert store.get(UID) == claim()
    assert store.all() == [claim()]
    assert store.uids() == {UID}
    assert (tmp_path / "claims" / f"{UID}.json").stat().st_mode & 0o777 == 0o600
    for _ in range(2):
        store.remove(UID)
    assert store.uids() == frozenset()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 5000,
        b'{"unknown": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b"[]",
        b'{"bootId": 1}',
        msgspec.json.encode(msgspec.structs.replace(claim(), version=0)),
        msgspec.json.encode(claim())[:-1],
    ],
)
def test_an_unreadable_claim_file_is_set_aside_and_reported_without_blocking_other_claims(
    tmp_path: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = ClaimStore.of_state(tmp_path)
    other = UID[:-1] + "2"
    store.put(claim(other))
    bad = tmp_path / "claims" / f"{UID}.json"
    bad.write_bytes(text)
    assert store.all() == [claim(other)]
    assert f"prepared claim {bad} cannot be read" in caplog.text
    assert (tmp_path / "claims" / f"{UID}.json.bad-0").read_bytes() == text
    # It is still known that there was a claim, until it is unprepared.
    assert store.uids() == {UID, other}
    store.remove(UID)
    assert store.uids() == {other}


def test_all_records_are_read_beside_an_unreadable_one_which_stays(tmp_path: Path) -> None:
    store = ClaimStore.of_state(tmp_path)
    store.put(claim())
    bad = tmp_path / "claims" / "bad.json"
    bad.write_bytes(b"{")
    for name in (".lock", ".hidden.json", f"{UID}.json.bad-0"):
        (tmp_path / "claims" / name).touch()
    good, unreadable = store.read_all()
    assert (good, [path for path, _ in unreadable]) == ([claim()], [bad])
    assert bad.exists()


def test_a_record_of_a_version_that_never_was_is_damaged_for_every_reader(tmp_path: Path) -> None:
    def stored(folder: str) -> ClaimStore:
        store = ClaimStore(tmp_path / folder)
        store.put(msgspec.structs.replace(claim(), version=0))
        (store.folder / f"{UID}.json").touch()  # as another process has written it
        return store

    good, unreadable = stored("read").read_all()
    assert (good, [reason for _, reason in unreadable]) == ([], ["version 0, which there never was"])
    assert stored("got").get(UID) is None
    assert stored("listed").all() == []
    assert FollowedRecords(stored("followed")).update().unreadable == {UID}


def test_a_forgotten_claim_whose_file_cannot_be_removed_is_absent_until_it_is_written_again(tmp_path: Path) -> None:
    store = ClaimStore.of_state(tmp_path)
    store.put(claim())
    store.give_up(UID)
    assert store.get(UID) is None
    assert store.all() == []
    assert store.given_up() == frozenset({UID})
    store.put(claim())
    assert (store.get(UID), store.all(), store.given_up()) == (claim(), [claim()], frozenset())


def test_records_of_another_process_are_seen_while_changes_are_followed(tmp_path: Path) -> None:
    store = ClaimStore.of_state(tmp_path)
    store.put(claim())
    other = claim(UID[:-1] + "2")
    with store.follow():
        assert store.all() == [claim()]
        new = tmp_path / "new"
        new.write_bytes(msgspec.json.encode(other))
        new.rename(store.folder / f"{other.claim.uid}.json")
        assert store.all() == [claim(), other]


@pytest.mark.parametrize("uid", ["", "../x", "a/b", ".hidden", "x" * 64, "A"])
def test_an_invalid_claim_uid_is_rejected_as_a_file_name(tmp_path: Path, uid: str) -> None:
    store = ClaimStore.of_state(tmp_path)
    acts: list[Callable[[], object]] = [
        lambda: store.get(uid),
        lambda: store.put(claim(uid)),
        lambda: store.remove(uid),
    ]
    for act in acts:
        with pytest.raises(InvalidInputError, match="is not a valid file name"):
            act()


@given(st.binary(max_size=200))
def test_a_claim_file_of_arbitrary_bytes_is_never_read_as_a_claim(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    folder = tmp_path_factory.mktemp("claims")
    (folder / f"{UID}.json").write_bytes(text)
    assert ClaimStore(folder).get(UID) is None


def test_a_daemon_waits_for_the_other_one_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_LOCK_SECONDS", 0.05)
    store = ClaimStore.of_state(tmp_path)
    with store.locked():
        pass
    lock = os.open(tmp_path / "claims" / ".lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(TemporaryError, match="another netdra on this node"), store.locked():
        pass
    os.close(lock)
    with store.locked():
        pass


def test_an_unwritable_claims_folder_is_reported_as_a_temporary_error(tmp_path: Path) -> None:
    (tmp_path / "claims").write_text("a file")
    store = ClaimStore.of_state(tmp_path)
    with pytest.raises(TemporaryError, match="cannot be written"):
        store.put(claim())
    with pytest.raises(TemporaryError, match="cannot be written"), store.locked():
        pass


RECORDED = Path(__file__).with_name("recorded")
"""A prepared claim of each version that there was, as a netdra of that time wrote it. They stay as they are."""


def test_claims_of_every_former_version_are_read(tmp_path: Path) -> None:
    recorded = sorted(RECORDED.glob("version-*.json"))
    assert [path.name for path in recorded] == [f"version-{each}.json" for each in range(1, stores.VERSION + 1)]
    store = ClaimStore.of_state(tmp_path)
    for path in recorded:
        store.put(claim())
        (tmp_path / "claims" / f"{UID}.json").write_bytes(path.read_bytes())
        assert store.get(UID) == claim()


@pytest.mark.parametrize(
    "text",
    [
        msgspec.json.encode(msgspec.structs.replace(claim(), version=stores.VERSION + 1)),
        b'{"version": 7, "devices": "of a kind that nobody here knows"}',
    ],
)
def test_a_claim_record_of_a_newer_netdra_is_left_untouched(tmp_path: Path, text: bytes) -> None:
    store = ClaimStore.of_state(tmp_path)
    other = UID[:-1] + "2"
    store.put(claim(other))
    path = tmp_path / "claims" / f"{UID}.json"
    path.write_bytes(text)
    with pytest.raises(NewerStateError, match="a newer netdra wrote it"):
        store.get(UID)
    assert store.all() == [claim(other)]
    assert store.uids() == {UID, other}
    assert path.read_bytes() == text
