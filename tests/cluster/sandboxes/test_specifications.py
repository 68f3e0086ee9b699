"""A program removes what the containers of a running pod need: its CDI specification, or netdra's records."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable

import pytest

from netdra.model.plan import ClaimReference
from netdra.node.sandboxes import specifications
from testbed.waiting import until_async
from tests.cluster.sandboxes.former import rounds
from tests.cluster.sandboxes.gate import shared
from tests.cluster.sandboxes.scene import Machine, Scene

Loss = Callable[[Machine], None]


def specification(machine: Machine) -> None:
    """Its file alone."""
    for uid in machine.specified():
        machine.files.spec_path(uid).unlink()


def folder(machine: Machine) -> None:
    """The folder of the specifications."""
    shutil.rmtree(machine.files.cdi)


def state(machine: Machine) -> None:
    """The records of claims and sandboxes, and the specification."""
    shutil.rmtree(machine.folder / "claims")
    shutil.rmtree(machine.settings.state)
    specification(machine)


@pytest.mark.parametrize("lose", [specification, folder, state])
def test_the_specification_of_a_running_pod_is_written_again(scene: Scene, lose: Loss) -> None:
    claim, sandbox = scene.of_three()
    uid = scene.uid(claim)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            (former,) = [scene.machine.files.spec_path(each).read_text() for each in scene.machine.specified()]
            lose(scene.machine)
            await until_async(lambda: scene.machine.specified() == {uid}, "the specification to be written again")
            assert scene.machine.files.spec_path(uid).read_text() == former
            await until_async(lambda: bool(scene.told), "the event of the removed file")
            (event,) = scene.told
            assert (event.reason, event.regarding.name) == ("SpecificationRestored", sandbox.name)
            assert str(scene.machine.files.spec_path(uid)) in event.note
            assert claim in event.note
            await rounds(daemon, 2)
            assert scene.machine.specified() == {uid}
            assert scene.machine.store.uids() == {uid}
            assert "net1" in scene.machine.links(sandbox)

    asyncio.run(story())


def test_without_its_record_a_running_pods_claim_keeps_its_specification(scene: Scene) -> None:
    claim, sandbox = scene.of_three()

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            shutil.rmtree(scene.machine.folder / "claims")
            await rounds(daemon, 2)
            assert scene.machine.specified() == {scene.uid(claim)}

    asyncio.run(story())


def test_a_claim_that_was_given_up_is_not_prepared_again_for_its_specification(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sandbox lives on: the runtime has not stopped it yet."""
    monkeypatch.setattr(specifications, "LOOK_SECONDS", 0.05)
    claim, sandbox = scene.of_three()
    reference = ClaimReference(namespace=sandbox.namespace, name=claim, uid=scene.uid(claim))

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            await daemon.pods.claims.unprepare(reference)
            await asyncio.sleep(1.0)
            assert not scene.machine.specified()
            assert not scene.machine.store.uids()

    asyncio.run(story())


def test_a_specification_is_not_written_again_while_a_sandbox_of_its_claim_is_attached(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specifications, "LOOK_SECONDS", 0.05)
    claim, one, other, gate = shared(scene)

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(one)
            gate.holds()
            running = asyncio.create_task(daemon.run(other))
            await gate.reached()
            await asyncio.sleep(0.5)
            assert not scene.machine.specified()
            await gate.opens()
            await running
            assert scene.machine.specified() == {scene.uid(claim)}
        assert not scene.told

    asyncio.run(story())
