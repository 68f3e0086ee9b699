"""The allocator: what the kube-scheduler would allocate, on objects in memory.

Used by `netdra simulate`, the lab (as its scheduler) and tests. It gathers each node's pools, searches them for a pod's
claims, and enters what they were given in its ledger. Follows kube-scheduler of a version with its default feature
gates (`netdra.model.scheduler_version`); where the scheduler scores the nodes that fit, this takes the first of them in
the order that the caller gives, or of their names. The answer is written as the API writes it
(k8s.io/dynamic-resource-allocation, structured/internal, `Allocate` and `createNodeSelector`): the classes'
configuration first, then the claim's that applies to the choice.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import msgspec

from netdra.model.claim import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from netdra.model.errors import InvalidInputError
from netdra.model.resource import ResourceSlice
from netdra.model.scheduler_version import NEWEST_SCHEDULER, SchedulerVersion
from netdra.slices.allocator import explain, search
from netdra.slices.allocator.alike import AlikeNodes
from netdra.slices.allocator.explain import Explanation, NodeExplanation
from netdra.slices.allocator.ledger import Counters, Ledger
from netdra.slices.allocator.pools import Pool, SliceIndex
from netdra.slices.allocator.trial import Taken, Trial
from netdra.slices.allocator.wishes import ClaimTask, SelectorCache, UnallocatableError, Wish, claim_key, shown, task
from netdra.slices.allocator.worst_case import (
    MOST_NODES,
    MOST_VISITS,
    Estimate,
    Outlook,
    OutOfTimeError,
    at_most,
    outlook,
)
from netdra.slices.nodes import NodeSelector, Requirement, SchedulerNode, Term, named, parse_selector, selects

_SHARES = uuid.uuid5(uuid.NAMESPACE_DNS, "shares.dra.networking")


class Allocation(msgspec.Struct, frozen=True):
    """The node that was chosen, and the claims with the allocation in their status."""

    node: str
    claims: tuple[ResourceClaim, ...]


class Refusal(msgspec.Struct, frozen=True):
    """The claims cannot be allocated now.

    Attributes:
        reason: in one sentence; `Allocator.explain` has the details.
        permanent: whether the scheduler fails with an error instead of waiting for devices: a claim, a
            class or a pool is wrong, or the search too long.
    """

    reason: str
    permanent: bool = False


class Allocator:
    """Slices, classes and nodes that do not change, and the ledger of allocated devices, which does."""

    def __init__(
        self,
        slices: Iterable[ResourceSlice],
        classes: Iterable[DeviceClass],
        *,
        allocated: Iterable[ResourceClaim] = (),
        nodes: Iterable[SchedulerNode] = (),
        admin_namespaces: Iterable[str] = (),
        max_steps: int = search.MAX_STEPS,
        version: SchedulerVersion = NEWEST_SCHEDULER,
    ) -> None:
        """Take stock.

        Args:
            slices: all that is published.
            classes: all device classes.
            allocated: claims whose status states what they hold; those without an allocation are skipped.
            nodes: the nodes with their labels, in the order in which they are tried; by default those that slices
                name, in the order of their names.
            admin_namespaces: the namespaces whose label allows admin access.
            max_steps: how many devices one search tries at most.
            version: that of Kubernetes.
        """
        self._version = version
        self._index = SliceIndex(slices, version)
        self._classes = {device_class.metadata.name: device_class for device_class in classes}
        by_name = {node.name: node for node in nodes}
        self._nodes = by_name or {name: named(name) for name in self._index.node_names}
        self._admin_namespaces = frozenset(admin_namespaces)
        self._max_steps = max_steps
        self._selectors = SelectorCache()
        self._pools: dict[str, tuple[Pool, ...]] = {}
        self.ledger = Ledger(version)
        self._counters = Counters(self.ledger)
        self._alike = AlikeNodes(self._index, self.ledger)
        self._refusing: set[bytes] = set()
        self._refused: dict[tuple[str, bytes], tuple[int, ...]] = {}
        for claim in allocated:
            if claim.status.allocation is not None:
                self.ledger.add(claim_key(claim), claim.status.allocation)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes in the order in which they are tried."""
        return tuple(self._nodes)

    def pools(self, node: str) -> tuple[Pool, ...]:
        """The pools that a node can draw from, in the order in which they are tried.

        Raises:
            InvalidInputError: no such node exists, or a slice cannot be read.
        """
        pools = self._pools.get(node)
        if pools is None:
            pools = self._pools[node] = self._index.pools(self._node(node))
        return pools

    def allocate(self, *claims: ResourceClaim, nodes: Sequence[str] | None = None) -> Allocation | Refusal:
        """Allocate the claims of one pod together on the first node where all of them fit, or none of them.

        A claim that is allocated already keeps what it holds and ties the others to the nodes where it can be used.

        Args:
            claims: the pod's claims in its order.
            nodes: the nodes to try, in this order; by default all.

        Raises:
            InvalidInputError: a node is unknown, or a slice cannot be read.
        """
        try:
            tasks = self._tasks(claims)
            for name in self._eligible(claims, nodes):
                kind = self._alike.kind(self._node(name), tasks)
                if kind is not None and kind in self._refusing:
                    continue
                trial = self._search(name, tasks)
                if trial is not None:
                    return self._enter(name, claims, tasks, trial)
                if kind is not None:
                    self._refusing.add(kind)
        except UnallocatableError as problem:
            return Refusal(str(problem), permanent=True)
        tried = len(self._eligible(claims, nodes))
        names = ", ".join(shown(entry.key) for entry in tasks)
        return Refusal(
            f"{names}: cannot be allocated on {('any of ' if tried > 1 else '')}{tried} node{'s' * (tried != 1)}"
        )

    def release(self, claim: ResourceClaim) -> bool:
        """Give back what a claim holds; False if it holds nothing."""
        return self.ledger.release(claim_key(claim)) is not None

    def explain(self, *claims: ResourceClaim, nodes: Sequence[str] | None = None) -> Explanation:
        """Why the claims do not fit, node by node and device by device, as things are now.

        Args:
            claims: the pod's claims, which `allocate` refused.
            nodes: the nodes that it tried.

        Raises:
            InvalidInputError: as for `allocate`.
        """
        try:
            tasks = self._tasks(claims)
            reports = [*self._reports(self._eligible(claims, nodes), tasks)]
        except UnallocatableError as problem:
            return Explanation(str(problem))
        return Explanation("", tuple(reports))

    def foresee(
        self,
        *claims: ResourceClaim,
        nodes: Sequence[str] | None = None,
        in_time: Callable[[], bool] = lambda: True,
    ) -> Outlook:
        """Whether the scheduler may fail at the claims of one pod although devices are free, for any other claims.

        Inspects one node of each kind. Claims that are refused for good have no outlook.

        Args:
            claims: the pod's claims in its order, allocated or not.
            nodes: the nodes to inspect; by default all.
            in_time: whether there is time left; nodes that are not inspected in time are left out.
        """
        try:
            tasks = [task(claim, self._classes, self._selectors, self._admin_namespaces) for claim in claims]
        except UnallocatableError:
            return Outlook()
        kinds = self._kinds if nodes is None else self._kinds_of(nodes)
        counts = [[wish.count for wish in wishes] for entry in tasks for wishes in entry.requests]
        is_counted = any(count > 1 for alternatives in counts for count in alternatives)
        if not is_counted and at_most(counts, max(map(len, kinds), default=0)) <= MOST_VISITS:
            return Outlook()
        seen: dict[str, Estimate] = {}
        for node in list(kinds.values())[:MOST_NODES]:
            with suppress(InvalidInputError, OutOfTimeError):  # `allocate` raises the first, if it gets to that node
                seen[node] = Estimate(tasks, self.pools(node), self._trial(node, tasks), in_time)
        return outlook(seen, are_all=len(seen) == len(kinds))

    @cached_property
    def _kinds(self) -> Mapping[tuple[str, ...], str]:
        return self._kinds_of(self._nodes)

    def _kinds_of(self, nodes: Iterable[str]) -> Mapping[tuple[str, ...], str]:
        """The first node of each kind, those with the most devices first."""
        kinds: dict[tuple[str, ...], str] = {}
        for node in nodes:
            kinds.setdefault(self._index.kind(node), node)
        return {kind: kinds[kind] for kind in sorted(kinds, key=len, reverse=True)}

    def _tasks(self, claims: Iterable[ResourceClaim]) -> list[ClaimTask]:
        return [
            task(claim, self._classes, self._selectors, self._admin_namespaces)
            for claim in claims
            if claim_key(claim) not in self.ledger
        ]

    def _eligible(self, claims: Iterable[ResourceClaim], nodes: Sequence[str] | None) -> list[str]:
        """The nodes to try: where the claims that are allocated already can be used."""
        names = list(self._nodes if nodes is None else nodes)
        for claim in claims:
            held = self.ledger.get(claim_key(claim))
            if held is not None and held.node_selector is not None:
                selector = parse_selector(held.node_selector, f'ResourceClaim "{claim.metadata.name}"')
                names = [name for name in names if selects(selector, self._node(name))]
        return names

    def _search(self, node: str, tasks: Sequence[ClaimTask]) -> Trial | None:
        """A trial that took all that is wanted; None, remembered until something changes there, if it cannot."""
        pools = self.pools(node)
        versions = tuple(self.ledger.version(pool.key) for pool in pools)
        wanted = (node, b"\n".join(entry.shape for entry in tasks))
        if self._refused.get(wanted) == versions:
            return None
        trial = self._trial(node, tasks)
        if search.find(pools, tasks, trial, self._trial(node, tasks), self._max_steps, self._version):
            return trial
        self._refused[wanted] = versions
        return None

    def _trial(self, node: str, tasks: Sequence[ClaimTask]) -> Trial:
        return Trial(self._node(node), self.pools(node), tasks, self.ledger, self._counters, self._version)

    def _reports(self, nodes: Iterable[str], tasks: Sequence[ClaimTask]) -> Iterator[NodeExplanation]:
        """A report of each node where the tasks do not fit; nodes that are alike have one, unless it names a pool."""
        of_kinds: dict[bytes, NodeExplanation] = {}
        for name in nodes:
            kind = self._alike.kind(self._node(name), tasks)
            if kind is not None and kind in of_kinds:
                yield msgspec.structs.replace(of_kinds[kind], node=name)
            elif (kind is not None and kind in self._refusing) or self._search(name, tasks) is None:
                report = self._report(name, tasks)
                if kind is not None and not any(report.has(pool.key[1]) for pool in self.pools(name)):
                    of_kinds[kind] = report
                yield report

    def _report(self, node: str, tasks: Sequence[ClaimTask]) -> NodeExplanation:
        trial = self._trial(node, tasks)
        return explain.node_report(node, self.pools(node), tasks, trial, self.ledger, self._counters)

    def _enter(
        self, node: str, claims: Iterable[ResourceClaim], tasks: Sequence[ClaimTask], trial: Trial
    ) -> Allocation:
        given: dict[str, ResourceClaim] = {}
        for number, entry in enumerate(tasks):
            taken = [one for one in trial.taken if one.claim == number]
            claim = given[entry.key] = allocated(entry, taken, node, self._version)
            if claim.status.allocation is not None:
                self.ledger.add(entry.key, claim.status.allocation)
        return Allocation(node, tuple(given.get(claim_key(claim), claim) for claim in claims))

    def _node(self, name: str) -> SchedulerNode:
        node = self._nodes.get(name)
        if node is None:
            raise InvalidInputError(
                f'node "{name}" not found',
                hint=f"the nodes are {', '.join(list(self._nodes)[:20]) or 'none'}",
                code="ND1558",
            )
        return node


