"""What a change of policies would do to a node's devices, from what the node reports of its interfaces.

Called by the webhook for the policy that is written or deleted, and by `netdra plan --cluster`. A report holds, for
interfaces that are alike, their facts, what each policy comes to on them, and the devices that are published
(`netdra.model.node_network`). So only the policies that change are asked; the others are taken by their standing. What
the report does not tell is not guessed. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
    Node,
)
from netdra.model.node_network import PublishedDevice, Standing
from netdra.model.policy import DeviceExposurePolicy, Selector

PROTECTING = frozenset(map(names.qualified, ("type", "hostUplink", "hostUse", "master", "deviceFile"))) & {
    field.name for field in ATTRIBUTES
}
"""The facts that decide whether an interface is offered, whatever a policy's selector asks for."""
_IF_NAME = names.qualified("ifName")
_TEXTS = re.compile(r"\"[^\"\\\n]*\"|'[^'\\\n]*'")
# Fields, indexes and lists of texts, equality, logic, and has(): nothing that looks into a text or orders it.
_COMPARES = re.compile(r"(?:[\w.\s\[\]\",]|[=!]=|&&|\|\||!|(?<=has)\(|(?<![\w.])\(|\))*", re.ASCII)
_ALWAYS = Selector(cel="true")
_REPRESENTOR = "representor"
_MEANT_BY: Mapping[str, tuple[str, ...]] = {_REPRESENTOR: (_REPRESENTOR,), DEVICE_FILE: ("registeredBy", DEVICE_FILE)}
"""Types that a policy must mean (decisions D24, D51), and what the text of one that does holds."""
_ANY_NODE = Node(name="any")
_NEUTRAL = Interface()
_KNOWN = {field.name.rpartition("/")[2]: field.name for field in ATTRIBUTES}
_by_name = attrgetter("policy")


