"""Which of the devices that policies make can be published: by what the API server takes, by names and by limits.

Called by `netdra.exposure.assemble` once per NIC. What is left out is a problem that names the policy.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from netdra.exposure.counters import MAX_SHARED_OF_NIC, MAX_SHARED_OF_VF, Persona
from netdra.exposure.templates import Template
from netdra.model import names
from netdra.model.device import Features, LeftOut, Problem
from netdra.model.inventory import Interface

NO_SHARING = "the API server does not let devices be shared (gate DRAConsumableCapacity)"
NO_COUNTERS = "the API server has no counters to keep several devices of one NIC apart (gate DRAPartitionableDevices)"

NAME_TAKEN = "another device of the NIC has its name; change the suffix"


class Candidate(msgspec.Struct, frozen=True):
    """An interface with the devices that policies would make of it."""

    interface: Interface
    templates: tuple[Template, ...]


def select(
    nic: Sequence[Candidate], *, vfs: int, features: Features
) -> tuple[list[tuple[Persona, ...]], list[Problem]]:
    """The devices to publish of each interface of a NIC, under names that are unique in its pool.

    Without counters nothing would keep two devices of one NIC apart, so each interface gets one: the shared or the
    exclusive one of the policy with the highest priority (the first name between equals, and the shared one of a policy
    that makes both). A PF is not offered exclusively then as long as one of its VFs is offered or used by the host.

    Args:
        nic: an interface, if it is known, and its VFs, if it has any.
        vfs: how many of them, at the end, are VFs.
        features: what the API server takes.
    """
    problems: list[Problem] = []
    used: set[str] = set()
    chosen = []
    first_vf = len(nic) - vfs
    vfs_used = any(vf.templates or vf.interface.in_host_use for vf in nic[first_vf:])
    for index, candidate in enumerate(nic):
        is_vf = index >= first_vf
        kept = candidate
        if not features.consumable_capacity:
            whole = [each for each in kept.templates if not each.shared]
            kept = _only(kept, whole, "feature-gate", NO_SHARING, problems)
        if not features.partitionable_devices:
            if vfs_used and not is_vf:
                reason = f"{NO_COUNTERS}, and VFs of it are in use"
                shared = [each for each in kept.templates if each.shared]
                kept = _only(kept, shared, "feature-gate", reason, problems)
            kept = _only(kept, sorted(kept.templates, key=_rank)[:1], "feature-gate", NO_COUNTERS, problems)
        room = MAX_SHARED_OF_VF if is_vf else MAX_SHARED_OF_NIC
        too_many = sorted((each for each in kept.templates if each.shared), key=_rank)[room:]
        fitting = [each for each in kept.templates if each not in too_many]
        kept = _only(kept, fitting, "limit", f"an interface can have {room} shared devices", problems)
        chosen.append(_named(kept, used, problems))
    return chosen, problems


def _rank(template: Template) -> tuple[int, str, bool]:
    return -template.priority, template.policy, not template.shared


def _only(
    candidate: Candidate, kept: Sequence[Template], kind: LeftOut, reason: str, problems: list[Problem]
) -> Candidate:
    dropped = [each for each in candidate.templates if each not in kept]
    problems += [_left_out(candidate.interface, each, kind, reason) for each in dropped]
    return Candidate(candidate.interface, tuple(kept))


def _named(candidate: Candidate, used: set[str], problems: list[Problem]) -> tuple[Persona, ...]:
    personas = []
    for template in candidate.templates:
        name = names.label(candidate.interface.device_name + template.suffix)
        if name in used:
            reason = f'the name "{name}" is taken; change the suffix'
            problems.append(_left_out(candidate.interface, template, "name-taken", reason))
            continue
        used.add(name)
        personas.append(Persona(name, template))
    return tuple(personas)


def _left_out(interface: Interface, template: Template, kind: LeftOut, reason: str) -> Problem:
    return Problem(
        policy=template.policy,
        message=f"{interface.device_name}{template.suffix} is left out: {reason}",
        interface=interface.identity,
        left_out=kind,
        device=interface.device_name,
        cause=f"its device is left out: {NAME_TAKEN if kind == 'name-taken' else reason}",
    )
