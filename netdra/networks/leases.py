"""Leases of other IPAM plugins, whereabouts and host-local, as addresses that a PodNetwork must not assign. Pure.

`netdra.controller.addresses.imports` reads the leases and writes a PodAddress for each; `netdra networks import` shows
them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from netdra.model.errors import InvalidInputError
from netdra.model.ip import Address, Network
from netdra.model.meta import ObjectMeta
from netdra.model.pod_address import (
    AddressLease,
    AddressOwner,
    Family,
    PodAddress,
    PodAddressSpec,
    family_of,
    object_name,
)
from netdra.model.pod_network import PodNetwork
from netdra.model.resource import Wire
from netdra.networks.ranges import network_of

WHEREABOUTS: Literal["whereabouts"] = "whereabouts"
HOST_LOCAL: Literal["host-local"] = "host-local"
RESERVATIONS = "overlappingrangeipreservations"
"""The pool of leases that only a reservation of whereabouts has; of it, the part behind the namespace."""
LeaseState = Literal["new", "changed", "imported", "ended", "conflict"]
_IPV4_AT_END = re.compile(r"(?:.*-)?(\d+\.\d+\.\d+\.\d+)")


class PoolAllocation(Wire, frozen=True):
    """An address of an IPPool: the container, the pod as `namespace/name`, and its interface."""

    id: str = ""
    podref: str = ""
    ifname: str = ""


class IPPoolSpec(Wire, frozen=True):
    """An IPPool's subnet, and its allocations by their distance from the subnet's address."""

    range: str
    allocations: Mapping[str, PoolAllocation] = {}


class IPPool(Wire, frozen=True):
    """The addresses of a subnet that whereabouts has assigned (whereabouts.cni.cncf.io/v1alpha1)."""

    metadata: ObjectMeta
    spec: IPPoolSpec


class ReservationSpec(Wire, frozen=True):
    """The pod that an address is reserved for, and its interface."""

    podref: str = ""
    ifname: str = ""


class OverlappingRangeIPReservation(Wire, frozen=True):
    """An address that no other IPPool of whereabouts may assign; its name is that of the address."""

    metadata: ObjectMeta
    spec: ReservationSpec = ReservationSpec()


class ForeignLease(NamedTuple):
    """An address that another IPAM plugin has assigned, and its pod as `namespace/name` if that is known."""

    address: Address
    origin: AddressLease
    pod: str = ""


class ImportedLease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A lease as it is printed; `detail` is the reason for a conflict."""

    address: str
    plugin: str
    pool: str
    state: LeaseState
    pod: str = ""
    container: str = ""
    interface: str = ""
    node: str = ""
    detail: str = ""


class LeaseChange(NamedTuple):
    """A lease, its PodAddress as it is stored and as it should be."""

    shown: ImportedLease
    before: PodAddress | None = None
    after: PodAddress | None = None

    @property
    def is_write(self) -> bool:
        """Whether a PodAddress must be created, replaced or deleted."""
        return self.shown.state in ("new", "changed", "ended")


def of_pool(pool: IPPool) -> Iterator[ForeignLease]:
    """The leases of an IPPool. whereabouts ignores an allocation whose distance is not a number, and so does this.

    Raises:
        InvalidInputError: its range is not a subnet.
    """
    name = f"{pool.metadata.namespace}/{pool.metadata.name}"
    try:
        first = ipaddress.ip_interface(pool.spec.range).ip
    except ValueError:
        raise InvalidInputError(
            f'IPPool "{name}": range "{pool.spec.range}" is not a subnet',
            hint="correct it, or name the other pools: --pool NAMESPACE/NAME",
            code="ND3001",
        ) from None
    for distance, allocation in pool.spec.allocations.items():
        try:
            address = first + int(distance)
        except ValueError:
            continue
        origin = AddressLease(plugin=WHEREABOUTS, pool=name, container=allocation.id, interface=allocation.ifname)
        yield ForeignLease(address, origin, allocation.podref)


def of_reservation(reservation: OverlappingRangeIPReservation, network: PodNetwork) -> ForeignLease | None:
    """The lease of a reservation, if its address is of one of a network's subnets.

    The name is the address, with a dash for each colon; behind a network's name and a dash, if whereabouts has one.
    """
    subnets = [network_of(entry.cidr) for entry in network.spec.ranges]
    name = reservation.metadata.name
    for text in _addresses_in(name):
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if any(address in subnet for subnet in subnets):
            pool = f"{reservation.metadata.namespace}/{RESERVATIONS}"
            origin = AddressLease(plugin=WHEREABOUTS, pool=pool, interface=reservation.spec.ifname)
            return ForeignLease(address, origin, reservation.spec.podref)
    return None


def _addresses_in(name: str) -> Iterator[str]:
    """The texts that may be the address in a reservation's name, longest first: a network's name may be hexadecimal."""
    if version4 := _IPV4_AT_END.fullmatch(name):
        yield version4[1]
        return
    parts = name.split("-")
    yield from (":".join(parts[at:]) for at in range(len(parts)))


