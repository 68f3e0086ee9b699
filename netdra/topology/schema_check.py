"""A compiled topology against the schemas of its plugins: wrong configs and graphs that cannot work.

Called at admission and by `netdra validate`. Steps whose plugin has no schema pass, and no step after them is refused
for want of something that they might make. The node and `netdra.chain` have a claim's plans checked for parameters that
programs would ignore (decision D28).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from netdra.model.plan import Plan, PlannedStep
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import BUILTIN_TYPES, Step
from netdra.topology import shipped
from netdra.topology.attachment import supplied
from netdra.topology.config_check import Complaint, check_config
from netdra.topology.contract import Contract, examine
from netdra.topology.findings import Finding, about
from netdra.topology.flow_check import check_flow, flows
from netdra.topology.graph import Graph
from netdra.topology.step_check import RESERVED_KEYS, is_plugin_name
from netdra.topology.values import quoted

MAX_COMPLAINTS = 50
"""How many complaints there are about one step; more of the same mistake help nobody."""


def check(graph: Graph, contracts: Mapping[str, Contract]) -> tuple[Finding, ...]:
    """All complaints of the plugins' contracts about a topology.

    Args:
        graph: the compiled topology.
        contracts: by plugin; those of IPAM plugins check the steps' `ipam`.
    """
    reaching = flows(graph, contracts)
    return tuple(
        graph.about(step.name, complaint.what, hint=complaint.hint, path=complaint.path)
        for step in graph.steps
        for complaint in islice(
            (*_config(step, contracts, supplied(graph, step)), *check_flow(graph, step, contracts, reaching)),
            MAX_COMPLAINTS,
        )
    )


def check_programs(plans: Sequence[Plan], own: Iterable[CNIPluginSchema] = ()) -> tuple[Finding, ...]:
    """Parameters of plans that the programs of built-in types would ignore or not understand.

    Args:
        plans: of one pod.
        own: the cluster's plugin schemas, which stand above those that netdra ships; a schema that contradicts itself
            does not count.

    Returns:
        Paths begin with `steps` and the step's place.
    """
    steps = [(plan, at, step) for plan in plans for at, step in enumerate(plan.steps) if _is_program(step)]
    wanted = {step.plugin for _, _, step in steps}
    contracts = shipped.contracts(
        wanted, (entry for entry in own if entry.spec.plugin in wanted and not examine(entry)[1])
    )
    return tuple(
        about(
            plan.topology, step.name, complaint.what, hint=complaint.hint, path=("steps", at, "config", *complaint.path)
        )
        for plan, at, step in steps
        if step.plugin in contracts
        for complaint in islice(_parameters(step, contracts[step.plugin]), MAX_COMPLAINTS)
    )


def plugins(steps: Sequence[Step]) -> set[str]:
    """The plugins whose contracts `check` asks for, by the steps of a topology."""
    delegates = (step.config.get("ipam") for step in steps)
    named = {ipam["type"] for ipam in delegates if isinstance(ipam, Mapping) and isinstance(ipam.get("type"), str)}
    return {step.plugin for step in steps} | named


def _is_program(step: PlannedStep) -> bool:
    return step.execution == "Binary" and step.type in BUILTIN_TYPES


def _parameters(step: Step | PlannedStep, contract: Contract, given: str = "") -> Iterator[Complaint]:
    """What is wrong with a step's parameters; the hint names those that only netdra's own step has."""
    config = {key: value for key, value in step.config.items() if key not in RESERVED_KEYS}
    inner = shipped.contracts([step.type]).get(step.type) if step.plugin != step.type else None
    for complaint in check_config(config, contract, given):
        key = complaint.path[0] if len(complaint.path) == 1 else None
        if inner is not None and key in inner.names and key not in contract.names:
            hint = f'The program "{step.type}" would pass over it; netdra\'s own step has it: '
            yield msgspec.structs.replace(complaint, hint=f"{hint}leave execution or {key} out.")
        else:
            yield complaint


def _config(step: Step, contracts: Mapping[str, Contract], given: str) -> Iterator[Complaint]:
    if (contract := contracts.get(step.plugin)) is not None:
        yield from _within(_parameters(step, contract, given), "config")
    ipam = step.config.get("ipam")
    if ipam is not None:
        yield from _within(_ipam(ipam, contracts), "config", "ipam")


def _ipam(ipam: Any, contracts: Mapping[str, Contract]) -> Iterator[Complaint]:
    """An address plugin's part of a config; an empty one switches address management off."""
    if not isinstance(ipam, Mapping):
        yield Complaint((), "config.ipam must be an object with the type of an IPAM plugin.")
        return
    plugin = ipam.get("type")
    if not isinstance(plugin, str):
        if ipam:
            yield Complaint((), "config.ipam has no type.", "Name an IPAM plugin, e.g. host-local.")
        return
    if not is_plugin_name(plugin):
        what = f"type {quoted(plugin)} is no CNI plugin's name."
        yield Complaint(("type",), what, "A type is the name of a program in the CNI path: no slash, no path.")
    if (contract := contracts.get(plugin)) is not None:
        given = {key: value for key, value in ipam.items() if key != "type"}
        yield from check_config(given, contract)


def _within(complaints: Iterator[Complaint], *path: str) -> Iterator[Complaint]:
    for complaint in complaints:
        yield Complaint((*path, *complaint.path), complaint.what, complaint.hint)
