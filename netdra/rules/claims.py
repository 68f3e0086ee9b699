"""A claim, or a claim template, against the topologies that its DeviceClasses belong to, before anything is allocated.

A topology needs a device for each of its root steps, so a claim that asks for one of its classes must ask for all. It
also needs a value for each of its parameters without a default. Called at admission and by `netdra validate`; `bind`
finds the same errors at Prepare, when the claim's author is no longer there to see them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from netdra.model import device_parameters, names, suggestions
from netdra.model.claim import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimTemplate,
    device_claim,
)
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path, quoted
from netdra.model.topology import VALUES_KIND, NetworkTopology, ParameterValues
from netdra.rules import addresses, network_requests
from netdra.rules.pod import check_plans
from netdra.topology import interfaces, mismatches
from netdra.topology import parameters as parameters_of
from netdra.topology.bind import is_for_extended_resources, planned
from netdra.topology.classes import class_name, parameters
from netdra.topology.graph import Graph, examine

MOST_PODS = 100
"""The pods of a StatefulSet whose values are put into a topology for warnings; more would take a webhook too long."""
_OF_ONE_POD = frozenset({"cidr", "ip", "mac"})
"""The formats of values that no two pods can have."""


class _Wish(msgspec.Struct, frozen=True):
    """A request, or one of its alternatives, for a device of a topology's step."""

    request: str
    name: str
    topology: str
    step: str
    several: bool
    path: Path
    whole: str


def check_claim(
    claim: ResourceClaim | ResourceClaimTemplate,
    topologies: Mapping[str, NetworkTopology],
    classes: Mapping[str, DeviceClass],
) -> tuple[Finding, ...]:
    """The errors in a claim's requests, as far as they are for topologies.

    Args:
        claim: as its author wrote it.
        topologies: by name.
        classes: DeviceClasses by name; requests for other classes are skipped.

    Raises:
        InvalidInputError: a class's parameters name a topology, but not as a generated class does.
    """
    if is_for_extended_resources(claim.metadata):
        return ()
    named = f'{claim.kind} "{claim.metadata.name}"'
    wanted, path = device_claim(claim)
    findings = [
        finding
        for at, config in enumerate(wanted.config)
        for finding in check_own_configuration(named, config.opaque, config.requests, (*path, "config", at))
    ]
    wishes: dict[str, list[_Wish]] = {}
    for wish in _wishes(wanted, classes, path):
        wishes.setdefault(wish.topology, []).append(wish)
    given, wrong = _given(named, wanted, path)
    misspelled = any(is_misspelled(_keys(config.opaque)) for config in wanted.config)
    for name, group in wishes.items():
        against = [*_against(named, name, group, topologies, wanted, classes, (*path, "requests"))]
        findings += against
        if not against and not wrong and not misspelled:
            findings += _values(claim, topologies[name], [entry for entry in given if entry.is_for(group)])
    findings += network_requests.check(named, wanted, path, topologies, classes)
    findings += [*wrong, *_for_nothing(named, wanted, given, wishes, classes)]
    if not findings:
        findings += _clashing(named, wishes, topologies, (*path, "requests"))
    return tuple(findings)


class _Given(msgspec.Struct, frozen=True):
    """The values of parameters in one configuration of a claim, and where it is."""

    requests: tuple[str, ...]
    values: ParameterValues
    path: Path

    def is_for(self, group: Sequence[_Wish]) -> bool:
        return parameters_of.covers(self.requests, (name for wish in group for name in (wish.request, wish.whole)))


def _given(named: str, wanted: DeviceClaim, path: Path) -> tuple[list[_Given], list[Finding]]:
    """A claim's values of parameters, and the configurations of that kind that are not to be understood."""
    given: list[_Given] = []
    wrong: list[Finding] = []
    for at, config in enumerate(wanted.config):
        place = (*path, "config", at)
        try:
            values = parameters_of.values_of(config.opaque, named)
        except InvalidInputError as problem:
            wrong.append(
                Finding(
                    what=problem.what,
                    hint=problem.hint,
                    path=(*place, "opaque", "parameters", *problem.path),
                    code=problem.code,
                )
            )
            continue
        given += [] if values is None else [_Given(config.requests, values, place)]
    return given, wrong


