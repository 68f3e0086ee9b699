"""Assigns addresses of PodNetworks to claims, and releases them with the claims (decisions D68, D73).

Run by `netdra.controller.daemon` while this process leads. `netdra.controller.assignments` works out the desired
addresses, `netdra.networks.ledger` chooses them, `netdra.controller.releases` releases them. An address is assigned
when its PodAddress is created: the API server refuses a second object of the name, so nothing is lost or assigned twice
when this process dies, or another one works at the same time. A claim gets all of its addresses or none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from netdra.controller import assignments, conflicts, metrics
from netdra.controller.assignments import WantedAddresses
from netdra.controller.network_shares import NetworkShares
from netdra.controller.neutron_ports import node_of
from netdra.controller.releases import HELD_SECONDS, AddressReleases, now
from netdra.controller.state import State
from netdra.controller.writing import claim_references, write_status
from netdra.kube.client import Client
from netdra.kube.errors import AlreadyExistsError, ConflictError, NotFoundError, RefusedError
from netdra.kube.events import Occurrence, Recorder
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.kube.reflector import Reflector
from netdra.kube.resources import NODE_NAMES, POD_ADDRESSES, POD_NETWORKS, RESOURCE_CLAIMS, WATCHED_ADDRESSES
from netdra.kube.store import Change, Store, key_of
from netdra.model.claim import ClaimUse, ResourceClaim
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding
from netdra.model.node_network import AddressReport, NodeNetworkReport
from netdra.model.pod_address import Family, PodAddress, WatchedPodAddress, address_named
from netdra.model.pod_network import PodNetwork
from netdra.model.topology import NetworkTopology
from netdra.model.watched_claim import WatchedClaim
from netdra.networks.errors import (
    AddressError,
    AddressHeldError,
    NoFreeAddressError,
    NoPodNetworkError,
    NotAllowedError,
)
from netdra.networks.ledger import ChosenAddress, NetworkLedger
from netdra.networks.waiting import WaitingClaims
from netdra.rules import pod_networks
from netdra.topology.users import pod_owner, topologies_of

log = logging.getLogger(__name__)

WORKERS = 8
"""How many claims are worked on at a time."""
STATUS_SECONDS = 1.0
"""How long further changes are waited for before a PodNetwork's status is written."""
WAIT_SECONDS = 30.0
"""Seconds until a claim without an address is looked at again; a release in its network has it looked at at once."""
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


