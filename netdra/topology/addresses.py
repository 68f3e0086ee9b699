"""Steps with addresses of PodNetworks: those of a claim's plans, and the plans with the addresses in them. Pure.

The controller assigns the addresses (`netdra.model.pod_address`), the node waits for them when it prepares the claim.
The IPAM plugin `static` then hands them out, so built-in steps and programs get them in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from netdra.model.errors import InvalidInputError
from netdra.model.plan import Plan, PlannedDevice, PlannedStep, called
from netdra.model.pod_address import PodAddress
from netdra.model.pod_network import IGNORE
from netdra.model.topology import is_addressed
from netdra.topology.devices import DeviceKey
from netdra.topology.needed import STATIC

_WITH_MTU = frozenset({"bond", "bridge", "host-device", "ipvlan", "macvlan", "sriov", "tuning", "vlan"})
"""Types of steps that set the MTU of their interface by `mtu`."""


class StepKey(NamedTuple):
    """A step that gets addresses: of a topology's plan, and how many plans of the topology the claim has before it."""

    topology: str
    step: str
    number: int


def addressed(plans: Sequence[Plan]) -> Iterator[tuple[StepKey, Plan, PlannedStep]]:
    """The steps of a claim that still wait for addresses, each with its plan."""
    counts: dict[str, int] = {}
    for plan in plans:
        number = counts[plan.topology] = counts.get(plan.topology, -1) + 1
        for step in plan.steps:
            if is_addressed(step.config):
                yield StepKey(plan.topology, step.name, number), plan, step


def with_addresses(
    plans: Sequence[Plan], assigned: Mapping[StepKey, Sequence[PodAddress]], wired: Mapping[DeviceKey, Any]
) -> tuple[Plan, ...]:
    """The plans with the addresses of their steps.

    Args:
        plans: a claim's.
        assigned: the addresses of each step that `addressed` yields.
        wired: the physical networks of the node's devices.

    Raises:
        InvalidInputError: a step names no PodNetwork, or its device is on another physical network.
    """
    replaced: dict[tuple[int, str], PlannedStep] = {}
    for key, plan, step in addressed(plans):
        _check(plan, step, assigned[key], wired)
        action = next((entry.spec.on_duplicate for entry in assigned[key] if entry.spec.on_duplicate), IGNORE)
        config = _config(step, assigned[key])
        replaced[id(plan), step.name] = msgspec.structs.replace(step, config=config, on_duplicate=action)
    return tuple(
        msgspec.structs.replace(plan, steps=tuple(replaced.get((id(plan), step.name), step) for step in plan.steps))
        for plan in plans
    )


def gets_mtu(step: PlannedStep) -> bool:
    """Whether a step with addresses of a PodNetwork gets the MTU of this network, too."""
    return step.type in _WITH_MTU and step.config.get("mtu") is None


def _config(step: PlannedStep, addresses: Sequence[PodAddress]) -> dict[str, Any]:
    """A step's config with its addresses, in the order IPv4, IPv6."""
    specs = [entry.spec for entry in sorted(addresses, key=lambda entry: entry.family)]
    listed = [{"address": spec.address} | ({"gateway": spec.gateway} if spec.gateway else {}) for spec in specs]
    routes = [
        {"dst": route.destination} | ({"gw": route.gateway} if route.gateway else {})
        for spec in specs
        for route in spec.routes
        if step.default_route or not route.destination.endswith("/0")
    ]
    servers = list(dict.fromkeys(server for spec in specs for server in spec.dns))
    ipam: dict[str, Any] = {"type": STATIC, "addresses": listed}
    ipam |= {"routes": routes} if routes else {}
    ipam |= {"dns": {"nameservers": servers}} if servers else {}
    mtu = next((spec.mtu for spec in specs if spec.mtu), None)
    return {**step.config, "ipam": ipam} | ({"mtu": mtu} if mtu is not None and gets_mtu(step) else {})


def _check(plan: Plan, step: PlannedStep, addresses: Sequence[PodAddress], wired: Mapping[DeviceKey, Any]) -> None:
    wanted = next((entry.spec.physnet for entry in addresses if entry.spec.physnet), "")
    for device in _devices(plan, step) if wanted else ():
        physnet = wired.get((device.pool, device.device))
        if physnet != wanted:
            what = f'is on physical network "{physnet}"' if physnet else "has no attribute physnet"
            raise InvalidInputError(
                f'{called(plan.topology, step.name)}: device "{device.device}" of pool "{device.pool}" {what}, but '
                f'PodNetwork "{step.pod_network}" is on "{wanted}"',
                hint="select devices of that physnet in the root step, or correct spec.physnet of the PodNetwork",
                code="ND1263",
            )


def _devices(plan: Plan, step: PlannedStep) -> Iterator[PlannedDevice]:
    """The devices that a step stands on."""
    steps = {entry.name: entry for entry in plan.steps}
    names, known = [step.name], set[str]()
    while names:
        current = steps[names.pop()]
        if current.device is not None:
            yield current.device
        names += [name for name in current.depend_on if name not in known]
        known |= {*current.depend_on}
