"""Taking netdra off a cluster: the users of its devices, and the objects that its processes leave behind.

Called by `netdra uninstall`, which the chart runs before and after `helm uninstall`; it waits for running processes
before it removes anything. A pod with a claim cannot end once its node has no driver, and an installed CNI plugin stays
on the nodes without a controller, so an uninstall searches for such users first. Objects that users wrote stay, and so
do their kinds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from netdra.controller.classes import is_generated
from netdra.controller.neutron.ownership import LEASE as NEUTRON_LEASE
from netdra.controller.plugins.cluster_plugins import DAEMON_SETS, finalize
from netdra.controller.plugins.cluster_plugins import FINALIZER as INSTALLED
from netdra.controller.plugins.installers import PLUGIN_LABEL
from netdra.controller.writing import FINALIZER, finalize_port, finalize_topology, set_finalizer
from netdra.kube.client import Client, Selection
from netdra.kube.errors import NotFoundError
from netdra.kube.leader import LEASES, Lease, Terms
from netdra.kube.resources import (
    CNI_PLUGINS,
    CUSTOM_DEVICE_ROLLOUTS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    ENDPOINT_SLICES,
    NEUTRON_PORTS,
    NODE_NETWORKS,
    POD_ADDRESSES,
    POD_NETWORKS,
    POLICY_ROLLOUTS,
    RESOURCE_SLICES,
    SCHEMAS,
    TOPOLOGIES,
    TOPOLOGY_USAGES,
    Resource,
)
from netdra.model import names
from netdra.model.claim import ResourceClaimConsumerReference
from netdra.model.core import BareObject, ClusterPod
from netdra.model.meta import ObjectMeta
from netdra.model.names import CONTROLLER_LEASE
from netdra.model.neutron_port import FINALIZER as IN_NEUTRON
from netdra.model.resource import API_VERSION
from netdra.model.service import MANAGED_BY, MANAGER
from netdra.ops.boot import since_boot

T = TypeVar("T")

MAX_CLAIMS = 20
"""How many claims are named."""
PROCESSES = "app.kubernetes.io/part-of=netdra,app.kubernetes.io/component in (node,controller,webhook)"
"""The label selector of netdra's workloads and their pods; not of pods that install CNI plugins, nor of hooks."""
WORKLOADS = {
    kind: Resource("apps/v1", f"{kind.lower()}s", BareObject, namespaced=True) for kind in ("DaemonSet", "Deployment")
}
PODS = Resource("v1", "pods", ClusterPod, namespaced=True)
_LOOK_SECONDS = 1.0


class AllocatedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One result of an allocation, of any driver: an uninstall only counts those of netdra's."""

    driver: str
    pool: str
    device: str


class AllocatedDevices(msgspec.Struct, frozen=True):
    """The devices of an allocation."""

    results: tuple[AllocatedDevice, ...] = ()


class ClaimAllocation(msgspec.Struct, frozen=True):
    """An allocation, as far as its devices."""

    devices: AllocatedDevices = AllocatedDevices()


class AllocatedClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A claim's allocation, and its users."""

    allocation: ClaimAllocation | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()


class AllocatedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A ResourceClaim, as far as its allocated devices and its users."""

    metadata: ObjectMeta
    status: AllocatedClaimStatus = AllocatedClaimStatus()


class ClaimInUse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A claim that has devices of netdra's.

    Attributes:
        claim: `<namespace>/<name>`.
        pods: the pods that use it, by name, and PodGroups with their kind; none if it is only allocated.
        devices: its devices of netdra, as `<pool>/<device>`.
    """

    claim: str
    pods: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