class PodAddresses:
    """The addresses of a cluster, for one term."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        state: State,
        in_hand: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Begin nothing yet.

        Args:
            state: the controller's copies of claims and topologies.
            in_hand: entered around each look, which the end of the process waits for.
        """
        self._client, self._recorder, self._state, self._in_hand = client, recorder, state, in_hand
        self._networks: Store[PodNetwork] = Store()
        self._addresses: Store[WatchedPodAddress] = Store()
        self._ledgers: dict[str, NetworkLedger | None] = {}
        self._findings: dict[str, tuple[Finding, ...]] = {}
        self._of_network: dict[str, dict[str, PodAddress]] = {}
        self._by_claim: dict[str, set[str]] = {}
        self._chosen: dict[str, list[tuple[str, ChosenAddress]]] = {}
        self._blocked: dict[str, dict[str, None]] = {}
        self._waiting = WaitingClaims()
        self._withheld: dict[str, WatchedPodAddress] = {}
        self._releases = AddressReleases(
            client,
            state,
            self._networks,
            self._addresses,
            lambda name: self._of_network.get(name, {}).values(),
            in_hand,
        )
        self.claims: WorkQueue[str] = WorkQueue("addresses", self._claim, workers=WORKERS)
        self.withheld: WorkQueue[str] = WorkQueue("withheld-addresses", self._stop_withholding)
        self.statuses: WorkQueue[str] = WorkQueue("pod-networks", self._status)
        self.shares = NetworkShares(client, recorder, state, self._networks, self._known_ledger, in_hand)

    @property
    def store(self) -> Store[WatchedPodAddress]:
        """The PodAddresses by name."""
        return self._addresses

    async def run(self) -> None:
        """Work until cancelled."""
        state = self._state
        with ExitStack() as following:
            async with asyncio.TaskGroup() as tasks:
                following.enter_context(self._networks.following(self._on_network_change))
                following.enter_context(self._addresses.following(self._on_address_change))
                following.enter_context(state.claims.following(self._on_claim_change))
                following.enter_context(state.topologies.following(self._on_topology_change))
                following.enter_context(state.nodes.following(self._on_node_change))
                tasks.create_task(Reflector(self._client, POD_NETWORKS, self._networks, vital=False).run())
                tasks.create_task(Reflector(self._client, WATCHED_ADDRESSES, self._addresses, vital=False).run())
                for store in (self._networks, self._addresses, state.claims, state.topologies, state.nodes):
                    await store.wait_synced()  # without the nodes, an address that a pod has could be assigned again
                for key in {
                    *self._by_claim,
                    *(key for key, claim in state.claims.objects.items() if self._asks(claim)),
                }:
                    self.claims.add(key)
                tasks.create_task(self.claims.run())
                tasks.create_task(self._releases.kept.run())
                tasks.create_task(self.withheld.run())
                tasks.create_task(self.statuses.run())
                tasks.create_task(self.shares.run())

    def _asks(self, claim: ClaimUse | None) -> bool:
        topologies = topologies_of(claim) if claim is not None else ()
        present = map(self._state.topologies.objects.get, topologies)
        return any(topology is not None and topology.asks_addresses for topology in present)

    def _on_claim_change(self, change: Change[WatchedClaim]) -> None:
        before, after = change.old, change.new
        if change.key in self._by_claim:
            self._releases.note_claim(change)
        if before is not None and after is not None and _allotted(before) == _allotted(after):
            return
        if change.key in self._by_claim or change.key in self._chosen or self._asks(after):
            self.claims.add(change.key)

    def _on_topology_change(self, change: Change[NetworkTopology]) -> None:
        if change.new is not None and change.new.asks_addresses:
            for key in self._state.users(change.key):
                self.claims.add(key)

    def _on_network_change(self, change: Change[PodNetwork]) -> None:
        if change.old is not None and change.new is not None and change.old.spec == change.new.spec:
            ledger = self._ledgers.get(change.key)
            if ledger is not None:
                ledger.network = change.new
            return
        self._ledgers.pop(change.key, None)
        self._findings.pop(change.key, None)
        self.statuses.add(change.key)
        self.shares.recount(change.key)
        for key in self._blocked.pop(change.key, {}):
            self.claims.add(key)
        self._look_at_waiting(change.key)
        self._look_at_outdated(change.key)
        self._releases.kept.add(change.key)

    def _on_address_change(self, change: Change[WatchedPodAddress]) -> None:
        before, after = change.old, change.new
        latest = after or before
        assert latest is not None
        network = latest.spec.network
        if before is not None:
            self._drop(before)
        if after is not None:
            self._of_network.setdefault(network, {})[after.name] = after
            if after.spec.claim is not None:
                self._by_claim.setdefault(_claim_of(after), set()).add(after.name)
                if _claim_of(after) not in self._state.claims.objects:
                    self.claims.add(_claim_of(after))
        self._releases.note_address(change)
        ledger = self._ledgers.get(network)
        if ledger is not None:
            ledger.put(before, after)
            if (
                after is not None
                and after.spec.claim is not None
                and len(ledger.of(after.spec.owner, after.family)) > 1
            ):
                self.claims.add(_claim_of(after))
        if after is None and before is not None:
            if before.spec.claim is not None:
                self._withhold(before)
            else:
                self._look_at_waiting(network, WORKERS)
                self._look_at_blocked(network)
        self.statuses.add(network, STATUS_SECONDS)
        self.shares.recount(network)

    def _withhold(self, address: WatchedPodAddress) -> None:
        """An administrator has deleted the address of a claim, perhaps of a running pod: its owner comes first."""
        network = self._networks.objects.get(address.spec.network)
        ledger = self._known_ledger(address.spec.network)
        if network is not None and ledger is not None:
            self._withheld[address.name] = address
            ledger.withhold(address)
            self.withheld.add(address.name, max(1.0, network.spec.quarantine))
        self.claims.add(_claim_of(address))

    async def _stop_withholding(self, name: str) -> None:
        address = self._withheld.pop(name, None)
        ledger = self._ledgers.get(address.spec.network) if address is not None else None
        if address is not None and ledger is not None:
            ledger.stop_withholding(address)
            self._look_at_waiting(address.spec.network, WORKERS)

    def _drop(self, address: PodAddress) -> None:
        del self._of_network[address.spec.network][address.name]
        if address.spec.claim is not None:
            names = self._by_claim[_claim_of(address)]
            names.discard(address.name)
            if not names:
                del self._by_claim[_claim_of(address)]

    def _look_at_waiting(self, network: str, count: int = 0) -> None:
        """Look again at claims that wait for an address of a network, the first ones; at all if no number is given."""
        for key in self._waiting.of(network)[: count or None]:
            self.claims.add(key)

    def _look_at_blocked(self, network: str) -> None:
        """Look again at claims that get no address of a network though it may have free ones."""
        for key in self._blocked.pop(network, {}):
            self.claims.add(key)

    def _look_at_outdated(self, network: str) -> None:
        """Look again at claims with an address of a range, or with settings, that a network no longer has."""
        ledger = self._known_ledger(network)
        if ledger is not None:
            for address in self._of_network.get(network, {}).values():
                if address.spec.claim is not None and not assignments.is_current(ledger, address):
                    self.claims.add(_claim_of(address))

    def _ledger(self, network: str) -> NetworkLedger:
        """The addresses of a network.

        Raises:
            NoPodNetworkError: it does not exist, or its spec cannot be used.
        """
        ledger = self._known_ledger(network)
        if ledger is None:
            if network not in self._networks.objects:
                raise NoPodNetworkError(f'PodNetwork "{network}" does not exist', hint="create it")
            text = "; ".join(finding.text for finding in self._findings[network])
            raise NoPodNetworkError(f'PodNetwork "{network}" cannot be used: {text}')
        return ledger

    def _known_ledger(self, name: str) -> NetworkLedger | None:
        network = self._networks.objects.get(name)
        if network is None:
            return None
        if name not in self._ledgers:
            self._findings[name] = findings = pod_networks.check(network)
            addresses = self._of_network.get(name, {}).values()
            ledger = None if findings else NetworkLedger(network, addresses)
            self._ledgers[name] = ledger
            withheld = [address for address in self._withheld.values() if address.spec.network == name]
            if ledger is not None:
                for address in withheld:
                    ledger.withhold(address)
            self._hold(name)
        return self._ledgers[name]

    def _hold(self, name: str) -> None:
        """Have the ledger of a network count the addresses that nodes report as their pods', and unreadable ones."""
        ledger = self._ledgers.get(name)
        if ledger is not None:
            unreadable = (address_named(key, name) for key in self._addresses.unreadable)
            ledger.hold((*self._releases.unassigned(name), *filter(None, unreadable)))

    def _on_node_change(self, change: Change[NodeNetworkReport]) -> None:
        before, after = (_of_addresses(report) for report in (change.old, change.new))
        if before == after:
            return
        for name in {entry.network for entry in (*before[0], *after[0])}:
            self._hold(name)
            self._look_at_waiting(name, WORKERS)
            self._look_at_blocked(name)
        for key in self._releases.note_node(change.key):
            self.claims.add(key)

    async def _claim(self, key: str) -> float | None:
        """Assign the addresses that a claim should have, and release the others.

        Raises:
            NetdraError: the claim does not fit its topology, or an address cannot be written just now.
        """
        with self._in_hand():
            claim_use = self._state.claims.objects.get(key)
            try:
                if claim_use is None or claim_use.status.allocation is None:
                    return await self._release(key)
                claim = await self._client.get(RESOURCE_CLAIMS, claim_use.metadata.name, claim_use.metadata.namespace)
                if claim.status.allocation is None:
                    return AGAIN
                return await self._assign(key, claim)
            except (ConflictError, NotFoundError) as problem:
                log.debug("addresses of claim %s changed meanwhile: %s", key, problem)
                return AGAIN
            except InvalidInputError:
                self._waiting.leave(key)  # others must not wait for it
                raise

    async def _assign(self, key: str, claim: ResourceClaim) -> float | None:
        """Have the addresses of an allocated claim as they should be; returns when to look again."""
        wanted = assignments.wanted(claim, self._state.topologies.objects)
        labels = await self._labels(wanted, node_of(claim))
        self._waiting.note_pod(key, _pod_of(claim))
        problems = await self._give_back(key, claim) or await self._assign_all(key, claim, wanted, labels)
        for problem in problems.values():
            self._report(claim, problem)
        again = self._wait(key, problems, labels)
        await self._release_unwanted(key, claim, wanted)
        if again is not None:
            self.claims.add(key, again)
        return None

    def _wait(self, key: str, problems: Mapping[str, AddressError], labels: Mapping[str, str]) -> float | None:
        """Have a claim wait for the addresses that it lacks; returns after how many seconds it is looked at again."""
        full = [network for network, problem in problems.items() if isinstance(problem, NoFreeAddressError)]
        if not full:
            self._waiting.leave(key)
        else:
            self._waiting.wait(key, full, labels)
            for other in self._waiting.later(key):
                if any(address.spec.network in full for address in self.of_claim(other)):
                    self.claims.add(other)  # it may have to give its addresses back
            for network in full:
                self._hold(network)  # some reports of nodes count for a time
        for network in problems.keys() - {*full}:
            self._blocked.setdefault(network, {})[key] = None
        if not problems:
            return None
        is_held = any(isinstance(problem, AddressHeldError) for problem in problems.values())
        return HELD_SECONDS if is_held else WAIT_SECONDS

    async def _give_back(self, key: str, claim: ResourceClaim) -> dict[str, AddressError]:
        """Release a claim's addresses if its pod waits for others, and pods that wait longer need these."""
        problems: dict[str, AddressError] = {}
        for address in self.of_claim(key):
            network = address.spec.network
            if self._waiting.must_give_back(key, network) and not assignments.is_attached(claim, address):
                await self._releases.release(address, gives_back=True)
                problems[network] = NoFreeAddressError(
                    f'PodNetwork "{network}" has no free address: the pod waits for addresses of its other claims, and '
                    "its own address goes to a pod that has waited longer",
                    hint="add a range, or delete claims that have addresses: kubectl get podaddresses",
                )
        return problems

    async def _release_unwanted(self, key: str, claim: ResourceClaim, wanted: Iterable[WantedAddresses]) -> None:
        """Release the addresses that an allocated claim no longer needs."""
        owners = {(entry.network, entry.owner) for entry in wanted}
        for address in self.of_claim(key):
            ledger = self._known_ledger(address.spec.network)
            if (address.spec.network, address.spec.owner) not in owners:
                await self._release_one(address)
            elif ledger is not None and address.family not in ledger.families and not self._is_in_use(address, claim):
                await self._releases.release(address)

    async def _assign_all(
        self, key: str, claim: ResourceClaim, wanted: Sequence[WantedAddresses], labels: Mapping[str, str]
    ) -> dict[str, AddressError]:
        """Assign all addresses that a claim should have, or none; returns why none, by network."""
        created: list[PodAddress] = []
        for _ in range(_TRIES):
            choices, problems = await self._choose(key, claim, wanted, labels)
            if problems:
                await self._undo(key, choices, created)
                return problems
            if await self._write(key, claim, choices, created):
                return {}
        await self._undo(key, (), created)
        text = "other controllers assign all addresses that are chosen"
        return {entry.network: AddressError(f'PodNetwork "{entry.network}": {text}') for entry in wanted}

    async def _choose(
        self, key: str, claim: ResourceClaim, wanted: Iterable[WantedAddresses], labels: Mapping[str, str]
    ) -> tuple[list[_Choice], dict[str, AddressError]]:
        """Choose an address of each family for each step; without those that the pod has already."""
        choices: list[_Choice] = []
        problems: dict[str, AddressError] = {}
        for entry in wanted:
            try:
                for family in self._ledger_for(claim, entry).families:
                    choice = await self._choose_one(key, claim, entry, family, labels)
                    choices += [choice] if choice is not None else []
            except AddressError as problem:
                problems[entry.network] = problem
        return choices, problems

    async def _undo(self, key: str, choices: Iterable[_Choice], created: Iterable[PodAddress]) -> None:
        """Give back what a claim cannot use yet. No pod has these addresses, for it would need all of them."""
        for choice in choices:
            if choice.present is None:
                self._forget(key, choice.chosen)
                if (ledger := self._ledgers.get(choice.network)) is not None:
                    ledger.forget(choice.chosen)
        for address in created:
            with suppress(NotFoundError):
                stored = await self._client.get(POD_ADDRESSES, address.name)
                if stored.spec.claim == address.spec.claim:
                    await self._client.delete(POD_ADDRESSES, stored)
                    metrics.ADDRESS_WRITES.labels("delete").inc()

    async def _write(
        self, key: str, claim: ResourceClaim, choices: Iterable[_Choice], created: list[PodAddress]
    ) -> bool:
        """Write the addresses of a claim; returns whether it has all of them, or another controller took one."""
        for choice in choices:
            if choice.present is not None:
                await self._hand_over(choice.present, choice.address)
                await self._withdraw(choice.present, choice.others, claim)
                continue
            self._chosen.setdefault(key, []).append((choice.network, choice.chosen))
            is_own = await self._create(choice.address, self._ledger(choice.network))
            self._forget(key, choice.chosen)
            if not is_own:
                return False
            created.append(choice.address)
            if choice.former is not None and choice.former.spec.claim is not None:  # its range is not for the node
                await self._releases.release(choice.former)
        return True

    async def _labels(self, wanted: tuple[WantedAddresses, ...], node: str) -> Mapping[str, str]:
        """The labels of a claim's node, if a range of its networks is for certain nodes only."""
        networks = [self._networks.objects.get(entry.network) for entry in wanted]
        ranges = (entry for network in networks if network is not None for entry in network.spec.ranges)
        if not node or all(entry.node_selector is None for entry in ranges):
            return {}
        return (await self._client.get(NODE_NAMES, node)).metadata.labels

    def _ledger_for(self, claim: ResourceClaim, entry: WantedAddresses) -> NetworkLedger:
        """The addresses of a network for a claim.

        Raises:
            NoPodNetworkError: it does not exist, or its spec cannot be used.
            NotAllowedError: it is not for the claim's namespace.
        """
        ledger = self._ledger(entry.network)
        namespaces = ledger.network.spec.namespaces
        if namespaces and claim.metadata.namespace not in namespaces:
            raise NotAllowedError(
                f'PodNetwork "{entry.network}" is not for namespace "{claim.metadata.namespace}"',
                hint=f"its spec.namespaces has {', '.join(namespaces)}",
            )
        return ledger

    async def _choose_one(
        self, key: str, claim: ResourceClaim, entry: WantedAddresses, family: Family, labels: Mapping[str, str]
    ) -> _Choice | None:
        """Choose the address of a family for a step; None if its pod has one.

        Raises:
            AddressError: none can be assigned now.
        """
        ledger = self._ledger(entry.network)
        own = sorted(ledger.of(entry.owner, family), key=lambda address: not self._is_own(address, claim))
        present = own[0] if own else None
        if present is not None and conflicts.is_conflicting(claim, present):
            await self._set_aside(present, ledger)
            own, present = [], None
        if present is not None and self._is_own(present, claim) and self._is_in_use(present, claim):
            await self._withdraw(present, own[1:], claim)
            return None  # whatever the ranges say now
        if present is not None:
            await self._check_left(key, present, claim)
        compete = partial(ledger.compete, labels)
        chosen = ledger.choose(
            family,
            entry.owner,
            labels,
            entry.requested,
            entry.group,
            conflicts.attached(claim),
            lambda: self._waiting.before(key, entry.network, compete),
        )
        address = assignments.address_of(ledger, chosen, entry.owner, claim.metadata, node_of(claim))
        is_same = present is not None and present.name == address.name
        same, former = (present, None) if is_same else (None, present)
        return _Choice(entry.network, chosen, address, same, former, tuple(own[1:]))

    @staticmethod
    def _is_own(address: PodAddress, claim: ResourceClaim) -> bool:
        return address.spec.claim is not None and address.spec.claim.uid == claim.metadata.uid

    async def _check_left(self, key: str, address: PodAddress, claim: ResourceClaim) -> None:
        """Return if an owner's address may go to its claim: it is on that node already, or no pod has it any more.

        Raises:
            AddressHeldError: a pod may have it.
            NoFreeAddressError: it goes to another claim.
        """
        spec = address.spec
        if self._releases.is_given_back(address):
            raise NoFreeAddressError(f'PodAddress "{address.name}" goes to a pod that has waited longer')
        if self._is_own(address, claim):
            if spec.node_name == node_of(claim):
                return
            is_over = True  # it was deallocated, and allocated on another node
        else:
            is_over = spec.claim is None or await self._is_over(address)
        if is_over and await self._releases.has_left(address):
            return
        self._releases.await_departure(address, key)
        if is_over and spec.claim is not None:
            await self._releases.release(address)  # its node reports on it then
        if is_over:
            reason = f'Node "{spec.node_name}" has not reported yet that the former pod no longer has it'
        else:
            reason = f'ResourceClaim "{_claim_of(address)}" still exists'
        raise AddressHeldError(
            f'PodAddress "{address.name}" cannot be assigned: {reason}',
            hint="it is assigned once the node has reported; if its machine is off for good, delete the Node",
        )

    @staticmethod
    def _is_in_use(address: PodAddress, claim: ResourceClaim) -> bool:
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
            self._hold(address.spec.network)
            return False
        except RefusedError:
            ledger.put_back(address)
            raise
        metrics.ADDRESS_WRITES.labels("create").inc()
        return True

    async def _hand_over(self, present: PodAddress, address: PodAddress) -> None:
        """Give an owner's present address to its new claim or node, with the settings that its network has now."""
        if present.spec == address.spec:
            return
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

    async def _release(self, key: str) -> float | None:
        """Release the addresses of a claim that is gone or not allocated; returns when to look again."""
        for network, chosen in self._chosen.pop(key, ()):
            ledger = self._ledgers.get(network)
            if ledger is not None:
                ledger.forget(chosen)
        for blocked in self._blocked.values():
            blocked.pop(key, None)
        self._waiting.forget(key)
        self._releases.forget_claim(key)
        for address in self.of_claim(key):
            await self._release_one(address)
        return None

    async def _release_one(self, address: PodAddress) -> None:
        """Release an address if its claim is over. A named claim that is not allocated keeps it."""
        if await self._is_over(address):
            await self._releases.release(address)

    async def _is_over(self, address: PodAddress) -> bool:
        """Whether the claim of an address has no right to it any more, by the API server's present state.

        A watch may be behind. A named claim keeps its address as long as it exists.
        """
        assert address.spec.claim is not None
        try:
            claim = await self._client.get(RESOURCE_CLAIMS, address.spec.claim.name, address.spec.owner.namespace)
        except NotFoundError:
            return True
        if claim.metadata.uid != address.spec.claim.uid:
            return True
        if claim.status.allocation is None:
            return bool(address.spec.owner.pod)
        if assignments.is_attached(claim, address):
            return False  # whatever the topology says now: a pod keeps the network that was prepared
        wanted = assignments.wanted(claim, self._state.topologies.objects)
        return all((entry.network, entry.owner) != (address.spec.network, address.spec.owner) for entry in wanted)

    async def _status(self, name: str) -> float | None:
        network = self._networks.objects.get(name)
        if network is None:
            return None
        with self._in_hand():
            ledger = self._known_ledger(name)
            status = assignments.network_status(network, ledger, self._findings[name], now())
            try:
                await write_status(self._client, self._recorder, POD_NETWORKS, network, status)
            except (ConflictError, NotFoundError):
                return AGAIN
        return None

    def of_claim(self, key: str) -> list[PodAddress]:
        """The PodAddresses of a claim, `<namespace>/<name>`."""
        return [self._addresses.objects[name] for name in sorted(self._by_claim.get(key, ()))]

    def _forget(self, key: str, chosen: ChosenAddress) -> None:
        """An address was created, or is another's: nothing is left to find out."""
        left = [entry for entry in self._chosen.pop(key, ()) if entry[1] != chosen]
        if left:
            self._chosen[key] = left

    def _report(self, claim: ResourceClaim, problem: AddressError) -> None:
        """Report the reason for a missing address at the claim and its pod."""
        for regarding in claim_references(claim.metadata):
            self._recorder.emit(
                Occurrence(
                    regarding=regarding,
                    type="Warning",
                    reason=problem.reason,
                    action="AssignAddress",
                    note=str(problem),
                )
            )


def _claim_of(address: PodAddress) -> str:
    assert address.spec.claim is not None
    return key_of(address.spec.owner.namespace, address.spec.claim.name)


def _allotted(claim: WatchedClaim) -> tuple[object, ...]:
    metadata, status = claim.metadata, claim.status
    return metadata.uid, metadata.deletion_timestamp, status.allocation, conflicts.reported(claim)


def _pod_of(claim: ResourceClaim) -> str:
    """The uid of a claim's pod, or else the claim's own."""
    pod = pod_owner(claim.metadata)
    if pod is not None:
        return pod.uid
    consumers = (consumer.uid for consumer in claim.status.reserved_for if consumer.resource == "pods")
    return next(consumers, claim.metadata.uid)


def _of_addresses(report: NodeNetworkReport | None) -> AddressReport:
    """The part of a node's report about addresses."""
    status = report.status if report is not None else None
    return (
        AddressReport(status.unassigned_addresses, status.released_version) if status is not None else AddressReport()
    )
