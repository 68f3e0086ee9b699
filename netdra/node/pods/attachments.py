"""What the runtime's hooks come to: a sandbox gets its network before its first container, and gives it back after.

`netdra.node.nri` calls it as its `SandboxHooks`. One lock a sandbox; blocking work is done in a bounded pool of
threads, within the runtime's budget (decision D12). A hook that is not answered in time goes on in the background until
it is undone, because the kernel cannot be interrupted; its lock keeps everybody else off the sandbox until then.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from netdra.model.claim import ResourceClaim
from netdra.model.errors import NetdraError, PermanentError, TemporaryError
from netdra.model.plan import Plan
from netdra.node.claims.checks import check_shared
from netdra.node.nri.hooks import LOOKUP_SHARE, REMOVE_SECONDS, Sandbox
from netdra.node.permits import EVERYTHING, NodePermits
from netdra.node.pods.circuits import Circuits, programs
from netdra.node.pods.network import Network, Undone
from netdra.node.pods.reports import Reports, message_of, reason_of
from netdra.node.pods.status import Outcome, failed
from netdra.node.pods.threads import Locks, Threads
from netdra.node.pods.tracker import Tracker
from netdra.node.pods.writer import StatusWriter
from netdra.node.priority import PriorityGate
from netdra.node.view import NodeView
from netdra.ops.logs import about
from netdra.topology.bind import bind

log = logging.getLogger(__name__)

T = TypeVar("T")

UNDO_SECONDS = 5.0
MOST_TRIES = 5  # of taking a sandbox down whose namespace is gone, or whose plugins refuse to (decision D13)


class StoppedError(TemporaryError):
    """A sandbox is not attached, since it was stopped first, or another one of its pod has begun."""


@dataclass
class Attachments:
    """The sandboxes of this node.

    Attributes:
        threads: where blocking work is done.
        live: the sandboxes that run, by id, as the runtime told us.
        strangers: sandboxes that left something here and did not run when the runtime last said which ones do. One that
            comes later is none, even if nobody tells us of it: another daemon of this node may have it.
        troubles: what could not be given back yet, by sandbox.
        changed: what is to be called when other devices are held, or with other trouble.
        work: what is to be called when there is something to reconcile.
        gate: told while a hook is in hand.
        permits: what those who write topologies may have of the node.
        circuits: the plugins that do not answer, so that nobody waits for them.
        missed: what is to be called when a sandbox may have ended without our being told (`netdra.node.pods.orphans`).
    """

    tracker: Tracker
    view: NodeView
    network: Network
    writer: StatusWriter
    reports: Reports
    threads: Threads
    live: dict[str, Sandbox] = field(default_factory=dict)
    strangers: frozenset[str] = frozenset()
    troubles: dict[str, Undone] = field(default_factory=dict)
    changed: Callable[[], None] = lambda: None
    work: Callable[[], None] = lambda: None
    missed: Callable[[], None] = lambda: None
    gate: PriorityGate = field(default_factory=PriorityGate)
    permits: NodePermits = EVERYTHING
    circuits: Circuits = field(default_factory=Circuits)
    locks: Locks = field(default_factory=Locks)
    _plugins: dict[str, frozenset[str]] = field(default_factory=dict)
    _later: set[str] = field(default_factory=set)
    _running: set[asyncio.Task[Any]] = field(default_factory=set)

    async def synchronize(self, sandboxes: Sequence[Sandbox]) -> None:
        """Take down which sandboxes there are; `reconcile` compares them with what is really there."""
        alive = await self.in_thread(lambda: self.network.alive(sandboxes))
        self.live = {each.id: each for each in alive}
        self.strangers = frozenset(self.network.known()) - self.live.keys()
        self.work()

    async def run(self, sandbox: Sandbox, budget: float) -> None:
        """Give a sandbox the network of its claims, or refuse it.

        Raises:
            NetdraError: it has none, and nothing of it is left.
        """
        self.live[sandbox.id] = sandbox
        if self.tracker.knows_to_be_claimless(sandbox):
            return
        try:
            deadline = time.monotonic() + budget
            await self._in_time(self._run(sandbox, deadline), budget, sandbox)
        except NetdraError:
            self.live.pop(sandbox.id, None)
            raise

    async def stop(self, sandbox: Sandbox, budget: float) -> None:
        """Take a sandbox down, from its checkpoint alone.

        Raises:
            TemporaryError: something could not be undone yet; `orphans` goes on with it.
        """
        self.live.pop(sandbox.id, None)
        if self.locks.is_free(sandbox.id) and not self.has_anything(sandbox.id):
            self._plugins.pop(sandbox.id, None)
            return
        if self.hangs(sandbox.id):
            self.undo_later(sandbox)
            raise TemporaryError(
                f"sandbox {sandbox.id}: it is undone in the background, since a plugin does not answer"
            )
        await self._in_time(self.take_down(sandbox, budget), budget, sandbox)

    async def remove(self, sandbox: Sandbox) -> None:
        """Take down what is left of a sandbox.

        Raises:
            TemporaryError: something could not be undone yet; `orphans` goes on with it.
        """
        await self.stop(sandbox, REMOVE_SECONDS)
        self.reports.well(sandbox)

    def hangs(self, sandbox: str) -> bool:
        """Whether a plugin that a sandbox needs does not answer just now."""
        return self.circuits.is_open(self._plugins.get(sandbox, ()))

    def undo_later(self, sandbox: Sandbox) -> None:
        """Take a sandbox down without anybody waiting for it, in a share of the threads; `orphans` goes on with it."""
        if sandbox.id in self._later:
            return
        self._later.add(sandbox.id)
        with about(sandbox=sandbox.id, pod=f"{sandbox.namespace}/{sandbox.name}"):
            task = asyncio.create_task(_told_apart(self.take_down(sandbox, UNDO_SECONDS)))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: self._later.discard(sandbox.id))

    async def aclose(self) -> None:
        """Wait for what has begun: nothing is left half done."""
        self.threads.drop_undoing()
        while self._running:
            await asyncio.wait(self._running)
        self.threads.shutdown()
        self.network.namespaces.close()

    def has_anything(self, sandbox: str) -> bool:
        """Whether there is anything of a sandbox that would have to be undone."""
        network = self.network
        return (
            network.guard.has(sandbox)
            or sandbox in self.troubles
            or network.namespaces.has(sandbox)
            or network.has_checkpoint(sandbox)
        )

    async def attach(self, sandbox: Sandbox, claims: Sequence[ResourceClaim], deadline: float) -> None:
        """Attach a sandbox whose lock is held.

        Raises:
            NetdraError: it is not attached; claim, pod and log say why.
        """
        try:
            outcomes = await self._attached(sandbox, claims, deadline)
        except StoppedError:
            raise  # of a pod that has ended, or has another sandbox by now, nothing is to be said
        except NetdraError as problem:
            if self.network.has_checkpoint(sandbox.id):
                self.troubles[sandbox.id] = Undone(trouble=message_of(problem))
            self.writer.tell(failed(sandbox, claims, reason_of(problem), message_of(problem)))
            self.reports.failed(sandbox, problem)
            raise
        self.writer.tell(outcomes)
        self.reports.well(sandbox)
        self.changed()

    async def take_down(self, sandbox: Sandbox, seconds: float) -> None:
        """Take a sandbox down, when its lock is free.

        Raises:
            TemporaryError: something could not be undone yet.
            PermanentError: it never could, and is given up (decision D13).
        """
        deadline = time.monotonic() + seconds
        async with self.locks.held(sandbox.id):
            tries = self.troubles.get(sandbox.id, Undone()).tries
            undone = await self.in_thread(
                lambda: self.network.undo(sandbox.id, deadline, sandbox.netns, give_up=tries + 1 >= MOST_TRIES),
                self.threads.undoing if self.hangs(sandbox.id) else None,
            )
            self.circuits.hung(undone.hung)
            if not undone.trouble:
                self._plugins.pop(sandbox.id, None)
            self.writer.forget(sandbox.id, undone.claims)
            self.troubles.pop(sandbox.id, None)
            if undone.trouble and not undone.given_up:
                counts = undone.namespace_gone or undone.hopeless
                self.troubles[sandbox.id] = msgspec.structs.replace(undone, tries=tries + counts)
            self.changed()
        if undone.restored:
            self.reports.restored(sandbox, "\n".join(undone.restored))
        if undone.notes:
            self.reports.not_restored(sandbox, "\n".join(undone.notes))
        if not undone.trouble:
            return
        if undone.given_up:
            self.reports.given_up(sandbox, undone.trouble)
            raise PermanentError(f"sandbox {sandbox.id}: not all could be undone: {undone.trouble}")
        self.reports.not_undone(sandbox, undone.trouble)
        raise TemporaryError(f"sandbox {sandbox.id}: not all could be undone: {undone.trouble}")

    async def in_thread(self, work: Callable[[], T], threads: ThreadPoolExecutor | None = None) -> T:
        """Do blocking work in the pool, or in other threads."""
        context = contextvars.copy_context()  # what log lines are about goes along
        return await asyncio.get_running_loop().run_in_executor(threads or self.threads.work, lambda: context.run(work))

    async def _run(self, sandbox: Sandbox, deadline: float) -> None:
        async with self.locks.held(sandbox.id):
            left = deadline - time.monotonic()
            try:
                claims = await self.tracker.claims_of(sandbox, max(0.0, left * LOOKUP_SHARE))
            except TemporaryError as problem:
                if await self.in_thread(lambda: self.network.is_on_hosts(sandbox), self.threads.looking):
                    return  # it has no network to be attached to, and no CDI specification either
                self.reports.failed(sandbox, problem)
                raise
            if claims:
                await self.attach(sandbox, claims, deadline)

    async def _attached(
        self, sandbox: Sandbox, claims: Sequence[ResourceClaim], deadline: float
    ) -> tuple[Outcome, ...]:
        if self.network.has_checkpoint(sandbox.id):
            saved = await self.in_thread(lambda: self.network.standing(sandbox))
            if saved is not None:
                return await self.in_thread(lambda: self.network.confirm(sandbox, claims, saved))
        plans = self._plans(sandbox, claims)
        self._succeed(sandbox)
        if sandbox.id not in self.live:
            raise StoppedError(f"sandbox {sandbox.id} was stopped before its network was attached")
        plugins = self._plugins[sandbox.id] = programs(plans)
        self.circuits.admit(plugins)
        problem: NetdraError | None = PermanentError(f"sandbox {sandbox.id}: attaching it was cut off")
        try:
            outcomes = await self.in_thread(lambda: self.network.attach(sandbox, claims, plans, deadline))
            problem = None
        except NetdraError as error:
            problem = error
            raise
        finally:
            self.circuits.ended(plugins, problem)
        return outcomes

    def _succeed(self, sandbox: Sandbox) -> None:
        """A pod has one sandbox at a time: if a former one has a device, the next try of this one finds it free."""
        former = {key for key, each in self.live.items() if key != sandbox.id and each.is_of_pod_of(sandbox)}
        if former:
            for key in former:
                del self.live[key]
            self.strangers |= former
            self.missed()

    def _plans(self, sandbox: Sandbox, claims: Sequence[ResourceClaim]) -> tuple[Plan, ...]:
        """What the claims come to on this node, as it is now.

        Raises:
            NetdraError: they fit no topology, another pod has what can only be in one, or what they need is not known.
        """
        if not self.view.ready:
            raise TemporaryError(
                "this node's interfaces and topologies are not known yet",
                hint="the driver has only just started, or cannot reach the API server",
            )
        plans = bind(claims, self.view.topologies, self.view.devices).plans
        self.permits.check(plans)
        for claim in claims:
            check_shared(claim, plans, self._pods_of(claim, sandbox))
        return plans

    def _pods_of(self, claim: ResourceClaim, sandbox: Sandbox) -> tuple[str, ...]:
        """The pods that have a claim now, and the one that is to have it too."""
        users = (self.live.get(each) for each in self.network.guard.users(claim.metadata.uid))
        others = (each.name for each in users if each is not None and each.uid != sandbox.uid)
        return (*dict.fromkeys(others), sandbox.name)

    async def _in_time(self, work: Coroutine[Any, Any, None], budget: float, sandbox: Sandbox) -> None:
        """Do something to its end, but answer within the budget.

        Raises:
            TemporaryError: it is not done in time.
        """
        with about(sandbox=sandbox.id, pod=f"{sandbox.namespace}/{sandbox.name}"):
            task = asyncio.create_task(_told_apart(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            async with asyncio.timeout(budget):
                with self.gate.in_hand():
                    problem = await asyncio.shield(task)
        except TimeoutError:
            raise TemporaryError(
                f"sandbox {sandbox.id}: not done within {budget:.2f} s; it is ended in the background"
            ) from None
        if problem is not None:
            raise problem


async def _told_apart(work: Awaitable[None]) -> NetdraError | None:
    """An error as a value, so that nothing is said of one that nobody waits for any more: it was reported by then."""
    try:
        await work
    except NetdraError as problem:
        return problem
    except Exception as problem:
        log.exception("netdra has a defect")
        return PermanentError(f"netdra has a defect: {type(problem).__name__}: {problem}")
    return None