# Share ids are names derived from their content, so that the same input results in the same output.


def allocated(task: ClaimTask, taken: Sequence[Taken], node: str, version: SchedulerVersion) -> ResourceClaim:
    """The claim with the allocation in its status.

    Args:
        task: the claim.
        taken: what it was given, in the order in which it was taken.
        node: the node's name.
        version: the scheduler's.
    """
    chosen = _chosen_wishes(task, taken)
    allocation = AllocationResult(
        devices=DeviceAllocationResult(
            results=tuple(_result(task, one, position) for position, one in enumerate(taken)),
            config=tuple(_configuration(task, chosen, version)),
        ),
        node_selector=_node_selector(taken, node),
    )
    status = ResourceClaimStatus(allocation=allocation, reserved_for=task.claim.status.reserved_for)
    return msgspec.structs.replace(task.claim, status=status)


def _chosen_wishes(task: ClaimTask, taken: Sequence[Taken]) -> list[Wish]:
    """The wish that was met, per request; every request has at least one device."""
    met = {one.wish.request: one.wish for one in taken}
    return [met[wishes[0].request] for wishes in task.requests]


def _result(task: ClaimTask, taken: Taken, position: int) -> DeviceRequestAllocationResult:
    driver, pool, name = taken.candidate.key
    share = f"{task.claim.metadata.uid}/{task.key}/{position}/{driver}/{pool}/{name}"
    return DeviceRequestAllocationResult(
        request=taken.wish.name,
        driver=driver,
        pool=pool,
        device=name,
        admin_access=True if taken.wish.admin else None,
        share_id=str(uuid.uuid5(_SHARES, share)) if taken.candidate.shared else None,
        consumed_capacity={
            taken.candidate.capacity[name].published_name: consumption.text
            for name, consumption in taken.consumed.items()
        },
        tolerations=taken.wish.tolerations,
        binding_conditions=taken.candidate.device.binding_conditions,
        binding_failure_conditions=taken.candidate.device.binding_failure_conditions,
    )


