"""Why the claims of a pod are not allocated: the allocator on live slices, and which one change would let it succeed.

Called by `pods` and `claims`. The allocator answers as the scheduler would; where it refuses, it is asked again without
the nodes' restrictions, without taints, without other claims, without constraints, and without the requests' selectors.
The first of these with which the claims fit is the cause. The free addresses of a PodNetwork are the capacity of a
device that netdra's controller publishes (decision D71).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from netdra.cluster.objects import ClusterState
from netdra.model import names
from netdra.model.claim import ResourceClaim, ResourceClaimSpec
from netdra.model.errors import InvalidInputError
from netdra.model.names import DRIVER, UNHEALTHY
from netdra.model.resource import ResourceSlice
from netdra.model.suggestions import listed
from netdra.networks import shares
from netdra.slices.allocator import Allocation, Allocator, Explanation, Obstacle, claim_key
from netdra.story import shortage
from netdra.story.nodes import scheduler_nodes
from netdra.story.statement import Statement, fact, wrong
from netdra.topology.selectors import choices

MAX_DETAILS = 16
MAX_NODES = 3
"""How many nodes are explained."""
_NEXT = "delete claims that have addresses (kubectl get podaddresses), or add a range to the PodNetwork"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Claims that are to be allocated together, and where.

    Attributes:
        about: the object that the answer is about.
        claims: the claims, allocated or not.
        excluded: by node that cannot be used, the reason.
    """

    about: str
    claims: Sequence[ResourceClaim]
    excluded: dict[str, str]


class LiftedRestriction(msgspec.Struct, frozen=True, kw_only=True):
    """One restriction, lifted.

    Attributes:
        kinds: the obstacles that it lifts, as the allocator names them.
    """

    slices: Sequence[ResourceSlice]
    holding: Sequence[ResourceClaim]
    claims: Sequence[ResourceClaim]
    nodes: Sequence[str]
    reason: str
    kinds: frozenset[str]
    next_step: str


def answer(cluster: ClusterState, question: Question) -> Iterator[Statement]:
    """Why the claims cannot be allocated; or that they can, so that something else is in the way."""
    if not cluster.could_read("resourceslices", "deviceclasses"):
        return
    nodes = scheduler_nodes(cluster)
    usable = [name for name in nodes if name not in question.excluded]
    try:
        yield from _answer(cluster, question, usable)
    except InvalidInputError as problem:
        yield wrong(question.about, problem.what, problem.hint, reason="InvalidSlice", code=problem.code)


def _answer(cluster: ClusterState, question: Question, usable: Sequence[str]) -> Iterator[Statement]:
    plain = LiftedRestriction(
        slices=cluster.tainted_slices,
        holding=_others(cluster, question.claims),
        claims=question.claims,
        nodes=usable,
        reason="",
        kinds=frozenset(),
        next_step="",
    )
    allocator = _allocator(cluster, plain)
    found = allocator.allocate(*question.claims, nodes=usable)
    if isinstance(found, Allocation):
        yield fact(question.about, f"the claims' devices are available on node {found.node}", reason="Allocatable")
    elif found.permanent:
        yield wrong(
            question.about, found.reason, "correct the claim or its DeviceClass", reason="Unallocatable", code="ND5034"
        )
    else:
        yield from _refusal(cluster, question, plain, allocator)


def _refusal(
    cluster: ClusterState,
    question: Question,
    plain: LiftedRestriction,
    allocator: Allocator,
) -> Iterator[Statement]:
    """The restriction without which the claims fit; if none exists, what the cluster lacks."""
    if len(plain.nodes) == 1:
        # The pod is for this node: its own problem explains more than the nodes that the pod excludes.
        yield from shortage.empty_nodes(cluster, plain.nodes)
    if full := [*shortages(cluster, question.about, question.claims)]:
        yield from full
        return
    for change in _changes(question, plain):
        fits = _allocator(cluster, change).allocate(*change.claims, nodes=change.nodes)
        if isinstance(fits, Allocation):
            explanation = _explain(cluster, allocator, question, plain.nodes, fits.node)
            yield _cause(cluster, question, change, explanation, fits.node)
            return
    explanation = _explain(cluster, allocator, question, plain.nodes)
    details = tuple(explanation.lines()[:MAX_DETAILS])
    yield from shortage.statements(cluster, question.about, question.claims, plain.nodes, explanation, details)