def _values(
    claim: ResourceClaim | ResourceClaimTemplate, topology: NetworkTopology, given: Sequence[_Given]
) -> Iterator[Finding]:
    """The errors in a claim's values for a topology. The values of each pod of a StatefulSet are inspected."""
    declared, values = topology.spec.parameters, [entry.values for entry in given]
    if not declared and not values:
        return
    is_template = isinstance(claim, ResourceClaimTemplate)
    lists = [len(every) for value in values for every in value.per_pod.values()]
    path = given[0].path if given else ("spec",) * (1 + is_template) + ("devices",)
    complete: dict[str, Any] = {}
    yield from _per_pod(claim, given)
    for ordinal in range(min(lists, default=1)) if is_template else (parameters_of.ordinal_of(claim.metadata),):
        try:
            complete = parameters_of.complete(topology.name, declared, parameters_of.together(values, ordinal))
        except InvalidInputError as problem:
            which = f", pod {ordinal}" if is_template and lists else ""
            what = f'{claim.kind} "{claim.metadata.name}"{which}: {problem.what}'
            yield Finding(what=what, hint=problem.hint, path=path, code=problem.code)
            return
    # One pod's values stand for all: this compiles the topology, and a webhook waits for it.
    for finding in _with_values(topology, complete)[:1] if complete else ():
        yield Finding(
            what=f'{claim.kind} "{claim.metadata.name}": {finding.what}',
            hint=finding.hint,
            path=path,
            code=finding.code,
        )


def check_addresses(
    claim: ResourceClaim | ResourceClaimTemplate, topologies: Iterable[NetworkTopology]
) -> Iterator[Finding]:
    """Addresses and routes that do not work with a claim's values; for warnings.

    Args:
        claim: one without errors.
        topologies: those whose devices it asks for.
    """
    named = f'{claim.kind} "{claim.metadata.name}"'
    given, _ = _given(named, *device_claim(claim))
    for topology in topologies if given else ():
        known = {finding.what for finding in addresses.unwise(topology)}
        for bound in _bound(claim, topology, given):
            for finding in addresses.unwise(bound.topology, of_values=True):
                if finding.what not in known:
                    known.add(finding.what)
                    yield Finding(f"{named}{bound.pod}: {finding.what}", finding.hint, given[0].path, code=finding.code)


def same_addresses(
    claims: Iterable[ResourceClaim], topologies_of: Callable[[ResourceClaim], Iterable[NetworkTopology]]
) -> Iterator[tuple[ResourceClaim, Finding]]:
    """Claims that give a topology the same values as a claim before them, an address among them; for warnings.

    Args:
        claims: those without errors.
        topologies_of: the topologies whose devices a claim asks for.
    """
    first: dict[str, ResourceClaim] = {}
    for claim in claims:
        given, _ = _given(claim.metadata.name, *device_claim(claim))
        for topology in topologies_of(claim) if given else ():
            formats = {entry.name: entry.format for entry in topology.spec.parameters}
            for bound in _bound(claim, topology, given):
                unique = [value for name, value in bound.values.items() if formats.get(name) in _OF_ONE_POD]
                other = first.setdefault(repr((topology.name, sorted(bound.values.items()))), claim)
                if unique and other is not claim:
                    where = f"{other.metadata.namespace}/{other.metadata.name}".lstrip("/")
                    what = (
                        f'ResourceClaim "{claim.metadata.name}": its values for NetworkTopology "{topology.name}" are '
                        f'those of claim "{where}", so two pods can have {unique[0]}'
                    )
                    yield claim, Finding(what, "use another address in one of the claims", given[0].path, code="ND1018")


class _Bound(msgspec.Struct, frozen=True):
    """A topology with the values of one pod, and which pod it is, in words; "" for the only one."""

    pod: str
    values: Mapping[str, Any]
    topology: NetworkTopology


def _bound(
    claim: ResourceClaim | ResourceClaimTemplate, topology: NetworkTopology, given: Sequence[_Given]
) -> Iterator[_Bound]:
    """A topology with the values of each pod; none if values are wrong, which is an error of its own."""
    compiled, _ = examine(topology)
    (named,), wrong = interfaces.examine([compiled]) if compiled is not None else ((None,), ())
    if compiled is None or named is None or wrong:
        return
    values = [entry.values for entry in given]
    pods = min((len(every) for value in values for every in value.per_pod.values()), default=0)
    is_template = isinstance(claim, ResourceClaimTemplate) and pods
    for ordinal in range(min(pods, MOST_PODS)) if is_template else (parameters_of.ordinal_of(claim.metadata),):
        try:
            together = parameters_of.together(values, ordinal)
            complete = parameters_of.complete(topology.name, topology.spec.parameters, together)
            configs = {step.name: step.config for step in planned(compiled, named, complete).steps}
        except InvalidInputError:
            return
        steps = tuple(replace(step, config=configs[step.name]) for step in topology.spec.steps)
        pod = f", pod {ordinal}" if is_template and pods > 1 else ""
        yield _Bound(pod, complete, replace(topology, spec=replace(topology.spec, steps=steps)))


def _with_values(topology: NetworkTopology, values: Mapping[str, Any]) -> Sequence[Finding]:
    """The errors in the plan of a topology with a claim's values; errors of the topology alone are not the claim's."""
    compiled, _ = examine(topology)
    if compiled is None:
        return ()
    (named,), wrong = interfaces.examine([compiled])
    try:
        return () if wrong else check_plans([planned(compiled, named, values)])
    except InvalidInputError as problem:
        return (Finding(problem.what, problem.hint, code=problem.code),)


