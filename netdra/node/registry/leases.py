"""The registrations that hold, kept current: leases end, changes are damped, and all of it is written down.

Begun by `netdra.node.daemon` before anything is published, so that a restart takes nothing off a device. Read by
`netdra.node.publishing`, and called by `netdra.node.registry.service` for each registration. A registration is answered
when it is on the disk; registrations that come meanwhile are written together.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from netdra.model.errors import NetdraError
from netdra.model.registration import Registration
from netdra.node.registry.journal import Journal, line
from netdra.node.registry.ledger import Entry, Ledger, Limits, Shown

log = logging.getLogger(__name__)

LOCK_SECONDS = 1.0
"""How often the file is tried while another daemon has it."""
FILE = "registry.jsonl"


class Leases:
    """The registry of one node. One event loop's, but for the thread that writes."""

    def __init__(
        self,
        path: Path,
        changed: Callable[[], None] = lambda: None,
        *,
        pinned: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Begin with what was registered before.

        Args:
            path: the journal.
            changed: called when other registrations are to be published.
            pinned: the owners of providers that only these may register under.
            limits: how much is taken.
        """
        self._journal = Journal(path)
        self._pinned, self._limits = dict(pinned or {}), limits
        self.changed = changed
        self._shown = Shown()
        self.ledger = self._read(())
        self._pending: list[bytes] = []
        self._written: asyncio.Future[str] | None = None
        self._wake = asyncio.Event()
        self._write = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="registry")
        self._unwritten = False
        self.problem = ""

    @property
    def registrations(self) -> tuple[Registration, ...]:
        """What is to be published; the same object while nothing changes."""
        return self._shown.registrations

    def _read(self, before: Iterable[Entry]) -> Ledger:
        ledger = Ledger(self._pinned, self._limits)
        entries, owners = self._journal.read()
        ledger.restore(entries.values(), owners, time.time())
        ledger.expire(time.time())
        # In the order in which they were registered: of two names of one device file the first one counts.
        for device in dict.fromkeys(entry.registration.device for entry in (*before, *ledger.entries)):
            self._shown.follow(device, ledger.of_device(device), time.monotonic())
        return ledger

    async def own(self) -> None:
        """Wait until the file is this process's, and read it again: another daemon may have had it until now."""
        logged = False
        while True:
            try:
                if self._journal.lock():
                    break
                self.problem = "another daemon of this node has the registry"
            except NetdraError as problem:
                self.problem = str(problem)
            if not logged:
                log.warning("the device registry waits: %s", self.problem)
                logged = True
            await asyncio.sleep(LOCK_SECONDS)
        self.problem = ""
        self.ledger = self._read(self.ledger.entries)
        self.changed()
        self._unwritten = True
        self._write.set()

    async def run(self) -> None:
        """End leases and write until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._end())
                tasks.create_task(self._keep_written())
        finally:
            self._thread.shutdown(wait=True)
            self._journal.release()

    async def register(self, registration: Registration, owner: str, ttl: float) -> tuple[Entry, str]:
        """Grant a registration; returns when it is on the disk, or with the reason why it is not.

        Raises:
            RefusedRegistrationError: the registration breaks a rule.
        """
        entry = self.ledger.register(registration, owner, ttl, time.time())
        self._follow((entry,))
        return entry, await self._commit(line(granted=entry))

    async def deregister(self, provider: str, device: str, owner: str, *, anyone: bool) -> tuple[int, str]:
        """Take registrations back; returns their number, and why that is not on the disk, or "" if it is.

        Raises:
            RefusedRegistrationError: the provider's name belongs to another owner.
        """
        gone = self.ledger.deregister(provider, device, owner, time.time(), anyone=anyone)
        if anyone:
            self._unwritten = True  # a name that was set free is written with all others
        elif not gone:
            return 0, ""
        self._follow(gone)
        return len(gone), await self._commit(b"".join(line(ended=entry.key) for entry in gone))

    def _follow(self, entries: Iterable[Entry]) -> None:
        devices = {entry.registration.device for entry in entries}
        tick = time.monotonic()
        shown = [self._shown.follow(device, self.ledger.of_device(device), tick) for device in devices]
        if any(shown):
            self.changed()
        self._wake.set()

    async def _end(self) -> None:
        while True:
            self._wake.clear()
            gone = self.ledger.expire(time.time())
            if gone:
                self._follow(gone)
            if self._shown.release(time.monotonic()):
                self.changed()
            ends, due = self.ledger.next_end, self._shown.due()
            waits = [wait for wait in (ends and ends - time.time(), due and due - time.monotonic()) if wait is not None]
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.001, min(waits)) if waits else None):
                    await self._wake.wait()

    async def _commit(self, text: bytes) -> str:
        if self._written is None:
            self._written = asyncio.get_running_loop().create_future()
        self._pending.append(text)
        self._write.set()
        return await asyncio.shield(self._written)

    async def _keep_written(self) -> None:
        """Write all pending lines at once, and then those that came meanwhile."""
        loop = asyncio.get_running_loop()
        while True:
            await self._write.wait()
            self._write.clear()
            text, done = b"".join(self._pending), self._written
            self._pending, self._written = [], None
            try:
                if self._unwritten or self._journal.is_long:
                    self._unwritten = False  # what changes from now on is written next
                    entries, owners = tuple(self.ledger.entries), dict(self.ledger.owners)
                    await loop.run_in_executor(self._thread, self._journal.write, entries, owners)
                else:
                    await loop.run_in_executor(self._thread, self._journal.append, text)
                outcome = ""
                self.problem = ""
            except NetdraError as problem:
                outcome, self._unwritten = str(problem), True
                if not self.problem:
                    log.warning("%s: what is registered is lost if the driver restarts", problem)
                self.problem = outcome
            if done is not None and not done.done():
                done.set_result(outcome)
