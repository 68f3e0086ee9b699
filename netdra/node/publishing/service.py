"""Publishes a node while the kernel, the policies and the node's labels change.

Run by `netdra.node.daemon`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack

from netdra.exposure import Exposer
from netdra.kube.client import Client, Selection
from netdra.kube.features import probe
from netdra.kube.reflector import Reflector
from netdra.kube.resources import NODES, POLICIES, ClusterNode
from netdra.kube.store import Change, Store
from netdra.model.inventory import Node
from netdra.model.policy import DeviceExposurePolicy
from netdra.node.measure import Discovered, published
from netdra.node.publishing.interfaces import Interfaces
from netdra.node.publishing.publisher import STORED_SLICES, Publisher, StoredSlice, of_node
from netdra.node.publishing.reconcile import owner_of
from netdra.slices.pack import layout

log = logging.getLogger(__name__)


class Publishing:
    """One node's publishing half.

    Attributes:
        published: whether the server has had once what is to be published.
    """

    def __init__(self, client: Client, node: str, sysfs_root: str) -> None:
        self._client = client
        self._node = node
        self._sysfs_root = sysfs_root
        self.policies: Store[DeviceExposurePolicy] = Store()
        self.nodes: Store[ClusterNode] = Store()
        self.stored: Store[StoredSlice] = Store()
        self._work = asyncio.Event()
        self._exposer: Exposer | None = None
        self.published = False

    async def run(self) -> None:
        """Publish until cancelled.

        Raises:
            NetdraError: the kernel or the API server cannot be used.
        """
        client, node = self._client, self._node
        itself = Selection(field_selector=f"metadata.name={node}")
        with ExitStack() as following:
            following.enter_context(self.policies.following(self._policies_changed))
            following.enter_context(self.nodes.following(self._node_changed))
            async with Interfaces.watching(node, self._sysfs_root) as interfaces, asyncio.TaskGroup() as tasks:
                tasks.create_task(Reflector(client, POLICIES, self.policies).run())
                tasks.create_task(Reflector(client, NODES, self.nodes, itself).run())
                tasks.create_task(Reflector(client, STORED_SLICES, self.stored, of_node(node)).run())
                features = await probe(client, node)
                await self.policies.wait_synced()
                await self.nodes.until(lambda: node in self.nodes.objects)
                owner = owner_of(node, self.nodes.objects[node].metadata.uid)
                publisher = Publisher(client, self.stored, owner)
                tasks.create_task(publisher.run())
                tasks.create_task(self._follow(interfaces))
                tasks.create_task(self._settle(publisher))
                discovered = Discovered(interfaces.watcher)
                while True:
                    self._work.clear()
                    inventory = await interfaces.inventory()
                    discovered.update(inventory)
                    labels = self.nodes.objects[node].metadata.labels
                    exposer = self._exposer or Exposer(tuple(self.policies.objects.values()), features=features)
                    self._exposer = exposer
                    found = exposer.expose(
                        type(inventory)(node=Node(name=node, labels=labels), interfaces=inventory.interfaces)
                    )
                    slices = layout(found, node=node, features=features).slices
                    publisher.want(slices)
                    published(slices)
                    await self._work.wait()

    async def _follow(self, interfaces: Interfaces) -> None:
        while True:
            if await interfaces.next():
                self._work.set()

    async def _settle(self, publisher: Publisher) -> None:
        await publisher.settled.wait()
        self.published = True

    def _policies_changed(self, change: Change[DeviceExposurePolicy]) -> None:
        if change.old is None or change.new is None or change.old.spec != change.new.spec:
            self._exposer = None
            self._work.set()

    def _node_changed(self, change: Change[ClusterNode]) -> None:
        if change.old is None or change.new is None or change.old.metadata.labels != change.new.metadata.labels:
            self._work.set()
