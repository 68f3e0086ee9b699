"""Reads the objects that a story is made of, with the user's kubeconfig and rights.

A kind that the user has no right to read is left out, and the story states so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

import msgspec

from netdra.cluster import wanted
from netdra.cluster.objects import ClusterEvent, ClusterState, PlacedPod, PlacementNode, TaintRule
from netdra.kube import resources
from netdra.kube.answers import decoder
from netdra.kube.client import Client, Selection
from netdra.kube.errors import ApiError
from netdra.kube.features import scheduler_version
from netdra.kube.resources import KubernetesObject, Resource
from netdra.model.claim import ResourceClaim
from netdra.model.core import BareObject
from netdra.model.errors import UNREADABLE, NetdraError, sentence
from netdra.model.meta import LabelSelector, time_text
from netdra.model.node_network import NodeNetwork
from netdra.model.pod_address import PodAddress
from netdra.model.resource import Wire

T = TypeVar("T", bound=KubernetesObject)

PODS = Resource("v1", "pods", PlacedPod, namespaced=True)
NODES = Resource("v1", "nodes", PlacementNode)
EVENTS = Resource("v1", "events", ClusterEvent, namespaced=True)
TAINT_RULES = Resource("resource.k8s.io/v1", "devicetaintrules", TaintRule)
DRIVER_LABELS = "app.kubernetes.io/part-of=netdra,app.kubernetes.io/component=node"
PAGE = 200
"""Reports of nodes that are in memory at one time."""
_ALL = Selection()
_HINT = 'request a ClusterRoleBinding to the ClusterRole "netdra-reader"'
_WIDE = (
    ("claims", resources.RESOURCE_CLAIMS),
    ("templates", resources.CLAIM_TEMPLATES),
    ("classes", resources.DEVICE_CLASSES),
    ("nodes", NODES),
    ("topologies", resources.TOPOLOGIES),
    ("usages", resources.TOPOLOGY_USAGES),
    ("policies", resources.POLICIES),
    ("schemas", resources.SCHEMAS),
    ("custom_devices", resources.CUSTOM_DEVICES),
    ("taint_rules", TAINT_RULES),
    ("networks", resources.POD_NETWORKS),
)
"""The kinds of which all objects are read, by their field of `ClusterState`."""


class Scope(NamedTuple):
    """The part of a cluster that is read.

    Attributes:
        namespace: the namespace of the story's object; "" for an object without one.
        pod: the pod of the story, "" for another kind.
        claim: the claim of the story, "" for another kind.
        network: the PodNetwork of the story, "" for another kind.
        node: the only node whose slices and NodeNetwork are read; "" for all.
        every: whether all pods and claims of the namespace are read with their events; of all namespaces if that is "".
    """

    namespace: str = ""
    pod: str = ""
    claim: str = ""
    network: str = ""
    node: str = ""
    every: bool = False

    @property
    def has_pods(self) -> bool:
        """Whether pods are read, and the objects in their namespaces."""
        return self.every or bool(self.namespace)


class SelectingSpec(Wire, frozen=True):
    """How a workload finds its pods."""

    selector: LabelSelector = LabelSelector()


class SelectingWorkload(BareObject, frozen=True):
    """A workload with pods."""

    spec: SelectingSpec = SelectingSpec()


WORKLOADS = {
    kind: Resource(group, f"{kind}s", SelectingWorkload, namespaced=True)
    for group, kinds in {
        "apps/v1": ("deployment", "statefulset", "daemonset", "replicaset"),
        "batch/v1": ("job",),
    }.items()
    for kind in kinds
}
"""The workloads whose pods have an overview, by their kind as `netdra why` takes it."""


async def pods_of(client: Client, kind: str, namespace: str, name: str, cluster: ClusterState) -> list[PlacedPod]:
    """The pods of a workload of one of `WORKLOADS`, of the pods that were read.

    Raises:
        ApiError: the workload does not exist or cannot be read.
    """
    workload = await client.get(WORKLOADS[kind], name, namespace)
    return [pod for pod in cluster.pods if workload.spec.selector.matches(pod.metadata.labels)]


def scope_of(kind: str, place: str, name: str) -> Scope:
    """The scope of the story of an object; `place` is its namespace, or its node. A node has no story of its own."""
    return Scope(
        namespace=place if kind in ("pod", "claim") else "",
        pod=name if kind == "pod" else "",
        claim=name if kind == "claim" else "",
        network=name if kind == "network" else "",
        node=name if kind == "node" else place if kind == "device" else "",
    )


async def read(client: Client, scope: Scope) -> ClusterState:
    """The objects.

    Raises:
        ApiError: the API server does not answer.
    """
    reader = ObjectReader(client)
    pods = await reader.pods(scope) if scope.has_pods else []
    pod = next((entry for entry in pods if entry.metadata.name == scope.pod), None)
    node = scope.node or (pod.spec.node_name if pod is not None else "")
    of_node = Selection(field_selector=f"spec.nodeName={node}" if node else "")
    names, kinds = zip(*_WIDE, strict=True)
    lists = [reader.all(resource, scope.namespace) for resource in kinds]
    slices, reports, drivers, ports, events, *wide = await asyncio.gather(
        reader.list(resources.RESOURCE_SLICES, of_node),
        reader.reports(node),
        reader.drivers(),
        reader.list(resources.NEUTRON_PORTS, Selection(namespace=scope.namespace)) if scope.has_pods else _no_ports(),
        reader.events(scope),
        *lists,
    )
    found = dict(zip(names, wide, strict=True))
    cluster = ClusterState(
        addresses=await reader.addresses(scope, of_node) if found["networks"] else (),
        pods=pods,
        slices=slices,
        node_networks=reports,
        drivers=drivers,
        ports=ports,
        events=events,
        unread=reader.unread,
        version=await scheduler_version(client),
        server_time=time_text(client.now()),
        **found,
    )
    return await reader.with_causes(cluster, scope)


async def read_node(client: Client, node: str) -> ClusterState:
    """The objects of one node: its slices of all drivers, its report, and the claims that have devices of its pools.

    Raises:
        ApiError: the API server does not answer.
    """
    reader = ObjectReader(client)
    slices, reports, drivers, policies, rules = await asyncio.gather(
        reader.list(resources.RESOURCE_SLICES, Selection(field_selector=f"spec.nodeName={node}")),
        reader.reports(node),
        reader.drivers(),
        reader.list(resources.POLICIES),
        reader.list(TAINT_RULES),
    )
    pools = {(one.spec.driver, one.spec.pool.name) for one in slices}
    return ClusterState(
        slices=slices,
        node_networks=reports,
        drivers=drivers,
        policies=policies,
        taint_rules=rules,
        claims=await reader.list(resources.RESOURCE_CLAIMS, keep=lambda claim: _has_device(claim, pools)),
        unread=reader.unread,
        version=await scheduler_version(client),
        server_time=time_text(client.now()),
    )


async def report_pages(client: Client, selection: Selection, notes: list[str]) -> AsyncIterator[list[NodeNetwork]]:
    """The nodes' reports, some at a time; a note is added for each that cannot be read."""
    continue_, read = "", decoder(NodeNetwork)
    while True:
        page = await client.page(resources.NODE_NETWORKS, selection, limit=PAGE, continue_=continue_)
        found: list[NodeNetwork] = []
        for item in page.items or ():
            try:
                found.append(read.decode(item))
            except UNREADABLE as problem:
                notes.append(f"A NodeNetwork cannot be read: {problem}")
        yield found
        continue_ = page.metadata.continue_
        if not continue_:
            return


