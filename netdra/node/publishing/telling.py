"""Tells administrators what is wrong with what a node publishes: each thing once, as an event, for as long as it lasts.

Called by `netdra.node.publishing.service`. What belongs to a policy is an event of the policy, the rest of the node. A
problem that went and comes again is told again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from netdra.kube.events import ObjectReference, Occurrence, Recorder
from netdra.model import names
from netdra.model.device import Problem
from netdra.node.publishing.publish import Written

log = logging.getLogger(__name__)

ACTION = "Publish"


class Telling:
    """What was told and still holds."""

    def __init__(self, recorder: Recorder, node: str) -> None:
        self._recorder = recorder
        self._node = ObjectReference(api_version="v1", kind="Node", name=node)
        self._problems: set[tuple[str, str]] = set()
        self._refused: dict[tuple[str, str], str] = {}
        self._gates: set[str] = set()

    def problems(self, found: Iterable[Problem]) -> None:
        """These are the problems now; those that are new are told."""
        now = {(problem.policy, problem.message): None for problem in found}
        for policy, message in now:
            if (policy, message) not in self._problems:
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
        self._recorder.emit(Occurrence(regarding=about, type="Warning", reason=reason, action=ACTION, note=note))
