"""Reports problems with publishing to administrators, by events, and the devices' health to the kubelet.

Called by `netdra.node.publishing.service`. A cause is one event for as long as it lasts: a policy's problem is an event
of the policy, other problems are events of the node, and the trouble of a pooled VF is one of its claim, too. A problem
that went and comes again is a new event. A device with one of netdra's taints is not healthy.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Protocol

from netdra.kube.events import ObjectReference, Occurrence
from netdra.model import names
from netdra.model.device import Problem
from netdra.model.resource import API_VERSION, Device, ResourceSlice
from netdra.model.suggestions import listed
from netdra.node.publishing.publisher import PoolWrites
from netdra.node.view import DeviceHealth, VFTrouble
from netdra.topology.devices import DeviceKey

_WORDS = {
    names.LINK_DOWN: "the link has no carrier",
    names.GONE: "the interface is gone",
    names.TROUBLE: "it could not be released",
}

log = logging.getLogger(__name__)

ACTION = "Publish"
MAX_AT_ONCE = 8
"""How many new causes of one policy become events."""
MAX_NAMED = 3
"""How many of a cause's interfaces are named."""


class PublishedHealth:
    """The health of all published devices, as it is now and as it changes."""

    def __init__(self) -> None:
        self._pools: dict[str, tuple[DeviceHealth, ...]] = {}
        self._links: Mapping[DeviceKey, str] = {}
        self._turn = asyncio.Event()

    def publish(self, pools: Mapping[str, Iterable[ResourceSlice]]) -> None:
        """These pools are published like this from now on; a pool without slices is no longer published."""
        changed = False
        for pool, slices in pools.items():
            healths = tuple(_health(pool, device) for one in slices for device in one.spec.devices)
            changed = changed or self._pools.get(pool, ()) != healths
            if healths:
                self._pools[pool] = healths
            else:
                self._pools.pop(pool, None)
        if changed:
            self._wake()

    def note_links(self, links: Mapping[DeviceKey, str]) -> None:
        """These devices are in pods and their links do not work there, for these reasons."""
        if links != self._links:
            self._links = dict(links)
            self._wake()

    def _wake(self) -> None:
        turn, self._turn = self._turn, asyncio.Event()
        turn.set()

    def _with_link(self, device: DeviceHealth) -> DeviceHealth:
        reason = self._links.get((device.pool, device.device), "")
        if not reason or not device.healthy:
            return device
        return DeviceHealth(device.pool, device.device, healthy=False, message=f"in its pod: {reason}")

    async def states(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """Every device at once, and again whenever one changes, without end; a slow reader misses steps between.

        A device that is no longer published comes once more, as gone.
        """
        before: frozenset[DeviceKey] = frozenset()
        while True:
            turn = self._turn
            now = tuple(self._with_link(device) for pool in self._pools.values() for device in pool)
            keys = frozenset((device.pool, device.device) for device in now)
            if keys or before:
                yield (*now, *(_gone(*key) for key in sorted(before - keys)))
            before = keys
            await turn.wait()


def _gone(pool: str, device: str) -> DeviceHealth:
    return DeviceHealth(pool, device, healthy=False, message=_WORDS[names.GONE])


def _health(pool: str, device: Device) -> DeviceHealth:
    wrong = [
        _WORDS[taint.key] + (f": {taint.value}" if taint.value else "")
        for taint in device.taints
        if taint.key in _WORDS
    ]
    return DeviceHealth(pool, device.name, healthy=not wrong, message="; ".join(wrong))


class Emitter(Protocol):
    """Writes events."""

    def emit(self, occurrence: Occurrence) -> None:
        """Note an occurrence."""


class ProblemEvents:
    """The problems that had their event and still hold."""

    def __init__(self, emitter: Emitter, node: str) -> None:
        self._emitter = emitter
        self._node = ObjectReference(api_version="v1", kind="Node", name=node)
        self._problems: set[tuple[str, str]] = set()
        self._refused: dict[tuple[str, str], str] = {}
        self._gates: set[str] = set()

    def report_problems(self, problems: Iterable[Problem]) -> None:
        """Take the present problems; new ones become events."""
        causes: dict[tuple[str, str], list[Problem]] = {}
        for problem in problems:
            causes.setdefault((problem.policy, problem.cause or problem.message), []).append(problem)
        fresh: Counter[str] = Counter()
        for (policy, cause), seen in causes.items():
            if (policy, cause) not in self._problems:
                fresh[policy] += 1
                if fresh[policy] <= MAX_AT_ONCE:
                    note = (
                        seen[0].message if len(seen) == 1 else f"{cause}\n(on {len(seen)} interfaces, {_named(seen)})"
                    )
                    self._tell(_reason(seen[0]), note, self._policy(policy))
        self._problems = set(causes)

    def report_vf_troubles(self, former: Iterable[VFTrouble], present: Iterable[VFTrouble]) -> None:
        """Claims have pooled VFs with these troubles now; each that is new becomes an event of its claim."""
        known = {(trouble.claim, trouble.vf, trouble.reason) for trouble in former}
        for trouble in present:
            if (trouble.claim, trouble.vf, trouble.reason) not in known:
                claim = ObjectReference(
                    api_version=API_VERSION,
                    kind="ResourceClaim",
                    namespace=trouble.claim.namespace,
                    name=trouble.claim.name,
                    uid=trouble.claim.uid,
                )
                self._tell(trouble.reason, trouble.message, claim)

    def reason(self, key: DeviceKey) -> str:
        """Why the server refused a device last."""
        return self._refused.get(key, "")

    def report_write(self, pool: str, written: PoolWrites) -> None:
        """A pool was written: devices and fields that the server did not take become events."""
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

    def report_missing_gates(self, gates: Iterable[str]) -> None:
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


def _reason(problem: Problem) -> str:
    if problem.policy:
        return "PolicyProblem"
    return "NodeProblem" if problem.cause and not problem.interface else "DeviceLeftOut"


def _named(seen: Sequence[Problem]) -> str:
    """Some of the interfaces that have these problems."""
    return listed((problem.device for problem in seen), MAX_NAMED)