def _per_pod(claim: ResourceClaim | ResourceClaimTemplate, given: Sequence[_Given]) -> Iterator[Finding]:
    """Lists of values that no pod can take one from."""
    for entry in given:
        for name, every in entry.values.per_pod.items():
            if not every:
                what = f'{claim.kind} "{claim.metadata.name}": perPod does not have values of parameter "{name}"'
                place = (*entry.path, "opaque", "parameters", "perPod", name)
                yield Finding(
                    what=what, hint="add one value per pod; the first is for pod 0", path=place, code="ND1019"
                )


def check_repeated(
    claim: ResourceClaim | ResourceClaimTemplate, topologies: Iterable[NetworkTopology]
) -> Iterator[Finding]:
    """Addresses that two pods of a StatefulSet get; for warnings.

    Args:
        claim: as its author wrote it.
        topologies: those whose devices it may ask for.
    """
    formats = {entry.name: entry.format for topology in topologies for entry in topology.spec.parameters}
    wanted, path = device_claim(claim)
    named = f'{claim.kind} "{claim.metadata.name}"'
    for entry in _given(named, wanted, path)[0]:
        for name, every in entry.values.per_pod.items():
            if formats.get(name) not in _OF_ONE_POD:
                continue
            for at, value in enumerate(every):
                if value in every[:at]:
                    what = f'{named}: perPod gives {value} of parameter "{name}" to pods {every.index(value)} and {at}'
                    place = (*entry.path, "opaque", "parameters", "perPod", name, at)
                    yield Finding(what=what, hint="assign a different address to each pod", path=place, code="ND1020")
                    break


def _for_nothing(
    named: str,
    wanted: DeviceClaim,
    given: Sequence[_Given],
    wishes: Mapping[str, Sequence[_Wish]],
    classes: Mapping[str, DeviceClass],
) -> Iterator[Finding]:
    """Values that no topology gets; none are reported if a class of the claim is unknown."""
    asked = (choice for request in wanted.requests for choice, _, _ in _choices(request, ()))
    if any(choice.device_class_name not in classes for choice in asked):
        return
    for entry in given:
        if not any(entry.is_for(group) for group in wishes.values()):
            yield replace(mismatches.for_nothing(named, entry.requests), path=entry.path)


def is_misspelled(parameters: Mapping[str, Any]) -> bool:
    """Whether the kind of a claim's configuration is likely meant to be `ParameterValues`."""
    kind = parameters.get("kind")
    if kind in (VALUES_KIND, device_parameters.KIND):
        return False
    is_near = isinstance(kind, str) and bool(suggestions.closest(kind, [VALUES_KIND]))
    return is_near or not parameters.keys().isdisjoint(("values", "perPod"))


def check_own_configuration(
    named: str, opaque: OpaqueDeviceConfiguration | None, requests: Sequence[str], path: Path = ()
) -> Iterator[Finding]:
    """Only a class configures a device and a claim gives values of parameters alone (decision D32).

    Asked of each configuration of a claim, and at Prepare of each that the allocation has from the claim.

    Args:
        named: the claim as messages call it.
        opaque: the configuration; that for another driver is ignored.
        requests: the requests that it is for; empty for all.
        path: its place.
    """
    if opaque is None or opaque.driver != names.DRIVER:
        return
    keys = _keys(opaque)
    if keys.get("kind") == VALUES_KIND:
        return
    if is_misspelled(keys):
        yield Finding(
            f"{named}: the kind of its configuration for {names.DRIVER} is {quoted(str(keys.get('kind', '')))}, not "
            f"{VALUES_KIND}",
            f"write kind: {VALUES_KIND}",
            (*path, "opaque", "parameters", *(["kind"] if "kind" in keys else [])),
            code="ND1021",
        )
        return
    meant = f"requests {', '.join(requests)}" if requests else "all its requests"
    instead = "the topology's DeviceClasses" if "networkTopologyRef" in keys else "a DeviceClass of an administrator"
    yield Finding(
        f"{named} contains configuration for {names.DRIVER}, for {meant}; it is only allowed in a "
        "DeviceClass (decision D32)",
        f"remove it from spec.devices.config, and request {instead}",
        path,
        code="ND1022",
    )


def _keys(opaque: OpaqueDeviceConfiguration | None) -> Mapping[str, Any]:
    """The parameters of a configuration for netdra."""
    if opaque is None or opaque.driver != names.DRIVER or not isinstance(opaque.parameters, dict):
        return {}
    return opaque.parameters


