"""Addresses that other machines have, as nodes report them. Pure.

Called by `netdra.controller.addresses.pod_addresses`. A node reports an address only if its PodNetwork has
`onDuplicate: Reassign`: it has refused the pod then. The PodAddress stays for a time without a claim, so it is not
assigned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from netdra.kube.events import ObjectReference, Occurrence
from netdra.model import ip
from netdra.model.claim import ResourceClaim
from netdra.model.meta import time_text
from netdra.model.names import DRIVER
from netdra.model.pod_address import PodAddress
from netdra.model.pod_network import CONFLICT_SECONDS, REASSIGN, PodNetwork
from netdra.model.watched_claim import WatchedClaim


def reported(claim: ResourceClaim | WatchedClaim) -> frozenset[str]:
    """The addresses, without prefix length, that a claim's node reports as used by other machines."""
    return frozenset(_reported(claim))


def _reported(claim: ResourceClaim | WatchedClaim) -> Iterator[str]:
    for device in claim.status.devices:
        data: Any = device.data
        listed = data.get("duplicates") if isinstance(data, Mapping) else getattr(data, "duplicates", ())
        for entry in listed if device.driver == DRIVER and isinstance(listed, list | tuple) else ():
            address = entry.get("address") if isinstance(entry, Mapping) else None
            if isinstance(address, str):
                yield address


def is_conflicting(claim: ResourceClaim, address: PodAddress) -> bool:
    """Whether a claim's address is used by another machine, and the claim is to get another one."""
    is_own = address.spec.claim is not None and address.spec.claim.uid == claim.metadata.uid
    return is_own and address.spec.on_duplicate == REASSIGN and _plain(address) in reported(claim)


def set_aside(address: PodAddress, now: datetime) -> PodAddress:
    """An address that is not assigned for `CONFLICT_SECONDS`."""
    since = time_text(now)
    return replace(
        address, spec=replace(address.spec, claim=None, node_name="", kept_since=since, conflict_since=since)
    )


def attached(claim: ResourceClaim) -> tuple[str, ...]:
    """The addresses, without prefix length, that a claim's pods have by its status; others may write anything there."""
    reported = (device.network_data for device in claim.status.devices if device.driver == DRIVER)
    plain = (text.partition("/")[0] for data in reported if data is not None for text in data.ips)
    return tuple(text for text in plain if ip.is_address(text))


_EXCLUDE = "Exclude the address, or configure that machine with another one."


def occurrence(network: PodNetwork, address: PodAddress) -> Occurrence:
    """The event of a PodNetwork of which another machine has an address."""
    regarding = ObjectReference(
        api_version=network.api_version, kind=network.kind, name=network.name, uid=network.metadata.uid
    )
    return Occurrence(
        regarding=regarding,
        type="Warning",
        reason="DuplicateAddress",
        action="AssignAddress",
        note=f"node {address.spec.node_name} found another machine that uses {_plain(address)}: it is not assigned for "
        f"{CONFLICT_SECONDS // 60} minutes. {_EXCLUDE}",
        next_step=_EXCLUDE,
    )


def _plain(address: PodAddress) -> str:
    return address.spec.address.partition("/")[0]
