"""Tells administrators what is wrong with what a node publishes: each cause once, as an event, for as long as it lasts.

Called by `netdra.node.publishing.service`. What belongs to a policy is an event of the policy, the rest of the node. A
problem that went and comes again is told again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from netdra.kube.events import ObjectReference, Occurrence
from netdra.model import names
from netdra.model.device import Problem
from netdra.node.publishing.publish import Written
from netdra.topology.devices import DeviceKey

log = logging.getLogger(__name__)

ACTION = "Publish"
MAX_AT_ONCE = 8
"""How many new causes of one policy are told."""
MAX_NAMED = 3
"""How many of the interfaces are named that a cause was seen on."""


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
        causes: dict[tuple[str, str], list[Problem]] = {}
        for problem in found:
            causes.setdefault((problem.policy, problem.cause or problem.message), []).append(problem)
        told: Counter[str] = Counter()
        for (policy, cause), seen in causes.items():
            if (policy, cause) not in self._problems:
                told[policy] += 1
                if told[policy] <= MAX_AT_ONCE:
                    note = (
                        seen[0].message if len(seen) == 1 else f"{cause}\n(on {len(seen)} interfaces, {_named(seen)})"
                    )
                    self._tell("PolicyProblem" if policy else "DeviceLeftOut", note, self._policy(policy))
        self._problems = set(causes)

    def reason(self, key: DeviceKey) -> str:
        """Why the server refused a device last."""
        return self._refused.get(key, "")

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


def _named(seen: Sequence[Problem]) -> str:
    """Some of the interfaces that problems are about."""
    names_ = [problem.device for problem in seen]
    more = ", …" if len(names_) > MAX_NAMED else ""
    return ", ".join(names_[:MAX_NAMED]) + more
