"""Ports of claims of pooled VFs: made from the allocation, bound to the VF that the node has chosen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from netdra.controller.neutron import desired, inspection, ports
from netdra.controller.neutron.desired import AllocatedNode
from netdra.model.claim import AllocatedDeviceStatus, ClaimUse, ResourceClaim
from netdra.model.neutron_port import ChosenVF, NeutronPort, name_of
from netdra.model.resource import ResourceSlice
from netdra.neutron.errors import NeutronRefusedError
from tests.unit.controller import test_neutron
from tests.unit.controller.test_neutron import KEY, NAMED, Scene
from tests.unit.controller.test_neutron_ports import ANSWER, GIVEN, NETWORK, NOW, claim, topology

POOL, DEVICE = "node-7/sriov-eth0", "eth0-vfs"
SHARES = ("share-a", "share-b")
A, B, C = (f"0000:05:02.{number}" for number in range(3))
PF, SINGLE, FOREIGN = "0000:05:00.0", "0000:05:03.0", "0000:06:02.0"


def pooled(*shares: str) -> ResourceClaim:
    """The claim with shares of the device of pooled VFs."""
    plain = msgspec.to_builtins(claim(*(DEVICE for _ in shares)))
    results = plain["status"]["allocation"]["devices"]["results"]
    for result, share in zip(results, shares, strict=True):
        result |= {"pool": POOL, "shareID": share, "consumedCapacity": {"dra.networking/vfs": "1"}}
    return msgspec.convert(plain, ResourceClaim)


def node() -> AllocatedNode:
    """A PF with pooled VFs and one that is a device by itself, and a VF of another PF."""

    def device(name: str, kind: str, address: str, **further: Any) -> dict[str, Any]:
        texts = {"type": kind, "pciAddress": address, "physnet": "physnet2"}
        return {"name": name, "attributes": {key: {"string": text} for key, text in texts.items()}, **further}

    lane = device(DEVICE, "vf", "", allowMultipleAllocations=True, capacity={"dra.networking/vfs": {"value": "8"}})
    pools = {
        POOL: [lane, device("eth0", "pf", PF), device("eth0v8", "vf", SINGLE)],
        "node-7/sriov-eth1": [device("eth1v0", "vf", FOREIGN)],
    }
    slices = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name.replace("/", "-")},
            "spec": {
                "driver": "dra.networking",
                "nodeName": "node-7",
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        }
        for name, devices in pools.items()
    ]
    return AllocatedNode("node-7", "host-7", tuple(msgspec.convert(each, ResourceSlice) for each in slices))


def chosen(port: NeutronPort, address: str) -> NeutronPort:
    """As the node's driver writes it; each change of an object is a generation."""
    metadata = replace(port.metadata, generation=port.metadata.generation + 1)
    return replace(port, metadata=metadata, chosen_vf=ChosenVF(pci_address=address))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(test_neutron, "node", node)
    made = Scene(tmp_path, monkeypatch)
    made.ask(network="blue")
    return made


def allocate(scene: Scene, *shares: str) -> None:
    there = pooled(*shares)
    scene.api.claims["data"] = there
    scene.claims.put(KEY, msgspec.convert(msgspec.to_builtins(there), ClaimUse, strict=False))


def choose(scene: Scene, share: str, address: str) -> None:
    scene.api._put(chosen(port_of(scene, share), address))


def port_of(scene: Scene, share: str) -> NeutronPort:
    return scene.ports[f"apps/{name_of('uid-1', POOL, DEVICE, share)}"]


def slots(scene: Scene) -> list[str]:
    """The VFs that Neutron has ports bound to."""
    profiles = [port["binding:profile"] for port in scene.cloud.ports.values()]
    return sorted(profile["pci_slot"] for profile in profiles if profile)


async def until(condition: Callable[[], bool]) -> None:
    """Long before a refused port is tried again by itself."""
    async with asyncio.timeout(ports.AGAIN_SECONDS / 4):
        while not condition():  # noqa: ASYNC110 (what other tasks write)
            await asyncio.sleep(0.005)


def run(scene: Scene, story: Any) -> None:
    async def told() -> None:
        with scene.api.store.following(scene.controller._on_port_change):
            async with scene.controller._neutron:
                await story()

    asyncio.run(told())


