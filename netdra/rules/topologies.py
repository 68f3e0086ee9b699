"""All checks of a topology that its author gets to see, in one call: at admission and by `netdra validate`.

In the order in which one builds on another: structure, selectors, interface names, plugin schemas, what the kernel
would refuse. A topology whose structure is unsound is not checked further: further findings would not be true.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from netdra.cel import guarded
from netdra.model import names, texts
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path, about, of_rule
from netdra.model.plan import Plan
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import BUILTIN_TYPES, NetworkTopology
from netdra.rules import bonds, confine, foreign_macs, routing, shipped, sysctls
from netdra.rules.contract import Contract
from netdra.rules.pod import check_mtus, check_plans
from netdra.rules.schemas import check_graph, plugins
from netdra.topology import bind, graph, interfaces, neutron_request, parameters
from netdra.topology.classes import check_name, class_name
from netdra.topology.graph import Graph
from netdra.topology.selectors import check_selector
from netdra.topology.step_check import shown_name

if TYPE_CHECKING:
    from netdra.cel.vocabulary import Added


SPOOF_CHECK, BOND = "SpoofCheck", "Bond"
"""The rules on frames that a NIC drops, and on bonds that cannot use another link: their pods start all the same."""


def check_topology(topology: NetworkTopology, schemas: Sequence[CNIPluginSchema] = ()) -> tuple[Finding, ...]:
    """All that is wrong with a topology.

    Args:
        topology: as administrators wrote it.
        schemas: the cluster's plugin schemas, which stand above those that netdra ships.

    Raises:
        InvalidInputError: one of the schemas contradicts itself.
    """
    compiled, findings = graph.examine(topology)
    if compiled is None:
        return findings
    contracts = shipped.contracts(plugins(compiled.steps), schemas)
    _, clashes = interfaces.examine([compiled])
    configs = _configs(compiled, contracts)
    paths = {finding.path for finding in configs}
    return (
        *routing.errors(compiled),
        *sysctls.errors(compiled),
        *_selectors(compiled),
        *_class_names(compiled),
        *clashes,
        *configs,
        *(finding for finding in (() if clashes else _plan(topology, compiled, schemas)) if finding.path not in paths),
    )


def check_configs(topology: NetworkTopology, described: Collection[str] = ()) -> tuple[Finding, ...]:
    """The errors in a topology's graph and configs by netdra's own schemas.

    Asked when a claim is prepared: the webhook may have been away. A schema of the cluster does not count against a
    topology that was there before it, so plugins with such a schema are skipped, except for the built-in steps.

    Args:
        topology: as administrators wrote it.
        described: the plugins that the cluster's own schemas describe.
    """
    compiled, findings = graph.examine(topology)
    if compiled is None:
        return findings
    contracts = shipped.contracts(plugins(compiled.steps) - (set(described) - BUILTIN_TYPES))
    _, clashes = interfaces.examine([compiled])
    configs = (*routing.errors(compiled), *sysctls.errors(compiled), *_configs(compiled, contracts))
    paths = {finding.path for finding in configs}
    planned = () if clashes else _plan(topology, compiled, ())
    return (*clashes, *configs, *(entry for entry in planned if entry.path not in paths))


def check_names(topology: NetworkTopology, added: Added) -> Iterator[tuple[Finding, bool]]:
    """Errors in a topology's selectors that compile, and warnings for its author; for admission alone.

    Args:
        topology: as administrators wrote it; selectors that do not compile are skipped.
        added: what policies and CustomDevices add to devices.

    Yields:
        a finding, and whether it must be refused.
    """
    # Authors see these at admission; a node, which checks configs only, does without a megabyte of analysis.
    from netdra.cel.analysis import examine
    from netdra.vocabulary import of_devices

    vocabulary = of_devices(added)
    for at, step in enumerate(topology.spec.steps):
        if step.selector is None or check_selector(step.selector.cel):
            continue
        path: Path = ("spec", "steps", at, "selector", "cel")
        for remark in examine(step.selector.cel, vocabulary):
            yield (
                about(topology.name, shown_name(step.name), f"selector.cel: {remark.what}", path=path, code="ND1170"),
                remark.wrong,
            )


def check_unwise(topology: NetworkTopology) -> Iterator[Finding]:
    """Requests of a sound topology that only some devices can meet, or that are hardly meant; for warnings."""
    compiled, _ = graph.examine(topology)
    if compiled is None or interfaces.examine([compiled])[1]:
        return
    yield from _of_ports(compiled)
    yield from _of_masters(compiled)
    yield from _of_forwarded_ports(compiled)
    yield from _of_destinations(compiled)
    yield from _of_rdma(compiled)
    yield from of_rule(SPOOF_CHECK, bonds.one_mac(topology))
    yield from of_rule(BOND, bonds.failover(topology))
    yield from of_rule(SPOOF_CHECK, foreign_macs.check(topology))
    plan = bind.unbound(topology)
    yield from routing.unwise(compiled, plan)
    yield from _placed(_true(check_mtus([plan]), plan, compiled), plan, compiled)


def check_together(topologies: Mapping[str, NetworkTopology]) -> Iterator[tuple[str, Finding]]:
    """Conflicts between topologies: DeviceClasses of one name, extended resources that two of them offer.

    Yields:
        the name of the later topology, and the errors in it.
    """
    classes: dict[str, str] = {}
    resources: dict[str, str] = {}
    for name, topology in topologies.items():
        for at, step in enumerate(topology.spec.steps):
            if not step.is_root:
                continue
            path: Path = ("spec", "steps", at)
            made = class_name(name, step.name)
            own = [other.name for other in topology.spec.steps[:at]]
            if made in classes and step.name not in own:
                what = f'its DeviceClass "{made}" has the same name as that of {classes[made]}'
                yield name, about(name, step.name, what, hint="rename the step", path=(*path, "name"), code="ND1171")
            classes[made] = f'step "{step.name}" of NetworkTopology "{name}"'
            resource = step.extended_resource_name
            if resource and resource in resources:
                what = f'extendedResourceName "{resource}" is also used by {resources[resource]}'
                hint = "choose another name: an extended resource belongs to one DeviceClass"
                yield name, about(name, step.name, what, hint=hint, path=(*path, "extendedResourceName"), code="ND1172")
            resources[resource] = classes[made]


_FORMATS = ("cidr", "ip", "mac")
"""The formats of parameters that plugins' schemas have, too."""
_MOST_VARIANTS = 64
_NETWORK_WITHOUT_PREFIX = re.compile(r"\d+\.\d+\.\d+\.0\Z", re.ASCII)
_PHYSNET = re.compile(r"\bphysnet\b")