def _explain(
    cluster: ClusterState, allocator: Allocator, question: Question, nodes: Sequence[str], first: str = ""
) -> Explanation:
    """The allocator's explanation for a few nodes: one first, then those that offer devices."""
    ranked = sorted(nodes, key=lambda node: (node != first, node not in cluster.offering_nodes))
    return allocator.explain(*question.claims, nodes=ranked[:MAX_NODES])


def _others(cluster: ClusterState, claims: Sequence[ResourceClaim]) -> list[ResourceClaim]:
    """The claims that have devices, with those of the question that are allocated already."""
    own = {claim_key(claim) for claim in claims}
    return [*(claim for claim in cluster.claims if claim_key(claim) not in own), *claims]


def _allocator(cluster: ClusterState, change: LiftedRestriction) -> Allocator:
    nodes = scheduler_nodes(cluster)
    classes = cluster.known.classes.values()
    # The API server admits a request for admin access only where the namespace's label allows it.
    admitted = {claim.metadata.namespace or "default" for claim in change.claims}
    return Allocator(
        change.slices,
        classes,
        allocated=change.holding,
        nodes=nodes.values(),
        admin_namespaces=admitted,
        version=cluster.version,
    )


def _changes(question: Question, plain: LiftedRestriction) -> Iterator[LiftedRestriction]:
    """The restrictions, one lifted at a time."""
    replace = msgspec.structs.replace
    if question.excluded:
        yield replace(plain, nodes=[*question.excluded], reason="NodesExcluded", next_step=_NODES)
    untainted = tuple(map(_without_taints, plain.slices))
    if any(device.blocking_taints for one in plain.slices for device in one.spec.devices):
        yield replace(plain, slices=untainted, reason="Tainted", kinds=frozenset({"taint"}), next_step=_TAINTS)
    own = [claim for claim in question.claims if claim.status.allocation is not None]
    in_use = frozenset({"in-use", "capacity", "counters"})
    yield replace(plain, holding=own, reason="InUse", kinds=in_use, next_step=_IN_USE)
    both = in_use | {"taint"}
    yield replace(plain, slices=untainted, holding=own, reason="InUse", kinds=both, next_step=_IN_USE)
    loose = [_loosened(claim, constraints=()) for claim in question.claims]
    constraint = frozenset({"constraint"})
    yield replace(plain, claims=loose, reason="Constrained", kinds=constraint, next_step=_CONSTRAINTS)
    wide = [_unselective(claim) for claim in question.claims]
    yield replace(plain, claims=wide, reason="NotSelected", kinds=frozenset({"selectors"}), next_step=_SELECTORS)


_NODES = "change the pod's nodeSelector, affinity or tolerations, or offer such devices on the nodes that it selects"
_TAINTS = "remove the cause of the taint, or add a toleration for it to the request"
_IN_USE = "end a pod that uses one of these claims, or offer more devices: more VFs, more nodes, a further policy"
_CONSTRAINTS = "remove or relax the constraint, or offer devices that have a common value"
_SELECTORS = "change the request's selectors, or offer devices that match them"


def _without_taints(one: ResourceSlice) -> ResourceSlice:
    devices = tuple(msgspec.structs.replace(device, taints=()) for device in one.spec.devices)
    return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, devices=devices))


def _loosened(claim: ResourceClaim, **changed: object) -> ResourceClaim:
    devices = msgspec.structs.replace(claim.spec.devices, **changed)
    return msgspec.structs.replace(claim, spec=ResourceClaimSpec(devices=devices))


def _unselective(claim: ResourceClaim) -> ResourceClaim:
    requests = tuple(
        msgspec.structs.replace(
            request,
            exactly=None if request.exactly is None else msgspec.structs.replace(request.exactly, selectors=()),
            first_available=tuple(msgspec.structs.replace(choice, selectors=()) for choice in request.first_available),
        )
        for request in claim.spec.devices.requests
    )
    return _loosened(claim, requests=requests)


