"""The limits of the registry, in all and for one owner: providers' names, registrations and bytes.

Used by `netdra.node.registry.table` for each registration. An owner may use as much as is left free beside it, so one
alone has half of the registry, the next one half of the rest, and there is always some room for another. A small share
is each owner's in any case as long as there is any room.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from netdra.model.errors import InvalidInputError
from netdra.node.registry.journal import Grant

MAX_PROVIDERS = 64
MAX_OF_PROVIDER = 2048
MAX_REGISTRATIONS = 4096
MAX_BYTES = 4 * 1024 * 1024
LEAST_SHARE = 16
"""What an owner may use in any case: one part of so many."""
_STEP = 256
"""Bytes are counted in such steps, or a value with one more digit could not be registered by who has its share."""


class RefusedRegistrationError(InvalidInputError):
    """A registration breaks a rule; the registry stays as it was.

    Attributes:
        reason: one word for programs (`netdra.node.registry.refusals.CODES`).
    """

    def __init__(self, what: str, *, hint: str = "", reason: str = "INVALID", code: str = "") -> None:
        super().__init__(what, hint=hint, code=code)
        self.reason = reason


class RegistryLimits(msgspec.Struct, frozen=True):
    """How much fits into the registry; `size` is in bytes."""

    providers: int = MAX_PROVIDERS
    of_provider: int = MAX_OF_PROVIDER
    registrations: int = MAX_REGISTRATIONS
    size: int = MAX_BYTES


class Shares:
    """The usage of providers and owners.

    Attributes:
        of_provider: registrations of each provider.
    """

    def __init__(self, limits: RegistryLimits) -> None:
        self._limits = limits
        self.of_provider: Counter[str] = Counter()
        self._owners: dict[str, Counter[str]] = {}
        """By provider, the owners of its registrations; more than one only while a name changes its owner."""
        self._registrations: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def check(self, grant: Grant, before: Grant | None) -> None:
        """Check that a registration fits in the place of a former one.

        Raises:
            RefusedRegistrationError: none exists, or not for this owner.
        """
        owner, provider, limits = grant.owner, grant.key[0], self._limits
        kept = before if before is not None and before.owner == owner else None
        size, freed = _size(grant), _size(before) if before is not None else 0
        if size > freed:
            mine = self._bytes[owner] + size - (freed if kept is not None else 0)
            _check_share("bytes", owner, mine, self._bytes.total() + size - freed, limits.size)
        if kept is not None:
            return
        count = self.of_provider[provider]
        if before is None and count >= limits.of_provider:
            raise RefusedRegistrationError(
                f'provider "{provider}" has {count} registrations; one provider must not have more',
                reason="FULL",
                code="ND2216",
            )
        total = self._registrations.total() + (before is None)
        _check_share("registrations", owner, self._registrations[owner] + 1, total, limits.registrations)
        if owner not in self._owners.get(provider, ()):
            names = sum(1 for owners in self._owners.values() if owner in owners) + 1
            _check_share("providers", owner, names, len(self.of_provider) + (not count), limits.providers)

    def add(self, grant: Grant) -> None:
        """Count a registration."""
        provider = grant.key[0]
        self.of_provider[provider] += 1
        self._owners.setdefault(provider, Counter())[grant.owner] += 1
        self._registrations[grant.owner] += 1
        self._bytes[grant.owner] += _size(grant)

    def remove(self, grant: Grant) -> None:
        """Count a registration no longer."""
        provider, owner = grant.key[0], grant.owner
        for counts, key, less in (
            (self.of_provider, provider, 1),
            (self._owners[provider], owner, 1),
            (self._registrations, owner, 1),
            (self._bytes, owner, _size(grant)),
        ):
            counts[key] -= less
            if not counts[key]:
                del counts[key]
        if not self._owners[provider]:
            del self._owners[provider]


def _size(grant: Grant) -> int:
    return -(-grant.size // _STEP) * _STEP


def _check_share(unit: str, owner: str, mine: int, total: int, limit: int) -> None:
    if total > limit:
        raise RefusedRegistrationError(f"the registry is full: it takes {limit} {unit}", reason="FULL", code="ND2217")
    if mine > max(1, limit // LEAST_SHARE, limit - total):
        raise RefusedRegistrationError(
            f"{owner} would use {mine} of the registry's {limit} {unit}, and {limit - total} would be free; one owner "
            "must not use more than is free",
            reason="FULL",
            code="ND2218",
        )
