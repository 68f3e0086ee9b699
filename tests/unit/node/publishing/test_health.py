"""The health of all devices, whenever one changes."""

from __future__ import annotations

import asyncio

from netdra.model import names
from netdra.model.device import ExposedDevice, ExposureResult
from netdra.model.resource import DeviceTaint, ResourceSlice
from netdra.node.publishing.announce import PublishedHealth
from netdra.node.view import DeviceHealth
from netdra.slices.pack import pack


def pool(name: str, **taints: str) -> dict[str, tuple[ResourceSlice, ...]]:
    """A pool with devices, by the taint that each has."""
    devices = tuple(
        ExposedDevice(
            name=device,
            pool=name,
            interface=device,
            policy="p",
            taints=(DeviceTaint(key=key, effect="NoSchedule", value="why" if key == names.TROUBLE else ""),)
            if key
            else (),
        )
        for device, key in taints.items()
    )
    return {name: pack(ExposureResult(devices=devices), node="n")}


def test_health_lists_all_devices_each_time_and_a_gone_device_once() -> None:
    async def story() -> None:
        health = PublishedHealth()
        health.publish(pool("a", x="", y=names.LINK_DOWN) | pool("b", z=""))
        states = health.states()
        assert set(await anext(states)) == {
            DeviceHealth("a", "x", healthy=True),
            DeviceHealth("a", "y", healthy=False, message="the link has no carrier"),
            DeviceHealth("b", "z", healthy=True),
        }
        health.publish(pool("a", x=names.TROUBLE, y=names.LINK_DOWN))
        troubled = DeviceHealth("a", "x", healthy=False, message="it could not be released: why")
        down = DeviceHealth("a", "y", healthy=False, message="the link has no carrier")
        assert set(await anext(states)) == {troubled, down, DeviceHealth("b", "z", healthy=True)}
        health.publish({"b": ()})
        gone = DeviceHealth("b", "z", healthy=False, message="the interface is gone")
        assert set(await anext(states)) == {troubled, down, gone}
        health.publish(pool("a", x="", y=names.LINK_DOWN))
        assert set(await anext(states)) == {DeviceHealth("a", "x", healthy=True), down}

    asyncio.run(story())


def test_a_link_that_is_lost_in_a_pod_makes_its_device_unhealthy_until_it_is_back() -> None:
    async def story() -> None:
        health = PublishedHealth()
        health.publish(pool("a", x="", y=names.LINK_DOWN))
        states = health.states()
        healthy = set(await anext(states))
        health.note_links({("a", "x"): 'interface "net1" has no carrier', ("a", "y"): "the same", ("b", "z"): "gone"})
        lost = DeviceHealth("a", "x", healthy=False, message='in its pod: interface "net1" has no carrier')
        down = DeviceHealth("a", "y", healthy=False, message="the link has no carrier")
        assert set(await anext(states)) == {lost, down}
        health.note_links({})
        assert set(await anext(states)) == healthy

    asyncio.run(story())


def test_equal_slices_send_no_health_and_a_slow_reader_gets_only_the_last_state() -> None:
    async def story() -> None:
        health = PublishedHealth()
        health.publish(pool("a", x=""))
        states = health.states()
        await anext(states)
        health.publish(pool("a", x=""))
        waiting = asyncio.ensure_future(anext(states))
        await asyncio.sleep(0)
        assert not waiting.done()
        health.publish(pool("a", x=names.LINK_DOWN))
        health.publish(pool("a", x=names.GONE))
        (found,) = await waiting
        assert found.message == "the interface is gone"

    asyncio.run(story())
