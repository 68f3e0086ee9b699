"""The values of facts for every device that could be allocated: names that clash, addresses that are not valid (D63).

The devices are those of ResourceSlices, in `netdra validate`, or those that nodes report, in the webhook. They change,
so all findings are for warnings: the same rules refuse a claim at Prepare. A device counts for a step if the step's
selector and, of a claim, the request's match it. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from netdra.model import names
from netdra.model.claim import DeviceClass, ExactDeviceRequest, ResourceClaim, ResourceClaimTemplate, device_claim
from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.findings import Finding, Path, dotted
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology, Step
from netdra.rules import addresses, shipped
from netdra.rules.contract import Contract
from netdra.rules.devices import PossibleDevice, attributes, is_matched, is_requested
from netdra.rules.pod import check_plans
from netdra.rules.schemas import check_graph, plugins
from netdra.topology import bind, facts, interfaces, references, values
from netdra.topology.classes import parameters
from netdra.topology.devices import supported_cnis
from netdra.topology.graph import Graph, examine
from netdra.topology.references import Reference
from netdra.topology.surroundings import device_value, label
from netdra.topology.values import ConfigError

MOST_VARIANTS = 256
"""How many sets of values are checked for one topology."""
_LABELS = Mapping[str, Mapping[str, str]]


def asked(topology: NetworkTopology) -> frozenset[str]:
    """The attributes of devices that a topology's steps refer to, by qualified name."""
    named: set[str] = set()
    for step in topology.spec.steps:
        for reference in facts_of(step):
            if reference.step == facts.DEVICE:
                named.add(names.qualified(reference.key or reference.field))
    return frozenset(named)


def of_topology(
    topology: NetworkTopology,
    offered: Sequence[PossibleDevice],
    schemas: Sequence[CNIPluginSchema] = (),
    labels: _LABELS | None = None,
    in_time: Callable[[], bool] = lambda: True,
) -> Iterator[Finding]:
    """The errors of a valid topology's pods, for devices that could be allocated.

    Args:
        topology: as administrators wrote it.
        offered: the devices.
        schemas: the cluster's plugin schemas, without those that contradict themselves.
        labels: of Nodes by name, as far as they are known; None if they are not.
        in_time: whether there is time left; without it, no further device is inspected.
    """
    graph, _ = examine(topology)
    if graph is None or not any(graph.facts.values()) or interfaces.examine([graph])[1]:
        return
    forecast = _Forecast(topology, graph, offered, schemas, labels or {}, in_time)
    yield from forecast.of_devices()
    yield from forecast.of_names()


def of_claim(
    claim: ResourceClaim | ResourceClaimTemplate,
    topologies: Mapping[str, NetworkTopology],
    classes: Mapping[str, DeviceClass],
    offered: Sequence[PossibleDevice],
    labels: _LABELS | None = None,
) -> Iterator[Finding]:
    """Interfaces of one name that a claim's devices may give a pod, by topologies whose names consist of facts.

    Args:
        claim: as its author wrote it; requests with alternatives are skipped.
        topologies: by name.
        classes: the DeviceClasses, by name.
        offered: the devices.
        labels: of Nodes by name, as far as they are known; None if they are not.
    """
    wanted, _ = device_claim(claim)
    wishes = [*_wishes(claim, topologies, classes, offered, labels or {})]
    held = [
        (entry.requests, entry.match_attribute, entry.distinct_attribute)
        for entry in wanted.constraints
        if entry.match_attribute or entry.distinct_attribute
    ]
    for first, second in itertools.combinations_with_replacement(wishes, 2):
        if first is second and not first.several:
            continue
        clash = next(_clashes(first, second, held), None)
        if clash is not None:
            name, one, other = clash
            steps = f'steps "{first.step}" and "{second.step}"' if first is not second else f'step "{first.step}"'
            what = (
                f'{claim.kind} "{claim.metadata.name}": {steps} of NetworkTopology "{first.topology}" would make '
                f'interface "{name}" twice in the pod, with {one.called} and {other.called}'
            )
            # A constraint can keep devices apart by a fact of theirs in the name, not by one of the node or the pod.
            shared = next((name for name in first.attributes if name in second.attributes), "")
            hint = "use a fact in config.name that differs between the devices"
            if shared:
                hint = f"add a constraint with distinctAttribute: {shared}, or {hint}"
            yield Finding(what, hint, second.path, code="ND1085")
            return


