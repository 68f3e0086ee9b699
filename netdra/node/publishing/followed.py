"""The cluster's objects that a node follows, and the selections that keep other nodes' objects away (decision D54).

Run by `netdra.node.publishing.service`. Every node does the same, so an event of these kinds is sent as many times as
there are nodes: what changes often is in kinds that no node follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from netdra.exposure.registered import Registered, of_custom_device
from netdra.kube.client import Client, Selection
from netdra.kube.reflector import Reflector
from netdra.kube.resources import CUSTOM_DEVICES, NODES, POLICIES, SCHEMAS, TOPOLOGIES
from netdra.kube.store import Change, Store
from netdra.model.core import ClusterNode
from netdra.model.custom_device import CustomDevice
from netdra.model.meta import order
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import Registration
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.node.publishing.publisher import STORED_SLICES, StoredSlice, of_node


class FollowedObjects:
    """The stores of one node.

    Attributes:
        policies, topologies: all of the cluster.
        schemas: vendors' and administrators'; netdra's own are part of its code (decision D35).
        custom_devices: those that name the node.
        shared_custom_devices: those that name no node.
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
        self.shared_custom_devices: Store[CustomDevice] = Store()
        self.nodes: Store[ClusterNode] = Store()
        self.slices: Store[StoredSlice] = Store()

    def custom_device(self, name: str) -> CustomDevice | None:
        """The CustomDevice of a name; of one that is just changing stores, the newer version."""
        stores = (self.custom_devices, self.shared_custom_devices)
        present = [device for store in stores if (device := store.objects.get(name)) is not None]
        return max(present, key=lambda device: order(device.metadata.resource_version), default=None)

    def reflectors(self, client: Client) -> Iterator[Reflector[Any]]:
        """Make what keeps the stores current; the caller runs them."""
        itself = Selection(field_selector=f"metadata.name={self._node}")
        yield Reflector(client, POLICIES, self.policies)
        yield Reflector(client, TOPOLOGIES, self.topologies)
        yield Reflector(client, SCHEMAS, self.schemas)
        for store, name in ((self.custom_devices, self._node), (self.shared_custom_devices, "")):
            chosen = Selection(field_selector=f"spec.selector.nodeName={name}")
            yield Reflector(client, CUSTOM_DEVICES, store, chosen, vital=False)
        yield Reflector(client, NODES, self.nodes, itself)
        yield Reflector(client, STORED_SLICES, self.slices, of_node(self._node))


class NodeRegistrations:
    """The registrations that hold now: CustomDevices that select the node, and those of its device registry.

    Of 5,000 objects few are for one node, so an object is inspected when it changes, and when the node's labels do.
    """

    def __init__(self, node: str, leased: Callable[[], tuple[Registration, ...]]) -> None:
        """Begin without objects.

        Args:
            node: the node's name.
            leased: the device registry's registrations; the same object while nothing changes.
        """
        self._node = node
        self._leased = leased
        self._objects: dict[str, CustomDevice] = {}
        self._chosen: dict[str, Registration] = {}
        self._labels: Mapping[str, str] = {}
        self._made: tuple[tuple[Registration, ...], Registered] | None = None

    def apply(self, change: Change[CustomDevice], labels: Mapping[str, str]) -> bool:
        """Apply a change of an object; returns whether it changes the node's registrations.

        Args:
            change: the object, before and after.
            labels: the node's.
        """
        before = self._chosen.pop(change.key, None)
        if change.new is None:
            self._objects.pop(change.key, None)
        else:
            self._objects[change.key] = change.new
            chosen = of_custom_device(change.new, self._node, labels)
            if chosen is not None:
                self._chosen[change.key] = chosen
        if self._chosen.get(change.key) == before:
            return False
        self._made = None
        return True

    def registered(self, labels: Mapping[str, str]) -> Registered:
        """All registrations; the same object while nothing changes."""
        if labels != self._labels:
            chosen = {name: of_custom_device(item, self._node, labels) for name, item in self._objects.items()}
            self._chosen = {name: entry for name, entry in chosen.items() if entry is not None}
            self._labels, self._made = labels, None
        leased = self._leased()
        if self._made is None or self._made[0] is not leased:
            self._made = leased, Registered((*self._chosen.values(), *leased))
        return self._made[1]
