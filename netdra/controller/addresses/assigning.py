"""Assigns the addresses of one claim: all of them or none.

Called by `netdra.controller.addresses.pod_addresses`, which decides when. An address that the claim's owner has is
handed over, with the settings that its network has now; others are chosen by `netdra.networks.ledger`, and assigned by
creating a PodAddress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from netdra.controller import metrics
from netdra.controller.addresses import assignments, conflicts
from netdra.controller.addresses.ledgers import NetworkLedgers
from netdra.controller.addresses.releases import AddressReleases
from netdra.controller.neutron.desired import node_of
from netdra.controller.state import now
from netdra.kube.client import Client
from netdra.kube.errors import AlreadyExistsError, NotFoundError, RefusedError
from netdra.kube.events import Recorder
from netdra.kube.resources import POD_ADDRESSES
from netdra.kube.store import Store, key_of
from netdra.model import ip
from netdra.model.claim import ResourceClaim
from netdra.model.errors import InvalidInputError, NetdraError
from netdra.model.pod_address import AddressOwner, Family, PodAddress, WatchedPodAddress
from netdra.model.watched_claim import WatchedClaim
from netdra.networks.errors import AddressError, NoFreeAddressError
from netdra.networks.ledger import ChosenAddress, NetworkLedger
from netdra.networks.waiting import WaitingClaims, limit_queue
from netdra.rules import pod_addresses
from netdra.rules.pod_addresses import WantedAddresses

_TRIES = 64
"""How often addresses are chosen for a claim, where another controller has assigned those that were chosen."""


class _Choice(NamedTuple):
    """An address that was chosen for a step of a claim: to be created, or handed over if the owner has it already.

    Attributes:
        former: the address that the owner has instead.
        others: further ones that it has, because another controller worked at the same time.
    """

    network: str
    chosen: ChosenAddress
    address: PodAddress
    present: PodAddress | None
    former: PodAddress | None
    others: tuple[PodAddress, ...]


class AddressAssigner:
    """Assigns addresses to claims, for one term."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        addresses: Store[WatchedPodAddress],
        ledgers: NetworkLedgers,
        releases: AddressReleases,
        waiting: WaitingClaims,
        protect: Callable[[str], Awaitable[None]],
    ) -> None:
        """Begin.

        Args:
            protect: have a network, by its name, not go while it is used; called before an address is assigned.
        """
        self._client, self._recorder, self._addresses = client, recorder, addresses
        self._ledgers, self._releases, self._waiting, self._protect = ledgers, releases, waiting, protect
        self._chosen: dict[str, list[tuple[str, ChosenAddress]]] = {}
        self.outdated: set[str] = set()

    def is_unsure(self, key: str) -> bool:
        """Whether it is not known if an address that was chosen for a claim was created."""
        return key in self._chosen

    def forget(self, key: str) -> None:
        """A claim is gone, or not allocated: addresses that were chosen for it are free."""
        for network, chosen in self._chosen.pop(key, ()):
            ledger = self._ledgers.made(network)
            if ledger is not None:
                ledger.forget(chosen)

    async def assign(
        self, key: str, claim: ResourceClaim, wanted: Sequence[WantedAddresses], labels: Mapping[str, str]
    ) -> dict[str, AddressError]:
        """Assign all addresses that a claim should have, or none; returns why none, by network."""
        created: list[PodAddress] = []
        choices: list[_Choice] = []
        for _ in range(_TRIES):
            choices, problems = await self._choose(key, claim, wanted, labels)
            if problems:
                await self._undo(key, choices, created)
                return problems
            if problems := await self._protect_networks(key, choices, created):
                return problems
            if await self._write(key, claim, choices, created):
                return {}
        await self._undo(key, choices, created)
        text = "other controllers assign all addresses that are chosen"
        return {entry.network: AddressError(f'PodNetwork "{entry.network}": {text}', code="ND3021") for entry in wanted}

    async def _protect_networks(
        self, key: str, choices: Sequence[_Choice], created: Iterable[PodAddress]
    ) -> dict[str, AddressError]:
        """Have the networks of new addresses protected; returns which of them are being deleted.

        Raises:
            NetdraError: one cannot be protected just now; nothing is assigned.
        """
        try:
            for network in dict.fromkeys(choice.network for choice in choices if choice.present is None):
                await self._protect(network)
        except NetdraError as problem:
            await self._undo(key, choices, created)
            if not isinstance(problem, AddressError):
                raise
            return {network: problem}
        return {}

    async def _choose(
        self, key: str, claim: ResourceClaim, wanted: Sequence[WantedAddresses], labels: Mapping[str, str]
    ) -> tuple[list[_Choice], dict[str, AddressError]]:
        """Choose an address of each family for each step; without those that the pod has already.

        Raises:
            NetdraError: it is not known just now which are free; none is chosen.
        """
        choices: list[_Choice] = []
        problems: dict[str, AddressError] = {}
        steps = Counter(entry.network for entry in wanted)
        for entry in wanted:
            try:
                for family in self.ledger_for(claim, entry, steps[entry.network]).families:
                    choice = await self._choose_one(key, claim, entry, family, labels)
                    choices += [choice] if choice is not None else []
            except AddressError as problem:
                problems[entry.network] = problem
            except NetdraError:
                await self._undo(key, choices, ())
                raise
        return choices, problems

    async def _undo(self, key: str, choices: Iterable[_Choice], created: Iterable[PodAddress]) -> None:
        """Give back what a claim cannot use yet. No pod has these addresses, for it would need all of them."""
        for choice in choices:
            if choice.present is None:
                self._forget(key, choice.chosen)
                if (ledger := self._ledgers.made(choice.network)) is not None:
                    ledger.forget(choice.chosen)
        for address in created:
            with suppress(NotFoundError):
                stored = await self._client.get(POD_ADDRESSES, address.name)
                if stored.spec.claim == address.spec.claim:
                    await self._client.delete(POD_ADDRESSES, stored)
                    metrics.ADDRESS_WRITES.labels("delete").inc()

    async def _write(
        self, key: str, claim: ResourceClaim, choices: Sequence[_Choice], created: list[PodAddress]
    ) -> bool:
        """Write the addresses of a claim; returns whether it has all of them, or another controller took one.

        Raises:
            NetdraError: one cannot be written just now. It may have been created; those that follow it are free again.
        """
        for at, choice in enumerate(choices):
            try:
                if not await self._write_one(key, claim, choice, created):
                    return False
            except NetdraError:
                await self._undo(key, choices[at + 1 :], ())
                raise
        return True

    async def _write_one(self, key: str, claim: ResourceClaim, choice: _Choice, created: list[PodAddress]) -> bool:
        """Write an address of a claim; returns whether it has it, or another controller took it."""
        if choice.present is not None:
            await self._hand_over(choice.present, choice.address, alone=not choice.others)
            await self._withdraw(choice.present, choice.others, claim)
            return True
        self._chosen.setdefault(key, []).append((choice.network, choice.chosen))
        is_own = await self._create(choice.address, self._ledgers.of(choice.network))
        self._forget(key, choice.chosen)
        if not is_own:
            return False
        created.append(choice.address)
        if choice.former is not None and choice.former.spec.claim is not None:  # its range is not for the node
            await self._releases.release(choice.former)
        return True

    def ledger_for(self, claim: ResourceClaim | WatchedClaim, entry: WantedAddresses, steps: int) -> NetworkLedger:
        """The addresses of a network for a step of a claim, which has as many on it.

        Raises:
            NoPodNetworkError: it does not exist, its spec cannot be used, or it is being deleted.
            NotAllowedError: it is not for the claim's namespace.
            RequestMissingError: it requires that the claim requests its addresses.
        """
        ledger = self._ledgers.of(entry.network)
        pod_addresses.check_allowed(ledger.network, claim.metadata.namespace)
        if not any(
            self._is_own(address, claim) for family in ledger.families for address in ledger.of(entry.owner, family)
        ):  # assigned addresses stay
            pod_addresses.check_new(ledger.network, claim, steps)
        return ledger

    async def _choose_one(
        self, key: str, claim: ResourceClaim, entry: WantedAddresses, family: Family, labels: Mapping[str, str]
    ) -> _Choice | None:
        """Choose the address of a family for a step; None if its pod has one.

        Raises:
            AddressError: none can be assigned now.
        """
        ledger = self._ledgers.of(entry.network)
        own = sorted(ledger.of(entry.owner, family), key=lambda address: not self._is_own(address, claim))
        present = own[0] if own else None
        # The device's node found the other machine: a report counts for the address that was assigned for that node.
        if (
            present is not None
            and present.spec.node_name == node_of(claim)
            and conflicts.is_conflicting(claim, present)
        ):
            ledger.check_conflict(present)
            await self._set_aside(present, ledger)
            own, present = [], None
        if present is not None and self._is_own(present, claim) and self.is_in_use(present, claim):
            await self._withdraw(present, own[1:], claim)
            return None  # independent of the present ranges
        if present is not None:
            await self._check_left(key, present, claim)
        else:
            self.check_withheld(entry, family, node_of(claim))
        self.check_limit(key, ledger, family, entry.owner, conflicts.attached(claim))
        chosen = ledger.choose(
            family,
            entry.owner,
            labels,
            entry.requested,
            entry.group,
            self._attached(key, claim, entry.network),
            self.earlier(key, ledger, labels),
        )
        address = assignments.address_of(ledger, chosen, entry.owner, claim.metadata, node_of(claim))
        is_same = present is not None and present.name == address.name
        same, former = (present, None) if is_same else (None, present)
        return _Choice(entry.network, chosen, address, same, former, tuple(own[1:]))

    def earlier(self, key: str, ledger: NetworkLedger, labels: Mapping[str, str]) -> Callable[[], int]:
        """Counts the claims that wait for an address on nodes of these labels, and come before a claim."""
        return lambda: self._waiting.before(key, ledger.network.name, partial(ledger.compete, labels))

    def _attached(self, key: str, claim: ResourceClaim, network: str) -> tuple[str, ...]:
        """The addresses of a claim's pods by its status, without those that nodes report as another claim's."""
        listed = conflicts.attached(claim)
        others = self._releases.of_others(network, key) if listed else frozenset()
        return tuple(text for text in listed if ip.address(text) not in others)

    def check_withheld(self, entry: WantedAddresses, family: Family, node: str) -> None:
        """Check that no pod on another node may have an address of an interface without one: it was deleted by hand.

        Raises:
            AddressHeldError: one may; it is not known whether the next address would be another one.
        """
        away = self._ledgers.withheld_elsewhere(entry.network, entry.owner, family, node)
        if away is not None:
            raise pod_addresses.held(away, is_over=True)

    def check_limit(
        self, key: str, ledger: NetworkLedger, family: Family, owner: AddressOwner, attached: Collection[str] = ()
    ) -> None:
        """Check that an interface may get an address that it does not have, by the limit of its namespace.

        Args:
            key: the claim.
            ledger: the network's addresses.
            family: that of the address.
            owner: the interface.
            attached: the addresses that the claim's pod has, by its status, without prefix lengths.

        Raises:
            NamespaceLimitError: the namespace has all that it can have.
        """
        queue = limit_queue(ledger.network.name, owner.namespace)
        ledger.check_limit(family, owner, attached, lambda: self._waiting.before(key, queue, lambda _: True))

    @staticmethod
    def _is_own(address: PodAddress, claim: ResourceClaim | WatchedClaim) -> bool:
        return address.spec.claim is not None and address.spec.claim.uid == claim.metadata.uid

    async def _check_left(self, key: str, address: PodAddress, claim: ResourceClaim) -> None:
        """Return if an owner's address may go to its claim: it is on that node already, or no pod has it any more.

        Raises:
            AddressHeldError: a pod may have it.
            NoFreeAddressError: it goes to another claim.
        """
        spec = address.spec
        if self._releases.is_given_back(address):
            raise NoFreeAddressError(f'PodAddress "{address.name}" goes to a pod that has waited longer', code="ND3022")
        if self._is_own(address, claim):
            if spec.node_name == node_of(claim):
                return
            is_over = True  # it was deallocated, and allocated on another node
        else:
            is_over = spec.claim is None or await self._releases.is_over(address)
        if is_over and await self._releases.has_left(address):
            return
        self._releases.await_departure(address, key)
        if is_over and spec.claim is not None:
            await self._releases.release(address)  # its node reports on it then
        raise pod_addresses.held(address, is_over=is_over)

    @staticmethod
    def is_in_use(address: PodAddress, claim: ResourceClaim) -> bool:
        """Whether the claim's pod has an address, on the node for which it was assigned."""
        return assignments.is_attached(claim, address) and address.spec.node_name == node_of(claim)

    async def _create(self, address: PodAddress, ledger: NetworkLedger) -> bool:
        """Create a PodAddress; returns whether it is the claim's now. Another's of that name is noted in the ledger.

        Raises:
            ApiError: it is not known whether it was created; the next look tries the same one.
        """
        try:
            await self._client.create(POD_ADDRESSES, address)
        except AlreadyExistsError:
            with suppress(NotFoundError, InvalidInputError):  # one that cannot be read is another's
                stored = await self._client.get(POD_ADDRESSES, address.name)
                if (stored.spec.owner, stored.spec.claim) == (address.spec.owner, address.spec.claim):
                    return True
                if address.name not in self._addresses.objects:
                    ledger.put(None, stored)
                return False
            self._ledgers.hold(address.spec.network)
            return False
        except RefusedError:
            ledger.put_back(address)
            raise
        metrics.ADDRESS_WRITES.labels("create").inc()
        return True

    async def _hand_over(self, present: PodAddress, address: PodAddress, *, alone: bool) -> None:
        """Give an owner's present address to its new claim or node, with the settings that its network has now."""
        is_users = (present.spec.claim, present.spec.node_name) == (address.spec.claim, address.spec.node_name)
        # A write makes it the youngest of an interface's addresses, and the oldest is used (`by_age`): only if need be.
        if is_users and (not alone or present.name not in self.outdated or present.spec == address.spec):
            return
        self.outdated.discard(present.name)
        metadata = replace(address.metadata, resource_version=present.metadata.resource_version)
        await self._client.replace(POD_ADDRESSES, replace(address, metadata=metadata))
        metrics.ADDRESS_WRITES.labels("update").inc()

    async def _withdraw(self, present: PodAddress, others: Iterable[PodAddress], claim: ResourceClaim) -> None:
        """Delete the further addresses of an interface: another controller assigned one at the same time.

        Each controller and the claim's node use the first one (`netdra.model.pod_address.by_age`), so no pod has these.
        """
        for other in others:
            is_own = other.spec.claim is not None and other.spec.claim.uid == claim.metadata.uid
            if not is_own or assignments.is_attached(claim, other):
                continue
            stored = await self._client.get(POD_ADDRESSES, present.name)
            if stored.metadata.resource_version == present.metadata.resource_version:
                await self._client.delete(POD_ADDRESSES, other)
                metrics.ADDRESS_WRITES.labels("delete").inc()

    async def _set_aside(self, address: PodAddress, ledger: NetworkLedger) -> None:
        """Set an address aside that another machine on the wire has, so that it is not assigned."""
        ledger.put(address, await self._client.replace(POD_ADDRESSES, conflicts.set_aside(address, now())))
        metrics.ADDRESS_WRITES.labels("update").inc()
        metrics.CONFLICTS.inc()
        self._recorder.emit(conflicts.occurrence(ledger.network, address))

    def _forget(self, key: str, chosen: ChosenAddress) -> None:
        """An address was created, or is another's: nothing is left to find out."""
        left = [entry for entry in self._chosen.pop(key, ()) if entry[1] != chosen]
        if left:
            self._chosen[key] = left


def claim_of(address: PodAddress) -> str:
    """The claim of an address that has one, as `<namespace>/<name>`."""
    assert address.spec.claim is not None
    return key_of(address.spec.owner.namespace, address.spec.claim.name)
