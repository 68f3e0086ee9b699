"""Attaches running sandboxes to their networks, and returns the devices of pods that are gone (decision D12).

Three ways in: `recover` takes up a former process's state before anything else begins; `Signals.listed` has every
sandbox that runs compared with its network, one key of a queue each, in its turn; and every few minutes, or sooner
while something could not be returned, all that no pod of this node has any more is returned: checkpoints, prepared
claims, CDI files. An attached network is left as it is, even if its topology has changed. A failure concerns one
sandbox or claim, and never keeps the others from being inspected.

A containerd that was restarted reports no end of a sandbox that is older than itself (`needsStopping` in its
internal/nri/nri.go knows only sandboxes that it saw begin). So sandboxes that have ended are also searched for when one
may matter: at once and to the end before a claim is released (`take_down_users`), and soon when a pod has a new sandbox
(`Signals.ended_unseen`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from netdra.chain.checkpoint import Saved
from netdra.chain.outcome import recorded_outcomes
from netdra.chain.site import UnknownNamespaceError
from netdra.kube.queue import AGAIN, WorkQueue
from netdra.model.errors import NetdraError, PermanentError
from netdra.model.plan import ClaimReference, Plan
from netdra.node.claims.checks import changed_topologies
from netdra.node.claims.release import Releases
from netdra.node.claims.store import PreparedClaim
from netdra.node.metrics import ORPHANS, REPAIRS, UNKNOWN
from netdra.node.nri.hooks import Sandbox
from netdra.node.sandboxes.hooks import Attachments
from netdra.node.sandboxes.network import Network, sandbox_of
from netdra.node.sandboxes.status import Outcome, attached
from netdra.node.sandboxes.table import Table
from netdra.ops.logs import fields
from netdra.ops.metrics import counted
from netdra.topology.devices import DeviceKey

log = logging.getLogger(__name__)

AT_ONCE = 3  # of the pool's threads; the others are for hooks
LOOKUP_SECONDS = 10.0
ATTACH_SECONDS = 20.0
FIRST_WAIT, MOST_WAIT = 1.0, 60.0
"""Seconds before a sandbox that has not its network yet is looked at again."""

FIRST_ROUND_WAIT, EVERY_SECONDS = 5.0, 180.0
"""Seconds before all is looked at again, while something could not be given back and else."""
COLLECT_EVERY_SECONDS = 6 * 3600.0
SECONDS_EACH = 30.0
_EVERYTHING, _SANDBOXES = "everything", "sandboxes"


@contextmanager
def contained(subject: str) -> Iterator[None]:
    """Log the failure of one object, and continue with the others; a defect of netdra is handled likewise."""
    try:
        yield
    except NetdraError as problem:
        log.warning("%s: %s", subject, problem)
    except Exception:
        log.exception("%s: a defect of netdra", subject)


@dataclass(frozen=True)
class _Confirmed:
    """The outcomes of a sandbox whose network stands, and its drift or why it could not be compared."""

    outcomes: tuple[Outcome, ...]
    drift: tuple[str, ...] = ()
    problem: NetdraError | None = None


@dataclass
class Recovery:
    """Sandboxes without their network, and networks without their sandbox.

    Attributes:
        hooks: attaches sandboxes and takes them down.
        claims: releases a prepared claim.
        rounds: how often everything was inspected.
        _unseen: the sandboxes that may still wait for a claim's network; None until the runtime has listed them.
        _unknown: the sandboxes whose namespace could not be inspected the last time.
        _nameless: the sandboxes whose namespace has lost its path, and lives on.
        _is_unclear: whether the state of any sandbox could not be determined.
    """

    hooks: Attachments
    claims: Releases
    rounds: int = 0
    _unseen: set[str] | None = None
    _unknown: set[str] = field(default_factory=set)
    _nameless: set[str] = field(default_factory=set)
    _is_unclear: bool = False
    _suspects: frozenset[str] = frozenset()
    _changed: frozenset[DeviceKey] = frozenset()
    _collect_at: float = -math.inf
    _plans: dict[str, Plan] = field(default_factory=dict)
    _round: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.table: Table = self.hooks.table
        self.network: Network = self.hooks.network
        self._running = WorkQueue[str](
            "sandboxes",
            self._compare,
            workers=AT_ONCE,
            first=FIRST_WAIT,
            most=MOST_WAIT,
            fields=lambda sandbox: {"sandbox": sandbox},
        )
        self._orphans = WorkQueue[str]("orphans", self._look, first=FIRST_ROUND_WAIT, most=EVERY_SECONDS)
        signals = self.hooks.signals
        signals.listed.subscribe(self._compare_all)
        signals.listed.subscribe(lambda: self._orphans.add(_EVERYTHING))
        signals.ended_unseen.subscribe(lambda: self._orphans.add(_SANDBOXES))
        self.claims.before_release(self.take_down_users)

    async def run(self) -> None:
        """Work until cancelled."""
        self._orphans.add(_EVERYTHING)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._running.run())
            tasks.create_task(self._orphans.run())

    async def recover(self) -> None:
        """Before the runtime has listed anything: let containers be made again in pods whose network stands.

        All other CDI specifications of a former process are removed. Specifications that it had not written wait until
        it is known which of the running sandboxes have those claims.

        Raises:
            NetdraError: the folder of the CDI specifications cannot be written.
        """
        specified = await self.hooks.in_thread(self.table.files.specified)
        standing = await self.hooks.in_thread(self._hold_standing)
        claims = {plan.claim.uid for saved in standing for plan in saved.header.plans}
        await self.hooks.in_thread(lambda: self.table.withhold(claims))
        recorded = await self.hooks.in_thread(lambda: self._recorded(standing))
        for sandbox, outcomes in recorded.items():
            with contained(f"sandbox {sandbox.id}: its containers cannot be made again yet"):
                await self.table.act(sandbox, partial(self._take_up, sandbox, outcomes))
        await self.hooks.in_thread(lambda: self.table.remove_unattached(specified))

    async def wait_finished(self) -> None:
        """Wait until every sandbox that runs is as it should be, or gone."""
        await self._running.drain()

    # Sandboxes that run.

    def _compare_all(self) -> None:
        """Compare every sandbox that runs with its network, soon."""
        if self._unseen is None:
            self._unseen = set(self.table.all_running)
            self._release_withheld()
        for sandbox in self.table.all_running:
            self._running.add(sandbox)

    async def _compare(self, key: str) -> float | None:
        """Compare a sandbox with its network until that is as it should be, or the sandbox is gone."""
        sandbox = self.table.running(key)
        done = sandbox is None or await self.table.act(sandbox, lambda: self._compare_in_turn(key))
        if done:
            self._mark_seen(key)
        self._release_withheld()
        return None if done else AGAIN

    async def _compare_in_turn(self, key: str) -> bool:
        sandbox = self.table.running(key)
        if sandbox is None:
            return True
        of_pod = self.table.running_of_pod(sandbox)
        try:
            found, unknown, saved = await self.hooks.in_thread(lambda: self._inspect(sandbox, of_pod))
            if unknown:
                return False  # also where it is another one of its pod
            if found is None:
                self.table.mark_ended(key)  # with or without a hook; or it has no network of its own
                return True
            return await self._finish(found, saved)
        except UnknownNamespaceError as problem:
            self._mark_unknown(sandbox, problem.what)
            return False
        except NetdraError as problem:
            log.info("%s", problem)
            return False

    def _inspect(self, sandbox: Sandbox, of_pod: Sequence[Sandbox]) -> tuple[Sandbox | None, bool, Saved | None]:
        """One of a pod's sandboxes if it is alive, whether that is unknown of any, and its checkpoint if complete."""
        alive, unknown = self.network.alive(of_pod)
        found = next((entry for entry in alive if entry.id == sandbox.id), None)
        saved = self.network.standing(found) if found is not None and not unknown else None
        return found, bool(unknown), saved

    async def _finish(self, sandbox: Sandbox, saved: Saved | None) -> bool:
        """Confirm or attach a sandbox that runs; returns whether no more is to be done.

        Args:
            sandbox: the pod's.
            saved: its checkpoint if its network stands.
        """
        claims: tuple[ClaimReference, ...] = ()
        unknown: NetdraError | None = None
        try:
            claims = await self.hooks.tracker.claims_of(sandbox, LOOKUP_SECONDS)
        except NetdraError as problem:
            unknown = problem
        if saved is not None:
            records = await self.hooks.restore_records(claims, time.monotonic() + LOOKUP_SECONDS)
            confirmed = await self.hooks.in_thread(lambda: self._confirm(sandbox, records, saved))
            self.hooks.writer.update(confirmed.outcomes)
            self.hooks.carriers.follow(sandbox, confirmed.outcomes)
            self._mark_seen(sandbox.id)
            self._report_drift(sandbox, records, confirmed)
            return unknown is None
        if unknown is not None:
            raise unknown
        if not self.table.withholds(claim.uid for claim in claims):
            self._mark_seen(sandbox.id)
        if claims:
            with counted(REPAIRS):
                await self.hooks.attach(sandbox, claims, time.monotonic() + ATTACH_SECONDS)
            self.hooks.events.report_late(sandbox)
        return True

    def _hold_standing(self) -> list[Saved]:
        """Hold the namespaces of a former process's sandboxes; returns the checkpoints of those that are complete."""
        standing = []
        for saved in self.network.checkpoints():
            with contained(f"sandbox {saved.header.pod.sandbox}: its containers cannot be made again yet"):
                if self.network.hold_standing(saved):
                    standing.append(saved)
        return standing

    def _recorded(self, standing: Sequence[Saved]) -> dict[Sandbox, tuple[Outcome, ...]]:
        """The outcomes of sandboxes by their checkpoints and the carriers of their interfaces alone."""
        recorded = {}
        for saved in standing:
            sandbox = sandbox_of(saved)
            with contained(f"sandbox {sandbox.id}: its containers cannot be made again yet"):
                recorded[sandbox] = self.network.with_silent(attached(sandbox, (), recorded_outcomes(saved)), saved)
        return recorded

    async def _take_up(self, sandbox: Sandbox, outcomes: tuple[Outcome, ...]) -> None:
        self.table.take_up(sandbox, outcomes)
        self.hooks.writer.update(outcomes)

    def _confirm(self, sandbox: Sandbox, records: Iterable[PreparedClaim], saved: Saved) -> _Confirmed:
        """Let the containers of a sandbox whose network stands be created, and compare the network."""
        outcomes = self.network.confirm(sandbox, records, saved)
        try:
            return _Confirmed(outcomes, drift=self.network.drift(sandbox))
        except NetdraError as problem:
            return _Confirmed(outcomes, problem=problem)

    def _report_drift(self, sandbox: Sandbox, records: Iterable[PreparedClaim], confirmed: _Confirmed) -> None:
        """Report the drift of a pod's network. It is left so: the pod itself may have changed its network.

        Raises:
            NetdraError: the network could not be compared.
        """
        if confirmed.problem is not None:
            raise confirmed.problem
        if confirmed.drift:
            self.hooks.events.report_drift(sandbox, "; ".join(confirmed.drift))
        else:
            changes = changed_topologies(records, self.hooks.view)
            self.hooks.events.report_topologies(sandbox, changes)

    def _mark_seen(self, sandbox: str) -> None:
        """A sandbox has its network, or no claim whose specification is withheld."""
        if self._unseen is not None:
            self._unseen.discard(sandbox)

    def _release_withheld(self) -> None:
        """Withhold no specification once all sandboxes are seen that ran when the runtime first listed them.

        All other sandboxes begin by a hook, and a claim's specification is away while a hook attaches a sandbox of it.
        """
        if not self._unseen and self.table.stop_withholding():
            self._compare_all()

    # Leftovers of pods that have ended.

    async def _look(self, what: str) -> float | None:
        """Inspect everything, or at the sandboxes; and at everything again, before its time if there is trouble."""
        await (self.look_around() if what == _EVERYTHING else self._take_down_ended())
        if not (self.table.troubles or self._is_unclear):
            self._orphans.add(_EVERYTHING, EVERY_SECONDS)
        elif what == _EVERYTHING:
            return AGAIN
        else:
            self._orphans.retry(_EVERYTHING)
        return None

    async def look_around(self) -> None:
        """Give back all that belongs to no pod any more, as far as it can be; one round at a time."""
        async with self._round:
            with contained("sandboxes that have ended"):
                await self._take_down_ended()
            with contained("shared devices that plugins have changed"):
                await self._compare_marks()
            with contained("leases that no pod has"):
                await self._collect()
            with contained("claims that no pod has"):
                await self._release_claims()
            with contained("files of claims that were removed"):
                await self.hooks.in_thread(self.claims.remove_given_up)
            with contained("CDI specifications of claims that are not prepared"):
                for uid in await self.hooks.in_thread(self.table.remove_unprepared):
                    ORPHANS.labels("cdi", "ok").inc()
                    log.info("CDI specification removed: the claim is not prepared", extra=fields(claim=uid))
            self.rounds += 1

    async def take_down_users(self, uid: str) -> None:
        """Take down what is left of a claim's pods, which have ended: its devices may go to the next pod at once."""
        users = self.table.users(uid)
        # The runtime does not list it, or its path is gone; and the kubelet, which unprepares, has no pod of it.
        for sandbox in {*self._nameless, *(unlisted.id for unlisted in self.table.unlisted)}.intersection(users):
            self.table.mark_ended(sandbox)
        if users:
            await self._take_down_ended(frozenset(users))
            self.table.release_claim(uid)

    async def _take_down_ended(self, only: Collection[str] | None = None) -> None:
        """Take down sandboxes that no longer run: the runtime reported it, or their namespace is gone.

        A sandbox that the runtime did not list is taken down as well once its pod is gone. A network that cannot be
        returned is kept, tried again and reported, and its devices are tainted.

        Args:
            only: the sandboxes to inspect; None for all.

        Raises:
            TemporaryError: the checkpoints cannot be read; nothing was done.
        """
        self._is_unclear = True
        saved = {entry.header.pod.sandbox: entry for entry in await self.hooks.in_thread(self.network.checkpoints)}
        lost = await self._find_lost(saved.values())
        for sandbox in self.table.unlisted if only is None else ():
            if sandbox.id not in saved or sandbox.id in lost or await self._has_lost_its_pod(sandbox):
                self.table.end_unlisted(sandbox.id)
        self._is_unclear = bool(self._unknown or self.table.unlisted)
        for key in dict.fromkeys([*lost, *self.table.to_take_down()]):
            is_being_done = self.table.is_busy(key) and key not in lost  # such as by the hook of its stop
            if is_being_done if only is None else key not in only:
                continue
            with contained(f"sandbox {key}: it is not taken down"):
                if key in lost:
                    self.table.mark_ended(key)
                if self.table.running(key) is None and self.hooks.has_anything(key):
                    await self._take_down(key, saved.get(key))

    async def _has_lost_its_pod(self, sandbox: Sandbox) -> bool:
        """Whether a sandbox's pod is gone from the API server; that is not known of one that was attached by hand."""
        return bool(sandbox.uid) and not await self.claims.has_pod(sandbox.namespace, sandbox.name, sandbox.uid)

    async def _find_lost(self, checkpoints: Collection[Saved]) -> list[str]:
        """The sandboxes whose namespace is gone, as the kernel states."""
        lost = []
        for sandbox, place in (await self.hooks.in_thread(lambda: self._read_places(checkpoints))).items():
            if isinstance(place, NetdraError):
                self._mark_unknown(sandbox, place.what)
                continue
            self._unknown.discard(sandbox.id)
            self._mark_nameless(sandbox, is_nameless=place not in ("", sandbox.netns))
            if not place:
                lost.append(sandbox.id)
        known = {saved.header.pod.sandbox for saved in checkpoints}
        self._unknown &= known
        self._nameless &= known
        with contained("held namespaces"):
            lost += await self.hooks.in_thread(self.table.namespaces.lost)
        return lost

    def _read_places(self, checkpoints: Collection[Saved]) -> dict[Sandbox, str | NetdraError]:
        """The path of each sandbox's namespace now, "" if that is gone, or why it cannot be read."""
        places: dict[Sandbox, str | NetdraError] = {}
        for saved in checkpoints:
            sandbox = sandbox_of(saved)
            with contained(f"sandbox {sandbox.id}: its namespace cannot be read"):
                try:
                    places[sandbox] = self.network.place(saved)
                except NetdraError as problem:
                    places[sandbox] = problem
        return places

    def _mark_nameless(self, sandbox: Sandbox, *, is_nameless: bool) -> None:
        """Report once that the namespace of a sandbox is only found by a process in it."""
        if not is_nameless:
            self._nameless.discard(sandbox.id)
        elif sandbox.id not in self._nameless:
            self._nameless.add(sandbox.id)
            self.hooks.events.report_nameless(sandbox)

    def _mark_unknown(self, sandbox: Sandbox, reason: str) -> None:
        """Count that a sandbox's namespace could not be inspected, and report it unless that is known."""
        UNKNOWN.inc()
        if sandbox.id not in self._unknown:
            self._unknown.add(sandbox.id)
            self.hooks.events.report_unknown(sandbox, reason)

    async def _take_down(self, key: str, saved: Saved | None) -> None:
        """Take a sandbox down; a failure is reported, and kept as a trouble or abandoned."""
        sandbox = sandbox_of(saved) if saved is not None else Sandbox(id=key, name="", namespace="", uid="")
        if saved is not None:
            self._plans |= {plan.topology: plan for plan in saved.header.plans}
        if self.hooks.hangs(key):
            self.hooks.undo_later(sandbox)  # the others do not wait for it
            return
        try:
            with counted(ORPHANS, "sandbox"):
                await self.hooks.take_down(sandbox, SECONDS_EACH)
        except PermanentError:
            self._collect_at = -math.inf  # the plugin may know by itself what to free
        except NetdraError:
            pass  # it was reported

    async def _compare_marks(self) -> None:
        """Have a shared device published without its taint once the plugin that changed it is no longer kept off it."""
        changed = frozenset(await self.hooks.in_thread(self.network.changed))
        if changed != self._changed:
            self._changed = changed
            self.hooks.signals.held_changed.emit()

    async def _collect(self) -> None:
        """Have plugins release leases without a checkpoint, when it is time.

        They know their leases: asked at start, after a sandbox was abandoned, and seldom otherwise.

        Raises:
            TemporaryError: sandboxes are just beginning; it is tried in the next round.
        """
        if time.monotonic() < self._collect_at:
            return
        self._collect_at = time.monotonic() + COLLECT_EVERY_SECONDS
        plans = tuple(self._plans.values())
        try:
            report = await self.hooks.in_thread(lambda: self.network.collect(plans))
        except NetdraError:
            self._collect_at = -math.inf
            raise
        self._plans.clear()
        for problem in report.problems:
            log.warning("unused leases are not searched: %s", problem)
        for network in report.networks:
            if network.problem:
                log.warning('plugin "%s", network "%s": %s', network.plugin, network.network, network.problem)

    async def _release_claims(self) -> None:
        """Release prepared claims that no pod of this node needs, twice in a row, by direct reads."""
        if not self.hooks.tracker.pods.synced:
            return
        suspects: set[str] = set()
        present: set[str] = set()
        for record in await self.hooks.in_thread(self.table.prepared.all):
            claim = record.claim
            if self.table.is_in_use(claim.uid):
                continue
            with contained(f'ResourceClaim "{claim.namespace}/{claim.name}"'):
                if await self.claims.is_needed(record, present):
                    continue
                suspects.add(claim.uid)
                if claim.uid in self._suspects:
                    with counted(ORPHANS, "claim"):
                        await self.claims.release(claim)
                    suspects.discard(claim.uid)
                    self.hooks.signals.held_changed.emit()
                    log.info("removed: no pod uses it", extra=fields(claim=f"{claim.namespace}/{claim.name}"))
        suspects |= await self._put_damaged_aside()
        self._suspects = frozenset(suspects)

    async def _put_damaged_aside(self) -> set[str]:
        """Put unreadable records aside whose claims no pod of this node has, twice in a row; returns the suspects."""
        wanted = {claim.metadata.uid for claim in self.hooks.tracker.claims}
        damaged = await self.hooks.in_thread(self.table.prepared.damaged)
        unused = {uid for uid in damaged - wanted if not self.table.is_in_use(uid)}
        for uid in unused & self._suspects:
            with contained(f"the record of claim {uid}"):
                await self.claims.put_aside(uid)
        return unused - self._suspects
