"""Policies made ready for one node: compiled, checked, and turned into the devices that each makes of an interface.

Done once per set of policies by `netdra.exposure.expose`; `netdra.exposure.resolve` asks the result of each interface.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import ROUND_CEILING
from typing import Any

import msgspec

from netdra.cel import CompiledSelector, compile_selector
from netdra.exposure import additional
from netdra.exposure.additional import ROOM
from netdra.exposure.capacities import amounts, sharing
from netdra.exposure.check import check, check_devices, node_errors, unread
from netdra.model import names, quantity
from netdra.model.device import LeftOut, Outcome, PolicyVerdict, Problem
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding
from netdra.model.inventory import AttributeValue, InventoryNode
from netdra.model.kept import ADDRESSING, Keep
from netdra.model.policy import CapacityCounter, DeviceExposurePolicy, Exposure, ResetPolicy, TaintEffect
from netdra.model.resource import CapacityRequestPolicy, DeviceCapacity
from netdra.model.topology import MOVING_TYPES

EXCLUSIVE = "-exclusive"
_PHYSNET = names.qualified(names.PHYSNET)


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """One device that a policy makes of an interface: all of it that does not depend on the interface.

    Attributes:
        policy: the policy's name; `priority` is its rank.
        suffix: the part of the device's name after the interface's.
        shared: whether several claims may have it at once.
        capacity: the published capacities, under qualified names.
        mirrored: capacity -> its amount, rounded up, for the counters that stand for a shared device (decision D2).
        group: the exclusion group, "" for none.
        plugins: the CNI plugins that may attach it.
        additional: the attributes that policies add, under qualified names.
        facts: which of these are facts of the interface, which are filled in.
        chosen: the facts that the device carries beside those that identify it; None for all.
        empty_facts: whether it carries facts that do not apply to it, too.
        room: how many capacities and additional attributes there is room for beside the facts.
        whole: whether a claim of it has the interface to itself: it is exclusive, and not because of its policy alone
            (decision D24).
        allow_host_use: whether it is offered whole though the host uses the interface.
        allow_host_addresses: the same, while the host has addresses and routes on the interface and no other use of it.
        keep: what of the interface's configuration on the node a pod keeps.
        reset: when it is reset after a pod had it, if it is a VF.
        allowed_sysctls: what of a pod's namespace steps with it may set.
        lends: how much of the link all claims of the device can have together, in Mbit/s; 0 without a limit.
        overcommits: whether it may lend bandwidth that other devices lend as well.
        lanes: as how many devices the VFs of a PF are offered together; 0 where each VF is a device.
    """

    policy: str
    priority: int
    suffix: str
    shared: bool
    capacity: Mapping[str, DeviceCapacity] = {}
    mirrored: Mapping[str, int] = {}
    group: str = ""
    plugins: tuple[str, ...] = ()
    additional: Mapping[str, AttributeValue] = {}
    facts: tuple[str, ...] = ()
    chosen: frozenset[str] | None = None
    empty_facts: bool = True
    room: int = ROOM
    whole: bool = False
    allow_host_use: bool = False
    allow_host_addresses: bool = False
    keep: tuple[Keep, ...] = ()
    reset: ResetPolicy = "IfChanged"
    allowed_sysctls: tuple[str, ...] = ()
    lends: int = 0
    overcommits: bool = False
    lanes: int = 0

    def leaves_out(self, name: str) -> bool:
        """Whether the device does not carry an attribute that the node, or another policy of the node, adds."""
        if name == _PHYSNET:  # a fact like others: without a value it is left out in the end
            return self.chosen is not None and name not in self.chosen
        return not self.empty_facts

    def beside(self, uses: Collection[str]) -> Template | None:
        """The template while the host uses the interface: without plugins that move it. None if nothing is left.

        Args:
            uses: the host's uses of it, in words; none where they are unknown.

        A VF that the host uses is never pooled: the claim that gets it could not be foreseen.
        """
        if self.lanes:
            return None
        staying = tuple(plugin for plugin in self.plugins if plugin not in MOVING_TYPES)
        configured = bool(uses) and ADDRESSING.issuperset(uses)
        if (
            self.allow_host_use
            or (self.allow_host_addresses and configured)
            or (not self.whole and staying == self.plugins)
        ):
            return self
        return None if self.whole or not staying else msgspec.structs.replace(self, plugins=staying)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A policy made ready for a node.

    Attributes:
        policy: its name; `excludes`, `priority`, `suffix`, `allows_uplink`, `allows_addresses` are its fields.
        selector: None where the policy is not evaluated, and `fixed_verdict` is its verdict on every interface.
        won: its verdict where it makes devices.
        gone: the effect of the taint on its devices after their interface is gone.
        templates: the devices that it makes.
    """

    policy: str
    excludes: bool
    priority: int
    suffix: str
    allows_uplink: bool
    allows_addresses: bool
    selector: CompiledSelector | None
    fixed_verdict: PolicyVerdict
    won: PolicyVerdict
    gone: TaintEffect
    templates: tuple[Template, ...]

    @property
    def pools(self) -> bool:
        """Whether the policy offers VFs together."""
        return any(template.lanes for template in self.templates)

    def verdict(self, outcome: Outcome, detail: str = "", by: str = "") -> PolicyVerdict:
        """The policy's verdict on one interface."""
        return msgspec.structs.replace(self.fixed_verdict, outcome=outcome, detail=detail, by=by)


