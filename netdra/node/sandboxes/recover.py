"""Compares the sandboxes that run with their networks, and finishes, confirms or undoes these (decision D12).

Woken by `netdra.node.sandboxes.hooks` when the runtime has listed its sandboxes; works in the background on a queue of
sandboxes, several at a time, each in its turn, so a hook for one waits for its turn. A standing network is left as it
is, whatever its topology says today: a pod that runs keeps the network that it was given.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from functools import partial

from netdra.chain.checkpoint import Saved
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.model.claim import ResourceClaim
from netdra.model.errors import NetdraError
from netdra.node.metrics import REPAIRS
from netdra.node.nri.hooks import Sandbox
from netdra.node.sandboxes.hooks import Attachments
from netdra.node.sandboxes.network import sandbox_of
from netdra.ops.metrics import counted

log = logging.getLogger(__name__)

AT_ONCE = 3  # of the pool's threads; the others are for hooks
LOOKUP_SECONDS = 10.0
ATTACH_SECONDS = 20.0
FIRST_WAIT, MOST_WAIT = 1.0, 60.0


@dataclass
class Reconciler:
    """Brings every sandbox that runs to the network of its claims.

    Attributes:
        _unseen: the sandboxes that may still wait for a claim's network; None until the runtime has listed them.
    """

    attachments: Attachments
    _unseen: set[str] | None = None
    _queue: WorkQueue[str] = field(init=False)

    def __post_init__(self) -> None:
        self._queue = WorkQueue(
            "sandboxes",
            self._look_at,
            workers=AT_ONCE,
            first=FIRST_WAIT,
            most=MOST_WAIT,
            fields=lambda sandbox: {"sandbox": sandbox},
        )

    def look(self) -> None:
        """Look at every sandbox that runs, soon."""
        if self._unseen is None:
            self._unseen = set(self.attachments.table.all_running)
            self._release()
        for sandbox in self.attachments.table.all_running:
            self._queue.add(sandbox)

    async def recover(self) -> None:
        """Before the runtime has listed anything: let containers be made again in pods whose network stands.

        All other CDI specifications of a former process are removed. Specifications that it had not written wait until
        it is known which of the running sandboxes have those claims.
        """
        attachments, network, table = self.attachments, self.attachments.network, self.attachments.table
        stand: list[Saved] = []
        for saved in await attachments.in_thread(network.checkpoints):
            await attachments.in_thread(partial(network.hold, saved))
            try:
                if await attachments.in_thread(partial(network.standing, sandbox_of(saved))) is not None:
                    stand.append(saved)
            except NetdraError as problem:
                _not_yet(saved, problem)
        claims = {plan.claim.uid for saved in stand for plan in saved.header.plans}
        await attachments.in_thread(lambda: table.withhold(claims))
        for saved in stand:
            try:
                async with table.turn(sandbox_of(saved)):
                    await self._confirm(sandbox_of(saved), (), saved)
            except NetdraError as problem:
                _not_yet(saved, problem)
        await attachments.in_thread(table.remove_unattached)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._queue.run()

    async def settled(self) -> None:
        """Wait until every sandbox is as it should be, or gone."""
        await self._queue.drained()

    async def _look_at(self, key: str) -> float | None:
        """Look at a sandbox until it is as it should be, or gone."""
        done = await self._look_in_turn(key)
        if done:
            self._seen(key)
        self._release()
        return None if done else AGAIN

    async def _look_in_turn(self, key: str) -> bool:
        attachments = self.attachments
        listed = attachments.table.running(key)
        if listed is None:
            return True
        async with attachments.table.turn(listed):
            sandbox = attachments.table.running(key)
            if sandbox is None or not await attachments.in_thread(lambda: attachments.network.alive((sandbox,))):
                attachments.table.ended(key)  # with or without a hook; or it has no network of its own
                return True
            try:
                return await self._settle(sandbox)
            except NetdraError as problem:
                log.info("%s", problem)
                return False

    async def _settle(self, sandbox: Sandbox) -> bool:
        attachments, network = self.attachments, self.attachments.network
        saved = None
        if network.has_checkpoint(sandbox.id):
            saved = await attachments.in_thread(lambda: network.standing(sandbox))
        claims: tuple[ResourceClaim, ...] = ()
        unknown: NetdraError | None = None
        try:
            claims = await attachments.tracker.claims_of(sandbox, LOOKUP_SECONDS)
        except NetdraError as problem:
            unknown = problem
        if saved is not None:
            await self._confirm(sandbox, claims, saved)
            self._seen(sandbox.id)
            await self._report_drift(sandbox)
            return unknown is None
        if unknown is not None:
            raise unknown
        if not attachments.table.withholds(claim.metadata.uid for claim in claims):
            self._seen(sandbox.id)
        if claims:
            with counted(REPAIRS):
                await attachments.attach(sandbox, claims, time.monotonic() + ATTACH_SECONDS)
            attachments.events.attached_late(sandbox)
        return True

    def _seen(self, sandbox: str) -> None:
        """A sandbox has its network, or no claim whose specification is withheld."""
        if self._unseen is not None:
            self._unseen.discard(sandbox)

    def _release(self) -> None:
        """Withhold no specification once all sandboxes are seen that ran when the runtime first listed them.

        All other sandboxes begin by a hook, and a claim's specification is away while a hook attaches a sandbox of it.
        """
        if not self._unseen and self.attachments.table.stop_withholding():
            self.look()

    async def _confirm(self, sandbox: Sandbox, claims: tuple[ResourceClaim, ...], saved: Saved) -> None:
        attachments = self.attachments
        outcomes = await attachments.in_thread(lambda: attachments.network.confirm(sandbox, claims, saved))
        attachments.writer.update(outcomes)

    async def _report_drift(self, sandbox: Sandbox) -> None:
        """Report the drift of a pod's network. It is left so: the pod itself may have changed its network."""
        attachments = self.attachments
        drift = await attachments.in_thread(lambda: attachments.network.drift(sandbox))
        if drift:
            attachments.events.changed(sandbox, "; ".join(drift))


def _not_yet(saved: Saved, problem: NetdraError) -> None:
    log.warning("sandbox %s: its containers cannot be made again yet: %s", saved.header.pod.sandbox, problem)
