"""Plans for tests of chains, on this machine's kernel and on the SR-IOV machine's, without a topology behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from netdra.chain import attach as chains
from netdra.chain.checkpoint import PodIdentity
from netdra.chain.report import AttachReport
from netdra.chain.site import ChainSettings
from netdra.model.plan import ClaimReference, Plan, PlannedDevice, PlannedStep
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.rules.plans import check
from netdra.steps import builtin
from netdra.topology.attachment import completed
from netdra.topology.bind import unbound
from netdra.topology.graph import compile_topology
from tests.builders import topology


def attach(
    plans: Sequence[Plan],
    pod: PodIdentity,
    netns: str,
    settings: ChainSettings,
    schemas: Iterable[CNIPluginSchema] = (),
) -> AttachReport:
    """Check plans and attach them, as `netdra attach` does."""
    return chains.attach(check(plans, schemas), pod, netns, settings)


def step(
    name: str,
    kind: str,
    if_name: str,
    config: Mapping[str, Any] | None = None,
    *,
    after: Sequence[str] = (),
    device: PlannedDevice | None = None,
    binary: bool | None = None,
) -> PlannedStep:
    """A step of a plan; a type that is built in is run so unless `binary` states otherwise."""
    is_binary = kind not in builtin.TYPES if binary is None else binary
    return PlannedStep(
        name=name,
        type=kind,
        if_name=if_name,
        network=f"t-{name}",
        execution="Binary" if is_binary else "Builtin",
        depend_on=tuple(after),
        config=config or {},
        device=device,
    )


def plan(*steps: PlannedStep, topology: str = "t") -> Plan:
    """A plan of these steps."""
    return Plan(topology=topology, claim=ClaimReference(namespace="default", name="c", uid="u"), steps=steps)


def on_devices(written: str, **devices: PlannedDevice) -> Plan:
    """A topology's plan on these devices."""
    return on_topology(topology(written), devices)


def on_topology(given: NetworkTopology, devices: Mapping[str, PlannedDevice]) -> Plan:
    """A topology's plan on the devices of its steps."""
    graph = compile_topology(given)
    steps = {each.name: each for each in graph.steps}
    found = unbound(given)
    return msgspec.structs.replace(
        found,
        steps=tuple(
            msgspec.structs.replace(
                each,
                device=devices.get(each.name),
                config=completed(graph, steps[each.name], devices.get(each.name)),
            )
            for each in found.steps
        ),
    )
