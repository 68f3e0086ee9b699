"""The valid registrations in one table: the providers' leases and names, and which of them are published when.

Begun by `netdra.node.daemon` before anything is published, so that a restart takes nothing off a device. Read by
`netdra.node.publishing`, and called by `netdra.node.registry.service` for each registration. A registration is answered
when it is on the disk (`netdra.node.registry.journal`); registrations that come meanwhile are written together. Leases
end by the seconds since boot, also those of a suspension, and after a reboot by the wall clock.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec

from netdra.exposure.registered import errors, provider_errors
from netdra.model.errors import NetdraError
from netdra.model.names import MAX_LABEL
from netdra.model.registration import Registration, path_error
from netdra.node.publishing.interfaces import Bucket
from netdra.node.registry.journal import Grant, JournalLine, Key, ProviderOwner, RegistrationJournal
from netdra.node.registry.owners import ProviderOwners
from netdra.node.registry.shares import MAX_REGISTRATIONS, RefusedRegistrationError, RegistryLimits, Shares
from netdra.ops.boot import since_boot

log = logging.getLogger(__name__)

FILE = "registry.jsonl"
MAX_TTL = 30 * 86_400
DEFAULT_TTL = 300
CHANGE_SECONDS = 10.0
"""The least seconds between two publications of a device's values; its first registration and its last are at once."""
BURST = 5
"""How often one device's names may come and go before that is damped, too."""
LOCK_SECONDS = 1.0
"""How often the file is tried while another daemon has it."""
REWRITE_SECONDS = 5.0
"""How long after a file could not be written it is tried again, though nobody registers anything."""
LONGEST_SLEEP = 60.0
"""The most seconds between two passes while there are leases: the event loop's clock stands still in a suspension."""
SWEEP_SECONDS = 0.1
"""The least seconds between two passes over the table."""
_DEVICE = re.compile(rf"[^\s/\x00-\x1f\x7f]{{1,{MAX_LABEL}}}\Z")


@dataclass
class _Device:
    """A row of the table.

    Attributes:
        bucket: how often the device's names may still come and go.
        grants: its registrations, by provider: who came first has the room on the device first.
        published: its published facts.
        at: when that changed last; before its first publication it never did.
        due: when its registrations may be published, if they are not yet.
    """

    bucket: Bucket
    grants: dict[str, Grant] = field(default_factory=dict)
    published: tuple[Registration, ...] = ()
    at: float = float("-inf")
    due: float | None = None

    def publish(self, tick: float) -> bool:
        """Publish the registrations if they may be by now; returns whether that changed anything.

        A measurement each second must not write slices each second. A first registration, and names that come and go,
        are published at once as long as there are tokens, and a value that changes once in `CHANGE_SECONDS`.
        """
        current = tuple(grant.registration for grant in self.grants.values())
        self.due = None
        if current == self.published:
            return False
        renamed = _names(current) != _names(self.published)
        when = self.bucket.at + self.bucket.wait(self.bucket.at) if renamed else self.at + CHANGE_SECONDS
        if when > tick:
            self.due = when
            return False
        if renamed and self.at > float("-inf"):
            self.bucket = self.bucket.less(tick)
        self.published, self.at = current, tick
        return True


