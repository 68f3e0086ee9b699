"""The health stream tells every device first, and then what changes."""

from __future__ import annotations

import asyncio

from netdra.model import names
from netdra.model.device import ExposedDevice, ExposureResult
from netdra.model.resource import DeviceTaint, ResourceSlice
from netdra.node.publishing.health import DeviceHealth, Health
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


def test_all_first_and_then_what_is_different() -> None:
    async def story() -> None:
        health = Health()
        health.publish(pool("a", x="", y=names.LINK_DOWN) | pool("b", z=""))
        changes = health.changes()
        assert set(await anext(changes)) == {
            DeviceHealth("a", "x", healthy=True),
            DeviceHealth("a", "y", healthy=False, message="the link has no carrier"),
            DeviceHealth("b", "z", healthy=True),
        }
        health.publish(pool("a", x=names.TROUBLE, y=names.LINK_DOWN))
        assert await anext(changes) == (
            DeviceHealth("a", "x", healthy=False, message="it could not be given back: why"),
        )
        health.publish({"b": ()})
        assert await anext(changes) == (DeviceHealth("b", "z", healthy=False, message="the interface is gone"),)

    asyncio.run(story())


def test_equal_slices_tell_nothing_and_a_slow_reader_gets_the_last_state() -> None:
    async def story() -> None:
        health = Health()
        health.publish(pool("a", x=""))
        changes = health.changes()
        await anext(changes)
        health.publish(pool("a", x=""))
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        assert not waiting.done()
        health.publish(pool("a", x=names.LINK_DOWN))
        health.publish(pool("a", x=names.GONE))
        (found,) = await waiting
        assert found.message == "the interface is gone"

    asyncio.run(story())
