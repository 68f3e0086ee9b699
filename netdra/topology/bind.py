"""Allocated claims and topologies -> plans: the steps to run in a pod, with the device of each root step.

Called at Prepare for a claim and at the pod's start for all of its claims, by the lab and by `netdra render`. Plans are
complete: running and undoing one needs no further input (decision D13).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from netdra.model import names
from netdra.model.claim import DeviceRequestAllocationResult, OpaqueDeviceConfiguration, ResourceClaim
from netdra.model.errors import InvalidInputError, TemporaryError
from netdra.model.findings import refuse
from netdra.model.kept import Keep
from netdra.model.meta import ObjectMeta
from netdra.model.plan import Binding, ClaimReference, PlainDevice, Plan, PlannedDevice, PlannedStep
from netdra.model.suggestions import listed
from netdra.model.topology import NetworkTopology, ParameterValues, Step, TopologyParameters
from netdra.topology import interfaces, mismatches, neutron_request, parameters, plain, references, surroundings
from netdra.topology.attachment import completed
from netdra.topology.binaries import nad_network
from netdra.topology.classes import class_name, only_topology
from netdra.topology.devices import DeviceKey, ShareKey
from netdra.topology.graph import Graph, compile_topology
from netdra.topology.surroundings import NOWHERE, Surroundings

EXTENDED_RESOURCE_CLAIM = names.EXTENDED_RESOURCE_CLAIM


def is_for_extended_resources(metadata: ObjectMeta) -> bool:
    """Whether the scheduler made a claim for a pod's extended resources: it has the annotation, and a pod owns it.

    Any user can write the annotation on a claim. The scheduler's claims belong to the pod that it schedules
    (pkg/scheduler/framework/plugins/dynamicresources, extended resources), and are named after it.
    """
    if metadata.annotations.get(EXTENDED_RESOURCE_CLAIM) != "true":
        return False
    owners = [owner_reference for owner_reference in metadata.owner_references if owner_reference.controller]
    return [(owner.api_version, owner.kind) for owner in owners] == [("v1", "Pod")] and bool(owners[0].uid)


SHARED_NETWORK = "netdra_"
"""The prefix of shared networks' names: no topology's name has an underscore, and no other user of the node's IPAM
plugins is likely to have one; GC of a network frees what netdra does not know of."""

_BOND = "bond"
_MOST_GRAPHS = 256
_graphs: dict[str, tuple[NetworkTopology, Graph]] = {}
"""By name, the topology that was compiled last, and its graph: each pod's start binds anew, and compiling takes
milliseconds."""


class _Allotted(msgspec.Struct, frozen=True):
    """A device that a claim was allocated for a step of a topology."""

    step: str
    result: DeviceRequestAllocationResult


class _Run(msgspec.Struct, frozen=True):
    """A graph that is to be run for a claim, with a device for each of its root steps.

    `network` is the name of the CNI configurations' networks, where that is not the topology and the step.
    """

    claim: ResourceClaim
    graph: Graph
    devices: Mapping[str, DeviceRequestAllocationResult]
    network: str = ""
    parameters: Mapping[str, Any] = {}
    pod: str = ""


class _Known(NamedTuple):
    """The facts of the devices of a node, and of the VFs that were chosen for shares of pooled VFs."""

    devices: Mapping[DeviceKey, PlannedDevice]
    chosen: Mapping[ShareKey, PlannedDevice]


def bind(
    claims: Sequence[ResourceClaim],
    topologies: Mapping[str, NetworkTopology],
    devices: Mapping[DeviceKey, PlannedDevice],
    chosen: Mapping[ShareKey, PlannedDevice] = MappingProxyType({}),
    place: Surroundings = NOWHERE,
) -> Binding:
    """The plans of one pod's claims, and its devices that no step attaches.

    Only configuration that came from a class counts (decision D32), and a claim's values for parameters that its
    topology declares (D32). Results of other drivers and shares of PodNetworks' addresses are skipped; a device with
    admin access is never a step's. A topology with a single root step is run once for each device that was allocated
    for a request of it; a topology with several takes exactly one device a root step. A device without a topology is
    attached by one step (`netdra.topology.plain`); where no step is known for it, it is among the plain devices.

    Args:
        claims: in the order in which the pod names them, which is the order of net1, net2 …
        topologies: by name; at least those that the claims' configuration refers to.
        devices: the facts of the driver's devices, by pool and name.
        chosen: the VFs that were chosen for shares of pooled VFs.
        place: the facts of the node and the pod, to which steps may refer (decision D63).

    Raises:
        InvalidInputError: a claim does not fit its topology, a fact does not exist, or the interfaces of the pod clash.
        TemporaryError: a claim is not allocated, or a topology or a device's facts are not known (yet).
    """
    known = _Known(devices, chosen)
    runs: list[_Run] = []
    idle: list[PlainDevice] = []
    for claim in claims:
        groups = _grouped(claim)
        _check_given(claim, groups)
        for topology, allotted in groups.items():
            if isinstance(topology, str):
                graph = _compiled(claim, topology, topologies)
                given = _parameters(claim, graph, allotted)
                runs += (
                    _with_facts(msgspec.structs.replace(run, parameters=given), known, place)
                    for run in _runs(claim, graph, allotted)
                )
                continue
            run = _alone(claim, allotted[0].result, known)
            if run is not None:
                runs.append(run)
            else:
                idle.append(_plain(claim, allotted[0].result, known))
    named = interfaces.assign([run.graph for run in runs])
    plans = tuple(_plan(run, interface_names, known) for run, interface_names in zip(runs, named, strict=True))
    return Binding(plans=plans, plain=tuple(idle))


def addressed_steps(claim: ResourceClaim, topologies: Mapping[str, NetworkTopology]) -> Iterator[tuple[str, Step, int]]:
    """The steps of a claim whose addresses come from PodNetworks, with the claim's values, without asking for devices.

    Yields:
        the topology, the step, and how often the topology was run for the claim before.

    Raises:
        InvalidInputError: the claim does not fit its topology.
        TemporaryError: the claim is not allocated, or a topology is not known (yet).
    """
    for topology, allotted in _grouped(claim).items():
        if not isinstance(topology, str):
            continue
        graph = _compiled(claim, topology, topologies)
        if not any(step.pod_network for step in graph.steps):
            continue
        steps = filled(graph, _parameters(claim, graph, allotted)).steps
        for number, _ in enumerate(_runs(claim, graph, allotted)):
            yield from ((topology, step, number) for step in steps if step.pod_network)


def unbound(topology: NetworkTopology, given: Mapping[str, Any] | None = None) -> Plan:
    """The plan of a topology without an allocated claim: what can be checked and shown before there is one.

    Args:
        topology: as administrators wrote it.
        given: checked values of its parameters; without it the defaults, and references to parameters without one stay.

    Raises:
        InvalidInputError: the topology is unsound, or its interfaces clash.
    """
    graph = compile_topology(topology)
    (named,) = interfaces.assign([graph])
    return planned(graph, named, given)


def planned(graph: Graph, named: Mapping[str, str], given: Mapping[str, Any] | None = None) -> Plan:
    """The plan of a topology's graph without an allocated claim, as `unbound`.

    Args:
        graph: with or without the values of facts.
        named: the interface of each step.
        given: as of `unbound`.
    """
    values = parameters.defaults(graph.parameters) if given is None else given
    return Plan(
        topology=graph.topology,
        claim=ClaimReference(namespace="", name="", uid=""),
        steps=_steps(graph, named, {}, values),
        parameters=values,
    )


def network_name(topology: str, step: Step) -> str:
    """The `name` in the CNI configuration of a topology's step, by which IPAM plugins keep leases."""
    of_nad = nad_network(step.type, step.config)
    if of_nad:
        return of_nad
    return f"{SHARED_NETWORK}{step.network}" if step.network else f"{topology}-{step.name}"


