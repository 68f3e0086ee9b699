"""Reads netdra's pods, the lease of its controllers, and the nodes that need its driver, through the API server.

Writes nothing. Called by `netdra doctor`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

from netdra.cluster.objects import PlacedPodStatus
from netdra.doctor.cluster_verdicts import NETDRA_PODS, PART_LABEL, VERSION_LABEL, Component
from netdra.doctor.diagnosis import Unseen, attempt
from netdra.doctor.process_verdicts import DriverFacts, Leader, ProcessFacts
from netdra.kube.client import Client, Selection
from netdra.kube.errors import NotFoundError
from netdra.kube.leader import LEASES, Terms
from netdra.kube.resources import NODE_READINESS, POLICIES, RESOURCE_CLAIMS, Resource
from netdra.model.claim import ResourceClaim, selected_node
from netdra.model.core import BareObject
from netdra.model.meta import time_of
from netdra.model.names import CONTROLLER_LEASE, DRIVER
from netdra.model.resource import Wire

CLOUDS_OPTION = "--neutron-clouds"
"""The option by which a controller knows a cloud."""
PLUGIN_OPTION = "--allow-plugin"
"""The option by which a node's driver has its list of allowed plugins."""

LATE = timedelta(minutes=1)
"""For how long a leader may not have renewed its lease: four times as long as the lease lasts."""


class Container(Wire, frozen=True):
    """A container's process."""

    command: tuple[str, ...] | None = ()
    args: tuple[str, ...] | None = ()


class ComponentSpec(Wire, frozen=True):
    """A pod's containers, and its node."""

    containers: tuple[Container, ...] = ()
    node_name: str = ""


class ComponentPod(BareObject, frozen=True):
    """A pod of netdra's, and its arguments."""

    spec: ComponentSpec = ComponentSpec()
    status: PlacedPodStatus = PlacedPodStatus()

    @property
    def has_cloud(self) -> bool:
        """Whether it is started with a cloud."""
        return any(argument.partition("=")[0] == CLOUDS_OPTION for argument in self._arguments())

    @property
    def allow_plugins(self) -> tuple[str, ...]:
        """Its list of plugins that topologies may run."""
        split = (argument.partition("=") for argument in self._arguments())
        return tuple(value for option, _, value in split if option == PLUGIN_OPTION and value)

    def _arguments(self) -> Iterator[str]:
        for container in self.spec.containers:
            yield from container.command or ()
            yield from container.args or ()


PODS = Resource("v1", "pods", ComponentPod, namespaced=True)


async def components(client: Client, namespace: str) -> tuple[Component, ...]:
    """Netdra's pods.

    Raises:
        ApiError: the API server refuses or does not answer.
    """
    chosen = Selection(namespace=namespace, label_selector=NETDRA_PODS)
    return tuple(await client.gather(PODS, component, chosen))


def component(pod: ComponentPod) -> Component:
    """A pod of netdra's as the verdicts take it."""
    labels = pod.metadata.labels
    return Component(
        pod.metadata.name,
        labels.get(PART_LABEL, ""),
        labels.get(VERSION_LABEL, ""),
        pod.has_cloud,
        pod.allow_plugins,
        pod.spec.node_name,
        pod.status.is_ready,
        pod.status.waiting_reason,
    )


async def look(client: Client, namespace: str, pods: tuple[Component, ...] | Unseen) -> ProcessFacts:
    """The facts about netdra's processes.

    Args:
        client: the way to the cluster.
        namespace: netdra's.
        pods: netdra's pods, or why they are unknown.
    """
    leader, drivers = await attempt(_leader(client, namespace)), await attempt(_drivers(client))
    return ProcessFacts(namespace=namespace, components=pods, leader=leader, drivers=drivers)


async def _leader(client: Client, namespace: str) -> Leader:
    try:
        spec = (await client.get(LEASES, CONTROLLER_LEASE, namespace)).spec
        renewed = time_of(spec.renew_time) if spec.renew_time else None
        works = renewed is not None and abs(client.now() - renewed) <= LATE
        if renewed is not None and not works:  # or its clock is wrong: a leader that works renews the lease meanwhile
            await asyncio.sleep(2 * Terms().retry)
            works = (await client.get(LEASES, CONTROLLER_LEASE, namespace)).spec.renew_time != spec.renew_time
    except NotFoundError:
        return Leader()
    return Leader(spec.holder_identity, renewed, works and bool(spec.holder_identity))


async def _drivers(client: Client) -> DriverFacts:
    nodes = await client.list(NODE_READINESS)
    selectors = [policy.spec.node_selector for policy in await client.list(POLICIES)]
    used = await client.gather(RESOURCE_CLAIMS, _node_of)
    names = frozenset(node.metadata.name for node in nodes)
    return DriverFacts(
        selected=frozenset(
            node.metadata.name
            for node in nodes
            if any(selector is None or selector.matches(node.metadata.labels) for selector in selectors)
        ),
        used=names & frozenset(used),
        not_ready=frozenset(node.metadata.name for node in nodes if not node.is_ready),
    )


def _node_of(claim: ResourceClaim) -> str:
    """The node whose devices of netdra a claim has; "" for none."""
    allocation = claim.status.allocation
    if allocation is None or all(result.driver != DRIVER for result in allocation.devices.results):
        return ""
    return selected_node(allocation.node_selector)
