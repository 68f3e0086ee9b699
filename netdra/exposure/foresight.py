"""The effect of a change of policies on a node's devices, computed from the node's report of its interfaces.

Called by the webhook for the policy that is written or deleted, and by `netdra plan --cluster`. A report holds, for
interfaces that are alike, their facts, the standing of each policy on them, and the published devices
(`netdra.model.node_network`). So only the changed policies are evaluated; the others count by their standing. Facts
that the report does not contain are not guessed. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from netdra.cel import CelEvaluationError, device_variables
from netdra.exposure.resolve import resolve
from netdra.exposure.templates import Rule, Template, rules
from netdra.model import names
from netdra.model.inventory import (
    ATTRIBUTES,
    DEVICE_FILE,
    PUBLISHED_ATTRIBUTES,
    AttributeValue,
    Interface,
    InventoryNode,
)
from netdra.model.node_network import PublishedDevice, Standing
from netdra.model.policy import DeviceExposurePolicy, PolicySelector

PROTECTING = frozenset(map(names.qualified, ("type", "hostUplink", "hostUse", "master", "deviceFile"))) & {
    field.name for field in ATTRIBUTES
}
"""The facts that decide whether an interface is offered, whatever a policy's selector asks for."""
_IF_NAME = names.qualified("ifName")
_TEXTS = re.compile(r"\"[^\"\\\n]*\"|'[^'\\\n]*'")
# Fields, indexes and lists of texts, equality, logic, and has(): nothing that looks into a text or orders it.
_COMPARES = re.compile(r"(?:[\w.\s\[\]\",]|[=!]=|&&|\|\||!|(?<=has)\(|(?<![\w.])\(|\))*", re.ASCII)
_ALWAYS = PolicySelector(cel="true")
_REPRESENTOR = "representor"
_SELECTED_BY: Mapping[str, tuple[str, ...]] = {
    _REPRESENTOR: (_REPRESENTOR,),
    DEVICE_FILE: ("registeredBy", DEVICE_FILE),
}
"""Types that a policy must mean (decisions D24, D51), and the words of which the text of such a policy has one."""
_ANY_NODE = InventoryNode(name="any")
_NEUTRAL = Interface()
_BY_SHORT_NAME = {field.name.rpartition("/")[2]: field.name for field in ATTRIBUTES}
_by_name = attrgetter("policy")


class SimilarInterfaces(msgspec.Struct, frozen=True):
    """Interfaces with the same facts, as far as the changed policies read them, and with the same devices now.

    Attributes:
        facts: the attributes that are asked for, by qualified name.
        unknown: attributes that are asked for and that the interfaces have, with values that the report leaves open.
        unreadable: attributes that are asked for and could not be read.
        standings: for each policy that matches the interfaces, or fails on them, its effect.
        devices: the published devices of each interface.
        count: how many interfaces there are.
        nodes: the nodes that have them, a bit for each, in hexadecimal.
        holds: whether the policy will be in force on these nodes.
    """

    facts: Mapping[str, bool | int | str]
    unknown: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    standings: Mapping[str, Standing] = {}
    devices: tuple[PublishedDevice, ...] = ()
    count: int = 1
    nodes: str = "0"
    holds: bool = True


class InterfaceReports(msgspec.Struct, frozen=True):
    """The reports of nodes, as far as a policy needs them.

    Attributes:
        nodes: how many nodes these interfaces belong to.
        left: how many more nodes there are that were not reached in time.
    """

    seen: tuple[SimilarInterfaces, ...] = ()
    nodes: int = 0
    left: int = 0


class VFPooling(msgspec.Struct, frozen=True):
    """How a policy offers VFs together: the suffix of its devices, and how many a PF has of them at most."""

    policy: str
    suffix: str
    lanes: int


class DeviceForecast(msgspec.Struct, frozen=True):
    """The effect of a change on one interface's devices.

    Attributes:
        removed: the published devices that no longer will be.
        added: the policies that will offer new devices, by the suffix of the device's name.
        reassigned: the same for devices that another policy offers now.
        matched: whether a policy that changes matches the interface when it is written.
        was_pooled: how a VF is offered together with others now.
        pooled: the same after the change.
    """

    removed: tuple[PublishedDevice, ...] = ()
    added: Mapping[str, str] = {}
    reassigned: Mapping[str, str] = {}
    matched: bool = False
    was_pooled: VFPooling | None = None
    pooled: VFPooling | None = None


UNCHANGED = DeviceForecast()


