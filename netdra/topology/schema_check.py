"""A compiled topology against the schemas of its plugins: wrong configs and graphs that cannot work.

Called at admission and by `netdra validate`. Steps whose plugin has no schema pass, and nothing that comes after them
is refused for what they might have made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from netdra.model.topology import Step
from netdra.topology.attachment import INTERFACE_PARAMETERS
from netdra.topology.config_check import Complaint, check_config
from netdra.topology.contract import Contract
from netdra.topology.findings import Finding
from netdra.topology.flow_check import check_flow, flows
from netdra.topology.graph import Graph
from netdra.topology.step_check import is_plugin_name
from netdra.topology.values import quoted

MAX_COMPLAINTS = 50
"""How many things are said of one step; what follows from a thousand equal mistakes helps nobody."""


def check(graph: Graph, contracts: Mapping[str, Contract]) -> tuple[Finding, ...]:
    """All that the plugins' contracts have against a topology.

    Args:
        graph: the compiled topology.
        contracts: by plugin; those of IPAM plugins check the steps' `ipam`.
    """
    found = flows(graph, contracts)
    return tuple(
        graph.about(step.name, complaint.what, hint=complaint.hint, path=complaint.path)
        for step in graph.steps
        for complaint in islice((*_config(step, contracts), *check_flow(graph, step, contracts, found)), MAX_COMPLAINTS)
    )


def plugins(steps: Sequence[Step]) -> set[str]:
    """The plugins whose contracts `check` asks for, by the steps of a topology."""
    delegates = (step.config.get("ipam") for step in steps)
    named = {ipam["type"] for ipam in delegates if isinstance(ipam, Mapping) and isinstance(ipam.get("type"), str)}
    return {step.type for step in steps} | named


def _config(step: Step, contracts: Mapping[str, Contract]) -> Iterator[Complaint]:
    if (contract := contracts.get(step.type)) is not None:
        supplied = INTERFACE_PARAMETERS.get(step.type, "") if step.is_root else ""
        yield from _within(check_config(step.config, contract, supplied), "config")
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
