"""Routing that a topology states: rules, neighbours and ARP modes that the kernel rejects, and rails in one network.

`check` is called by `values` for each tuning step; `errors` and `unwise` by the checks of a topology. Values with
references are skipped. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from netdra.model import texts
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path
from netdra.model.kept import KEEPING_TYPES
from netdra.model.plan import Plan, PlannedStep
from netdra.model.routing import neighbour_fault, rule_fault
from netdra.model.topology import WITHOUT_NETDEV, Step
from netdra.topology.graph import Graph

_SHARED_TABLES = frozenset({253, 254, 255})
_MOVE_ROUTES = frozenset({"sbr", "vrf"})
_NOT_OF_STEPS = frozenset({"", "lo", "eth0", texts.OWN_INTERFACE})
_CURE = "set sourceRouting: true on both steps"


def check(step: PlannedStep) -> Iterator[Finding]:
    """The errors in the rules, neighbours and ARP modes of a tuning step."""
    yield from _rules(step)
    yield from _neighbours(step)
    yield from _arp(step)


def check_vrf(step: PlannedStep, name_of: Callable[[str], str]) -> Iterator[Finding]:
    """The errors in the names and the table of a vrf step that its schema cannot state.

    Args:
        name_of: as of `values.check_values`.
    """
    name = step.config.get("vrfname")
    if name == "" or (isinstance(name, str) and name_of(name) == step.if_name):
        what = "an empty name" if not name else f'the name of the step\'s own interface, "{step.if_name}"'
        yield Finding(f"vrfname is {what}", "set vrfname, e.g. blue", ("config", "vrfname"), code="ND1144")
    table = step.config.get("table")
    if isinstance(table, int) and table in _SHARED_TABLES:
        yield Finding(
            f"table {table} is not one for a VRF",
            "use another table",
            ("config", "table"),
            code="ND1145",
        )


def errors(compiled: Graph) -> Iterator[Finding]:
    """Steps with `sourceRouting` that cannot have it."""
    for step in compiled.steps:
        if not step.source_routing:
            continue
        if step.type in WITHOUT_NETDEV or (step.type == "rdma" and not step.is_root):
            what = f"sourceRouting is set, but a step of type {step.type} does not make an interface"
            yield compiled.about(step.name, what, hint="remove it", path=("sourceRouting",), code="ND1146")
        elif not _has_addresses(step):
            what = "sourceRouting is set, but the step does not give its interface addresses"
            hint = "set it on the step with ipam or addresses"
            yield compiled.about(step.name, what, hint=hint, path=("sourceRouting",), code="ND1147")
        for other in compiled.steps:
            if other.type in _MOVE_ROUTES and step.name in compiled.ancestors[other.name]:
                what = f'sourceRouting is set, but step "{other.name}" ({other.type}) moves the routes to another table'
                yield compiled.about(step.name, what, hint="remove one of them", path=("sourceRouting",), code="ND1148")


def unwise(compiled: Graph, plan: Plan) -> Iterator[Finding]:
    """Routing that the kernel accepts and is hardly meant: rails in one network, rules for tables without routes.

    Args:
        compiled: a sound topology.
        plan: its plan, without allocated devices; it has the names of interfaces.
    """
    yield from _of_one_network(compiled, plan)
    yield from _of_pod_networks(compiled)
    yield from _of_tables(compiled)
    yield from _of_interfaces(compiled, plan)


def _of_one_network(compiled: Graph, plan: Plan) -> Iterator[Finding]:
    first: dict[Any, tuple[str, str, bool]] = {}
    for step in plan.steps:
        for network in _networks(step):
            other, if_name, routed = first.setdefault(network, (step.name, step.if_name, step.source_routing))
            if if_name != step.if_name and not (routed and step.source_routing):
                what = (
                    f'"{step.if_name}" has an address in {network}, as "{if_name}" of step "{other}"; the pod sends '
                    f'everything to this network through "{if_name}", and both answer ARP requests for both addresses'
                )
                yield compiled.about(step.name, what, hint=_CURE, path=("config",), code="ND1149")
                break


def _of_pod_networks(compiled: Graph) -> Iterator[Finding]:
    first: dict[str, Step] = {}
    for step in compiled.steps:
        if not step.pod_network:
            continue
        other = first.setdefault(step.pod_network, step)
        if other is not step and not (other.source_routing and step.source_routing):
            what = (
                f'it has an address of PodNetwork "{step.pod_network}", as step "{other.name}"; the pod sends '
                f'everything to this network through the interface of "{other.name}", and both answer ARP requests for '
                "both addresses"
            )
            yield compiled.about(step.name, what, hint=_CURE, path=("network",), code="ND1150")


def _of_tables(compiled: Graph) -> Iterator[Finding]:
    tunings = [step for step in compiled.steps if step.type == "tuning"]
    tables = [entry.get("table") for step in tunings for _, entry in entries(step.config, "routes")]
    tables += [step.config.get("table") for step in compiled.steps if step.type in _MOVE_ROUTES]
    if any(isinstance(table, str) for table in tables):
        return  # a reference
    for step in tunings:
        for at, entry in entries(step.config, "rules"):
            table = entry.get("table")
            if isinstance(table, int) and table not in _SHARED_TABLES and table not in tables:
                what = f"the rule selects table {table}, in which the topology has no route; the rule has no effect"
                hint = f"add a route with table: {table}"
                yield compiled.about(step.name, what, hint=hint, path=("config", "rules", at, "table"), code="ND1151")


def _of_interfaces(compiled: Graph, plan: Plan) -> Iterator[Finding]:
    made = {step.if_name for step in plan.steps} | {
        str(step.config.get("vrfname")) for step in plan.steps if step.type == "vrf"
    }
    if any("{{" in name for name in made):
        return
    for step in compiled.steps:
        for at, entry in entries(step.config, "rules") if step.type == "tuning" else ():
            for key in ("iif", "oif"):
                name = entry.get(key) or ""
                if isinstance(name, str) and "{{" not in name and name not in made | _NOT_OF_STEPS:
                    what = f'{key} "{name}" is not an interface of the topology; the rule does not match any packet'
                    hint = f"use one of {', '.join(sorted(made))}, eth0"
                    yield compiled.about(step.name, what, hint=hint, path=("config", "rules", at, key), code="ND1152")


def _networks(step: PlannedStep) -> Iterator[Any]:
    """The networks of the addresses that a config has in plain words, without those of single hosts."""
    for text in dict.fromkeys(text for text in addresses_of(step.type, step.config) if texts.fits(text, "cidr")):
        network = ipaddress.ip_interface(text).network
        if network.num_addresses > 1 and not network.is_link_local:
            yield network


def addresses_of(kind: str, config: Mapping[str, Any]) -> list[str]:
    """The addresses that the config of a step of a type has in plain words."""
    ipam = config.get("ipam")
    given = [entry.get("address") for _, entry in entries(ipam, "addresses")] if isinstance(ipam, Mapping) else []
    own = config.get("addresses") if kind == "tuning" else ()
    given += own if isinstance(own, list | tuple) else ()
    return [text for text in given if isinstance(text, str)]


def _has_addresses(step: Step) -> bool:
    given = step.config.get("ipam") or step.config.get("addresses") or step.neutron
    return bool(given) or (step.type in KEEPING_TYPES and step.keep != ()) or not step.is_builtin


def _rules(step: PlannedStep) -> Iterator[Finding]:
    """Policy rules that the kernel would reject, or that match more than meant."""
    for at, entry in entries(step.config, "rules"):
        path: Path = ("config", "rules", at)
        if any("{{" in value for value in entry.values() if isinstance(value, str)):
            continue
        if not all(isinstance(entry.get(name) or "", str) for name in ("from", "to", "iif", "oif")):
            continue  # the schema's check reports it
        if entry.get("table") is None:
            listed = [route.get("table") for _, route in entries(step.config, "routes")]
            tables = [table for table in listed if isinstance(table, int)]
            hint = f"set table: {tables[0]}, as in its routes" if tables else "set table, and set it in a route, too"
            yield Finding("the rule does not have a table", hint, path, code="ND1153")
            continue
        field, what, hint = rule_fault(entry)
        if what:
            yield Finding(what, hint, (*path, field) if field else path, code="ND1154")


def _neighbours(step: PlannedStep) -> Iterator[Finding]:
    """Permanent neighbours that the kernel would reject."""
    for at, entry in entries(step.config, "neighbours"):
        path: Path = ("config", "neighbours", at)
        lacking = [name for name in ("address", "mac") if not entry.get(name)]
        if lacking:
            hint = f"set {' and '.join(lacking)}"
            yield Finding(f"the neighbour does not have {' and '.join(lacking)}", hint, path, code="ND1155")
        elif isinstance(entry["address"], str) and "{{" not in entry["address"]:
            what, hint = neighbour_fault(entry["address"])
            if what and texts.fits(entry["address"], "ip"):
                yield Finding(what, hint, (*path, "address"), code="ND1156")


def _arp(step: PlannedStep) -> Iterator[Finding]:
    """Settings of ARP that are given twice."""
    given = step.config.get("sysctl")
    for key in given if isinstance(given, Mapping) else ():
        try:
            *folder, name = texts.sysctl_path(key, step.if_name).split("/")
        except InvalidInputError:
            continue  # reported as a sysctl
        if folder == ["net", "ipv4", "conf", step.if_name] and step.config.get(name) is not None:
            yield Finding(
                f"{name} is also among the sysctls", "leave one of the two out", ("config", name), code="ND1157"
            )


def entries(config: Mapping[str, Any], key: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects of a list in a config, each with its place; values of other types are skipped."""
    listed = config.get(key)
    for at, entry in enumerate(listed if isinstance(listed, list | tuple) else ()):
        if isinstance(entry, Mapping):
            yield at, entry
