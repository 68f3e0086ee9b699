"""Has returned devices examined in the background, so that no pod's start waits for it (`netdra.chain.returned`).

A search reads all processes of the node, a quarter of a second of a CPU for 2,500 of them. So one search is for all
devices that have come back since the last, the pauses between searches are ten times as long as one, and it waits for
hooks (`netdra.node.priority`). A prepared claim ends the pause: its pod may get such a device a moment later. Where a
claim has such a device, its preparation waits for the search (`wait_examined`): the kubelet gives it more time than the
runtime gives to a pod's start. Started by `netdra.node.parts`; `netdra.node.signals` wakes it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from netdra.chain import returned
from netdra.chain.returned import Examination
from netdra.model.errors import NetdraError
from netdra.model.plan import PlannedDevice
from netdra.node.priority import PriorityGate
from netdra.node.sandboxes.events import PodEvents
from netdra.node.signals import Signals

log = logging.getLogger(__name__)

MOST_SECONDS = 60.0
"""How long a search may take."""
LEAST_PAUSE, PAUSE_SHARE = 0.2, 10.0
"""Seconds between two searches, and how many times as long as a search's own CPU time."""
AGAIN_SECONDS, EVERY_SECONDS = 60.0, 600.0
"""Seconds until all is searched again: while a device could not be cleared, and else, for what others have."""
FIRST_SECONDS = 5.0
"""Seconds after the daemon's start, in which pods wait for other work."""
WAIT_SECONDS = 5.0
"""How long a claim's preparation waits for the search of its devices."""


class Examiner:
    """Searches when devices came back, and now and then."""

    def __init__(
        self, state: Path, threads: ThreadPoolExecutor, events: PodEvents, gate: PriorityGate, signals: Signals
    ) -> None:
        """Begin nothing yet.

        Args:
            state: the folder of checkpoints.
            threads: one thread, in the host's network namespace.
            events: reports what was found.
            gate: is awaited before each search.
            signals: `held_changed` wakes it, `claim_prepared` ends its pause.
        """
        self._state, self._threads, self._events, self._gate = state, threads, events, gate
        self._awake = asyncio.Event()
        self._stopped = threading.Event()
        self._left: frozenset[str] = frozenset()
        self._again_at = 0.0
        self._runs = self._is_clear = False
        self._hurried = asyncio.Event()
        self._asked = asyncio.Event()
        self._round_over = asyncio.Event()
        signals.held_changed.subscribe(self._note_change)
        signals.claim_prepared.subscribe(self._hurried.set)

    async def run(self) -> None:
        """Work until cancelled."""
        self._runs = True
        try:
            await _wait(self._asked, FIRST_SECONDS)
            while True:
                is_urgent = self._asked.is_set()
                for event in (self._awake, self._hurried, self._asked):
                    event.clear()
                pause = await self._round(is_urgent)
                self._round_over.set()
                await _wait(self._hurried, pause)
                await _wait(self._awake, self._again_at - time.monotonic())
        finally:
            self._runs = False
            self._stopped.set()

    def _note_change(self) -> None:
        self._is_clear = False
        self._awake.set()

    async def wait_examined(self, devices: Collection[PlannedDevice]) -> None:
        """Wait until devices have been examined since they came back, for WAIT_SECONDS at most.

        Those that could not be cleared are not waited for: their pod's start is refused, with the reason. While nothing
        runs here, nothing is waited for: the pod's start searches.
        """
        until, pause = time.monotonic() + WAIT_SECONDS, 0.0
        try:
            while (
                self._may_help() and time.monotonic() < until and await asyncio.to_thread(self._is_unexamined, devices)
            ):
                await asyncio.sleep(pause)
                pause = LEAST_PAUSE  # a search that failed is not repeated at once
                self._round_over.clear()
                for event in (self._asked, self._awake, self._hurried):
                    event.set()
                await _wait(self._round_over, until - time.monotonic())
        except NetdraError as problem:
            log.debug("returned devices are not known: %s", problem)

    def _may_help(self) -> bool:
        """Whether a search may examine a device: this runs, and a device may have come back since the last search."""
        return self._runs and not self._is_clear

    def _is_unexamined(self, devices: Collection[PlannedDevice]) -> bool:
        return not returned.unexamined(self._state, devices) <= self._left

    async def _round(self, is_urgent: bool) -> float:
        """Search if there is a reason to, in urgent cases beside hooks; return how long to pause."""
        loop = asyncio.get_running_loop()
        try:
            if not await loop.run_in_executor(self._threads, self._is_due):
                self._is_clear = not self._left
                return 0.0
            if not is_urgent:
                await self._gate.wait()
            examination, seconds = await loop.run_in_executor(self._threads, self._examine)
        except NetdraError as problem:
            log.warning("returned devices are not examined: %s", problem)
            self._again_at = time.monotonic() + AGAIN_SECONDS
            return LEAST_PAUSE
        self._report(examination)
        return max(LEAST_PAUSE, PAUSE_SHARE * seconds)

    def _is_due(self) -> bool:
        return time.monotonic() >= self._again_at or not returned.marks(self._state) <= self._left

    def _examine(self) -> tuple[Examination, float]:
        began = time.thread_time()
        examination = returned.examine(self._state, MOST_SECONDS, self._stopped.is_set)
        self._left = returned.marks(self._state) if examination.complete else frozenset()
        self._again_at = time.monotonic() + (AGAIN_SECONDS if self._left else EVERY_SECONDS)
        return examination, time.thread_time() - began

    def _report(self, examination: Examination) -> None:
        for problem in examination.problems:
            log.warning("returned devices: %s", problem)
        for finding in examination.findings:
            self._events.report_left_behind(finding.device, str(finding), is_gone=not finding.problem)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, so long at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