def of_file(name: str, text: str, pool: str, node: str) -> ForeignLease | None:
    """The lease of a file of host-local: its name is the address, its lines the container's ID and the interface.

    None for its other files: the lock, and the last address that was assigned.
    """
    try:
        address = ipaddress.ip_address(name.replace("%", "/"))  # without a zone
    except ValueError:
        return None
    container, _, interface = text.strip().partition("\n")
    origin = AddressLease(
        plugin=HOST_LOCAL, pool=pool, container=container.strip(), interface=interface.strip(), node=node
    )
    return ForeignLease(address, origin)


def name_of(network: PodNetwork, lease: ForeignLease) -> str:
    """The name of the PodAddress of a lease."""
    return object_name(network.name, str(lease.address))


def within(network: PodNetwork, leases: Iterable[ForeignLease]) -> dict[str, tuple[ForeignLease, Network]]:
    """The leases of a network's subnets, by the names of their PodAddresses; the first lease of each address."""
    subnets = [network_of(entry.cidr) for entry in network.spec.ranges]
    kept: dict[str, tuple[ForeignLease, Network]] = {}
    for lease in leases:
        subnet = next((subnet for subnet in subnets if lease.address in subnet), None)
        if subnet is not None:
            kept.setdefault(name_of(network, lease), (lease, subnet))
    return kept


def changes(
    network: PodNetwork,
    leases: Mapping[str, tuple[ForeignLease, Network]],
    present: Mapping[str, PodAddress],
    imported: Iterable[PodAddress],
) -> Iterator[LeaseChange]:
    """The changes after which each lease has a PodAddress; sorted by the addresses' names.

    Args:
        network: the PodNetwork.
        leases: as `within` returns them.
        present: the network's PodAddresses by name.
        imported: those that were imported from the same place before.
    """
    without = {address.name: address for address in imported if address.name not in leases}
    for name in sorted({*leases, *without}):
        yield ended(without[name]) if name in without else _change(network, *leases[name], present.get(name))


def _change(network: PodNetwork, lease: ForeignLease, subnet: Network, before: PodAddress | None) -> LeaseChange:
    after = address_of(network, lease, subnet)
    if before is None:
        return LeaseChange(_shown(after, "new"), None, after)
    if before.spec.lease is None:
        return LeaseChange(_shown(after, "conflict", _holder(before)), before)
    if (before.spec.lease, before.spec.owner) == (lease.origin, after.spec.owner):
        return LeaseChange(_shown(after, "imported"), before)
    if _place(before.spec.lease) != _place(lease.origin):
        return LeaseChange(_shown(after, "conflict", f"imported from {_place_text(before.spec.lease)}"), before)
    metadata = replace(after.metadata, resource_version=before.metadata.resource_version)
    return LeaseChange(_shown(after, "changed"), before, replace(after, metadata=metadata))


def ended(address: PodAddress) -> LeaseChange:
    """The end of an imported lease: its PodAddress is to be deleted."""
    return LeaseChange(_shown(address, "ended"), address)


def refused(change: LeaseChange, stored: PodAddress | None) -> LeaseChange:
    """A change that another writer of the PodAddress was before."""
    detail = _holder(stored) if stored is not None else "deleted at the same time"
    return LeaseChange(replace(change.shown, state="conflict", detail=detail), stored)


def _holder(address: PodAddress) -> str:
    spec = address.spec
    if spec.lease is not None:
        return f"imported from {_place_text(spec.lease)}"
    name = f"{spec.owner.namespace}/{spec.owner.name}"
    return f"assigned to {name}" if spec.claim is not None else f"kept for {name}"


def _place(lease: AddressLease) -> tuple[str, str, str]:
    """The place that has one lease of an address at most: all pools of whereabouts, or a folder of host-local."""
    return (lease.plugin, "", "") if lease.plugin == WHEREABOUTS else (lease.plugin, lease.pool, lease.node)


def _place_text(lease: AddressLease) -> str:
    return f"{lease.plugin} {lease.pool}" + (f" on {lease.node}" if lease.node else "")


def address_of(network: PodNetwork, lease: ForeignLease, subnet: Network) -> PodAddress:
    """The PodAddress of a lease."""
    namespace, _, pod = lease.pod.rpartition("/")
    families: tuple[Family, ...] = (family_of(str(lease.address)),)
    return PodAddress(
        api_version="networking.dra.io/v1alpha1",
        kind="PodAddress",
        metadata=ObjectMeta(name=name_of(network, lease)),
        spec=PodAddressSpec(
            network=network.name,
            address=f"{lease.address}/{subnet.prefixlen}",
            families=families,
            owner=AddressOwner(
                namespace=namespace,
                pod=pod,
                claim=lease.origin.container or lease.origin.interface,
                topology="",
                step="",
            ),
            lease=lease.origin,
        ),
    )


def _shown(address: PodAddress, state: LeaseState, detail: str = "") -> ImportedLease:
    spec = address.spec
    assert spec.lease is not None
    owner = spec.owner
    return ImportedLease(
        address=spec.address.partition("/")[0],
        plugin=spec.lease.plugin,
        pool=spec.lease.pool,
        state=state,
        pod=f"{owner.namespace}/{owner.pod}" if owner.pod else "",
        container=spec.lease.container,
        interface=spec.lease.interface,
        node=spec.lease.node,
        detail=detail,
    )
