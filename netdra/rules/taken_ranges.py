"""Ranges of a PodNetwork that the cluster, or its cloud, uses for something else. Pure.

Called by the webhook, by `netdra validate --cluster` and by `netdra doctor`, for warnings: a range may be on a wire of
its own.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from netdra.model.core import NodeWithoutStatus, ServiceCIDR
from netdra.model.findings import Finding
from netdra.model.ip import Network
from netdra.model.neutron_port import NeutronPort
from netdra.model.pod_network import PodNetwork
from netdra.networks.ranges import Span, bounds, network_of
from netdra.rules import pod_networks

RangeUse = Literal["pods", "services", "neutron"]
_TEXTS: dict[RangeUse, str] = {
    "pods": "the pod addresses {cidr} of {owner}",
    "services": "the Service addresses {cidr} of {owner}",
    "neutron": "subnet {cidr} of {owner}",
}
_HINTS: dict[RangeUse, str] = {
    "pods": "pods on this network cannot reach the pods of that node; choose another range",
    "services": "pods on this network cannot reach these Services; choose another range",
    "neutron": "on one wire Neutron and netdra assign the same addresses; divide the range by the subnet's allocation "
    "pools, or set the vlan or physnet of the PodNetwork",
}


class TakenRange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A range that is used for something else.

    Attributes:
        cidr: the subnet.
        use: what it is used for.
        owner: the object, e.g. `Node "node-1"`.
        vlan: the wire's VLAN, if it is known.
        physnet: the wire's physical network, if it is known.
    """

    cidr: str
    use: RangeUse
    owner: str
    vlan: int | None = None
    physnet: str = ""


def of_node(node: NodeWithoutStatus) -> Iterator[TakenRange]:
    """The addresses of a node's pods on the cluster's network."""
    for cidr in node.spec.pod_cidrs or ():
        yield TakenRange(cidr=cidr, use="pods", owner=f'Node "{node.metadata.name}"')


def of_services(services: ServiceCIDR) -> Iterator[TakenRange]:
    """The CIDRs of a ServiceCIDR, as ranges that a PodNetwork must not overlap."""
    for cidr in services.spec.cidrs:
        yield TakenRange(cidr=cidr, use="services", owner=f'ServiceCIDR "{services.metadata.name}"')


def of_port(port: NeutronPort) -> Iterator[TakenRange]:
    """The subnets of a port's addresses. Ports of one network have the same ones."""
    status = port.status
    for text in status.settings.addresses if status is not None and status.settings is not None else ():
        try:
            cidr = str(ipaddress.ip_interface(text).network)
        except ValueError:
            continue
        assert status is not None
        assert status.settings is not None
        yield TakenRange(
            cidr=cidr,
            use="neutron",
            owner=f'network "{status.network_name}" of Neutron',
            vlan=status.settings.vlan or None,
            physnet=port.spec.physnet,
        )


def near(network: PodNetwork, taken: Iterable[TakenRange]) -> tuple[TakenRange, ...]:
    """Those of the ranges that overlap with one of a network's, each once; none if its spec is wrong."""
    if pod_networks.check(network):
        return ()
    ranges = [(network_of(entry.cidr), bounds(entry)) for entry in network.spec.ranges]
    return tuple(dict.fromkeys(other for other in taken if any(_overlaps(network, *own, other) for own in ranges)))


def overlaps(network: PodNetwork, taken: Iterable[TakenRange]) -> Iterator[Finding]:
    """A warning for each range of a network and each use that it overlaps with."""
    others = near(network, taken)
    for at, entry in enumerate(network.spec.ranges) if others else ():
        own = network_of(entry.cidr), bounds(entry)
        by_use: dict[RangeUse, list[TakenRange]] = {}
        for other in others:
            if _overlaps(network, *own, other):
                by_use.setdefault(other.use, []).append(other)
        for use, (first, *rest) in by_use.items():
            text = _TEXTS[use].format(cidr=first.cidr, owner=first.owner)
            more = f" and {len(rest)} more" if rest else ""
            what = f'PodNetwork "{network.name}": range {entry.cidr} overlaps with {text}{more}'
            yield Finding(what, _HINTS[use], ("spec", "ranges", at), code="ND1169")


def _overlaps(network: PodNetwork, subnet: Network, assigned: Span, other: TakenRange) -> bool:
    try:
        taken = ipaddress.ip_network(other.cidr, strict=False)
    except ValueError:
        return False
    if taken.version != subnet.version or not _may_be_one_wire(network, other):
        return False
    if other.use != "neutron":  # pods have a route to the whole subnet
        assigned = Span(int(subnet[0]), int(subnet[-1]))
    return assigned.first <= int(taken[-1]) and int(taken[0]) <= assigned.last


def _may_be_one_wire(network: PodNetwork, other: TakenRange) -> bool:
    pairs = ((network.spec.vlan, other.vlan), (network.spec.physnet, other.physnet))
    return not any(own and theirs and own != theirs for own, theirs in pairs)
