"""The ResourceSlices that a node publishes, of its inventory and the policies of the input.

Called by `plan`, and by `simulate` and `render` for nodes whose slices are not in the input; and the input's Nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from netdra.cli import devices, inputs, objects
from netdra.model import names
from netdra.model.claim import DeviceClass
from netdra.model.core import ClusterNode
from netdra.model.device import ExposureResult, Features
from netdra.model.inventory import Inventory
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import Registration
from netdra.model.resource import ResourceSlice
from netdra.slices.nodes import HOSTNAME_LABEL, SchedulerNode, named

if TYPE_CHECKING:
    from netdra.slices.pack import Packed


def plan(read: objects.InputObjects, inventory: Inventory, features: Features) -> tuple[Packed, ExposureResult]:
    """The slices that a node publishes, and the result of its policies.

    Raises:
        InvalidInputError: an object breaks its schema.
    """
    return planned(inventory, read.of(DeviceExposurePolicy), read.registrations(inventory.node), features)


def planned(
    inventory: Inventory,
    policies: Sequence[DeviceExposurePolicy],
    registrations: Sequence[Registration],
    features: Features,
) -> tuple[Packed, ExposureResult]:
    """The slices that a node publishes, and the result of its policies.

    Args:
        inventory: the node's.
        policies: the cluster's.
        registrations: the facts in CustomDevices about its devices.
        features: of the API server.
    """
    from netdra.exposure import expose
    from netdra.exposure.registered import Registered
    from netdra.slices.pack import layout

    result = expose(inventory, policies, features=features, registered=Registered(tuple(registrations)))
    return layout(result, node=inventory.node.name, features=features), result


def published(read: objects.InputObjects) -> tuple[list[ResourceSlice], list[str]]:
    """The slices of the input, and those that the policies make of inventories of further nodes; and the problems.

    Raises:
        InvalidInputError: an object breaks its schema.
    """
    slices = list(read.of(ResourceSlice))
    ours = {item.spec.node_name for item in slices if item.spec.driver == names.DRIVER}
    problems: list[str] = []
    if not read.entries(DeviceExposurePolicy):
        return slices, problems
    for recorded in read.inventories():
        if recorded.node.name not in ours:
            (inventory,) = inputs.RecordedInventory(None, None, (), (), ()).choose([recorded])
            packed, result = plan(read, inventory, Features())
            slices += packed.slices
            problems += devices.problem_texts((*result.problems, *packed.problems))
    return slices, problems


def of_networks(read: objects.InputObjects, slices: Sequence[ResourceSlice]) -> list[ResourceSlice]:
    """The addresses of the input's PodNetworks of which it has no slice, as if none were assigned."""
    from netdra.networks import shares
    from netdra.rules.pod_networks import check

    known = {names.network_of(item.spec.pool.name) for item in slices if item.spec.driver == names.DRIVER}
    others = (network for network in read.of(PodNetwork) if network.name not in known and not check(network))
    return [item for network in others for item in shares.untouched(network)]


def classes(read: objects.InputObjects) -> list[DeviceClass]:
    """The DeviceClasses of the input, and those that the controller makes of its PodNetworks."""
    from netdra.networks import shares

    return [*shares.device_classes(read.of(PodNetwork)), *read.of(DeviceClass)]


def recorded_node(inventory: Inventory) -> SchedulerNode:
    """The node of an inventory as the scheduler sees it."""
    name = inventory.node.name
    return SchedulerNode(name, {HOSTNAME_LABEL: name} | dict(inventory.node.labels))


def scheduler_nodes(read: objects.InputObjects, slices: Sequence[ResourceSlice]) -> list[SchedulerNode]:
    """The Nodes of the input, or else the nodes of slices, with the labels of their inventories; in order."""
    if nodes := read.nodes():
        return sorted(map(scheduler_node, nodes), key=lambda node: node.name)
    recorded = {node.name: node for node in map(recorded_node, read.inventories())}
    called = sorted({item.spec.node_name for item in slices if item.spec.node_name})
    return [recorded.get(name) or named(name) for name in called]


def scheduler_node(node: ClusterNode) -> SchedulerNode:
    """A Node as the scheduler sees it, with the label that every kubelet sets."""
    name = node.metadata.name
    return SchedulerNode(name, {HOSTNAME_LABEL: name} | dict(node.metadata.labels))