def _grouped(claim: ResourceClaim) -> dict[str | int, list[_Allotted]]:
    """The claim's devices by topology, and each one without a topology by its place in the allocation."""
    allocation = claim.status.allocation
    if allocation is None:
        raise TemporaryError(f"{_named(claim)} is not allocated", hint="wait until the pod is scheduled", code="ND1265")
    groups: dict[str | int, list[_Allotted]] = {}
    for place, result in enumerate(allocation.devices.results):
        if not result.is_attachable:
            continue
        meant = None if result.admin_access else _meant(claim, result.request)
        if meant is None:
            groups[place] = [_Allotted("", result)]
        else:
            groups.setdefault(meant.network_topology_ref.name, []).append(_Allotted(meant.step, result))
    return groups


def _meant(claim: ResourceClaim, request: str) -> TopologyParameters | None:
    """The topology and step that the class of a request carries."""
    return only_topology(_from_class(claim, request), f'{_named(claim)}, request "{request}"')


def _from_class(claim: ResourceClaim, request: str) -> Iterator[OpaqueDeviceConfiguration | None]:
    """The configuration that the class of a request brought with it."""
    assert claim.status.allocation is not None
    main = request.split("/", 1)[0]
    for config in claim.status.allocation.devices.config:
        covered = not config.requests or request in config.requests or main in config.requests
        if covered and config.source == "FromClass":
            yield config.opaque


