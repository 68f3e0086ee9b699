"""The devices that claims of the input of `netdra validate` could be allocated, and the facts that follow for each.

Slices come from the input and the cluster; of a node without netdra's slices they are what policies make of its
inventory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

from msgspec.structs import replace

from netdra.cli import node_slices, objects
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.core import ClusterNode
from netdra.model.custom_device import CustomDevice
from netdra.model.device import ExposureResult, Features
from netdra.model.documents import Document
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding
from netdra.model.inventory import Inventory
from netdra.model.names import DRIVER, RDMA_MODE
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import DeviceAttribute, ResourceSlice
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
    cluster = cluster_objects.read(given.cluster, (ResourceSlice, ClusterNode), DRIVER)
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


def rdma_modes(
    values: Sequence[Document], nodes: Sequence[Node]
) -> Iterator[tuple[int, Finding, Literal["error", "warning"]]]:
    """The steps that share the RDMA device of inventories in the mode "exclusive", in the objects of the input.

    Yields:
        the id of a topology among `values`, a finding, and its severity.
    """
    from netdra.rules import rdma
    from netdra.rules.devices import possible_devices

    topologies = [value for value in _of(values, NetworkTopology) if rdma.asked(value)]
    offered = possible_devices(_planned(values, nodes, ())) if topologies else []
    for topology in topologies:
        for finding, wrong in rdma.modes(topology, offered):
            yield id(topology), finding, "error" if wrong else "warning"


def _with_modes(
    slices: Iterable[ResourceSlice], inventory: Inventory, result: ExposureResult
) -> Iterator[ResourceSlice]:
    """Slices with the RDMA namespace mode of the node on its devices, which published devices do not carry."""
    modes = {interface.identity: interface.rdma_mode for interface in inventory.interfaces if interface.rdma_mode}
    of_device = {(device.pool, device.name): modes.get(device.interface, "") for device in result.devices}
    for entry in slices:
        devices = tuple(
            replace(device, attributes={**device.attributes, RDMA_MODE: DeviceAttribute(string=mode)})
            if (mode := of_device.get((entry.spec.pool.name, device.name), ""))
            else device
            for device in entry.spec.devices
        )
        yield replace(entry, spec=replace(entry.spec, devices=devices))


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
            packed, result = node_slices.planned(inventory, policies, registrations, Features())
            yield from _with_modes(packed.slices, inventory, result)
