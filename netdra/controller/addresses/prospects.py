"""Whether a claim's addresses may have to change, by the copies in memory: most claims need not be read.

Used by `netdra.controller.addresses.pod_addresses` before it reads a claim from the API server. A watch may be behind,
so these copies never decide on a write: that is decided by the claim as it is stored.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from netdra.controller.addresses import conflicts
from netdra.controller.addresses.assigning import AddressAssigner
from netdra.controller.addresses.ledgers import NetworkLedgers
from netdra.controller.addresses.releases import AddressReleases
from netdra.kube.client import Client
from netdra.kube.resources import NODE_NAMES
from netdra.model.pod_address import Family, PodAddress
from netdra.model.pod_network import PodNetwork
from netdra.model.watched_claim import WatchedClaim
from netdra.networks.errors import AddressError
from netdra.networks.waiting import WaitingClaims
from netdra.rules import pod_addresses
from netdra.rules.pod_addresses import WantedAddresses

LABELS_SECONDS = 25.0
"""For how long the labels of a node are used that were read for another claim, where nothing is assigned by them."""


class NodeLabels:
    """The labels of nodes, each read at most once in a while."""

    def __init__(self, client: Client) -> None:
        """Begin without any."""
        self._client = client
        self._known: dict[str, tuple[float, Mapping[str, str]]] = {}

    async def read(self, node: str) -> Mapping[str, str]:
        """The labels of a node as they are stored."""
        labels = (await self._client.get(NODE_NAMES, node)).metadata.labels
        self._known[node] = time.monotonic(), labels
        return labels

    async def read_recent(self, node: str) -> Mapping[str, str]:
        """The labels of a node as they were within `LABELS_SECONDS`."""
        since, labels = self._known.get(node, (0.0, {}))
        return labels if node in self._known and time.monotonic() < since + LABELS_SECONDS else await self.read(node)


def needs_labels(networks: Iterable[PodNetwork | None]) -> bool:
    """Whether a range of these networks is for certain nodes only."""
    ranges = (entry for network in networks if network is not None for entry in network.spec.ranges)
    return any(entry.node_selector is not None for entry in ranges)


class Prospects:
    """The prospects of claims, for one term."""

    def __init__(
        self,
        assigner: AddressAssigner,
        ledgers: NetworkLedgers,
        releases: AddressReleases,
        waiting: WaitingClaims,
    ) -> None:
        """Begin."""
        self._assigner, self._ledgers, self._releases, self._waiting = assigner, ledgers, releases, waiting

    async def problems(
        self,
        key: str,
        claim: WatchedClaim,
        own: Iterable[PodAddress],
        wanted: Iterable[WantedAddresses],
        labels: Mapping[str, str],
    ) -> dict[str, AddressError] | None:
        """Why a claim lacks addresses, by network; {} if it has them all; None if something may have to be written.

        Args:
            key: the claim's name, `<namespace>/<name>`.
            own: its PodAddresses.
            wanted: the addresses that it should have.
            labels: those of its node, if a range of its networks is for certain nodes only.
        """
        wanted = tuple(wanted)
        if self._may_release(key, claim, own, wanted):
            return None
        problems: dict[str, AddressError] = {}
        steps = Counter(entry.network for entry in wanted)
        is_complete = True
        for entry in wanted:
            try:
                for family in self._assigner.ledger_for(claim, entry, steps[entry.network]).families:
                    is_complete &= await self._has(key, claim, entry, family, labels)
            except AddressError as problem:
                problems[entry.network] = problem
        return problems if problems or is_complete else None

    def _may_release(
        self, key: str, claim: WatchedClaim, own: Iterable[PodAddress], wanted: Iterable[WantedAddresses]
    ) -> bool:
        """Whether a claim may have addresses that it does not need, or that other pods get."""
        owners = {(entry.network, entry.owner) for entry in wanted}
        for address in own:
            network = address.spec.network
            ledger = self._ledgers.known(network)
            if (network, address.spec.owner) not in owners:
                return True
            if ledger is not None and (
                address.family not in ledger.families or len(ledger.of(address.spec.owner, address.family)) > 1
            ):
                return True
            if self._waiting.must_give_back(key, network) and not claim.status.is_attached:
                return True
        return False

    async def _has(
        self, key: str, claim: WatchedClaim, entry: WantedAddresses, family: Family, labels: Mapping[str, str]
    ) -> bool:
        """Whether a claim has the address of a family for a step, as it should be; False if it may get one.

        Raises:
            AddressError: it gets none now.
        """
        ledger = self._ledgers.of(entry.network)
        present = next(iter(ledger.of(entry.owner, family)), None)
        if present is None and claim.status.is_attached:
            return False  # its pod may have an address, which is not among what is kept of the claim
        if present is not None and not self._is_own(present, claim):
            if present.spec.claim is None and not await self._releases.has_left(present):
                raise pod_addresses.held(present, is_over=True)
            return False
        if present is None:
            allocation = claim.status.allocation
            self._assigner.check_withheld(entry, family, allocation.node if allocation is not None else "")
            self._assigner.check_limit(key, ledger, family, entry.owner)
        earlier = self._assigner.earlier(key, ledger, labels)
        found = ledger.find(family, entry.owner, labels, entry.requested, entry.group, others=earlier)
        return present is not None and found.number == present.number and self._is_current(present, claim)

    def _is_current(self, address: PodAddress, claim: WatchedClaim) -> bool:
        return (
            address.name not in self._assigner.outdated
            and not self._releases.is_given_back(address)
            and address.spec.address.partition("/")[0] not in conflicts.reported(claim)
        )

    @staticmethod
    def _is_own(address: PodAddress, claim: WatchedClaim) -> bool:
        allocation = claim.status.allocation
        is_own = address.spec.claim is not None and address.spec.claim.uid == claim.metadata.uid
        return is_own and allocation is not None and address.spec.node_name == allocation.node
