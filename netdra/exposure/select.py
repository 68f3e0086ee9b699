"""Which of the devices that policies make can be published: by the API server's features, by names and by limits.

Called by `netdra.exposure.assemble` once per NIC. A device that is left out is a problem that names the policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from netdra.exposure.counters import MAX_SHARED_OF_NIC, MAX_SHARED_OF_VF, NicMember, Persona, branches, fits
from netdra.exposure.templates import Template
from netdra.model import names
from netdra.model.device import Features, LeftOut, Problem
from netdra.model.inventory import Interface
from netdra.model.resource import MAX_COUNTERS

NO_SHARING = "the API server does not support shared devices (feature gate DRAConsumableCapacity)"
NO_COUNTERS = (
    "the API server does not support counters, which separate several devices of one NIC (feature gate "
    "DRAPartitionableDevices)"
)

NAME_TAKEN = "another device of the NIC has this name; change the suffix"


class CandidateInterface(msgspec.Struct, frozen=True):
    """An interface of a NIC with the devices that policies would make of it.

    Attributes:
        is_root: it is the NIC itself. The others are described in `netdra.exposure.counters.NicMember`.
    """

    interface: Interface
    templates: tuple[Template, ...]
    is_root: bool = True
    on: frozenset[int] = frozenset()
    on_root: bool = False
    shares_function: bool = False
    protected: bool = False

    def member(self, personas: tuple[Persona, ...] | None = None) -> NicMember:
        """The candidate as counters see it, with these devices, or with one for each template under a name to come."""
        name = self.interface.device_name
        if personas is None:
            personas = tuple(Persona(f"{name}{template.suffix}", template) for template in self.templates)
        return NicMember(
            name=name,
            personas=personas,
            is_vf=self.interface.type == "vf" and not self.interface.is_pool,
            on=self.on,
            on_root=self.on_root,
            shares_function=self.shares_function,
            protected=self.protected,
        )


def select(
    nic: Sequence[CandidateInterface], covered: Mapping[str, str], features: Features
) -> tuple[list[tuple[Persona, ...]], list[Problem]]:
    """The devices to publish of each interface of a NIC, under names that are unique in its pool.

    Without counters nothing would keep two devices of one NIC apart, so each interface gets one: the shared or the
    exclusive one of the policy with the highest priority (the first name between equals, and the shared one of a policy
    that makes both). An interface that others stand on is then not offered exclusively as long as one of these is
    offered or protected, such as a PF with its VFs.

    Args:
        nic: an interface, if it is known, and the interfaces that belong to it.
        covered: by the name of an interface, the offered interfaces on top of it that are in another pool.
        features: the features that the API server supports.
    """
    problems: list[Problem] = []
    candidates = [_uncovered(candidate, covered, problems) for candidate in nic]
    if any(candidate.on for candidate in candidates):
        candidates = _fitting(candidates, problems)
    used: set[str] = set()
    chosen = []
    for candidate in candidates:
        narrowed = candidate
        if not features.consumable_capacity:
            whole = [template for template in narrowed.templates if not template.shared]
            narrowed = _only(narrowed, whole, "feature-gate", NO_SHARING, problems)
        if not features.partitionable_devices:
            users = _users(candidates, candidate)
            if users:
                shared = [template for template in narrowed.templates if template.shared]
                reason = f"{NO_COUNTERS}, and {users} of it are in use"
                narrowed = _only(narrowed, shared, "feature-gate", reason, problems)
            first = sorted(narrowed.templates, key=_rank)[:1]
            narrowed = _only(narrowed, first, "feature-gate", NO_COUNTERS, problems)
        room = MAX_SHARED_OF_NIC if narrowed.is_root else MAX_SHARED_OF_VF
        too_many = sorted((template for template in narrowed.templates if template.shared), key=_rank)[room:]
        fitting = [template for template in narrowed.templates if template not in too_many]
        narrowed = _only(narrowed, fitting, "limit", f"an interface supports {room} shared devices", problems)
        chosen.append(_name_personas(narrowed, used, problems))
    return chosen, problems


def _uncovered(
    candidate: CandidateInterface, covered: Mapping[str, str], problems: list[Problem]
) -> CandidateInterface:
    above = covered.get(candidate.interface.if_name)
    if not above:
        return candidate
    reason = f"{above} is on top of it and of other NICs, but counters only work within one pool"
    return _only(
        candidate, [template for template in candidate.templates if template.shared], "limit", reason, problems
    )


def _fitting(candidates: Sequence[CandidateInterface], problems: list[Problem]) -> list[CandidateInterface]:
    """The candidates; if one set has no room for a branch's counters, its lower interfaces are only offered shared."""
    others = [candidate for candidate in candidates if not candidate.is_root]
    for branch in branches([other.member() for other in others]):
        if fits([others[place].member() for place in branch], branch):
            continue
        reason = f"the interfaces on top of it require more counters than the {MAX_COUNTERS} of a set"
        for place in branch:
            if any(place in others[other].on for other in branch):
                shared = [template for template in others[place].templates if template.shared]
                others[place] = _only(others[place], shared, "limit", reason, problems)
    return [*(candidate for candidate in candidates if candidate.is_root), *others]


def _users(candidates: Sequence[CandidateInterface], candidate: CandidateInterface) -> str:
    """A word for the offered or protected interfaces on top of an interface, or beside it; "" without any."""
    others = [other for other in candidates if not other.is_root]
    if candidate.is_root or candidate.shares_function:
        using = [other for other in others if other.on_root and not other.shares_function]
    else:
        place = others.index(candidate)
        using = [other for other in others if place in other.on]
    using = [entry for entry in using if entry.templates or entry.protected]
    if using:
        return "VFs" if any(entry.interface.type == "vf" for entry in using) else "interfaces on top"
    return "other ports" if candidate.shares_function else ""


def _rank(template: Template) -> tuple[int, str, bool]:
    return -template.priority, template.policy, not template.shared


def _only(
    candidate: CandidateInterface, templates: Sequence[Template], kind: LeftOut, reason: str, problems: list[Problem]
) -> CandidateInterface:
    dropped = [template for template in candidate.templates if template not in templates]
    problems += [_left_out(candidate.interface, entry, kind, reason) for entry in dropped]
    return msgspec.structs.replace(candidate, templates=tuple(templates)) if dropped else candidate


def _name_personas(candidate: CandidateInterface, used: set[str], problems: list[Problem]) -> tuple[Persona, ...]:
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
        message=f"{interface.device_name}{template.suffix} is not offered: {reason}",
        interface=interface.identity,
        left_out=kind,
        device=interface.device_name,
        cause=f"its device is not offered: {(NAME_TAKEN if kind == 'name-taken' else reason)}",
    )
