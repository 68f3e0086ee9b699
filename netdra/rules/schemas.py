"""A compiled topology against the schemas of its plugins: wrong configs and graphs that cannot work.

Called at admission and by `netdra validate`. Steps whose plugin has no schema pass, and no step after them is refused
for want of something that they might make. The node and `netdra.chain` have a claim's plans checked for parameters that
programs would ignore (decision D28).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from netdra.model import suggestions
from netdra.model.findings import Finding, of_step, quoted, within
from netdra.model.plan import Plan, PlannedStep
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import BUILTIN_TYPES, Step
from netdra.rules import shipped
from netdra.rules.config import check_config
from netdra.rules.contract import Contract, examine
from netdra.rules.flow import check_flow, flows
from netdra.topology.attachment import supplied
from netdra.topology.graph import Graph
from netdra.topology.step_check import RESERVED_KEYS, is_plugin_name, plugin_name_hint

MAX_FINDINGS = 50
"""How many findings there are about one step; more of the same mistake help nobody."""


def check_graph(graph: Graph, contracts: Mapping[str, Contract]) -> tuple[Finding, ...]:
    """All that is wrong with a topology by the contracts of its plugins.

    Args:
        graph: the compiled topology.
        contracts: by plugin; those of IPAM plugins check the steps' `ipam`.
    """
    reaching = flows(graph, contracts)
    findings: list[Finding] = []
    for step in graph.steps:
        wrong = (*_config(step, contracts, supplied(graph, step)), *check_flow(graph, step, contracts, reaching))
        findings += graph.of_step(step.name, wrong[:MAX_FINDINGS])
    return tuple(findings)


def check_programs(
    plans: Sequence[Plan], own: Iterable[CNIPluginSchema] = (), bound: Collection[tuple[str, str]] = ()
) -> tuple[Finding, ...]:
    """Parameters of plans that the programs of built-in types would ignore or not understand.

    Steps with facts are checked for any type: only now their values are known.

    Args:
        plans: of one pod.
        own: the cluster's plugin schemas, which stand above those that netdra ships; a schema that contradicts itself
            does not count.
        bound: the steps with facts, each as its topology's and its own name.

    Returns:
        Paths begin with `steps` and the step's place.
    """
    steps = [
        (plan, at, step)
        for plan in plans
        for at, step in enumerate(plan.steps)
        if _is_program(step) or (plan.topology, step.name) in bound
    ]
    wanted = {plugin for _, _, step in steps for plugin in plugins([step])}
    contracts = shipped.contracts(
        wanted, (entry for entry in own if entry.spec.plugin in wanted and not examine(entry)[1])
    )
    return tuple(
        finding
        for plan, at, step in steps
        if step.plugin in contracts
        for finding in of_step(
            islice(_of_plan(step, contracts, with_ipam=(plan.topology, step.name) in bound), MAX_FINDINGS),
            plan.topology,
            step.name,
            *("steps", at, "config"),
        )
    )


def _of_plan(step: PlannedStep, contracts: Mapping[str, Contract], *, with_ipam: bool) -> Iterator[Finding]:
    yield from _parameters(step, contracts[step.plugin])
    if with_ipam and step.config.get("ipam") is not None:
        yield from within(_ipam(step.config["ipam"], contracts), "ipam")


def plugins(steps: Sequence[Step | PlannedStep]) -> set[str]:
    """The plugins whose contracts `check` asks for, by the steps of a topology."""
    delegates = (step.config.get("ipam") for step in steps)
    named = {ipam["type"] for ipam in delegates if isinstance(ipam, Mapping) and isinstance(ipam.get("type"), str)}
    return {step.plugin for step in steps} | named


def _is_program(step: PlannedStep) -> bool:
    return step.execution == "Binary" and step.type in BUILTIN_TYPES


def _parameters(step: Step | PlannedStep, contract: Contract, given: str = "") -> Iterator[Finding]:
    """The errors in a step's parameters; the hint names those that only netdra's own step has."""
    config = {key: value for key, value in step.config.items() if key not in RESERVED_KEYS}
    inner = shipped.contracts([step.type]).get(step.type) if step.plugin != step.type else None
    for finding in check_config(config, contract, given):
        key = finding.path[0] if len(finding.path) == 1 else None
        if inner is not None and key in inner.names and key not in contract.names:
            hint = f'The program "{step.type}" would ignore it; netdra\'s own step supports it: '
            yield msgspec.structs.replace(finding, hint=f"{hint}remove execution or {key}.")
        else:
            yield finding


def _config(step: Step, contracts: Mapping[str, Contract], given: str) -> Iterator[Finding]:
    if (contract := contracts.get(step.plugin)) is not None:
        yield from within(_parameters(step, contract, given), "config")
    ipam = step.config.get("ipam")
    if ipam is not None:
        yield from within(_ipam(ipam, contracts), "config", "ipam")


def _ipam(ipam: Any, contracts: Mapping[str, Contract]) -> Iterator[Finding]:
    """An address plugin's part of a config; an empty one switches address management off."""
    if not isinstance(ipam, Mapping):
        yield Finding("config.ipam must be an object with the type of an IPAM plugin.", code="ND1162")
        return
    plugin = ipam.get("type")
    if not isinstance(plugin, str):
        if ipam and "type" not in ipam:
            near = suggestions.closest("type", ipam)
            likely = "static" if "addresses" in ipam else "host-local"
            hint = f'Rename "{near}" to "type".' if near else f"Set an IPAM plugin, e.g. {likely}."
            yield Finding("config.ipam does not have a type.", hint, code="ND1163")
        return
    if not is_plugin_name(plugin):
        what = f"type {quoted(plugin)} is not a valid CNI plugin name"
        yield Finding(what, plugin_name_hint(plugin), ("type",), code="ND1164")
    if (contract := contracts.get(plugin)) is not None:
        given = {key: value for key, value in ipam.items() if key != "type"}
        yield from check_config(given, contract)
