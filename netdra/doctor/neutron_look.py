"""Inspects VFs' ports of Neutron: in a cluster through the API server, and in a cloud. Writes nothing, makes no port.

Called by `netdra doctor`. Objects that the user may not see are left out, and the rest continues.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TypeVar

from netdra.doctor.cluster_verdicts import Component
from netdra.doctor.diagnosis import Unseen, attempt
from netdra.doctor.neutron_verdicts import (
    Account,
    CloudFacts,
    Failed,
    PortFacts,
    WiredNode,
)
from netdra.kube.client import Client, Selection
from netdra.kube.resources import (
    NEUTRON_PORTS,
    NODE_INTERFACES,
    NODES,
    RESOURCE_SLICES,
    TOPOLOGIES,
    WATCHED_CLAIMS,
    Resource,
)
from netdra.model import names
from netdra.model.claim import ClaimUse, ClaimUseAllocation, ClaimUseStatus
from netdra.model.core import ClusterNode
from netdra.model.errors import with_code
from netdra.model.neutron_port import HOST_ANNOTATION
from netdra.model.node_network import NodeInterfaces
from netdra.model.resource import ResourceSlice
from netdra.neutron.answers import NeutronNetwork, Subnet
from netdra.neutron.client import Neutron
from netdra.neutron.errors import CloudsError, NeutronError, UnauthorizedError, UnreachableError
from netdra.neutron.physnets import PhysnetDefault
from netdra.topology.devices import from_slices, physnets
from netdra.topology.users import topologies_of

T = TypeVar("T")


class DatedAllocation(ClaimUseAllocation, frozen=True):
    """A claim's allocation, and when it was made, where the API server keeps that."""

    allocation_timestamp: str | None = None


class DatedStatus(ClaimUseStatus, frozen=True):
    """Whether the claim is allocated, and since when."""

    allocation: DatedAllocation | None = None


class DatedClaim(ClaimUse, frozen=True):
    """A claim, and since when it is allocated."""

    status: DatedStatus = DatedStatus()


CLAIMS = Resource(WATCHED_CLAIMS.group_version, WATCHED_CLAIMS.plural, DatedClaim, namespaced=True)


async def look_at_ports(client: Client, components: Sequence[Component] | Unseen) -> PortFacts:
    """The facts of a cluster's NeutronPorts.

    Args:
        client: the way to it.
        components: netdra's pods, or why they are not known.
    """
    topologies = await attempt(_topologies(client))
    if isinstance(topologies, Unseen):
        return PortFacts(topologies=topologies)
    ports = await attempt(client.list(NEUTRON_PORTS))
    if isinstance(ports, Unseen) or not topologies:
        return PortFacts(topologies=topologies, ports=ports if isinstance(ports, Unseen) else tuple(ports))
    have = {port.spec.claim.uid for port in ports}
    return PortFacts(
        topologies=topologies,
        ports=tuple(ports),
        waiting=await attempt(_find_waiting(client, frozenset(topologies), have)),
        controllers=_controllers(components),
    )


async def look_at_nodes(client: Client) -> tuple[WiredNode, ...] | Unseen:
    """The nodes that publish devices of physical networks, in the order of their names."""
    return await attempt(_nodes(client))


async def look_at_cloud(neutron: Neutron, defaults: Mapping[str, PhysnetDefault]) -> CloudFacts:
    """The facts of a cloud.

    Args:
        neutron: the way to it.
        defaults: the controller's map, by physical network.
    """
    account = await _ask(_account(neutron))
    if isinstance(account, Failed):
        return CloudFacts(account=account)
    extensions = await _ask(neutron.extensions())
    if isinstance(extensions, Failed) and extensions.reason in (UnreachableError.reason, UnauthorizedError.reason):
        return CloudFacts(account=account, extensions=extensions)
    agents = await _ask(neutron.agents())
    networks = await _ask(neutron.networks())
    sees = True if agents else await _ask(neutron.sees_agents())
    return CloudFacts(
        account=account,
        extensions=extensions,
        ports=await _ask(neutron.ports()),
        agents=sees if isinstance(sees, Failed) else agents,
        sees_agents=sees is True,
        networks=networks,
        subnets=() if isinstance(networks, Failed) else await _ask(_subnets(neutron, networks)),
        defaults={physnet: await _default(neutron, default) for physnet, default in defaults.items()},
    )


