"""After a power cut at any moment the records of answered claims are whole, and no file blocks a claim."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest import mock

import pytest

from netdra.model.claim import ResourceClaim
from netdra.ops import boot, files
from tests import power
from tests.power import RecordedDisk
from tests.unit.node.claims.pooled_node import CrashError, World, card, claim_of, dying, pooled, request


def _boot(patch: pytest.MonkeyPatch, path: Path, name: str) -> None:
    path.write_text(name)
    patch.setattr(boot, "_BOOT_ID", path)
    boot.boot_id.cache_clear()


@pytest.fixture(autouse=True)
def _own_boot() -> Iterator[None]:
    yield
    boot.boot_id.cache_clear()


def _after_cut(world: World, folder: Path) -> World:
    """The node after its next start, with the files that the power cut left."""
    again = copy.copy(world)
    again.folder, again.in_pods, again.moved = folder, {}, set()
    again.restart()
    return again


def _prepare_at_once(world: World, claims: Sequence[ResourceClaim]) -> None:
    async def prepare() -> None:
        await asyncio.gather(*(world.daemon.claims.prepare(claim.reference) for claim in claims))

    with dying(""):
        asyncio.run(prepare())


def test_after_a_power_cut_at_any_moment_answered_claims_are_recorded_and_no_claim_is_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    disk = RecordedDisk(folder)
    _boot(monkeypatch, tmp_path / "boot", "first")
    answered: dict[str, bytes] = {}
    claims: list[ResourceClaim] = []
    with monkeypatch.context() as recording:
        disk.install(recording)
        disk.note = answered
        world = World(folder, card(), pooled())
        claims += [found for _ in range(4) if (found := world.server.allocate(claim_of(request()))) is not None]
        assert len(claims) == 4

        def answer(claim: ResourceClaim) -> None:
            uid = claim.metadata.uid
            answered[uid] = (world.daemon.store.folder / f"{uid}.json").read_bytes()

        world.prepare(claims[0])
        answer(claims[0])

        _prepare_at_once(world, claims[1:3])
        for claim in claims[1:3]:
            answer(claim)
        world.begin_pod(claims[1])
        answered.pop(claims[0].metadata.uid)
        world.unprepare(claims[0])
    _boot(monkeypatch, tmp_path / "boot", "second")
    number = 0
    for number, (tree, recorded) in enumerate(disk.states()):
        left = tmp_path / f"after-{number}"
        power.write(tree, left)
        for uid, content in recorded.items():
            assert tree.get(f"state/claims/{uid}.json") == content
        again = _after_cut(world, left)
        for claim in claims:
            again.prepare(claim)
    assert number > 100
    again.daemon.table.namespaces.close()


def test_a_record_that_a_killed_daemon_left_is_on_the_disk_before_the_next_daemon_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    disk = RecordedDisk(folder)
    with monkeypatch.context() as recording:
        disk.install(recording)
        world = World(folder, card(), pooled())
        claims = [found for _ in range(2) if (found := world.server.allocate(claim_of(request()))) is not None]
        world.prepare(claims[0])
        with monkeypatch.context() as killing:
            killing.setattr(files, "sync", mock.Mock(side_effect=CrashError))
            with pytest.raises(CrashError):
                world.prepare(claims[1])
        disk.note = "killed"
        disk.cut()
        world.prepare(claims[1])
        disk.note = "answered"
        disk.cut()
    name = f"state/claims/{claims[1].metadata.uid}.json"
    assert {note for tree, note in disk.states() if name not in tree} >= {"killed"}
    assert all(name in tree for tree, note in disk.states() if note == "answered")
    world.daemon.table.namespaces.close()
