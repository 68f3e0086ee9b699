"""The server refuses a device, drops fields or is away: the rest is published, once, and the reason is reported."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import closing

import msgspec
import pytest

from netdra.kube.features import probe
from netdra.model.device import ExposedDevice, ExposureResult
from netdra.model.resource import DeviceAttribute
from netdra.node.metrics import NODE
from netdra.slices.pack import layout
from testbed.api import Objects
from testbed.commands import Settings
from testbed.control_plane import ControlPlane
from testbed.workspace import Workspace, open_workspace
from tests.cluster.conftest import StartControlPlane
from tests.cluster.fault_proxy import Answer, Fault, Lost, Request
from tests.cluster.publishing.publisher_scene import as_stored, one_slice, packed, publishing

WRITES = ("POST", "PUT", "DELETE")
TROUBLES = 8
"""How many writes of an overloaded server do not go well."""


def test_a_device_that_the_server_refuses_is_left_out_and_reported_and_its_pool_is_published(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            (only,) = one_slice(scene.node, "good", "bad", "fine")
            odd = {"dra.networking/firmware": DeviceAttribute(version="not a version")}
            devices = tuple(
                msgspec.structs.replace(found, attributes=odd) if found.name == "bad" else found
                for found in only.spec.devices
            )
            await scene.settle(
                (msgspec.structs.replace(only, spec=msgspec.structs.replace(only.spec, devices=devices)),)
            )
            (stored,) = scene.stored()
            assert [found["name"] for found in stored["spec"]["devices"]] == ["good", "fine"]
            (refusal,) = [refusal for _, written in scene.reports for refusal in written.refusals]
            assert refusal.device == "bad"
            assert "firmware" in refusal.reason
            assert left_out() == 1

            # Mended, it is published like any other.
            await scene.settle((only,))
            (stored,) = scene.stored()
            assert [found["name"] for found in stored["spec"]["devices"]] == ["good", "bad", "fine"]
            assert left_out() == 0

    asyncio.run(story())


def test_a_pool_whose_only_device_the_server_refused_is_counted_until_it_is_wanted_no_more(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            (only,) = one_slice(scene.node, "bad")
            (device,) = only.spec.devices
            odd = {"dra.networking/firmware": DeviceAttribute(version="not a version")}
            spec = msgspec.structs.replace(only.spec, devices=(msgspec.structs.replace(device, attributes=odd),))
            await scene.settle((msgspec.structs.replace(only, spec=spec),))
            assert (scene.stored(), left_out()) == ([], 1)
            await scene.settle(())
            assert left_out() == 0

    asyncio.run(story())


def left_out() -> float | None:
    """The metric's value for devices that the server refused."""
    return NODE.registry.get_sample_value("netdra_devices_left_out", {"reason": "refused"})


def test_a_server_that_is_away_gets_the_latest_state_when_it_is_back(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            await scene.settle(packed(scene.node, 10))
            scene.proxy.fault = lambda request: Answer.status(503)
            scene.proxy.cut_all()
            since = time.monotonic()
            for mtu in range(2, 30):
                scene.publisher.want(packed(scene.node, 10, mtu=mtu))
                await asyncio.sleep(0.05)
            assert scene.written(since, since + 1.5) <= 7
            scene.proxy.fault = lambda request: None
            await scene.settled()
            assert scene.content() == as_stored(packed(scene.node, 10, mtu=29))

    asyncio.run(story())


@pytest.mark.parametrize("seed", range(3))
def test_an_overloaded_server_gets_each_slice_once(
    control_plane: ControlPlane, workspace: Workspace, seed: int
) -> None:
    """Writes that were refused, lost, or done without an answer are not repeated, nor is the rest written again."""

    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            chance = random.Random(seed)
            faults: list[Fault] = [Answer.status(429, retry_after=1), Lost(Answer.status(504)), Answer.status(504)]
            left = [chance.choice([*faults, None]) for _ in range(TROUBLES)]

            def trouble(request: Request) -> Fault:
                return left.pop() if left and request.method in WRITES else None

            scene.proxy.fault = trouble
            await scene.settle(packed(scene.node, 300))
            assert scene.content() == as_stored(packed(scene.node, 300))
            first = scene.stored()
            assert {item["spec"]["pool"]["generation"] for item in first} == {1}
            assert written(first) == {1}

            left += [chance.choice([*faults, None]) for _ in range(TROUBLES)]
            await scene.settle(packed(scene.node, 300, mtu=9000))
            assert scene.content() == as_stored(packed(scene.node, 300, mtu=9000))
            second = scene.stored()
            assert names_of(second) == names_of(first)
            assert {item["spec"]["pool"]["generation"] for item in second} == {2}
            assert written(second) == {2}
            assert not [request for request in scene.proxy.requests if request.method == "DELETE"]

    asyncio.run(story())


def written(slices: Objects) -> set[int]:
    """How often the slices' specs were written."""
    return {item["metadata"]["generation"] for item in slices}


def names_of(slices: Objects) -> set[str]:
    return {item["metadata"]["name"] for item in slices}


def test_the_publisher_abandons_slice_names_that_are_already_taken(
    control_plane: ControlPlane, workspace: Workspace
) -> None:
    async def story() -> None:
        async with publishing(control_plane, workspace) as scene:
            refused: list[str] = []

            def taken(request: Request) -> Fault:
                if request.method != "POST" or len(refused) >= 8:
                    return None
                refused.append(request.path)
                return Answer.status(409, "AlreadyExists")

            scene.proxy.fault = taken
            await scene.settle(packed(scene.node, 10))
            assert len(refused) == 8
            assert scene.content() == as_stored(packed(scene.node, 10))

    asyncio.run(story())


@pytest.fixture(scope="module")
def gated(start_control_plane: StartControlPlane) -> ControlPlane:
    """A control plane whose gates for counters, shared devices and taints are off."""
    off = ("DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceTaints", "DRADeviceTaintRules")
    return start_control_plane(Settings(feature_gates=dict.fromkeys(off, False), scheduler=False))


def test_fields_that_the_server_drops_are_named_by_their_gates_and_written_once(gated: ControlPlane) -> None:
    async def story(workspace: Workspace) -> None:
        async with publishing(gated, workspace) as scene:
            tainted = one_slice(scene.node, "a", taint="dra.networking/gone")
            slices = (*packed(scene.node, 3)[1:], *tainted)
            await scene.settle(slices)
            gates = {field.gate for _, written in scene.reports for field in written.dropped}
            assert gates == {"DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceTaints"}

            since, stored = time.monotonic(), scene.stored()
            await scene.settle(slices)
            assert scene.written(since) == 0
            assert scene.stored() == stored

    with closing(gated.client()) as api, open_workspace(api) as workspace:
        asyncio.run(story(workspace))


def test_with_the_features_that_the_server_has_nothing_is_dropped(gated: ControlPlane) -> None:
    async def story(workspace: Workspace) -> None:
        async with publishing(gated, workspace) as scene:
            features = await probe(scene.publisher.client, scene.node)
            plain = ExposureResult(
                devices=tuple(
                    ExposedDevice(
                        name=f"d{number}", pool="p", interface="i", policy="p", attributes={"a/b": ("x", "y")}
                    )
                    for number in range(130)
                )
            )
            await scene.settle(layout(plain, node=scene.node, features=features).slices)
            assert [written.dropped for _, written in scene.reports] == [()]
            assert len(scene.stored()) == 2

    with closing(gated.client()) as api, open_workspace(api) as workspace:
        asyncio.run(story(workspace))
