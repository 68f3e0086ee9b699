"""The addresses of PodNetworks that claims want and have. Pure."""

from __future__ import annotations

from netdra.cluster.objects import ClusterState
from netdra.model.claim import ResourceClaim
from netdra.model.errors import NetdraError
from netdra.model.pod_address import PodAddress, family_of
from netdra.model.pod_network import PodNetwork
from netdra.rules import pod_addresses
from netdra.rules.pod_addresses import WantedAddresses

MAX_WAITING = 5
"""How many claims that wait for an address a network's story names."""


def lacking(cluster: ClusterState, claim: ResourceClaim) -> set[str]:
    """The PodNetworks of which an allocated claim lacks an address."""
    return {entry.network for entry in wanted_addresses(cluster, claim) if missing_families(cluster, claim, entry)}


def wanted_addresses(cluster: ClusterState, claim: ResourceClaim) -> tuple[WantedAddresses, ...]:
    """The addresses of PodNetworks that the steps of an allocated claim want."""
    if claim.status.allocation is None:
        return ()
    try:
        return pod_addresses.wanted(claim, {topology.name: topology for topology in cluster.topologies})
    except NetdraError:
        return ()  # its node reports that the claim does not fit its topology


def pod_network(cluster: ClusterState, name: str) -> PodNetwork | None:
    """The PodNetwork of this name; None if it is absent or unread."""
    return next((entry for entry in cluster.networks if entry.name == name), None)


def present_addresses(cluster: ClusterState, claim: ResourceClaim, wanted: WantedAddresses) -> list[PodAddress]:
    """The addresses that a step of a claim has."""
    own = cluster.addresses_by_claim.get(claim.metadata.uid, [])
    place = wanted.owner.topology, wanted.owner.step, wanted.owner.index
    return [
        entry for entry in own if (entry.spec.owner.topology, entry.spec.owner.step, entry.spec.owner.index) == place
    ]


def missing_families(cluster: ClusterState, claim: ResourceClaim, wanted: WantedAddresses) -> list[str]:
    """The families of which a step of a claim has no address."""
    network = pod_network(cluster, wanted.network)
    families = {family_of(entry.cidr) for entry in network.spec.ranges} if network is not None else {"any"}
    return sorted(families - {entry.family for entry in present_addresses(cluster, claim, wanted)})
