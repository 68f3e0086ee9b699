"""The addresses of PodNetworks that the claims of this node have: awaited at Prepare, reported, and lost again.

The PodAddresses are followed from the first claim on that may get one (`addresses`): a node without such claims never
imports that module. A claim whose address was released, or has other settings now, is prepared again, unless a pod has
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from netdra.kube.client import Client
from netdra.kube.store import Change
from netdra.model.errors import NetdraError, TemporaryError
from netdra.model.node_network import AddressReport
from netdra.model.plan import ClaimReference, Plan
from netdra.model.pod_address import PodAddress
from netdra.node.claims.checks import named
from netdra.node.claims.lookup import PlansInUse
from netdra.node.claims.refused import RefusedAddresses
from netdra.node.claims.store import ClaimStore, PreparedClaim
from netdra.node.claims.unassigned import addresses_of, report
from netdra.ops.logs import fields
from netdra.topology.devices import DeviceKey

if TYPE_CHECKING:
    from netdra.node.claims.addresses import NodeAddresses

log = logging.getLogger(__name__)


@dataclass
class AssignedAddresses:
    """The addresses of one node's claims.

    Attributes:
        plans: the recorded plans; those that lose an address are dropped.
        refused: the addresses with which no pod may start.
    """

    client: Client
    node: str
    store: ClaimStore
    plans: PlansInUse
    refused: RefusedAddresses
    _followed: NodeAddresses | None = None
    _watching: ExitStack = field(default_factory=ExitStack)
    _lost: Callable[[], None] = lambda: None
    _drops: set[asyncio.Task[None]] = field(default_factory=set)

    async def aclose(self) -> None:
        """Follow no addresses any longer."""
        self._watching.close()
        await asyncio.gather(*self._drops, return_exceptions=True)
        if self._followed is not None:
            await self._followed.aclose()

    async def follow(self, wanted: Callable[[], Awaitable[None]], changed: Callable[[], None]) -> None:
        """Follow the addresses of the node's claims once there may be any.

        Args:
            wanted: returns once claims of the node may get addresses.
            changed: called when a claim may have lost an address, or an address was released.
        """
        self._lost = changed
        records: Sequence[PreparedClaim] = ()
        with suppress(NetdraError):  # where the disk cannot be read, they are followed from the next claim on
            records = await asyncio.to_thread(self.store.all)
        if not any(True for record in records for _ in addresses_of(record)):
            await wanted()
        followed = self._begin()
        followed.follow()
        await followed.store.wait_synced()
        changed()

    async def report(self) -> AddressReport:
        """The addresses that claims of this node were prepared with and that no PodAddress assigns to them."""
        if self._followed is None or not self._followed.store.synced:
            return AddressReport()
        present = tuple(self._followed.store.objects.values())
        return await asyncio.to_thread(lambda: report(self.store.all(), present))

    async def wait(
        self, claim: ClaimReference, plans: Sequence[Plan], wired: Mapping[DeviceKey, Any], seconds: float
    ) -> tuple[Plan, ...]:
        """The plans of a claim with the addresses of its steps, once all of them are assigned.

        Args:
            claim: the claim.
            plans: the claim's.
            wired: the physical networks of the node's devices.
            seconds: for how long to wait at most.

        Raises:
            NetdraError: as of `NodeAddresses.wait_assigned`.
        """
        refused = {entry.address for entry in self.refused.of(claim)}
        return await self._begin().wait_assigned(plans, wired, seconds, refused)

    def check(self, made: PreparedClaim) -> None:
        """Check that a claim still has its addresses, now that its record reports them as in use.

        A report that was made before does not have them, so they may be another claim's by now.

        Raises:
            TemporaryError: one was released meanwhile.
        """
        for _, address, name in addresses_of(made):
            entry = self._begin().store.objects.get(name)
            if entry is None or entry.spec.claim is None or entry.spec.claim.uid != made.claim.uid:
                self.plans.drop(made.claim.uid)
                raise TemporaryError(
                    f"{named(made.claim)}: address {address} was released while the claim was prepared",
                    hint="the pod is tried again by itself",
                    code="ND2147",
                )

    def _begin(self) -> NodeAddresses:
        from netdra.node.claims.addresses import NodeAddresses  # a node without such claims never needs it

        if self._followed is None:
            self._followed = NodeAddresses(self.client, self.node)
            self._watching.enter_context(self._followed.store.following(self._on_change))
        return self._followed

    def _on_change(self, change: Change[PodAddress]) -> None:
        before, after = (entry.spec if entry is not None else None for entry in (change.old, change.new))
        if after is not None and after.claim is None:
            self._lost()  # it is not assigned again before the node has reported
        if before is None or before.claim is None or before == after:
            return
        with suppress(NetdraError):
            if self.store.has(before.claim.uid):
                task = asyncio.create_task(self._drop_unused(before.claim.uid))
                self._drops.add(task)
                task.add_done_callback(self._drops.discard)

    async def _drop_unused(self, uid: str) -> None:
        """Have a claim prepared again whose address was released, or has other settings now, unless a pod has it."""
        try:
            await self.plans.drop_unused(uid)
        except NetdraError as problem:
            log.warning("%s", problem, extra=fields(claim=uid))
        self._lost()
