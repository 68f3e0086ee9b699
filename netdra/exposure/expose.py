"""An inventory and policies → everything that the node offers, and why. Pure, and quick when asked again.

`expose` is one pass. An `Exposer` remembers its results for each interface and each NIC, keyed by the interfaces as
they were. So a pass after a change costs the NIC that changed, and its answers are those of a first pass. The result
goes to `netdra.slices.pack`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from netdra.cel import CompiledSelector
from netdra.exposure import facts, physnets
from netdra.exposure.answers import NOTHING_ASKED, Answers, ask
from netdra.exposure.assemble import assemble
from netdra.exposure.grouping import HeldVF, PoolInterfaces, member_places, pooled
from netdra.exposure.offers import NicOffers, Offer
from netdra.exposure.registered import NOTHING, Registered, applied
from netdra.exposure.resolve import resolve, selectors
from netdra.exposure.templates import ReadyPolicy, Rule, ready, rules
from netdra.model import names
from netdra.model.device import DEFAULT_FEATURES, ExposureResult, Features, Problem
from netdra.model.inventory import Interface, Inventory, InventoryNode, attributes
from netdra.model.policy import DeviceExposurePolicy, DeviceExposurePolicySpec, TaintEffect
from netdra.model.registration import Registration


def expose(
    inventory: Inventory,
    policies: Iterable[DeviceExposurePolicy],
    *,
    features: Features = DEFAULT_FEATURES,
    registered: Registered = NOTHING,
) -> ExposureResult:
    """The offers of a node: devices and counter sets in the order of their pools, and a decision for each interface.

    Args:
        inventory: the node and its interfaces.
        policies: all policies of the cluster.
        features: the features that the API server supports.
        registered: the facts that providers register for the node's devices.

    Raises:
        InvalidInputError: two policies have one name. A policy that is wrong in itself is a problem of the result.
    """
    return Exposer(policies, features=features).expose(inventory, registered)


class _Extended(NamedTuple):
    """A pool as policies make it, its registered facts, and the pool with both."""

    part: ExposureResult
    registrations: tuple[tuple[Registration, ...], ...]
    result: ExposureResult


@dataclass
class KnownPolicies:
    """The results of earlier passes that stay valid when some policies change.

    Attributes:
        ready: the policies as rules for a node, by name, each with the spec that it was made of.
        node: that node.
        answers: the results of selectors on interfaces.
    """

    ready: dict[str, tuple[DeviceExposurePolicySpec, ReadyPolicy]] = field(default_factory=dict)
    node: InventoryNode | None = None
    answers: dict[Interface, Answers] = field(default_factory=dict)


class Exposer:
    """One set of policies, asked again and again about a node that changes."""

    def __init__(
        self,
        policies: Iterable[DeviceExposurePolicy],
        *,
        features: Features = DEFAULT_FEATURES,
        programs: Collection[str] | None = None,
        lacked: Sequence[str] = (),
        known: KnownPolicies | None = None,
    ) -> None:
        """Begin.

        Args:
            policies: all policies of the cluster.
            features: the features that the API server supports.
            programs: the CNI plugins of the node's CNI path; None if it was not read, and all count as there.
            lacked: the programs that topologies need and the node does not have, in order.
            known: the results of a former exposer; those of policies that did not change are reused.
        """
        self._policies = tuple(policies)
        self._features = features
        self._programs = programs
        self._lacked = tuple(lacked)
        self._node: InventoryNode | None = None
        self._rules: tuple[Rule, ...] = ()
        self._problems: tuple[Problem, ...] = ()
        self._selectors: frozenset[CompiledSelector] = frozenset()
        self.known = known or KnownPolicies()
        self._offers: dict[Interface, Offer] = {}
        self._parts: dict[tuple[str, PoolInterfaces], ExposureResult] = {}
        self._extended: dict[str, _Extended] = {}
        self._unwired: tuple[Problem, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The errors in the policies themselves and in the node's physical networks."""
        return (*self._problems, *self._unwired)

    @property
    def holding(self) -> tuple[DeviceExposurePolicy, ...]:
        """The policies that hold on this node, by their choice of nodes."""
        elsewhere = {rule.policy for rule in self._rules if rule.fixed_verdict.outcome == "other-node"}
        return tuple(policy for policy in self._policies if policy.name not in elsewhere)

    def expose(self, inventory: Inventory, registered: Registered = NOTHING) -> ExposureResult:
        """As `expose`, at the cost of the changes since the last call."""
        parts = self.pools(inventory, registered=registered).values()
        return ExposureResult(
            devices=tuple([device for part in parts for device in part.devices]),
            counter_sets=tuple([counter_set for part in parts for counter_set in part.counter_sets]),
            decisions=tuple([decision for part in parts for decision in part.decisions]),
            problems=(*self.problems, *[problem for part in parts for problem in part.problems]),
            outcomes=tuple([outcome for part in parts for outcome in part.outcomes]),
        )

    def pools(
        self,
        inventory: Inventory,
        in_use: Collection[str] = (),
        pinned: Mapping[str, str] | None = None,
        registered: Registered = NOTHING,
        held_vfs: Iterable[HeldVF] = (),
    ) -> dict[str, ExposureResult]:
        """The result of `expose` by pool; a pool without a change since the last call is the same object.

        Args:
            inventory: the node and its interfaces.
            in_use: pools with devices that claims have; a pool of these that has a former name keeps it.
            pinned: by identity, the pools of interfaces whose devices claims have.
            held_vfs: the VFs that claims have; needed where VFs are pooled, or were.
            registered: the facts that providers register for the devices.
        """
        if inventory.node != self._node:
            self._rules, self._problems = self._made_rules(inventory.node)
            self._selectors = selectors(self._rules)
            self._node, self._offers, self._parts = inventory.node, {}, {}
        self._unwired = physnets.problems(inventory)
        node, interfaces = inventory.node.name, inventory.interfaces
        pools: dict[str, str] = {}
        if registered.picks_pools:
            plain = pooled(node, interfaces, in_use, pinned or {})
            pools = {other.identity: pool for pool, group in plain for other in (group.root, *group.others) if other}
        interfaces = tuple(registered.marked(interfaces, pools))
        groups = pooled(node, interfaces, in_use, pinned or {})
        if held := {entry.identity: entry for entry in held_vfs}:
            groups = [(pool, _with_held(group, held)) for pool, group in groups]
        parts = {key: self._part(*key) for key in groups}
        offers = self._offers
        # Policies may have been asked about a stacked interface without the pods' cables below it (`grouping`).
        trimmed = any(interface.lower_devices for interface in interfaces)
        resolved = [interface for _, group in groups for interface in group.resolved] if trimmed else interfaces
        self._offers = {interface: offers[interface] for interface in resolved}
        answers = self.known.answers
        self.known.answers = {interface: answers[interface] for interface in resolved}
        self._parts = parts
        results = {pool: part for (pool, _), part in parts.items()}
        return self._with_registered(results, registered) if registered else results

    def _with_registered(
        self, parts: Mapping[str, ExposureResult], registered: Registered
    ) -> dict[str, ExposureResult]:
        """The pools with their registered facts; a pool without registrations is the same object."""
        extended: dict[str, _Extended] = {}
        results: dict[str, ExposureResult] = {}
        for pool, part in parts.items():
            registrations = registered.concerning(part, pool)
            if not any(registrations):
                results[pool] = part
                continue
            entry = self._extended.get(pool)
            if entry is None or entry.part is not part or entry.registrations != registrations:
                entry = _Extended(part, registrations, applied(part, registrations, self._features))
            extended[pool], results[pool] = entry, entry.result
        self._extended = extended
        return results

    @property
    def pools_vfs(self) -> bool:
        """Whether a policy offers VFs together."""
        return any(policy.spec.exposure is not None and policy.spec.exposure.pooled_vfs for policy in self._policies)

    def gone_effect(self, policy: str) -> TaintEffect | None:
        """The effect of a gone device's taint, by the policy that offered it as it reads now; None if that is deleted.

        A policy that offers nothing any more, on this node or at all, still decides: the device is in use.
        """
        return next((rule.gone for rule in self._rules if rule.policy == policy), None)

    def policy_of(self, interface: Interface, device: str) -> str:
        """Which policy would offer an interface as the device of that name; "" if none would."""
        templates = self._resolved(interface).resolution.templates
        made = (template for template in templates if names.label(interface.device_name + template.suffix) == device)
        return next((entry.policy for entry in made), "")

    def _part(self, pool: str, group: PoolInterfaces) -> ExposureResult:
        part = self._parts.get((pool, group))
        if part is not None:
            return part
        nic = NicOffers(
            pf_name=group.pf_name,
            root=self._offer(group.root) if group.root else None,
            others=tuple(zip(map(self._offer, group.others), member_places(group), strict=True)),
            above=tuple((above.on, self._offer(above.interface)) for above in group.above),
            held=group.held,
        )
        return assemble(nic, pool=pool, features=self._features, programs=self._programs, lacked=self._lacked)

    def _offer(self, interface: Interface) -> Offer:
        offer = self._offers.get(interface)
        if offer is None:
            offer = self._offers[interface] = self._resolved(interface)
        return offer

    def _resolved(self, interface: Interface) -> Offer:
        values = attributes(interface)
        answers = ask(values, self._selectors, self.known.answers.get(interface, NOTHING_ASKED))
        self.known.answers[interface] = answers
        return Offer(interface, resolve(interface, values, self._rules, answers), facts.publishable(values))

    def _made_rules(self, node: InventoryNode) -> tuple[tuple[Rule, ...], tuple[Problem, ...]]:
        """The rules for a node; policies are made ready once for it."""
        before = self.known.ready if self.known.node == node else {}
        self.known.ready, self.known.node = {}, node

        def make(policy: DeviceExposurePolicy, node: InventoryNode) -> ReadyPolicy:
            spec, made = before.get(policy.name, (None, None))
            if made is None or spec != policy.spec:
                made = ready(policy, node)
            self.known.ready[policy.name] = policy.spec, made
            return made

        return rules(self._policies, node, make)


def _with_held(group: PoolInterfaces, held_vfs: Mapping[str, HeldVF]) -> PoolInterfaces:
    held = tuple(held_vfs[vf.identity] for vf in group.vfs if vf.identity in held_vfs)
    return group._replace(held=held) if held else group
