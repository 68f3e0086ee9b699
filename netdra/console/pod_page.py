"""A pod's network: the graph of each of its topologies with the state of every step, its addresses, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from netdra.console.frame import field, note, notes, page, table
from netdra.console.markup import Markup, PageAddress, element
from netdra.console.picture import picture
from netdra.console.story_page import steps as story_steps
from netdra.console.story_page import summary
from netdra.model.claim import ResourceClaim
from netdra.model.errors import InvalidInputError
from netdra.model.names import DRIVER
from netdra.model.plan import called
from netdra.model.topology import NetworkTopology
from netdra.story.objects import ClusterState, PlacedPod
from netdra.story.pods import pod_story
from netdra.topology.graph import Graph, compile_topology
from netdra.topology.interfaces import assign

MAX_DRAWN = 64
"""Steps of a graph that is drawn; a larger one is a table only."""


class PodStep(NamedTuple):
    """A step in a pod.

    Attributes:
        state: done, failed, waiting or unknown.
        interface: as it is in the pod; before it runs, as it will be.
        addresses: of its result.
        message: why it failed.
    """

    state: str
    interface: str
    addresses: Sequence[str] = ()
    message: str = ""


def pod_page(cluster: ClusterState, namespace: str, name: str) -> bytes:
    """The page of a pod."""
    told = pod_story(cluster, namespace, name)
    pod = cluster.pod(namespace, name)
    node = pod.spec.node_name if pod is not None else ""
    where = element("p", "Node ", element("a", node, href=PageAddress("nodes", node))) if node else None
    graphs = _graphs(cluster, pod) if pod is not None else None
    content = (summary(told), where, graphs, story_steps(told), notes(told.unread))
    return page(told.subject, content, is_live=True, here="Pod")


def pod_form(asked: Mapping[str, str], problem: str = "") -> bytes:
    """The form that asks for a pod."""
    form = element(
        "form",
        field("Namespace", "place", asked.get("place", "")),
        field("Pod", "name", asked.get("name", "")),
        element("button", "Show the pod's network", type="submit"),
        action=PageAddress("pod"),
        method="get",
    )
    return page("Pod", (note(problem, "problem") if problem else None, form), here="Pod")


def _graphs(cluster: ClusterState, pod: PlacedPod) -> Iterator[Markup]:
    claims = [cluster.claim(pod.metadata.namespace, name) for _, name in pod.claim_names() if name]
    present = [claim for claim in claims if claim is not None]
    topologies = {topology.name: (topology, claim) for claim in present for topology in cluster.known.asked(claim)}
    failures = [] if pod.has_ended else [*_failures(cluster, pod, present)]
    if pod.has_ended and not present:
        yield note("The pod has ended, and has no claims any more.")
    elif not topologies:
        yield note("The pod has no graph: its claims request no device of a NetworkTopology.")
    for topology, claim in topologies.values():
        yield _graph(topology, _done(claim, pod), failures, pod)


def _graph(
    topology: NetworkTopology,
    done: Mapping[tuple[str, str], Mapping[str, Any]],
    failures: Sequence[str],
    pod: PlacedPod,
) -> Markup:
    link = element("a", topology.name, href=PageAddress("why", "topology", topology.name))
    heading = element("h2", "NetworkTopology ", link)
    try:
        graph = compile_topology(topology)
        (interfaces,) = assign([graph])
    except InvalidInputError as problem:
        return element("section", heading, note(str(problem), "problem"))
    states = _states(graph, interfaces, done, failures, pod)
    drawn = picture(graph, {name: step.interface for name, step in states.items()}, _words(states))
    rows = [
        (step.name, step.type, ", ".join(step.depend_on), found.interface, found.state, ", ".join(found.addresses))
        for step in graph.steps
        for found in (states[step.name],)
    ]
    columns = ("Step", "Type", "After", "Interface", "State", "Addresses")
    problems = (note(found.message, "problem") for found in states.values() if found.message)
    shown = element("div", drawn, class_="scroll", tabindex=0, role="group", aria_label="Graph")
    return element(
        "section",
        heading,
        shown if len(graph.steps) <= MAX_DRAWN else note("The graph is too large to be drawn."),
        problems,
        table(f"Steps of {topology.name}", columns, rows),
    )


def _words(states: Mapping[str, PodStep]) -> Mapping[str, str]:
    return {name: step.state for name, step in states.items()}


def _states(
    graph: Graph,
    interfaces: Mapping[str, str],
    done: Mapping[tuple[str, str], Mapping[str, Any]],
    failures: Sequence[str],
    pod: PlacedPod,
) -> dict[str, PodStep]:
    """Each step's state in the pod."""
    states: dict[str, PodStep] = {}
    # A status that would be too long has the first steps only; a pod is attached as a whole or not at all.
    rest = "done" if done or pod.is_running else "waiting" if pod.is_waiting else "unknown"
    for step in graph.steps:
        report = done.get((graph.topology, step.name))
        mark = called(graph.topology, step.name)
        failure = next((text for text in failures if mark in text), "")
        if report is not None:
            interface = str(report.get("interface") or interfaces[step.name])
            states[step.name] = PodStep("done", interface, _addresses(report.get("result")))
        elif failure:
            states[step.name] = PodStep("failed", interfaces[step.name], message=failure)
        else:
            states[step.name] = PodStep(rest, interfaces[step.name])
    return states


def _done(claim: ResourceClaim, pod: PlacedPod) -> dict[tuple[str, str], Mapping[str, Any]]:
    """The steps that the claim's status reports of the pod, by topology and step."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for status in claim.status.devices:
        pods = status.data.get("pods") if status.driver == DRIVER and isinstance(status.data, Mapping) else None
        for entry in _mappings(pods):
            for step in _mappings(entry.get("steps")) if entry.get("uid") == pod.metadata.uid else ():
                found[str(step.get("topology", "")), str(step.get("step", ""))] = step
    return found


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    """The mappings of a list that a driver has written freely."""
    yield from (entry for entry in value if isinstance(entry, Mapping)) if isinstance(value, list | tuple) else ()


def _addresses(result: object) -> tuple[str, ...]:
    ips = result.get("ips") if isinstance(result, Mapping) else None
    return tuple(str(ip.get("address", "")) for ip in _mappings(ips))


def _failures(cluster: ClusterState, pod: PlacedPod, claims: Sequence[ResourceClaim]) -> Iterator[str]:
    """The messages that may name a step: of the claims' conditions, then of the last event."""
    for claim in claims:
        for status in claim.status.devices:
            for condition in _mappings(status.conditions):
                if condition.get("status") == "False":
                    yield str(condition.get("message", ""))
    if pod.is_waiting:
        events = cluster.events_of("Pod", pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)
        yield from (event.message for event in events[-1:] if event.type == "Warning")