def _with_facts(run: _Run, known: _Known, place: Surroundings) -> _Run:
    """A run with the facts of its devices, the node and the pod: the names of interfaces may consist of them."""
    if not any(run.graph.facts.values()):
        return run
    devices = {step: _device(run.claim, result, known) for step, result in run.devices.items()}
    graph, pod = surroundings.bound(run.graph, devices, run.claim, place)
    return msgspec.structs.replace(run, graph=graph, pod=pod)


def _alone(claim: ResourceClaim, result: DeviceRequestAllocationResult, known: _Known) -> _Run | None:
    """The run of a device without a topology; None if nothing is run for it."""
    if result.admin_access:
        return None
    name = plain.class_of(claim, result.request)
    origin = f'{_named(claim)}, request "{result.request}"' + (f', DeviceClass "{name}"' if name else "")
    given = plain.only(_from_class(claim, result.request), origin)
    graph = plain.graph_of(_device(claim, result, known), given, origin)
    if graph is None:
        return None
    (step,) = graph.steps
    return _Run(claim, graph, {step.name: result}, name or step.name)


def _compiled(claim: ResourceClaim, name: str, topologies: Mapping[str, NetworkTopology]) -> Graph:
    if name not in topologies:
        missing = mismatches.absent(_named(claim), name)
        raise TemporaryError(missing.what, hint=missing.hint, code=missing.code)
    topology = topologies[name]
    compiled = _graphs.get(name)
    if compiled is None or compiled[0] is not topology:
        if len(_graphs) >= _MOST_GRAPHS:
            _graphs.clear()
        _graphs[name] = compiled = (topology, compile_topology(topology))
    return compiled[1]


def _parameters(claim: ResourceClaim, graph: Graph, allotted: Sequence[_Allotted]) -> dict[str, Any]:
    """The values of a topology's parameters: the claim's, and defaults.

    Raises:
        InvalidInputError: a value is missing, does not fit, or is for no parameter.
    """
    origin = _named(claim)
    try:
        configs = [
            values
            for requests, values in _claim_values(claim)
            if parameters.covers(requests, (entry.result.request for entry in allotted))
        ]
        given = parameters.together(configs, parameters.ordinal_of(claim.metadata))
        return parameters.complete(graph.topology, graph.parameters, given)
    except InvalidInputError as problem:
        raise InvalidInputError(f"{origin}: {problem.what}", hint=problem.hint, code=problem.code) from None


def _claim_values(claim: ResourceClaim) -> Iterator[tuple[tuple[str, ...], ParameterValues]]:
    """The claim's values of parameters, each configuration with the requests that it is for."""
    assert claim.status.allocation is not None
    for config in claim.status.allocation.devices.config:
        values = parameters.values_of(config.opaque, _named(claim)) if config.source == "FromClaim" else None
        if values is not None:
            yield config.requests, values


def _check_given(claim: ResourceClaim, groups: Mapping[str | int, Sequence[_Allotted]]) -> None:
    """Refuse values that no topology gets, unless another alternative of a request could have been a topology's.

    Raises:
        InvalidInputError: there are such values.
    """
    for requests, _ in _claim_values(claim):
        got = [
            key
            for key, allotted in groups.items()
            if parameters.covers(requests, (entry.result.request for entry in allotted))
            if isinstance(key, str) or "/" in allotted[0].result.request
        ]
        if not got:
            refuse([mismatches.for_nothing(_named(claim), requests)])


def _runs(claim: ResourceClaim, graph: Graph, allotted: Sequence[_Allotted]) -> list[_Run]:
    """How often a topology is run for a claim, and with which devices."""
    roots = [step.name for step in graph.roots]
    given: dict[str, list[DeviceRequestAllocationResult]] = {root: [] for root in roots}
    astray: list[_Allotted] = []
    for entry in allotted:
        fits = entry.step in given and _answers(claim, entry.result.request, entry.step)
        if fits:
            given[entry.step].append(entry.result)
        else:
            astray.append(entry)
    for root in roots:
        if not given[root]:
            raise _missing(claim, graph, root)
    for entry in astray:
        refuse([mismatches.other_step(_named(claim), entry.result.request, entry.step, graph.topology, roots)])
    if len(roots) == 1:
        return [_Run(claim, graph, {roots[0]: result}) for result in given[roots[0]]]
    for root in roots:
        if len(given[root]) > 1:
            refuse([mismatches.several(_named(claim), given[root][0].request, root, graph.topology)])
    return [_Run(claim, graph, {root: results[0] for root, results in given.items()})]