def _configs(compiled: Graph, contracts: Mapping[str, Contract]) -> tuple[Finding, ...]:
    """The errors in the topology by its plugins' contracts, for all values that claims may give."""
    samples = {parameter.name: parameters.examples(parameter) for parameter in compiled.parameters}
    variants = min(max(map(len, samples.values()), default=1), _MOST_VARIANTS)
    by_place: dict[tuple[Path, str], Finding] = {}
    for number in range(variants):
        given = {name: every[number % len(every)] for name, every in samples.items()}
        filled = bind.filled(compiled, given)
        for finding in (*check_graph(filled, contracts), *_requests(filled)):
            by_place.setdefault((finding.path, finding.what), _because(compiled, finding, given))
    return tuple(by_place.values())


def _requests(filled: Graph) -> Iterator[Finding]:
    """Parts of steps' requests that Neutron would not understand."""
    for step in filled.roots:
        wrong = neutron_request.check(step.neutron) if step.neutron is not None else ()
        yield from filled.of_step(step.name, wrong)


def _because(compiled: Graph, finding: Finding, given: Mapping[str, Any]) -> Finding:
    """A finding that names the values of parameters that it is about, if it is about any."""
    at, place = finding.path[2], finding.path[3:]
    step = next(name for name, position in compiled.positions.items() if position == at)
    fields = {
        reference.field
        for path, reference in compiled.asked[step]
        if len(place) > 1 and (path[: len(place)] == place or place[: len(path)] == path)
    }
    if not fields:
        return finding
    named = [f"{field} may be {msgspec.json.encode(given[field]).decode()[:80]}" for field in sorted(fields)]
    what = f"{finding.what} Parameter {', '.join(named)}."
    return msgspec.structs.replace(finding, what=what, hint=_format(compiled, finding, fields) or finding.hint)


