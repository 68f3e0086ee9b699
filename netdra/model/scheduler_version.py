"""The version of Kubernetes whose kube-scheduler allocates, and the rules of allocation in which versions differ.

Given to the allocator by callers: that of the server if a cluster is read, else an option's, else the newest release
that netdra supports. Each property is one difference, with its source; those without are in all versions alike.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from netdra.model.errors import InvalidInputError

_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:[.+-].*)?\Z", re.ASCII)


class SchedulerVersion(NamedTuple):
    """A minor version of Kubernetes; one that is newer than all known ones has the rules of the newest known."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> SchedulerVersion:
        """The version of a text such as `1.38` or the server's `v1.38.0-beta.0`.

        Raises:
            InvalidInputError: the text is not a version, or older than any that netdra supports.
        """
        parts = _VERSION.match(text)
        if parts is None:
            raise InvalidInputError(f'"{text[:64]}" is not a version of Kubernetes', hint=_HINT, code="ND1538")
        version = cls(int(parts.group(1)), int(parts.group(2)))
        if version < OLDEST_SCHEDULER:
            raise InvalidInputError(f"Kubernetes {version} is not supported", hint=_HINT, code="ND1539")
        return version

    @classmethod
    def of_server(cls, text: str) -> SchedulerVersion:
        """The version that a server reports: at least the oldest known, and the newest release if it is unreadable."""
        parts = _VERSION.match(text)
        return NEWEST_SCHEDULER if parts is None else max(OLDEST_SCHEDULER, cls(int(parts[1]), int(parts[2])))

    def __str__(self) -> str:
        """The version as it is written: `1.38`."""
        return f"{self.major}.{self.minor}"

    @property
    def shortens_configuration(self) -> bool:
        """Whether a claim's configuration stands once in its allocation, without requests if it is for all of them.

        Before, it stands there once for each of its requests that has devices.
        """
        return self >= (1, 37)

    @property
    def requests_full_devices(self) -> bool:
        """Whether a request for all devices includes shared devices that have too little capacity left.

        Before, it is for those with enough capacity.
        """
        return self >= (1, 37)

    @property
    def compares_all_devices(self) -> bool:
        """Whether distinctAttribute compares a device with all others of the claim.

        Before, it is compared with the last device of each request (structured/internal/incubating/constraint.go).
        """
        return self >= (1, 37)

    @property
    def has_one_name_for_capacity(self) -> bool:
        """Whether a capacity's name with the driver's domain and without it are one name.

        structured/internal/stable/consumable_capacity.go of v0.38 (`resolveCapacityRequests`); before, claims have to
        use the name as the device publishes it.
        """
        return self >= (1, 38)

    @property
    def has_fractional_ranges(self) -> bool:
        """Whether steps are calculated in thousandths: gate DRAFractionalCapacityRange.

        In 1.37 it is on only with --min-compatibility-version=1.37.
        """
        return self >= (1, 38)

    @property
    def skips_nodes_with_broken_pools(self) -> bool:
        """Whether a pool that is not usable excludes its node alone when a claim requests all devices."""
        return self >= (1, 38)

    @property
    def ignores_build_metadata(self) -> bool:
        """Whether constraints compare versions without what follows a `+`: semver.Version.Equals."""
        return self >= (1, 38)

    @property
    def has_shares_of_exclusive_devices(self) -> bool:
        """Whether a device that was shared, and has a share in use, is in use also after it became exclusive."""
        return self >= (1, 38)

    @property
    def refuses_negative_requests(self) -> bool:
        """Whether a negative request is an error before it is rounded up to the least amount."""
        return self >= (1, 38)


OLDEST_SCHEDULER = SchedulerVersion(1, 36)
NEWEST_SCHEDULER = SchedulerVersion(1, 37)
"""That of the newest release of Kubernetes; later ones are known as far as they have been tested (docs/testing.md)."""
_HINT = f"use {OLDEST_SCHEDULER} or a newer version"
