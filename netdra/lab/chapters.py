"""The demo's output: each phase as a chapter, for people and for programs. Values in, chapters out.

Called by `demo`; the command line shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from netdra.chain.report import AttachReport, DetachReport
from netdra.drawing.terminal import draw
from netdra.lab import node
from netdra.lab.isolation import Traces
from netdra.lab.pod import PodInterface
from netdra.lab.scenario import Scenario
from netdra.model.claim import ResourceClaim
from netdra.model.device import ExposureResult
from netdra.model.inventory import Interface, Inventory, attributes
from netdra.model.plan import Plan
from netdra.model.resource import ResourceSlice
from netdra.topology import interfaces
from netdra.topology.graph import compile_topology


class Chapter(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened: for people a title, a sentence, a table or a drawing; for programs `data`."""

    name: str
    title: str
    text: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    drawing: str = ""
    data: Any = None


def machine(scenario: Scenario) -> Chapter:
    """The machine, and the objects of the demo."""
    return Chapter(
        name="scenario",
        title="A node is made in network namespaces",
        text=f"NICs {', '.join(node.NICS)}, bridge {node.BRIDGE}, uplink {node.UPLINK}; {scenario.why}.",
        data={"name": scenario.name, "why": scenario.why},
    )


def discovered(inventory: Inventory) -> Chapter:
    """The result of discovery."""
    return Chapter(
        name="inventory",
        title="netdra discovers its interfaces",
        text="Read over netlink; `netdra discover` shows every attribute.",
        columns=("interface", "type", "mac", "mtu", "state", ""),
        rows=tuple(
            (
                interface.if_name or f"({interface.device_name})",
                interface.type,
                interface.mac,
                str(interface.mtu),
                interface.oper_state,
                _role(interface),
            )
            for interface in inventory.interfaces
        ),
        data=[attributes(interface) for interface in inventory.interfaces],
    )


def exposed(result: ExposureResult) -> Chapter:
    """The devices that the policies expose."""
    return Chapter(
        name="decisions",
        title="Policies select the offered interfaces",
        text="Interfaces without a policy are hidden, and so is the host's uplink; `netdra explain` shows the reasons.",
        columns=("interface", "offered as", "because"),
        rows=tuple(
            (decision.if_name or f"({decision.device_name})", ", ".join(decision.exposed) or "-", decision.reason)
            for decision in result.decisions
        ),
        data=result.decisions,
    )


def published(slices: Sequence[ResourceSlice]) -> Chapter:
    """The slices for the scheduler."""
    return Chapter(
        name="slices",
        title="ResourceSlices inform the scheduler",
        text=f"{len(slices)} slices; `netdra plan` prints them as the API server takes them.",
        columns=("pool", "device", "for", "capacity"),
        rows=tuple(
            (
                resource_slice.spec.pool.name,
                device.name,
                "many claims" if device.allow_multiple_allocations else "one claim",
                ", ".join(f"{name} {capacity.value}" for name, capacity in device.capacity.items()),
            )
            for resource_slice in slices
            for device in resource_slice.spec.devices
        ),
        data=slices,
    )


def allocated(claim: ResourceClaim) -> Chapter:
    """The devices of the claim."""
    assert claim.status.allocation is not None
    return Chapter(
        name="allocation",
        title="Devices are allocated to a claim",
        text=f'ResourceClaim "{claim.metadata.name}" names DeviceClasses alone; the scheduler would give it the same.',
        columns=("request", "device", "consumes"),
        rows=tuple(
            (
                result.request,
                f"{result.pool}/{result.device}",
                ", ".join(f"{amount} {name}" for name, amount in result.consumed_capacity.items()),
            )
            for result in claim.status.allocation.devices.results
        ),
        data=claim,
    )


def bound(scenario: Scenario, plans: Sequence[Plan]) -> Chapter:
    """The graph that is going to be run."""
    graph = compile_topology(scenario.topology)
    return Chapter(
        name="plans",
        title="The devices are bound to the topology's graph",
        text=f'NetworkTopology "{scenario.topology.name}": steps run from left to right.',
        drawing=draw(graph, interfaces.assign([graph])[0]),
        data=plans,
    )


def attached(report: AttachReport, plugins: str) -> Chapter:
    """The result of each step; `plugins` is the folder of binaries."""
    return Chapter(
        name="steps",
        title=f"The pod's network is built ({1000 * report.seconds:.0f} ms)",
        text=f"In a real network namespace; plugin binaries are from {plugins}.",
        columns=("step", "type", "run as", "interface", "ms"),
        rows=tuple(
            (
                step.step,
                step.plugin,
                "built in" if step.execution == "Builtin" else "binary",
                step.interface,
                f"{1000 * step.seconds:.1f}",
            )
            for step in report.steps
        ),
        data=report,
    )


def inside(seen: Sequence[PodInterface]) -> Chapter:
    """The network inside the pod, after `ip` has confirmed it."""
    return Chapter(
        name="pod",
        title="The pod's interfaces",
        text="Read over netlink, and `ip` agrees.",
        columns=("interface", "kind", "mtu", "state", "addresses", "routes"),
        rows=tuple(
            (
                entry.name,
                f"{entry.kind} in {entry.master}" if entry.master else entry.kind,
                str(entry.mtu),
                entry.state,
                "\n".join(entry.addresses),
                "\n".join(entry.routes),
            )
            for entry in seen
        ),
        data={"interfaces": seen, "ipAgrees": True},
    )


def detached(report: DetachReport) -> Chapter:
    """The undone steps."""
    return Chapter(
        name="detach",
        title=f"The pod ends, and its network is undone ({1000 * report.seconds:.0f} ms)",
        text="In reverse, from the checkpoint alone; the checkpoint is gone too.",
        columns=("step", "type", "outcome"),
        rows=tuple((step.step, step.plugin, step.outcome) for step in report.undone),
        data=report,
    )


def restored(after: node.Snapshot) -> Chapter:
    """The node's namespace, once it has been found to be as it was before the pod."""
    return Chapter(
        name="node",
        title="The node is as it was",
        text=f"{len(after.links)} links with their names, MACs, MTUs and states, {len(after.addresses)} addresses, "
        f"{len(after.routes)} routes; no namespace is left.",
        data={"unchanged": True, **msgspec.to_builtins(after)},
    )


def epilogue(left: Traces, seconds: float) -> Chapter:
    """The last one, from outside of the lab's namespaces: whether anything is left on this machine."""
    nothing = left == Traces()
    return Chapter(
        name="outside",
        title=f"Outside, nothing is left ({seconds:.1f} s in all)" if nothing else "Outside, something is left",
        text="No link, namespace, mount or process of the demo is on this machine." if nothing else str(left),
        data={"left": left, "seconds": round(seconds, 3)},
    )


def _role(interface: Interface) -> str:
    if interface.host_uplink:
        return "the host's uplink"
    return f"port of {interface.master}" if interface.master else ""