def _wishes(wanted: DeviceClaim, classes: Mapping[str, DeviceClass], path: Path) -> Iterator[_Wish]:
    for at, request in enumerate(wanted.requests):
        for choice, name, place in _choices(request, (*path, "requests", at)):
            device_class = classes.get(choice.device_class_name)
            configs = device_class.spec.config if device_class is not None else ()
            for config in configs:
                meant = parameters(config.opaque, f'DeviceClass "{choice.device_class_name}"')
                if meant is None:
                    continue
                own = name if name == meant.step else request.name
                several = choice.count > 1 or choice.allocation_mode == "All"
                whole = request.name if name == request.name else f"{request.name}/{name}"
                yield _Wish(request.name, own, meant.network_topology_ref.name, meant.step, several, place, whole)


def _choices(request: DeviceRequest, path: Path) -> Iterator[tuple[ExactDeviceRequest | DeviceSubRequest, str, Path]]:
    """The ways to answer a request without admin access, each with its name and place."""
    if request.exactly is not None and not request.exactly.admin_access:
        yield request.exactly, request.name, (*path, "exactly")
    for at, choice in enumerate(request.first_available):
        yield choice, choice.name, (*path, "firstAvailable", at)


def _against(
    named: str,
    name: str,
    wishes: Sequence[_Wish],
    topologies: Mapping[str, NetworkTopology],
    wanted: DeviceClaim,
    classes: Mapping[str, DeviceClass],
    path: Path,
) -> Iterator[Finding]:
    """The errors in all wishes for one topology."""
    if name not in topologies:
        yield replace(mismatches.absent(named, name), path=wishes[0].path)
        return
    if topologies[name].metadata.deletion_timestamp:
        yield Finding(
            what=f'{named} requests devices of NetworkTopology "{name}", which is being deleted',
            hint="request devices of another topology",
            path=wishes[0].path,
            code="ND1023",
        )
        return
    graph, _ = examine(topologies[name])
    if graph is None:
        return
    roots = [step.name for step in graph.roots]
    provided = list(dict.fromkeys(wish.name for wish in wishes))
    if missing := [root for root in roots if root not in provided]:
        yield Finding(
            what=f'NetworkTopology "{name}" requires root step requests {_list(roots)}, '
            f"but {named} only provides requests {_list(provided)}.",
            hint=_of_missing(name, missing, wanted, classes) + _misnamed(wishes, missing),
            path=path,
            code="ND1024",
        )
        return
    for wish in wishes:
        yield from _of_wish(named, graph, wish)


def _misnamed(wishes: Sequence[_Wish], missing: Sequence[str]) -> str:
    """The next step for a request that has the class of a missing root step, and another name; "" without one."""
    wish = next((wish for wish in wishes if wish.step in missing and wish.path[-1] == "exactly"), None)
    return "" if wish is None else f'; rename request "{wish.request}" to "{wish.step}"'


def _of_missing(topology: str, missing: Sequence[str], wanted: DeviceClaim, classes: Mapping[str, DeviceClass]) -> str:
    """The next step for root steps that no request is for: the class of a request with that name, if it is unknown."""
    for request in wanted.requests:
        if request.name in missing and request.exactly is not None and request.exactly.device_class_name not in classes:
            return f'set deviceClassName of request "{request.name}" to "{class_name(topology, request.name)}"'
    return f"Missing: {_list(missing)}"


def _of_wish(named: str, graph: Graph, wish: _Wish) -> Iterator[Finding]:
    if wish.name != wish.step:
        roots = [step.name for step in graph.roots]
        mismatch = mismatches.other_step(named, wish.request, wish.step, graph.topology, roots)
        yield replace(mismatch, path=wish.path)
    elif wish.several and len(graph.roots) > 1:
        yield replace(mismatches.several(named, wish.request, wish.step, graph.topology), path=wish.path)


def _clashing(
    named: str, wishes: Mapping[str, Sequence[_Wish]], topologies: Mapping[str, NetworkTopology], path: Path
) -> Iterator[Finding]:
    """An interface's name that the pod would have twice: by two topologies, or by one that it has several times.

    Requests with alternatives are skipped, since only one of these is chosen.
    """
    graphs: list[Graph] = []
    for name, group in wishes.items():
        certain = [wish for wish in group if wish.path[-1] == "exactly"]
        graph, _ = examine(topologies[name])
        if graph is not None and {wish.step for wish in certain} == {step.name for step in graph.roots}:
            graphs += [graph] * (1 + any(wish.several for wish in certain))
    if len(graphs) < 2 or any(interfaces.examine([graph])[1] for graph in graphs):
        return
    _, clashes = interfaces.examine(graphs)
    is_one = len({graph.topology for graph in graphs}) == 1
    hint = "request one device, or remove interface names from the topology's steps" if is_one else ""
    for clash in clashes[:1]:
        yield Finding(what=f"{named}: {clash.what}", hint=hint or clash.hint, path=path, code=clash.code)


def _list(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"
