"""Assigns addresses of PodNetworks to claims, and releases them with the claims (decisions D68, D74).

Run by `netdra.controller.daemon` while this process leads. `netdra.rules.pod_addresses` works out the desired
addresses, `netdra.controller.addresses.assigning` assigns those of a claim, `netdra.controller.addresses.releases`
releases them. A claim is read from the API server only if its copy in memory shows that something may have to be
written (`netdra.controller.addresses.prospects`). Claims without addresses come before those that have theirs.

An address is assigned when its PodAddress is created: the API server refuses a second object of the name, so nothing is
lost or assigned twice when this process dies, or another one works at the same time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import ExitStack

from netdra.controller.addresses import assignments, conflicts
from netdra.controller.addresses.assigning import AddressAssigner, claim_of
from netdra.controller.addresses.finalizers import NetworkFinalizers
from netdra.controller.addresses.ledgers import NetworkLedgers
from netdra.controller.addresses.prospects import NodeLabels, Prospects, needs_labels
from netdra.controller.addresses.range_gauges import RangeGauges
from netdra.controller.addresses.releases import HELD_SECONDS, AddressReleases
from netdra.controller.addresses.reminders import Reminders
from netdra.controller.addresses.shares import NetworkShares
from netdra.controller.children import ClaimChildren, allotment
from netdra.controller.neutron.desired import node_of
from netdra.controller.state import InHand, State, now
from netdra.controller.writing import claim_references, write_status
from netdra.kube.client import Client
from netdra.kube.errors import ConflictError, NotFoundError
from netdra.kube.events import Occurrence, Recorder
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.kube.reflector import Reflector
from netdra.kube.resources import POD_NETWORKS, WATCHED_ADDRESSES
from netdra.kube.store import Change, Store
from netdra.model.claim import ResourceClaim
from netdra.model.errors import InvalidInputError
from netdra.model.node_network import AddressReport, NodeNetworkReport
from netdra.model.pod_address import PodAddress, WatchedPodAddress
from netdra.model.pod_network import PodNetwork
from netdra.model.watched_claim import WatchedClaim
from netdra.networks.errors import (
    AddressError,
    AddressHeldError,
    NamespaceLimitError,
    NoFreeAddressError,
)
from netdra.networks.waiting import WaitingClaims, limit_queue
from netdra.rules import pod_addresses
from netdra.rules.pod_addresses import WantedAddresses
from netdra.topology.users import pod_owner

log = logging.getLogger(__name__)

WORKERS = 8
"""How many claims are worked on at a time."""
TURN = 10
"""How many addresses are compared with their networks at a time, when this process begins to lead."""
STATUS_SECONDS = 1.0
"""How long further changes are waited for before a PodNetwork's status is written."""
WAIT_SECONDS = 30.0
"""Seconds until a claim without an address is looked at again, in memory; a release has it looked at at once."""


