"""The status of a NetworkTopology: whether it is sound, whether its DeviceClasses stand, and who uses it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from netdra.controller.classes import Changes
from netdra.controller.conditions import Said, conditions
from netdra.model.meta import MAX_REPORTED
from netdra.model.topology import NetworkTopology, NetworkTopologyStatus

_PENDING = "Pending"
_WRONG = frozenset({"ForeignDeviceClass", "Refused", "Unsound"})


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of a topology, after its classes were written.

    Attributes:
        findings: what is wrong with it.
        changes: what was to be done with its classes.
        problem: what the API server refused of that, or "".
        users: the claims that use it.
    """

    findings: Sequence[str] = ()
    changes: Changes = Changes()
    problem: str = ""
    users: tuple[str, ...] = ()


def status(topology: NetworkTopology, seen: Seen, now: datetime) -> NetworkTopologyStatus:
    """The status as it should be."""
    before = topology.status or NetworkTopologyStatus()
    generation = topology.metadata.generation
    said = (_compiled(seen), _ready(topology, seen), _in_use(seen))
    return NetworkTopologyStatus(
        observed_generation=generation,
        conditions=conditions(said, before.conditions, generation, now),
        device_classes=seen.changes.names if not seen.findings else before.device_classes,
        users=len(seen.users),
        used_by=seen.users[:MAX_REPORTED],
    )


def is_ready(topology: NetworkTopology) -> bool:
    """Whether its classes were said to be as they should be, for the spec that it has now."""
    before = topology.status or NetworkTopologyStatus()
    current = before.observed_generation == topology.metadata.generation
    return current and any(each.type == "Ready" and each.status == "True" for each in before.conditions)


def is_interim(topology: NetworkTopology, seen: Seen) -> bool:
    """Whether what was wrong is over and its classes are only just being written: the next look has more to say.

    Said now, it would hide from `notices` that what users were warned of has come to its end.
    """
    before = topology.status or NetworkTopologyStatus()
    was_wrong = any(each.type == "Ready" and each.reason in _WRONG for each in before.conditions)
    return was_wrong and _ready(topology, seen).reason == _PENDING


def _compiled(seen: Seen) -> Said:
    if seen.findings:
        return Said("Compiled", holds=False, reason="Unsound", message="\n".join(seen.findings))
    return Said("Compiled", holds=True, reason="Sound", message="the graph and every step's config are sound")


def _ready(topology: NetworkTopology, seen: Seen) -> Said:
    if topology.metadata.deletion_timestamp:
        users = "the claim that uses it is" if len(seen.users) == 1 else f"its {len(seen.users)} users are"
        why = f"it goes when {users} gone; new claims cannot be allocated"
        return Said("Ready", holds=False, reason="Deleting", message=why)
    if seen.findings:
        why = "DeviceClasses are left as they are until the topology is sound"
        return Said("Ready", holds=False, reason="Unsound", message=why)
    if seen.changes.foreign:
        named = ", ".join(f'"{name}"' for name in seen.changes.foreign)
        why = f"DeviceClass {named} is not netdra's and is left as it is; delete it, or rename the step"
        return Said("Ready", holds=False, reason="ForeignDeviceClass", message=why)
    if seen.problem:
        return Said("Ready", holds=False, reason="Refused", message=seen.problem)
    if not seen.changes.done:
        return Said("Ready", holds=False, reason=_PENDING, message="DeviceClasses are being written")
    return Said("Ready", holds=True, reason="DeviceClassesReady", message="every DeviceClass is as it should be")


def _in_use(seen: Seen) -> Said:
    if seen.users:
        why = "claims are allocated through its DeviceClasses, so its steps cannot be changed"
        return Said("InUse", holds=True, reason="Allocated", message=why)
    return Said("InUse", holds=False, reason="NoUsers", message="no claim is allocated through its DeviceClasses")
