"""The assigned addresses of a PodNetwork, and the next address for an interface.

Kept by `netdra.controller.addresses.pod_addresses` from the PodAddresses that it watches. An address that was chosen
counts as assigned from then on, until its PodAddress is seen or `forget` is called: two workers never choose one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from netdra.model import ip
from netdra.model.ip import Network
from netdra.model.pod_address import AddressOwner, Family, PodAddress, by_age, family_of
from netdra.model.pod_network import AddressRange, PodNetwork, RangeUsage
from netdra.networks import ranges
from netdra.networks.errors import (
    AddressTakenError,
    NamespaceLimitError,
    NoFreeAddressError,
    NoRangeError,
    WrongAddressError,
)
from netdra.networks.free import FreeAddresses
from netdra.networks.ranges import group_of, network_of, shown, usable

MAX_COUNT = 2**63 - 1
"""The greatest number that a status can have."""
MAX_CONFLICTS = 16
"""How many addresses of a network are set aside at a time because of reports about one claim."""
_Place = tuple[Family, int]
K = TypeVar("K", bound=Hashable)


class ChosenAddress(NamedTuple):
    """An address that an interface is to get, and the range that it is of."""

    number: int
    family: Family
    range: AddressRange

    @property
    def text(self) -> str:
        """The address with the prefix length of its subnet."""
        return f"{self.plain}/{self.range.cidr.partition('/')[2]}"

    @property
    def plain(self) -> str:
        """The address without a prefix length."""
        return shown(self.number, 4 if self.family == "IPv4" else 6)


class _Pool:
    """One range: its free addresses that are not reserved, and where the last one was assigned."""

    def __init__(self, entry: AddressRange, network: PodNetwork) -> None:
        self.entry = entry
        self.network: Network = network_of(entry.cidr)
        self.group = group_of(entry)
        self.family: Family = family_of(entry.cidr)
        self.free = FreeAddresses(usable(entry, network))
        self.last = -1
        self.counts: Counter[str] = Counter()

    def serves(self, labels: Mapping[str, str]) -> bool:
        return self.entry.node_selector is None or self.entry.node_selector.matches(labels)


class NetworkLedger:
    """The addresses of one PodNetwork."""

    def __init__(self, network: PodNetwork, addresses: Iterable[PodAddress] = ()) -> None:
        """Count the addresses that are assigned.

        Raises:
            ValueError: a text of the ranges or reservations is not an address.
        """
        self.network = network
        self._pools = [_Pool(entry, network) for entry in network.spec.ranges]
        self._taken: dict[_Place, PodAddress | AddressOwner] = {}
        self._by_owner: dict[AddressOwner, tuple[_Place, ...]] = {}
        self._reserved: dict[_Place, tuple[str, str]] = {}
        self._reserved_for: dict[tuple[str, str], list[_Place]] = {}
        self._claims: Counter[str] = Counter()
        self._aside: Counter[tuple[str, ...]] = Counter()
        self._of_namespace: Counter[tuple[str, Family]] = Counter()
        self._held: dict[tuple[str, str, str], set[_Place]] = {}
        self._unassigned: frozenset[_Place] = frozenset()
        self._withheld: dict[_Place, AddressOwner] = {}
        for reservation in network.spec.reservations:
            family = family_of(reservation.address)
            place = family, int(ip.address(reservation.address))
            self._reserved[place] = name = (reservation.namespace, reservation.name)
            self._reserved_for.setdefault(name, []).append(place)
            if (pool := self._pool_of(place)) is not None:
                pool.free.take(place[1])
                pool.counts["reserved"] += 1
        for address in addresses:
            self.put(None, address)

    @property
    def families(self) -> tuple[Family, ...]:
        """The families of which each interface gets an address."""
        every: tuple[Family, ...] = ("IPv4", "IPv6")
        return tuple(family for family in every if any(pool.family == family for pool in self._pools))

    @property
    def users(self) -> int:
        """How many claims have addresses."""
        return len(self._claims)

    @property
    def usage(self) -> tuple[RangeUsage, ...]:
        """How much of each range is assigned."""
        return tuple(
            RangeUsage(
                cidr=pool.entry.cidr,
                total=min(pool.free.total, MAX_COUNT),
                used=pool.counts["used"],
                reserved=pool.counts["reserved"],
            )
            for pool in self._pools
        )

    @property
    def full(self) -> tuple[str, ...]:
        """The subnets of the ranges that have no free address."""
        return tuple(pool.entry.cidr for pool in self._pools if not pool.free.count)

    @property
    def free(self) -> tuple[int, ...]:
        """How many addresses of each range are free and not reserved, in the order of the spec."""
        return tuple(pool.free.count for pool in self._pools)

    def steps_of(self, claim: str) -> int:
        """How many steps of a claim, by its uid, have all of their addresses."""
        return self._claims[claim] // max(len(self.families), 1)

    @property
    def is_used(self) -> bool:
        """Whether a claim has an address, or one was chosen for a claim."""
        return bool(self._claims) or any(isinstance(holder, AddressOwner) for holder in self._taken.values())

    def left_for(self, namespace: str) -> int | None:
        """How many more steps of a namespace can have addresses; None if the network has no limit for namespaces."""
        limit = self.network.spec.per_namespace
        if limit is None:
            return None
        return max(0, limit - max((self._count(namespace, family) for family in self.families), default=0))

    def check_limit(
        self, family: Family, owner: AddressOwner, attached: Collection[str] = (), others: Callable[[], int] = lambda: 0
    ) -> None:
        """Return if an interface may get an address of a family that it does not have, by the limit of its namespace.

        Args:
            attached: the addresses that the claim's pod has, by its status, without prefix lengths.
            others: how many claims of the namespace wait for its limit and come first.

        Raises:
            NamespaceLimitError: the namespace has all that it can have.
        """
        limit = self.network.spec.per_namespace
        if limit is None:
            return
        withheld = (place for place, other in self._withheld.items() if other == owner)
        own = (*self._by_owner.get(owner, ()), *withheld, *self._places(attached))
        if any(place[0] == family for place in own):
            return
        count = self._count(owner.namespace, family)
        waiting = others()
        if count + waiting < limit:
            return
        first = f", and {waiting} claims have waited longer" if waiting and count < limit else ""
        raise NamespaceLimitError(
            f'PodNetwork "{self.network.name}": namespace "{owner.namespace}" has addresses for {count} of {limit} '
            f"steps{first}",
            hint="delete claims of the namespace, or wait until the addresses of deleted ones are released",
            code="ND3002",
        )

    def _count(self, namespace: str, family: Family) -> int:
        withheld = (place for place, owner in self._withheld.items() if owner.namespace == namespace)
        return self._of_namespace[namespace, family] + sum(place[0] == family for place in withheld)

    def awaiting(self, namespace: str, pod: str, claim: str) -> Iterator[tuple[int, Family, int]]:
        """The addresses that are not free, and that the next claim of an owner gets: kept for it, or reserved by name.

        Args:
            namespace: the owner's.
            pod: the pod that the claim is for; "" for a claim with a name of its own.
            claim: that name.

        Yields:
            the range, by its place in the spec, and the address.
        """
        reserved = (
            place for place in self._reserved_for.get((namespace, pod or claim), ()) if place not in self._taken
        )
        for place in (*self._held.get((namespace, pod, "" if pod else claim), ()), *reserved):
            for at, pool in enumerate(self._pools):
                if pool.family == place[0] and pool.free.has(place[1]):
                    yield at, *place

    def put(self, old: PodAddress | None, new: PodAddress | None) -> None:
        """Take a change of a PodAddress of this network: it came, changed or went."""
        if old is not None:
            self._remove((old.family, old.number))
        if new is not None:
            self._remove((new.family, new.number))
            self._add((new.family, new.number), new)

    def hold(self, addresses: Iterable[str]) -> None:
        """Do not assign these addresses, in place of those that were held before: pods have them, by nodes' reports.

        Args:
            addresses: without prefix lengths.
        """
        held = frozenset(self._places(addresses))
        freed, self._unassigned = self._unassigned - held, held
        for place in freed:
            self._put_back(place)
        for place in held:
            if (pool := self._pool_of(place)) is not None:
                pool.free.take(place[1])

    def withhold(self, address: PodAddress) -> None:
        """Do not assign an address to another owner until `stop_withholding`: its PodAddress was deleted by hand."""
        place = address.family, address.number
        if place not in self._taken:
            self._withheld[place] = address.spec.owner
            if (pool := self._pool_of(place)) is not None:
                pool.free.take(place[1])

    def stop_withholding(self, address: PodAddress) -> None:
        """Another owner may get an address that was withheld."""
        if self._withheld.pop((address.family, address.number), None) is not None:
            self._put_back((address.family, address.number))

    def of(self, owner: AddressOwner, family: Family) -> list[PodAddress]:
        """The PodAddresses of an interface of a family: the one that it uses, and others if two controllers worked."""
        assigned = (self._taken[place] for place in self._by_owner.get(owner, ()) if place[0] == family)
        return by_age(address for address in assigned if isinstance(address, PodAddress))

    def choose(
        self,
        family: Family,
        owner: AddressOwner,
        labels: Mapping[str, str],
        requested: Sequence[str] = (),
        group: str | None = None,
        attached: Collection[str] = (),
        others: Callable[[], int] = lambda: 0,
    ) -> ChosenAddress:
        """The address of a family that an interface is to have, as of `find`; it counts as assigned from now on."""
        wish = self._wish(family, owner, labels, requested, self._places(attached))
        place = wish or self._next(family, labels, group, others)
        chosen = self._chosen(place)
        if place not in self._taken:
            self._add(place, owner)
        if wish is None and (pool := self._pool_of(place)) is not None:
            pool.last = place[1]
        return chosen

    def find(
        self,
        family: Family,
        owner: AddressOwner,
        labels: Mapping[str, str],
        requested: Sequence[str] = (),
        group: str | None = None,
        attached: Collection[str] = (),
        others: Callable[[], int] = lambda: 0,
    ) -> ChosenAddress:
        """The address of a family that an interface would get; nothing changes.

        In this order: the one that it has already, the one that its claim requests, one that its pod has though it is
        not assigned, one that is reserved for it, the next free one. One that it has and that is of no range of its
        node, or not the requested one, is not kept.

        Args:
            labels: those of the node.
            requested: the addresses that the claim requests, without prefix lengths.
            group: the group of nodes whose ranges are tried first, because the claim has a share of these.
            attached: the addresses that the claim's pod has, by its status, without prefix lengths.
            others: how many claims wait for a free address of these ranges and come first.

        Raises:
            WrongAddressError: the requested address is of no range of the node, or is reserved for another owner.
            AddressTakenError: another interface has it.
            NoFreeAddressError: no address is left.
            NoRangeError: no range of the family is for the node.
        """
        wish = self._wish(family, owner, labels, requested, self._places(attached))
        return self._chosen(wish or self._next(family, labels, group, others))

    def _chosen(self, place: _Place) -> ChosenAddress:
        pool = self._pool_of(place)
        assert pool is not None
        return ChosenAddress(place[1], place[0], pool.entry)

    def forget(self, chosen: ChosenAddress) -> None:
        """An address that was chosen was not assigned after all."""
        place = chosen.family, chosen.number
        if isinstance(self._taken.get(place), AddressOwner):
            self._remove(place)

    def put_back(self, address: PodAddress) -> None:
        """As `forget`, of the PodAddress that was not created."""
        if isinstance(self._taken.get((address.family, address.number)), AddressOwner):
            self._remove((address.family, address.number))

    def chosen(self, address: PodAddress) -> ChosenAddress | None:
        """A PodAddress as one that was chosen; None if no range has it."""
        pool = self._pool_of((address.family, address.number))
        return ChosenAddress(address.number, address.family, pool.entry) if pool is not None else None

    def compete(self, labels: Mapping[str, str], other: Mapping[str, str]) -> bool:
        """Whether nodes of these labels use a range in common."""
        return any(pool.serves(labels) and pool.serves(other) for pool in self._pools)

    def check_conflict(self, address: PodAddress) -> None:
        """Check that a report of another machine may set an address aside: reports of a tenant's claims are bounded.

        Raises:
            AddressTakenError: too many addresses are set aside already for the claim's reports, or for its namespace's.
        """
        owner = address.spec.owner
        half = max(1, sum(pool.free.total for pool in self._pools if pool.family == address.family) // 2)
        for count, most, of in (
            (self._aside[_holding(owner)], MAX_CONFLICTS, f"{owner.namespace}/{owner.name}"),
            (self._aside[owner.namespace, address.family], half, f'claims of namespace "{owner.namespace}"'),
        ):
            if count >= most:
                raise AddressTakenError(
                    f'PodNetwork "{self.network.name}": address {address.spec.address.partition("/")[0]} is used by '
                    f"another machine, and is not replaced: {count} addresses were replaced for {of} within an hour",
                    hint="find these machines, or exclude their addresses: kubectl get podaddresses",
                    code="ND3003",
                )

    def _wish(
        self,
        family: Family,
        owner: AddressOwner,
        labels: Mapping[str, str],
        requested: Sequence[str],
        attached: Collection[_Place],
    ) -> _Place | None:
        """The address that an interface has, requests or has reserved; None if any will do."""
        if wrong := [text for text in requested if not ip.is_address(text)]:
            raise WrongAddressError(
                f'PodNetwork "{self.network.name}": "{wrong[0]}" is not an IP address',
                hint="request another address",
                code="ND3004",
            )
        wishes = [place for place in self._places(requested) if place[0] == family]
        if wishes:
            self._check_requested(wishes[0], owner, labels, attached)
            return wishes[0]
        own = self._own_place(family, owner, labels)
        return own or self._left_place(family, owner, labels, attached)

    def _own_place(self, family: Family, owner: AddressOwner, labels: Mapping[str, str]) -> _Place | None:
        """The address that an interface has, or that was chosen for it."""
        chosen = (place for place in self._by_owner.get(owner, ()) if place[0] == family)
        for own in (*((family, address.number) for address in self.of(owner, family)), *chosen):
            if self._serves(own, labels):
                return own
        return None

    def _left_place(
        self, family: Family, owner: AddressOwner, labels: Mapping[str, str], attached: Collection[_Place]
    ) -> _Place | None:
        """The address that an interface had before, or that is reserved for it."""
        withheld = (place for place, other in self._withheld.items() if other == owner)
        # An address in a claim's status that is reserved or withheld for another owner does not count.
        for place in (*(place for place in attached if self._is_for(place, owner)), *withheld):
            if place[0] == family and place not in self._taken and self._serves(place, labels):
                return place
        for place in self._reserved_for.get((owner.namespace, owner.name), ()):
            is_free = place not in self._taken and place not in self._unassigned and place not in self._withheld
            if place[0] == family and is_free and self._serves(place, labels):
                return place
        return None

    @staticmethod
    def _places(texts: Iterable[str]) -> list[_Place]:
        return [(family_of(text), int(ip.address(text))) for text in texts]

    def _check_requested(
        self, place: _Place, owner: AddressOwner, labels: Mapping[str, str], attached: Collection[_Place]
    ) -> None:
        text = shown(place[1], 4 if place[0] == "IPv4" else 6)
        subject = f'PodNetwork "{self.network.name}": address {text}'
        if not self._serves(place, labels):
            raise WrongAddressError(
                f"{subject} {self._place_of(place, labels)}",
                hint=f"request an address of {', '.join(self._cidrs(place[0], labels)) or 'another network'}",
                code="ND3005",
            )
        reserved = self._reserved.get(place, (owner.namespace, owner.name))
        if reserved != (owner.namespace, owner.name):
            raise WrongAddressError(
                f"{subject} is reserved for {'/'.join(reserved)}", hint="request another address", code="ND3006"
            )
        taken = self._taken.get(place)
        if isinstance(taken, PodAddress) and taken.spec.conflict_since:
            raise AddressTakenError(
                f"{subject} is used by another machine on the network since {taken.spec.conflict_since}",
                hint="give that machine another address and delete the PodAddress, or request another address",
                code="ND3007",
            )
        if self._withheld.get(place, owner) != owner:
            raise AddressTakenError(
                f"{subject} was released just now", hint="wait, or request another address", code="ND3008"
            )
        if taken is None and place in self._unassigned and place not in attached:
            raise AddressTakenError(
                f"{subject} is used by a pod whose address is not assigned",
                hint="see status.unassignedAddresses of the NodeNetworks; delete that pod, or request another address",
                code="ND3009",
            )
        holder = taken.spec.owner if isinstance(taken, PodAddress) else taken
        if isinstance(taken, PodAddress) and taken.spec.lease is not None:
            raise AddressTakenError(
                f"{subject} has a lease of {taken.spec.lease.plugin}",
                hint="delete the pod that has it, then run netdra networks import again",
                code="ND3010",
            )
        if holder is not None and holder != owner:
            raise AddressTakenError(
                f"{subject} is assigned to {holder.namespace}/{holder.name}",
                hint="delete the claim that has it, or request another address",
                code="ND3011",
            )

    def _place_of(self, place: _Place, labels: Mapping[str, str]) -> str:
        """Why an address is not assigned on a node of these labels, for any claim."""
        around = [
            pool for pool in self._pools if pool.family == place[0] and place[1] in ranges.addresses_of(pool.network)
        ]
        within = next((pool for pool in around if pool.serves(labels)), None)
        if not around:
            return "is not in any of the network's ranges for the node"
        if within is None:
            return f"is in range {around[0].entry.cidr}, which is for other nodes"
        if place[1] in {int(ip.address(text)) for text in ranges.servers(self.network) if family_of(text) == place[0]}:
            return "is the address of a router or of a name server of the network"
        return f"is in subnet {within.entry.cidr}, but not among the addresses that the range assigns"

    def _next(self, family: Family, labels: Mapping[str, str], group: str | None, others: Callable[[], int]) -> _Place:
        cidrs = self._cidrs(family, labels)
        if not cidrs:
            raise NoRangeError(
                f'PodNetwork "{self.network.name}" has no range of {family} for the node',
                hint="add a range whose nodeSelector matches the node's labels, or use other nodes for the pod",
                code="ND3012",
            )
        pools = [pool for pool in self._pools if pool.family == family and pool.serves(labels) and pool.free.count]
        if pools and sum(pool.free.count for pool in pools) <= others():
            raise NoFreeAddressError(
                f'PodNetwork "{self.network.name}" has no free address of {family} beside those for claims that have '
                "waited longer",
                hint="add a range, or delete claims that have addresses: kubectl get podaddresses",
                code="ND3013",
            )
        for pool in sorted(pools, key=lambda pool: group is not None and pool.group != group):
            number = pool.free.after(pool.last)
            if number is not None:
                return family, number
        raise NoFreeAddressError(
            f'PodNetwork "{self.network.name}" has no free address of {", ".join(cidrs)}',
            hint="add a range, or delete claims that have addresses: kubectl get podaddresses",
            code="ND3014",
        )

    def _is_for(self, place: _Place, owner: AddressOwner) -> bool:
        """Whether an address is neither reserved nor withheld for another owner."""
        name = owner.namespace, owner.name
        return self._reserved.get(place, name) == name and self._withheld.get(place, owner) == owner

    def _cidrs(self, family: Family, labels: Mapping[str, str]) -> list[str]:
        return [pool.entry.cidr for pool in self._pools if pool.family == family and pool.serves(labels)]

    def _pools_of(self, place: _Place) -> Iterator[_Pool]:
        return (pool for pool in self._pools if pool.family == place[0] and pool.free.has(place[1]))

    def _pool_of(self, place: _Place) -> _Pool | None:
        return next(self._pools_of(place), None)

    def _serves(self, place: _Place, labels: Mapping[str, str]) -> bool:
        pool = self._pool_of(place)
        return pool is not None and pool.serves(labels)

    def _add(self, place: _Place, holder: PodAddress | AddressOwner) -> None:
        owner = holder.spec.owner if isinstance(holder, PodAddress) else holder
        self._taken[place] = holder
        if isinstance(holder, AddressOwner) or not holder.spec.conflict_since:
            others = (other for other in self._by_owner.get(owner, ()) if other != place)
            self._by_owner[owner] = (place, *others)
        self._count_aside(holder, 1)
        if isinstance(holder, PodAddress) and _is_kept(holder):
            self._held.setdefault(_holding(owner), set()).add(place)
        if isinstance(holder, PodAddress) and holder.spec.claim is not None:
            self._claims[holder.spec.claim.uid] += 1
        if _counts_for_namespace(holder):
            self._of_namespace[owner.namespace, place[0]] += 1
        if (pool := self._pool_of(place)) is not None:
            pool.free.take(place[1])
            pool.counts["reserved"] -= place in self._reserved
            pool.counts[_state(holder)] += 1

    def _remove(self, place: _Place) -> None:
        holder = self._taken.pop(place, None)
        if holder is None:
            return
        owner = holder.spec.owner if isinstance(holder, PodAddress) else holder
        self._count_aside(holder, -1)
        left = tuple(other for other in self._by_owner.get(owner, ()) if other != place)
        if left:
            self._by_owner[owner] = left
        else:
            self._by_owner.pop(owner, None)
        if (held := self._held.get(_holding(owner))) is not None:
            held.discard(place)
            if not held:
                del self._held[_holding(owner)]
        if isinstance(holder, PodAddress) and holder.spec.claim is not None:
            _decrease(self._claims, holder.spec.claim.uid)
        if _counts_for_namespace(holder):
            _decrease(self._of_namespace, (owner.namespace, place[0]))
        if (pool := self._pool_of(place)) is not None:
            pool.counts[_state(holder)] -= 1
            if place in self._reserved:
                pool.counts["reserved"] += 1
            self._put_back(place)

    def _count_aside(self, holder: PodAddress | AddressOwner, change: int) -> None:
        """Count an address that is set aside for the claim or pod whose node reported it, and for its namespace."""
        if isinstance(holder, AddressOwner) or not holder.spec.conflict_since:
            return
        for reporter in (_holding(holder.spec.owner), (holder.spec.owner.namespace, holder.family)):
            self._aside[reporter] += change
            if not self._aside[reporter]:
                del self._aside[reporter]

    def _put_back(self, place: _Place) -> None:
        """Count an address as free again, unless something else still holds it."""
        held = (self._taken, self._reserved, self._unassigned, self._withheld)
        if not any(place in places for places in held) and (pool := self._pool_of(place)) is not None:
            pool.free.put_back(place[1])


def _decrease(counts: Counter[K], key: K) -> None:
    """Count one less; nothing is left of a key at zero."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _state(holder: PodAddress | AddressOwner) -> str:
    return "used" if isinstance(holder, AddressOwner) or holder.spec.claim is not None else "reserved"


def _counts_for_namespace(holder: PodAddress | AddressOwner) -> bool:
    """Whether an address counts for the limit of its owner's namespace: all that others cannot get because of it do."""
    return isinstance(holder, AddressOwner) or (holder.spec.lease is None and not holder.spec.conflict_since)


def _is_kept(address: PodAddress) -> bool:
    """Whether an address is kept for its owner's next claim, or belongs to a claim with a name of its own."""
    spec = address.spec
    if spec.lease is not None or spec.conflict_since:
        return False
    return spec.claim is None or not spec.owner.pod


def _holding(owner: AddressOwner) -> tuple[str, str, str]:
    """The owner of a held address: a pod by its name, or a claim with a name of its own."""
    return owner.namespace, owner.pod, "" if owner.pod else owner.claim