def _wishes(
    claim: ResourceClaim | ResourceClaimTemplate,
    topologies: Mapping[str, NetworkTopology],
    classes: Mapping[str, DeviceClass],
    offered: Sequence[PossibleDevice],
    labels: _LABELS,
) -> Iterator[_Wish]:
    """The requests for steps of topologies; arguments as of `of_claim`."""
    wanted, path = device_claim(claim)
    for at, request in enumerate(wanted.requests):
        exact = request.exactly
        if exact is None or exact.admin_access or exact.device_class_name not in classes:
            continue
        named = f'{claim.kind} "{claim.metadata.name}"'
        for config in classes[exact.device_class_name].spec.config:
            meant = parameters(config.opaque, named)
            topology = topologies.get(meant.network_topology_ref.name) if meant is not None else None
            graph = examine(topology)[0] if topology is not None else None
            roots = {root.name for root in graph.roots} if graph is not None else ()
            if meant is None or topology is None or graph is None or meant.step not in roots:
                continue
            forecast = _Forecast(topology, graph, offered, (), labels, lambda: True)
            place = (*path, "requests", at, "exactly")
            several = exact.count > 1 or exact.allocation_mode == "All"
            named_by = forecast.names_of(meant.step, exact)
            attributes = _attributes_in_name(graph, meant.step)
            yield _Wish(request.name, meant.step, several, named_by, place, graph.topology, attributes)


def _attributes_in_name(graph: Graph, step: str) -> tuple[str, ...]:
    """The attributes of devices that a root step's interface is named by, with their domains."""
    in_name = [entry for path, entry in graph.facts.get(step, ()) if path == ("name",)]
    return tuple(names.qualified(entry.key) for entry in in_name if (entry.step, entry.field) == facts.ATTRIBUTE)


def of_ordinal(topology: NetworkTopology, ordinal: int | None) -> Iterator[tuple[Finding, bool]]:
    """The errors of a pod of a valid topology that depend on the pod's ordinal.

    Args:
        topology: as administrators wrote it.
        ordinal: the pod's in its StatefulSet; None of pods without.

    Yields:
        a finding, and whether the pod fails.
    """
    graph, _ = examine(topology)
    if graph is None or interfaces.examine([graph])[1]:
        return
    asked_for = [
        (step, path, entry)
        for step, every in graph.facts.items()
        for path, entry in every
        if (entry.step, entry.field) == (facts.POD, "ordinal")
    ]
    if not asked_for:
        return
    if ordinal is None:
        step, path, reference = asked_for[0]
        what = f"{dotted(path)}: {reference}: the names of these pods do not end with an ordinal"
        yield graph.about(step, what, hint="use a StatefulSet", path=("config", *path), code="ND1086"), True
        return
    reference = asked_for[0][2]
    checks = _Checks(topology, graph, shipped.contracts(plugins(graph.steps)))
    yield from checks.new(_put(graph, {step: {reference: ordinal} for step in graph.facts}))


class _Wish(msgspec.Struct, frozen=True, eq=False):
    """A request of a claim for a root step, with the interface's name for each device, "" if it is not a fact's.

    `attributes` are those of devices in the name.
    """

    request: str
    step: str
    several: bool
    named: Sequence[tuple[PossibleDevice, str]]
    path: Path
    topology: str
    attributes: tuple[str, ...]


_Held = Sequence[tuple[Sequence[str], str | None, str | None]]


def _clashes(first: _Wish, second: _Wish, held: _Held) -> Iterator[tuple[str, PossibleDevice, PossibleDevice]]:
    """The names that two devices of one node would have, unless a constraint keeps them apart."""
    by_name: dict[tuple[str, str], list[PossibleDevice]] = {}
    for device, name in first.named:
        by_name.setdefault((device.node, name), []).append(device)
    both = {first.request, second.request}
    rules = [(match, distinct) for requests, match, distinct in held if not requests or both <= set(requests)]
    for other, name in second.named:
        for one in by_name.get((other.node, name), ()):
            is_same = one is other and not one.published.allow_multiple_allocations
            if not is_same and all(_may_be_both(one, other, match, distinct) for match, distinct in rules):
                yield name, one, other
                break


def _may_be_both(one: PossibleDevice, other: PossibleDevice, match: str | None, distinct: str | None) -> bool:
    """Whether a constraint lets a claim have two devices."""
    attribute = match or distinct or ""
    values = [attributes(device).get(names.qualified(attribute)) for device in (one, other)]
    if None in values:
        return False
    return (values[0] == values[1]) is bool(match)


