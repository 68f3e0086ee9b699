"""The flow along a pod's graph: which step comes after which, and the results that each step is given.

Pure. On ADD a step's `prevResult` is the merge of its dependencies' results (decision D9). On DEL it is the merge of
all that was built on the step, which for a chain is its final result, as the CNI specification asks. On CHECK it is the
same, as far as the graph is a chain there: stock plugins take every address in it for their own interface's. Results
are handed on from step to step, so a change in one of two branches is not in the other's results. Where several results
have an interface, the one of the step that changed it last counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from netdra.cni.config import check_if_name, check_network_name
from netdra.model.errors import InvalidInputError
from netdra.model.plan import Plan, PlannedDevice, PlannedStep, called
from netdra.model.result import CNIInterface, StepResult
from netdra.topology.merge import merge
from netdra.topology.references import resolve

Results = Mapping[str, StepResult]
_Interfaces = dict[tuple[str, str], CNIInterface]
_NOTHING = StepResult()
MOVE_ROUTES = frozenset({"sbr", "vrf"})
"""The programs that move the routes of their interface from the main table to one of its own."""
_COUNT_INTERFACES = frozenset({"ovs"})
"""The programs that take each interface of the result for one of their own on CHECK."""


class ChainStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one of the pod's plans.

    Attributes:
        key: its key in the checkpoint: the place of its plan, and its name.
        topology: the plan's topology.
        step: the step.
        after: the keys of its dependencies.
        ancestors: step name -> key, for all that the step's config may refer to.
        below: the allocated devices that a derived step stands on, in the order of the plan.
    """

    key: str
    topology: str
    step: PlannedStep
    after: tuple[str, ...]
    ancestors: Mapping[str, str]
    below: tuple[PlannedDevice, ...] = ()

    def resolved(self, config: Mapping[str, Any], graph: Mapping[str, ChainStep], results: Results) -> dict[str, Any]:
        """A config of the step without references, by the results and allocated devices of its ancestors.

        Raises:
            ConfigError: a reference leads nowhere.
        """
        ancestors = {name: graph[key].step.device for name, key in self.ancestors.items()}
        addresses = {name: device.own_pci_address for name, device in ancestors.items() if device is not None}
        return resolve(config, {name: results[key] for name, key in self.ancestors.items()}, addresses)

    @property
    def is_binary(self) -> bool:
        """Whether it is a process of its own."""
        return self.step.execution == "Binary"

    @property
    def runs_programs(self) -> bool:
        """Whether a program acts for it, its own or one that gives addresses, which may keep data on the disk."""
        return self.is_binary or bool(self.step.config.get("ipam"))


def tasks(plans: Sequence[Plan], first: int = 0) -> dict[str, ChainStep]:
    """All steps of a pod's plans by key, in the order in which they run.

    Args:
        plans: the pod's.
        first: the place of the first plan among all of the pod's.

    Raises:
        InvalidInputError: a plan is not a graph in that order, or an interface or a network cannot be named so.
    """
    by_key: dict[str, ChainStep] = {}
    for place, plan in enumerate(plans, first):
        before: dict[str, ChainStep] = {}
        for step in plan.steps:
            task = _task(place, plan.topology, step, before)
            before[step.name] = by_key[task.key] = task
    return by_key


def edges(graph: Mapping[str, ChainStep]) -> dict[str, tuple[str, ...]]:
    """For each step its predecessors: its dependencies among these steps, and the step before it on its interface.

    Two steps that change one interface run in the plan's order though neither depends on the other: the second finds,
    and gives back when it is undone, the interface as the first has made it.
    """
    latest: dict[str, str] = {}
    comes_after: dict[str, tuple[str, ...]] = {}
    for key, task in graph.items():
        before = (*task.after, latest.get(task.step.if_name, ""))
        comes_after[key] = tuple(dict.fromkeys(other for other in before if other in graph))
        latest[task.step.if_name] = key
    return comes_after


def began_after(
    key: str, kinds: Collection[str], graph: Mapping[str, ChainStep], begun: Sequence[str]
) -> tuple[str, ...]:
    """The keys of the steps of these types that began after a step on its interface, in the order in which they did."""
    later = ((other, graph[other].step) for other in begun[begun.index(key) + 1 :])
    return tuple(other for other, step in later if step.type in kinds and step.if_name == graph[key].step.if_name)


def previous(task: ChainStep, graph: Mapping[str, ChainStep], results: Results) -> StepResult:
    """A step's previous result: the result of its one dependency as it is, or the merge of several."""
    given = merge([results.get(dependency, _NOTHING) for dependency in task.after])
    if len(task.after) < 2:
        return given
    before = set(task.ancestors.values())
    return _renewed(given, _latest({key: ancestor for key, ancestor in graph.items() if key in before}, results))


def final(key: str, graph: Mapping[str, ChainStep], results: Results) -> StepResult | None:
    """The merge of the last results that build on a step; its own if it is the last, None if none exist."""
    builds_on = {key}
    for other, task in graph.items():
        if builds_on.intersection(task.after):
            builds_on.add(other)
    with_result = [step for step in graph if step in builds_on and step in results]
    inner = {dependency for step in with_result for dependency in graph[step].after}
    last = [results[step] for step in with_result if step not in inner]
    return _renewed(merge(last), _latest(graph, results)) if last else None


