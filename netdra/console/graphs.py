"""Topologies as pictures with a table below: with the state of each step in a pod, or with failures. Pure.

Pictures are SVG in the layout of `netdra graph`. Colours are the style sheet's; each box has its state in words, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from netdra.cluster.objects import ClusterState, PlacedPod
from netdra.console.frame import TONES, link, note, state, table, together
from netdra.console.markup import Markup, PageAddress, element
from netdra.drawing.layout import Box, Connector, lay_out
from netdra.drawing.terminal import labels
from netdra.model.claim import ResourceClaim, selected_node
from netdra.model.errors import InvalidInputError
from netdra.model.names import DRIVER
from netdra.model.plan import called
from netdra.model.topology import NetworkTopology
from netdra.slices.allocator import claim_key
from netdra.story.usage import ClassUse, class_uses
from netdra.topology.classes import class_name
from netdra.topology.graph import Graph, compile_topology
from netdra.topology.interfaces import assign

MAX_DRAWN = 64
"""Steps of a graph that is drawn; a larger one is a table only."""
MAX_FAILURES = 20
_WIDTH, _HEIGHT, _MARGIN = 8, 19, 12
_MAX_TEXT = 40
"""Characters of a line of a box."""


class PodStep(NamedTuple):
    """A step in a pod.

    Attributes:
        state: done, failed, waiting or unknown.
        interface: as it is in the pod; before it runs, as it will be.
        addresses: of its result.
        message: why it failed.
        device: the device of a root step, as node and name; empty names if it is not known.
    """

    state: str
    interface: str
    addresses: Sequence[str] = ()
    message: str = ""
    device: tuple[str, str] = ("", "")


def pod_graphs(cluster: ClusterState, pod: PlacedPod, cause: str = "") -> Iterator[Markup]:
    """The graph of each topology of a pod; failures that the cause states are not repeated."""
    claims = [cluster.claim(pod.metadata.namespace, name) for _, name in pod.claim_names() if name]
    present = [claim for claim in claims if claim is not None]
    topologies = {topology.name: (topology, claim) for claim in present for topology in cluster.known.asked(claim)}
    failures = [] if pod.has_ended else [*_failures(cluster, pod, present)]
    if pod.has_ended and not present:
        yield note("The pod has ended, and has no claims any more.")
    elif not topologies:
        yield note("The pod has no graph: its claims request no device of a NetworkTopology.")
    for topology, claim in topologies.values():
        yield _pod_graph(topology, claim, failures, pod, cause)


def _pod_graph(
    topology: NetworkTopology, claim: ResourceClaim, failures: Sequence[str], pod: PlacedPod, cause: str
) -> Markup:
    heading = element("h2", "NetworkTopology ", link(topology.name, "topologies", topology.name))
    try:
        graph = compile_topology(topology)
        (interfaces,) = assign([graph])
    except InvalidInputError as problem:
        return element("section", heading, note(str(problem), "problem"))
    steps = _pod_steps(graph, interfaces, claim, failures, pod)
    drawn = {
        name: DrawnStep(
            step.interface, step.state, [*filter(None, (step.device[1],)), *step.addresses[:2]], _device(step)
        )
        for name, step in steps.items()
    }
    rows = [
        (
            step.name,
            step.type,
            ", ".join(step.depend_on),
            link(found.device[1], "devices", *found.device) if found.device[1] else "",
            found.interface,
            state(found.state),
            ", ".join(found.addresses),
        )
        for step in graph.steps
        for found in (steps[step.name],)
    ]
    columns = ("Step", "Type", "After", "Device", "Interface", "State", "Addresses")
    problems = (
        element("p", state("failed"), " ", element("b", name), f": {found.message}", class_="failure")
        for name, found in steps.items()
        if found.message and found.message not in cause
    )
    return element(
        "section", heading, _drawing(graph, drawn), problems, table(f"Steps of {topology.name}", columns, rows)
    )


def _device(step: PodStep) -> PageAddress | None:
    return PageAddress("devices", *step.device) if all(step.device) else None


def _drawing(graph: Graph, steps: Mapping[str, DrawnStep]) -> Markup:
    if len(graph.steps) > MAX_DRAWN:
        return note("The graph is too large to be drawn.")
    return element("div", picture(graph, steps), class_="scroll", tabindex=0, role="group", aria_label="Graph")


def _pod_steps(
    graph: Graph,
    interfaces: Mapping[str, str],
    claim: ResourceClaim,
    failures: Sequence[str],
    pod: PlacedPod,
) -> dict[str, PodStep]:
    """Each step's state in the pod."""
    done, devices = _done(claim, pod), _devices(claim)
    steps: dict[str, PodStep] = {}
    # A status that would be too long has the first steps only; a pod is attached as a whole or not at all.
    rest = "done" if done or pod.is_running else "waiting" if pod.is_waiting else "unknown"
    for step in graph.steps:
        report = done.get((graph.topology, step.name))
        mark = called(graph.topology, step.name)
        failure = next((text for text in failures if mark in text), "")
        device = devices.get(class_name(graph.topology, step.name), ("", "")) if step.is_root else ("", "")
        if report is not None:
            interface = str(report.get("interface") or interfaces[step.name])
            found = PodStep("done", interface, _addresses(report.get("result")), device=device)
        elif failure:
            found = PodStep("failed", interfaces[step.name], message=failure, device=device)
        else:
            found = PodStep(rest, interfaces[step.name], device=device)
        steps[step.name] = found
    return steps


