"""Imports leases of other IPAM plugins as PodAddresses, so that netdra does not assign their addresses.

Called by `netdra networks`. `netdra.networks.leases` computes the changes. Each lease is one object, as each
address that netdra assigns: of an import and an assignment of one address the API server refuses the second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from netdra.kube.client import Client
from netdra.kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from netdra.kube.resources import POD_ADDRESSES, POD_NETWORKS, Resource
from netdra.model.errors import InvalidInputError
from netdra.model.pod_address import PodAddress
from netdra.model.pod_network import PodNetwork
from netdra.networks import leases
from netdra.networks.kept import KeptRelease
from netdra.networks.leases import HOST_LOCAL, RESERVATIONS, WHEREABOUTS, ForeignLease, LeaseChange
from netdra.rules import pod_networks

E = TypeVar("E", LeaseChange, KeptRelease)
IP_POOLS = Resource("whereabouts.cni.cncf.io/v1alpha1", "ippools", leases.IPPool, namespaced=True)
IP_RESERVATIONS = Resource(IP_POOLS.group_version, RESERVATIONS, leases.OverlappingRangeIPReservation, namespaced=True)
WRITERS = 8
"""How many PodAddresses are written at a time."""
_MARKS = ("lock", "last_reserved_ip.0", "last_reserved_ip.1")
"""Files by which a folder is one of host-local's, also without leases."""


class LeaseSource(Protocol):
    """Where leases are read."""

    async def read(self, client: Client, network: PodNetwork) -> Iterable[ForeignLease]:
        """The leases of another IPAM plugin that belong to a PodNetwork."""

    def has(self, address: PodAddress) -> bool:
        """Whether an imported lease is from here."""


class Whereabouts(NamedTuple):
    """The IPPools of the cluster, or those of these names (`namespace/name`)."""

    pools: tuple[str, ...] = ()

    async def read(self, client: Client, network: PodNetwork) -> Iterable[ForeignLease]:
        """The leases of the pools; without names also those that only a reservation has.

        Raises:
            InvalidInputError: the pool does not exist, or its range is not a subnet.
            ApiError: the API server does not answer.
        """
        try:
            present = {f"{pool.metadata.namespace}/{pool.metadata.name}": pool for pool in await client.list(IP_POOLS)}
        except NotFoundError:
            raise InvalidInputError(
                f"the cluster has no IPPools of {IP_POOLS.group_version}",
                hint="if whereabouts was removed, release its leases: netdra networks release NETWORK",
                code="ND3023",
            ) from None
        for name in self.pools:
            if name not in present:
                raise InvalidInputError(
                    f'IPPool "{name}" does not exist',
                    hint=f"the pools are {', '.join(sorted(present)) or 'none'}",
                    code="ND3024",
                )
        chosen = self.pools or sorted(present)
        found = [lease for name in chosen for lease in leases.of_pool(present[name])]
        if not self.pools:
            with suppress(NotFoundError):
                reserved = await client.list(IP_RESERVATIONS)
                found += [lease for entry in reserved if (lease := leases.of_reservation(entry, network)) is not None]
        return found

    def has(self, address: PodAddress) -> bool:
        """Whether an imported lease is from these pools."""
        lease = address.spec.lease
        return lease is not None and lease.plugin == WHEREABOUTS and (not self.pools or lease.pool in self.pools)


class HostLocal(NamedTuple):
    """A folder of host-local, of one network on one node, or a copy of it."""

    folder: Path
    node: str

    async def read(self, client: Client, network: PodNetwork) -> Iterable[ForeignLease]:
        """The leases of the folder.

        Raises:
            InvalidInputError: it cannot be read, or is not a folder of host-local.
        """
        del client, network
        return await asyncio.to_thread(lambda: [*self._leases()])

    def has(self, address: PodAddress) -> bool:
        """Whether an imported lease is from this folder of this node."""
        lease = address.spec.lease
        return lease is not None and (lease.plugin, lease.pool, lease.node) == (HOST_LOCAL, self._pool, self.node)

    @property
    def _pool(self) -> str:
        return self.folder.resolve().name

    def _leases(self) -> Iterator[ForeignLease]:
        try:
            files = sorted(self.folder.iterdir())
            if not any(file.name in _MARKS for file in files):
                raise InvalidInputError(
                    f"{self.folder} is not a folder of host-local: it contains none of {', '.join(_MARKS)}",
                    hint="name the folder of one network, e.g. /var/lib/cni/networks/storage-net",
                    code="ND3025",
                )
            for file in files:
                # A pod may end meanwhile: its file is gone then.
                with suppress(FileNotFoundError):
                    lease = leases.of_file(file.name, file.read_text(errors="replace"), self._pool, self.node)
                    if lease is not None:
                        yield lease
        except OSError as problem:
            raise InvalidInputError(
                f"{self.folder}: {problem.strerror}", hint="run it on the node as root", code="ND3026"
            ) from None


