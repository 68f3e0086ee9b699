"""Answers the runtime's hooks: a sandbox gets its network before its first container, and gives it back after the last.

A hook binds and checks nothing: it executes the plans that the pod's claims were prepared with (decision D52).

`netdra.node.nri` calls it as its `SandboxHooks`, and answers in time (decision D12): a hook that is late continues
until its work is done or undone, because the kernel cannot be interrupted, and keeps its turn of the sandbox (`table`)
until then. Blocking work is done in threads of three kinds, so that no work waits for another kind that may hang.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from netdra.chain.report import AttachError, DuplicateAddress
from netdra.cni.protocol import new_stop
from netdra.model.errors import NetdraError, PermanentError, TemporaryError
from netdra.model.plan import ClaimReference, programs
from netdra.node.claims.checks import changed_topologies, check_pod, check_shared
from netdra.node.claims.store import PreparedClaim
from netdra.node.nri.hooks import LOOKUP_SHARE, REMOVE_SECONDS, Sandbox
from netdra.node.permits import NodePermits
from netdra.node.sandboxes.carriers import Carriers
from netdra.node.sandboxes.circuits import Circuits
from netdra.node.sandboxes.events import PodEvents, message_of, reason_of
from netdra.node.sandboxes.network import Network
from netdra.node.sandboxes.status import ClaimDevices, Outcome, failed
from netdra.node.sandboxes.table import DetachOutcome, Table
from netdra.node.sandboxes.tracker import Tracker
from netdra.node.sandboxes.writer import StatusWriter
from netdra.node.signals import Signals
from netdra.node.view import NodeView
from netdra.ops.logs import about, fields
from netdra.rules.plans import combined

log = logging.getLogger(__name__)

T = TypeVar("T")

UNDO_SECONDS = 60.0
"""The time to undo a sandbox whose plugin is slow. A DEL may be slow, and is called from the beginning in each try."""
FIRST_SECONDS = 5.0
"""The time in the background for a sandbox whose plugins are not known to be slow: others wait for the same threads."""
PREPARE_SHARE = 1 / 2
"""The part of a hook's time that preparing a claim again may take."""
MOST_TRIES = 5  # of taking a sandbox down whose namespace is gone, or whose plugins refuse to (decision D13)
WORKERS = 8
UNDO_WORKERS = 8
"""How many sandboxes whose plugins do not answer are undone at once; other sandboxes do not wait for them."""


class PlannedClaims(Protocol):
    """The prepared claims: `netdra.node.claims.lookup`."""

    async def for_hook(self, claim: ClaimReference, until: float) -> PreparedClaim:
        """A claim's record with its plan; the claim is prepared again if none exists.

        Raises:
            NetdraError: it cannot be prepared, or not until that time on the monotonic clock.
        """

    def hooked(self, claims: Sequence[ClaimReference]) -> AbstractContextManager[None]:
        """A hook uses the plans of claims until the context ends: they stay as they are."""

    async def refuse_addresses(self, claims: Sequence[ClaimReference], duplicates: Sequence[DuplicateAddress]) -> None:
        """No pod may start with these addresses: the claims that have them get others, and are prepared again.

        Raises:
            NetdraError: a claim's record cannot be written.
        """

    def refused_addresses(self, claim: ClaimReference) -> tuple[DuplicateAddress, ...]:
        """The addresses with which no pod may start that has the claim."""


class StoppedError(TemporaryError):
    """A sandbox is not attached, because it was stopped first, or another sandbox of its pod has begun."""


@dataclass(frozen=True)
class Threads:
    """The threads of one node's pods, all in the host's network namespace. A pool makes its threads as it needs them.

    Attributes:
        work: attaching and taking down.
        undoing: taking down sandboxes whose plugin does not answer in a hook's time.
        looking: inspects the kernel that take microseconds, which a pod without claims may need.
        examining: searches the node's namespaces, which takes long.
    """

    work: ThreadPoolExecutor
    undoing: ThreadPoolExecutor
    looking: ThreadPoolExecutor
    examining: ThreadPoolExecutor

    @classmethod
    def made(cls, initializer: Callable[[], object] | None = None) -> Threads:
        """New threads.

        Args:
            initializer: is called in each thread before its first work.
        """
        return cls(
            work=ThreadPoolExecutor(WORKERS, "pods", initializer),
            undoing=ThreadPoolExecutor(UNDO_WORKERS, "pods-undo", initializer),
            looking=ThreadPoolExecutor(1, "pods-look", initializer),
            examining=ThreadPoolExecutor(1, "pods-examine", initializer),
        )

    def shutdown(self) -> None:
        """Wait for the work in progress."""
        for pool in (self.work, self.looking, self.examining):
            pool.shutdown()


