"""Addresses of PodNetworks that are kept without a claim, and which of them an administrator may release. Pure.

`netdra.controller.addresses.kept` reads and deletes them; `netdra networks release-kept` shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from netdra.model.meta import time_of
from netdra.model.pod_address import PodAddress
from netdra.model.pod_network import PodNetwork

KeptState = Literal["kept", "released", "held", "quarantine", "changed"]


class KeptAddress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A kept address as it is printed; `owner` is a pod's or a claim's name, `detail` why it is not released."""

    network: str
    address: str
    namespace: str
    owner: str
    kept_since: str = msgspec.field(name="keptSince")
    state: KeptState
    detail: str = ""


class KeptRelease(NamedTuple):
    """A kept address, and its PodAddress as it is stored."""

    shown: KeptAddress
    stored: PodAddress

    @property
    def is_write(self) -> bool:
        """Whether the PodAddress is to be deleted."""
        return self.shown.state == "kept"

    @property
    def is_left(self) -> bool:
        """Whether the address stays kept for now, although it was selected."""
        return self.shown.state in ("held", "quarantine", "changed")


class KeptSelection(NamedTuple):
    """The addresses to release.

    Attributes:
        networks: names of PodNetworks; all if empty.
        namespace: that of the owners; all if empty.
        owner: a pattern for the names of the pods, or of claims that were not created for a pod; all if empty.
        seconds: for how long they must have been kept.
    """

    networks: tuple[str, ...] = ()
    namespace: str = ""
    owner: str = ""
    seconds: int = 0

    def has(self, address: PodAddress, now: datetime) -> bool:
        """Whether an address is kept without a claim, and selected."""
        spec = address.spec
        if spec.claim is not None or spec.lease is not None or spec.conflict_since or not spec.kept_since:
            return False
        return (
            (not self.networks or spec.network in self.networks)
            and (not self.namespace or spec.owner.namespace == self.namespace)
            and (not self.owner or fnmatchcase(spec.owner.name, self.owner))
            and _age(address, now) >= self.seconds
        )


def releases(
    addresses: Iterable[PodAddress], networks: Mapping[str, PodNetwork], selection: KeptSelection, now: datetime
) -> Iterator[KeptRelease]:
    """The selected addresses, and whether each can be released.

    Args:
        addresses: of all networks.
        networks: the PodNetworks by name.
        selection: the addresses to release.
        now: the time, with its zone.
    """
    for address in sorted(addresses, key=lambda entry: (entry.spec.network, entry.family, entry.number)):
        if selection.has(address, now):
            yield _release(address, networks.get(address.spec.network), now)


def _release(address: PodAddress, network: PodNetwork | None, now: datetime) -> KeptRelease:
    spec = address.spec
    shown = KeptAddress(
        network=spec.network,
        address=spec.address.partition("/")[0],
        namespace=spec.owner.namespace,
        owner=spec.owner.name,
        kept_since=spec.kept_since,
        state="kept",
    )
    if spec.node_name:
        detail = f"node {spec.node_name} has not reported that the former pod no longer has it"
        return KeptRelease(replace(shown, state="held", detail=detail), address)
    if network is not None and _age(address, now) < network.spec.quarantine:
        detail = f"quarantineSeconds is {network.spec.quarantine}"
        return KeptRelease(replace(shown, state="quarantine", detail=detail), address)
    return KeptRelease(shown, address)


def released(release: KeptRelease) -> KeptRelease:
    """A release that was written."""
    return release._replace(shown=replace(release.shown, state="released"))


def refused(release: KeptRelease, stored: PodAddress) -> KeptRelease:
    """A release that another writer of the PodAddress was before."""
    claim = stored.spec.claim
    detail = f"assigned to claim {claim.name} meanwhile" if claim is not None else "changed meanwhile"
    return KeptRelease(replace(release.shown, state="changed", detail=detail), stored)


def _age(address: PodAddress, now: datetime) -> float:
    """For how many seconds an address has been kept."""
    return (now - time_of(address.spec.kept_since)).total_seconds()
