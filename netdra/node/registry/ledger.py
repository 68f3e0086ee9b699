"""The registrations of providers, their owners and leases: values and rules, without a clock, file or socket. Pure.

Used by `netdra.node.registry.leases`. Two times come in: `now`, seconds of the wall clock, by which leases end also
after a reboot, and `tick`, seconds of a clock that never goes back, by which changes are damped.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from netdra.exposure.registered import errors, provider_errors
from netdra.model.errors import InvalidInputError
from netdra.model.names import MAX_LABEL
from netdra.model.registration import Registration, path_error
from netdra.node.publishing.interfaces import Bucket

MAX_TTL = 30 * 86_400
DEFAULT_TTL = 300
OWNED_SECONDS = 86_400.0
"""How long a provider's name stays its owner's after the last of its registrations has ended."""
CHANGE_SECONDS = 10.0
"""The least seconds between two publications of a device's values; its first registration and its last are at once."""
BURST = 5
"""How often one device's names may come and go before that is damped, too."""
MAX_PROVIDERS = 64
MAX_OF_PROVIDER = 2048
MAX_REGISTRATIONS = 4096
MAX_BYTES = 4 * 1024 * 1024
_DEVICE = re.compile(rf"[^\s/\x00-\x1f\x7f]{{1,{MAX_LABEL}}}\Z")

Key = tuple[str, str]
"""A provider and a device."""


class RefusedRegistrationError(InvalidInputError):
    """A registration breaks a rule; the registry stays as it was."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A registration with its lease.

    Attributes:
        registration: what the provider says.
        owner: the caller that registered it.
        ttl: the lease's seconds.
        ends: when the lease ends, in seconds of the wall clock.
    """

    registration: Registration
    owner: str
    ttl: float
    ends: float

    @property
    def key(self) -> Key:
        """The registration's key: a provider has one registration for a device."""
        return self.registration.provider, self.registration.device


class Owner(msgspec.Struct, frozen=True):
    """The owner of a provider's name, and until when if nothing is registered under the name."""

    name: str
    until: float


class Limits(msgspec.Struct, frozen=True):
    """How much fits into the registry."""

    providers: int = MAX_PROVIDERS
    of_provider: int = MAX_OF_PROVIDER
    registrations: int = MAX_REGISTRATIONS
    size: int = MAX_BYTES