class LeasePlan(NamedTuple):
    """The PodAddresses to write, and the number of leases outside of the network's subnets."""

    changes: Sequence[LeaseChange]
    outside: int = 0


async def plan(client: Client, name: str, source: LeaseSource) -> LeasePlan:
    """The changes after which a network does not assign the addresses of a source's leases.

    Raises:
        InvalidInputError: the PodNetwork does not exist or is wrong, or the leases cannot be read.
        ApiError: the API server does not answer.
    """
    network = await _network(client, name)
    # Leases are read first: netdra may assign an address meanwhile, and then it is a conflict.
    found = [*await source.read(client, network)]
    present = await _addresses(client, name)
    inside = leases.within(network, found)
    imported = [address for address in present.values() if source.has(address)]
    outside = sum(leases.name_of(network, lease) not in inside for lease in found)
    return LeasePlan([*leases.changes(network, inside, present, imported)], outside)


async def plan_release(client: Client, name: str) -> LeasePlan:
    """The end of all leases that were imported for a network, also if the network is gone.

    Raises:
        ApiError: the API server does not answer.
    """
    present = await _addresses(client, name)
    imported = [address for _, address in sorted(present.items()) if address.spec.lease is not None]
    return LeasePlan([leases.ended(address) for address in imported])


async def write(
    client: Client, changes: Sequence[LeaseChange], advance: Callable[[], None] = lambda: None
) -> list[LeaseChange]:
    """Write the changes; returns them with those as conflicts that another writer was before.

    Args:
        changes: those that need no write stay as they are.
        advance: called after each write.

    Raises:
        ApiError: the API server refuses, or does not answer; what was written stays, and a second run does the rest.
    """
    return await write_few(partial(_write, client), changes, advance)


async def write_few(write: Callable[[E], Awaitable[E]], entries: Iterable[E], advance: Callable[[], None]) -> list[E]:
    """The entries with their new states, after those were written that need it, `WRITERS` at a time."""
    few = asyncio.Semaphore(WRITERS)

    async def write_one(entry: E) -> E:
        if not entry.is_write:
            return entry
        async with few:
            done = await write(entry)
        advance()
        return done

    return await asyncio.gather(*map(write_one, entries))


async def _write(client: Client, change: LeaseChange) -> LeaseChange:
    work: Awaitable[object]
    before, after = change.before, change.after
    try:
        if after is not None:
            work = client.create(POD_ADDRESSES, after) if before is None else client.replace(POD_ADDRESSES, after)
            await work
        elif change.shown.state == "ended" and before is not None:
            with suppress(NotFoundError):
                await client.delete(POD_ADDRESSES, before)
    except (AlreadyExistsError, ConflictError, NotFoundError):
        stored = None
        subject = before or after
        assert subject is not None
        with suppress(NotFoundError):
            stored = await client.get(POD_ADDRESSES, subject.name)
        return leases.refused(change, stored)
    return change


async def _network(client: Client, name: str) -> PodNetwork:
    try:
        network = await client.get(POD_NETWORKS, name)
    except NotFoundError:
        raise InvalidInputError(
            f'PodNetwork "{name}" does not exist', hint="kubectl get podnetworks", code="ND3027"
        ) from None
    if wrong := pod_networks.check(network):
        raise InvalidInputError(wrong[0].what, hint=wrong[0].hint, code=wrong[0].code)
    return network


async def _addresses(client: Client, network: str) -> dict[str, PodAddress]:
    every = await client.gather(POD_ADDRESSES, lambda entry: entry if entry.spec.network == network else None)
    return {address.name: address for address in every if address is not None}
