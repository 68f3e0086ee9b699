"""Tells administrators what is wrong with what a node publishes: each thing once, as an event, for as long as it lasts.

Called by `netdra.node.publishing.service`. What belongs to a policy is an event of the policy, the rest of the node. A
problem that went and comes again is told again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from netdra.kube.events import ObjectReference, Occurrence
from netdra.model import names
from netdra.model.device import Problem
from netdra.node.publishing.publish import Written

log = logging.getLogger(__name__)

ACTION = "Publish"
MAX_AT_ONCE = 8
"""How many new problems of one policy are told: one that fails, fails on every interface."""


class Emitter(Protocol):
    """Who writes events."""

    def emit(self, occurrence: Occurrence) -> None:
        """Note that something happened."""


class Telling:
    """What was told and still holds."""

    def __init__(self, emitter: Emitter, node: str) -> None:
        self._emitter = emitter
        self._node = ObjectReference(api_version="v1", kind="Node", name=node)
        self._problems: set[tuple[str, str]] = set()
        self._refused: dict[tuple[str, str], str] = {}
        self._gates: set[str] = set()

    def problems(self, found: Iterable[Problem]) -> None:
        """These are the problems now; those that are new are told."""
        now = dict.fromkeys((problem.policy, problem.message) for problem in found)
        told: Counter[str] = Counter()
        for policy, message in now:
            if (policy, message) not in self._problems:
                told[policy] += 1
                if told[policy] <= MAX_AT_ONCE:
                    self._tell("PolicyProblem" if policy else "DeviceLeftOut", message, self._policy(policy))
        self._problems = set(now)

    def written(self, pool: str, written: Written) -> None:
        """A pool was written: what the server did not take of it is told."""
        for refusal in written.refusals:
            if self._refused.get((pool, refusal.device)) != refusal.reason:
                self._refused[pool, refusal.device] = refusal.reason
                self._tell("DeviceRefused", f'pool "{pool}": device "{refusal.device}" is left out: {refusal.reason}')
        for field in written.dropped:
            if field.gate not in self._gates:
                self._gates.add(field.gate)
                why = f"its feature gate {field.gate} is off" if field.gate else "it does not know the field"
                self._tell("FieldDropped", f'pool "{pool}": the API server did not keep {field.path}: {why}')

    def forget(self, pool: str) -> None:
        """A pool is no longer published."""
        for key in [key for key in self._refused if key[0] == pool]:
            del self._refused[key]

    def without(self, gates: Iterable[str]) -> None:
        """The server was asked, and these of its feature gates are off."""
        for gate in gates:
            if gate not in self._gates:
                self._gates.add(gate)
                self._tell("FeatureOff", f"the API server's feature gate {gate} is off: less is published")

    def _policy(self, name: str) -> ObjectReference:
        if not name:
            return self._node
        return ObjectReference(api_version=names.GROUP_VERSION, kind="DeviceExposurePolicy", name=name)

    def _tell(self, reason: str, note: str, regarding: ObjectReference | None = None) -> None:
        about = regarding or self._node
        log.warning("%s %s: %s", about.kind, about.name, note)
        self._emitter.emit(Occurrence(regarding=about, type="Warning", reason=reason, action=ACTION, note=note))
