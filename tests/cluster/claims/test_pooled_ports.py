"""Claims of pooled VFs with ports in Neutron: the node chooses the VFs, and has their ports bound to them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from netdra.model.errors import PermanentError, TemporaryError
from netdra.model.plan import ClaimReference
from netdra.node.claims import ports
from netdra.node.view import HeldDevice
from testbed.pace import within
from tests.builders import OURS, exclusive, policy
from tests.cluster.claims.scene import VF, Scene, request
from tests.cluster.neutron_ports import SETTINGS, Allotted, allotted

pytestmark = pytest.mark.usefixtures("custom_kinds")
POOLED = (policy("pooled", VF, supportedCNIPlugins=[{"name": "sriov"}], pooledVFs={"lanes": 1}),)
MACS = ("fa:16:3e:00:00:0a", "fa:16:3e:00:00:0b")


@pytest.fixture
def tell_pooled(tell: Any) -> Callable[[Callable[[Scene], Awaitable[None]]], None]:
    return lambda story: tell(story, POOLED)


def claimed(scene: Scene, name: str = "c", requests: int = 2) -> ClaimReference:
    """A claim with as many requests for one VF of the PF, each with a port."""
    steps = [f"vf{number}" for number in range(requests)]
    known = [topology for topology in scene.view.topologies if "ported" in topology]
    written = (f"- {{name: {step}, type: sriov, selector: {{cel: '{VF}'}}, neutron: {{}}}}" for step in steps)
    topology = known[0] if known else scene.topology("ported", "\n".join(written)).name
    return scene.allocated(name, *(request(step, f"{topology}-{step}") for step in steps))


def shares(scene: Scene, wanted: ClaimReference) -> list[Allotted]:
    """The claim's shares, in the order of its requests; the controller does not know their VFs."""
    addresses = {device.device: "" for device in scene.view.devices.values()}
    return allotted(scene.workspace.api, wanted.namespace, wanted.name, scene.node, addresses)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10.0):
        while not condition():  # noqa: ASYNC110 (objects of the API server)
            await asyncio.sleep(0.02)


async def chosen(*entries: Allotted) -> list[str]:
    """The VFs that the node chooses for shares, once it has reported all of them."""
    await until(lambda: all(entry.chosen for entry in entries))
    return [entry.chosen for entry in entries]


async def stopped(preparing: asyncio.Task[Any]) -> None:
    """The daemon ends while a claim is being prepared."""
    preparing.cancel()
    await asyncio.gather(preparing, return_exceptions=True)


def recorded(scene: Scene, wanted: ClaimReference) -> list[tuple[str, str]]:
    """The VF and the port's MAC address of each share, as the claim's record has them."""
    record = scene.store.get(wanted.uid)
    assert record is not None
    return [(kept.facts.pci_address, kept.port.settings.mac if kept.port else "") for kept in record.devices]