def _format(compiled: Graph, finding: Finding, fields: Collection[str]) -> str:
    """The next step for a parameter whose format is another one than that of its place; "" for other findings.

    The place holds a reference to the parameter; another value there, which the finding may propose, is not meant.
    """
    form = next((form for form in _FORMATS if f" to be {texts.EXPECTED[form]}, found" in finding.what), "")
    formatted = (entry.name for entry in compiled.parameters if entry.name in fields and entry.format not in ("", form))
    name = next(formatted, "") if form else ""
    return f"Set format of parameter {name} to {form}." if name else ""


def _of_ports(compiled: Graph) -> Iterator[Finding]:
    """Steps with a port of Neutron that may not do what their authors expect."""
    with_ports = {step.name: step for step in compiled.roots if step.neutron is not None}
    for step in with_ports.values():
        assert step.selector is not None
        if _PHYSNET.search(step.selector.cel) is None:
            what = "neutron: the selector does not test physnet; a VF without a matching network may be allocated"
            hint = f'add && device.attributes["{names.DRIVER}"].physnet == "…"'
            yield compiled.about(step.name, what, hint=hint, path=("selector", "cel"), code="ND1173")
        if step.neutron is not None and step.neutron.security_groups:
            what = (
                "neutron: security groups are stored with the port but not enforced, because NICs do not filter packets"
            )
            hint = "remove securityGroups, or use [] for none; filter in the pod or on the network"
            yield compiled.about(step.name, what, hint=hint, path=("neutron", "securityGroups"), code="ND1174")
    for bond in (step for step in compiled.steps if step.type == "bond"):
        for name in sorted(compiled.ancestors[bond.name] & with_ports.keys()):
            request = with_ports[name].neutron
            if request is None or not request.assign_addresses:
                continue
            what = (
                f'neutron: the VF gets the addresses of its port, but it is a member of the bond of step "{bond.name}"'
            )
            address = f'"{{{{ {name}.ips[0].address }}}}"'
            hint = f'set assignAddresses: false, and assign the address to "{bond.name}": {address}'
            yield compiled.about(name, what, hint=hint, path=("neutron",), code="ND1175")


def _of_masters(compiled: Graph) -> Iterator[Finding]:
    """Root steps that name an interface of the node: they get the allocated one, which may have another name."""
    for step in compiled.roots:
        assert step.selector is not None
        for key in parameters.DEVICE_KEYS:
            named = step.config.get(key)
            if isinstance(named, str) and named and "{{" not in named and named not in step.selector.cel:
                what = f'{key} "{named}" is not in the selector, and a root step must use its allocated device'
                hint = f"remove {key}: it is set to the allocated device"
                yield compiled.about(step.name, what, hint=hint, path=("config", key), code="ND1176")


def _of_forwarded_ports(compiled: Graph) -> Iterator[Finding]:
    """Steps of `portmap` that forward no port: runtimes fill in the values of `capabilities`, netdra does not."""
    for step in compiled.steps:
        if step.type == "portmap" and step.config.get("capabilities") and not step.config.get("runtimeConfig"):
            what = "capabilities asks the container runtime for values, but netdra passes none, so no port is forwarded"
            hint = "add runtimeConfig with portMappings: a list of hostPort, containerPort and protocol"
            yield compiled.about(step.name, what, hint=hint, path=("config", "capabilities"), code="ND1177")


