"""Assigns addresses of PodNetworks to claims, and releases them with the claims (decision D68).

Run by `netdra.controller.daemon` while this process leads. `netdra.controller.assignments` works out the desired
addresses, `netdra.networks.ledger` chooses them. An address is assigned when its PodAddress is created: the API server
refuses a second object of the name, so nothing is lost or assigned twice when this process dies, or another one works
at the same time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from datetime import UTC, datetime

from msgspec.structs import replace

from netdra.controller import assignments, conflicts, metrics
from netdra.controller.assignments import WantedAddresses
from netdra.controller.network_shares import NetworkShares
from netdra.controller.neutron_ports import node_of
from netdra.controller.state import State
from netdra.controller.writing import claim_references, write_status
from netdra.kube.client import Client
from netdra.kube.errors import AlreadyExistsError, ConflictError, NotFoundError, RefusedError
from netdra.kube.events import Occurrence, Recorder
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.kube.reflector import Reflector
from netdra.kube.resources import (
    NODE_NAMES,
    NODE_READINESS,
    POD_ADDRESSES,
    POD_NETWORKS,
    RESOURCE_CLAIMS,
    WATCHED_ADDRESSES,
)
from netdra.kube.store import Change, Store, key_of
from netdra.model.claim import ClaimUse, ResourceClaim
from netdra.model.findings import Finding
from netdra.model.node_network import NodeNetworkReport
from netdra.model.pod_address import Family, PodAddress, WatchedPodAddress
from netdra.model.pod_network import PodNetwork
from netdra.model.topology import NetworkTopology
from netdra.model.watched_claim import WatchedClaim
from netdra.networks.errors import AddressError, AddressHeldError, NoPodNetworkError, NotAllowedError
from netdra.networks.ledger import ChosenAddress, NetworkLedger
from netdra.rules import pod_networks
from netdra.topology.users import topologies_of

log = logging.getLogger(__name__)

WORKERS = 8
"""How many claims are worked on at a time."""
STATUS_SECONDS = 1.0
"""How long further changes are waited for before a PodNetwork's status is written."""
WAIT_SECONDS = 30.0
"""Seconds until a claim without an address is looked at again; a release in its network has it looked at at once."""
EXPIRY_SECONDS = 5.0
"""Seconds between two looks for addresses of a network that were kept long enough."""
HELD_SECONDS = 5.0
"""Seconds until an address is looked at again that a pod may still have."""
_TRIES = 64
"""How many addresses are tried for a step, where another controller has assigned those that were chosen."""


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
        self._waiting: dict[str, dict[str, None]] = {}
        self.claims: WorkQueue[str] = WorkQueue("addresses", self._claim, workers=WORKERS)
        self.kept: WorkQueue[str] = WorkQueue("kept-addresses", self._expire)
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
                tasks.create_task(self.kept.run())
                tasks.create_task(self.statuses.run())
                tasks.create_task(self.shares.run())

    def _asks(self, claim: ClaimUse | None) -> bool:
        topologies = topologies_of(claim) if claim is not None else ()
        present = map(self._state.topologies.objects.get, topologies)
        return any(topology is not None and topology.asks_addresses for topology in present)

    def _on_claim_change(self, change: Change[WatchedClaim]) -> None:
        before, after = change.old, change.new
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
        self._look_at_waiting(change.key)
        self._look_at_outside(change.key)
        self.kept.add(change.key)

    def _on_address_change(self, change: Change[WatchedPodAddress]) -> None:
        before, after = change.old, change.new
        latest = after or before
        assert latest is not None
        network = latest.spec.network
        if before is not None:
            self._drop(before)
        if after is not None:
            self._of_network.setdefault(network, {})[after.name] = after
            if after.spec.claim is None:
                self.kept.add(network, EXPIRY_SECONDS)
            else:
                self._by_claim.setdefault(_claim_of(after), set()).add(after.name)
                if _claim_of(after) not in self._state.claims.objects:
                    self.claims.add(_claim_of(after))
        ledger = self._ledgers.get(network)
        if ledger is not None:
            ledger.put(before, after)
            if (
                after is not None
                and after.spec.claim is not None
                and len(ledger.of(after.spec.owner, after.family)) > 1
            ):
                self.claims.add(_claim_of(after))
        if after is None:
            self._look_at_waiting(network, WORKERS)
            if before is not None and before.spec.claim is not None:
                self.claims.add(_claim_of(before))  # an administrator may have deleted that of a running pod
        self.statuses.add(network, STATUS_SECONDS)
        self.shares.recount(network)

    def _drop(self, address: PodAddress) -> None:
        del self._of_network[address.spec.network][address.name]
        if address.spec.claim is not None:
            names = self._by_claim[_claim_of(address)]
            names.discard(address.name)
            if not names:
                del self._by_claim[_claim_of(address)]

    def _look_at_waiting(self, network: str, count: int = 0) -> None:
        """Look again at claims that wait for an address of a network, the first ones; at all if no number is given."""
        waiting = self._waiting.get(network, {})
        for key in [*waiting][: count or None]:
            del waiting[key]
            self.claims.add(key)

    def _look_at_outside(self, network: str) -> None:
        """Look again at claims with an address of a range that a network no longer has."""
        ledger = self._known_ledger(network)
        if ledger is not None:
            for address in self._of_network.get(network, {}).values():
                if address.spec.claim is not None and not ledger.has(address):
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
            self._ledgers[name] = None if findings else NetworkLedger(network, addresses)
            self._hold(name)
        return self._ledgers[name]

    def _hold(self, name: str) -> None:
        """Have the ledger of a network count on the addresses that nodes report as their pods'."""
        ledger = self._ledgers.get(name)
        if ledger is not None:
            ledger.hold(conflicts.unassigned(self._state.nodes.objects.values(), name))

    def _on_node_change(self, change: Change[NodeNetworkReport]) -> None:
        reports = (report.status for report in (change.old, change.new) if report is not None)
        for name in {entry.network for report in reports if report for entry in report.unassigned_addresses}:
            self._hold(name)
            self._look_at_waiting(name, WORKERS)

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

    async def _assign(self, key: str, claim: ResourceClaim) -> float | None:
        """Have the addresses of an allocated claim as they should be; returns when to look again."""
        wanted = assignments.wanted(claim, self._state.topologies.objects)
        labels = await self._labels(wanted, node_of(claim))
        again = None
        for entry in wanted:
            try:
                await self._assign_step(key, claim, entry, labels)
            except AddressError as problem:
                self._report(claim, problem)
                if not isinstance(problem, AddressHeldError):
                    self._waiting.setdefault(entry.network, {})[key] = None
                again = HELD_SECONDS if isinstance(problem, AddressHeldError) else WAIT_SECONDS
        owners = {(entry.network, entry.owner) for entry in wanted}
        for address in self.of_claim(key):
            if (address.spec.network, address.spec.owner) not in owners:
                again = await self._release_one(address) or again
        if again is not None:
            self.claims.add(key, again)
        return None

    async def _labels(self, wanted: tuple[WantedAddresses, ...], node: str) -> Mapping[str, str]:
        """The labels of a claim's node, if a range of its networks is for certain nodes only."""
        networks = [self._networks.objects.get(entry.network) for entry in wanted]
        ranges = (entry for network in networks if network is not None for entry in network.spec.ranges)
        if not node or all(entry.node_selector is None for entry in ranges):
            return {}
        return (await self._client.get(NODE_NAMES, node)).metadata.labels

    async def _assign_step(
        self, key: str, claim: ResourceClaim, entry: WantedAddresses, labels: Mapping[str, str]
    ) -> None:
        """Assign an address of each family to a step.

        Raises:
            AddressError: none exists for it.
        """
        ledger = self._ledger(entry.network)
        namespaces = ledger.network.spec.namespaces
        if namespaces and claim.metadata.namespace not in namespaces:
            raise NotAllowedError(
                f'PodNetwork "{entry.network}" is not for namespace "{claim.metadata.namespace}"',
                hint=f"its spec.namespaces has {', '.join(namespaces)}",
            )
        for family in ledger.families:
            await self._assign_family(key, claim, entry, family, labels)

    async def _assign_family(
        self,
        key: str,
        claim: ResourceClaim,
        entry: WantedAddresses,
        family: Family,
        labels: Mapping[str, str],
    ) -> None:
        for _ in range(_TRIES):
            ledger = self._ledger(entry.network)
            own = ledger.of(entry.owner, family)
            present = own[0] if own else None
            if present is not None and conflicts.is_conflicting(claim, present):
                await self._set_aside(present, ledger)
                present = None
            if present is not None and present.spec.claim is not None and present.spec.claim.uid != claim.metadata.uid:
                await self._check_released(present)
            elif present is not None and self._is_in_use(present, claim):
                await self._withdraw(present, own[1:], claim)
                return  # whatever the ranges say now
            chosen = ledger.choose(family, entry.owner, labels, entry.requested, entry.group, conflicts.attached(claim))
            address = assignments.address_of(ledger, chosen, entry.owner, claim.metadata, node_of(claim))
            if present is not None and present.name == address.name:
                await self._hand_over(present, address)
                await self._withdraw(present, own[1:], claim)
                return
            self._chosen.setdefault(key, []).append((entry.network, chosen))
            if await self._create(address, ledger):
                self._forget(key, chosen)
                if present is not None:  # of a range that is not for the claim's node
                    await self._client.delete(POD_ADDRESSES, present)
                return
            self._forget(key, chosen)
        raise AddressError(f'PodNetwork "{entry.network}": other controllers assign all addresses that are chosen')

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
            with suppress(NotFoundError):
                stored = await self._client.get(POD_ADDRESSES, address.name)
                if (stored.spec.owner, stored.spec.claim) == (address.spec.owner, address.spec.claim):
                    return True
                if address.name not in self._addresses.objects:
                    ledger.put(None, stored)
            return False
        except RefusedError:
            ledger.put_back(address)
            raise
        metrics.ADDRESS_WRITES.labels("create").inc()
        return True

    async def _hand_over(self, present: PodAddress, address: PodAddress) -> None:
        """Give an owner's present address to its new claim, or to the node that the claim was allocated on."""
        if (present.spec.claim, present.spec.node_name) == (address.spec.claim, address.spec.node_name):
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
        ledger.put(address, await self._client.replace(POD_ADDRESSES, conflicts.set_aside(address, _now())))
        metrics.ADDRESS_WRITES.labels("update").inc()
        metrics.CONFLICTS.inc()
        self._recorder.emit(conflicts.occurrence(ledger.network, address))

    async def _check_released(self, address: PodAddress) -> None:
        """Return if no pod can have an address of another claim any more.

        Raises:
            AddressHeldError: one may have it.
        """
        if not await self._is_released(address):
            assert address.spec.claim is not None
            claim = f"{address.spec.owner.namespace}/{address.spec.claim.name}"
            raise AddressHeldError(
                f'PodAddress "{address.name}" still belongs to ResourceClaim "{claim}"',
                hint="it is assigned once that claim is deleted and its node is ready",
            )

    async def _release(self, key: str) -> float | None:
        """Release the addresses of a claim that is gone or not allocated; returns when to look again."""
        for network, chosen in self._chosen.pop(key, ()):
            ledger = self._ledgers.get(network)
            if ledger is not None:
                ledger.forget(chosen)
        for waiting in self._waiting.values():
            waiting.pop(key, None)
        delays = [delay for address in self.of_claim(key) if (delay := await self._release_one(address))]
        if delays:
            self.claims.add(key, min(delays))
        return None

    async def _release_one(self, address: PodAddress) -> float:
        """Delete an address, or keep it for its owner's next claim; returns when to look again, 0 for never."""
        if not await self._is_released(address):
            # A named claim that is not allocated keeps its address: its next change, or its end, is seen.
            exists = _claim_of(address) in self._state.claims.objects
            return 0.0 if exists and not address.spec.owner.pod else HELD_SECONDS
        network = self._networks.objects.get(address.spec.network)
        ledger = self._known_ledger(address.spec.network)
        keeps = network is not None and network.spec.keep > 0 and assignments.is_kept(address.spec.owner)
        if keeps and ledger is not None and ledger.has(address):
            await self._client.replace(POD_ADDRESSES, assignments.kept(address, _now()))
            metrics.ADDRESS_WRITES.labels("update").inc()
        else:
            await self._client.delete(POD_ADDRESSES, address)
            metrics.ADDRESS_WRITES.labels("delete").inc()
        return 0.0

    async def _is_released(self, address: PodAddress) -> bool:
        """Whether no pod can use an address, by the API server's present state: a watch may be behind.

        The kubelet unprepares a claim before its reservation is removed, so a claim that is gone or deallocated is in
        no pod, unless its pod was deleted by force, without a wait for the node. A named claim keeps its address
        as long as it exists.
        """
        assert address.spec.claim is not None
        try:
            claim = await self._client.get(RESOURCE_CLAIMS, address.spec.claim.name, address.spec.owner.namespace)
        except NotFoundError:
            return await self._is_off(address.spec.node_name)
        if claim.metadata.uid != address.spec.claim.uid:
            return await self._is_off(address.spec.node_name)
        if claim.status.allocation is None:
            return bool(address.spec.owner.pod) and await self._is_off(address.spec.node_name)
        if assignments.is_attached(claim, address):
            return False  # whatever the topology says now: a pod keeps the network that was prepared
        wanted = assignments.wanted(claim, self._state.topologies.objects)
        return all((entry.network, entry.owner) != (address.spec.network, address.spec.owner) for entry in wanted)

    async def _is_off(self, node: str) -> bool:
        """Whether no pod can run on a node that its kubelet cannot end."""
        if not node:
            return True
        try:
            return not (await self._client.get(NODE_READINESS, node)).may_run_pods
        except NotFoundError:
            return True

    async def _expire(self, name: str) -> float | None:
        """Delete the addresses of a network that were kept long enough."""
        network, now, shortest = self._networks.objects.get(name), _now(), math.inf
        for address in [*self._of_network.get(name, {}).values()]:
            if address.spec.claim is not None:
                continue
            if address.spec.conflict_since:
                left = conflicts.seconds_left(address, now)
            else:
                left = assignments.seconds_left(address, network, now)
            if left > 0:
                shortest = min(shortest, left)
                continue
            with self._in_hand(), suppress(ConflictError, NotFoundError):
                await self._client.delete(POD_ADDRESSES, address)
                metrics.ADDRESS_WRITES.labels("delete").inc()
        if shortest < math.inf:
            self.kept.add(name, max(shortest, EXPIRY_SECONDS))
        return None

    async def _status(self, name: str) -> float | None:
        network = self._networks.objects.get(name)
        if network is None:
            return None
        with self._in_hand():
            ledger = self._known_ledger(name)
            status = assignments.network_status(network, ledger, self._findings[name], _now())
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


def _now() -> datetime:
    return datetime.now(UTC)
