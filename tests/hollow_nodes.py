"""Many nodes without a machine that publish as real ones do: recorded interfaces through netdra's own publishing half.

Used by `bench.hollow` and `tests/cluster/test_hollow.py`. Each node has its own publisher, its own connections and its
own watch of its slices. They share one process, one copy of the policies, and the pass that makes slices of
policies and interfaces: these are the same everywhere, so it is made once, and each node's slices are these under its
own name. On real nodes that pass is a few milliseconds of each node's own CPU; here it would dominate the measurement.
Where nodes have labels, CustomDevices state something else of each, so each makes a pass of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from netdra.exposure.registered import NOTHING, Registered
from netdra.kube import features as gates
from netdra.kube.client import Client
from netdra.kube.reflector import Reflector
from netdra.kube.resources import CUSTOM_DEVICES, POLICIES
from netdra.kube.store import Change, Store
from netdra.model.custom_device import CustomDevice
from netdra.model.device import Features
from netdra.model.inventory import Interface, Inventory, InventoryNode
from netdra.model.node_network import InterfaceGroup, NodeNetworkStatus
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import DeviceFile
from netdra.model.resource import ResourceSlice
from netdra.node.publishing.followed import NodeRegistrations
from netdra.node.publishing.offering import Offering
from netdra.node.publishing.publisher import STORED_SLICES, PoolWrites, Publisher, Slices, StoredSlice, of_node
from netdra.node.publishing.reconcile import owner_of
from netdra.node.publishing.reporter import Reporter

AT_ONCE = 64
"""How many nodes begin at the same time; the API server tells whoever brings more to come again."""


class Quiet:
    """A kernel in which nothing ever goes."""

    def left(self, _: Interface) -> bool:
        """No interface goes to another namespace."""
        return False

    def on_the_bus(self, _: str, bus: str = "pci") -> bool:
        """No device goes from the bus."""
        return True

    def device_file(self, _: str) -> DeviceFile:
        """Device files do not exist."""
        return DeviceFile(missing=True)


class Pattern:
    """The devices that every node offers, made as a node daemon makes them, for a node of no name of its own."""

    NAME = "hollow"

    def __init__(self, interfaces: tuple[Interface, ...]) -> None:
        self._inventory = Inventory(node=InventoryNode(name=self.NAME), interfaces=interfaces)
        self._offering = Offering(self.NAME, {})

    def look(self, policies: Sequence[DeviceExposurePolicy], registered: Registered = NOTHING) -> Mapping[str, Slices]:
        """Make one pass, as after a change; the pools that came out differently."""
        self._offering.follow(policies, Features())
        return self._offering.update(self._inventory, {}, (), Quiet(), time.monotonic(), registered).slices

    def report(self) -> NodeNetworkStatus:
        """The result of the last pass."""
        return replace(self._offering.report(), features=gates.on(Features()))

    def renamed(self, pools: Mapping[str, Slices], node: str) -> dict[str, Slices]:
        """Pools of the pattern as they are on a node."""
        return {self._on(node, pool): tuple(self._moved(one, node) for one in found) for pool, found in pools.items()}

    def _on(self, node: str, name: str) -> str:
        assert name.startswith((f"{self.NAME}/", f"{self.NAME}-")), name
        return node + name.removeprefix(self.NAME)

    def _moved(self, one: ResourceSlice, node: str) -> ResourceSlice:
        pool = replace(one.spec.pool, name=self._on(node, one.spec.pool.name))
        metadata = replace(one.metadata, name=self._on(node, one.metadata.name))
        return replace(one, metadata=metadata, spec=replace(one.spec, pool=pool, node_name=node))


@dataclass
class HollowNode:
    """One node.

    Attributes:
        publisher: its way to the API server.
        reporter: writes its NodeNetwork.
        store: its slices as the API server has them.
        written: when the server answered its last write, as `time.monotonic`.
    """

    publisher: Publisher
    reporter: Reporter
    store: Store[StoredSlice]
    written: float = 0.0

    @property
    def published(self) -> list[ResourceSlice]:
        """Its slices."""
        return [one.read() for one in self.store.objects.values()]


@dataclass
class HollowNodes:
    """All of them; they publish while `running` is entered.

    Attributes:
        connect: makes a client of the API server: each node has one of its own, for in one pool of connections each
            request inspects all of them.
        told: when the last node got its last slices to publish, as `time.monotonic`.
        nodes: by name.
        policies: the cluster's.
        labels: by node; with them CustomDevices are applied.
        custom_devices: the cluster's.
    """

    connect: Callable[[], Client]
    told: float = 0.0
    nodes: dict[str, HollowNode] = field(default_factory=dict)
    policies: Store[DeviceExposurePolicy] = field(default_factory=Store)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    custom_devices: Store[CustomDevice] = field(default_factory=Store)
    _facts: dict[str, NodeRegistrations] = field(default_factory=dict)
    _patterns: dict[str, Pattern] = field(default_factory=dict)
    _status: NodeNetworkStatus = field(default_factory=NodeNetworkStatus)
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def running(self, uids: dict[str, str], interfaces: tuple[Interface, ...]) -> AsyncIterator[None]:
        """Publish.

        Args:
            uids: the nodes, by name.
            interfaces: what each of them has.
        """
        async with AsyncExitStack() as undo:
            undo.enter_context(self.policies.following(self._on_policy_change))
            client = await undo.enter_async_context(self.connect())
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(Reflector(client, POLICIES, self.policies).run())]
                await self.policies.wait_synced()
                if self.labels:
                    self._facts = {name: NodeRegistrations(name, tuple) for name in uids}
                    self._patterns = {name: Pattern(interfaces) for name in uids}
                    undo.enter_context(self.custom_devices.following(self._on_custom_device_change))
                    running.append(tasks.create_task(Reflector(client, CUSTOM_DEVICES, self.custom_devices).run()))
                    await self.custom_devices.wait_synced()
                begun = asyncio.Semaphore(AT_ONCE)
                for number, (name, uid) in enumerate(uids.items()):
                    store: Store[StoredSlice] = Store()
                    own = await undo.enter_async_context(self.connect())
                    owner = owner_of(name, uid)
                    reporter = Reporter(own, owner, partial(self._reported, name, number))
                    self.nodes[name] = node = HollowNode(Publisher(own, store, owner), reporter, store)
                    node.publisher.report = partial(_note, node)
                    running.append(tasks.create_task(self._publish(name, begun, running, tasks)))
                await asyncio.gather(*(node.store.wait_synced() for node in self.nodes.values()))
                running.append(tasks.create_task(self._look(Pattern(interfaces))))
                try:
                    yield
                finally:
                    for task in running:
                        task.cancel()

    async def settled(self, met: Callable[[HollowNode], bool]) -> None:
        """Wait until every node has published what it wants to, and something is true of it."""
        for node in self.nodes.values():
            await node.store.until(lambda node=node: met(node))  # type: ignore[misc]
            await node.publisher.wait_published()

    async def _publish(
        self,
        name: str,
        begun: asyncio.Semaphore,
        running: list[asyncio.Task[None]],
        tasks: asyncio.TaskGroup,
    ) -> None:
        node = self.nodes[name]
        reflector = Reflector(node.publisher.client, STORED_SLICES, node.store, of_node(name))
        async with begun:
            running.append(tasks.create_task(reflector.run()))
            await node.store.wait_synced()
        running.append(tasks.create_task(node.reporter.run()))
        await node.publisher.run()

    async def _reported(self, node: str, number: int) -> NodeNetworkStatus:
        status = self._patterns[node].report() if node in self._patterns else self._status
        return _with_addresses(status, number)

    async def _look(self, pattern: Pattern) -> None:
        while True:
            self._work.clear()
            policies = tuple(self.policies.objects[name] for name in sorted(self.policies.objects))
            pools = pattern.look(policies)
            self._status = pattern.report()
            for name, node in self.nodes.items():
                if name in self._patterns:
                    pools = self._patterns[name].look(policies, self._facts[name].registered(self.labels[name]))
                node.reporter.note(urgent=True)
                node.publisher.want_pools(pattern.renamed(pools, name))
                await asyncio.sleep(0)
            self.told = time.monotonic()
            await self._work.wait()

    def _on_policy_change(self, change: Change[DeviceExposurePolicy]) -> None:
        # As in the node daemon: what the controller says of a policy is no reason for a pass.
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            self._work.set()

    def _on_custom_device_change(self, change: Change[CustomDevice]) -> None:
        # Every node takes it, whether it means anything there or not.
        told = [facts.apply(change, self.labels[name]) for name, facts in self._facts.items()]
        if any(told):
            self._work.set()


def _with_addresses(status: NodeNetworkStatus, node: int) -> NodeNetworkStatus:
    """A report with MAC addresses that no other node has: reports of one kind of node differ in them."""
    own = f"{node >> 8 & 255:02x}:{node & 255:02x}"

    def addressed(group: InterfaceGroup) -> InterfaceGroup:
        mac = group.attributes.get("mac")
        if not isinstance(mac, str):
            return group
        return replace(group, attributes={**group.attributes, "mac": f"{own}:{mac[6:]}"})

    return replace(status, interfaces=tuple(map(addressed, status.interfaces)))


def _note(node: HollowNode, _pool: str, _written: PoolWrites) -> None:
    node.written = time.monotonic()
