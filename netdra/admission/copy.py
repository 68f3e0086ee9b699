"""The copy of the cluster's objects that verdicts go by, and the few questions for which the copy is not enough.

Kept current by reflectors while `run` runs. A claim is refused only after the API server itself was asked: an object
that was made a moment ago may not be in the copy yet. A caller that asks for an object while it is being read waits for
the next read, because the answer under way may be from before the write that caused the question; all such callers
share that next read. So a storm of claims for one topology costs the API server one request at a time, and no claim
waits for more than two.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from netdra.admission.nodes import Nodes
from netdra.admission.reports import LABELLED_NODES, REPORTS
from netdra.exposure.foresight import folded, referenced_attributes
from netdra.kube.client import Client
from netdra.kube.errors import ApiError, NotFoundError
from netdra.kube.reflector import Reflector
from netdra.kube.resources import (
    CLAIM_STATES,
    CLAIM_TEMPLATES,
    CUSTOM_DEVICES,
    DEVICE_CLASSES,
    NEUTRON_PORTS,
    POD_NETWORKS,
    POLICIES,
    RESOURCE_CLAIMS,
    SCHEMAS,
    SERVICE_CIDRS,
    TOPOLOGIES,
    KubernetesObject,
    Resource,
)
from netdra.kube.store import Change, Store
from netdra.model.claim import ClaimState, DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.core import ServiceCIDR
from netdra.model.custom_device import CustomDevice
from netdra.model.findings import Finding
from netdra.model.names import network_of_class
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.review.index import WorldIndex
from netdra.review.world import World, topologies_of_class
from netdra.rules import shipped, taken_ranges
from netdra.rules.classes import check_made
from netdra.rules.taken_ranges import TakenRange
from netdra.topology.classes import every_form, known_classes, owner
from netdra.topology.users import is_attached, topologies_of

Classes = Mapping[str, DeviceClass]
T = TypeVar("T", bound=KubernetesObject)
PAGE = 100
"""Claims of a page: a claim has up to 1.5 MiB, and a page of them is in memory."""
NODES_AT_ONCE = 64
"""How many nodes are compared with a PodNetwork until other requests have their turn."""
PORTS_SECONDS = 2.0
"""How long the author of a PodNetwork waits at most for a comparison with the subnets of Neutron."""
MOST_REST = 2.0
"""Seconds between two lists of claims at most."""


class Source(Protocol):
    """Where objects are read."""

    async def get(self, resource: Resource[T], name: str) -> T:
        """One object; raises NotFoundError if none exists, ApiError if the API server did not answer."""


class Reads:
    """The reads that are under way, and the next ones. One event loop's."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._next: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._running: dict[tuple[str, str], asyncio.Task[Any]] = {}

    async def get(self, resource: Resource[T], name: str) -> T | None:
        """An object as it is at some moment from now on; None if none exists.

        Raises:
            ApiError: the API server did not answer.
        """
        key = resource.plural, name
        reading: asyncio.Task[T | None] | None = self._next.get(key)
        if reading is None:
            reading = asyncio.create_task(self._read(resource, name, key, self._running.get(key)))
            self._next[key] = reading
        return await asyncio.shield(reading)

    async def _read(
        self, resource: Resource[T], name: str, key: tuple[str, str], before: asyncio.Task[Any] | None
    ) -> T | None:
        if before is not None:
            await asyncio.wait((before,))
        own = self._running[key] = self._next.pop(key)
        try:
            return await self._source.get(resource, name)
        except NotFoundError:
            return None
        finally:
            if self._running[key] is own:
                del self._running[key]


class Use(NamedTuple):
    """A claim, as `<namespace>/<name>`, with the topologies that it was allocated through."""

    claim: str
    topologies: frozenset[str]
    is_attached: bool


