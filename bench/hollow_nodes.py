"""Many nodes without a machine that publish as real ones do: recorded interfaces through netdra's own publishing half.

Used by `bench.hollow` and `tests/cluster/test_hollow.py`. Each node has its own offering, its own publisher, and its
own watch of its slices; what they share is one process, and one copy of the policies.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from netdra.kube.client import Client
from netdra.kube.reflector import Reflector
from netdra.kube.resources import POLICIES
from netdra.kube.store import Store
from netdra.model.device import Features
from netdra.model.inventory import Interface, Inventory, Node
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice
from netdra.node.publishing.offering import Offering
from netdra.node.publishing.publisher import STORED_SLICES, Publisher, StoredSlice, of_node
from netdra.node.publishing.reconcile import owner_of

AT_ONCE = 64
"""How many nodes begin at the same time; the API server tells whoever brings more to come again."""


class Quiet:
    """Surroundings in which nothing ever goes."""

    def left(self, _: Interface) -> bool:
        """No interface goes to another namespace."""
        return False

    def on_the_bus(self, _: str) -> bool:
        """No device goes from the bus."""
        return True


@dataclass
class HollowNode:
    """One node.

    Attributes:
        offering: its interfaces, as devices.
        publisher: its way to the API server.
        store: its slices as the API server has them.
    """

    inventory: Inventory
    offering: Offering
    publisher: Publisher
    store: Store[StoredSlice]

    def look(self, policies: Sequence[DeviceExposurePolicy]) -> None:
        """Make one pass, as after a change."""
        self.offering.follow(policies, Features())
        found = self.offering.update(self.inventory, {}, (), Quiet(), time.monotonic())
        self.publisher.want_pools(found.slices)

    @property
    def published(self) -> list[ResourceSlice]:
        """Its slices."""
        return [one.read() for one in self.store.objects.values()]


@dataclass
class HollowNodes:
    """All of them; they publish while `running` is entered.

    Attributes:
        connect: makes a client of the API server: each node has one of its own, for in one pool of connections each
            request looks at all of them.
        nodes: by name.
        policies: the cluster's.
    """

    connect: Callable[[], Client]
    nodes: dict[str, HollowNode] = field(default_factory=dict)
    policies: Store[DeviceExposurePolicy] = field(default_factory=Store)
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def running(self, uids: dict[str, str], interfaces: tuple[Interface, ...]) -> AsyncIterator[None]:
        """Publish.

        Args:
            uids: the nodes, by name.
            interfaces: what each of them has.
        """
        async with AsyncExitStack() as undo:
            undo.enter_context(self.policies.following(lambda _: self._work.set()))
            client = await undo.enter_async_context(self.connect())
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(Reflector(client, POLICIES, self.policies).run())]
                await self.policies.wait_synced()
                begun = asyncio.Semaphore(AT_ONCE)
                for name, uid in uids.items():
                    store: Store[StoredSlice] = Store()
                    own = await undo.enter_async_context(self.connect())
                    publisher = Publisher(own, store, owner_of(name, uid))
                    inventory = Inventory(node=Node(name=name), interfaces=interfaces)
                    self.nodes[name] = HollowNode(inventory, Offering(name, {}), publisher, store)
                    running.append(tasks.create_task(self._publish(self.nodes[name], begun, running, tasks)))
                await asyncio.gather(*(node.store.wait_synced() for node in self.nodes.values()))
                running.append(tasks.create_task(self._look()))
                try:
                    yield
                finally:
                    for task in running:
                        task.cancel()

    async def settled(self, met: Callable[[HollowNode], bool]) -> None:
        """Wait until every node has published what it wants to, and something is true of it."""
        for node in self.nodes.values():
            await node.store.until(lambda node=node: met(node))  # type: ignore[misc]
            await node.publisher.settled.wait()

    async def _publish(
        self,
        node: HollowNode,
        begun: asyncio.Semaphore,
        running: list[asyncio.Task[None]],
        tasks: asyncio.TaskGroup,
    ) -> None:
        reflector = Reflector(node.publisher.client, STORED_SLICES, node.store, of_node(node.inventory.node.name))
        async with begun:
            running.append(tasks.create_task(reflector.run()))
            await node.store.wait_synced()
        await node.publisher.run()

    async def _look(self) -> None:
        while True:
            self._work.clear()
            policies = tuple(self.policies.objects[name] for name in sorted(self.policies.objects))
            for node in self.nodes.values():
                node.look(policies)
                await asyncio.sleep(0)
            await self._work.wait()