class Foresight:
    """A set of policies and a change of it; answers what becomes of the interfaces that nodes report."""

    def __init__(
        self,
        policies: Iterable[DeviceExposurePolicy],
        removed: Sequence[DeviceExposurePolicy],
        written: Sequence[DeviceExposurePolicy],
    ) -> None:
        """Make the policies ready.

        Args:
            policies: all that exist now.
            removed: the policies that change or go, as they are.
            written: the policies that come or change, as they will be; all hold on the nodes that are asked about.
        """
        self._changing = {policy.name for policy in (*removed, *written)}
        self._before = {
            apart: {rule.policy: rule for rule in _as_rules(removed, apart)} for apart in ("", *_SELECTED_BY)
        }
        self._after, _ = rules(tuple(_anywhere(entry) for entry in written), _ANY_NODE)
        present = {policy.name: policy for policy in (*policies, *removed)}
        self._pooling = {
            name: VFPooling(name, exposure.device_name_suffix, exposure.pooled_vfs.lanes)
            for name, policy in present.items()
            if (exposure := policy.spec.exposure) is not None and exposure.pooled_vfs is not None
        }
        others = [policy for name, policy in present.items() if name not in self._changing]
        self._others = {other.name: other for other in others}
        self._made: dict[tuple[str, str], Rule] = {}

    def of(self, seen: SimilarInterfaces) -> DeviceForecast | None:
        """The effect on the devices of reported interfaces; None if the report is not sufficient to know it."""
        facts: dict[str, AttributeValue] = dict(seen.facts)
        matched = self._matched(seen, facts) if seen.holds else frozenset()
        if matched is None:
            return None
        mattered = self._changing & seen.standings.keys()
        if not matched and not mattered:
            return UNCHANGED
        interface = _interface(seen)
        # A policy selects a representor or a file only by a fact that identifies one. The policy's text names that
        # fact.
        apart = interface.type if interface.type in _SELECTED_BY else ""
        beside = [self._other(name, apart) for name in seen.standings if self._counts(name, seen)]
        before_it = self._before[apart]
        removed = [before_it[name] for name in mattered if name in before_it]
        written = [rule for rule in self._after if rule.policy in matched]
        before, was_pooled = _offered(_templates(interface, facts, [*beside, *removed]))
        after, pooled = _offered(_templates(interface, facts, [*beside, *written]))
        offers_more = bool(set(after) - set(before)) or (pooled is not None and was_pooled is None)
        if offers_more and PROTECTING & set(seen.unknown):
            return None
        return DeviceForecast(
            removed=tuple(_removed(seen, before, after)),
            added={suffix: policy for suffix, policy in after.items() if suffix not in before},
            reassigned=_reassigned(before, after),
            matched=bool(matched),
            was_pooled=was_pooled,
            pooled=pooled,
        )

    def pooled_now(self, standings: Mapping[str, Standing]) -> VFPooling | None:
        """How a VF is offered together with others now, by the outcome of each policy on it."""
        winners = (name for name, outcome in standings.items() if outcome == "wins" and name in self._pooling)
        return next((self._pooling[name] for name in winners), None)

    def _matched(self, seen: SimilarInterfaces, facts: Mapping[str, AttributeValue]) -> frozenset[str] | None:
        """The written policies that match, or fail; None where one asks for a value that the report leaves open."""
        device = device_variables(names.DRIVER, facts)
        policies = set()
        for rule in self._after:
            if rule.selector is None:
                continue
            try:
                if rule.selector.matches(device):
                    policies.add(rule.policy)
            except CelEvaluationError as failure:
                attribute = _BY_SHORT_NAME.get(failure.missing)
                if attribute is not None and attribute not in seen.unreadable:
                    return None
                policies.add(rule.policy)
        return frozenset(policies)

    def _counts(self, name: str, seen: SimilarInterfaces) -> bool:
        """Whether an unchanged policy counts: it matches, or is an exclude that fails and may mean the interfaces."""
        policy = self._others.get(name)
        if policy is None:
            return False
        return seen.standings[name] != "failed" or (policy.spec.action == "exclude" and not seen.devices)

    def _other(self, name: str, apart: str) -> Rule:
        made = self._made.get((name, apart))
        if made is None:
            (made,) = _as_rules([self._others[name]], apart)
            self._made[name, apart] = made
        return made


def referenced_attributes(expressions: Iterable[str], *, published: bool = False) -> frozenset[str]:
    """The attributes that selectors may ask for, by qualified name, and those that protect.

    A name that an expression uses stands in its text; where names may be in parts or escaped, all are asked for.

    Args:
        expressions: the selectors.
        published: leave out attributes that devices do not carry: a user without the right to read them should not
            learn them by asking.
    """
    used: set[str] = set()
    for text in expressions:
        in_parts = "\\" in text or "+" in text
        used |= {field.name for field in ATTRIBUTES if in_parts or field.name.rpartition("/")[2] in text}
    return frozenset(used & set(PUBLISHED_ATTRIBUTES) if published else used) | PROTECTING