class Uses:
    """The claims that use topologies, listed on request: one list at a time, with a pause as long between two.

    A caller during a list waits for the next one, and shares it with all callers until it begins.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._next: asyncio.Task[list[Use]] | None = None
        self._last: asyncio.Task[list[Use]] | None = None
        self._rested = 0.0

    async def get(self) -> list[Use]:
        """The claims as they are at some moment from now on.

        Raises:
            ApiError: the API server did not answer.
        """
        if self._next is None:
            self._next = asyncio.create_task(self._read(self._last))
        return await asyncio.shield(self._next)

    async def _read(self, before: asyncio.Task[list[Use]] | None) -> list[Use]:
        if before is not None:
            await asyncio.wait((before,))
        begun = time.monotonic()
        if begun < self._rested:
            await asyncio.sleep(self._rested - begun)
            begun = time.monotonic()
        self._last, self._next = self._next, None
        try:
            listed = await self._client.gather(CLAIM_STATES, _use, limit=PAGE)
            return [use for use in listed if use is not None]
        finally:
            ended = time.monotonic()
            self._rested = ended + min(ended - begun, MOST_REST)


def _use(claim: ClaimState) -> Use | None:
    topologies = topologies_of(claim)
    if not topologies:
        return None
    attached = is_attached(claim)
    # The API server keeps a deleted claim until its finalizers are gone; no further pod gets it meanwhile.
    if claim.metadata.deletion_timestamp and not attached:
        return None
    return Use(f"{claim.metadata.namespace}/{claim.metadata.name}", topologies, attached)


class Copy:
    """The stores, and the cluster that is made of them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reads = Reads(client)
        self._uses = Uses(client)
        self.topologies: Store[NetworkTopology] = Store()
        self.schemas: Store[CNIPluginSchema] = Store()
        self.policies: Store[DeviceExposurePolicy] = Store()
        self.custom_devices: Store[CustomDevice] = Store()
        self.classes: Store[DeviceClass] = Store()
        self.pod_networks: Store[PodNetwork] = Store()
        self.service_cidrs: Store[ServiceCIDR] = Store()
        self.nodes = Nodes()
        stores = self.topologies, self.schemas, self.policies, self.custom_devices, self.classes
        self._stores: tuple[Store[Any], ...] = stores
        self._cluster: World | None = None
        self.index = WorldIndex()
        self._following = ExitStack()
        for store, update in (
            (self.topologies, self.index.on_topology),
            (self.policies, self.index.on_policy),
            (self.custom_devices, self.index.on_custom_device),
            (self.schemas, None),
            (self.classes, None),
            (self.pod_networks, None),
        ):
            self._following.enter_context(store.following(partial(self._on_change, update)))

    async def run(self) -> None:
        """Keep the copy current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            with self.nodes.following():
                reflectors = (
                    Reflector(self._client, TOPOLOGIES, self.topologies),
                    Reflector(self._client, SCHEMAS, self.schemas),
                    Reflector(self._client, POLICIES, self.policies),
                    Reflector(self._client, CUSTOM_DEVICES, self.custom_devices),
                    Reflector(self._client, DEVICE_CLASSES, self.classes),
                    # Where the server does not know these kinds, verdicts do without.
                    Reflector(self._client, POD_NETWORKS, self.pod_networks, vital=False),
                    Reflector(self._client, SERVICE_CIDRS, self.service_cidrs, vital=False),
                    Reflector(self._client, REPORTS, self.nodes.reports, vital=False),
                    Reflector(self._client, LABELLED_NODES, self.nodes.nodes, vital=False),
                )
                await asyncio.gather(*(tasks.create_task(reflector.run()) for reflector in reflectors))

    @property
    def synced(self) -> bool:
        """Whether the copy has been equal to the server once."""
        return all(store.synced for store in self._stores)

    async def wait_synced(self) -> None:
        """Wait until the copy has been equal to the server once."""
        for store in self._stores:
            await store.wait_synced()

    @property
    def cluster(self) -> World:
        """The cluster as the copy has it now, but for statuses, which no verdict stands on."""
        if self._cluster is None:
            self._cluster = World(
                topologies=dict(self.topologies.objects),
                schemas={schema.metadata.name: schema for schema in shipped.own_of(self.schemas.objects.values())},
                policies=dict(self.policies.objects),
                custom_devices=dict(self.custom_devices.objects),
                classes=self.index.classes | dict(self.classes.objects),
                added=self.index.added.value,
                pod_networks=dict(self.pod_networks.objects),
            )
        return self._cluster

    async def read_taken(self, network: PodNetwork) -> tuple[TakenRange, ...]:
        """The ranges that overlap with a network's and are used for something else, as far as they can be read."""
        chain = itertools.chain.from_iterable
        found = [*taken_ranges.near(network, chain(map(taken_ranges.of_services, self.service_cidrs.objects.values())))]
        nodes = [*self.nodes.nodes.objects.values()]
        for at in range(0, len(nodes), NODES_AT_ONCE):
            found += taken_ranges.near(network, chain(map(taken_ranges.of_node, nodes[at : at + NODES_AT_ONCE])))
            await asyncio.sleep(0)
        with suppress(ApiError, TimeoutError):  # without Neutron, the webhook has no right to list them
            async with asyncio.timeout(PORTS_SECONDS):
                ports = await self._client.gather(NEUTRON_PORTS, lambda port: (*taken_ranges.of_port(port),))
                found += taken_ranges.near(network, dict.fromkeys(chain(ports)))
        return (*found,)

    async def with_users(self, topology: str) -> World:
        """The cluster, with the claims that use a topology and have it in a pod, as the API server has them now.

        Raises:
            ApiError: the API server did not answer.
        """
        using = [use for use in await self._uses.get() if topology in use.topologies]
        attached = tuple(sorted(use.claim for use in using if use.is_attached))
        return replace(self.cluster, users=attached, waiting=len(using) - len(attached))

    async def with_reports(self, new: DeviceExposurePolicy | None, *, trusted: bool) -> World:
        """The cluster, with the nodes' reports as far as a policy that is written or deleted asks for attributes.

        Args:
            new: the policy as it will be, None if it is deleted.
            trusted: whether the API server asks; other clients learn of published attributes alone.
        """
        asked = referenced_attributes([] if new is None else [new.spec.selector.cel], published=not trusted)
        reported = await self.nodes.read_reports(asked, new)
        if new is not None:
            reported = replace(reported, seen=folded(reported.seen, new.spec.selector.cel))
        return replace(self.cluster, reported=reported)

    async def confirm(self, classes: Iterable[str]) -> World:
        """The cluster, with these DeviceClasses, their topologies and PodNetworks as the API server has them now.

        It is `cluster` itself, as it was when this was called, if that is up to date.

        Raises:
            ApiError: the API server did not answer.
        """
        cluster, asked = self.cluster, tuple(classes)
        # In one go with the topologies that the copy has for these classes, because the claim's author waits.
        supposed = _named(asked, cluster.classes)
        shared = _networks_of(asked, _some(cluster.topologies, supposed))
        stored = tuple(
            _all_without_status(objects)
            for objects in (
                _some(self.classes.objects, asked),
                _some(cluster.topologies, supposed),
                _some(cluster.pod_networks, shared),
            )
        )
        present, topologies, networks = await asyncio.gather(
            self._current(DEVICE_CLASSES, asked),
            self._current(TOPOLOGIES, supposed),
            self._current(POD_NETWORKS, shared),
        )
        if tuple(_all_without_status(objects) for objects in (present, topologies, networks)) == stored:
            return cluster
        named = _named(asked, {**cluster.classes, **present})
        topologies |= await self._current(TOPOLOGIES, named - supposed)
        networks |= await self._current(POD_NETWORKS, _networks_of(asked, topologies) - shared)
        others = {name: topology for name, topology in cluster.topologies.items() if name not in named | supposed}
        foreign = {name: item for name, item in self.classes.objects.items() if name not in asked}
        made = known_classes(topologies.values(), ())
        other_networks = {name: network for name, network in cluster.pod_networks.items() if name not in shared}
        return replace(
            cluster,
            topologies=others | topologies,
            classes=made | foreign | present,
            pod_networks=other_networks | networks,
        )

    async def unlike(self, device_class: DeviceClass) -> Sequence[Finding]:
        """The error of a class that a topology owns, and that does not follow from the topology.

        Raises:
            ApiError: the API server did not answer.
        """
        name = owner(device_class)
        stored = self.topologies.objects.get(name)
        found = (*check_made(device_class, self.index.made(stored) if stored is not None else ()),)
        if not found:
            return ()
        current = await self._reads.get(TOPOLOGIES, name)  # the copy may be behind
        if current is None or (stored is not None and current.spec == stored.spec):
            return found
        return (*check_made(device_class, every_form(current)),)

    async def claims(
        self, namespace: str, names: Iterable[tuple[bool, str]]
    ) -> list[ResourceClaim | ResourceClaimTemplate]:
        """The claims and templates of a namespace that are there.

        Args:
            names: of each, whether it is a template, and its name.

        Raises:
            ApiError: the API server did not answer.
        """

        async def read(is_template: bool, name: str) -> ResourceClaim | ResourceClaimTemplate | None:
            try:
                if is_template:
                    return await self._client.get(CLAIM_TEMPLATES, name, namespace)
                return await self._client.get(RESOURCE_CLAIMS, name, namespace)
            except NotFoundError:
                return None

        found = await asyncio.gather(*(read(*each) for each in names))
        return [each for each in found if each is not None]

    async def _current(self, resource: Resource[T], names: Iterable[str]) -> dict[str, T]:
        objects = await asyncio.gather(*(self._reads.get(resource, name) for name in names))
        return {item.metadata.name: item for item in objects if item is not None}

    def _on_change(self, update: Callable[[str, Any, Any], None] | None, change: Change[Any]) -> None:
        if _is_status_alone(change.old, change.new):
            return
        self._cluster = None
        if update is not None:
            update(change.key, change.old, change.new)