class _Forecast:
    """A topology, and the devices that its root steps could have."""

    def __init__(
        self,
        topology: NetworkTopology,
        graph: Graph,
        offered: Sequence[PossibleDevice],
        schemas: Sequence[CNIPluginSchema],
        labels: _LABELS,
        in_time: Callable[[], bool],
    ) -> None:
        self._graph, self._offered, self._labels, self._in_time = graph, offered, labels, in_time
        self._checks = _Checks(topology, graph, shipped.contracts(plugins(graph.steps), schemas))
        self._matching: dict[str, list[PossibleDevice]] = {}
        self._named: dict[str, list[tuple[PossibleDevice, str]]] = {}
        self._roots = {step.name: graph.roots_of(step.name) for step in graph.steps}

    def of_devices(self) -> Iterator[Finding]:
        """Facts that a device lacks, and values that a step would refuse."""
        for root in self._graph.roots:
            left = max(1, MOST_VARIANTS // len(self._graph.roots))
            wrong: dict[Path, tuple[Finding, PossibleDevice, set[str]]] = {}
            known: dict[tuple[Any, ...], list[Finding]] = {}
            for device in self._candidates(root):
                if not self._in_time():
                    break
                graph, findings, key = self._filled(root.name, device)
                if not findings and key not in known and left:
                    left -= 1
                    known[key] = [finding for finding, _ in self._checks.new(graph)]
                for finding in findings or known.get(key, []):
                    first = wrong.setdefault(finding.path, (finding, device, set()))
                    first[2].add(f"{device.node}/{device.planned.pool}/{device.published.name}")
            for finding, device, devices in wrong.values():
                further = f" (and {len(devices) - 1} more)" if len(devices) > 1 else ""
                # A finding about a step begins with the topology's and the step's name.
                begin, _, text = finding.what.partition('": ')
                yield msgspec.structs.replace(finding, what=f'{begin}", {device.called}{further}: {text}')

    def of_names(self) -> Iterator[Finding]:
        """Two steps whose interfaces have one name with any devices of a node."""
        named = {step.name: self._names_by_node(step.name) for step in self._graph.roots}
        # Without time for all names, those of some devices would look like those of all.
        for first, second in itertools.combinations(self._graph.roots, 2) if self._in_time() else ():
            if not any(self._has_open_name(step) for step in (first, second)):
                continue
            own, others = named[first.name], named[second.name]
            made = [own[node] | others[node] for node in own.keys() & others.keys()]
            if made and all(len(known) == 1 for known in made):
                name = next(iter(made[0]))
                what = f'interface "{name}" is also that of step "{first.name}", with every device that both could get'
                hint = "use a unique fact in config.name, or let the selectors match other devices"
                yield self._graph.about(second.name, what, hint=hint, path=("config", "name"), code="ND1087")

    def names_of(self, name: str, request: ExactDeviceRequest | None = None) -> list[tuple[PossibleDevice, str]]:
        """The interface's name of a root step for each device that it could have, where config.name states it."""
        if name not in self._named:
            step = next(root for root in self._graph.roots if root.name == name)
            devices = self._candidates(step) if isinstance(step.config.get("name"), str) else []
            self._named[name] = [(device, text) for device in devices if (text := self._name(name, device))]
        return [entry for entry in self._named[name] if request is None or is_requested(entry[0], request)]

    def _names_by_node(self, name: str) -> dict[str, set[str]]:
        by_node: dict[str, set[str]] = {}
        for device, text in self.names_of(name):
            by_node.setdefault(device.node, set()).add(text)
        return by_node

    def _name(self, root: str, device: PossibleDevice) -> str:
        """The interface's name with a device, "" if it is not known or a fact is missing."""
        if not self._in_time():
            return ""
        graph, findings, _ = self._filled(root, device)
        text = next(entry for entry in graph.steps if entry.name == root).config["name"]
        # Facts of the node and the pod that are not known are those of all devices.
        of_device = any(entry.step == facts.DEVICE for path, entry in graph.facts[root] if path == ("name",))
        return text if isinstance(text, str) and not findings and not of_device else ""

    def _has_open_name(self, step: Step) -> bool:
        return any(path == ("name",) for path, _ in self._graph.facts[step.name])

    def _candidates(self, root: Step) -> list[PossibleDevice]:
        if root.name not in self._matching:
            expression = root.selector.cel if root.selector is not None else "true"
            self._matching[root.name] = [
                device
                for device in self._offered
                if root.type in supported_cnis(device.published) and is_matched(device, expression)
            ]
        return self._matching[root.name]

    def _filled(self, root: str, device: PossibleDevice) -> tuple[Graph, list[Finding], tuple[Any, ...]]:
        """The graph with a device's and its node's facts, the facts that are missing, and the values."""
        findings: list[Finding] = []
        given: dict[str, dict[Reference, Any]] = {}
        for step, every in self._graph.facts.items():
            for path, reference in every if self._roots[step] == (root,) else ():
                try:
                    value = self._value(reference, device)
                    if value is not None:
                        given.setdefault(step, {})[reference] = facts.checked(value)
                except InvalidInputError as problem:
                    what = f"{dotted(path)}: {reference}: {problem.what}"
                    findings.append(
                        self._graph.about(step, what, hint=problem.hint, path=("config", *path), code=problem.code)
                    )
                except TemporaryError:
                    continue
        values = tuple((step, *entry) for step, entries in given.items() for entry in entries.items())
        return _put(self._graph, given), findings, values

    def _value(self, reference: Reference, device: PossibleDevice) -> Any:
        """A fact's value, unchecked; None if it is not known here."""
        if reference.step == facts.DEVICE:
            if not device.is_whole and not _is_reported(reference, device):
                return None
            return device_value(reference, device.planned, device.published.attributes)
        if reference.step == facts.NODE and device.is_whole and device.node:
            if reference.field == "name":
                return device.node
            labels = self._labels.get(device.node)
            return None if labels is None else label(device.node, reference.key, labels)
        return None


def _put(graph: Graph, given: Mapping[str, Mapping[Reference, Any]]) -> Graph:
    """A graph with values of facts, by step."""
    steps = (
        msgspec.structs.replace(step, config=references.put(step.config, given[step.name]))
        if given.get(step.name)
        else step
        for step in graph.steps
    )
    left = {
        step: tuple(entry for entry in every if entry[1] not in given.get(step, ()))
        for step, every in graph.facts.items()
    }
    return msgspec.structs.replace(graph, steps=tuple(steps), facts=left)


class _Checks:
    """The rules of configs, asked of a topology's graph with values of facts, at the places of these facts."""

    def __init__(self, topology: NetworkTopology, graph: Graph, contracts: Mapping[str, Contract]) -> None:
        self._topology, self._contracts = topology, contracts
        self._facts = {graph.positions[step]: every for step, every in graph.facts.items()}
        self._places = {
            ("spec", "steps", at, "config", *path) for at, every in self._facts.items() for path, _ in every
        }
        self._before = {finding.path for finding, _ in self._all(graph)}

    def new(self, graph: Graph) -> Iterator[tuple[Finding, bool]]:
        """The findings at places where the graph without values has none, and whether a pod fails."""
        for finding, fails in self._all(graph):
            if finding.path in self._places - self._before:
                _, _, at, _, *place = finding.path
                assert isinstance(at, int)
                hint = finding.hint or references.made_of(self._facts[at], tuple(place))
                if "put it in quotes" in hint:  # it is in quotes: the reference's value has its own type
                    reference = next(reference for path, reference in self._facts[at] if path == tuple(place))
                    hint = f'write text beside it: "net{reference}"'
                yield msgspec.structs.replace(finding, hint=hint), fails

    def _all(self, graph: Graph) -> Iterator[tuple[Finding, bool]]:
        named, clashes = interfaces.examine([graph])
        wrong = check_graph(graph, self._contracts)
        yield from ((finding, True) for finding in (*clashes, *wrong))
        yield from ((finding, False) for finding in self._unwise(graph))
        if clashes or wrong:
            return
        try:
            plan = bind.planned(graph, named[0])
        except InvalidInputError:
            return
        for finding in check_plans([plan]):
            _, at, *rest = finding.path
            assert isinstance(at, int)
            place = ("spec", "steps", graph.positions[plan.steps[at].name], *rest)
            yield msgspec.structs.replace(finding, path=place), True

    def _unwise(self, graph: Graph) -> Iterator[Finding]:
        """Addresses that will not work as they are written, with examples in the place of facts that are not known."""
        configs = {step.name: values.copy(dict(step.config), _example) for step in graph.steps}
        steps = tuple(msgspec.structs.replace(step, config=configs[step.name]) for step in self._topology.spec.steps)
        spec = msgspec.structs.replace(self._topology.spec, steps=steps)
        yield from addresses.unwise(msgspec.structs.replace(self._topology, spec=spec))


def _example(_: Path, text: str) -> str:
    parts = references.parse(text)
    has_fact = any(isinstance(part, Reference) and part.fact is not None for part in parts)
    has_other = any(isinstance(part, Reference) and part.fact is None for part in parts)
    return references.samples(parts)[0] if has_fact and not has_other else text


def _is_reported(reference: Reference, device: PossibleDevice) -> bool:
    """Whether reports of nodes and policies have a fact: what providers add is in slices alone."""
    if reference.field != "attributes":
        return reference.field == "ifName" and bool(device.planned.if_name)
    value = attributes(device).get(names.qualified(reference.key))
    # Pooled VFs do not share all attributes, and reports do not distinguish them from other shared devices.
    return value is not None and not (device.published.allow_multiple_allocations and value in ("", -1))


def facts_of(step: Step) -> tuple[Reference, ...]:
    """The references to facts in a step's config; none in a config that cannot be read, which `graph` reports."""
    try:
        return tuple(reference for _, reference in references.find_facts(step.config))
    except ConfigError:
        return ()