def _of_rdma(compiled: Graph) -> Iterator[Finding]:
    """RDMA devices of VFs that a userspace driver has: such a VF has none."""
    types = {step.name: step.type for step in compiled.steps}
    for step in (step for step in compiled.steps if step.type == "rdma" and not step.is_root):
        roots = sorted(name for name in compiled.ancestors[step.name] if types[name] == "vfio-pci")
        if roots and all(types[name] == "vfio-pci" for name in compiled.ancestors[step.name]):
            what = f'step "{roots[0]}" (vfio-pci) unbinds the device from its driver; it does not have an RDMA device'
            hint = "let the step depend on a step of type sriov or host-device"
            yield compiled.about(step.name, what, hint=hint, path=("dependOn",), code="ND1178")


def _of_destinations(compiled: Graph) -> Iterator[Finding]:
    """Routes of `tuning` to a network whose prefix length is missing: the kernel takes them for one address."""
    for step in (step for step in compiled.steps if step.type == "tuning"):
        routes = step.config.get("routes")
        for at, route in enumerate(routes if isinstance(routes, list | tuple) else ()):
            for key in ("destination", "dst") if isinstance(route, Mapping) else ():
                text = route.get(key)
                if isinstance(text, str) and _NETWORK_WITHOUT_PREFIX.match(text):
                    what = f"{key} {text} does not have a prefix length; the route is to this single address"
                    hint = f"use {text}/24, with the prefix length of the network, or {text}/32"
                    yield compiled.about(step.name, what, hint=hint, path=("config", "routes", at, key), code="ND1179")


def _selectors(compiled: Graph) -> Iterator[Finding]:
    for step in compiled.roots:
        assert step.selector is not None
        try:
            guarded(step.selector.cel)
        except InvalidInputError as problem:
            path = ("selector", "cel")
            yield compiled.about(
                step.name, f"selector.cel: {problem.what}", hint=problem.hint, path=path, code=problem.code
            )


def _class_names(compiled: Graph) -> Iterator[Finding]:
    for step in compiled.roots:
        try:
            check_name(compiled.topology, step.name)
        except InvalidInputError as problem:
            yield Finding(what=problem.what, hint=problem.hint, path=("metadata", "name"), code=problem.code)
            return


def _plan(topology: NetworkTopology, compiled: Graph, schemas: Sequence[CNIPluginSchema]) -> Iterator[Finding]:
    """The findings about the topology's plan, at the places of the topology."""
    plan = bind.unbound(topology)
    named = confine.check([plan], confine.contracts_of([plan], schemas), allocated=True)
    yield from _placed((*_true(check_plans([plan]), plan, compiled), *named), plan, compiled)


def _true(findings: Iterable[Finding], plan: Plan, compiled: Graph) -> Iterator[Finding]:
    """The findings without those about the text of a reference to a parameter or a fact, not true of its value."""
    for finding in findings:
        _, at, *rest = finding.path
        assert isinstance(at, int)
        step = plan.steps[at].name
        open_ = {where for where, entry in compiled.asked[step] if entry.field not in plan.parameters}
        open_ |= {("config", *where) for where, _ in compiled.facts[step]}
        if tuple(rest) not in open_:
            yield finding


def _placed(findings: Iterable[Finding], plan: Plan, compiled: Graph) -> Iterator[Finding]:
    """Findings of a plan at the places of the topology."""
    for finding in findings:
        _, at, *rest = finding.path
        assert isinstance(at, int)
        path = ("spec", "steps", compiled.positions[plan.steps[at].name], *rest)
        yield Finding(what=finding.what, hint=finding.hint, path=path, code=finding.code)
