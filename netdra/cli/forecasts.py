"""The devices that claims of the input of `netdra validate` could be allocated, and the facts that follow for each.

Slices come from the input and the cluster; of a node without netdra's slices they are what policies make of its
inventory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TypeVar

from netdra.cli import node_slices, objects
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.core import ClusterNode
from netdra.model.custom_device import CustomDevice
from netdra.model.device import Features
from netdra.model.documents import Document
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding
from netdra.model.inventory import Inventory
from netdra.model.names import DRIVER
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.topology.facts import POD

Kind = TypeVar("Kind")
Node = ClusterNode | Inventory


def of_cluster(
    given: objects.InputOptions, topologies: Sequence[NetworkTopology]
) -> tuple[list[ResourceSlice], list[ClusterNode]]:
    """The cluster's slices and Nodes, if topologies refer to facts of them; rights that are missing are reported."""
    from netdra.cli import cluster_objects
    from netdra.rules.forecasts import facts_of

    references = (reference for topology in topologies for step in topology.spec.steps for reference in facts_of(step))
    if all(reference.step == POD for reference in references):
        return [], []
    cluster = cluster_objects.read(given.access(), (ResourceSlice, ClusterNode), DRIVER)
    return cluster.of(ResourceSlice), cluster.of(ClusterNode)


def findings(
    values: Sequence[Document], slices: Sequence[ResourceSlice], nodes: Sequence[Node]
) -> Iterator[tuple[int, Finding]]:
    """The errors in pods for some of the devices that they could be allocated.

    Args:
        values: the objects that are checked together.
        slices: the slices of the input and the cluster.
        nodes: Nodes and inventories.

    Yields:
        the id of an object among `values`, and a finding for a warning about it.
    """
    from netdra.rules import contract, forecasts
    from netdra.rules.devices import possible_devices
    from netdra.topology.classes import known_classes
    from netdra.topology.graph import examine

    topologies = {value.name: value for value in _of(values, NetworkTopology)}
    graphs = (examine(value)[0] for value in topologies.values())
    if not any(graph is not None and any(graph.facts.values()) for graph in graphs):
        return
    present = {entry.spec.node_name for entry in slices if entry.spec.driver == DRIVER}
    offered = possible_devices([*slices, *_planned(values, nodes, present)])
    schemas = [schema for schema in _of(values, CNIPluginSchema) if not contract.examine(schema)[1]]
    labels = _labels(nodes)
    for topology in topologies.values():
        yield from ((id(topology), entry) for entry in forecasts.of_topology(topology, offered, schemas, labels))
    classes = known_classes(topologies.values(), _of(values, DeviceClass))
    claims: list[ResourceClaim | ResourceClaimTemplate]
    claims = [*_of(values, ResourceClaim), *_of(values, ResourceClaimTemplate)]
    for claim in claims:
        with contextlib.suppress(InvalidInputError):  # a class that is not to be understood is reported as such
            yield from ((id(claim), entry) for entry in forecasts.of_claim(claim, topologies, classes, offered, labels))


def _of(values: Sequence[Document], kind: type[Kind]) -> list[Kind]:
    return [value for value in values if isinstance(value, kind)]


def _labels(nodes: Sequence[Node]) -> dict[str, Mapping[str, str]]:
    """The labels of nodes by name; a Node counts more than an inventory, which may have none."""
    labels = {node.node.name: node.node.labels for node in nodes if isinstance(node, Inventory) and node.node.labels}
    return labels | {node.metadata.name: node.metadata.labels for node in nodes if isinstance(node, ClusterNode)}


def _planned(
    values: Sequence[Document], nodes: Sequence[Node], present: Container[str | None]
) -> Iterator[ResourceSlice]:
    """The slices that policies make of the inventories of nodes that are not `present`."""
    from netdra.exposure.check import check
    from netdra.exposure.registered import of_custom_device

    policies = [policy for policy in _of(values, DeviceExposurePolicy) if not check(policy)]
    for inventory in nodes if policies else ():
        if not isinstance(inventory, Inventory) or inventory.node.name in present:
            continue
        node = inventory.node
        own = (of_custom_device(device, node.name, node.labels) for device in _of(values, CustomDevice))
        registrations = [registration for registration in own if registration is not None]
        with contextlib.suppress(InvalidInputError):
            packed, _ = node_slices.planned(inventory, policies, registrations, Features())
            yield from packed.slices
