"""The addresses of claims with which no pod may start: another machine on the wire has them.

Kept by `prepare` from a pod's refused sandbox until the claim is released. The claim's status reports them, so the
controller assigns others; meanwhile `addresses` skips them. A daemon that starts again finds them once more.
"""

from __future__ import annotations

from collections.abc import Iterable

from netdra.chain.report import DuplicateAddress
from netdra.model.plan import ClaimReference


class RefusedAddresses:
    """The refused addresses of each claim."""

    def __init__(self) -> None:
        """Begin with none."""
        self._by_claim: dict[str, dict[str, DuplicateAddress]] = {}

    def add(self, duplicates: Iterable[DuplicateAddress]) -> None:
        """No pod may start with these addresses."""
        for entry in duplicates:
            self._by_claim.setdefault(entry.claim, {})[entry.address] = entry

    def of(self, claim: ClaimReference) -> tuple[DuplicateAddress, ...]:
        """The addresses of a claim."""
        return tuple(self._by_claim.get(claim.uid, {}).values())

    def forget(self, uid: str) -> None:
        """The claim is released."""
        self._by_claim.pop(uid, None)