def _devices(claim: ResourceClaim) -> dict[str, tuple[str, str]]:
    """The first allocated device of each DeviceClass of a claim, with its node."""
    allocation = claim.status.allocation
    if allocation is None:
        return {}
    classes = {
        request.name: request.exactly.device_class_name
        for request in claim.spec.devices.requests
        if request.exactly is not None
    }
    node = selected_node(allocation.node_selector)
    found: dict[str, tuple[str, str]] = {}
    for result in allocation.devices.results:
        if result.is_attachable and result.request in classes:
            found.setdefault(classes[result.request], (node or result.pool.partition("/")[0], result.device))
    return found


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
        yield from condition_messages(claim)
    if pod.is_waiting:
        events = cluster.events_of("Pod", pod.metadata.name, pod.metadata.namespace, pod.metadata.uid)
        yield from (event.message for event in events[-1:] if event.type == "Warning")


def condition_messages(claim: ResourceClaim) -> Iterator[str]:
    """The messages of a claim's devices that are not ready."""
    for status in claim.status.devices:
        for condition in _mappings(status.conditions):
            if condition.get("status") == "False":
                yield str(condition.get("message", ""))


def topology_graph(cluster: ClusterState, topology: NetworkTopology) -> Markup:
    """The graph of a topology, with failures of claims at their step, and the devices of each root step."""
    try:
        graph = compile_topology(topology)
        (interfaces,) = assign([graph])
    except InvalidInputError as problem:
        return note(str(problem), "problem")
    failures = _step_failures(cluster.claims, graph)
    uses = _uses(cluster, graph)
    drawn: dict[str, DrawnStep] = {}
    rows = []
    for step in graph.steps:
        use, failing = uses.get(step.name), failures.get(step.name, ())
        devices = f"{use.free} of {use.devices} devices free" if use is not None else ""
        name = "failed" if failing else "Trouble" if use is not None and not use.devices else "ok"
        words = f"{len(failing)} claims fail" if failing else ""
        drawn[step.name] = DrawnStep(interfaces[step.name], name, [*filter(None, (devices, words))])
        rows.append(
            (
                step.name,
                step.type,
                ", ".join(step.depend_on),
                interfaces[step.name],
                class_name(topology.name, step.name) if step.is_root else "",
                devices,
                step.pod_network and link(step.pod_network, "networks", step.pod_network),
                together(link(claim_key(claim), "claims", *claim_key(claim).split("/")) for claim, _ in failing[:3]),
            )
        )
    problems = (
        element("p", state("failed"), " ", element("b", name), f": {found[0][1]}", class_="failure")
        for name, found in failures.items()
    )
    columns = ("Step", "Type", "After", "Interface", "DeviceClass", "Devices", "Network", "Failing claims")
    return element("div", _drawing(graph, drawn), problems, table(f"Steps of {topology.name}", columns, rows))


