"""A pooled VF that is in trouble while a claim has it: only its claim is affected, and the other VFs are offered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netdra.model.claim import ResourceClaim
from netdra.node import metrics
from netdra.node.publishing.held_vfs import SECONDS
from netdra.node.view import HeldDevice
from netdra.ops.metrics import exposition
from tests.unit.node.claims.pooled_node import World, card, claim_of, pooled, request


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, card(), pooled())
    yield made
    made.daemon.table.namespaces.close()


def in_a_pod(world: World) -> tuple[ResourceClaim, str]:
    """A claim in a pod, and its VF."""
    claim = world.server.allocate(claim_of(request()))
    assert claim is not None
    world.prepare(claim)
    world.begin_pod(claim)
    (vf,) = world.vfs_of(claim)
    return claim, vf


def after(world: World, seconds: float) -> None:
    world.now += seconds - 100.0  # each pass is 100 seconds after the one before
    world.daemon.publish(world)


def is_due(world: World) -> bool:
    return world.daemon.offering.due is not None


def troubles(world: World) -> list[tuple[str, str, str]]:
    assert world.daemon.last is not None
    return [(trouble.claim.name, trouble.vf, trouble.reason) for trouble in world.daemon.last.vf_troubles]


CHANGES: list[tuple[str, dict[str, Any] | None, str]] = [
    ("VFGone", None, "is gone"),
    ("VFWithoutDriver", {"driver": ""}, "has no driver"),
    ("VFWithoutCarrier", {"no_carrier": True}, "has no carrier"),
]


@pytest.mark.parametrize(("reason", "facts", "words"), CHANGES, ids=[reason for reason, _, _ in CHANGES])
def test_trouble_of_a_vf_in_a_pod_names_the_vf_and_the_claim_and_leaves_the_device_to_others(
    world: World, reason: str, facts: dict[str, Any] | None, words: str
) -> None:
    claim, vf = in_a_pod(world)
    former = world.there[vf]
    if facts is None:
        del world.there[vf]
    else:
        world.moved.discard(vf)
        world.change(vf, **facts)
    world.publish()
    assert troubles(world) == [(claim.metadata.name, vf, reason)]
    assert world.daemon.last is not None
    (problem,) = world.daemon.last.problems
    for named in (words, vf, f'"ns/{claim.metadata.name}"', '"eth0-vfs"'):
        assert named in problem.message
    report = world.daemon.offering.report()
    assert [(entry.message, entry.example) for entry in report.problems] == [(problem.message, problem.device)]
    (device,) = [device for resource_slice in world.server.published for device in resource_slice.spec.devices]
    assert not device.taints
    other = world.server.allocate(claim_of(request()))
    assert other is not None
    world.prepare(other)
    world.prepare(claim)
    assert world.vfs_of(claim) == [vf]
    world.restart()
    assert troubles(world) == [(claim.metadata.name, vf, reason)]
    world.there[vf] = former
    world.publish()
    assert troubles(world) == []
    assert not world.daemon.offering.report().problems


def test_a_vf_without_a_driver_is_reported_once_that_lasts(world: World) -> None:
    _, vf = in_a_pod(world)
    world.change(vf, driver="")
    after(world, 1.0)
    assert troubles(world) == []
    assert is_due(world)
    after(world, SECONDS / 2)
    assert troubles(world) == []
    world.change(vf, driver="vfio-pci")
    after(world, SECONDS)
    assert not is_due(world)
    world.change(vf, driver="")
    after(world, 1.0)
    assert troubles(world) == []
    after(world, SECONDS)
    assert [reason for _, _, reason in troubles(world)] == ["VFWithoutDriver"]
    assert not is_due(world)


def test_vfs_whose_pf_has_none_with_a_driver_or_no_carrier_are_not_in_trouble(world: World) -> None:
    _, vf = in_a_pod(world)
    for address, interface in list(world.there.items()):
        world.change(address, **({"driver": ""} if interface.type == "vf" else {"no_carrier": True}))
    world.moved.discard(vf)
    world.change(vf, no_carrier=True)
    world.publish()
    assert troubles(world) == []


def test_a_vf_that_cannot_be_given_back_is_reported_with_the_reason(world: World) -> None:
    claim, vf = in_a_pod(world)
    (sandbox,) = world.sandboxes(claim)
    world.end_pod(sandbox, trouble="it is busy")
    world.publish()
    assert troubles(world) == [(claim.metadata.name, vf, "VFNotGivenBack")]
    assert world.daemon.last is not None
    assert "it is busy" in world.daemon.last.problems[0].message
    world.end_pod(sandbox)
    world.publish()
    assert troubles(world) == []


def test_nothing_allocated_is_lost_when_all_vfs_are_gone_and_few_of_them_are_named(world: World) -> None:
    claims = [in_a_pod(world)[0] for _ in range(4)]
    for address in [address for address, interface in world.there.items() if interface.type == "vf"]:
        del world.there[address]
    world.publish()
    assert len(troubles(world)) == 4
    for claim in claims:
        world.prepare(claim)
    assert [device.name for one in world.server.published for device in one.spec.devices] == ["eth0-vfs"]


def test_a_report_names_some_vfs_and_counts_the_others(tmp_path: Path) -> None:
    world = World(tmp_path, card(count=12), pooled())
    for _ in range(12):
        in_a_pod(world)
    for address in [address for address, interface in world.there.items() if interface.type == "vf"]:
        del world.there[address]
    world.publish()
    report = world.daemon.offering.report()
    assert len(report.problems) == 9
    assert any("4 further VFs" in problem.message for problem in report.problems)
    world.daemon.table.namespaces.close()


def test_held_devices_are_counted_by_vf_and_shared_ones_once(world: World) -> None:
    claims = [in_a_pod(world)[0] for _ in range(3)]
    (sandbox,) = world.sandboxes(claims[0])
    world.end_pod(sandbox, trouble="it is busy")
    shared = [HeldDevice(key=("pool", "eth7"), claim=f"c-{number}") for number in range(2)]
    metrics.set_held([*world.daemon.network.held, *shared])
    text = exposition([metrics.NODE]).decode()
    counted = dict(line.split() for line in text.splitlines() if line.startswith("netdra_held_"))
    assert (counted["netdra_held_devices"], counted["netdra_held_devices_in_trouble"]) == ("4.0", "1.0")
