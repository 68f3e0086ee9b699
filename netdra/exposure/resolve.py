"""Which policies win on one interface: exclude over expose, deny by default, the highest priority of each suffix.

A policy whose expression fails on the interface exposes nothing there, and hides it if it is an exclude: nothing is
exposed by accident, and other interfaces are not touched. Called by `netdra.exposure.expose` once per interface.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from netdra.cel import CelEvaluationError, device_variables
from netdra.exposure.templates import Rule, Template
from netdra.model import names
from netdra.model.device import Outcome, PolicyVerdict, Problem
from netdra.model.inventory import AttributeValue, Interface

UPLINK = "it carries the node's own traffic, and no policy that matches it sets allowHostUplink"


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """What the policies say about one interface.

    Attributes:
        verdicts: one a policy, in the order of their names.
        templates: the devices that the winners make, in the order of their suffixes.
        hidden: why there are none; "" where there are some.
        problems: the policies that failed on it.
    """

    verdicts: tuple[PolicyVerdict, ...]
    templates: tuple[Template, ...] = ()
    hidden: str = ""
    problems: tuple[Problem, ...] = ()


def resolve(interface: Interface, facts: dict[str, AttributeValue], rules: tuple[Rule, ...]) -> Resolution:
    """Ask every policy of an interface.

    Args:
        interface: the interface.
        facts: its attributes under qualified names.
        rules: the node's policies, in the order of their names.
    """
    device = device_variables(names.DRIVER, facts)
    verdicts = {rule.policy: rule.standing for rule in rules}
    matching: list[Rule] = []
    hiding = ""
    problems: list[Problem] = []
    for rule in rules:
        if rule.selector is None:
            if rule.hides_all:
                hiding = hiding or f'exclude policy "{rule.policy}" cannot be read, so it may mean any device'
            continue
        try:
            matches = rule.selector.matches(device)
        except CelEvaluationError as failure:
            problems.append(_failed(rule, interface, failure))
            verdicts[rule.policy] = rule.verdict("failed", failure.what)
            if rule.excludes:
                hiding = hiding or f'exclude policy "{rule.policy}" fails on it, so it may be meant'
            continue
        if not matches:
            continue
        if rule.excludes:
            verdicts[rule.policy] = rule.verdict("excludes")
            hiding = hiding or f'exclude policy "{rule.policy}" matches it'
        else:
            matching.append(rule)
    winners, hidden = _winners(interface, matching, hiding, verdicts)
    return Resolution(
        verdicts=tuple(verdicts.values()),
        templates=tuple(template for rule in winners for template in rule.templates),
        hidden=hidden,
        problems=tuple(problems),
    )


def _winners(
    interface: Interface, matching: list[Rule], hiding: str, verdicts: dict[str, PolicyVerdict]
) -> tuple[list[Rule], str]:
    """The policies that make devices, or why there are none; the verdicts of all that match are filled in."""
    if not matching:
        return [], hiding or _unmatched(verdicts.values())
    if hiding:
        _mark(verdicts, matching, "overruled", hiding)
        return [], hiding
    # A fact that could not be read protects as if it held.
    if interface.host_uplink or "host_uplink" in interface.unreadable:
        _mark(verdicts, [rule for rule in matching if not rule.allows_uplink], "overruled", UPLINK)
        matching = [rule for rule in matching if rule.allows_uplink]
        if not matching:
            return [], UPLINK
    winners: list[Rule] = []
    for suffix in sorted({rule.suffix for rule in matching}):
        rivals = [rule for rule in matching if rule.suffix == suffix]
        best = min(rivals, key=lambda rule: (-rule.priority, rule.policy))
        if len(rivals) > 1:
            reason = f'policy "{best.policy}" of priority {best.priority} comes first for the suffix "{suffix}"'
            _mark(verdicts, [rule for rule in rivals if rule is not best], "outranked", reason)
        verdicts[best.policy] = best.won
        winners.append(best)
    return winners, ""


def _unmatched(verdicts: Iterable[PolicyVerdict]) -> str:
    unknown = sum(verdict.outcome in {"failed", "invalid"} for verdict in verdicts)
    if not unknown:
        return "no policy matches it"
    return f"no policy matches it, and {unknown} {'have' if unknown > 1 else 'has'} no answer"


def _mark(verdicts: dict[str, PolicyVerdict], rules: Iterable[Rule], outcome: Outcome, detail: str) -> None:
    for rule in rules:
        verdicts[rule.policy] = rule.verdict(outcome, detail)


def _failed(rule: Rule, interface: Interface, failure: CelEvaluationError) -> Problem:
    consequence = "is hidden" if rule.excludes else "is not matched"
    message = f"{interface.device_name} {consequence}: {failure.what}"
    return Problem(policy=rule.policy, message=message, interface=interface.identity, left_out="policy-failed")
