"""A search's answer as the API writes it: devices, configuration and the nodes of an allocation.

Called by `allocator`. Follows k8s.io/dynamic-resource-allocation v0.37 (structured/internal/incubating, `Allocate` and
`createNodeSelector`): the classes' configuration first, then the claim's that applies to what was chosen.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from netdra.model.claim import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from netdra.slices.allocator.trial import Taken
from netdra.slices.allocator.wishes import Task, Wish
from netdra.slices.nodes import NodeSelector, Requirement, Term, parse_selector

# Share ids are names made from what they stand for, so that the same input gives the same output.
_SHARES = uuid.uuid5(uuid.NAMESPACE_DNS, "shares.dra.networking")


def allocated(task: Task, taken: Sequence[Taken], node: str) -> ResourceClaim:
    """The claim with the allocation in its status.

    Args:
        task: the claim.
        taken: what it was given, in the order in which it was taken.
        node: the node's name.
    """
    chosen = _chosen_wishes(task, taken)
    allocation = AllocationResult(
        devices=DeviceAllocationResult(
            results=tuple(_result(task, one, position) for position, one in enumerate(taken)),
            config=tuple(_configuration(task, chosen)),
        ),
        node_selector=_node_selector(taken, node),
    )
    status = ResourceClaimStatus(allocation=allocation, reserved_for=task.claim.status.reserved_for)
    return msgspec.structs.replace(task.claim, status=status)


def _chosen_wishes(task: Task, taken: Sequence[Taken]) -> list[Wish]:
    """The wish that was met, per request; every request has at least one device."""
    met = {one.wish.request: one.wish for one in taken}
    return [met[wishes[0].request] for wishes in task.requests]


def _result(task: Task, taken: Taken, position: int) -> DeviceRequestAllocationResult:
    driver, pool, name = taken.candidate.key
    share = f"{task.claim.metadata.uid}/{task.key}/{position}/{driver}/{pool}/{name}"
    return DeviceRequestAllocationResult(
        request=taken.wish.name,
        driver=driver,
        pool=pool,
        device=name,
        admin_access=True if taken.wish.admin else None,
        share_id=str(uuid.uuid5(_SHARES, share)) if taken.candidate.shared else None,
        consumed_capacity={name: consumption.text for name, consumption in taken.consumed.items()},
        tolerations=taken.wish.tolerations,
        binding_conditions=taken.candidate.device.binding_conditions,
        binding_failure_conditions=taken.candidate.device.binding_failure_conditions,
    )


def _configuration(task: Task, chosen: Sequence[Wish]) -> list[DeviceAllocationConfiguration]:
    by_class: dict[str, list[Wish]] = {}
    for wish in chosen:
        by_class.setdefault(wish.device_class.metadata.name, []).append(wish)
    configuration = [
        DeviceAllocationConfiguration(
            source="FromClass", requests=_unless_all([wish.name for wish in wishes], chosen), opaque=entry.opaque
        )
        for wishes in by_class.values()
        for entry in wishes[0].device_class.spec.config
    ]
    names = {name for wish in chosen for name in wish.names}
    configuration += [
        DeviceAllocationConfiguration(
            source="FromClaim", requests=_unless_all(entry.requests, chosen), opaque=entry.opaque
        )
        for entry in task.claim.spec.devices.config
        if not entry.requests or not names.isdisjoint(entry.requests)
    ]
    return configuration


def _unless_all(requests: Sequence[str], chosen: Sequence[Wish]) -> tuple[str, ...]:
    """The names of the requests that are meant, or none where all of them are."""
    return () if all(not set(requests).isdisjoint(wish.names) for wish in chosen) else tuple(requests)


def _node_selector(taken: Sequence[Taken], node: str) -> Mapping[str, Any] | None:
    """Where the allocation can be used: on this node, or where all its devices can be reached, or (None) anywhere."""
    expressions: dict[Requirement, None] = {}
    fields: dict[Requirement, None] = {}
    for one in taken:
        device, spec = one.candidate.device, one.candidate.slice
        place = device if spec.per_device_node_selection else spec
        if place.node_name is not None or device.binds_to_node:
            return _plain(Term(match_fields=(Requirement("metadata.name", "In", (node,)),)))
        if place.node_selector is not None:
            for term in parse_selector(place.node_selector, f'device "{device.name}"').node_selector_terms[:1]:
                expressions |= dict.fromkeys(term.match_expressions)
                fields |= dict.fromkeys(term.match_fields)
    if not expressions and not fields:
        return None
    return _plain(Term(match_expressions=tuple(expressions), match_fields=tuple(fields)))


def _plain(term: Term) -> Mapping[str, Any]:
    plain: Mapping[str, Any] = msgspec.json.decode(msgspec.json.encode(NodeSelector((term,))))
    return plain
