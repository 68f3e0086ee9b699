"""The remains of a former daemon, for tests of the next one."""

from __future__ import annotations

import asyncio

from netdra.node.nri.hooks import Sandbox
from tests.cluster.sandboxes.scene import Daemon, Scene


async def rounds(daemon: Daemon, count: int = 1) -> None:
    for _ in range(count):
        await daemon.pods.recovery.look_around()


def attached(scene: Scene) -> tuple[str, Sandbox]:
    """A claim and a sandbox that a daemon which is gone by now has attached."""
    claim, sandbox = scene.of_three()

    async def story() -> None:
        async with scene.daemon() as daemon:
            await daemon.run(sandbox)
            await daemon.written()

    asyncio.run(story())
    return claim, sandbox