ReadyPolicy = tuple[Rule, tuple[Finding, ...]]
"""A policy as a rule, and what is wrong with it."""


def ready(written: DeviceExposurePolicy, node: InventoryNode) -> ReadyPolicy:
    """A policy made ready for a node, beside no other one."""
    policy = on_node(written, node)
    errors = (*check(policy), *unread(policy, node))
    return _rule(policy, node, errors), errors


def rules(
    policies: tuple[DeviceExposurePolicy, ...],
    node: InventoryNode,
    make: Callable[[DeviceExposurePolicy, InventoryNode], ReadyPolicy] = ready,
) -> tuple[tuple[Rule, ...], tuple[Problem, ...]]:
    """The policies for a node in the order of their names, and the errors in those that apply there.

    Args:
        policies: all policies of the cluster.
        make: `ready`, or a function that caches its results.

    Raises:
        InvalidInputError: two policies have one name.
    """
    made: list[Rule] = []
    problems: list[Problem] = []
    for policy in sorted(policies, key=lambda policy: policy.name):
        if made and made[-1].policy == policy.name:
            raise InvalidInputError(
                f'DeviceExposurePolicy "{policy.name}" occurs twice', hint="rename one of them", code="ND1460"
            )
        rule, errors = make(policy, node)
        made.append(rule)
        if rule.fixed_verdict.outcome != "other-node":
            # Of an exclude policy only what makes it unreadable has consequences.
            unused: LeftOut | None = "policy-invalid" if rule.fixed_verdict.outcome == "invalid" else None
            problems += [Problem(policy=policy.name, message=error.text_at_path, left_out=unused) for error in errors]
    united, against = _united(made, physnets=bool(node.physnets))
    return united, (*problems, *against)


def allocatable_of(policies: Iterable[DeviceExposurePolicy]) -> frozenset[str]:
    """The allocatable resources that policies read: a change of others requires no new pass."""
    return frozenset(
        capacity.value_from.node_allocatable
        for policy in policies
        if policy.spec.exposure is not None
        for capacity in policy.spec.exposure.capacity.values()
        if capacity.value_from is not None
    )


def on_node(policy: DeviceExposurePolicy, node: InventoryNode) -> DeviceExposurePolicy:
    """The policy with the values that it reads of a node; a value that the node lacks stays unread (`check`)."""
    exposure = policy.spec.exposure
    if exposure is None or not any(capacity.value_from for capacity in exposure.capacity.values()):
        return policy
    read = {name: _read(capacity, node) for name, capacity in exposure.capacity.items()}
    spec = msgspec.structs.replace(policy.spec, exposure=msgspec.structs.replace(exposure, capacity=read))
    return msgspec.structs.replace(policy, spec=spec)