def test_each_share_has_a_port_of_its_own_without_a_vf_yet() -> None:
    ports = desired.wanted(pooled(*SHARES), topology(network="blue"), node())
    assert [port.name for port in ports] == [name_of("uid-1", POOL, DEVICE, share) for share in SHARES]
    assert len({port.name for port in ports}) == 2
    assert [port.spec.share_id for port in ports] == list(SHARES)
    assert {(port.spec.pci_address, port.pci_address, port.spec.physnet) for port in ports} == {("", "", "physnet2")}
    assert {desired.reason_of(port) for port in ports} == {"NoVF"}
    assert desired.reason_of(chosen(ports[0], A)) == "Pending"


def test_a_single_vf_is_called_as_before() -> None:
    assert name_of("uid-1", "pool", "vf0", "") == name_of("uid-1", "pool", "vf0")
    assert name_of("uid-1", POOL, DEVICE, SHARES[0]) != name_of("uid-1", POOL, DEVICE)


def test_nothing_is_asked_of_neutron_before_the_node_has_chosen_and_then_that_vf_is_bound(scene: Scene) -> None:
    async def story() -> None:
        allocate(scene, *SHARES)
        await scene.settle()
        assert scene.cloud.asked == []
        assert all(port.status is None for port in scene.ports.values())
        for share, address in zip(SHARES, (A, B), strict=True):
            choose(scene, share, address)
        await scene.settle()
        assert scene.reasons == ["Bound", "Bound"]
        assert slots(scene) == [A, B]

    run(scene, story)


def test_another_choice_binds_the_same_port_to_the_other_vf(scene: Scene) -> None:
    async def story() -> None:
        allocate(scene, SHARES[0])
        await scene.settle()
        choose(scene, SHARES[0], A)
        await scene.settle()
        first = port_of(scene, SHARES[0])
        assert first.bound is not None
        choose(scene, SHARES[0], B)
        assert port_of(scene, SHARES[0]).bound is None, "what was said of the former VF counts for this one no more"
        await scene.settle()
        again = port_of(scene, SHARES[0])
        assert again.bound is not None
        assert again.status is not None
        assert first.status is not None
        assert (again.status.port_id, again.status.settings) == (first.status.port_id, first.status.settings)
        assert slots(scene) == [B]
        asked = len(scene.cloud.asked)
        await scene.settle()
        assert len(scene.cloud.asked) == asked, "a second look writes nothing"

    run(scene, story)


def test_a_vf_released_for_another_vf_is_available_to_the_next_claim_at_once(scene: Scene) -> None:
    async def story() -> None:
        allocate(scene, *SHARES)
        await scene.settle()
        choose(scene, SHARES[0], A)
        await scene.settle()
        choose(scene, SHARES[1], A)
        working = asyncio.create_task(scene.controller.ports.run())
        try:
            await until(lambda: scene.reasons == ["Bound", "SlotTaken"])
            choose(scene, SHARES[0], B)
            await until(lambda: scene.reasons == ["Bound", "Bound"])
        finally:
            working.cancel()
        assert slots(scene) == [A, B]

    run(scene, story)


@pytest.mark.parametrize(
    ("address", "what"),
    [
        (PF, 'is device "eth0" of pool'),
        (FOREIGN, 'is device "eth1v0" of pool "node-7/sriov-eth1", not one of the VFs of device "eth0-vfs"'),
        (A, ""),
        (SINGLE, ""),
    ],
)
def test_a_device_that_is_not_one_of_the_pooled_vfs_gets_no_port(scene: Scene, address: str, what: str) -> None:
    async def story() -> None:
        allocate(scene, SHARES[0])
        await scene.settle()
        choose(scene, SHARES[0], address)
        await scene.settle()
        assert scene.reasons == ["Refused" if what else "Bound"]
        condition = port_of(scene, SHARES[0]).bound
        assert condition is not None
        assert what in condition.message
        assert slots(scene) == ([] if what else [address])

    run(scene, story)


def test_a_device_that_is_not_pooled_has_no_choice() -> None:
    (port,) = desired.wanted(pooled(SHARES[0]), topology(network="blue"), node())
    spec = replace(port.spec, device="eth0v8")
    with pytest.raises(NeutronRefusedError, match="is not a device of pooled VFs"):
        desired.check_choice(chosen(replace(port, spec=spec), SINGLE), node().slices)


