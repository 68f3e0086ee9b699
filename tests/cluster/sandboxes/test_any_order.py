"""Any actions of runtime and driver, in any order: no device is lost while a driver runs, and nothing is held.

Sequences are drawn (`tests/draws.py`); the one that fails is printed, and drawn again by NETDRA_SEED.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from testbed.api import Object
from testbed.waiting import until_async
from tests import draws
from tests.cluster.sandboxes.scene import WITHIN, Daemon, Scene, chain_of_three
from tests.cluster.sandboxes.stand_in import Box, RefusedError, StandIn, driving, playing

SEQUENCES = draws.count(2, 30)
ACTS = 25
INTERFACES = ("eth7", "eth8")


@dataclass
class Story:
    """A runtime, its pods, and a driver that comes and goes.

    Attributes:
        told: what was done, for the report.
        boxes: each pod's sandboxes, the newest last.
    """

    scene: Scene
    runtime: StandIn
    drawn: random.Random
    pods: list[Object]
    told: list[str] = field(default_factory=list)
    boxes: dict[int, list[Box]] = field(default_factory=dict)
    daemon: Daemon | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def act(self) -> None:
        """Do something that can be done now."""
        acts = {
            self.run: 6,
            self.stop: 3,
            self.vanish: 2,
            self.stop_again: 1,
            self.remove: 1,
            self.restart_runtime: 1,
            self.restart_driver: 1,
        }
        (act,) = self.drawn.choices(list(acts), weights=list(acts.values()))
        number = self.drawn.randrange(len(self.pods))
        self.told.append(f"{act.__name__} {number}")
        await act(number)

    async def run(self, number: int) -> None:
        """The kubelet has a sandbox made, after the former one has stopped."""
        if self.living(number):
            return
        with suppress(RefusedError):  # the former one's device may not be back yet: the kubelet would try again
            self.boxes.setdefault(number, []).append(await self.runtime.run(self.pods[number]))

    async def stop(self, number: int) -> None:
        """A pod ends."""
        for box in self.living(number):
            await self.runtime.stop(box)

    async def vanish(self, number: int) -> None:
        """A sandbox's namespace goes, and the runtime sends no event."""
        for box in self.living(number):
            self.runtime.end(box)

    async def stop_again(self, number: int) -> None:
        """The stop of any sandbox is reported once more."""
        for box in self.boxes.get(number, [])[-1:]:
            await self.runtime.stop(box)

    async def remove(self, number: int) -> None:
        """Stopped sandboxes are removed."""
        for box in self.boxes.get(number, []):
            if box.stopped and box.key in self.runtime.boxes:
                await self.runtime.remove(box)

    async def restart_runtime(self, _: int) -> None:
        """The runtime ends, and is back with all sandboxes."""
        await self.runtime.die()
        await self.runtime.connect()

    async def restart_driver(self, _: int) -> None:
        """The driver ends when all that has ended is taken down, and another one comes."""
        await self.settled()
        await self.leave()
        await self.enter()

    async def enter(self) -> None:
        """A driver comes."""
        self.daemon, _ = await self._stack.enter_async_context(driving(self.scene, self.runtime))

    async def leave(self) -> None:
        """The driver ends."""
        await self._stack.aclose()
        self._stack = AsyncExitStack()
        if self.runtime.peer is not None:
            await self.runtime.die()

    def living(self, number: int) -> list[Box]:
        """The sandboxes of a pod that have their namespace."""
        return [box for box in self.boxes.get(number, []) if not box.stopped]

    async def settled(self) -> None:
        """Wait until only what lives is held and kept, and all else is back."""
        living = {box.key for number in self.boxes for box in self.living(number)}
        daemon = self.daemon
        assert daemon is not None
        namespaces = daemon.pods.network.table.namespaces

        def holds() -> bool:
            free = {name for number, name in enumerate(INTERFACES) if not self.living(number)}
            return (
                set(namespaces.sandboxes()) == self.scene.machine.checkpoints() == living
                and free <= self.scene.machine.links()
            )

        def detail() -> str:
            kept = self.scene.machine.checkpoints()
            return f"{living} live, {namespaces.sandboxes()} are held, {kept} are kept: {self.told}"

        await until_async(holds, "what has ended to be taken down", seconds=WITHIN, detail=detail)
        for number in self.boxes:
            for box in self.boxes[number]:
                if box.stopped:
                    await self.runtime.until_gone(box)


def only(interface: str) -> list[Object]:
    """A selector of one interface of the node."""
    return [{"cel": {"expression": f'device.attributes["dra.networking"].ifName == "{interface}"'}}]


@asynccontextmanager
async def beginning(scene: Scene, pods: list[Object], seed: str) -> AsyncIterator[Story]:
    """A story with a driver."""
    async with playing(scene) as runtime:
        story = Story(scene, runtime, random.Random(seed), pods)
        await story.enter()
        try:
            yield story
        finally:
            await story.leave()


@pytest.mark.parametrize("number", range(SEQUENCES))
def test_in_any_order_live_pods_keep_their_devices_and_ended_pods_release_them(scene: Scene, number: int) -> None:
    scene.publish(*INTERFACES)
    topology = scene.topology("three", *chain_of_three())
    pods = [scene.pod(scene.claim(topology, selectors=only(name))) for name in INTERFACES]

    async def main() -> None:
        async with beginning(scene, pods, f"{draws.seed()}-{number}") as story:
            for _ in range(ACTS):
                await story.act()
            await story.settled()
            for pod in range(len(story.pods)):
                await story.vanish(pod)
            await story.settled()
            assert [event.reason for event in scene.told if event.reason != "NetworkNotAttached"] == []

    asyncio.run(main())
