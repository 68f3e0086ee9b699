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
from netdra.model.inventory import ATTRIBUTES, PUBLISHED_ATTRIBUTES, AttributeValue, Interface, Node
from netdra.model.node_network import PublishedDevice, Standing
from netdra.model.policy import DeviceExposurePolicy, Selector

PROTECTING = frozenset(map(names.qualified, ("type", "hostUplink", "hostUse", "master"))) & {
    each.name for each in ATTRIBUTES
}
"""The facts that decide whether an interface is offered, whatever a policy's selector asks for."""
_IF_NAME = names.qualified("ifName")
_TEXTS = re.compile(r"\"[^\"\\\n]*\"|'[^'\\\n]*'")
# Fields, indexes and lists of texts, equality, logic, and has(): nothing that looks into a text or orders it.
_COMPARES = re.compile(r"(?:[\w.\s\[\]\",]|[=!]=|&&|\|\||!|(?<=has)\(|(?<![\w.])\(|\))*", re.ASCII)
_ALWAYS = Selector(cel="true")
_REPRESENTOR = "representor"
_REPRESENTORS = Selector(cel=f'device.attributes["{names.DRIVER}"].type == "{_REPRESENTOR}"')
_ANY_NODE = Node(name="any")
_NEUTRAL = Interface()
_KNOWN = {each.name.rpartition("/")[2]: each.name for each in ATTRIBUTES}
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
        self._changing = {each.name for each in (*removed, *written)}
        self._before = {rule.policy: rule for rule in _standing(removed, apart=False)}
        self._before_apart = {rule.policy: rule for rule in _standing(removed, apart=True)}
        self._after, _ = rules(tuple(_anywhere(each) for each in written), _ANY_NODE)
        others = [each for each in policies if each.name not in self._changing]
        self._others = {each.name: each for each in others}
        self._made: dict[tuple[str, bool], Rule] = {}

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
        # A policy means a representor only if it selects by the type (decision D24), and its text tells.
        apart = interface.type == _REPRESENTOR
        beside = [self._other(name, apart=apart) for name in seen.standings if self._counts(name, seen)]
        before_it = self._before_apart if apart else self._before
        removed = [before_it[name] for name in mattered if name in before_it]
        written = [rule for rule in self._after if rule.policy in matched]
        before = {each.suffix: each.policy for each in _templates(interface, facts, [*beside, *removed])}
        after = {each.suffix: each.policy for each in _templates(interface, facts, [*beside, *written])}
        if set(after) - set(before) and PROTECTING & set(seen.unknown):
            return None
        return Change(
            gone=tuple(each for each in seen.devices if _is_of(each, before) and not _is_of(each, after)),
            come={suffix: policy for suffix, policy in after.items() if suffix not in before},
            taken={suffix: policy for suffix, policy in after.items() if before.get(suffix, policy) != policy},
            matched=bool(matched),
        )

    def _matched(self, seen: Seen, facts: Mapping[str, AttributeValue]) -> frozenset[str] | None:
        """The written policies that match, or fail; None where one asks for what nobody told."""
        device = device_variables(names.DRIVER, facts)
        found = set()
        for rule in self._after:
            if rule.selector is None:
                continue
            try:
                if rule.selector.matches(device):
                    found.add(rule.policy)
            except CelEvaluationError as failure:
                asked = _KNOWN.get(failure.missing)
                if asked is not None and asked not in seen.unreadable:
                    return None
                found.add(rule.policy)
        return frozenset(found)

    def _counts(self, name: str, seen: Seen) -> bool:
        """Whether a policy that stays has a say: it matches, or it is an exclude that fails and may mean them."""
        policy = self._others.get(name)
        if policy is None:
            return False
        return seen.standings[name] != "failed" or (policy.spec.action == "exclude" and not seen.devices)

    def _other(self, name: str, *, apart: bool) -> Rule:
        made = self._made.get((name, apart))
        if made is None:
            (made,) = _standing([self._others[name]], apart=apart)
            self._made[name, apart] = made
        return made


def asked_for(expressions: Iterable[str], *, published: bool = False) -> frozenset[str]:
    """The attributes that selectors may ask for, by qualified name, and those that protect.

    Whatever an expression names stands in its text; where it may be written in parts or escaped, all are asked for.

    Args:
        expressions: the selectors.
        published: leave out what devices do not carry, and who may not read it should not learn by asking.
    """
    found: set[str] = set()
    for text in expressions:
        in_parts = "\\" in text or "+" in text
        found |= {each.name for each in ATTRIBUTES if in_parts or each.name.rpartition("/")[2] in text}
    return frozenset(found & set(PUBLISHED_ATTRIBUTES) if published else found) | PROTECTING


def folded(seen: Sequence[Seen], expression: str) -> tuple[Seen, ...]:
    """The same interfaces, with those together that a selector cannot tell apart: all of other names than it compares.

    A cluster has thousands of interface names, and a selector that only compares them knows a few.
    """
    if not _COMPARES.fullmatch(_TEXTS.sub('""', expression)):
        return tuple(seen)
    known = {text[1:-1] for text in _TEXTS.findall(expression)}
    together: dict[tuple[object, ...], list[Seen]] = {}
    found: list[Seen] = []
    for each in seen:
        facts = tuple((name, value) for name, value in each.facts.items() if name != _IF_NAME)
        own = each.facts.get(_IF_NAME, "")
        if own in known or any(own == value for _, value in facts):
            found.append(each)
            continue
        standings = tuple(each.standings.items())
        key = facts, _IF_NAME in each.facts, each.unknown, each.unreadable, standings, each.devices, each.holds
        together.setdefault(key, []).append(each)
    for alike in together.values():
        nodes = 0
        for each in alike:
            nodes |= int(each.nodes, 16)
        found.append(replace(alike[0], count=sum(each.count for each in alike), nodes=f"{nodes:x}"))
    return tuple(found)


def _anywhere(policy: DeviceExposurePolicy) -> DeviceExposurePolicy:
    return replace(policy, spec=replace(policy.spec, node_selector=None))


def _standing(policies: Iterable[DeviceExposurePolicy], *, apart: bool) -> tuple[Rule, ...]:
    """Policies as rules that match whatever they are asked of: that they do is in the report.

    Args:
        policies: the policies.
        apart: whether representors are asked of; then those that speak of these select by the type.
    """
    return rules(
        tuple(
            replace(each, spec=replace(each.spec, node_selector=None, selector=_stand_in(each, apart=apart)))
            for each in policies
        ),
        _ANY_NODE,
    )[0]


def _stand_in(policy: DeviceExposurePolicy, *, apart: bool) -> Selector:
    return _REPRESENTORS if apart and _REPRESENTOR in policy.spec.selector.cel else _ALWAYS


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
    return replace(_NEUTRAL, **fields, unreadable=tuple(unreadable))


def _templates(interface: Interface, facts: dict[str, AttributeValue], chosen: Sequence[Rule]) -> Sequence[Template]:
    return resolve(interface, facts, tuple(sorted(chosen, key=_by_name))).templates


def _is_of(device: PublishedDevice, offered: Mapping[str, str]) -> bool:
    """Whether a published device is one of those that are offered."""
    return device.policy in offered.values() if device.name else device.suffix in offered