class RegistrationTable:
    """The registry of one node. One event loop's, but for the thread that writes."""

    def __init__(
        self,
        path: Path,
        changed: Callable[[], None] = lambda: None,
        *,
        pinned: Mapping[str, str] | None = None,
        limits: RegistryLimits | None = None,
        clock: Callable[[], float] = since_boot,
        tick: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Begin with the former registrations.

        Args:
            path: the journal.
            changed: called when other registrations are to be published.
            pinned: the owners of providers that only these may register under.
            limits: how much is accepted.
            clock: seconds since boot.
            tick: seconds of a clock that stands still while the machine is suspended.
            wall: seconds of the wall clock, for leases of another boot.
        """
        self._journal = RegistrationJournal(path, clock, wall)
        self._pinned, self._limits = dict(pinned or {}), limits or RegistryLimits()
        self._clock, self._tick = clock, tick
        self.changed = changed
        self.problem = ""
        self._devices: dict[str, _Device] = {}
        self._published: tuple[Registration, ...] | None = ()
        self._load()
        self._pending: list[JournalLine] = []
        self._written: asyncio.Future[str] | None = None
        self._wake, self._write = asyncio.Event(), asyncio.Event()
        self._next = float("inf")
        self._rewrite = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="registry")

    def __len__(self) -> int:
        return self._shares.of_provider.total()

    @property
    def owners(self) -> dict[str, ProviderOwner]:
        """The owner of each provider's name."""
        return self._owners.names

    @property
    def grants(self) -> Iterator[Grant]:
        """Every registration that holds, in the order in which devices were registered."""
        return (grant for device in self._devices.values() for grant in device.grants.values())

    @property
    def registrations(self) -> tuple[Registration, ...]:
        """The registrations to publish; the same object while nothing changes."""
        if self._published is None:
            self._published = tuple(entry for device in self._devices.values() for entry in device.published)
        return self._published

    def get(self, provider: str, device: str) -> Grant | None:
        """A provider's registration of a device."""
        row = self._devices.get(device)
        return row.grants.get(provider) if row is not None else None

    def after(self, key: Key) -> Iterator[Key]:
        """The keys of registrations after a key, in their order."""
        return islice(self._keys, bisect_right(self._keys, key), None)

    async def register(self, registration: Registration, owner: str, ttl: float) -> tuple[Grant, str]:
        """Grant a registration; returns when it is on the disk, or with the reason why it is not.

        Raises:
            RefusedRegistrationError: as of `put`.
        """
        grant = self.put(registration, owner, ttl)
        return grant, await self._commit(JournalLine(granted=grant))

    async def deregister(self, provider: str, device: str, owner: str, *, anyone: bool) -> tuple[int, str]:
        """Take registrations back; returns their number, and why that is not on the disk, or "" if it is.

        Raises:
            RefusedRegistrationError: as of `remove`.
        """
        gone = self.remove(provider, device, owner, anyone=anyone)
        if anyone:
            self._rewrite = True  # a name that was set free is written with all others
        elif not gone:
            return 0, ""
        return len(gone), await self._commit(*(JournalLine(ended=grant.key) for grant in gone))

    def left(self, grant: Grant) -> float:
        """The seconds until a lease ends."""
        return max(0.0, grant.ends - self._clock())

    def put(self, registration: Registration, owner: str, ttl: float) -> Grant:
        """Grant a registration in memory, in the place of the provider's former one for the device.

        Args:
            registration: what the provider states.
            owner: the caller.
            ttl: seconds of the lease.

        Raises:
            RefusedRegistrationError: it breaks a rule, its provider's name is another owner's, or the limit is reached.
        """
        now = self._clock()
        _check(registration, ttl)
        is_taken = self._owners.check(registration.provider, owner, now)
        grant = Grant(registration, owner, ttl, now + ttl)
        self._add(grant)
        if is_taken:
            former = [other for other in self.grants if other.key[0] == grant.key[0] and other.owner != owner]
            self._drop(former)
            self._rewrite = True  # what the former owner registered is gone from the file, too
        self._publish((registration.device,))
        if self._tick() + ttl < self._next:
            self._wake.set()
        return grant

    def remove(self, provider: str, device: str, owner: str, *, anyone: bool = False) -> list[Grant]:
        """Take registrations back in memory, and return them.

        Args:
            provider: the registrations' provider.
            device: the registration's device; "" for all of the provider's.
            owner: the caller.
            anyone: whether the caller may do so for any owner, as root may; it also sets the provider's name free.

        Raises:
            RefusedRegistrationError: the provider's name belongs to another owner, or is not valid.
        """
        for finding in provider_errors(provider):
            raise RefusedRegistrationError(finding.text_at_path, code="ND2219")
        if not anyone:
            self._owners.check(provider, owner, self._clock())
        held = (self.get(provider, device),) if device else self.grants
        gone = [grant for grant in held if grant is not None and grant.registration.provider == provider]
        self._drop(gone)
        if anyone and not device:
            self.owners.pop(provider, None)
        return gone

    def sweep(self) -> float | None:
        """End leases, publish what has waited long enough, and forget devices; returns the seconds until it has work.

        A device without registrations is remembered until its tokens are back: coming and going is damped, too.
        """
        now, tick = self._clock(), self._tick()
        self._drop([grant for grant in self.grants if grant.ends <= now])
        self._publish([name for name, device in self._devices.items() if device.due is not None and device.due <= tick])
        self._owners.expire(now)
        quiet = [name for name, device in self._devices.items() if not device.grants and not device.published]
        for more, name in zip(range(len(quiet), 0, -1), quiet, strict=True):
            if more > MAX_REGISTRATIONS or self._devices[name].bucket.now(tick) >= BURST:
                del self._devices[name]
        waits = [grant.ends - now for grant in self.grants]
        waits += [device.due - tick for device in self._devices.values() if device.due is not None]
        wait = max(0.0, min(waits)) if waits else None
        self._next = tick + wait if wait is not None else float("inf")
        return wait

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
        self._load()
        self.changed()
        self._rewrite = True
        self._write.set()

    async def run(self) -> None:
        """End leases and write until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._sweep_when_due())
                tasks.create_task(self._write_pending())
        finally:
            self._thread.shutdown(wait=True)
            self._journal.release()

    def _load(self) -> None:
        """Take the journal's registrations whose leases have not ended and that break no rule of today.

        A lease that was granted while the clock was ahead gets no longer than its caller asked for.
        """
        now = self._clock()
        self._shares = Shares(self._limits)
        self._owners = ProviderOwners(self._pinned, lambda provider: self._shares.of_provider[provider])
        self._files: dict[str, Key] = {}
        self._keys: list[Key] = []
        for device in self._devices.values():
            device.grants.clear()
        granted: dict[Key, Grant] = {}
        for line in self._journal.read():
            if line.granted is not None:
                granted[line.granted.key] = line.granted
                self._owners.own(line.granted)
            elif line.ended is not None:
                granted.pop(line.ended, None)
            elif line.owner is not None:
                self.owners[line.provider] = line.owner
        for written in granted.values():
            grant = msgspec.structs.replace(written, ends=min(written.ends, now + written.ttl))
            with suppress(RefusedRegistrationError):
                _check(grant.registration, grant.ttl)
                if grant.ends > now:
                    self._add(grant, is_new=False)
        for provider in [name for name in self.owners if not self._shares.of_provider[name]]:
            self._owners.release(provider, now)
        for device in self._devices.values():
            device.publish(self._tick())
        self._published = None

    def _check_conflicts(self, grant: Grant) -> None:
        name = grant.key[1]
        device = self._devices.get(name)
        for other in device.grants.values() if device is not None else ():
            if grant.registration.adds and other.registration.adds and other.key != grant.key:
                raise RefusedRegistrationError(
                    f'device: "{name}" is registered as a device of provider "{other.key[0]}"',
                    reason="TAKEN",
                    code="ND2220",
                )
        path = grant.registration.device_file
        first = self._files.get(path, grant.key)
        if path and first != grant.key:
            raise RefusedRegistrationError(
                f'device_file: "{path}" is device "{first[1]}" of provider "{first[0]}"; a file is one device',
                reason="TAKEN",
                code="ND2221",
            )

    def _add(self, grant: Grant, *, is_new: bool = True) -> None:
        """Put a grant into its row; entries of the journal were counted when they were new.

        Raises:
            RefusedRegistrationError: the limit is reached.
        """
        provider, name = grant.key
        before = self.get(provider, name)
        self._check_conflicts(grant)
        if is_new:
            self._shares.check(grant, before)
        if before is not None:
            self._files.pop(before.registration.device_file, None)
            self._shares.remove(before)
        else:
            insort(self._keys, grant.key)
        self._shares.add(grant)
        if grant.registration.device_file:
            self._files[grant.registration.device_file] = grant.key
        if name not in self._devices:
            self._devices[name] = _Device(Bucket(BURST, self._tick(), BURST, CHANGE_SECONDS))
        self._devices[name].grants[provider] = grant
        self._owners.own(grant)

    def _drop(self, grants: Sequence[Grant]) -> None:
        """Remove grants from their rows, and publish what is left."""
        for grant in grants:
            provider, name = grant.key
            del self._devices[name].grants[provider]
            self._files.pop(grant.registration.device_file, None)
            self._shares.remove(grant)
            del self._keys[bisect_left(self._keys, grant.key)]
            if not self._shares.of_provider[provider]:
                self._owners.release(provider, self._clock())
        self._publish({grant.registration.device for grant in grants})
        if grants:
            self._wake.set()

    def _publish(self, devices: Iterable[str]) -> None:
        tick = self._tick()
        touched = [self._devices[name] for name in devices]
        changed = [device.publish(tick) for device in touched]
        if any(changed):
            self._published = None
            self.changed()
        if any(device.due is not None and device.due < self._next for device in touched):
            self._wake.set()

    async def _sweep_when_due(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            wait = self.sweep()
            deadline = loop.time() + min(wait, LONGEST_SLEEP) if wait is not None else None
            await asyncio.sleep(SWEEP_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._wake.wait()

    async def _commit(self, *lines: JournalLine) -> str:
        if self._written is None:
            self._written = asyncio.get_running_loop().create_future()
        self._pending += lines
        self._write.set()
        return await asyncio.shield(self._written)

    async def _write_pending(self) -> None:
        """Write all pending lines at once, and then those that came meanwhile."""
        loop = asyncio.get_running_loop()
        while True:
            await self._write.wait()
            self._write.clear()
            lines, done = self._pending, self._written
            self._pending, self._written = [], None
            try:
                if self._rewrite or self._journal.is_long:
                    self._rewrite = False  # what changes from now on is written next
                    grants, owners = tuple(self.grants), dict(self.owners)
                    await loop.run_in_executor(self._thread, self._journal.write, grants, owners)
                else:
                    await loop.run_in_executor(self._thread, self._journal.append, lines)
                outcome = ""
            except NetdraError as problem:
                outcome, self._rewrite = str(problem), True
                loop.call_later(REWRITE_SECONDS, self._write.set)
                if not self.problem:
                    log.warning("%s: registrations are lost if the driver restarts", problem)
            self.problem = outcome
            if done is not None and not done.done():
                done.set_result(outcome)


def _check(registration: Registration, ttl: float) -> None:
    """Check the rules for a registration by itself."""
    # Unprintable characters include those that change the direction of a text (Unicode, UAX 9).
    if not _DEVICE.match(registration.device) or not registration.device.isprintable():
        raise RefusedRegistrationError(
            f'device: "{ascii(registration.device[:MAX_LABEL])[1:-1]}" is not a valid device or interface name; '
            f"use 1 to {MAX_LABEL} printable characters without / and spaces",
            code="ND2222",
        )
    if registration.device_file:
        wrong = path_error(registration.device_file)
        if wrong or not registration.adds:
            raise RefusedRegistrationError(f"device_file: {wrong or 'only RegisterDevice takes one'}", code="ND2223")
    for finding in errors(registration.provider, registration.attributes, registration.capacity):
        raise RefusedRegistrationError(finding.text_at_path, code="ND2224")
    if not registration.adds and not registration.attributes and not registration.capacity:
        raise RefusedRegistrationError(
            "attributes or capacity is required; use Deregister to remove a registration", code="ND2225"
        )
    if not 1 <= ttl <= MAX_TTL:
        raise RefusedRegistrationError(f"ttl_seconds: {ttl:g} is not from 1 to {MAX_TTL}", code="ND2226")


def _names(registrations: Iterable[Registration]) -> frozenset[object]:
    """The names in registrations, without the values."""
    return frozenset(
        (
            registration.provider,
            registration.adds,
            registration.device_file,
            frozenset(registration.attributes),
            frozenset(registration.capacity),
        )
        for registration in registrations
    )