def _read(capacity: CapacityCounter, node: InventoryNode) -> CapacityCounter:
    source = capacity.value_from
    if source is None or source.node_allocatable not in node.allocatable:
        return capacity
    return msgspec.structs.replace(capacity, value=node.allocatable[source.node_allocatable], value_from=None)


def _united(made: Sequence[Rule], *, physnets: bool) -> tuple[tuple[Rule, ...], list[Problem]]:
    """The rules with all attributes that the node or any policy adds, on each device, and the problems of that."""
    listed = [_adding(template) for rule in made for template in rule.templates]
    neutral, against = additional.united(listed, physnets=physnets)
    if not neutral:
        return tuple(made), []
    completed = tuple(
        msgspec.structs.replace(
            rule,
            templates=tuple(
                msgspec.structs.replace(template, additional=additional.completed(_adding(template), neutral))
                for template in rule.templates
            ),
        )
        for rule in made
    )
    return completed, [Problem(policy=policy, message=text) for policy, texts in against.items() for text in texts]


def _adding(template: Template) -> additional.Adding:
    return additional.Adding(
        template.policy, template.capacity, template.additional, template.room, template.leaves_out
    )


def _rule(policy: DeviceExposurePolicy, node: InventoryNode, errors: tuple[Finding, ...]) -> Rule:
    spec = policy.spec
    excludes = spec.action == "exclude"
    exposure = spec.exposure or Exposure()
    # An exclude policy protects devices: as long as it selects them, no other mistake in it disables it. Without a
    # valid selection it hides nothing: a typo must not empty the cluster (decision D23).
    fatal = check_devices(policy) if excludes else errors
    outcome = _fixed_outcome(policy, node, fatal)
    is_evaluated = outcome == "no-match"
    fixed_verdict = PolicyVerdict(
        policy=policy.name,
        action=spec.action,
        priority=spec.priority,
        outcome=outcome,
        detail="; ".join(finding.text_at_path for finding in fatal) if outcome == "invalid" else "",
        suffix=exposure.device_name_suffix,
    )
    return Rule(
        policy=policy.name,
        excludes=excludes,
        priority=spec.priority,
        suffix=exposure.device_name_suffix,
        allows_uplink=exposure.allow_host_uplink,
        allows_addresses=exposure.allow_host_addresses,
        selector=compile_selector(spec.selector.cel) if is_evaluated else None,
        fixed_verdict=fixed_verdict,
        won=msgspec.structs.replace(fixed_verdict, outcome="wins", detail=""),
        gone=exposure.taints.gone,
        templates=_templates(policy, exposure) if is_evaluated and not excludes else (),
    )


def _fixed_outcome(policy: DeviceExposurePolicy, node: InventoryNode, fatal: tuple[Finding, ...]) -> Outcome:
    """The policy's outcome on an interface that its expression does not match.

    A node selector that cannot be read may mean any node: an exclude holds there, an expose is invalid anyway.
    """
    selector = policy.spec.node_selector
    unreadable = any(node_errors(("spec", "nodeSelector"), selector))
    if selector is not None and not unreadable and not selector.matches(node.labels):
        return "other-node"
    return "invalid" if fatal else "no-match"


def _templates(policy: DeviceExposurePolicy, exposure: Exposure) -> tuple[Template, ...]:
    chosen = None if exposure.facts is None else frozenset(map(names.qualified, exposure.facts))
    return tuple(
        msgspec.structs.replace(
            template, chosen=chosen, empty_facts=exposure.empty_facts, room=additional.room(exposure)
        )
        for template in _by_kind(policy, exposure)
    )


def _by_kind(policy: DeviceExposurePolicy, exposure: Exposure) -> tuple[Template, ...]:
    if exposure.pooled_vfs is not None:
        return (_pooled(policy, exposure, exposure.pooled_vfs.lanes),)
    kind = sharing(exposure)
    if kind == "exclusive":
        return (_exclusive(policy, exposure, suffix=exposure.device_name_suffix, capacity=_filters(exposure)),)
    shared = _shared(policy, exposure)
    if kind == "shared":
        return (shared,)
    return (shared, _exclusive(policy, exposure, suffix=exposure.device_name_suffix + EXCLUSIVE, capacity={}))