class Ledger:
    """All registrations that hold."""

    def __init__(self, pinned: Mapping[str, str] | None = None, limits: Limits | None = None) -> None:
        """Begin empty.

        Args:
            pinned: the owners of providers that only these may register under.
            limits: how much fits into it.
        """
        self._pinned = dict(pinned or {})
        self._limits = limits or Limits()
        self._by_device: dict[str, dict[str, Registration]] = {}
        self._entries: dict[Key, Entry] = {}
        self._sizes: dict[Key, int] = {}
        self._of_provider: dict[str, int] = {}
        self._adding: dict[str, str] = {}
        self._files: dict[str, Key] = {}
        self._size = 0
        self._ends: list[tuple[float, Key]] = []
        self.owners: dict[str, Owner] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> Iterator[Entry]:
        """Every registration, in the order in which they were made."""
        return iter(self._entries.values())

    def get(self, key: Key) -> Entry | None:
        """A registration."""
        return self._entries.get(key)

    def of_device(self, device: str) -> tuple[Registration, ...]:
        """A device's registrations, in the order of the providers' names."""
        registrations = self._by_device.get(device, {})
        return tuple(registrations[provider] for provider in sorted(registrations))

    def register(self, registration: Registration, owner: str, ttl: float, now: float) -> Entry:
        """Take a registration, in the place of the provider's former one for the device.

        Raises:
            RefusedRegistrationError: it breaks a rule, its provider's name is another owner's, or there is no room.
        """
        self._check(registration, ttl)
        self._check_owner(registration.provider, owner, now)
        entry = Entry(registration, owner, ttl, now + ttl)
        size = len(msgspec.json.encode(registration))
        self._check_room(entry, size)
        self._put(entry, size)
        self.owners[registration.provider] = Owner(owner, entry.ends + OWNED_SECONDS)
        return entry

    def deregister(self, provider: str, device: str, owner: str, now: float, *, anyone: bool = False) -> list[Entry]:
        """Take registrations back.

        Args:
            provider: the registrations' provider.
            device: the registration's device; "" for all of the provider's.
            owner: the caller.
            now: the time.
            anyone: whether the caller may do so for any owner, as root may; it also sets the provider's name free.

        Returns:
            the registrations that held until now.

        Raises:
            RefusedRegistrationError: the provider's name belongs to another owner, or is not valid.
        """
        for text in provider_errors(provider):
            raise RefusedRegistrationError(text)
        if not anyone:
            self._check_owner(provider, owner, now)
        keys = [key for key in self._entries if key[0] == provider and device in ("", key[1])]
        gone = [self._drop(key) for key in keys]
        if anyone and not device:
            self.owners.pop(provider, None)
        return gone

    def expire(self, now: float) -> list[Entry]:
        """Drop the registrations whose leases have ended, and return them."""
        gone: list[Entry] = []
        while self._ends and self._ends[0][0] <= now:
            ends, key = heapq.heappop(self._ends)
            entry = self._entries.get(key)
            if entry is not None and entry.ends == ends:
                gone.append(self._drop(key))
        for provider in [name for name, owner in self.owners.items() if owner.until <= now]:
            if not self._of_provider.get(provider):
                del self.owners[provider]
        return gone

    @property
    def next_end(self) -> float | None:
        """When the next lease ends; None without leases."""
        while self._ends:
            ends, key = self._ends[0]
            entry = self._entries.get(key)
            if entry is not None and entry.ends == ends:
                return ends
            heapq.heappop(self._ends)
        return None

    def restore(self, entries: Iterable[Entry], owners: Mapping[str, Owner], now: float) -> None:
        """Take the journal's registrations whose leases have not ended and that break no rule of today.

        A lease that was granted while the clock was ahead gets no longer than its caller asked for.
        """
        self.owners.update(owners)
        for written in entries:
            entry = msgspec.structs.replace(written, ends=min(written.ends, now + written.ttl))
            size = len(msgspec.json.encode(entry.registration))
            try:
                self._check(entry.registration, entry.ttl)
                self._check_room(entry, size)
            except RefusedRegistrationError:
                continue
            if entry.ends > now:
                self._put(entry, size)
                self.owners[entry.registration.provider] = Owner(entry.owner, entry.ends + OWNED_SECONDS)

    def _check(self, registration: Registration, ttl: float) -> None:
        if not _DEVICE.match(registration.device):
            shown = registration.device[:MAX_LABEL]
            raise RefusedRegistrationError(
                f'device: "{shown}" is no name of a device or an interface: 1 to {MAX_LABEL} characters, no / or space'
            )
        if registration.device_file:
            wrong = path_error(registration.device_file)
            if wrong or not registration.adds:
                raise RefusedRegistrationError(f"device_file: {wrong or 'only RegisterDevice takes one'}")
        for text in errors(registration.provider, registration.attributes, registration.capacity):
            raise RefusedRegistrationError(text)
        if not registration.adds and not registration.attributes and not registration.capacity:
            raise RefusedRegistrationError("says nothing: give attributes or capacity, or take it back by Deregister")
        if not 1 <= ttl <= MAX_TTL:
            raise RefusedRegistrationError(f"ttl_seconds: {ttl:g} is not from 1 to {MAX_TTL}")

    def _check_owner(self, provider: str, owner: str, now: float) -> None:
        pinned = self._pinned.get(provider)
        if pinned is not None:
            if pinned != owner:
                raise RefusedRegistrationError(f'provider: "{provider}" belongs to {pinned}, not to {owner}')
            return
        current = self.owners.get(provider)
        if current is not None and current.name != owner and (self._of_provider.get(provider) or now < current.until):
            raise RefusedRegistrationError(
                f'provider: "{provider}" belongs to {current.name}, not to {owner}; choose another name, or have root '
                "take the provider's registrations back"
            )

    def _check_room(self, entry: Entry, size: int) -> None:
        provider, device = entry.key
        adding = self._adding.get(device)
        if entry.registration.adds and adding is not None and adding != provider:
            raise RefusedRegistrationError(f'device: "{device}" is registered as a device of provider "{adding}"')
        path = entry.registration.device_file
        first = self._files.get(path, entry.key)
        if path and first != entry.key:
            raise RefusedRegistrationError(
                f'device_file: "{path}" is device "{first[1]}" of provider "{first[0]}"; a file is one device'
            )
        if self._size - self._sizes.get(entry.key, 0) + size > self._limits.size:
            raise RefusedRegistrationError(f"the registry is full: it takes {self._limits.size} bytes")
        if entry.key in self._entries:
            return
        count = self._of_provider.get(provider, 0)
        if not count and len(self._of_provider) >= self._limits.providers:
            raise RefusedRegistrationError(f"the registry is full: it takes {self._limits.providers} providers")
        if count >= self._limits.of_provider:
            raise RefusedRegistrationError(
                f'provider "{provider}" speaks of {count} devices, and more are not taken of one provider'
            )
        if len(self._entries) >= self._limits.registrations:
            raise RefusedRegistrationError(f"the registry is full: it takes {self._limits.registrations} registrations")

    def _put(self, entry: Entry, size: int) -> None:
        provider, device = entry.key
        if entry.key not in self._entries:
            self._of_provider[provider] = self._of_provider.get(provider, 0) + 1
        self._size += size - self._sizes.get(entry.key, 0)
        self._sizes[entry.key] = size
        before = self._entries.get(entry.key)
        if before is not None:
            self._files.pop(before.registration.device_file, None)
        if entry.registration.device_file:
            self._files[entry.registration.device_file] = entry.key
        self._entries[entry.key] = entry
        self._by_device.setdefault(device, {})[provider] = entry.registration
        if entry.registration.adds:
            self._adding[device] = provider
        elif self._adding.get(device) == provider:
            del self._adding[device]
        heapq.heappush(self._ends, (entry.ends, entry.key))
        if len(self._ends) > 4 * len(self._entries) + 64:
            self._ends = [(entry.ends, entry.key) for entry in self._entries.values()]
            heapq.heapify(self._ends)

    def _drop(self, key: Key) -> Entry:
        entry = self._entries.pop(key)
        self._size -= self._sizes.pop(key)
        provider, device = key
        self._files.pop(entry.registration.device_file, None)
        del self._by_device[device][provider]
        if not self._by_device[device]:
            del self._by_device[device]
        self._of_provider[provider] -= 1
        if not self._of_provider[provider]:
            del self._of_provider[provider]
        if self._adding.get(device) == provider:
            del self._adding[device]
        return entry