def _cause(
    cluster: ClusterState,
    question: Question,
    change: LiftedRestriction,
    explanation: Explanation,
    node: str,
) -> Statement:
    """The statement for the change that lets the claims fit on a node."""
    excluded = [f"{name} is excluded: {reason}" for name, reason in question.excluded.items()]
    details = (*explanation.lines()[:MAX_DETAILS], *excluded[:MAX_NODES])
    if change.reason == "NodesExcluded":
        text = f"its devices are available only on nodes that the pod excludes: {node}: {question.excluded[node]}"
        return wrong(question.about, text, change.next_step, reason=change.reason, details=details, code="ND5035")
    request, obstacles = _obstacles(explanation, node, change.kinds)
    texts = listed((f"{listed(entry.devices, 3)}: {entry.text}" for entry in obstacles), 2)
    text = f"{request} cannot be allocated on node {node}: {texts or change.next_step}"
    next_step = _untaint(cluster, node, obstacles) or change.next_step
    return wrong(question.about, text, next_step, reason=change.reason, details=details, code="ND5036")


def _obstacles(explanation: Explanation, node: str, kinds: frozenset[str]) -> tuple[str, list[Obstacle]]:
    """The request that does not fit on a node, and the obstacles of some kinds."""
    reports = sorted(explanation.nodes, key=lambda report: report.node != node)
    for report in reports:
        for request in report.requests:
            found = [entry for entry in request.obstacles if entry.kind in kinds]
            if found:
                wanted = f'request "{request.request}" ({request.device_class})'
                return f"ResourceClaim {request.claim}, {wanted}", found
    return "the claims", []


def _untaint(cluster: ClusterState, node: str, obstacles: Sequence[Obstacle]) -> str:
    """The next step for taints of DeviceTaintRules and of netdra on a node's devices; "" for others."""
    texts = [entry.text for entry in obstacles if entry.kind == "taint"]
    for rule in cluster.applied_rules:
        taint = rule.spec.taint
        if taint.key == UNHEALTHY:
            continue
        value = f"={taint.value}" if taint.value else ""
        if any(f"{taint.key}{value}:{taint.effect}" in text for text in texts):
            return f'DeviceTaintRule "{rule.metadata.name}" sets the taint: remove the rule, or tolerate the taint'
    for suffix, step in _OF_NETDRA.items():
        device = next((entry.devices[0] for entry in obstacles if f"{DRIVER}/{suffix}" in entry.text), "")
        if device:
            return step.format(device=f"{node}/{device}")
    return ""


_OF_NETDRA = {
    "link-down": "connect the link or its switch port: the interface has no carrier",
    "gone": "restore the interface, or end the pod that still has the device",
    "trouble": "follow the reason that the taint names",
    "unhealthy": "netdra why device {device} shows the counter: repair the device, or correct its policy's threshold",
    "withdrawn": "let a policy offer the device again, or choose another one",
}


def shortages(cluster: ClusterState, about: str, claims: Sequence[ResourceClaim]) -> Iterator[Statement]:
    """The PodNetworks that have too few addresses for requests of the claims.

    Args:
        about: the object that waits.
        claims: those of it.
    """
    for claim in claims:
        for request in claim.spec.devices.requests if claim.status.allocation is None else ():
            for choice in choices(request):
                network = names.network_of_class(choice.device_class_name)
                amounts = choice.capacity.requests if choice.capacity is not None else {}
                wanted = max(shares.steps_of(amounts), 1) * max(choice.count, 1)
                left = _left(cluster, network) if network else wanted
                if left < wanted:
                    has = "no free address" if not left else f"free addresses for {left} steps of {wanted}"
                    text = f'PodNetwork "{network}" has {has} for request "{request.name}" of ResourceClaim '
                    text += f'"{claim.metadata.name}"'
                    yield wrong(about, text, _NEXT, reason="NoFreeAddress", code="ND5001")


def _left(cluster: ClusterState, network: str) -> int:
    """For how many steps a network has free addresses, in the group of nodes that has most."""
    consumed: dict[str, int] = {}
    for claim in cluster.claims:
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            if result.pod_network == network:
                consumed[result.pool] = consumed.get(result.pool, 0) + shares.steps_of(result.consumed_capacity)
    capacities = {
        one.spec.pool.name: shares.steps_of({name: amount.value for name, amount in device.capacity.items()})
        for one in cluster.slices
        if one.spec.driver == names.DRIVER and names.network_of(one.spec.pool.name) == network
        for device in one.spec.devices
    }
    return max((amount - consumed.get(pool, 0) for pool, amount in capacities.items()), default=0)