def to_check(key: str, graph: Mapping[str, ChainStep], results: Results) -> StepResult:
    """A binary's previous result on CHECK: that of the last step that follows it in a chain on its interface.

    Where the graph branches, branches meet, or another interface is made, the chain ends: the binary would not find on
    its interface the additions there. ovs-cni does not get interfaces that later steps made: it takes each for its own
    one on the host (ExtractInterfaces() in pkg/common/common.go). After a step that moves the interface's routes to a
    table of their own none exist: plugins look in the main table alone (ValidateExpectedRoute() in
    containernetworking/plugins, pkg/ip/utils_linux.go).
    """
    last, moves_routes = key, False
    while True:
        after = [follower for follower, task in graph.items() if last in task.after and follower in results]
        if len(after) != 1:
            break
        task = graph[after[0]]
        if len(task.after) > 1 or task.step.if_name != graph[key].step.if_name:
            break
        last = after[0]
        moves_routes = moves_routes or task.step.type in MOVE_ROUTES
    given = _renewed(results.get(last, _NOTHING), _latest(graph, results))
    if graph[key].step.type in _COUNT_INTERFACES:
        own = {(interface.name, interface.sandbox) for interface in results.get(key, _NOTHING).interfaces}
        given = _restricted(given, own)
    return msgspec.structs.replace(given, routes=()) if moves_routes else given


def expected(key: str, graph: Mapping[str, ChainStep], results: Results) -> StepResult:
    """The result that a built-in step is checked by: all interfaces as the last steps left them, and its own devices.

    The result of a binary that changes an interface need not have the MTU: then the MTU is left out, unless a tuning
    step has set or read it after that.
    """
    latest, unsaid = _latest(graph, results), set()
    for step, task in graph.items():
        identity = (
            task.step.if_name,
            next((i.sandbox for i in results.get(step, _NOTHING).interfaces if i.sandbox), ""),
        )
        if task.step.type == "tuning" and (task.step.config.get("mtu") or not task.is_binary):
            unsaid.discard(identity)
        elif task.is_binary and task.after:
            unsaid.add(identity)
    for identity in unsaid & latest.keys():
        latest[identity] = msgspec.structs.replace(latest[identity], mtu=0)
    everything = merge([results[step] for step in graph if step in results])
    return msgspec.structs.replace(_renewed(everything, latest), devices=results.get(key, _NOTHING).devices)


def _latest(graph: Mapping[str, ChainStep], results: Results) -> _Interfaces:
    """Each interface as in the result of the step that made it or changed it last."""
    latest: _Interfaces = {}
    for key, task in graph.items():
        given = {interface for dependency in task.after for interface in results.get(dependency, _NOTHING).interfaces}
        for interface in results.get(key, _NOTHING).interfaces:
            if interface not in given:
                latest[interface.name, interface.sandbox] = _filled(
                    interface, latest.get((interface.name, interface.sandbox))
                )
    return latest


def _filled(interface: CNIInterface, before: CNIInterface | None) -> CNIInterface:
    """An interface with the fields that an older protocol version could not pass on."""
    if before is None:
        return interface
    return msgspec.structs.replace(
        interface,
        mtu=interface.mtu or before.mtu,
        pci_id=interface.pci_id or before.pci_id,
        socket_path=interface.socket_path or before.socket_path,
    )


def _restricted(result: StepResult, names: Collection[tuple[str, str]]) -> StepResult:
    """A result with these interfaces alone, by name and sandbox, and the addresses of no other."""
    kept = [place for place, interface in enumerate(result.interfaces) if (interface.name, interface.sandbox) in names]
    if len(kept) == len(result.interfaces):
        return result
    return msgspec.structs.replace(
        result,
        interfaces=tuple(result.interfaces[place] for place in kept),
        ips=tuple(
            ip if ip.interface is None else msgspec.structs.replace(ip, interface=kept.index(ip.interface))
            for ip in result.ips
            if ip.interface is None or ip.interface in kept
        ),
    )


def _renewed(result: StepResult, latest: _Interfaces) -> StepResult:
    interfaces = tuple(latest.get((interface.name, interface.sandbox), interface) for interface in result.interfaces)
    return msgspec.structs.replace(result, interfaces=interfaces)


def _task(place: int, topology: str, step: PlannedStep, before: Mapping[str, ChainStep]) -> ChainStep:
    named = called(topology, step.name)
    if step.name in before:
        raise InvalidInputError(f"{named}: the plan contains two steps with this name", code="ND2117")
    for dependency in step.depend_on:
        if dependency not in before:
            raise InvalidInputError(
                f'{named}: it depends on "{dependency}", which is not an earlier step of the plan', code="ND2118"
            )
    check_if_name(step.if_name)
    check_network_name(step.network)
    ancestors: dict[str, str] = {}
    for dependency in step.depend_on:
        ancestors |= before[dependency].ancestors
        ancestors[dependency] = before[dependency].key
    return ChainStep(
        key=f"{place}/{step.name}",
        topology=topology,
        step=step,
        after=tuple(before[dependency].key for dependency in step.depend_on),
        ancestors=ancestors,
        below=tuple(
            task.step.device for name, task in before.items() if name in ancestors and task.step.device is not None
        ),
    )