def folded(seen: Sequence[SimilarInterfaces], expression: str) -> tuple[SimilarInterfaces, ...]:
    """The same interfaces; those that a selector cannot distinguish, as it does not compare their names, are merged.

    A cluster has thousands of interface names, and a selector that only compares them knows a few.
    """
    if not _COMPARES.fullmatch(_TEXTS.sub('""', expression)):
        return tuple(seen)
    compared = {text[1:-1] for text in _TEXTS.findall(expression)}
    together: dict[tuple[object, ...], list[SimilarInterfaces]] = {}
    entries: list[SimilarInterfaces] = []
    for entry in seen:
        facts = tuple((name, value) for name, value in entry.facts.items() if name != _IF_NAME)
        own = entry.facts.get(_IF_NAME, "")
        if own in compared or any(own == value for _, value in facts):
            entries.append(entry)
            continue
        standings = tuple(entry.standings.items())
        key = facts, _IF_NAME in entry.facts, entry.unknown, entry.unreadable, standings, entry.devices, entry.holds
        together.setdefault(key, []).append(entry)
    for alike in together.values():
        nodes = 0
        for entry in alike:
            nodes |= int(entry.nodes, 16)
        entries.append(replace(alike[0], count=sum(entry.count for entry in alike), nodes=f"{nodes:x}"))
    return tuple(entries)


def _anywhere(policy: DeviceExposurePolicy) -> DeviceExposurePolicy:
    return replace(policy, spec=replace(policy.spec, node_selector=None))


def _as_rules(policies: Iterable[DeviceExposurePolicy], apart: str) -> tuple[Rule, ...]:
    """Policies as rules that match every interface: which interfaces they match is in the report.

    Args:
        apart: the interfaces' type, where a policy must mean it: then the policies whose text names it select by it.
    """
    return rules(
        tuple(
            replace(policy, spec=replace(policy.spec, node_selector=None, selector=_stand_in(policy, apart)))
            for policy in policies
        ),
        _ANY_NODE,
    )[0]


def _stand_in(policy: DeviceExposurePolicy, apart: str) -> PolicySelector:
    if not any(word in policy.spec.selector.cel for word in _SELECTED_BY.get(apart, ())):
        return _ALWAYS
    return PolicySelector(cel=f'device.attributes["{names.DRIVER}"].type == "{apart}"')


def _interface(seen: SimilarInterfaces) -> Interface:
    """An interface with the reported facts; lists, which a report has as text, are lists again."""
    fields: dict[str, object] = {}
    unreadable = []
    for attribute in ATTRIBUTES:
        if attribute.name in seen.unreadable:
            unreadable.append(attribute.field)
        elif attribute.name in seen.facts:
            value = seen.facts[attribute.name]
            is_list = isinstance(getattr(_NEUTRAL, attribute.field), tuple)
            fields[attribute.field] = tuple(filter(None, str(value).split(","))) if is_list else value
    interface = replace(_NEUTRAL, **fields, unreadable=tuple(unreadable))
    # The path of a file is reported only as long as the file is there and allowed.
    away = interface.type == DEVICE_FILE and not interface.device_file
    return replace(interface, file_problem="the file is not available to any pod") if away else interface


def _templates(interface: Interface, facts: dict[str, AttributeValue], chosen: Sequence[Rule]) -> Sequence[Template]:
    return resolve(interface, facts, tuple(sorted(chosen, key=_by_name))).templates


def _offered(templates: Sequence[Template]) -> tuple[dict[str, str], VFPooling | None]:
    """The policies that make devices of an interface alone, by suffix; and the one that pools it with other VFs."""
    alone = {template.suffix: template.policy for template in templates if not template.lanes}
    pooling = (VFPooling(template.policy, template.suffix, template.lanes) for template in templates if template.lanes)
    return alone, next(pooling, None)


def _is_of(device: PublishedDevice, offered: Mapping[str, str]) -> bool:
    """Whether a published device is one of those that are offered."""
    return device.policy in offered.values() if device.name else device.suffix in offered


def _removed(seen: SimilarInterfaces, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[PublishedDevice]:
    return (device for device in seen.devices if _is_of(device, before) and not _is_of(device, after))


def _reassigned(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The devices, by suffix, that another policy offers than before."""
    return {suffix: policy for suffix, policy in after.items() if before.get(suffix, policy) != policy}
