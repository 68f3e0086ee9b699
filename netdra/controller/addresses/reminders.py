"""When the reason for which a claim waits is reported again: if it is another one, and before its event expires. Pure.

Used by `netdra.controller.addresses.pod_addresses` and `netdra.controller.addresses.shares`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable

REPEAT_SECONDS = 1800.0
"""Seconds until the reason for a missing address is reported again: Kubernetes keeps events for an hour."""


class Reminders:
    """Which problem of each claim was reported last, and when."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without any.

        Args:
            clock: in seconds; it never goes back.
        """
        self._clock = clock
        self._reported: dict[str, tuple[Hashable, float]] = {}

    def is_due(self, claim: str, problem: Hashable) -> bool:
        """Whether a claim's problem is to be reported: it is another one, or was reported long ago."""
        known, since = self._reported.get(claim, (None, 0.0))
        return known != problem or self._clock() - since >= REPEAT_SECONDS

    def note(self, claim: str, problem: Hashable) -> None:
        """Note that a claim's problem was reported."""
        self._reported[claim] = problem, self._clock()

    def keep(self, claims: Collection[str]) -> None:
        """Forget all other claims."""
        self._reported = {claim: report for claim, report in self._reported.items() if claim in claims}

    def forget(self, claim: str) -> None:
        """Forget a claim without problems."""
        self._reported.pop(claim, None)
