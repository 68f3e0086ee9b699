"""Cases for the scheduler and the allocator to agree on: a node with random devices, and pods that come and go there.

A case is drawn from a seed alone. Whether a pod fits, and so whether it can go again, is what the allocator states; the
scheduler must then confirm it step by step (`tests.cluster.agreement`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from netdra.model.claim import DeviceClass, DeviceRequestAllocationResult, ResourceClaim
from netdra.model.resource import ResourceSlice
from netdra.model.scheduler_version import NEWEST_SCHEDULER, SchedulerVersion
from netdra.slices.allocator import Allocation, Allocator, Refusal, named
from tests.drawn.claims import NAMESPACE, classes, draw_claim
from tests.drawn.devices import Devices, Object, Pair, draw_devices

# The scheduler gives up a search by the clock, which on a busy machine may come early: only short ones are compared.
MAX_STEPS = 4_000


@dataclass(frozen=True)
class Step:
    """A pod that comes with its claims, or one that goes (`leaves` is its name)."""

    pod: str = ""
    claims: tuple[Object, ...] = ()
    outcome: Allocation | Refusal | None = None
    leaves: str = ""


@dataclass(frozen=True)
class Case:
    """One node's slices and the events there.

    Attributes:
        name: what the names of its objects begin with.
        exclusive: pairs of devices of which only one may be in use at a time.
    """

    seed: str
    name: str
    node: str
    slices: list[Object]
    exclusive: set[Pair]
    steps: list[Step]


def draw(seed: str, number: int, node: str, version: SchedulerVersion = NEWEST_SCHEDULER) -> Case:
    """The case of a seed and a number, on a node of its own, with the outcomes of a version's rules."""
    name = f"case-{number}"
    source = random.Random(f"{seed} {number}")
    devices = draw_devices(source, name, node)
    return Case(seed, name, node, devices.slices, devices.exclusive, _draw_steps(source, name, node, devices, version))


def _draw_steps(source: random.Random, name: str, node: str, devices: Devices, version: SchedulerVersion) -> list[Step]:
    known = [msgspec.convert(each, DeviceClass) for each in classes()]
    slices = [msgspec.convert(each, ResourceSlice) for each in devices.slices]
    allocator = Allocator(
        slices,
        known,
        nodes=[named(node)],
        admin_namespaces=[NAMESPACE],
        max_steps=MAX_STEPS,
        version=version,
    )
    steps: list[Step] = []
    present: dict[str, list[ResourceClaim]] = {}
    for number in range(source.randint(6, 12)):
        if present and source.random() < 0.3:
            leaving = source.choice(sorted(present))
            for claim in present.pop(leaving):
                allocator.release(claim)
            steps.append(Step(leaves=leaving))
            continue
        pod = f"{name}-p{number}"
        drawn = tuple(draw_claim(source, f"{pod}-c{index}") for index in range(source.choice((1, 1, 1, 2))))
        claims = [msgspec.convert(claim, ResourceClaim) for claim in drawn]
        outcome = allocator.allocate(*claims)
        if isinstance(outcome, Refusal) and "too many combinations" in outcome.reason:
            continue
        steps.append(Step(pod, drawn, outcome))
        if isinstance(outcome, Allocation):
            present[pod] = claims
    return steps


def given(claims: Iterable[ResourceClaim]) -> list[DeviceRequestAllocationResult]:
    """The devices that allocated claims use, without those that they only inspect with admin access."""
    return [
        result
        for claim in claims
        for result in (claim.status.allocation.devices.results if claim.status.allocation else ())
        if not result.admin_access
    ]


def broken_exclusion(case: Case, held: Iterable[DeviceRequestAllocationResult]) -> list[list[tuple[str, str]]]:
    """The pairs of devices in use, as (pool, device), that must not be in use together."""
    devices = {(result.pool, result.device) for result in held}
    return [sorted(pair) for pair in case.exclusive if pair <= devices]
