"""A pod's plans as the rules accept them: the only plans that `netdra.chain` runs (decision D31).

`check` is the one pipeline: Prepare, `netdra attach` and the lab go through it with plans, as `topologies` goes through
its parts with an author's object. The node keeps the checked plans in the claim's record; `restored` reads them back,
and `combined` puts the plans of a pod's claims together when the pod begins.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass
from typing import Any

import msgspec

from netdra.model.findings import Finding, dotted, of_step, refuse
from netdra.model.plan import Plan
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.rules import confine, runnable, shipped
from netdra.rules.pod import check_plans
from netdra.rules.schemas import check_programs
from netdra.rules.topologies import check_configs
from netdra.topology import references
from netdra.topology.interfaces import compose
from netdra.topology.values import ConfigError

_DIGITS = 16
_RULES = object()


@dataclass(frozen=True, slots=True)
class CheckedPlans:
    """Plans that `check`, `filled`, `restored` or `combined` let through; nothing else makes one.

    Attributes:
        plans: the plans, in the order in which they are run.
        schemas: `schemas_digest` of the cluster's plugin schemas that they were checked against.
        permits: `permits_digest` of the node's options that they were checked against.
    """

    plans: tuple[Plan, ...]
    schemas: str
    permits: str
    made_by: InitVar[object]

    def __post_init__(self, made_by: object) -> None:
        if made_by is not _RULES:
            raise TypeError("only netdra.rules.plans makes CheckedPlans: call check()")


def check(
    plans: Sequence[Plan],
    schemas: Iterable[CNIPluginSchema] = (),
    permits: confine.Permits | None = None,
    topologies: Iterable[NetworkTopology] = (),
) -> CheckedPlans:
    """Check plans by all rules that are known before anything runs.

    Args:
        plans: of one claim or one pod, with devices and interface names.
        schemas: the cluster's plugin schemas, which stand above those that netdra ships; a schema that contradicts
            itself does not count.
        permits: what the node permits; None if all plans are an administrator's own.
        topologies: the topologies that the plans were bound from. Their configs are checked as at admission, because
            the webhook may have been away, and errors name the parameter that they come from. A schema of the cluster
            does not count against a topology that was there before it.

    Raises:
        InvalidInputError: the plans cannot be run, or name what their authors may not use; the text has all findings.
    """
    own = tuple(shipped.own_of(schemas))
    refuse(examine(plans, own, permits, topologies))
    return CheckedPlans(tuple(plans), schemas_digest(own), permits_digest(permits), _RULES)


def examine(
    plans: Sequence[Plan],
    schemas: Iterable[CNIPluginSchema] = (),
    permits: confine.Permits | None = None,
    topologies: Iterable[NetworkTopology] = (),
) -> tuple[Finding, ...]:
    """All that is wrong with plans; the arguments are those of `check`."""
    own = tuple(shipped.own_of(schemas))
    described = {schema.spec.plugin for schema in own}
    topologies = tuple(topologies)
    configs = [finding for topology in topologies for finding in check_configs(topology, described)]
    findings = (
        *(configs or check_plans(plans)),
        *_of_facts(check_programs(plans, own, () if configs else _with_facts(topologies)), plans, topologies),
        *_open(plans),
        *confine.check(plans, confine.contracts_of(plans, own), permits),
    )
    # A rule that a topology breaks is also broken by its plan.
    return tuple({finding.what: finding for finding in findings}.values())


def _with_facts(topologies: Iterable[NetworkTopology]) -> set[tuple[str, str]]:
    """The steps whose configs refer to facts, each as its topology's and its own name."""
    return {
        (topology.name, step.name)
        for topology in topologies
        for step in topology.spec.steps
        if references.find_facts(step.config)
    }


def _of_facts(
    findings: Iterable[Finding], plans: Sequence[Plan], topologies: Iterable[NetworkTopology]
) -> Iterator[Finding]:
    """Findings of plans, those about the value of a fact with the fact in the hint."""
    steps = {(topology.name, step.name): step for topology in topologies for step in topology.spec.steps}
    named = [[(plan.topology, step.name) for step in plan.steps] for plan in plans]
    for finding in findings:
        at, place = finding.path[1], finding.path[3:]
        assert isinstance(at, int)
        # The path does not identify one of a pod's plans; as a rule there is one.
        keys = [entries[at] for entries in named if at < len(entries) and entries[at] in steps]
        hints = (references.made_of(references.find_facts(steps[key].config), tuple(place)) for key in keys)
        hint = finding.hint or next(filter(None, hints), "")
        yield Finding(finding.what, hint, finding.path, code=finding.code)