class Holders(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that still need netdra.

    Attributes:
        count: the number of all claims that have devices of netdra's.
        claims: the first `MAX_CLAIMS` of them.
        plugins: the CNIPlugins whose programs are on nodes, by name.
        neutron_ports: the NeutronPorts that are being deleted and whose ports are still in Neutron.
    """

    count: int
    claims: tuple[ClaimInUse, ...] = ()
    plugins: tuple[str, ...] = ()
    neutron_ports: tuple[str, ...] = ()


class Removed(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One object that was removed, or whose finalizer was."""

    kind: str
    name: str


@dataclass(frozen=True)
class Installation:
    """Where netdra is: its namespace, and the name of its objects."""

    namespace: str
    name: str


_CLAIMS = Resource(API_VERSION, "resourceclaims", AllocatedClaim, namespaced=True)
_LEASES = Resource("coordination.k8s.io/v1", "leases", BareObject, namespaced=True)
_SECRETS = Resource("v1", "secrets", BareObject, namespaced=True)
_ENDPOINT_SLICES = Resource(ENDPOINT_SLICES.group_version, ENDPOINT_SLICES.plural, BareObject, namespaced=True)
_OWN_OBJECTS: tuple[tuple[Resource[Any], Callable[[Any], bool]], ...] = (
    (DEVICE_CLASSES, is_generated),
    (SCHEMAS, lambda schema: schema.is_shipped),
    *(
        (kind, lambda _: True)
        for kind in (NODE_NETWORKS, TOPOLOGY_USAGES, POLICY_ROLLOUTS, CUSTOM_DEVICE_ROLLOUTS, POD_ADDRESSES)
    ),
    (DEVICE_TAINT_RULES, lambda rule: names.HEALTH_LABEL in rule.metadata.labels),
    (RESOURCE_SLICES, lambda resource_slice: resource_slice.spec.driver == names.DRIVER),
)
"""Kinds, and whether an object of the kind is one that only netdra's processes make."""


def _called(user: ResourceClaimConsumerReference) -> str:
    """A user of a claim as it is listed: a pod by its name, anything else with its kind."""
    return user.name if user.resource == "pods" else f"{user.resource}/{user.name}"


async def holders(client: Client) -> Holders:
    """The claims that have devices of netdra's, the CNI plugins on nodes, and the ports that are left in Neutron.

    Raises:
        ApiError: they cannot be read.
    """
    left = holders_of(await client.list(_CLAIMS))
    plugins = (plugin for plugin in await _present(client.list(CNI_PLUGINS)) if INSTALLED in plugin.metadata.finalizers)
    names_of_plugins = tuple(sorted(plugin.name for plugin in plugins))
    ports = sorted(
        f"{port.metadata.namespace}/{port.name}"
        for port in await _present(client.list(NEUTRON_PORTS))
        if port.metadata.deletion_timestamp
    )
    return Holders(
        count=len(left),
        claims=tuple(left[:MAX_CLAIMS]),
        plugins=names_of_plugins,
        neutron_ports=tuple(ports[:MAX_CLAIMS]),
    )


def holders_of(claims: Iterable[AllocatedClaim]) -> list[ClaimInUse]:
    """The claims that have devices of netdra's, in the order of their names. Pure."""
    return sorted(
        (
            ClaimInUse(
                claim=f"{claim.metadata.namespace}/{claim.metadata.name}",
                pods=tuple(sorted(_called(user) for user in claim.status.reserved_for)),
                devices=devices,
            )
            for claim in claims
            if (devices := _devices(claim))
        ),
        key=lambda holder: holder.claim,
    )


def _devices(claim: AllocatedClaim) -> tuple[str, ...]:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return tuple(f"{result.pool}/{result.device}" for result in results if result.driver == names.DRIVER)


async def clean(client: Client, installation: Installation) -> AsyncIterator[Removed]:
    """Remove the objects that netdra's processes made and only they would have removed; the processes must be gone.

    DeviceClasses of topologies, schemas of former versions, usages, rollouts, addresses, reports and slices of
    nodes, the lease and the webhook's certificate are deleted, the DaemonSets of CNIPlugins, and the EndpointSlices of
    PodNetworks. Topologies, PodNetworks, CNIPlugins and NeutronPorts lose their finalizers. An object or a kind that is
    gone already is skipped.

    Raises:
        ApiError: an object cannot be removed just now.
    """
    async for released in _remove_finalizers(client):
        yield released
    for kind, labelled, selection in (
        ("DaemonSet", DAEMON_SETS, Selection(namespace=installation.namespace, label_selector=PLUGIN_LABEL)),
        ("EndpointSlice", _ENDPOINT_SLICES, Selection(label_selector=f"{MANAGED_BY}={MANAGER}")),
    ):
        async for removed in _delete_labelled(client, kind, labelled, selection):
            yield removed
    for resource, is_own in _OWN_OBJECTS:
        for entry in await _present(client.list(resource)):
            if is_own(entry) and await _write_present(client.delete(resource, entry)):
                yield Removed(kind=resource.type.__name__, name=entry.metadata.name)
    for kind, named, name in (
        ("Lease", _LEASES, CONTROLLER_LEASE),
        ("Lease", _LEASES, NEUTRON_LEASE),
        ("Secret", _SECRETS, f"{installation.name}-webhook"),
    ):
        metadata = ObjectMeta(name=name, namespace=installation.namespace)
        if await _write_present(client.delete(named, BareObject(metadata=metadata))):
            yield Removed(kind=kind, name=f"{installation.namespace}/{name}")


async def _delete_labelled(
    client: Client, kind: str, resource: Resource[Any], selection: Selection
) -> AsyncIterator[Removed]:
    """Delete the objects of namespaces that carry a label of netdra's."""
    for entry in await client.list(resource, selection):
        if await _write_present(client.delete(resource, entry)):
            yield Removed(kind=kind, name=f"{entry.metadata.namespace}/{entry.metadata.name}")


async def _remove_finalizers(client: Client) -> AsyncIterator[Removed]:
    """Remove netdra's finalizers from the objects of users."""
    for topology in await _present(client.list(TOPOLOGIES)):
        if FINALIZER in topology.metadata.finalizers and await _write_present(
            finalize_topology(client, topology, wanted=False)
        ):
            yield Removed(kind="finalizer of NetworkTopology", name=topology.name)
    for network in await _present(client.list(POD_NETWORKS)):
        if FINALIZER in network.metadata.finalizers and await _write_present(
            set_finalizer(client, POD_NETWORKS, network, FINALIZER, wanted=False)
        ):
            yield Removed(kind="finalizer of PodNetwork", name=network.name)
    for plugin in await _present(client.list(CNI_PLUGINS)):
        if INSTALLED in plugin.metadata.finalizers and await _write_present(finalize(client, plugin, wanted=False)):
            yield Removed(kind="finalizer of CNIPlugin", name=plugin.name)
    for port in await _present(client.list(NEUTRON_PORTS)):
        if IN_NEUTRON in port.metadata.finalizers and await _write_present(finalize_port(client, port, wanted=False)):
            port_id = f", {port.status.port_id} in Neutron" if port.status is not None and port.status.port_id else ""
            yield Removed(kind="finalizer of NeutronPort", name=f"{port.metadata.namespace}/{port.name}{port_id}")


async def _present(reading: Awaitable[list[T]]) -> list[T]:
    try:
        return await reading
    except NotFoundError:  # the kind is not served
        return []


async def _write_present(writing: Awaitable[None]) -> bool:
    """Whether the object was there."""
    try:
        await writing
    except NotFoundError:
        return False
    return True


class RunningProcess(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An object that shows that netdra runs.

    Attributes:
        kind, name: of the object, the name as `<namespace>/<name>`.
        state: its state in words.
        ends: whether it may be gone soon: it is being deleted, or the lease may expire.
    """

    kind: str
    name: str
    state: str
    ends: bool


@dataclass
class _Renewals:
    """The leases' last renewals, and when this process first saw each; the times in a lease are of another clock."""

    seen: dict[str, tuple[str, float]] = field(default_factory=dict)

    def held(self, lease: Lease) -> bool:
        """Whether a process holds the lease, or may do: it is not released, and was renewed while we watch it."""
        if not lease.spec.holder_identity:
            return False
        name = _full_name(lease)
        version, since = self.seen.get(name, ("", 0.0))
        if version != lease.metadata.resource_version:
            self.seen[name] = (lease.metadata.resource_version, since_boot())
            return True
        return since_boot() - since <= (lease.spec.lease_duration_seconds or Terms().duration)


def _full_name(found: BareObject | Lease) -> str:
    return f"{found.metadata.namespace}/{found.metadata.name}"


async def wait_until_gone(client: Client, seconds: float) -> tuple[RunningProcess, ...]:
    """Wait until none of netdra's processes is left, and return those that are.

    It does not wait for a Deployment or DaemonSet that is not being deleted: netdra is installed. It waits for pods
    that end, and for a lease until it is released or was not renewed for its duration (client-go's rule for taking a
    lease over). An API server that does not answer is not a proof: every error is raised, and nothing is deleted.

    Args:
        seconds: how long to wait.

    Raises:
        ApiError: the objects cannot be read.
    """
    deadline = since_boot() + seconds
    renewals = _Renewals()
    while True:
        processes = await _processes(client, renewals)
        if not processes or since_boot() >= deadline or not all(process.ends for process in processes):
            return tuple(sorted(processes))
        await asyncio.sleep(_LOOK_SECONDS)


async def _processes(client: Client, renewals: _Renewals) -> list[RunningProcess]:
    ours = Selection(label_selector=PROCESSES)
    workloads = [
        _workload(kind, workload)
        for kind, resource in WORKLOADS.items()
        for workload in await client.list(resource, ours)
    ]
    leases = await client.list(LEASES, Selection(field_selector=f"metadata.name={CONTROLLER_LEASE}"))
    return [*workloads, *_pods(await client.list(PODS, ours)), *_leases(leases, renewals)]


def _workload(kind: str, found: BareObject) -> RunningProcess:
    ends = found.metadata.deletion_timestamp is not None
    return RunningProcess(
        kind=kind, name=_full_name(found), state="is being deleted" if ends else "is installed", ends=ends
    )


def _pods(pods: Iterable[ClusterPod]) -> Iterable[RunningProcess]:
    """The pods whose containers run, or may do; a pod without its workload is deleted by the garbage collector."""
    for pod in pods:
        if pod.status.phase in ("Succeeded", "Failed"):
            continue
        where = f" on node {pod.spec.node_name}" if pod.spec.node_name else ""
        state = "has not ended" if pod.metadata.deletion_timestamp is not None else "runs"
        yield RunningProcess(kind="Pod", name=_full_name(pod), state=f"{state}{where}", ends=True)


def _leases(leases: Iterable[Lease], renewals: _Renewals) -> Iterable[RunningProcess]:
    for lease in leases:
        if renewals.held(lease):
            state = f"is held by {lease.spec.holder_identity}"
            yield RunningProcess(kind="Lease", name=_full_name(lease), state=state, ends=True)
