"""Releases addresses of PodNetworks: marks that they have no claim, and deletes them once no pod has them any more.

Run by `netdra.controller.addresses.pod_addresses`. An address without a claim is in quarantine at first, or is kept for
its owner's next claim. It names the node of its former pod until that node has reported that the pod no longer has it
(decision D74); `netdra.networks.departures` decides by the report.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from netdra.controller import metrics
from netdra.controller.addresses import assignments
from netdra.controller.state import InHand, State, now
from netdra.kube.client import Client
from netdra.kube.errors import ConflictError, NotFoundError
from netdra.kube.queue import WorkQueue
from netdra.kube.resources import NODE_READINESS, POD_ADDRESSES, RESOURCE_CLAIMS
from netdra.kube.store import Change, Store, key_of
from netdra.model import ip
from netdra.model.ip import Address
from netdra.model.node_network import UnassignedAddress
from netdra.model.pod_address import PodAddress, WatchedPodAddress, object_name
from netdra.model.pod_network import PodNetwork
from netdra.networks.departures import Intervals, has_left, interval
from netdra.rules import pod_addresses

EXPIRY_SECONDS = 5.0
"""Seconds between two looks for addresses of a network that were kept long enough."""
HELD_SECONDS = 5.0
"""Seconds until an address is looked at again that a pod may still have."""
_NODE_SECONDS = 4.0
"""For how long a node counts as present that was read for another of its addresses."""
UNKNOWN_SECONDS = 3600.0
"""For how long a node may report that its pods have an address, although neither a claim nor a PodAddress shows it."""
_MOST_UNKNOWN = 1024
"""How many such addresses are remembered of a node; further ones do not count."""


class AddressReleases:
    """The addresses of a cluster without a claim, for one term."""

    def __init__(
        self,
        client: Client,
        state: State,
        networks: Store[PodNetwork],
        addresses: Store[WatchedPodAddress],
        of_network: Callable[[str], Iterable[PodAddress]],
        in_hand: InHand,
    ) -> None:
        """Begin nothing yet.

        Args:
            of_network: the PodAddresses of a network.
        """
        self._client, self._state, self._in_hand = client, state, in_hand
        self._networks, self._addresses, self._of_network = networks, addresses, of_network
        self._intervals = Intervals()
        self._given_back: set[str] = set()
        self._awaited: dict[str, str] = {}
        self._leaving: dict[str, dict[str, str]] = {}
        self._unknown: dict[str, dict[tuple[str, str], float]] = {}
        self._present: dict[str, float] = {}
        self.kept: WorkQueue[str] = WorkQueue("kept-addresses", self._expire)

    def note_address(self, change: Change[WatchedPodAddress]) -> None:
        """Take a change of a PodAddress."""
        before, after = change.old, change.new
        if before is not None and before.spec.node_name in self._leaving:
            self._leaving[before.spec.node_name].pop(change.key, None)
            if not self._leaving[before.spec.node_name]:
                del self._leaving[before.spec.node_name]
        if after is None:
            self._intervals.forget(change.key)
            self._given_back.discard(change.key)
            self._awaited.pop(change.key, None)
        elif after.spec.claim is None:
            self.kept.add(after.spec.network, self._first_look(after))
            if after.spec.node_name:
                self._leaving.setdefault(after.spec.node_name, {})[change.key] = after.spec.network

    def _first_look(self, address: PodAddress) -> float:
        network = self._networks.objects.get(address.spec.network)
        return min(EXPIRY_SECONDS, network.spec.quarantine) if network is not None else 0.0

    def note_node(self, node: str) -> tuple[str, ...]:
        """Look again at the released addresses of a node that has reported; returns the claims that wait for them."""
        leaving = self._leaving.get(node, {})
        for network in {*leaving.values()}:
            self.kept.add(network)
        return tuple(self._awaited[name] for name in leaving if name in self._awaited)

    def forget_claim(self, key: str) -> None:
        """A claim waits for no address any more, as it is gone or not allocated."""
        for name in [name for name, other in self._awaited.items() if other == key]:
            del self._awaited[name]

    def await_departure(self, address: PodAddress, key: str) -> None:
        """A claim waits for an address of its owner, so it is not released meanwhile."""
        self._awaited[address.name] = key

    def is_given_back(self, address: PodAddress) -> bool:
        """Whether an address is on its way to claims that waited longer than its owner."""
        return address.name in self._given_back

    async def has_left(self, address: PodAddress) -> bool:
        """Whether no pod has an address of a former claim: its node reports that, or the node is gone for good.

        The status of a claim does not count: the pod's next sandbox may have begun since it was written.
        """
        node = address.spec.node_name
        if not node or has_left(address, self._state.nodes.objects.get(node)):
            return True
        if time.monotonic() < self._present.get(node, -math.inf) + _NODE_SECONDS:
            return False
        try:
            is_off = (await self._client.get(NODE_READINESS, node)).is_off
        except NotFoundError:
            is_off = True
        if is_off:
            self._present.pop(node, None)
        else:
            self._present[node] = time.monotonic()
        return is_off

    async def is_over(self, address: PodAddress) -> bool:
        """Whether the claim of an address has no right to it any more, by the API server's present state.

        A watch may be behind. A named claim keeps its address as long as it exists.
        """
        assert address.spec.claim is not None
        known = self._state.claims.objects.get(key_of(address.spec.owner.namespace, address.spec.claim.name))
        is_same = known is not None and known.metadata.uid == address.spec.claim.uid
        if known is not None and is_same and known.status.allocation is None and not address.spec.owner.pod:
            return False  # a change of it has it looked at again
        try:
            claim = await self._client.get(RESOURCE_CLAIMS, address.spec.claim.name, address.spec.owner.namespace)
        except NotFoundError:
            return True
        if claim.metadata.uid != address.spec.claim.uid:
            return True
        if claim.status.allocation is None:
            return bool(address.spec.owner.pod)
        if assignments.is_attached(claim, address):
            return False  # independent of the present topology: a pod keeps its prepared network
        wanted = pod_addresses.wanted(claim, self._state.topologies.objects)
        return all((entry.network, entry.owner) != (address.spec.network, address.spec.owner) for entry in wanted)

    async def release(self, address: PodAddress, *, gives_back: bool = False) -> None:
        """Mark an address as without a claim; it is deleted after its quarantine, and once it has left its pod.

        Args:
            address: the address of a claim that is over, or that does not need it.
            gives_back: whether claims wait for it, so that its owner's next claim does not get it.
        """
        network, node = self._networks.objects.get(address.spec.network), address.spec.node_name
        if gives_back:
            self._given_back.add(address.name)
        if not node and not interval(address, network, keeps=self._keeps(address)):
            await self._client.delete(POD_ADDRESSES, address)
            metrics.ADDRESS_WRITES.labels("delete").inc()
            return
        await self._client.replace(POD_ADDRESSES, assignments.kept(address, now(), node))
        metrics.ADDRESS_WRITES.labels("update").inc()

    def _keeps(self, address: PodAddress) -> bool:
        return assignments.is_kept(address.spec.owner) and not self.is_given_back(address)

    def _left(self, address: PodAddress) -> float:
        """For how many seconds an address without a claim is still kept or set aside."""
        spec, keeps = address.spec, self._keeps(address)
        is_named = keeps and not spec.owner.pod and not spec.conflict_since
        if address.name in self._awaited or (
            is_named and key_of(spec.owner.namespace, spec.owner.claim) in self._state.claims.objects
        ):
            return math.inf  # a claim with a name of its own keeps its address as long as it exists
        seconds = interval(address, self._networks.objects.get(spec.network), keeps=keeps)
        since = spec.conflict_since or spec.kept_since
        return self._intervals.left(address.name, since, seconds, now()) if seconds < math.inf else seconds

    async def _expire(self, name: str) -> float | None:
        """Delete the addresses of a network that were kept long enough, and that no pod has."""
        shortest = math.inf
        for address in [*self._of_network(name)]:
            if address.spec.claim is not None:
                continue
            left = self._left(address)
            if left > 0:
                shortest = min(shortest, left)
                continue
            with self._in_hand(), suppress(ConflictError, NotFoundError):
                if await self.has_left(address):
                    await self._client.delete(POD_ADDRESSES, address)
                    metrics.ADDRESS_WRITES.labels("delete").inc()
                else:
                    shortest = min(shortest, HELD_SECONDS)
        if shortest < math.inf:
            self.kept.add(name, max(shortest, 0.1))
        return None

    def unassigned(self, network: str) -> Iterable[str]:
        """The addresses of a network, without prefix length, that nodes report although no PodAddress assigns them."""
        for node, report in self._state.nodes.objects.items():
            for entry in report.status.unassigned_addresses if report.status is not None else ():
                if entry.network == network and self._counts(node, entry):
                    yield entry.address

    def of_others(self, network: str, key: str) -> frozenset[Address]:
        """The addresses of a network that nodes report as pods' of other claims, without PodAddresses.

        Args:
            key: the claim whose addresses are left out, as `<namespace>/<name>`.
        """
        reports = (report.status for report in self._state.nodes.objects.values() if report.status is not None)
        entries = [entry for status in reports for entry in status.unassigned_addresses if entry.network == network]
        own = {ip.address(entry.address) for entry in entries if entry.claim == key}
        return frozenset(ip.address(entry.address) for entry in entries) - own

    def _counts(self, node: str, entry: UnassignedAddress) -> bool:
        """Whether a node's report of an address counts: a node must not withhold addresses of other nodes' claims.

        After a restored backup, neither the PodAddress nor the claim may exist. So the report counts for some time.
        """
        stored = self._addresses.objects.get(object_name(entry.network, entry.address))
        if stored is not None:
            return stored.spec.node_name == node
        claim = self._state.claims.objects.get(entry.claim)
        if claim is not None and claim.status.allocation is not None and claim.status.allocation.node == node:
            return True
        known, moment, place = self._unknown.setdefault(node, {}), time.monotonic(), (entry.network, entry.address)
        if place not in known and len(known) >= _MOST_UNKNOWN:
            return False
        return moment < known.setdefault(place, moment) + UNKNOWN_SECONDS
