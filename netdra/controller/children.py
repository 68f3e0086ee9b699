"""The children of claims: objects that the controller makes for allocated claims, as NeutronPorts and PodAddresses.

Used by `netdra.controller.neutron.ports` and `netdra.controller.addresses.pod_addresses`. A claim is reconciled if it
has children, or if a topology that it uses asks for some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from netdra.controller.state import State
from netdra.kube.client import Client
from netdra.kube.errors import NotFoundError
from netdra.kube.resources import RESOURCE_CLAIMS
from netdra.kube.store import Change
from netdra.model.claim import ResourceClaim
from netdra.model.topology import NetworkTopology
from netdra.model.watched_claim import WatchedClaim
from netdra.topology.users import topologies_of


def allotment(claim: WatchedClaim) -> tuple[object, ...]:
    """The part of a claim that its children depend on."""
    return claim.metadata.uid, claim.metadata.deletion_timestamp, claim.status.allocation


class ClaimChildren:
    """The names of children by claim, `<namespace>/<name>`, and the changes after which a claim is reconciled."""

    def __init__(
        self,
        client: Client,
        state: State,
        asks: Callable[[NetworkTopology], bool],
        reconcile: Callable[[str], None],
        recheck: Callable[[str], None] | None = None,
        allotment: Callable[[WatchedClaim], object] = allotment,
        is_awaited: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Begin with none.

        Args:
            state: the controller's copies of claims and topologies.
            asks: whether claims that use a topology have children.
            reconcile: called with a claim that has changed.
            recheck: called with a claim whose topology has changed; `reconcile` by default.
            allotment: the part of a claim that its children depend on.
            is_awaited: whether a claim may have a child that is not known yet.
        """
        self._client, self._state = client, state
        self._asks, self._allotment, self._is_awaited = asks, allotment, is_awaited
        self._reconcile, self._recheck = reconcile, recheck or reconcile
        self._names: dict[str, set[str]] = {}

    def __contains__(self, claim: str) -> bool:
        """Whether a claim has children."""
        return claim in self._names

    def __iter__(self) -> Iterator[str]:
        """The claims with children."""
        return iter(self._names)

    def of(self, claim: str) -> list[str]:
        """The names of a claim's children, in order."""
        return sorted(self._names.get(claim, ()))

    def add(self, claim: str, name: str) -> None:
        """Note a child."""
        self._names.setdefault(claim, set()).add(name)

    def remove(self, claim: str, name: str) -> None:
        """A child is gone, or has lost its claim."""
        names = self._names[claim]
        names.discard(name)
        if not names:
            del self._names[claim]

    def asking(self) -> Iterator[tuple[str, WatchedClaim]]:
        """The claims whose topologies ask for children."""
        return ((key, claim) for key, claim in self._state.claims.objects.items() if self._is_asking(claim))

    def follow(self, following: ExitStack) -> None:
        """Have claims reconciled that change, or whose topologies do, until the stack is left."""
        following.enter_context(self._state.claims.following(self._on_claim_change))
        following.enter_context(self._state.topologies.following(self._on_topology_change))

    async def read(self, claim: str) -> ResourceClaim | None:
        """A claim as the API server has it; None if it is gone or not allocated.

        Raises:
            ApiError: the API server refuses or does not answer.
        """
        known = self._state.claims.objects.get(claim)
        if known is None or known.status.allocation is None:
            return None
        try:
            stored = await self._client.get(RESOURCE_CLAIMS, known.metadata.name, known.metadata.namespace)
        except NotFoundError:
            return None
        return stored if stored.status.allocation is not None else None

    def _is_asking(self, claim: WatchedClaim | None) -> bool:
        topologies = map(self._state.topologies.objects.get, topologies_of(claim) if claim is not None else ())
        return any(topology is not None and self._asks(topology) for topology in topologies)

    def _on_claim_change(self, change: Change[WatchedClaim]) -> None:
        before, after = change.old, change.new
        if before is not None and after is not None and self._allotment(before) == self._allotment(after):
            return
        if change.key in self._names or self._is_awaited(change.key) or self._is_asking(after):
            self._reconcile(change.key)

    def _on_topology_change(self, change: Change[NetworkTopology]) -> None:
        before, after = change.old, change.new
        if after is not None and self._asks(after) and (before is None or before.spec != after.spec):
            for claim in self._state.users(change.key):
                self._recheck(claim)
