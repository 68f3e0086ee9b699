"""Which policies win on one interface: exclude over expose, deny by default, the highest priority of each suffix.

A policy whose expression fails on the interface exposes nothing there. An exclude that fails hides the interface only
if it may mean it (decision D23): either it asks for a fact that could not be read, or it asks for a name that no
interface has, and would match with the name that is likely meant. Called by `netdra.exposure.expose` once per
interface.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache

import msgspec

from netdra.cel import CelEvaluationError, CompiledSelector, device_variables
from netdra.exposure.answers import Answers, ask
from netdra.exposure.templates import Rule, Template
from netdra.model import names
from netdra.model.device import Hidden, Outcome, PolicyVerdict, Problem
from netdra.model.inventory import DEVICE_FILE, AttributeValue, Interface, attributes
from netdra.model.kept import ADDRESSING

ALL_ATTRIBUTES = frozenset(attributes(Interface()))
"""The attributes that a selector can ask for; an attribute of these that an interface lacks could not be read."""
TYPE = names.qualified("type")
REGISTERED_BY = names.qualified("registeredBy")
UPLINK = "it carries the node's traffic, and no matching policy sets allowHostUplink"
UPLINK_BY_RULES = (
    "a default route uses it in a table of policy rules, and no matching policy sets "
    "allowHostAddresses or allowHostUplink"
)
UPLINK_UNKNOWN = "it is unknown whether it carries the node's traffic, and no matching policy sets allowHostUplink"
PEER_UNKNOWN = "it is unknown whether the other end of its pair is in a pod"
LOOPBACK = "it is the loopback interface, which is not a network device"
REPRESENTOR = (
    'it represents another function on the switch of its NIC, and no matching policy selects by type == "representor"'
)
ONLY_A_FILE = f'it is a device file, and no matching policy selects by registeredBy, or by type == "{DEVICE_FILE}"'
NO_VF = "it is not a VF, and every matching policy has pooledVFs, which only supports VFs"
_OTHER_TYPES = ("", "another type")
_NOBODY = ("",)
_PROTECTIONS: dict[str, Hidden] = {
    PEER_UNKNOWN: "peer-unknown",
    LOOPBACK: "loopback",
    REPRESENTOR: "representor",
    ONLY_A_FILE: "device-file",
    UPLINK: "uplink",
    UPLINK_BY_RULES: "uplink",
    UPLINK_UNKNOWN: "uplink-unknown",
    NO_VF: "no-match",
}


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The result of all policies for one interface.

    Attributes:
        verdicts: one a policy, in the order of their names.
        templates: the devices that the winners make, in the order of their suffixes.
        hidden: the reason for no devices; "" with devices.
        hiding: the same as one word.
        excluded: whether an exclude policy matches it, or may.
        problems: the policies that failed on it.
    """

    verdicts: tuple[PolicyVerdict, ...]
    templates: tuple[Template, ...] = ()
    hidden: str = ""
    hiding: Hidden | None = None
    excluded: bool = False
    problems: tuple[Problem, ...] = ()


def selectors(rules: Iterable[Rule]) -> frozenset[CompiledSelector]:
    """The selectors that are asked of every interface."""
    return frozenset(rule.selector for rule in rules if rule.selector is not None)


def resolve(
    interface: Interface, facts: dict[str, AttributeValue], rules: tuple[Rule, ...], answers: Answers | None = None
) -> Resolution:
    """Ask every policy of an interface.

    Args:
        facts: its attributes under qualified names.
        rules: the node's policies, in the order of their names.
        answers: those of the rules' selectors; None to have them asked.
    """
    if answers is None:
        answers = ask(facts, selectors(rules))
    verdicts = {rule.policy: rule.fixed_verdict for rule in rules}
    matching: list[Rule] = []
    hiding = ""
    kind: Hidden = "excluded"
    problems: list[Problem] = []
    for rule in rules:
        if rule.selector is None:
            continue
        failure = answers.failing.get(rule.selector)
        if failure is not None:
            suggestion = _may_mean(rule.selector, facts, failure) if rule.excludes else ""
            problems.append(_failed(rule, interface, failure, suggestion))
            verdicts[rule.policy] = rule.verdict("failed", failure.what)
            if suggestion:
                kind = kind if hiding else "exclude-failed"
                hiding = hiding or (
                    f'the expression of exclude policy "{rule.policy}" fails on it; to be safe it is '
                    f"excluded: {suggestion}"
                )
            continue
        if rule.selector not in answers.matching:
            continue
        if rule.excludes:
            verdicts[rule.policy] = rule.verdict("excludes")
            hiding = hiding or f'exclude policy "{rule.policy}" matches it'
        else:
            matching.append(rule)
    winners, hidden, why = _winners(interface, facts, matching, (hiding, kind), verdicts)
    return Resolution(
        verdicts=tuple(verdicts.values()),
        templates=tuple(winners),
        hidden=hidden,
        hiding=why,
        excluded=bool(hiding),
        problems=tuple(problems),
    )