class _Seen(NamedTuple):
    """A device as it is published: its registrations, when they changed last, and how often names may change."""

    registrations: tuple[Registration, ...]
    at: float
    bucket: Bucket


class Shown:
    """The registrations that are to be published: a measurement each second must not write slices each second.

    A device's first registration, and names that come and go, are shown at once as long as the device has tokens. A
    value that changes is shown once in `CHANGE_SECONDS`.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._waiting: dict[str, tuple[Registration, ...]] = {}
        self._times: list[tuple[float, str]] = []
        self._made: tuple[Registration, ...] | None = ()
        self._silent: dict[str, None] = {}

    @property
    def registrations(self) -> tuple[Registration, ...]:
        """All that is to be published; the same object while nothing changes."""
        if self._made is None:
            self._made = tuple(registration for seen in self._seen.values() for registration in seen.registrations)
        return self._made

    def follow(self, device: str, registrations: tuple[Registration, ...], tick: float) -> bool:
        """Take a device's present registrations; returns whether what is to be published for it has changed."""
        seen = self._seen.get(device)
        if (seen.registrations if seen is not None else ()) == registrations:
            self._waiting.pop(device, None)
            return False
        when = self._when(device, registrations)
        if when > tick:
            if device not in self._waiting or _names(self._waiting[device]) != _names(registrations):
                heapq.heappush(self._times, (when, device))
            self._waiting[device] = registrations
            return False
        self._waiting.pop(device, None)
        bucket = seen.bucket if seen is not None else Bucket(BURST, tick, BURST, CHANGE_SECONDS)
        if seen is not None and _names(seen.registrations) != _names(registrations):
            bucket = bucket.less(tick)
        self._seen[device] = _Seen(registrations, tick, bucket)
        # A device without registrations is remembered until its tokens are back: coming and going is damped, too.
        self._silent.pop(device, None)
        if not registrations:
            self._silent[device] = None
        self._made = None
        return True

    def due(self) -> float | None:
        """When the first waiting device may be shown; None if none waits."""
        while self._times:
            when, device = self._times[0]
            waiting = self._waiting.get(device)
            if waiting is not None and self._when(device, waiting) == when:
                return when
            heapq.heappop(self._times)
        return None

    def release(self, tick: float) -> bool:
        """Show the devices that have waited long enough; returns whether there were any."""
        shown = False
        while (when := self.due()) is not None and when <= tick:
            device = self._times[0][1]
            shown = self.follow(device, self._waiting[device], tick) or shown
        while self._silent:
            device = next(iter(self._silent))
            if self._seen[device].bucket.now(tick) < BURST and len(self._silent) <= MAX_REGISTRATIONS:
                break
            del self._seen[device], self._silent[device]
        return shown

    def _when(self, device: str, registrations: Sequence[Registration]) -> float:
        """When a device's registrations may be shown."""
        seen = self._seen.get(device)
        if seen is None:
            return float("-inf")
        if _names(seen.registrations) != _names(registrations):
            return seen.bucket.at + seen.bucket.wait(seen.bucket.at)
        return seen.at + CHANGE_SECONDS


def _names(registrations: Iterable[Registration]) -> frozenset[object]:
    """What registrations say, without the values."""
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
