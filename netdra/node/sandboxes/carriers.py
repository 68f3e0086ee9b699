"""Announces the addresses of pods when their interfaces have a carrier, and reports those that do not have one.

An attach and the runtime's hook do not wait for any of it. An interface whose carrier comes, or comes back, is
announced as soon as `netdra.node.traffic.links` reports it, and otherwise at the next look.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import msgspec

from netdra.chain import announcements
from netdra.chain.report import DuplicateAddress
from netdra.model.errors import NetdraError
from netdra.model.plan import Plan
from netdra.model.pod_network import REPORT
from netdra.node.nri.hooks import Sandbox
from netdra.node.sandboxes.events import PodEvents
from netdra.node.sandboxes.network import Network
from netdra.node.sandboxes.status import Outcome
from netdra.node.sandboxes.writer import StatusWriter
from netdra.node.traffic.links import LinkChange


@dataclass
class _Followed:
    """A sandbox with interfaces that are not announced yet.

    Attributes:
        is_new: wakes the work, if an interface has its carrier again or the daemon ends.
        returned: the interfaces that have their carrier again since the work looked.
        task: the work.
    """

    is_new: asyncio.Event = field(default_factory=asyncio.Event)
    returned: set[str] = field(default_factory=set)
    task: asyncio.Task[None] | None = None


@dataclass
class Carriers:
    """Announces the addresses of this node's sandboxes."""

    network: Network
    writer: StatusWriter
    events: PodEvents
    _following: dict[str, _Followed] = field(default_factory=dict)
    _duplicates: dict[str, tuple[DuplicateAddress, ...]] = field(default_factory=dict)
    _closing: bool = False

    def announce(self, sandbox: Sandbox, plans: Sequence[Plan], outcomes: Sequence[Outcome]) -> None:
        """Ask the wire for the addresses of a sandbox that was just attached, and announce them, in the background."""
        self._duplicates.pop(sandbox.id, None)
        self._begin(sandbox, lambda work: self._announce(sandbox, plans, outcomes, work))

    def follow(self, sandbox: Sandbox, outcomes: Sequence[Outcome]) -> None:
        """Follow the interfaces of a sandbox that have no carrier, as a former daemon did, until each has one.

        Args:
            sandbox: the pod's, which was attached before.
            outcomes: of its claims.
        """
        silent = {name for outcome in outcomes for name in outcome.silent}
        if silent and sandbox.id not in self._following:
            self._begin(sandbox, lambda work: self._announce_late(sandbox, silent, outcomes, work))

    @property
    def followed(self) -> Collection[str]:
        """The sandboxes whose interfaces are still to be announced, or have no carrier yet."""
        return self._following.keys()

    async def aclose(self) -> None:
        """End the work."""
        self._closing = True
        works = tuple(self._following.values())
        for work in works:
            work.is_new.set()
        await asyncio.gather(*(work.task for work in works if work.task), return_exceptions=True)

    def report_links(self, changes: Iterable[LinkChange]) -> None:
        """Links of pods have changed: those that lost their carrier, or have it again, are reported."""
        by_sandbox: dict[str, list[LinkChange]] = {}
        for change in changes:
            if change.before is not None:
                by_sandbox.setdefault(change.interface.sandbox, []).append(change)
        for sandbox, changed in by_sandbox.items():
            present = self.writer.of_sandbox(sandbox)
            if not present or self.network.table.has_ended(sandbox):
                continue  # its devices leave it
            turned = [change for change in changed if change.is_lost or change.is_back]
            silent = {change.interface.if_name: change.after.silent for change in turned if change.after.silent}
            self._write_silent(present, {change.interface.if_name for change in turned}, silent)
            for change in changed:
                self.events.report_link(present[0].sandbox, change)
            returned = {change.interface.if_name for change in changed if change.is_back or change.is_flap}
            if returned:
                self._announce_returned(present[0].sandbox, returned, present)

    def _announce_returned(self, sandbox: Sandbox, names: Collection[str], outcomes: Sequence[Outcome]) -> None:
        """Announce interfaces that have their carrier again: a switch may have forgotten their MACs meanwhile."""
        work = self._following.get(sandbox.id)
        if work is None:
            work = self._begin(sandbox, lambda own: self._announce_late(sandbox, (), outcomes, own))
        work.returned.update(names)
        work.is_new.set()

    def _begin(self, sandbox: Sandbox, work: Callable[[_Followed], Awaitable[None]]) -> _Followed:
        """Do work for a sandbox in the background, in place of such work of its former attach."""
        former = self._following.pop(sandbox.id, None)
        if former is not None and former.task is not None:
            former.task.cancel()
        begun = self._following[sandbox.id] = _Followed()
        begun.task = asyncio.ensure_future(work(begun))
        begun.task.add_done_callback(partial(self._end, sandbox.id))
        return begun

    def _end(self, sandbox: str, task: asyncio.Task[None]) -> None:
        work = self._following.get(sandbox)
        if work is not None and work.task is task:
            del self._following[sandbox]

    async def _announce(
        self, sandbox: Sandbox, plans: Sequence[Plan], outcomes: Sequence[Outcome], work: _Followed
    ) -> None:
        """Announce addresses when the sandbox's hook is over: it never takes longer for that.

        Interfaces that have no carrier by then are reported until they have one.
        """
        with suppress(NetdraError):  # the pod has ended
            await asyncio.to_thread(self.network.announce_first, sandbox, plans)
            if any(step.on_duplicate == REPORT for plan in plans for step in plan.steps):
                found = await asyncio.to_thread(self.network.duplicates, sandbox, plans)
                self.events.report_duplicates(sandbox, found)
                self._keep_duplicates(sandbox, found)
            await self._announce_late(sandbox, announcements.names_of(plans), outcomes, work)

    def _keep_duplicates(self, sandbox: Sandbox, found: tuple[DuplicateAddress, ...]) -> None:
        table = self.network.table
        self._duplicates = {key: kept for key, kept in self._duplicates.items() if table.running(key) is not None}
        if found:
            self._duplicates[sandbox.id] = found

    async def _announce_late(
        self, sandbox: Sandbox, names: Collection[str], outcomes: Sequence[Outcome], work: _Followed
    ) -> None:
        """Announce the addresses of interfaces once each has a carrier, and report those without."""
        waiting = frozenset(names)
        with suppress(NetdraError):  # the pod has ended
            for tries in itertools.count():
                if not (waiting or work.returned) or await self._closes_in(announcements.pause(tries), work):
                    return
                looked = waiting | work.returned
                work.returned.clear()
                without = self._duplicates.get(sandbox.id, ())
                found = await asyncio.to_thread(self.network.announce, sandbox, looked, outcomes, without)
                waiting = frozenset(found)
                silent = {name: reason for name, reason in found.items() if reason}
                self._report_silent(sandbox, looked, silent, is_late=announcements.is_late(tries))

    async def _closes_in(self, seconds: float, work: _Followed) -> bool:
        """Wait, no longer than until an interface has its carrier again; whether the daemon ends meanwhile."""
        if not self._closing:
            with suppress(TimeoutError):
                await asyncio.wait_for(work.is_new.wait(), seconds)
            work.is_new.clear()
        return self._closing

    def _report_silent(
        self, sandbox: Sandbox, names: Collection[str], silent: Mapping[str, str], *, is_late: bool
    ) -> None:
        """Write which interfaces of a pod have no carrier into the statuses of its claims.

        Args:
            sandbox: the pod's.
            names: the interfaces that were read; for others, the statuses stay.
            silent: those without a carrier, with the reason.
            is_late: whether they should have one by now; before that, they are only reported if some were before.
        """
        present = self.writer.of_sandbox(sandbox.id)
        if is_late or any(outcome.silent for outcome in present):
            self._write_silent(present, names, silent)

    def _write_silent(self, present: Iterable[Outcome], names: Collection[str], silent: Mapping[str, str]) -> None:
        for outcome in present:
            others = {name: reason for name, reason in outcome.silent.items() if name not in names}
            if outcome.silent != (now := {**others, **silent}):
                self.writer.update([msgspec.structs.replace(outcome, silent=now)])
