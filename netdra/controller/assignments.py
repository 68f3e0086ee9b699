"""The addresses that an allocated claim should have, and the contents of a PodNetwork's status. Pure.

`netdra.controller.addresses` chooses the addresses by `netdra.networks.ledger`, and writes the objects.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from netdra.controller.status import Desired, conditions
from netdra.model.claim import ResourceClaim
from netdra.model.findings import Finding
from netdra.model.meta import ObjectMeta, time_text
from netdra.model.names import DRIVER, group_of
from netdra.model.pod_address import (
    AddressClaim,
    AddressOwner,
    AddressRoute,
    PodAddress,
    PodAddressSpec,
    family_of,
    object_name,
)
from netdra.model.pod_network import AVAILABLE, READY, REPORT, PodNetwork, PodNetworkStatus
from netdra.model.topology import NetworkTopology
from netdra.networks import shares
from netdra.networks.ledger import MAX_COUNT, ChosenAddress, NetworkLedger
from netdra.topology import address_request
from netdra.topology.bind import addressed_steps
from netdra.topology.parameters import ordinal_in
from netdra.topology.users import pod_owner

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
MAX_USERS = 5
"""How many claims are named that the deletion of a PodNetwork waits for."""
_EXTENDED = "extended-resources"
"""The name in its pod of a claim that the scheduler made for extended resources: there is one."""


class WantedAddresses(NamedTuple):
    """A step that is to have addresses: whose it is, of which PodNetwork, and the addresses that the claim requests.

    Attributes:
        group: the group of nodes of whose ranges the claim has a share; None without a share.
    """

    owner: AddressOwner
    network: str
    requested: tuple[str, ...]
    group: str | None = None


def wanted(claim: ResourceClaim, topologies: Mapping[str, NetworkTopology]) -> tuple[WantedAddresses, ...]:
    """The addresses that an allocated claim should have.

    Raises:
        NetdraError: the claim does not fit its topology; its node reports that to the pod.
    """
    metadata, pod = claim.metadata, pod_owner(claim.metadata)
    name = metadata.annotations.get(POD_CLAIM_NAME, _EXTENDED) if pod is not None else metadata.name
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    groups = {result.pod_network: group_of(result.pool) for result in results if result.pod_network}
    return tuple(
        WantedAddresses(
            AddressOwner(
                namespace=metadata.namespace,
                pod=pod.name if pod is not None else "",
                claim=name,
                topology=topology,
                step=step.name,
                index=index,
            ),
            step.pod_network,
            address_request.requested(step),
            groups.get(step.pod_network),
        )
        for topology, step, index in addressed_steps(claim, topologies)
    )


def requested(claim: ResourceClaim) -> Counter[str]:
    """For how many steps a claim has shares of the addresses of each PodNetwork."""
    steps = Counter[str]()
    for result in claim.status.allocation.devices.results if claim.status.allocation is not None else ():
        if result.pod_network:
            steps[result.pod_network] += shares.steps_of(result.consumed_capacity)
    return steps


def is_attached(claim: ResourceClaim, address: PodAddress) -> bool:
    """Whether the claim's status reports that a pod has an address."""
    reported = (status.network_data for status in claim.status.devices if status.driver == DRIVER)
    plain = address.spec.address.partition("/")[0]
    return any(plain == text.partition("/")[0] for data in reported if data is not None for text in data.ips)


def is_kept(owner: AddressOwner) -> bool:
    """Whether the next claim of an owner is to get its address: a named claim's, or a replica's of a StatefulSet."""
    return not owner.pod or ordinal_in(owner.pod) is not None


def address_of(
    ledger: NetworkLedger, chosen: ChosenAddress, owner: AddressOwner, claim: ObjectMeta, node: str
) -> PodAddress:
    """The PodAddress of an address that was chosen."""
    spec = ledger.network.spec
    return PodAddress(
        api_version="networking.dra.io/v1alpha1",
        kind="PodAddress",
        metadata=ObjectMeta(name=object_name(ledger.network.name, chosen.plain)),
        spec=PodAddressSpec(
            network=ledger.network.name,
            address=chosen.text,
            families=ledger.families,
            owner=owner,
            claim=AddressClaim(name=claim.name, uid=claim.uid),
            node_name=node,
            on_duplicate=spec.on_duplicate or REPORT,
            gateway=chosen.range.gateway,
            routes=tuple(_routes(ledger.network, chosen)),
            dns=tuple(server for server in spec.dns if family_of(server) == chosen.family),
            mtu=spec.mtu,
            physnet=spec.physnet,
        ),
    )