async def _ask(work: Awaitable[T]) -> T | Failed:
    try:
        return await work
    except (NeutronError, CloudsError) as problem:
        return Failed(problem.reason, with_code(problem.what, problem.code), problem.hint)


async def _topologies(client: Client) -> tuple[str, ...]:
    return tuple(sorted(topology.name for topology in await client.list(TOPOLOGIES) if topology.asks_neutron))


async def _find_waiting(client: Client, topologies: frozenset[str], have: set[str]) -> dict[str, str]:
    """The allocated claims of topologies that have no port, and since when."""
    return {
        f"{claim.metadata.namespace}/{claim.metadata.name}": allocation.allocation_timestamp
        or claim.metadata.creation_timestamp
        or ""
        for claim in await client.list(CLAIMS)
        if claim.metadata.uid not in have
        and not claim.metadata.deletion_timestamp
        and topologies_of(claim) & topologies
        if (allocation := claim.status.allocation) is not None
    }


def _controllers(components: Sequence[Component] | Unseen) -> dict[str, bool] | Unseen:
    """By pod of the controller, whether it is started with a cloud."""
    if isinstance(components, Unseen):
        return components
    return {component.pod: component.has_cloud for component in components if component.part == "controller"}


async def _nodes(client: Client) -> tuple[WiredNode, ...]:
    chosen = Selection(field_selector=f"spec.driver={names.DRIVER}")
    wired = wires(await client.list(RESOURCE_SLICES, chosen))
    reports = {report.metadata.name: report for report in await client.list(NODE_INTERFACES)} if wired else {}
    nodes = {node.metadata.name: node for node in await client.list(NODES)} if wired else {}
    return tuple(
        WiredNode(
            name=name,
            host=_host(name, nodes.get(name)),
            physnets=wired[name],
            interfaces=interfaces_of(reports.get(name)),
        )
        for name in sorted(wired)
    )


def _host(name: str, node: ClusterNode | None) -> str:
    return (node.metadata.annotations.get(HOST_ANNOTATION) if node is not None else "") or name


def wires(slices: Iterable[ResourceSlice]) -> dict[str, dict[str, frozenset[str]]]:
    """By node and physical network, the NICs (PFs) of the devices that are published of it."""
    slices = list(slices)
    nodes = {one.spec.pool.name: one.spec.node_name or "" for one in slices}
    devices = from_slices(slices)
    wired: dict[str, dict[str, frozenset[str]]] = {}
    for key, physnet in physnets(slices).items():
        node, device = nodes[key[0]], devices[key]
        if node and isinstance(physnet, str):
            nics = wired.setdefault(node, {}).setdefault(physnet, frozenset())
            wired[node][physnet] = nics | ({device.pf_name or device.if_name} - {""})
    return wired


def interfaces_of(report: NodeInterfaces | None) -> frozenset[str] | None:
    """The names of a node's hardware, and of other interfaces in its report; None without a report."""
    if report is None or report.status is None:
        return None
    return frozenset(name for group in report.status.interfaces if group.type != "vf" for name in group.names)


async def _account(neutron: Neutron) -> Account:
    login = await neutron.session.login()
    return Account(user=login.user, project=login.project, roles=login.roles, url=login.network)


async def _subnets(neutron: Neutron, networks: Sequence[NeutronNetwork]) -> tuple[Subnet, ...]:
    wired = [network.id for network in networks if network.physnet]
    return tuple((await neutron.subnets_of(wired)).values()) if wired else ()


async def _default(neutron: Neutron, default: PhysnetDefault) -> NeutronNetwork | Failed:
    """The network of the controller's map, or why it or its subnet is not there."""
    network = await _ask(neutron.network(default.network))
    if isinstance(network, Failed) or not default.subnet:
        return network
    subnet = await _ask(neutron.subnet(network, default.subnet))
    return subnet if isinstance(subnet, Failed) else network
