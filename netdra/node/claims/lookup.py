"""The plans of prepared claims for the hook of a pod that begins, and the plans that no pod may use any more.

The kubelet remembers that it has prepared a claim and does not ask again, even if the record is lost. So a claim
whose record is missing, unreadable, or of a netdra without plans is prepared again when a pod's hook needs it. A plan
whose addresses have gone to others is removed from its record: the next hook has the claim prepared again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from netdra.chain.report import DuplicateAddress
from netdra.model.errors import TemporaryError
from netdra.model.plan import ClaimReference
from netdra.node.claims.checks import named
from netdra.node.claims.refused import RefusedAddresses
from netdra.node.claims.store import ClaimStore, PreparedClaim
from netdra.node.priority import Turns
from netdra.node.view import SandboxHolder
from netdra.ops.boot import boot_id


@dataclass
class PlansInUse:
    """The recorded plans, and which of them hooks and sandboxes use: these stay as they are."""

    store: ClaimStore
    holder: SandboxHolder
    turns: Turns
    _hooked: Counter[str] = field(default_factory=Counter)
    _dropping: set[str] = field(default_factory=set)

    def of(self, uid: str) -> PreparedClaim | None:
        """A claim's record if a hook can use its plan. A record that is in memory costs one system call.

        Raises:
            NetdraError: as of `ClaimStore.get`.
        """
        record = self.store.get(uid) if uid not in self._dropping else None
        if record is not None and record.plan is not None and record.boot_id == boot_id():
            return record
        return None

    @contextmanager
    def hooked(self, claims: Sequence[ClaimReference]) -> Iterator[None]:
        """A hook uses the plans of claims: they stay as they are."""
        self._hooked.update(claim.uid for claim in claims)
        try:
            yield
        finally:
            self._hooked -= Counter(claim.uid for claim in claims)

    async def drop_unused(self, uid: str) -> None:
        """Have a claim prepared again by the next hook, unless a hook or a sandbox has it.

        Raises:
            NetdraError: its record cannot be written.
        """

        async def drop() -> None:
            if self._hooked[uid] or self.holder.has_sandbox(uid):
                return
            self._dropping.add(uid)
            try:
                await asyncio.to_thread(self.drop, uid)
            finally:
                self._dropping.discard(uid)

        await self.turns.run_alone(uid, drop)

    def drop(self, uid: str) -> None:
        """Remove the plan from a claim's record. The caller has the claim's turn.

        Raises:
            NetdraError: the record cannot be read or written.
        """
        with self.store.locked():
            record = self.store.get(uid)
            if record is not None:
                self.store.put(msgspec.structs.replace(record, plan=None))


@dataclass(frozen=True)
class PlanLookup:
    """Gives hooks the plans of claims: `netdra.node.sandboxes.hooks.PlannedClaims`.

    Attributes:
        refused: the addresses with which no pod may start.
        prepare_again: prepares a claim of which no usable record exists, in the claim's turn.
    """

    plans: PlansInUse
    refused: RefusedAddresses
    turns: Turns
    prepare_again: Callable[[ClaimReference], Coroutine[Any, Any, PreparedClaim]]

    def hooked(self, claims: Sequence[ClaimReference]) -> AbstractContextManager[None]:
        """A hook uses the plans of claims: they stay as they are."""
        return self.plans.hooked(claims)

    async def for_hook(self, claim: ClaimReference, until: float) -> PreparedClaim:
        """The record of a claim with its plan, for a pod that begins; the claim is prepared again if none exists.

        It is prepared in the claim's turn, which a caller that leaves does not end: the next hook finds it.

        Args:
            claim: the claim.
            until: when the caller leaves, on the monotonic clock.

        Raises:
            NetdraError: no usable record exists, and the claim could not be prepared in time.
        """
        record = self.plans.of(claim.uid)
        if record is not None:
            return record
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                return await self.turns.run_alone(claim.uid, lambda: self.prepare_again(claim))
        except TimeoutError:
            what = f"{named(claim)} has no record on this node, and is being prepared again"
            raise TemporaryError(what, hint="the pod is tried again by itself", code="ND2163") from None

    async def refuse_addresses(self, claims: Sequence[ClaimReference], duplicates: Sequence[DuplicateAddress]) -> None:
        """Have claims get other addresses than those that other machines have, and be prepared again by the next hook.

        Raises:
            NetdraError: a record cannot be written.
        """
        self.refused.add(duplicates)
        for claim in claims:
            if any(entry.claim == claim.uid for entry in duplicates):
                await self.turns.run_alone(claim.uid, partial(asyncio.to_thread, self.plans.drop, claim.uid))

    def refused_addresses(self, claim: ClaimReference) -> tuple[DuplicateAddress, ...]:
        """The addresses of a claim that other machines have."""
        return self.refused.of(claim)
