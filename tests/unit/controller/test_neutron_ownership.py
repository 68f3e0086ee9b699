"""A cluster's controller knows its ports from those of the cluster's copy by the word that was written last."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from netdra.controller.neutron.ownership import FRESH_SECONDS, LEASE, Ownership
from netdra.kube.errors import ConflictError, NotFoundError, Status
from netdra.kube.leader import Lease
from netdra.neutron.errors import ChangedError, OtherClusterError, QuotaError, UnreachableError
from netdra.neutron.records import OwnershipRecord, described, name
from tests.unit.node.kubelet.caller import run

UID = "11111111-1111-4111-8111-111111111111"


@dataclass
class Neutron:
    """A project's records; `lost` answers get lost after the work is done, and `room` is the quota's."""

    record: OwnershipRecord | None = None
    lost: int = 0
    room: bool = True
    writes: int = 0

    async def records(self, cluster: str) -> tuple[OwnershipRecord, ...]:
        return (self.record,) if self.record is not None and self.record.name == name(cluster) else ()

    async def write_record(self, cluster: str, there: Sequence[OwnershipRecord], word: str) -> None:
        if not self.room and self.record is None:
            raise QuotaError("Neutron: POST security-groups: 409: Quota exceeded")
        revision = self.record.revision_number or 0 if self.record is not None else 0
        if there and there[0].revision_number != revision:
            raise ChangedError("Neutron: PUT security-groups: 412")
        self.writes += 1
        self.record = OwnershipRecord(
            id="g", name=name(cluster), description=described(word), revision_number=revision + 1
        )
        if self.lost:
            self.lost -= 1
            raise UnreachableError("Neutron: PUT security-groups: no answer")


@dataclass
class Cluster:
    """An API server with the Lease, and the controller that leads there."""

    neutron: Neutron
    lease: Lease | None = None
    now: float = 0.0
    controller: Ownership = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Another process leads."""
        api: Any = self
        neutron: Any = self.neutron
        self.controller = Ownership(api, neutron, "netdra", self.uid, lambda: self.now)

    def copied(self) -> Cluster:
        """A cluster restored from a snapshot of now, beside this one."""
        return Cluster(self.neutron, copy.deepcopy(self.lease), self.now)

    async def uid(self) -> str:
        return UID

    async def get(self, _: Any, wanted: str, namespace: str) -> Lease:
        assert (wanted, namespace) == (LEASE, "netdra")
        if self.lease is None:
            raise NotFoundError("gone", Status(code=404))
        return self.lease

    async def create(self, _: Any, lease: Lease) -> None:
        assert self.lease is None
        self.lease = replace(lease, metadata=replace(lease.metadata, resource_version="1"))

    async def replace(self, _: Any, lease: Lease) -> None:
        assert self.lease is not None
        version = self.lease.metadata.resource_version
        if lease.metadata.resource_version != version:
            raise ConflictError("changed", Status(code=409))
        self.lease = replace(lease, metadata=replace(lease.metadata, resource_version=str(int(version) + 1)))

    def confirms(self, after: float = FRESH_SECONDS) -> bool:
        """Whether it may delete ports, some time after it was asked last."""
        self.now += after
        try:
            run(self.controller.confirm)
        except OtherClusterError:
            return False
        return True


@pytest.fixture
def original() -> Cluster:
    found = Cluster(Neutron())
    assert found.confirms()
    return found


def test_a_lone_cluster_writes_a_new_word_each_minute_across_leader_changes(original: Cluster) -> None:
    words = {original.neutron.record}
    for _ in range(3):
        assert original.confirms()
        words.add(original.neutron.record)
        original.begin()
    assert len(words) == 4
    assert original.confirms()
    assert original.confirms(after=1.0)
    assert original.neutron.writes == 5


def test_a_copy_deletes_nothing_while_the_original_lives_and_after_it(original: Cluster) -> None:
    restored = original.copied()
    for _ in range(3):
        assert original.confirms()
        assert not restored.confirms()
        restored.begin()
    assert not restored.confirms(after=100_000.0)
    with pytest.raises(OtherClusterError, match="another cluster with the UID") as caught:
        run(restored.controller.confirm)
    assert f"kubectl delete lease -n netdra {LEASE}" in caught.value.hint


def test_of_two_that_begin_with_the_same_words_one_goes_on(original: Cluster) -> None:
    clone = original.copied()
    assert clone.confirms()
    assert not original.confirms()
    assert clone.confirms()


def test_an_administrator_decides_which_of_them_goes_on(original: Cluster) -> None:
    restored = original.copied()
    assert original.confirms()
    assert not restored.confirms()
    restored.lease = None
    assert restored.confirms()
    assert restored.confirms()
    assert not original.confirms()


@pytest.mark.parametrize("process", ["the same process", "another process"])
def test_an_answer_that_is_lost_takes_nothing_away(original: Cluster, process: str) -> None:
    for _ in range(3):
        original.neutron.lost = 1
        original.now += FRESH_SECONDS
        with pytest.raises(UnreachableError):
            run(original.controller.confirm)
        if process == "another process":
            original.begin()
    assert original.confirms()


def test_an_overwritten_record_is_not_confirmed_and_a_deleted_record_is_written_again(original: Cluster) -> None:
    neutron = original.neutron
    assert neutron.record is not None
    neutron.record = replace(neutron.record, description="mine")
    assert not original.confirms()
    neutron.record = None
    assert original.confirms()
    original.begin()
    assert original.confirms()
    assert neutron.record is not None


def test_without_room_for_a_record_ports_are_deleted_as_before(caplog: pytest.LogCaptureFixture) -> None:
    found = Cluster(Neutron(room=False))
    assert found.confirms()
    assert found.confirms()
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith(
        "a copy of this cluster cannot be distinguished from it and would delete its ports: Neutron: "
    )
