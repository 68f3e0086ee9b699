"""The cluster's objects that a node follows, and the selections that keep other nodes' objects away (decision D54).

Run by `netdra.node.publishing.service`. Every node does the same, so an event of these kinds is sent as many times as
there are nodes: what changes often is in kinds that no node follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from netdra.kube.client import Client, Selection
from netdra.kube.reflector import Reflector
from netdra.kube.resources import CUSTOM_DEVICES, NODES, POLICIES, SCHEMAS, TOPOLOGIES
from netdra.kube.store import Store
from netdra.model.core import ClusterNode
from netdra.model.custom_device import CustomDevice
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.node.publishing.publisher import STORED_SLICES, StoredSlice, of_node


class FollowedObjects:
    """The stores of one node.

    Attributes:
        policies, topologies: all of the cluster.
        schemas: those that netdra does not ship.
        custom_devices: those that may be about the node.
        nodes: the node itself.
        slices: the node's slices as the API server has them.
    """

    def __init__(self, node: str) -> None:
        """Begin without objects.

        Args:
            node: the node's name.
        """
        self._node = node
        self.policies: Store[DeviceExposurePolicy] = Store()
        self.topologies: Store[NetworkTopology] = Store()
        self.schemas: Store[CNIPluginSchema] = Store()
        self.custom_devices: Store[CustomDevice] = Store()
        self.nodes: Store[ClusterNode] = Store()
        self.slices: Store[StoredSlice] = Store()

    def reflectors(self, client: Client) -> Iterator[Reflector[Any]]:
        """Make what keeps the stores current; the caller runs them."""
        itself = Selection(field_selector=f"metadata.name={self._node}")
        yield Reflector(client, POLICIES, self.policies)
        yield Reflector(client, TOPOLOGIES, self.topologies)
        yield Reflector(client, SCHEMAS, self.schemas)
        yield Reflector(client, CUSTOM_DEVICES, self.custom_devices, vital=False)
        yield Reflector(client, NODES, self.nodes, itself)
        yield Reflector(client, STORED_SLICES, self.slices, of_node(self._node))