class Seen(msgspec.Struct, frozen=True):
    """Interfaces of which the changed policies see the same, and of which the same became.

    Attributes:
        facts: the attributes that are asked for, by qualified name.
        unknown: those of them that the interfaces have with a value that nobody told.
        unreadable: those of them that could not be read.
        standings: what each policy that matches them, or fails on them, comes to.
        devices: what is published for each of them.
        count: how many they are.
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


class Reported(msgspec.Struct, frozen=True):
    """What nodes report, as far as a policy asks for it.

    Attributes:
        seen: their interfaces.
        nodes: how many nodes these are of.
        left: how many more there are that were not looked at, for want of time.
    """

    seen: tuple[Seen, ...] = ()
    nodes: int = 0
    left: int = 0


class Change(msgspec.Struct, frozen=True):
    """What becomes of one interface's devices.

    Attributes:
        gone: those that are published and no longer will be.
        come: by what follows the interface's name, the policy that will offer the device.
        taken: the same of those that another policy offers now.
        matched: whether a policy that changes matches the interface when it is written.
    """

    gone: tuple[PublishedDevice, ...] = ()
    come: Mapping[str, str] = {}
    taken: Mapping[str, str] = {}
    matched: bool = False


UNCHANGED = Change()


class Foresight:
    """A set of policies, and how it changes; asked of what nodes report."""

    def __init__(
        self,
        policies: Iterable[DeviceExposurePolicy],
        removed: Sequence[DeviceExposurePolicy],
        written: Sequence[DeviceExposurePolicy],
    ) -> None:
        """Make the policies ready.

        Args:
            policies: those that are there.
            removed: those of them that change or go, as they are.
            written: those that come or change, as they will be; all hold on the nodes that are asked of.
        """
        self._changing = {policy.name for policy in (*removed, *written)}
        self._before = {apart: {rule.policy: rule for rule in _standing(removed, apart)} for apart in ("", *_MEANT_BY)}
        self._after, _ = rules(tuple(_anywhere(entry) for entry in written), _ANY_NODE)
        others = [policy for policy in policies if policy.name not in self._changing]
        self._others = {other.name: other for other in others}
        self._made: dict[tuple[str, str], Rule] = {}

    def of(self, seen: Seen) -> Change | None:
        """What becomes of the devices of interfaces that were seen; None where that cannot be told."""
        facts: dict[str, AttributeValue] = dict(seen.facts)
        matched = self._matched(seen, facts) if seen.holds else frozenset()
        if matched is None:
            return None
        mattered = self._changing & seen.standings.keys()
        if not matched and not mattered:
            return UNCHANGED
        interface = _interface(seen)
        # A policy means a representor or a file only if it selects by what says so, and its text tells.
        apart = interface.type if interface.type in _MEANT_BY else ""
        beside = [self._other(name, apart) for name in seen.standings if self._counts(name, seen)]
        before_it = self._before[apart]
        removed = [before_it[name] for name in mattered if name in before_it]
        written = [rule for rule in self._after if rule.policy in matched]
        before = {template.suffix: template.policy for template in _templates(interface, facts, [*beside, *removed])}
        after = {template.suffix: template.policy for template in _templates(interface, facts, [*beside, *written])}
        if set(after) - set(before) and PROTECTING & set(seen.unknown):
            return None
        return Change(
            gone=tuple(device for device in seen.devices if _is_of(device, before) and not _is_of(device, after)),
            come={suffix: policy for suffix, policy in after.items() if suffix not in before},
            taken={suffix: policy for suffix, policy in after.items() if before.get(suffix, policy) != policy},
            matched=bool(matched),
        )

    def _matched(self, seen: Seen, facts: Mapping[str, AttributeValue]) -> frozenset[str] | None:
        """The written policies that match, or fail; None where one asks for what nobody told."""
        device = device_variables(names.DRIVER, facts)
        policies = set()
        for rule in self._after:
            if rule.selector is None:
                continue
            try:
                if rule.selector.matches(device):
                    policies.add(rule.policy)
            except CelEvaluationError as failure:
                asked = _KNOWN.get(failure.missing)
                if asked is not None and asked not in seen.unreadable:
                    return None
                policies.add(rule.policy)
        return frozenset(policies)

    def _counts(self, name: str, seen: Seen) -> bool:
        """Whether a policy that stays has a say: it matches, or it is an exclude that fails and may mean them."""
        policy = self._others.get(name)
        if policy is None:
            return False
        return seen.standings[name] != "failed" or (policy.spec.action == "exclude" and not seen.devices)

    def _other(self, name: str, apart: str) -> Rule:
        made = self._made.get((name, apart))
        if made is None:
            (made,) = _standing([self._others[name]], apart)
            self._made[name, apart] = made
        return made


def asked_for(expressions: Iterable[str], *, published: bool = False) -> frozenset[str]:
    """The attributes that selectors may ask for, by qualified name, and those that protect.

    Whatever an expression names stands in its text; where it may be written in parts or escaped, all are asked for.

    Args:
        expressions: the selectors.
        published: leave out what devices do not carry, and who may not read it should not learn by asking.
    """
    used: set[str] = set()
    for text in expressions:
        in_parts = "\\" in text or "+" in text
        used |= {field.name for field in ATTRIBUTES if in_parts or field.name.rpartition("/")[2] in text}
    return frozenset(used & set(PUBLISHED_ATTRIBUTES) if published else used) | PROTECTING


def folded(seen: Sequence[Seen], expression: str) -> tuple[Seen, ...]:
    """The same interfaces, with those together that a selector cannot tell apart: all of other names than it compares.

    A cluster has thousands of interface names, and a selector that only compares them knows a few.
    """
    if not _COMPARES.fullmatch(_TEXTS.sub('""', expression)):
        return tuple(seen)
    known = {text[1:-1] for text in _TEXTS.findall(expression)}
    together: dict[tuple[object, ...], list[Seen]] = {}
    entries: list[Seen] = []
    for entry in seen:
        facts = tuple((name, value) for name, value in entry.facts.items() if name != _IF_NAME)
        own = entry.facts.get(_IF_NAME, "")
        if own in known or any(own == value for _, value in facts):
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


def _standing(policies: Iterable[DeviceExposurePolicy], apart: str) -> tuple[Rule, ...]:
    """Policies as rules that match whatever they are asked of: that they do is in the report.

    Args:
        policies: the policies.
        apart: the type that is asked of, where a policy must mean it; then those that speak of it select by it.
    """
    return rules(
        tuple(
            replace(policy, spec=replace(policy.spec, node_selector=None, selector=_stand_in(policy, apart)))
            for policy in policies
        ),
        _ANY_NODE,
    )[0]


def _stand_in(policy: DeviceExposurePolicy, apart: str) -> Selector:
    if not any(word in policy.spec.selector.cel for word in _MEANT_BY.get(apart, ())):
        return _ALWAYS
    return Selector(cel=f'device.attributes["{names.DRIVER}"].type == "{apart}"')


def _interface(seen: Seen) -> Interface:
    """An interface with the facts that were told; those of another form than text go back to it."""
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
    # The path of a file is told only as long as the file is there and allowed.
    away = interface.type == DEVICE_FILE and not interface.device_file
    return replace(interface, file_problem="the file is not given to anybody") if away else interface


def _templates(interface: Interface, facts: dict[str, AttributeValue], chosen: Sequence[Rule]) -> Sequence[Template]:
    return resolve(interface, facts, tuple(sorted(chosen, key=_by_name))).templates


def _is_of(device: PublishedDevice, offered: Mapping[str, str]) -> bool:
    """Whether a published device is one of those that are offered."""
    return device.policy in offered.values() if device.name else device.suffix in offered