def _is_status_alone(old: Any, new: Any) -> bool:
    """Whether an object changed in its status at most, as the controller writes it after each change of the object."""
    return old is not None and new is not None and _without_status(old) == _without_status(new)


def _without_status(item: Any) -> Any:
    """An object without what changes when its status is written."""
    bare = replace(item, metadata=replace(item.metadata, resource_version=""))
    return replace(bare, status=None) if hasattr(item, "status") else bare


def _all_without_status(objects: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _without_status(item) for name, item in objects.items()}


def _some(objects: Mapping[str, T], names: Iterable[str]) -> dict[str, T]:
    """The objects of these names, as far as they exist."""
    return {name: objects[name] for name in names if name in objects}


def _networks_of(classes: Iterable[str], topologies: Mapping[str, NetworkTopology]) -> frozenset[str]:
    """The PodNetworks of these DeviceClasses, and those that steps of topologies are on."""
    steps = (step.pod_network for topology in topologies.values() for step in topology.spec.steps)
    return frozenset({*map(network_of_class, classes), *steps} - {""})


def _named(classes: Iterable[str], by_name: Classes) -> frozenset[str]:
    """The topologies of these DeviceClasses."""
    return frozenset(
        name
        for device_class in classes
        if device_class in by_name
        for name in topologies_of_class(by_name[device_class])
    )
