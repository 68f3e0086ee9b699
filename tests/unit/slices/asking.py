"""An allocator's answers to claims, and the devices that it allocates from."""

from __future__ import annotations

from typing import Any

from netdra.model.claim import DeviceRequestAllocationResult, ResourceClaim
from netdra.slices.allocator import Allocation, Allocator, Refusal
from tests.unit.slices.making import (
    class_of,
    device,
)

ANY = class_of()


def results(allocator: Allocator, *claims: ResourceClaim, **options: Any) -> list[DeviceRequestAllocationResult]:
    outcome = allocator.allocate(*claims, **options)
    assert isinstance(outcome, Allocation), outcome
    found: list[DeviceRequestAllocationResult] = []
    for allocated in outcome.claims:
        assert allocated.status.allocation is not None
        found += allocated.status.allocation.devices.results
    return found


def devices(allocator: Allocator, *claims: ResourceClaim, **options: Any) -> list[str]:
    return [result.device for result in results(allocator, *claims, **options)]


def refused(allocator: Allocator, *claims: ResourceClaim, **options: Any) -> Refusal:
    outcome = allocator.allocate(*claims, **options)
    assert isinstance(outcome, Refusal), outcome
    return outcome


def names(*wanted: str) -> str:
    return "device.attributes['dra.networking'].name in [" + ", ".join(f"'{name}'" for name in wanted) + "]"


def plain(*wanted: str, **fields: Any) -> list[dict[str, Any]]:
    return [device(name, attributes={"dra.networking/name": name}, **fields) for name in wanted]