def _has_device(claim: ResourceClaim, pools: Collection[tuple[str, str]]) -> bool:
    """Whether a claim has a device of one of the pools."""
    allocation = claim.status.allocation
    return allocation is not None and any((one.driver, one.pool) in pools for one in allocation.devices.results)


def _claims_of(cluster: ClusterState, scope: Scope) -> Iterable[ResourceClaim]:
    """The claims whose addresses a story names."""
    if scope.network or scope.every:
        return [claim for claim in cluster.claims if scope.namespace in ("", claim.metadata.namespace)]
    pod = cluster.pod(scope.namespace, scope.pod) if scope.pod else None
    names = [name for _, name in pod.claim_names()] if pod is not None else [scope.claim]
    return [claim for name in names if (claim := cluster.claim(scope.namespace, name)) is not None]


def is_of(scope: Scope, address: PodAddress) -> bool:
    """Whether a PodAddress is part of a story."""
    spec = address.spec
    if scope.network:
        return spec.network == scope.network
    return spec.owner.namespace == scope.namespace or (scope.every and not scope.namespace)


async def _no_ports() -> Sequence[Any]:
    return ()


class ObjectReader:
    """Lists objects, and notes what the user cannot read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.unread: dict[str, str] = {}

    async def list(
        self,
        resource: Resource[T],
        selection: Selection = _ALL,
        note: str = "",
        keep: Callable[[T], bool] = lambda _: True,
    ) -> Sequence[T]:
        """The objects of a selection; none if they cannot be read.

        Args:
            selection: the objects of the kind.
            note: the name of the unknown objects then; the kind's plural by default.
            keep: whether an object is kept in memory.
        """
        try:
            found = await self._client.gather(resource, lambda entry: entry if keep(entry) else None, selection)
            return [entry for entry in found if entry is not None]
        except ApiError as problem:
            if problem.status.code not in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
                raise
            if (problem.status.code, resource) == (HTTPStatus.NOT_FOUND, TAINT_RULES):
                return ()  # the kind is of Kubernetes 1.37
            text = _refusal(resource, f' in namespace "{selection.namespace}"' if selection.namespace else "")
            if problem.status.code == HTTPStatus.NOT_FOUND:
                text = f"the cluster has no {resource.plural} of {resource.group_version}"
            self.unread[note or resource.plural] = text
            return ()

    async def all(self, resource: Resource[T], namespace: str) -> Sequence[T]:
        """The objects of all namespaces; else those of the namespace of the story."""
        found = await self.list(resource)
        if resource.plural not in self.unread or not (resource.namespaced and namespace):
            return found
        del self.unread[resource.plural]
        found = await self.list(resource, Selection(namespace=namespace))
        if resource.plural not in self.unread:
            self.unread[f"{resource.plural} of other namespaces"] = _refusal(resource, " in all namespaces")
        return found

    async def pods(self, scope: Scope) -> Sequence[PlacedPod]:
        """The pods of the story's namespace; else the pod alone."""
        found = await self.list(PODS, Selection(namespace=scope.namespace))
        if PODS.plural in self.unread and scope.pod:
            with suppress(NetdraError):
                found = [await self._client.get(PODS, scope.pod, scope.namespace)]
                del self.unread[PODS.plural]
        return found

    async def drivers(self) -> Sequence[PlacedPod]:
        """The pods of netdra's driver."""
        return await self.list(PODS, Selection(label_selector=DRIVER_LABELS), "pods of netdra-node")

    async def addresses(self, scope: Scope, of_node: Selection) -> Sequence[PodAddress]:
        """The PodAddresses of the story's namespace, of its pod's node if that is known, or of its network."""
        if not (scope.has_pods or scope.network):
            return ()
        return await self.list(resources.POD_ADDRESSES, of_node, keep=partial(is_of, scope))

    async def with_causes(self, cluster: ClusterState, scope: Scope) -> ClusterState:
        """The objects, with the addresses and events that show why claims of the story lack addresses."""
        found = {claim.metadata.uid: wanted.lacking(cluster, claim) for claim in _claims_of(cluster, scope)}
        claims = [claim for claim in cluster.claims if found.get(claim.metadata.uid)][: wanted.MAX_WAITING]
        lacked = {name for names in found.values() for name in names}
        if not lacked:
            return cluster
        addresses = cluster.addresses
        if not scope.network:
            addresses = await self.list(
                resources.POD_ADDRESSES, keep=lambda entry: entry.spec.network in lacked or is_of(scope, entry)
            )
        known = scope.claim or scope.every
        events = await asyncio.gather(*(self._events_of(claim) for claim in claims if not known))
        return msgspec.structs.replace(
            cluster,
            addresses=addresses,
            events=[*cluster.events, *(event for of_claim in events for event in of_claim)],
        )

    async def _events_of(self, claim: ResourceClaim) -> Sequence[ClusterEvent]:
        about = f"involvedObject.kind=ResourceClaim,involvedObject.name={claim.metadata.name}"
        return await self.list(EVENTS, Selection(claim.metadata.namespace, about))

    async def reports(self, node: str) -> Sequence[Any]:
        """The NodeNetworks: of one node, or all."""
        only = Selection(field_selector=f"metadata.name={node}" if node else "")
        return await self.list(resources.NODE_NETWORKS, only)

    async def events(self, scope: Scope) -> Sequence[ClusterEvent]:
        """The events of the story's pod or claim; those of a pod's claims are read if an address is missing."""
        if scope.every:
            return await self.list(EVENTS, Selection(scope.namespace), keep=lambda event: event.is_of_pod_or_claim)
        if not (scope.pod or scope.claim):
            return ()
        kind, name = ("Pod", scope.pod) if scope.pod else ("ResourceClaim", scope.claim)
        about = f"involvedObject.kind={kind},involvedObject.name={name}"
        return await self.list(EVENTS, Selection(scope.namespace, about))


def _refusal(resource: Resource[Any], where: str) -> str:
    return sentence(f"the cluster does not allow you to list {resource.plural}{where}", _HINT)