def test_a_port_that_an_administrator_deleted_comes_again_for_the_same_vf(scene: Scene) -> None:
    async def story() -> None:
        allocate(scene, SHARES[0])
        await scene.settle()
        choose(scene, SHARES[0], A)
        await scene.settle()
        await scene.api.delete(None, port_of(scene, SHARES[0]))
        for _ in range(2):
            await scene.settle()
        assert port_of(scene, SHARES[0]).pci_address == A
        assert scene.reasons == ["Bound"]
        scene.api.claims = {}
        scene.claims.remove(KEY)
        await scene.api.delete(None, port_of(scene, SHARES[0]))
        for _ in range(2):
            await scene.settle()
        assert not scene.ports
        assert not scene.cloud.ports
        assert not scene.controller._last_chosen

    run(scene, story)


def test_a_named_port_goes_to_the_other_vf_and_is_given_back(scene: Scene) -> None:
    async def story() -> None:
        stored = scene.cloud.make(NAMED)
        scene.ask(port=NAMED)
        allocate(scene, SHARES[0])
        await scene.settle()
        choose(scene, SHARES[0], A)
        await scene.settle()
        choose(scene, SHARES[0], B)
        await scene.settle()
        assert stored["binding:profile"]["pci_slot"] == B
        choose(scene, SHARES[0], C)  # and the claim goes before the port is bound to it
        await scene.api.delete(None, port_of(scene, SHARES[0]))
        await scene.controller._port(f"apps/{port_of(scene, SHARES[0]).name}")
        assert (stored["device_id"], stored["binding:profile"]) == ("", {})

    run(scene, story)


def test_a_port_is_in_use_by_its_own_share_alone() -> None:
    first, _ = desired.wanted(pooled(*SHARES), topology(network="blue"), node())
    asked = replace(first, spec=replace(first.spec, network="green"))
    there = pooled(*SHARES)
    for share, outdated in zip(SHARES, (False, True), strict=True):
        entry = AllocatedDeviceStatus(driver="dra.networking", pool=POOL, device=DEVICE, share_id=share)
        used = replace(there, status=replace(there.status, devices=(entry,)))
        assert desired.is_outdated(asked, first, used) == outdated
    assert not desired.is_outdated(chosen(first, A), first, there), "a choice makes no port outdated"
    status = desired.bound(chosen(first, A), ANSWER, NETWORK, GIVEN, NOW)
    of_answer = replace(chosen(first, ANSWER.pci_slot), status=status)
    assert inspection.difference(of_answer, ANSWER) == ""
    assert inspection.difference(of_answer, replace(ANSWER, profile={"pci_slot": A})) == (
        f"PCI address {ANSWER.pci_slot} changed to {A}"
    )


@settings(max_examples=60, deadline=None)
@example(steps=[("choose", SHARES[0], A), ("choose", SHARES[1], A), ("look", SHARES[1], ""), ("delete", SHARES[1], "")])
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("choose"), st.sampled_from(SHARES), st.sampled_from((A, B, C))),
            st.tuples(st.just("look"), st.sampled_from(SHARES), st.just("")),
            st.tuples(st.just("delete"), st.sampled_from(SHARES), st.just("")),
            st.tuples(st.just("restart"), st.just(""), st.just("")),
        ),
        max_size=12,
    )
)
def test_in_the_end_every_port_is_bound_to_the_vf_that_was_chosen_last_and_to_no_other(
    steps: list[tuple[str, str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With any events between: inspections of ports, deleted objects, another controller."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_neutron, "node", node)
        scene = Scene(tmp_path_factory.mktemp("c"), patch)
        scene.ask(network="blue")
        allocate(scene, *SHARES)

        async def story() -> None:
            await scene.settle()
            for act, share, address in steps:
                there = {port.spec.share_id for port in scene.ports.values()}
                if act == "choose" and share in there:
                    choose(scene, share, address)
                elif act == "look" and share in there:
                    await scene.controller._port(f"apps/{port_of(scene, share).name}")
                elif act == "delete" and share in there:
                    await scene.api.delete(None, port_of(scene, share))
                elif act == "restart":
                    scene.controller._last_chosen.clear()
                await scene.controller._claim(KEY)
            for _ in range(3):
                await scene.settle()
            for share, address in zip(SHARES, (B, A), strict=True):
                choose(scene, share, address)
            for _ in range(3):
                await scene.settle()
            assert scene.reasons == ["Bound", "Bound"]
            by_id = {port.status.port_id: port.pci_address for port in scene.ports.values() if port.status is not None}
            bound = {identity: port["binding:profile"]["pci_slot"] for identity, port in scene.cloud.ports.items()}
            assert bound == by_id
            assert sorted(by_id.values()) == [A, B]

        run(scene, story)