class PodAddresses:
    """The addresses of a cluster, for one term."""

    def __init__(self, client: Client, recorder: Recorder, state: State, in_hand: InHand) -> None:
        """Begin nothing yet.

        Args:
            state: the controller's copies of claims and topologies.
        """
        self._client, self._recorder, self._state, self._in_hand = client, recorder, state, in_hand
        self._networks: Store[PodNetwork] = Store()
        self._addresses: Store[WatchedPodAddress] = Store()
        self._of_network: dict[str, dict[str, PodAddress]] = {}
        self._blocked: dict[str, dict[str, None]] = {}
        self._waiting = WaitingClaims()
        self._gauges = RangeGauges()
        self._releases = AddressReleases(
            client,
            state,
            self._networks,
            self._addresses,
            lambda name: self._of_network.get(name, {}).values(),
            in_hand,
        )
        self._ledgers = NetworkLedgers(self._networks, self._addresses, self._of_network, self._releases.unassigned)
        self._finalizers = NetworkFinalizers(client, self._networks, self._is_used)
        self._assigner = AddressAssigner(
            client, recorder, self._addresses, self._ledgers, self._releases, self._waiting, self._finalizers.protect
        )
        self._prospects = Prospects(self._assigner, self._ledgers, self._releases, self._waiting)
        self._labels, self._reminders = NodeLabels(client), Reminders()
        self.claims: WorkQueue[str] = WorkQueue("addresses", self._claim, workers=WORKERS)
        self._children = ClaimChildren(
            client,
            state,
            lambda topology: topology.asks_addresses,
            self.claims.add,
            recheck=self._look_at,
            allotment=_allotted,
            is_awaited=self._assigner.is_unsure,
        )
        self.withheld: WorkQueue[str] = WorkQueue("withheld-addresses", self._stop_withholding)
        self.statuses: WorkQueue[str] = WorkQueue("pod-networks", self._status)
        self.shares = NetworkShares(client, recorder, state, self._networks, self._ledgers.known, in_hand)

    @property
    def store(self) -> Store[WatchedPodAddress]:
        """The PodAddresses by name."""
        return self._addresses

    async def run(self) -> None:
        """Work until cancelled."""
        state = self._state
        with ExitStack() as following:
            following.callback(self._gauges.clear)
            async with asyncio.TaskGroup() as tasks:
                following.enter_context(self._networks.following(self._on_network_change))
                following.enter_context(self._addresses.following(self._on_address_change))
                following.enter_context(state.nodes.following(self._on_node_change))
                tasks.create_task(Reflector(self._client, POD_NETWORKS, self._networks, vital=False).run())
                tasks.create_task(Reflector(self._client, WATCHED_ADDRESSES, self._addresses, vital=False).run())
                await self._networks.wait_synced()
                for name in self._networks.objects:
                    self._ledgers.known(name)  # addresses are counted as they come, while the API server sends others
                for store in (self._addresses, state.claims, state.topologies, state.nodes):
                    await store.wait_synced()  # without the nodes, an address that a pod has could be assigned again
                for name in self._networks.objects:
                    self._ledgers.hold(name)  # it is known by now which addresses cannot be read
                self._children.follow(following)
                for key in self._without_addresses():
                    self.claims.add(key)
                for key in self._children:
                    self.claims.add_last(key)
                tasks.create_task(self.claims.run())
                tasks.create_task(self._releases.kept.run())
                tasks.create_task(self.withheld.run())
                tasks.create_task(self.statuses.run())
                tasks.create_task(self.shares.run())
                await self._look_at_all_outdated()

    def _without_addresses(self) -> list[str]:
        """The claims that ask for addresses and have none, the oldest first."""
        asking = ((claim.metadata.creation_timestamp or "", key) for key, claim in self._children.asking())
        return [key for _, key in sorted(asking) if key not in self._children]

    def _look_at(self, key: str) -> None:
        """Queue a claim that did not change itself: at once, or after all others if it has addresses."""
        if key in self._children:
            self.claims.add_last(key)
        else:
            self.claims.add(key)

    def _on_network_change(self, change: Change[PodNetwork]) -> None:
        self._finalizers.note(change)
        if change.old is not None and change.new is not None and change.old.spec == change.new.spec:
            ledger = self._ledgers.made(change.key)
            if ledger is not None:
                ledger.network = change.new
            if change.old.metadata.finalizers != change.new.metadata.finalizers:
                self.statuses.add(change.key)
            if change.old.metadata.deletion_timestamp == change.new.metadata.deletion_timestamp:
                return
        else:
            self._ledgers.forget(change.key)
        self.statuses.add(change.key)
        self.shares.recount(change.key)
        for key in (*self._blocked.pop(change.key, {}), *self._waiting.of_limits(change.key)):
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
                self._children.add(claim_of(after), after.name)
                if claim_of(after) not in self._state.claims.objects:
                    self._look_at(claim_of(after))
        self._releases.note_address(change)
        if after is None:
            self._assigner.outdated.discard(change.key)
        ledger = self._ledgers.made(network)
        if ledger is not None:
            ledger.put(before, after)
            if (
                after is not None
                and after.spec.claim is not None
                and len(ledger.of(after.spec.owner, after.family)) > 1
            ):
                self.claims.add(claim_of(after))
        if after is None and before is not None:
            if before.spec.claim is not None:
                self._withhold(before)
            else:
                self._look_at_waiting(network, WORKERS)
                self._look_at_waiting(limit_queue(network, before.spec.owner.namespace), WORKERS)
                self._look_at_blocked(network)
        self._count(network)

    def _count(self, network: str) -> None:
        """Count the free addresses of a network again."""
        self.statuses.add(network, STATUS_SECONDS)
        self.shares.recount(network)

    def _withhold(self, address: WatchedPodAddress) -> None:
        """An administrator has deleted the address of a claim, perhaps of a running pod: its owner comes first."""
        network = self._networks.objects.get(address.spec.network)
        if network is not None:
            self._ledgers.withhold(address)
            self.withheld.add(address.name, max(1.0, network.spec.quarantine))
        self.claims.add(claim_of(address))

    async def _stop_withholding(self, name: str) -> None:
        network = self._ledgers.stop_withholding(name)
        self._look_at_waiting(network, WORKERS)
        self._count(network)

    def _drop(self, address: PodAddress) -> None:
        del self._of_network[address.spec.network][address.name]
        if address.spec.claim is not None:
            self._children.remove(claim_of(address), address.name)

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
        for address in self._of_network.get(network, {}).values():
            self._look_if_outdated(address)

    async def _look_at_all_outdated(self) -> None:
        """As `_look_at_outdated` of each network, beside other work."""
        for number, name in enumerate([*self._addresses.objects]):
            if (address := self._addresses.objects.get(name)) is not None:
                self._look_if_outdated(address)
            if number % TURN == TURN - 1:
                await asyncio.sleep(0)

    def _look_if_outdated(self, address: PodAddress) -> None:
        ledger = self._ledgers.known(address.spec.network) if address.spec.claim is not None else None
        if ledger is not None and not assignments.is_current(ledger, address):
            self._assigner.outdated.add(address.name)
            self._look_at(claim_of(address))

    def _on_node_change(self, change: Change[NodeNetworkReport]) -> None:
        before, after = (_of_addresses(report) for report in (change.old, change.new))
        if before == after:
            return
        for name in {entry.network for entry in (*before[0], *after[0])}:
            self._ledgers.hold(name)
            self._count(name)
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
                if await self._is_unchanged(key, claim_use, claim_use.status.allocation.node):
                    return None
                claim = await self._children.read(key)
                return AGAIN if claim is None else await self._assign(key, claim)
            except (ConflictError, NotFoundError) as problem:
                log.debug("addresses of claim %s changed meanwhile: %s", key, problem)
                return AGAIN
            except InvalidInputError:
                self._waiting.leave(key)  # others must not wait for it
                raise

    async def _assign(self, key: str, claim: ResourceClaim) -> float | None:
        """Have the addresses of an allocated claim as they should be; returns when to look again."""
        wanted = pod_addresses.wanted(claim, self._state.topologies.objects)
        node = node_of(claim)
        labels = await self._labels.read(node) if node and self._needs_labels(wanted) else {}
        self._waiting.note_pod(key, _pod_of(claim, _user_of(claim)))
        problems = await self._give_back(key, claim) or await self._assigner.assign(key, claim, wanted, labels)
        self._report(key, claim, problems)
        again = self._wait(key, claim.metadata.namespace, problems, labels)
        await self._release_unwanted(key, claim, wanted)
        if again is not None:
            self.claims.add(key, again)
        return None

    async def _is_unchanged(self, key: str, claim: WatchedClaim, node: str) -> bool:
        """Whether nothing has to be written or reported for an allocated claim, by its copy in memory.

        Raises:
            NetdraError: the claim does not fit its topology.
        """
        wanted = pod_addresses.wanted(claim.known, self._state.topologies.objects)
        labels = await self._labels.read_recent(node) if node and self._needs_labels(wanted) else {}
        self._waiting.note_pod(key, _pod_of(claim, claim.status.pod))
        problems = await self._prospects.problems(key, claim, self.of_claim(key), wanted, labels)
        if problems is None or (problems and self._reminders.is_due(key, _in_short(claim.metadata.uid, problems))):
            return False
        again = self._wait(key, claim.metadata.namespace, problems, labels)
        if again is not None:
            self.claims.add(key, again)
        return True

    def _wait(
        self, key: str, namespace: str, problems: Mapping[str, AddressError], labels: Mapping[str, str]
    ) -> float | None:
        """Have a claim wait for the addresses that it lacks; returns after how many seconds it is checked again."""
        full = [network for network, problem in problems.items() if isinstance(problem, NoFreeAddressError)]
        limited = [network for network, problem in problems.items() if isinstance(problem, NamespaceLimitError)]
        if not full and not limited:
            self._waiting.leave(key)
        else:
            self._waiting.wait(key, (*full, *(limit_queue(network, namespace) for network in limited)), labels)
            for network in limited:
                if self._waiting.withdraw(key, network):  # others must not wait for it
                    self._look_at_waiting(network, WORKERS)
            for other in self._waiting.later(key):
                if any(address.spec.network in (*full, *limited) for address in self.of_claim(other)):
                    self.claims.add(other)  # it may have to give its addresses back
            for network in full:
                self._ledgers.hold(network)  # some reports of nodes count for a time
        for network in problems.keys() - {*full, *limited}:
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
            is_needed = self._waiting.must_give_back(key, network)
            queue = limit_queue(network, claim.metadata.namespace)
            if not is_needed and not self._waiting.must_give_back(key, queue):
                continue
            if assignments.is_attached(claim, address):
                continue
            await self._releases.release(address, gives_back=True)
            text = "the pod waits for addresses of its other claims, and this one goes to a pod that has waited longer"
            hint = "delete claims that have addresses: kubectl get podaddresses"
            problems[network] = (
                NoFreeAddressError(
                    f'PodNetwork "{network}" has no free address: {text}', hint=f"add a range, or {hint}", code="ND3029"
                )
                if is_needed
                else NamespaceLimitError(
                    f'PodNetwork "{network}" has a limit for namespaces: {text}', hint=hint, code="ND3030"
                )
            )
        return problems

    async def _release_unwanted(self, key: str, claim: ResourceClaim, wanted: Iterable[WantedAddresses]) -> None:
        """Release the addresses that an allocated claim no longer needs."""
        owners = {(entry.network, entry.owner) for entry in wanted}
        for address in self.of_claim(key):
            ledger = self._ledgers.known(address.spec.network)
            if (address.spec.network, address.spec.owner) not in owners:
                await self._release_one(address)
            elif (
                ledger is not None
                and address.family not in ledger.families
                and not self._assigner.is_in_use(address, claim)
            ):
                await self._releases.release(address)

    def _needs_labels(self, wanted: Iterable[WantedAddresses]) -> bool:
        return needs_labels(self._networks.objects.get(entry.network) for entry in wanted)

    async def _release(self, key: str) -> float | None:
        """Release the addresses of a claim that is gone or not allocated; returns when to look again."""
        self._assigner.forget(key)
        self._reminders.forget(key)
        for blocked in self._blocked.values():
            blocked.pop(key, None)
        self._waiting.forget(key)
        self._releases.forget_claim(key)
        for address in self.of_claim(key):
            await self._release_one(address)
        return None

    async def _release_one(self, address: PodAddress) -> None:
        """Release an address if its claim is over. A named claim that is not allocated keeps it."""
        if await self._releases.is_over(address):
            await self._releases.release(address)

    async def _status(self, name: str) -> float | None:
        network = self._networks.objects.get(name)
        if network is None:
            self._gauges.forget(name)
            return None
        with self._in_hand():
            ledger = self._ledgers.known(name)
            users = self._users(name) if network.metadata.deletion_timestamp else ()
            status = assignments.network_status(network, ledger, self._ledgers.findings(name), now(), users)
            self._gauges.note(name, status.ranges, ledger.free if ledger is not None else ())
            try:
                if await self._finalizers.update(name):
                    return None
                await write_status(self._client, self._recorder, POD_NETWORKS, network, status)
            except (ConflictError, NotFoundError):
                return AGAIN
        return None

    def _users(self, network: str) -> list[str]:
        """The claims that have addresses of a network, in order."""
        addresses = self._of_network.get(network, {}).values()
        return sorted({claim_of(address) for address in addresses if address.spec.claim is not None})

    def _is_used(self, network: str) -> bool:
        """Whether a claim has an address of a network, or one was chosen for a claim."""
        ledger = self._ledgers.known(network)
        if ledger is not None:
            return ledger.is_used
        return any(address.spec.claim is not None for address in self._of_network.get(network, {}).values())

    def of_claim(self, key: str) -> list[PodAddress]:
        """The PodAddresses of a claim, `<namespace>/<name>`."""
        return [self._addresses.objects[name] for name in self._children.of(key)]

    def _report(self, key: str, claim: ResourceClaim, problems: Mapping[str, AddressError]) -> None:
        """Report the reasons for missing addresses at the claim and its pod, unless that was done not long ago."""
        if not problems:
            self._reminders.forget(key)
            return
        if not self._reminders.is_due(key, _in_short(claim.metadata.uid, problems)):
            return
        self._reminders.note(key, _in_short(claim.metadata.uid, problems))
        for problem in problems.values():
            for regarding in claim_references(claim.metadata, claim.status.reserved_for):
                self._recorder.emit(
                    Occurrence(
                        regarding=regarding,
                        type="Warning",
                        reason=problem.reason,
                        action="AssignAddress",
                        note=str(problem),
                        next_step=problem.hint,
                    )
                )


def _in_short(uid: str, problems: Mapping[str, AddressError]) -> tuple[str, frozenset[tuple[str, str]]]:
    """A claim's problems as far as a change is news: the text for a full network changes with every release."""
    return uid, frozenset(
        (network, problem.reason if isinstance(problem, NoFreeAddressError) else str(problem))
        for network, problem in problems.items()
    )


def _allotted(claim: WatchedClaim) -> object:
    return allotment(claim), conflicts.reported(claim)


def _pod_of(claim: ResourceClaim | WatchedClaim, user: str) -> str:
    """The uid of a claim's pod, or else of the pod that uses it, or else the claim's own."""
    pod = pod_owner(claim.metadata)
    return pod.uid if pod is not None else user or claim.metadata.uid


def _user_of(claim: ResourceClaim) -> str:
    """The uid of the first pod that a claim is reserved for; "" if none."""
    return next((consumer.uid for consumer in claim.status.reserved_for if consumer.resource == "pods"), "")


def _of_addresses(report: NodeNetworkReport | None) -> AddressReport:
    """The part of a node's report about addresses."""
    status = report.status if report is not None else None
    return (
        AddressReport(status.unassigned_addresses, status.released_version) if status is not None else AddressReport()
    )
