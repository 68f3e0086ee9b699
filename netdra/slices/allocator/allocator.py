"""The allocator: what the kube-scheduler would allocate, on objects in memory.

Used by `netdra simulate`, the lab (as its scheduler) and tests. It gathers each node's pools, searches them for a pod's
claims, and enters what it found in its ledger. Follows kube-scheduler 1.37 with its default feature gates; where the
scheduler scores the nodes that fit, this takes the first of them in the order that the caller gives, or of their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from netdra.model.claim import DeviceClass, ResourceClaim
from netdra.model.errors import InvalidInputError
from netdra.model.resource import ResourceSlice
from netdra.slices.allocator import explain, results, search
from netdra.slices.allocator.explain import Explanation, NodeReport
from netdra.slices.allocator.ledger import Counters, Ledger
from netdra.slices.allocator.pools import Pool, SliceIndex
from netdra.slices.allocator.trial import Trial
from netdra.slices.allocator.wishes import RefusedError, SelectorCache, Task, claim_key, shown, task
from netdra.slices.nodes import Node, named, parse_selector, selects


class Allocation(msgspec.Struct, frozen=True):
    """The node that was chosen, and the claims with the allocation in their status."""

    node: str
    claims: tuple[ResourceClaim, ...]


class Refusal(msgspec.Struct, frozen=True):
    """The claims cannot be allocated now.

    Attributes:
        reason: in one sentence; `Allocator.explain` has the details.
        permanent: whether the scheduler gives the claims up with an error instead of waiting for devices: a claim, a
            class or a pool is wrong, or the search too long.
    """

    reason: str
    permanent: bool = False


class Allocator:
    """Slices, classes and nodes that do not change, and the ledger of who holds what, which does."""

    def __init__(
        self,
        slices: Iterable[ResourceSlice],
        classes: Iterable[DeviceClass],
        *,
        allocated: Iterable[ResourceClaim] = (),
        nodes: Iterable[Node] = (),
        admin_namespaces: Iterable[str] = (),
        max_steps: int = search.MAX_STEPS,
    ) -> None:
        """Take stock.

        Args:
            slices: all that is published.
            classes: all device classes.
            allocated: claims whose status says what they hold; those without an allocation are passed over.
            nodes: the nodes with their labels, in the order in which they are tried; by default those that slices
                name, in the order of their names.
            admin_namespaces: the namespaces whose label allows admin access.
            max_steps: how many devices one search tries at most.
        """
        self._index = SliceIndex(slices)
        self._classes = {each.metadata.name: each for each in classes}
        known = {node.name: node for node in nodes}
        self._nodes = known or {name: named(name) for name in self._index.node_names}
        self._admin_namespaces = frozenset(admin_namespaces)
        self._max_steps = max_steps
        self._selectors = SelectorCache()
        self._pools: dict[str, tuple[Pool, ...]] = {}
        self.ledger = Ledger()
        self._counters = Counters(self.ledger)
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
            InvalidInputError: there is no such node, or a slice cannot be read.
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
                trial = self._search(name, tasks)
                if trial is not None:
                    return self._enter(name, claims, tasks, trial)
        except RefusedError as problem:
            return Refusal(str(problem), permanent=True)
        tried = len(self._eligible(claims, nodes))
        names = ", ".join(shown(each.key) for each in tasks)
        return Refusal(f"{names}: does not fit on {'any of ' if tried > 1 else ''}{tried} node{'s' * (tried != 1)}")

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
            reports = [
                self._report(name, tasks) for name in self._eligible(claims, nodes) if self._search(name, tasks) is None
            ]
        except RefusedError as problem:
            return Explanation(str(problem))
        return Explanation("", tuple(reports))

    def _tasks(self, claims: Iterable[ResourceClaim]) -> list[Task]:
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

    def _search(self, node: str, tasks: Sequence[Task]) -> Trial | None:
        """A trial that took all that is wanted; None, remembered until something changes there, if it cannot."""
        pools = self.pools(node)
        versions = tuple(self.ledger.version(pool.key) for pool in pools)
        wanted = (node, b"\n".join(each.shape for each in tasks))
        if self._refused.get(wanted) == versions:
            return None
        trial = self._trial(node, tasks)
        if search.find(pools, tasks, trial, self._trial(node, tasks), self._max_steps):
            return trial
        self._refused[wanted] = versions
        return None

    def _trial(self, node: str, tasks: Sequence[Task]) -> Trial:
        return Trial(self._node(node), self.pools(node), tasks, self.ledger, self._counters)

    def _report(self, node: str, tasks: Sequence[Task]) -> NodeReport:
        trial = self._trial(node, tasks)
        return explain.node_report(node, self.pools(node), tasks, trial, self.ledger, self._counters)

    def _enter(self, node: str, claims: Iterable[ResourceClaim], tasks: Sequence[Task], trial: Trial) -> Allocation:
        given: dict[str, ResourceClaim] = {}
        for number, each in enumerate(tasks):
            taken = [one for one in trial.taken if one.claim == number]
            claim = given[each.key] = results.allocated(each, taken, node)
            if claim.status.allocation is not None:
                self.ledger.add(each.key, claim.status.allocation)
        return Allocation(node, tuple(given.get(claim_key(claim), claim) for claim in claims))

    def _node(self, name: str) -> Node:
        node = self._nodes.get(name)
        if node is None:
            raise InvalidInputError(
                f'there is no node "{name}"', hint=f"nodes: {', '.join(list(self._nodes)[:20]) or 'none'}"
            )
        return node
