"""Policies by rank: of several expose policies of one rank, only the one whose name sorts first is used.

The controller reports it in statuses, the webhook warns of it. There may be thousands of policies of one rank, so a
change of a policy concerns few others: a policy learns the names of all others only if they are few.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from netdra.model.policy import DeviceExposurePolicy, Exposure

FEW = 8
"""A policy of a rank is told of all others if there are at most so many, else of one."""


class Rivals(NamedTuple):
    """Other policies of a policy's rank.

    Attributes:
        names: all of them in order, if they are few. Else the one whose name sorts next before the policy's own; of the
            first policy, which is used, the next one.
        more: whether there are others beside these.
    """

    names: tuple[str, ...] = ()
    more: bool = False


NO_RIVALS = Rivals()


def rank(policy: DeviceExposurePolicy) -> bytes | None:
    """The properties that policies of one rank have in common; None for a policy that exposes nothing."""
    spec = policy.spec
    if spec.action != "expose":
        return None
    suffix = (spec.exposure or Exposure()).device_name_suffix
    subject = (spec.selector.cel.strip(), spec.node_selector, spec.priority, suffix)
    return msgspec.json.encode(subject, order="deterministic")


class RankIndex:
    """The names of policies by their rank, in order."""

    def __init__(self, policies: Iterable[DeviceExposurePolicy] = ()) -> None:
        """Take policies."""
        self._names: dict[bytes, list[str]] = {}
        for policy in policies:
            self.update(policy.name, None, policy)

    def of(self, policy: DeviceExposurePolicy) -> Rivals:
        """The other policies of the rank of a policy, which may be one that is not in the index."""
        names = self._names.get(rank(policy) or b"", [])
        at = bisect_left(names, policy.name)
        others = len(names) - (names[at : at + 1] == [policy.name])
        if others <= FEW:
            return Rivals(tuple(name for name in names if name != policy.name))
        if at > 0:
            return Rivals((names[at - 1],), more=True)
        return Rivals((names[1] if names[0] == policy.name else names[0],), more=True)

    def update(self, name: str, old: DeviceExposurePolicy | None, new: DeviceExposurePolicy | None) -> tuple[str, ...]:
        """Take the change of a policy; returns the names of the others for which `of` now differs, and a few more."""
        before = rank(old) if old is not None else None
        after = rank(new) if new is not None else None
        if before == after:
            return ()
        concerned: list[str] = []
        if before is not None:
            names = self._names[before]
            at = bisect_left(names, name)
            del names[at]
            concerned += _around(names, at)
            if not names:
                del self._names[before]
        if after is not None:
            names = self._names.setdefault(after, [])
            at = bisect_left(names, name)
            concerned += _around(names, at)
            insort(names, name)
        return tuple(concerned)


def _around(others: list[str], at: int) -> list[str]:
    """The policies affected by a policy that enters or leaves a place between others of its rank."""
    if len(others) <= FEW + 1:
        return others
    # The first finding names the second device; each other one, the device before it.
    return others[max(0, at - 1) : at + 1]