def _uses(cluster: ClusterState, graph: Graph) -> dict[str, ClassUse]:
    """The devices of each root step, as far as slices could be read."""
    if not cluster.could_read("resourceslices", "deviceclasses"):
        return {}
    names = {class_name(graph.topology, step.name): step.name for step in graph.steps if step.is_root}
    known = [name for name in names if name in cluster.known.classes]
    return {names[use.device_class]: use for use in class_uses(cluster, known)} if known else {}


def _step_failures(claims: Iterable[ResourceClaim], graph: Graph) -> dict[str, list[tuple[ResourceClaim, str]]]:
    """By step, the claims that fail at it, with the message."""
    found: dict[str, dict[str, tuple[ResourceClaim, str]]] = {}
    for claim in claims:
        for text in condition_messages(claim):
            for step in graph.steps:
                of_step = found.setdefault(step.name, {}) if called(graph.topology, step.name) in text else None
                if of_step is not None and len(of_step) < MAX_FAILURES:
                    of_step.setdefault(claim_key(claim), (claim, text))
    return {step: [*of_step.values()] for step, of_step in found.items()}


class DrawnStep(NamedTuple):
    """The content of a box beside the step's name and type.

    Attributes:
        interface: that the step makes or changes.
        state: in one word.
        lines: further lines, such as addresses.
        page: the page that the box leads to; None without one.
    """

    interface: str
    state: str
    lines: Sequence[str] = ()
    page: PageAddress | None = None


def picture(graph: Graph, steps: Mapping[str, DrawnStep]) -> Markup:
    """The picture of a graph, with a box for each step."""
    interfaces = {name: step.interface for name, step in steps.items()}
    texts = {
        step.name: (*map(_short, labels(step, interfaces)), *map(_short, drawn.lines), drawn.state)
        for step in graph.steps
        for drawn in (steps[step.name],)
    }
    layout = lay_out(graph, texts)
    width, height = layout.width * _WIDTH + 2 * _MARGIN, layout.height * _HEIGHT + 2 * _MARGIN
    lines = (shape for line in layout.lines for shape in _line(line))
    boxes = (_box(box, steps[box.name]) for box in layout.boxes)
    about = f"The steps of {graph.topology}; the table below has the same."
    return element(
        "svg",
        element("title", about),
        lines,
        boxes,
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        class_="graph",
        role="group",
        aria_label=about,
    )


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def _line(line: Connector) -> Iterator[Markup]:
    moves = " ".join(f"M{_x(x1)} {_y(y1)}L{_x(x2)} {_y(y2)}" for x1, y1, x2, y2 in line.pieces)
    yield element("path", d=moves, class_="line")
    for x, y in line.arrows:
        yield element("path", d=f"M{_x(x) + 8} {_y(y)}l-9 -4.5v9z", class_="arrow")


def _box(box: Box, step: DrawnStep) -> Markup:
    width, height = (box.width - 1) * _WIDTH, (box.height - 1) * _HEIGHT
    tone = TONES.get(step.state, "calm")
    last = len(box.lines) - 1
    texts = (
        element(
            "text",
            text,
            x=_x(box.x + 2) - 4,
            y=_y(box.y + 1 + at) + 4,
            class_="name" if at == 0 else "word" if at == last else "type",
        )
        for at, text in enumerate(box.lines)
    )
    drawn = element("rect", x=_x(box.x), y=_y(box.y), width=width, height=height, rx=8)
    inside = element("a", drawn, texts, href=step.page) if step.page is not None else (drawn, texts)
    return element("g", inside, class_=f"{tone} {step.state}{' device' if box.is_root else ''}")


def _x(cell: int) -> int:
    """The middle of a cell, in pixels."""
    return _MARGIN + cell * _WIDTH + _WIDTH // 2


def _y(cell: int) -> int:
    return _MARGIN + cell * _HEIGHT + _HEIGHT // 2