def _of_policy(policy: DeviceExposurePolicy, exposure: Exposure, **own: Any) -> Template:
    """A template with the settings that do not depend on how its devices are shared, and its own."""
    return Template(
        policy=policy.name,
        priority=policy.spec.priority,
        additional=additional.published(exposure),
        facts=tuple(map(names.qualified, exposure.additional_facts)),
        lends=_lends(exposure),
        overcommits=exposure.allow_bandwidth_overcommit,
        allow_host_use=exposure.allow_host_use,
        allow_host_addresses=exposure.allow_host_addresses,
        keep=exposure.keep,
        allowed_sysctls=exposure.allowed_sysctls,
        reset=exposure.reset,
        **own,
    )


def _shared(policy: DeviceExposurePolicy, exposure: Exposure) -> Template:
    return _of_policy(
        policy,
        exposure,
        suffix=exposure.device_name_suffix,
        shared=True,
        capacity={names.qualified(name): _consumable(exposure, name) for name in exposure.capacity},
        mirrored={
            name.removeprefix(f"{names.DRIVER}/"): max(
                1, int(quantity.parse(capacity.value).to_integral(ROUND_CEILING))
            )
            for name, capacity in exposure.capacity.items()
        },
        group=exposure.exclusion_group,
        plugins=tuple(plugin.name for plugin in exposure.supported_cni_plugins if not plugin.exclusive),
    )


def _exclusive(
    policy: DeviceExposurePolicy, exposure: Exposure, *, suffix: str, capacity: Mapping[str, DeviceCapacity]
) -> Template:
    plugins = exposure.supported_cni_plugins
    marked = [plugin.name for plugin in plugins if plugin.exclusive]
    moving = any(plugin.name in MOVING_TYPES for plugin in plugins)
    return _of_policy(
        policy,
        exposure,
        suffix=suffix,
        shared=False,
        capacity=capacity,
        plugins=tuple(marked or (plugin.name for plugin in plugins)),
        whole=bool(marked) or moving or not plugins,
    )


def _pooled(policy: DeviceExposurePolicy, exposure: Exposure, lanes: int) -> Template:
    """A lane's template, but for its part of the VFs and of the bandwidth (`netdra.exposure.pooling`)."""
    capacity = {
        names.qualified(name): DeviceCapacity(value=str(given.value), request_policy=given.request_policy)
        for name, given in exposure.capacity.items()
    } | {names.qualified(names.VFS): DeviceCapacity(value="1")}
    alone = _exclusive(policy, exposure, suffix=exposure.device_name_suffix, capacity=capacity)
    return msgspec.structs.replace(alone, shared=True, lanes=lanes)


def _consumable(exposure: Exposure, name: str) -> DeviceCapacity:
    """A capacity as shared devices have it: with the default consumption of a claim (decision D5)."""
    capacity = exposure.capacity[name]
    policy = capacity.request_policy or CapacityRequestPolicy()
    return DeviceCapacity(
        value=str(capacity.value),
        request_policy=msgspec.structs.replace(policy, default=str(amounts(exposure, name)[0])),
    )


def _filters(exposure: Exposure) -> dict[str, DeviceCapacity]:
    """The capacities as an exclusive device has them: nothing is consumed, a claim only asks for at least so much."""
    return {
        names.qualified(name): DeviceCapacity(value=str(capacity.value)) for name, capacity in exposure.capacity.items()
    }


def _lends(exposure: Exposure) -> int:
    """The bandwidth of the policy, in whole Mbit/s; 0 if it names none."""
    for name in (names.BANDWIDTH, names.qualified(names.BANDWIDTH)):
        if name in exposure.capacity:
            return int(quantity.parse(exposure.capacity[name].value or 0).to_integral(ROUND_CEILING))
    return 0