def _open(plans: Iterable[Plan]) -> Iterator[Finding]:
    """Facts that are still references: no step gives them a value."""
    for plan in plans:
        for at, step in enumerate(plan.steps):
            with suppress(ConfigError):  # the chain reports it
                for path, reference in references.find_facts(step.config):
                    what = f"{dotted(path)}: {reference} has no value"
                    hint = "set the value: only a node that prepares a claim knows it"
                    finding = Finding(what, hint, ("config", *path), code="ND1104")
                    yield from of_step([finding], plan.topology, step.name, "steps", at)


def restored(plans: Sequence[Plan], schemas: str, permits: str) -> CheckedPlans:
    """Plans that were checked before, from a record on the node's disk.

    They are trusted: the record is in a folder of the driver's own, where only root writes, and the driver writes there
    what `check` returned. So this is called with such a record alone.

    Args:
        plans: the record's plans.
        schemas: the record's `CheckedPlans.schemas`.
        permits: the record's `CheckedPlans.permits`.
    """
    return CheckedPlans(tuple(plans), schemas, permits, _RULES)


def filled(checked: CheckedPlans, plans: Sequence[Plan]) -> CheckedPlans:
    """Checked plans after the ports and addresses of their steps, which the controller provides, have been filled in.

    Only the values within the pod are checked: an address that two steps have, an MTU, a VLAN. The author's own part
    has been checked, and neither a port nor an address names a plugin or a part of the node.

    Args:
        checked: the plans before.
        plans: the same plans with ports and addresses.

    Raises:
        InvalidInputError: the values do not fit together.
    """
    refuse(check_plans(plans))
    return CheckedPlans(tuple(plans), checked.schemas, checked.permits, _RULES)


def combined(several: Sequence[CheckedPlans]) -> CheckedPlans:
    """The plans of all of a pod's claims as one, with interfaces that are numbered over all of them (decision D8).

    Only conflicts of claims are checked: an address, a VLAN or an interface that two of them have. The names of
    the node that a step may use do not depend on the names of interfaces.

    Args:
        several: the plans of each claim, in the order in which the pod names its claims.

    Raises:
        InvalidInputError: the networks of two claims do not fit together.
    """
    if len(several) == 1:
        return several[0]
    plans = compose([plan for checked in several for plan in checked.plans])
    refuse(check_plans(plans))
    return CheckedPlans(
        plans, _common(checked.schemas for checked in several), _common(checked.permits for checked in several), _RULES
    )


_last_schemas: tuple[tuple[CNIPluginSchema, ...], str] = (), ""


def schemas_digest(schemas: Iterable[CNIPluginSchema]) -> str:
    """The hexadecimal digest of a cluster's own plugin schemas; the order does not change it.

    It is computed again only for other objects: a reflector's store has the same ones until one of them changes.
    """
    global _last_schemas
    given = tuple(schemas)
    known, digest = _last_schemas
    if digest and len(given) == len(known) and all(map(operator.is_, given, known)):
        return digest
    own = sorted(shipped.own_of(given), key=lambda schema: schema.metadata.name)
    digest = _digest([[schema.metadata.name, schema.spec] for schema in own])
    _last_schemas = given, digest
    return digest


def permits_digest(permits: confine.Permits | None) -> str:
    """The hexadecimal digest of a node's options; "" for None, which no node's options have.

    The plugins that policies name do not belong to its options: a prepared claim keeps those that it has.
    """
    if permits is None:
        return ""
    plugins = permits.plugins - {runnable.DEFAULT} and permits.plugins
    return _digest([sorted(plugins), sorted(permits.folders), *([] if permits.run_plugins else [False])])


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:_DIGITS]


def _common(digests: Iterable[str]) -> str:
    """The digest that all have; "" if they differ, so that all are checked again."""
    known = set(digests)
    return known.pop() if len(known) == 1 else ""