def _winners(
    interface: Interface,
    facts: dict[str, AttributeValue],
    matching: list[Rule],
    excluded: tuple[str, Hidden],
    verdicts: dict[str, PolicyVerdict],
) -> tuple[list[Template], str, Hidden | None]:
    """The devices that policies make, or the reason for none; the verdicts of all matching policies are filled in."""
    hiding, kind = excluded
    if interface.file_problem:
        _mark(verdicts, matching, "overruled", interface.file_problem)
        return [], interface.file_problem, "no-file"
    if not matching:
        if hiding:
            return [], hiding, kind
        unknown = any(verdict.outcome in {"failed", "invalid"} for verdict in verdicts.values())
        return [], _unmatched(verdicts.values()), "no-answer" if unknown else "no-match"
    if hiding:
        _mark(verdicts, matching, "overruled", hiding)
        return [], hiding, kind
    for reason, allows in _protections(interface, facts):
        matching, refused = _parted(matching, allows)
        _mark(verdicts, refused, "overruled", reason)
        if not matching:
            return [], reason, _PROTECTIONS[reason]
    used = _host_use(interface)
    if used:
        matching, refused = _parted(
            matching, lambda rule: any(template.beside(interface.uses) for template in rule.templates)
        )
        _mark(verdicts, refused, "overruled", used)
        if not matching:
            return [], used, "host-use" if interface.uses else "host-use-unknown"
    return _rank(matching, used, interface.uses, verdicts), "", None


def _parted(rules: Iterable[Rule], holds: Callable[[Rule], bool]) -> tuple[list[Rule], list[Rule]]:
    """The rules for which a condition holds, and the others."""
    parts: tuple[list[Rule], list[Rule]] = ([], [])
    for rule in rules:
        parts[not holds(rule)].append(rule)
    return parts


def _rank(matching: list[Rule], used: str, uses: Sequence[str], verdicts: dict[str, PolicyVerdict]) -> list[Template]:
    """Choose the devices of the best policy of each suffix.

    Args:
        matching: the policies that match.
        used: why nothing is to be taken away from the host, "" if nothing is in the way.
        uses: the host's uses of the interface.
        verdicts: those of all that match are filled in.
    """
    winners: list[Template] = []
    by_suffix: dict[str, list[Rule]] = {}
    for rule in matching:
        by_suffix.setdefault(rule.suffix, []).append(rule)
    for suffix, rivals in sorted(by_suffix.items()):
        best = min(rivals, key=lambda rule: (-rule.priority, rule.policy))
        if len(rivals) > 1:
            reason = f'policy "{best.policy}" with priority {best.priority} takes precedence for the suffix "{suffix}"'
            _mark(verdicts, [rule for rule in rivals if rule is not best], "outranked", reason, best.policy)
        verdicts[best.policy] = best.won
        offered = best.templates
        if used:
            offered = tuple(beside for template in best.templates if (beside := template.beside(uses)) is not None)
            if offered != best.templates:
                verdicts[best.policy] = best.verdict("wins", f"without removing it from the host: {used}")
        winners += offered
    return _one_mode(winners, verdicts, matching) if any(template.lanes for template in winners) else winners


def _one_mode(winners: list[Template], verdicts: dict[str, PolicyVerdict], matching: Sequence[Rule]) -> list[Template]:
    """The templates of one policy that pools the VF, or all others: nothing would keep the two kinds apart.

    The highest priority decides; between equals, the VF is a device of its own.
    """
    first = min(winners, key=lambda template: (-template.priority, template.lanes > 0, template.policy))
    kept = [first] if first.lanes else [template for template in winners if not template.lanes]
    reason = (
        f'policy "{first.policy}" with priority {first.priority} takes precedence: it '
        f"{('pools the VF' if first.lanes else 'makes the VF a device of its own')}"
    )
    left = {template.policy for template in kept}
    won = {template.policy for template in winners}
    _mark(
        verdicts,
        [rule for rule in matching if rule.templates and rule.policy in won - left],
        "outranked",
        reason,
        first.policy,
    )
    return kept


