"""Which VF a claim of pooled VFs gets when records were lost, or other claims have VFs in another way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from netdra.chain.checkpoint import Saved
from netdra.model.claim import ResourceClaim
from netdra.model.errors import NetdraError, PermanentError, TemporaryError
from netdra.model.policy import DeviceExposurePolicy
from netdra.node.claims.store import VERSION
from tests.builders import exclusive
from tests.unit.node.claims.pooled_node import (
    PF,
    SPEED,
    CrashError,
    Daemon,
    World,
    card,
    claim_of,
    pooled,
    refusal,
    request,
    single,
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, card(), pooled())
    yield made
    made.daemon.table.namespaces.close()


def allocated(world: World, claim: ResourceClaim) -> ResourceClaim:
    found = world.server.allocate(claim)
    assert found is not None
    return found


def test_a_claim_that_owns_no_device_does_not_hide_which_vfs_are_free(world: World) -> None:
    first = allocated(world, claim_of(request()))
    world.prepare(first)
    record = world.record(first)
    assert record is not None
    lent = tuple(msgspec.structs.replace(device, admin_access=True) for device in record.devices)
    world.daemon.store.put(msgspec.structs.replace(record, devices=lent))
    second = allocated(world, claim_of(request()))
    world.prepare(second)
    assert world.vfs_of(second)


def test_a_claim_is_refused_if_its_address_is_released_while_it_is_prepared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = mock.Mock(side_effect=TemporaryError("address 10.7.0.5 was released"))
    monkeypatch.setattr(world.daemon.claims.addresses, "check", checked)
    claim = allocated(world, claim_of(request()))
    with pytest.raises(TemporaryError, match=r"10\.7\.0\.5 was released"):
        world.prepare(claim)


def test_each_request_keeps_the_vf_that_its_pod_has_when_the_record_is_lost(world: World) -> None:
    earlier = [allocated(world, claim_of(request())) for _ in range(4)]
    for before in earlier:
        world.prepare(before)
    for before in reversed(earlier):
        world.release(before)  # the last VF was given back longest ago: it is chosen first
    claim = allocated(world, claim_of(request("a"), request("b")))
    world.prepare(claim)
    had = world.vfs_of(claim)
    world.begin_pod(claim)
    for policies in ((pooled(),), (pooled(lanes=2),)):
        (world.daemon.store.folder / f"{claim.metadata.uid}.json").unlink()
        world.policies = policies
        world.publish()
        world.prepare(claim)
        assert world.vfs_of(claim) == had


def test_a_single_vf_is_refused_while_a_claim_of_pooled_vfs_has_it(world: World) -> None:
    for address in world.there:
        world.change(address, link_speed=0)  # without bandwidth, counters keep nothing apart
    world.publish()
    first = allocated(world, claim_of(request()))
    world.prepare(first)
    world.policies = (single(),)
    world.publish()
    others = [claim for claim in (world.server.allocate(claim_of(request())) for _ in world.there) if claim is not None]
    taken = set(world.vfs_of(first))
    for claim in others:
        refused = refusal(lambda claim=claim: world.prepare(claim))  # type: ignore[misc]
        assert refused is None or isinstance(refused, PermanentError)
        if refused is None:
            assert taken.isdisjoint(world.vfs_of(claim))
            taken |= set(world.vfs_of(claim))
    assert len(taken) == len(world.there) - 1


@pytest.mark.parametrize("before", [1, 2])
@pytest.mark.parametrize("after", [pooled(), pooled(lanes=2), pooled(lanes=4), single()], ids=["1", "2", "4", "single"])
def test_other_vfs_are_offered_after_the_mode_has_changed_while_a_claim_has_one(
    world: World, before: int, after: DeviceExposurePolicy
) -> None:
    world.policies = (pooled(lanes=before),)
    world.publish()
    first = allocated(world, claim_of(request(bandwidth=SPEED // 5)))
    world.prepare(first)
    had = world.vfs_of(first)
    world.policies = (after,)
    world.publish()
    others: list[str] = []
    while (claim := world.server.allocate(claim_of(request()))) is not None:
        world.prepare(claim)
        others += world.vfs_of(claim)
    assert len(others) == len(world.there) - 1 - 1  # the PF is there, too
    assert not {*others} & {*had}
    assert world.vfs_of(first) == had
    world.release(first)
    world.publish()
    assert world.server.allocate(claim_of(request())) is not None


def test_a_claim_whose_record_a_newer_netdra_wrote_is_unprepared_unread(world: World) -> None:
    claim = allocated(world, claim_of(request()))
    world.prepare(claim)
    path = world.daemon.store.folder / f"{claim.metadata.uid}.json"
    path.write_bytes(msgspec.json.encode(msgspec.json.decode(path.read_bytes()) | {"version": VERSION + 1}))
    with pytest.raises(NetdraError, match="newer"):
        world.record(claim)
    world.unprepare(claim)
    assert not world.daemon.store.uids()


def test_a_vf_whose_pod_is_not_undone_is_nobodys_also_after_a_restart(world: World) -> None:
    claim = allocated(world, claim_of(request()))
    world.prepare(claim)
    (vf,) = world.vfs_of(claim)
    world.begin_pod(claim)
    world.unprepare(claim)
    del world.server.claims[claim.metadata.name]
    world.restart()
    world.publish()
    others = [allocated(world, claim_of(request())) for _ in range(world.server.offered())]
    for other in others:
        world.prepare(other)
        assert vf not in world.vfs_of(other)
    assert len(others) == len(world.there) - 2


@pytest.mark.parametrize("point", ["prepare-begun", "prepare-described", "prepare-done"])
def test_killed_while_preparing_a_pooled_vf_is_the_claims_once_it_is_recorded_and_nobodys_before(
    world: World, point: str
) -> None:
    first, second = allocated(world, claim_of(request())), allocated(world, claim_of(request()))
    with pytest.raises(CrashError):
        world.prepare(first, crash=point)
    recorded = world.vfs_of(first) if point == "prepare-done" else []
    assert (world.record(first) is None) is not bool(recorded)
    world.prepare(second)
    world.prepare(first)
    assert recorded in ([], world.vfs_of(first))
    assert not {*world.vfs_of(first)} & {*world.vfs_of(second)}


@pytest.fixture
def other(world: World) -> Iterator[Daemon]:
    """A second daemon of the node; the first one has read which VFs are free before that prepares anything."""
    world.prepare(allocated(world, claim_of(request())))
    made = Daemon(world.folder, world.server)
    made.publish(world)
    yield made
    made.table.namespaces.close()


def test_a_daemon_sees_claims_that_a_second_daemon_prepares_and_unprepares(world: World, other: Daemon) -> None:
    theirs = [allocated(world, claim_of(request())) for _ in range(len(world.there) - 2)]
    for claim in theirs:
        asyncio.run(other.claims.prepare(claim.reference))
    taken = [vf for claim in theirs for vf in world.vfs_of(claim)]
    assert len({*taken}) == len(taken)
    asyncio.run(other.claims.unprepare(theirs[0].reference))
    del world.server.claims[theirs[0].metadata.name]
    ours = allocated(world, claim_of(request()))
    world.prepare(ours)
    assert world.vfs_of(ours) == taken[:1]
    world.unprepare(ours)
    del world.server.claims[ours.metadata.name]
    again = allocated(world, claim_of(request()))
    asyncio.run(other.claims.prepare(again.reference))
    assert world.vfs_of(again) == taken[:1]


def test_a_claim_that_a_second_daemon_prepared_keeps_its_pods_vf_when_the_record_is_lost(
    world: World, other: Daemon
) -> None:
    claims = [allocated(world, claim_of(request())) for _ in range(2)]
    for claim in claims:
        asyncio.run(other.claims.prepare(claim.reference))
    claim = claims[1]  # of the first one's VF, this daemon learns when it chooses the same
    had = world.vfs_of(claim)
    world.begin_pod(claim)
    (world.daemon.store.folder / f"{claim.metadata.uid}.json").unlink()
    world.prepare(claim)
    assert world.vfs_of(claim) == had


def test_the_choice_of_a_vf_reads_no_checkpoints(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.prepare(allocated(world, claim_of(request())))
    reads: list[int] = []
    checkpoints = world.daemon.network.checkpoints

    def counted() -> list[Saved]:
        reads.append(1)
        return checkpoints()

    monkeypatch.setattr(world.daemon.network, "checkpoints", counted)
    claims = [allocated(world, claim_of(request())) for _ in range(3)]
    for claim in claims:
        world.prepare(claim)
    world.release(claims[0])
    world.prepare(allocated(world, claim_of(request())))
    assert not reads, "the VF that was given back is the only free one"


@pytest.mark.parametrize(
    ("before", "after", "offered"),
    [
        (pooled(), single(), "eth0v0, eth0v1, eth0v2 and 1 more"),
        (single(), pooled(), "eth0-vfs"),
        (pooled(), pooled(lanes=2), "eth0-vfs0, eth0-vfs1"),
        (pooled(), exclusive("pfs", PF), "eth0"),
    ],
    ids=["to single", "to pooled", "to lanes", "to the PF"],
)
def test_a_claim_that_is_prepared_only_after_the_mode_has_changed_is_refused_with_the_cause_and_the_next_step(
    world: World, before: DeviceExposurePolicy, after: DeviceExposurePolicy, offered: str
) -> None:
    world.policies = (before,)
    world.publish()
    claim = allocated(world, claim_of(request()))
    world.policies = (after,)
    world.publish()
    refused = refusal(lambda: world.prepare(claim))
    assert refused is not None
    assert f'"ns/{claim.metadata.name}", request "nic": device "eth0' in refused.what
    assert refused.what.endswith(f"is not known on this node; policies offer {offered} of this pool now")
    assert "have changed since the claim was allocated; delete the pod" in refused.hint
    world.policies = (before,)
    world.publish()
    world.prepare(claim)
    assert world.vfs_of(claim)


def test_a_claim_that_is_prepared_only_after_the_mode_has_changed_has_a_vf_if_its_device_is_held(world: World) -> None:
    world.prepare(allocated(world, claim_of(request())))
    late = allocated(world, claim_of(request()))
    world.policies = (single(),)
    world.publish()
    world.prepare(late)
    assert world.vfs_of(late)


TORN = {"empty": b"", "zeros": bytes(4096), "cut": b'{"bootId":"', "a directory": None}


def tear(world: World, uid: str, content: bytes | None) -> None:
    """Leave a record of a claim as a power cut does."""
    path = world.daemon.store.folder / f"{uid}.json"
    path.unlink(missing_ok=True)
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)


@pytest.mark.parametrize("content", TORN.values(), ids=TORN)
def test_claims_whose_records_are_unreadable_are_prepared_beside_each_other_and_a_claim_that_is_gone(
    world: World, content: bytes | None
) -> None:
    claims = [allocated(world, claim_of(request())) for _ in range(3)]
    for claim in claims[:2]:
        world.prepare(claim)
        tear(world, claim.metadata.uid, content)
    tear(world, "uid-of-a-claim-that-is-gone", content)
    for claim in (*claims, *claims):
        world.prepare(claim)
    chosen = [vf for claim in claims for vf in world.vfs_of(claim)]
    assert len(set(chosen)) == len(claims)


def test_an_unreadable_record_blocks_pooled_claims_only_while_containers_of_its_claim_can_be_made(world: World) -> None:
    first, second = (allocated(world, claim_of(request())) for _ in range(2))
    world.prepare(first)
    record = world.record(first)
    assert record is not None
    files = world.daemon.table.files
    files.write_spec(record, ())  # its pod has a VF that no step attached, so that no checkpoint has it
    tear(world, first.metadata.uid, b"")
    refused = refusal(lambda: world.prepare(second))
    assert refused is not None
    assert refused.what == f"which VFs are free is not known: the record of claim {first.metadata.uid} cannot be read"
    files.remove_spec(first.metadata.uid)
    world.prepare(second)


def test_a_claim_that_no_pod_has_and_whose_record_is_unreadable_is_forgotten_and_the_record_kept(world: World) -> None:
    claim = allocated(world, claim_of(request()))
    world.prepare(claim)
    uid, store = claim.metadata.uid, world.daemon.store
    tear(world, uid, b"")
    assert store.get(uid) is None
    assert store.uids() == {uid}
    asyncio.run(world.daemon.claims.releases.put_aside(uid))
    assert store.uids() == frozenset()
    assert len(list(store.folder.glob(f"{uid}.json.bad-*.gone-*"))) == 1


def test_a_record_of_a_newer_netdra_blocks_pooled_claims_until_its_claim_is_unprepared(world: World) -> None:
    first, second = (allocated(world, claim_of(request())) for _ in range(2))
    world.prepare(first)
    path = world.daemon.store.folder / f"{first.metadata.uid}.json"
    path.write_bytes(msgspec.json.encode(msgspec.json.decode(path.read_bytes()) | {"version": VERSION + 1}))
    refused = refusal(lambda: world.prepare(second))
    assert refused is not None
    assert "which VFs are free is not known" in refused.what
    world.unprepare(first)
    world.prepare(second)