def _configuration(
    task: ClaimTask, chosen: Sequence[Wish], version: SchedulerVersion
) -> list[DeviceAllocationConfiguration]:
    by_class: dict[str, list[Wish]] = {}
    for wish in chosen:
        by_class.setdefault(wish.device_class.metadata.name, []).append(wish)
    configuration = [
        DeviceAllocationConfiguration(
            source="FromClass", requests=tuple(wish.name for wish in wishes), opaque=entry.opaque
        )
        for wishes in by_class.values()
        for entry in wishes[0].device_class.spec.config
    ]
    for entry in task.claim.spec.devices.config:
        concerned = sum(not set(entry.requests).isdisjoint(wish.names) for wish in chosen)
        stored = DeviceAllocationConfiguration(source="FromClaim", requests=entry.requests, opaque=entry.opaque)
        configuration += [stored] * (concerned if entry.requests and not version.shortens_configuration else 1)
    if not version.shortens_configuration:
        return configuration
    return [
        msgspec.structs.replace(entry, requests=_unless_all(entry.requests, chosen))
        for entry in configuration
        if not entry.requests or any(not set(entry.requests).isdisjoint(wish.names) for wish in chosen)
    ]


def _unless_all(requests: Sequence[str], chosen: Sequence[Wish]) -> tuple[str, ...]:
    """The names of the requests concerned, or none for all of them."""
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