def _answers(claim: ResourceClaim, request: str, step: str) -> bool:
    """Whether a request is for a step: the request, or the chosen alternative, has the step's name."""
    return step in request.split("/", 1) or is_for_extended_resources(claim.metadata)


def _missing(claim: ResourceClaim, graph: Graph, root: str) -> InvalidInputError:
    return InvalidInputError(
        f'NetworkTopology "{graph.topology}" root step "{root}" has no matching device request in '
        f'ResourceClaim "{claim.metadata.name}".',
        hint=f'The ResourceClaim must contain a request named "{root}" with '
        f'deviceClassName "{class_name(graph.topology, root)}".',
        code="ND1266",
    )


def _plan(run: _Run, named: Mapping[str, str], known: _Known) -> Plan:
    allotted = {step: _device(run.claim, result, known) for step, result in run.devices.items()}
    steps = _steps(run.graph, named, allotted, run.parameters, run.network)
    return Plan(
        topology=run.graph.topology, claim=run.claim.reference, steps=steps, parameters=run.parameters, pod=run.pod
    )


def _steps(
    graph: Graph,
    named: Mapping[str, str],
    allotted: Mapping[str, PlannedDevice],
    given: Mapping[str, Any],
    network: str = "",
) -> tuple[PlannedStep, ...]:
    return tuple(
        PlannedStep(
            name=step.name,
            type=step.type,
            if_name=named[step.name],
            network=nad_network(step.type, step.config) or network or network_name(graph.topology, step),
            execution="Builtin" if step.is_builtin else "Binary",
            depend_on=step.depend_on,
            config=completed(graph, step, allotted.get(step.name)),
            device=allotted.get(step.name),
            neutron=step.neutron,
            pod_network=step.pod_network,
            keep=_keep(graph, step, allotted.get(step.name)),
            default_route=step.default_route,
            source_routing=step.source_routing,
            sysctls=step.sysctls,
        )
        for step in filled(graph, given).steps
    )


def filled(graph: Graph, given: Mapping[str, Any]) -> Graph:
    """A graph with the values of parameters in its steps' configs and requests to Neutron."""
    if not any(graph.asked.values()):
        return graph
    replace = msgspec.structs.replace
    steps = (
        replace(
            step,
            config=references.fill(step.config, given),
            neutron=None if step.neutron is None else neutron_request.fill(step.neutron, given),
        )
        if graph.asked[step.name]
        else step
        for step in graph.steps
    )
    return replace(graph, steps=tuple(steps))


def _plain(claim: ResourceClaim, result: DeviceRequestAllocationResult, known: _Known) -> PlainDevice:
    return PlainDevice(
        claim=claim.reference,
        device=_device(claim, result, known),
        admin_access=bool(result.admin_access),
    )


def _keep(graph: Graph, step: Step, device: PlannedDevice | None) -> tuple[Keep, ...] | None:
    """The parts that a step's device keeps; None for its policy's choice. A bond's member has no addresses."""
    by_policy = step.keep is None and device is not None and device.keep
    if by_policy and any(step.name in other.depend_on for other in graph.steps if other.type == _BOND):
        return ()
    return step.keep


def _device(claim: ResourceClaim, result: DeviceRequestAllocationResult, known: _Known) -> PlannedDevice:
    key = (result.pool, result.device)
    facts = known.chosen.get((*key, result.share_id or "")) or known.devices.get(key)
    if facts is None:
        offered = [device for pool, device in known.devices if pool == result.pool]
        what = (
            f'{_named(claim)}, request "{result.request}": device "{result.device}" of pool "{result.pool}" is not '
            "known on this node"
        )
        anew = "delete the pod, so that it is scheduled again"
        if not offered:
            raise TemporaryError(
                what, hint=f"see whether the driver still publishes it: netdra plan; if not, {anew}", code="ND1267"
            )
        raise TemporaryError(
            f"{what}; policies offer {listed(offered, 3)} of this pool now",
            hint=f"the policies or the hardware have changed since the claim was allocated; {anew}",
            code="ND1268",
        )
    return msgspec.structs.replace(
        facts,
        request=result.request,
        share_id=result.share_id or "",
        consumed_capacity={name: str(amount) for name, amount in result.consumed_capacity.items()},
    )


def _named(claim: ResourceClaim) -> str:
    namespace = f"{claim.metadata.namespace}/" if claim.metadata.namespace else ""
    return f'ResourceClaim "{namespace}{claim.metadata.name}"'