@dataclass
class Attachments:
    """Attaches the sandboxes of this node and takes them down.

    Attributes:
        network: acts on a sandbox.
        claims: has the plans of the pods' claims.
        carriers: announces the pods' addresses.
        threads: do the blocking work.
        permits: what authors of topologies may use of the node.
        circuits: the plugins that do not answer, so that no hook waits for them.
        signals: the events for other modules of this package.
    """

    tracker: Tracker
    view: NodeView
    network: Network
    claims: PlannedClaims
    writer: StatusWriter
    events: PodEvents
    carriers: Carriers
    threads: Threads
    permits: NodePermits
    circuits: Circuits
    signals: Signals
    _background: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _stop: int = field(default_factory=new_stop)

    @property
    def table(self) -> Table:
        """The sandboxes."""
        return self.network.table

    async def synchronize(self, sandboxes: Sequence[Sandbox]) -> None:
        """Note which sandboxes there are; `recover` compares them with their networks.

        Raises:
            NetdraError: what there is cannot be read; the runtime lists its sandboxes again when it is connected again.
        """
        alive, unknown = await self.in_thread(lambda: self.network.alive(sandboxes))
        left = await self.in_thread(self.network.left)
        self.table.update_from_list(sandboxes, (*alive, *unknown), left)
        self.signals.listed.emit()

    async def run(self, sandbox: Sandbox, budget: float) -> None:
        """Give a sandbox the network of its claims, or refuse it.

        Raises:
            NetdraError: the sandbox has no network, and nothing of one is left.
        """
        deadline = time.monotonic() + budget
        self.table.mark_running(sandbox)
        if self.tracker.knows_to_be_claimless(sandbox):
            return
        try:
            with about(**sandbox.fields):
                await self.table.act(sandbox, lambda: self._run(sandbox, deadline))
        except BaseException:
            self.table.mark_ended(sandbox.id)
            raise

    async def stop(self, sandbox: Sandbox, budget: float) -> None:
        """Take a sandbox down, from its checkpoint alone.

        Raises:
            TemporaryError: not all could be undone yet; `recover` continues with it.
        """
        self.table.mark_ended(sandbox.id)
        if not self.table.is_busy(sandbox.id) and not self.has_anything(sandbox.id):
            return
        if self.circuits.has_trouble() and await self._is_for_later(sandbox):
            self.undo_later(sandbox)
            raise TemporaryError(
                f"sandbox {sandbox.id}: it is undone in the background, since a plugin does not answer", code="ND2229"
            )
        with about(**sandbox.fields):
            await self.take_down(sandbox, budget)

    async def remove(self, sandbox: Sandbox) -> None:
        """Take down what is left of a sandbox.

        Raises:
            TemporaryError: not all could be undone yet; `recover` continues with it.
        """
        await self.stop(sandbox, REMOVE_SECONDS)
        self.events.forget(sandbox)

    def hangs(self, sandbox: str) -> bool:
        """Whether a plugin that a sandbox needs may not answer just now."""
        return self.circuits.may_hang(self.table.plugins(sandbox))

    async def _is_for_later(self, sandbox: Sandbox) -> bool:
        """Whether no hook is to wait for the plugins that undo a sandbox, while there are some that do not answer."""
        plugins = self.table.plugins(sandbox.id)
        if not plugins:  # a former process attached it, or it has no plugins
            plugins = programs(await self.in_thread(lambda: self.network.plans(sandbox.id), self.threads.looking))
            self.table.set_plugins(sandbox, plugins)
        return bool(plugins) and (self.circuits.is_quiet() or self.circuits.may_hang(plugins))

    def undo_later(self, sandbox: Sandbox) -> None:
        """Take a sandbox down in the background, in a share of the threads; `recover` continues with it."""
        if sandbox.id in self._background:
            return
        with about(**sandbox.fields):
            task = self._background[sandbox.id] = asyncio.create_task(self._undo_quietly(sandbox))
        task.add_done_callback(lambda _: self._background.pop(sandbox.id, None))

    async def aclose(self) -> None:
        """Wait for the work in progress: nothing is left half done."""
        # No further work that may hang is started, and running work is ended: checkpoints have it.
        self.threads.undoing.shutdown(wait=False, cancel_futures=True)
        os.eventfd_write(self._stop, 1)
        await self.carriers.aclose()
        await self.table.at_rest()
        self.threads.shutdown()
        os.close(self._stop)
        self.table.namespaces.close()

    def has_anything(self, sandbox: str) -> bool:
        """Whether a sandbox has anything to undo."""
        return self.table.has_anything(sandbox) or self.network.has_checkpoint(sandbox)

    async def attach(self, sandbox: Sandbox, claims: Sequence[ClaimReference], deadline: float) -> None:
        """Attach a sandbox whose turn the caller has.

        Raises:
            NetdraError: it is not attached; claim, pod and log state why.
        """
        now = time.monotonic()
        until = now + max(0.0, deadline - now) * PREPARE_SHARE
        saved = None
        try:
            if self.network.has_checkpoint(sandbox.id):
                saved = await self.in_thread(lambda: self.network.standing(sandbox))
            if saved is None:
                with self.claims.hooked(claims):
                    records = [await self.claims.for_hook(claim, until) for claim in claims]
                    outcomes = await self._attach(sandbox, records, deadline)
            else:
                records = await self.restore_records(claims, until)
                outcomes = await self.in_thread(lambda: self.network.confirm(sandbox, records, saved))
        except StoppedError:
            raise  # the pod has ended, or has another sandbox by now: it gets no status and no event
        except NetdraError as problem:
            devices = self.devices_of(claims)
            await self._refuse_addresses(sandbox, claims, problem)
            duplicates = [entry for claim in claims for entry in self.claims.refused_addresses(claim)]
            self.writer.update(
                failed(sandbox, devices, reason_of(problem), message_of(problem), problem.hint, duplicates)
            )
            if self.network.has_checkpoint(sandbox.id):
                self.table.set_trouble(sandbox.id, message_of(problem))
            self.events.report_failure(sandbox, problem)
            self.signals.held_changed.emit()
            raise
        self.writer.update(outcomes)
        self.carriers.follow(sandbox, outcomes)
        self.events.forget(sandbox)
        self.events.report_topologies(sandbox, changed_topologies(self.table.prepared.of(claims), self.view))
        self.signals.held_changed.emit()

    def devices_of(self, claims: Iterable[ClaimReference]) -> tuple[ClaimDevices, ...]:
        """Claims with their devices, as their records or the watch's readings have them."""
        devices = []
        for claim in claims:
            record = self.table.prepared.get(claim.uid)
            stored = self.tracker.remembered(claim) if record is None else None
            if record is not None:
                devices.append(ClaimDevices.of_record(record))
            else:
                allocation = stored.status.allocation if stored is not None else None
                devices.append(ClaimDevices.of_allocation(claim, allocation, self.writer.policy_of))
        return tuple(devices)

    async def take_down(self, sandbox: Sandbox, seconds: float) -> None:
        """Take a sandbox down, when its turn comes.

        Raises:
            TemporaryError: not all could be undone yet.
            PermanentError: not all could be undone, and the rest is abandoned (decision D13).
        """
        deadline = time.monotonic() + seconds
        self._report(sandbox, await self.table.act(sandbox, lambda: self._undo(sandbox, deadline)))

    async def _undo(self, sandbox: Sandbox, deadline: float) -> DetachOutcome:
        give_up = self.table.tries(sandbox.id) + 1 >= MOST_TRIES
        is_slow = self.hangs(sandbox.id)
        began = self.circuits.clock()
        with self.circuits.working(self.table.plugins(sandbox.id), math.inf if is_slow else deadline) as work:

            def undo() -> DetachOutcome:
                if not is_slow:
                    return self.network.undo(sandbox.id, deadline, sandbox.netns, give_up=give_up)
                # Its time begins here, and not while it waits for a thread: else its plugin is called without time.
                work.until = self.circuits.clock() + UNDO_SECONDS
                until = time.monotonic() + UNDO_SECONDS
                return self.network.undo(sandbox.id, until, sandbox.netns, give_up=give_up, stop=self._stop)

            undone = await self.in_thread(undo, self.threads.undoing if is_slow else None)
        if undone.hung and not is_slow:
            self.circuits.count_vain(began)
        self.circuits.open(undone.hung)
        self.writer.forget(sandbox.id, undone.claims)
        self.signals.held_changed.emit()
        return undone

    async def in_thread(self, work: Callable[[], T], threads: ThreadPoolExecutor | None = None) -> T:
        """Do blocking work in the pool, or in other threads."""
        context = contextvars.copy_context()  # the fields of log lines go along
        return await asyncio.get_running_loop().run_in_executor(threads or self.threads.work, lambda: context.run(work))

    def _report(self, sandbox: Sandbox, undone: DetachOutcome) -> None:
        """Report the outcome of taking a sandbox down.

        Raises:
            NetdraError: not all could be undone.
        """
        if undone.restored:
            self.events.report_restored(sandbox, "\n".join(undone.restored))
        if undone.notes:
            self.events.report_not_restored(sandbox, "\n".join(undone.notes))
        if not undone.trouble:
            return
        if undone.is_given_up:
            self.events.report_given_up(sandbox, undone.trouble)
            raise PermanentError(f"sandbox {sandbox.id}: not all could be undone: {undone.trouble}", code="ND2230")
        self.events.report_not_undone(sandbox, undone.trouble)
        raise TemporaryError(f"sandbox {sandbox.id}: not all could be undone: {undone.trouble}", code="ND2231")

    async def _run(self, sandbox: Sandbox, deadline: float) -> None:
        left = deadline - time.monotonic()
        try:
            claims = await self.tracker.claims_of(sandbox, max(0.0, left * LOOKUP_SHARE))
        except TemporaryError as problem:
            if await self.in_thread(lambda: self.network.is_on_hosts(sandbox), self.threads.looking):
                return  # it is on the host's network: nothing is attached, and no CDI specification exists
            self.events.report_failure(sandbox, problem)
            raise
        if claims:
            await self.attach(sandbox, claims, deadline)

    async def restore_records(self, claims: Iterable[ClaimReference], until: float) -> list[PreparedClaim]:
        """The records of claims; a claim without one is prepared again, or no container of its pods could be made.

        Raises:
            NetdraError: a claim cannot be prepared again, or not until that time on the monotonic clock.
        """
        return [self.table.prepared.get(claim.uid) or await self.claims.for_hook(claim, until) for claim in claims]

    async def _attach(self, sandbox: Sandbox, records: Sequence[PreparedClaim], deadline: float) -> tuple[Outcome, ...]:
        """Attach a sandbox by the plans of all of its claims, with their interfaces numbered.

        Raises:
            NetdraError: the networks of two claims do not fit together, another pod has a device that only one can
                have, the node allows a plan no longer, or the sandbox is not attached.
        """
        checked = []
        for record in records:
            assert record.plan is not None
            checked.append(self.permits.confirm(record.plan.checked))
            check_pod(record.claim, record.plan.plans, sandbox.name)
            others = self.table.others_with(record.claim.uid, sandbox)
            staying = dict.fromkeys(other.name for other in others if not self.tracker.is_ending(other))
            ending = [other.name for other in others if other.name not in staying]
            check_shared(record.claim, record.plan.plans, (*staying, sandbox.name), ending)
        plans = combined(checked)
        if self.table.end_former(sandbox):  # the next try of this sandbox finds their devices free
            self.signals.ended_unseen.emit()
        if self.table.running(sandbox.id) is None:
            raise StoppedError(f"sandbox {sandbox.id} was stopped before its network was attached", code="ND2232")
        plugins = programs(plans.plans)
        self.table.set_plugins(sandbox, plugins)
        claims = [ClaimDevices.of_record(record) for record in records]
        with self.circuits.trying(plugins, deadline):
            outcomes = await self.in_thread(lambda: self.network.attach(sandbox, claims, plans, deadline))
        self.carriers.announce(sandbox, plans.plans, outcomes)
        self.signals.attached.emit()
        return outcomes

    async def _refuse_addresses(self, sandbox: Sandbox, claims: Sequence[ClaimReference], problem: NetdraError) -> None:
        """Have claims get other addresses instead of those that were found to be duplicates."""
        failures = problem.report.failures if isinstance(problem, AttachError) else ()
        duplicates = [entry for failure in failures for entry in failure.duplicates]
        if not duplicates:
            return
        try:
            await self.claims.refuse_addresses(claims, duplicates)
        except NetdraError as trouble:  # the next sandbox finds the duplicate once more
            log.warning("the pod's addresses are not renewed: %s", trouble, extra=fields(**sandbox.fields))

    async def _undo_quietly(self, sandbox: Sandbox) -> None:
        try:
            await self.take_down(sandbox, FIRST_SECONDS)
        except NetdraError:
            pass  # it was reported
        except Exception:
            log.exception("sandbox %s: netdra has a defect", sandbox.id)
