"""Gives back what is left of pods that are gone: checkpoints, prepared claims, CDI files. At start, and now and then.

Run by `netdra.node.sandboxes.service`. Checkpoints and prepared claims alone have the owners. A network that cannot be given
back is kept, tried again and reported, and its devices are tainted. Plugins are asked to free by themselves what they
alone know, such as leases: at start, after a sandbox was given up, and seldom otherwise.

A containerd that was restarted reports no end of a sandbox that is older than itself (`needsStopping` in its
internal/nri/nri.go knows only sandboxes that it saw begin). So sandboxes that have ended are also looked for when one
may matter: at once and to the end before a claim is given up (`settle`), and soon when a pod has a new sandbox
(`look_at_sandboxes`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from netdra.kube.errors import ApiError, NotFoundError
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.kube.resources import RESOURCE_CLAIMS
from netdra.model.errors import NetdraError, PermanentError
from netdra.model.plan import ClaimReference, Plan
from netdra.node.claims.prepare import Claims
from netdra.node.metrics import ORPHANS
from netdra.node.nri.hooks import Sandbox
from netdra.node.sandboxes.hooks import Attachments
from netdra.node.sandboxes.network import sandbox_of
from netdra.ops.logs import fields
from netdra.ops.metrics import counted

log = logging.getLogger(__name__)

FIRST_WAIT, EVERY_SECONDS = 5.0, 180.0
COLLECT_EVERY_SECONDS = 6 * 3600.0
SECONDS_EACH = 30.0
_EVERYTHING, _SANDBOXES = "everything", "sandboxes"


@dataclass
class Orphans:
    """Looks for sandboxes, claims and files that neither the runtime nor the kubelet will ask us to give back any more.

    Attributes:
        claims: gives a prepared claim up.
        rounds: how often everything was looked at.
    """

    attachments: Attachments
    claims: Claims
    rounds: int = 0
    _suspects: frozenset[str] = frozenset()
    _collect_at: float = -math.inf
    _plans: dict[str, Plan] = field(default_factory=dict)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _queue: WorkQueue[str] = field(init=False)

    def __post_init__(self) -> None:
        self._queue = WorkQueue("orphans", self._look, first=FIRST_WAIT, most=EVERY_SECONDS)

    def look(self) -> None:
        """Look at everything soon."""
        self._queue.add(_EVERYTHING)

    def look_at_sandboxes(self) -> None:
        """Look soon for sandboxes that have ended without a hook."""
        self._queue.add(_SANDBOXES)

    async def run(self) -> None:
        """Look around until cancelled: at once, now and then, and sooner while there is trouble with a sandbox."""
        self.look()
        await self._queue.run()

    async def _look(self, what: str) -> float | None:
        """Look at everything, or at the sandboxes; and at everything again, before its time if there is trouble."""
        await (self.look_around() if what == _EVERYTHING else self._sandboxes())
        if not self.attachments.table.troubles:
            self._queue.add(_EVERYTHING, EVERY_SECONDS)
        elif what == _EVERYTHING:
            return AGAIN
        else:
            self._queue.retry(_EVERYTHING)
        return None

    async def look_around(self) -> None:
        """Give back all that belongs to no pod any more, as far as it can be; one look at a time."""
        async with self._looking:
            await self._look_around()

    async def _look_around(self) -> None:
        await self._sandboxes()
        try:
            await self._collect()
            await self._claims()
            for uid in await self.attachments.in_thread(self.attachments.table.remove_unprepared):
                ORPHANS.labels("cdi", "ok").inc()
                log.info("CDI specification removed: the claim is not prepared", extra=fields(claim=uid))
        except NetdraError as problem:
            log.warning("%s", problem)
        self.rounds += 1

    async def settle(self, uid: str) -> None:
        """Take down what is left of a claim's pods, which have ended: its devices may go to the next pod at once."""
        users = self.attachments.table.users(uid)
        if users:
            with suppress(NetdraError):
                await self._sandboxes(frozenset(users))

    async def _sandboxes(self, only: frozenset[str] | None = None) -> None:
        """Take down sandboxes that run no more: the runtime said so, or their namespace is gone.

        Args:
            only: the sandboxes to look at; None for all.
        """
        attachments, table = self.attachments, self.attachments.table
        checkpoints = await attachments.in_thread(attachments.network.checkpoints)
        saved = {checkpoint.header.pod.sandbox: checkpoint for checkpoint in checkpoints}
        lost = [
            key
            for key, checkpoint in saved.items()
            if await attachments.in_thread(partial(attachments.network.is_of_a_lost_namespace, checkpoint))
        ]
        lost += table.namespaces.lost()
        for key in dict.fromkeys([*lost, *table.to_take_down()]):
            is_being_done = table.is_busy(key) and key not in lost  # such as by the hook of its stop
            if is_being_done if only is None else key not in only:
                continue
            if key in lost:
                table.ended(key)
            if table.running(key) is not None or not attachments.has_anything(key):
                continue
            sandbox = sandbox_of(saved[key]) if key in saved else Sandbox(id=key, name="", namespace="", uid="")
            if key in saved:
                self._plans |= {plan.topology: plan for plan in saved[key].header.plans}
            if attachments.hangs(key):
                attachments.undo_later(sandbox)  # the others do not wait for it
            else:
                await self._take_down(sandbox)

    async def _take_down(self, sandbox: Sandbox) -> None:
        """Take a sandbox down; a failure is reported, and kept as a trouble or given up."""
        try:
            with counted(ORPHANS, "sandbox"):
                await self.attachments.take_down(sandbox, SECONDS_EACH)
        except PermanentError:
            self._collect_at = -math.inf  # the plugin may know by itself what to free
        except NetdraError:
            pass

    async def _collect(self) -> None:
        """Have plugins free what no checkpoint has any more, when it is time.

        Raises:
            TemporaryError: sandboxes are just beginning; it is tried in the next round.
        """
        if time.monotonic() < self._collect_at:
            return
        self._collect_at = time.monotonic() + COLLECT_EVERY_SECONDS
        plans = tuple(self._plans.values())
        try:
            report = await self.attachments.in_thread(lambda: self.attachments.network.collect(plans))
        except NetdraError:
            self._collect_at = -math.inf
            raise
        self._plans.clear()
        for problem in report.problems:
            log.warning("leases that nobody has are not looked for: %s", problem)
        for network in report.networks:
            if network.problem:
                log.warning('plugin "%s", network "%s": %s', network.plugin, network.network, network.problem)

    async def _claims(self) -> None:
        """Give up prepared claims that were gone, or without a pod of this node, twice in a row: a watch may lag."""
        attachments = self.attachments
        prepared = await attachments.in_thread(attachments.table.prepared.all)
        idle = [claim.claim for claim in prepared if not attachments.table.users(claim.claim.uid)]
        suspects: set[str] = set()
        for claim in idle:
            if not await self._is_needless(claim):
                continue
            if claim.uid not in self._suspects:
                suspects.add(claim.uid)
                continue
            try:
                with counted(ORPHANS, "claim"):
                    await self.claims.unprepare(claim)
                attachments.changed()
                log.info("given up: no pod has it", extra=fields(claim=f"{claim.namespace}/{claim.name}"))
            except NetdraError as problem:
                suspects.add(claim.uid)
                log.warning("%s", problem)
        self._suspects = frozenset(suspects)

    async def _is_needless(self, claim: ClaimReference) -> bool:
        """Whether a claim is gone, or reserved for no pod of this node."""
        tracker = self.attachments.tracker
        if not tracker.pods.synced:
            return False
        try:
            stored = await tracker.client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
        except NotFoundError:
            return True
        except ApiError:
            return False
        if stored.metadata.uid != claim.uid:
            return True
        here = {pod.metadata.uid for pod in tracker.pods.objects.values()}
        return not any(user.uid in here for user in stored.status.reserved_for)