def test_two_vfs_of_one_pool_have_the_ports_that_were_bound_to_them(tell_pooled: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = claimed(scene)
        first, second = shares(scene, wanted)
        assert first.device == second.device
        assert first.name != second.name
        for entry in (first, second):
            entry.create(step=entry.request)
        preparing = asyncio.create_task(scene.claims.prepare(wanted))
        vfs = await chosen(first, second)
        assert len(set(vfs)) == 2
        second.bind(mac=MACS[1])
        await asyncio.sleep(0.3)
        assert not preparing.done()
        first.bind(mac=MACS[0])
        with within(1.0, "seeing that a port is bound"):
            told = await preparing
        assert [device.share_id for device in told] == [first.share, second.share]
        assert recorded(scene, wanted) == list(zip(vfs, MACS, strict=True))
        record = scene.store.get(wanted.uid)
        assert record is not None
        assert record.plan is not None
        assert not record.choosing
        steps = [step for plan in record.plan.plans for step in plan.steps]
        planned = [(step.device.pci_address, step.port.settings.mac) for step in steps if step.device and step.port]
        assert planned == list(zip(vfs, MACS, strict=True))
        assert await scene.claims.prepare(wanted) == told

    tell_pooled(story)


def test_a_daemon_that_dies_while_ports_are_awaited_chooses_the_same_vfs_again(tell_pooled: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = claimed(scene)
        entries = shares(scene, wanted)
        for entry in entries:
            entry.create(step=entry.request)
        preparing = asyncio.create_task(scene.claims.prepare(wanted))
        vfs = await chosen(*entries)
        await stopped(preparing)
        assert recorded(scene, wanted) == [(vf, "") for vf in vfs], "the choice was written down before it was told"
        generations = [entry.stored["metadata"]["generation"] for entry in entries]
        scene.view.vfs = {
            key: [msgspec.structs.replace(vf, vf_index=100 - vf.vf_index) for vf in vfs]
            for key, vfs in scene.view.vfs.items()
        }  # others come first by now
        scene.restart()
        again = asyncio.create_task(scene.claims.prepare(wanted))
        await asyncio.sleep(0.5)
        assert not again.done(), "a choice is not a prepared claim"
        for entry, mac in zip(entries, MACS, strict=True):
            entry.bind(mac=mac)
        await again
        assert recorded(scene, wanted) == list(zip(vfs, MACS, strict=True))
        assert [entry.stored["metadata"]["generation"] for entry in entries] == generations

    tell_pooled(story)


def test_vfs_chosen_for_a_waiting_claim_are_not_chosen_for_another_claim(tell_pooled: Any) -> None:
    async def story(scene: Scene) -> None:
        one = claimed(scene, "one")
        entries = shares(scene, one)
        for entry in entries:
            entry.create(step=entry.request)
        preparing = asyncio.create_task(scene.claims.prepare(one))
        vfs = await chosen(*entries)
        await stopped(preparing)
        scene.restart()
        record = scene.store.get(one.uid)
        assert record is not None
        scene.holders.held = [HeldDevice(key=kept.key, claim=one.uid, facts=kept.facts) for kept in record.devices]
        other = claimed(scene, "other")
        others = shares(scene, other)
        for entry in others:
            entry.create(step=entry.request)
        preparing = asyncio.create_task(scene.claims.prepare(other))
        assert not {*await chosen(*others)} & {*vfs}
        for entry in others:
            entry.bind()
        await preparing
        await scene.claims.unprepare(one)
        assert scene.store.get(one.uid) is None

    tell_pooled(story)


def test_a_missing_vf_is_replaced_and_the_port_binding_of_the_old_vf_is_ignored(tell_pooled: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = claimed(scene, requests=1)
        (entry,) = shares(scene, wanted)
        entry.create(step=entry.request)
        preparing = asyncio.create_task(scene.claims.prepare(wanted))
        (gone,) = await chosen(entry)
        await stopped(preparing)
        entry.bind(mac=MACS[0])
        scene.restart()
        left = {key: [vf for vf in vfs if vf.pci_address != gone] for key, vfs in scene.view.vfs.items()}
        scene.view.vfs = left
        preparing = asyncio.create_task(scene.claims.prepare(wanted))
        await until(lambda: entry.chosen != gone)
        await asyncio.sleep(0.5)
        assert not preparing.done(), "the port is bound to the former VF"
        entry.bind(mac=MACS[0])
        await preparing
        assert recorded(scene, wanted) == [(entry.chosen, MACS[0])]

    tell_pooled(story)


def test_a_late_or_recreated_port_object_also_receives_the_chosen_vf(tell_pooled: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = claimed(scene, requests=1)
        (entry,) = shares(scene, wanted)
        preparing = asyncio.create_task(scene.claims.prepare(wanted))
        await asyncio.sleep(0.5)
        entry.create(step=entry.request)
        (vf,) = await chosen(entry)
        scene.workspace.api.delete("networking.dra.io/v1alpha1/NeutronPort", entry.name, entry.namespace)
        entry.create(step=entry.request)
        assert await chosen(entry) == [vf]
        entry.bind()
        await preparing
        assert recorded(scene, wanted) == [(vf, SETTINGS["mac"])]

    tell_pooled(story)


def test_an_unbound_port_reports_the_reason_and_the_next_prepare_keeps_the_same_vf(
    tell_pooled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "SECONDS", 3.0)

    async def story(scene: Scene) -> None:
        wanted = claimed(scene, requests=1)
        (entry,) = shares(scene, wanted)
        entry.create(step=entry.request)
        preparing = asyncio.create_task(scene.claims.prepare(wanted))
        (vf,) = await chosen(entry)
        entry.refuse("NoAgent", "no NIC switch agent is alive")
        with pytest.raises(TemporaryError, match="is not bound: NoAgent: no NIC switch agent is alive"):
            await preparing
        entry.bind()
        await scene.claims.prepare(wanted)
        assert recorded(scene, wanted) == [(vf, SETTINGS["mac"])]

    tell_pooled(story)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"shareID": "another"}, 'spec.shareID is "another"'),
        ({"nodeName": "another"}, "spec.nodeName"),
        ({"pciAddress": "0000:ff:00.1"}, 'spec.pciAddress is "0000:ff:00.1"'),
    ],
)
def test_a_port_of_another_share_is_rejected_and_receives_no_vf(
    tell_pooled: Any, changed: dict[str, str], told: str
) -> None:
    async def story(scene: Scene) -> None:
        wanted = claimed(scene, requests=1)
        (entry,) = shares(scene, wanted)
        entry.create(step=entry.request, **changed)
        with pytest.raises(PermanentError, match="is not of the VF that was allocated") as problem:
            await scene.claims.prepare(wanted)
        assert told in str(problem.value)
        assert entry.chosen == ""

    tell_pooled(story)


def test_a_claim_of_pooled_vfs_without_neutron_is_written_down_once(tell_pooled: Any) -> None:
    async def story(scene: Scene) -> None:
        plain = scene.topology("plain", f"- {{name: vf, type: sriov, selector: {{cel: '{VF}'}}}}")
        wanted = scene.allocated("c", request("vf", f"{plain.name}-vf"))
        await scene.claims.prepare(wanted)
        assert not any("neutronports" in asked.path for asked in scene.proxy.requests)
        record = scene.store.get(wanted.uid)
        assert record is not None
        assert not record.choosing

    tell_pooled(story)


def test_a_single_vf_is_not_chosen(tell: Any) -> None:
    async def story(scene: Scene) -> None:
        wanted = claimed(scene, requests=1)
        (entry,) = shares(scene, wanted)
        addresses = {device.device: device.pci_address for device in scene.view.devices.values()}
        (entry,) = allotted(scene.workspace.api, wanted.namespace, wanted.name, scene.node, addresses)
        entry.create(step=entry.request)
        entry.bind()
        await scene.claims.prepare(wanted)
        assert "chosenVF" not in entry.stored

    tell(story, (exclusive("vfs", f'{OURS}.type == "vf"', "sriov"),))
