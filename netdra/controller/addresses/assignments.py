"""The contents of PodAddresses, and of a PodNetwork's status. Pure.

`netdra.rules.pod_addresses` has the addresses that a claim should have. `netdra.controller.addresses.pod_addresses`
chooses them by `netdra.networks.ledger`, and writes the objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec.structs import replace

from netdra.controller.status import Desired, conditions
from netdra.model import ip
from netdra.model.claim import ResourceClaim
from netdra.model.findings import Finding
from netdra.model.meta import ObjectMeta, time_text
from netdra.model.names import DRIVER
from netdra.model.pod_address import (
    AddressClaim,
    AddressOwner,
    AddressRoute,
    PodAddress,
    PodAddressSpec,
    family_of,
    object_name,
)
from netdra.model.pod_network import (
    AVAILABLE,
    NEARLY_FULL,
    READY,
    REPORT,
    PodNetwork,
    PodNetworkStatus,
    RangeUsage,
)
from netdra.networks.ledger import MAX_COUNT, ChosenAddress, NetworkLedger
from netdra.topology.parameters import ordinal_in

MAX_USERS = 5
"""How many claims are named that the deletion of a PodNetwork waits for."""


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
    return PodAddress(
        api_version="networking.dra.io/v1alpha1",
        kind="PodAddress",
        metadata=ObjectMeta(name=object_name(ledger.network.name, chosen.plain)),
        spec=_spec_of(ledger, chosen, owner, AddressClaim(name=claim.name, uid=claim.uid), node),
    )


def _spec_of(
    ledger: NetworkLedger, chosen: ChosenAddress, owner: AddressOwner, claim: AddressClaim, node: str
) -> PodAddressSpec:
    spec = ledger.network.spec
    return PodAddressSpec(
        network=ledger.network.name,
        address=chosen.text,
        families=ledger.families,
        owner=owner,
        claim=claim,
        node_name=node,
        on_duplicate=spec.on_duplicate or REPORT,
        gateway=chosen.range.gateway,
        routes=tuple(_routes(ledger.network, chosen)),
        dns=tuple(server for server in spec.dns if family_of(server) == chosen.family),
        mtu=spec.mtu,
        physnet=spec.physnet,
    )


def _routes(network: PodNetwork, chosen: ChosenAddress) -> Iterator[AddressRoute]:
    """The routes of the address's family whose router is on its subnet."""
    subnet = ip.subnet(chosen.range.cidr)
    for route in network.spec.routes:
        if family_of(route.destination) != chosen.family:
            continue
        gateway = route.gateway or chosen.range.gateway
        router = ip.address(gateway) if gateway else None
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
    return _spec_of(ledger, chosen, address.spec.owner, claim, address.spec.node_name) == address.spec


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
    usage = tuple(_usage(network, ledger, before.ranges))
    return PodNetworkStatus(
        observed_generation=generation,
        conditions=conditions(
            (ready, _available(ledger), _nearly_full(network, usage)), before.conditions, generation, now
        ),
        ranges=usage,
        users=ledger.users,
        total=min(sum(entry.total for entry in usage), MAX_COUNT),
        used=sum(entry.used for entry in usage),
        reserved=sum(entry.reserved for entry in usage),
    )


def _usage(network: PodNetwork, ledger: NetworkLedger, before: Sequence[RangeUsage]) -> Iterator[RangeUsage]:
    """The numbers of each range, and whether it is nearly full, which depends on whether it was before."""
    for at, (entry, free) in enumerate(zip(ledger.usage, ledger.free, strict=True)):
        was = at < len(before) and before[at].cidr == entry.cidr and before[at].nearly_full
        yield replace(entry, nearly_full=is_nearly_full(entry.total, free, network.spec.nearly_full, was=was))


def is_nearly_full(total: int, free: int, percent: int, *, was: bool) -> bool:
    """Whether so few addresses of a range are free that an administrator should know.

    A range that was nearly full remains so until a twentieth of its addresses, and at least one, is free beyond the
    limit: otherwise each claim that comes and goes at the limit would change the condition.

    Args:
        total: the number of the range's addresses.
        free: how many of them are free.
        percent: the part of the addresses that are not free at the limit.
        was: whether the range was nearly full before.
    """
    limit = max(total * percent // 100, 1)
    return total - free >= (max(limit - max(total // 20, 1), 1) if was else limit)


def _nearly_full(network: PodNetwork, usage: Sequence[RangeUsage]) -> Desired:
    few = [entry.cidr for entry in usage if entry.nearly_full]
    limit = f"spec.nearlyFullPercent is {network.spec.nearly_full}"
    if not few:
        return Desired(NEARLY_FULL, holds=False, reason="EnoughAddresses", message=f"no range is nearly full; {limit}")
    ranges = f"range {few[0]} is" if len(few) == 1 else f"ranges {', '.join(few)} are"
    why = f"{ranges} nearly full; {limit}. Add a range, or release addresses"
    return Desired(NEARLY_FULL, holds=True, reason="RangeNearlyFull", message=why)


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