def _routes(network: PodNetwork, chosen: ChosenAddress) -> Iterator[AddressRoute]:
    """The routes of the address's family whose router is on its subnet."""
    subnet = ipaddress.ip_network(chosen.range.cidr)
    for route in network.spec.routes:
        if family_of(route.destination) != chosen.family:
            continue
        gateway = route.gateway or chosen.range.gateway
        router = ipaddress.ip_address(gateway) if gateway else None
        if router is None or router in subnet or router.is_link_local:
            yield AddressRoute(destination=route.destination, gateway=gateway)


def kept(address: PodAddress, now: datetime, node: str = "") -> PodAddress:
    """An address without its claim, in quarantine or kept for the next claim of its owner.

    Args:
        address: the address with its claim.
        now: the time, with its zone.
        node: the node whose pod may still have it.
    """
    return replace(address, spec=replace(address.spec, claim=None, node_name=node, kept_since=time_text(now)))


def is_current(ledger: NetworkLedger, address: PodAddress) -> bool:
    """Whether an address is of a range of its network, and has the settings that the network has now."""
    chosen, claim = ledger.chosen(address), address.spec.claim
    if chosen is None or claim is None:
        return False
    metadata = ObjectMeta(name=claim.name, uid=claim.uid)
    return address_of(ledger, chosen, address.spec.owner, metadata, address.spec.node_name).spec == address.spec


def network_status(
    network: PodNetwork,
    ledger: NetworkLedger | None,
    findings: Sequence[Finding],
    now: datetime,
    users: Sequence[str] = (),
) -> PodNetworkStatus:
    """The status of a PodNetwork.

    Args:
        ledger: its addresses; None if its spec cannot be used.
        findings: the errors in its spec.
        now: the time, with its zone.
        users: the claims that have addresses of it, in order, if it is being deleted.
    """
    before = network.status or PodNetworkStatus()
    generation = network.metadata.generation
    ready = Desired(READY, holds=True, reason="Accepted", message="the ranges can be used")
    if ledger is None:
        message = "; ".join(str(finding.text) for finding in findings)
        ready = Desired(READY, holds=False, reason="Invalid", message=message)
    if network.metadata.deletion_timestamp:
        ready = Desired(READY, holds=False, reason="Deleting", message=_deletion(users))
    if ledger is None:
        return PodNetworkStatus(
            observed_generation=generation, conditions=conditions([ready], before.conditions, generation, now)
        )
    usage = ledger.usage
    return PodNetworkStatus(
        observed_generation=generation,
        conditions=conditions((ready, _available(ledger)), before.conditions, generation, now),
        ranges=usage,
        users=ledger.users,
        total=min(sum(entry.total for entry in usage), MAX_COUNT),
        used=sum(entry.used for entry in usage),
        reserved=sum(entry.reserved for entry in usage),
    )


def _deletion(users: Sequence[str]) -> str:
    """For which claims the deletion of a network waits."""
    count = f"{len(users)} claims have" if len(users) != 1 else "1 claim has"
    more = f" and {len(users) - MAX_USERS} more" if len(users) > MAX_USERS else ""
    named = f" ({', '.join(users[:MAX_USERS])}{more})" if users else ""
    return f"deletion waits: {count} addresses of the network{named}; no other claim gets one"


def _available(ledger: NetworkLedger) -> Desired:
    full = ledger.full
    if not full:
        return Desired(AVAILABLE, holds=True, reason="Available", message="every range has free addresses")
    ranges = f"range {full[0]} has" if len(full) == 1 else f"ranges {', '.join(full)} have"
    return Desired(AVAILABLE, holds=False, reason="RangeFull", message=f"{ranges} no free address")
