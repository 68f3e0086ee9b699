"""A live copy of all nodes of a cluster, with the rights of its client. Used by the console and `netdra top`."""

from __future__ import annotations

import asyncio

from netdra.cluster.fleet import CountedNode, FleetNow, TaintedSlice
from netdra.kube import resources
from netdra.kube.client import Client, Selection
from netdra.kube.reflector import Reflector
from netdra.kube.resources import Resource
from netdra.kube.store import Store
from netdra.model.names import DRIVER

COUNTED_NODES = Resource(resources.NODE_NETWORKS.group_version, resources.NODE_NETWORKS.plural, CountedNode)
TAINTED_SLICES = Resource(resources.RESOURCE_SLICES.group_version, resources.RESOURCE_SLICES.plural, TaintedSlice)


class LiveFleet:
    """The nodes' reports, and the slices with tainted devices.

    Attributes:
        nodes: the reports, as they are followed by `reflector`.
    """

    def __init__(self, client: Client) -> None:
        """Read nothing yet."""
        self.nodes: Store[CountedNode] = Store()
        self._slices: Store[TaintedSlice] = Store()
        self.reflector = Reflector(client, COUNTED_NODES, self.nodes)
        self._taints = Reflector(
            client,
            TAINTED_SLICES,
            self._slices,
            Selection(field_selector=f"spec.driver={DRIVER}"),
            keeps=lambda one: any(True for _ in one.tainted()),
            vital=False,
        )

    async def run(self) -> None:
        """Follow the nodes, and once these are read the slices, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.reflector.run())
            await self.nodes.wait_synced()
            await self._taints.run()

    @property
    def now(self) -> FleetNow:
        """The nodes and the tainted devices that were read."""
        tainted = [device for one in self._slices.objects.values() for device in one.tainted()]
        return FleetNow([*self.nodes.objects.values()], tainted)

    @property
    def version(self) -> str:
        """Another text when something has changed."""
        return f"{self.nodes.version} {self._slices.version} {self.reflector.problem}"