def _protections(
    interface: Interface, facts: dict[str, AttributeValue]
) -> Iterator[tuple[str, Callable[[Rule], bool]]]:
    """The reasons not to offer an interface, each with the test for policies that may offer it nevertheless."""
    if interface.peer_unknown:
        yield PEER_UNKNOWN, lambda rule: False
    if interface.type == "loopback":
        yield LOOPBACK, lambda rule: False
    if interface.type == "representor":
        yield REPRESENTOR, lambda rule: _asks_for(rule, facts, TYPE, _OTHER_TYPES)
    if interface.type == DEVICE_FILE:
        yield (
            ONLY_A_FILE,
            lambda rule: _asks_for(rule, facts, REGISTERED_BY, _NOBODY) or _asks_for(rule, facts, TYPE, _OTHER_TYPES),
        )
    if interface.type != "vf":
        yield NO_VF, lambda rule: not rule.pools
    if interface.uplink_by_rules:
        yield UPLINK_BY_RULES, lambda rule: rule.allows_uplink or rule.allows_addresses
    elif interface.host_uplink:
        yield UPLINK, lambda rule: rule.allows_uplink
    # A fact that could not be read protects as if it were true.
    elif "host_uplink" in interface.unreadable:
        yield UPLINK_UNKNOWN, lambda rule: rule.allows_uplink


def _asks_for(rule: Rule, facts: dict[str, AttributeValue], name: str, others: Iterable[str]) -> bool:
    """Whether a policy that matches a protected interface means it: with another value of a fact it would not match.

    So `type == "representor"` means a representor, and neither `type != "pf"` nor a pattern of names does.
    """
    for other in others:
        with suppress(CelEvaluationError):
            if rule.selector is None or rule.selector.matches(device_variables(names.DRIVER, {**facts, name: other})):
                return False
    return True


def _host_use(interface: Interface) -> str:
    """Why an interface is not to be taken away from the host, "" if nothing is in the way."""
    if interface.uses:
        allowing = (
            "sets allowHostAddresses or allowHostUse" if ADDRESSING.issuperset(interface.uses) else "sets allowHostUse"
        )
        return (
            f"the host uses it ({', '.join(interface.uses)}), and no matching policy offers shares of it or {allowing}"
        )
    if interface.host_use_unknown:
        return "it is unknown whether the host uses it, and no matching policy offers shares of it or sets allowHostUse"
    return ""


def _unmatched(verdicts: Iterable[PolicyVerdict]) -> str:
    unknown = sum(verdict.outcome in {"failed", "invalid"} for verdict in verdicts)
    if not unknown:
        return "not matched by any policy"
    return f"not matched by any policy; {unknown} {'policies' if unknown > 1 else 'policy'} could not be evaluated"


def _mark(
    verdicts: dict[str, PolicyVerdict], rules: Iterable[Rule], outcome: Outcome, detail: str, by: str = ""
) -> None:
    for rule in rules:
        verdicts[rule.policy] = rule.verdict(outcome, detail, by)


def _may_mean(selector: CompiledSelector, facts: Mapping[str, AttributeValue], failure: CelEvaluationError) -> str:
    """Why an exclude that fails on an interface may mean it nevertheless, "" if it does not (decision D23)."""
    missing = {f"{domain}/{failure.missing}" for domain in selector.domains} - facts.keys()
    if not failure.missing or not missing:
        return ""
    if missing & ALL_ATTRIBUTES:
        return f"{failure.missing} could not be read"
    for likely in _likely(failure.missing):
        short = likely.removeprefix(f"{names.DRIVER}/")
        if likely not in facts:
            return f'"{failure.missing}" probably refers to {short}, which could not be read'
        corrected = {**facts, **dict.fromkeys(missing, facts[likely])}
        with suppress(CelEvaluationError):
            if selector.matches(device_variables(names.DRIVER, corrected)):
                return f'with {short} instead of "{failure.missing}" it matches'
    return ""


@cache
def _likely(name: str) -> tuple[str, ...]:
    """The attributes that may be meant by a name that no attribute has."""
    by_short = {attribute.rpartition("/")[2].lower(): attribute for attribute in sorted(ALL_ATTRIBUTES, reverse=True)}
    return tuple(by_short[close] for close in difflib.get_close_matches(name.lower(), by_short, n=3, cutoff=0.75))


def _failed(rule: Rule, interface: Interface, failure: CelEvaluationError, suggestion: str) -> Problem:
    consequence = "is not matched" if not rule.excludes else "is hidden" if suggestion else "is not hidden"
    return Problem(
        policy=rule.policy,
        message=f"{interface.device_name} {consequence}: {failure.what}",
        interface=interface.identity,
        left_out="policy-failed",
        device=interface.device_name,
        cause=failure.what,
    )
