"""The status of a CustomDevice: how many devices were meant, how many have what it adds, and why not all. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from netdra.controller.conditions import Said, conditions
from netdra.model.custom_device import CustomDevice, CustomDeviceStatus
from netdra.model.meta import MAX_REPORTED
from netdra.model.node_network import CustomDeviceReport

Reports = Iterable[tuple[str, CustomDeviceReport]]
"""Of one CustomDevice: the node, and what it says."""


def status(device: CustomDevice, reports: Reports, now: datetime) -> CustomDeviceStatus:
    """The status as it should be."""
    found = tuple(reports)
    desired = sum(report.desired for _, report in found)
    applied = sum(report.applied for _, report in found)
    refusals = _refusals(found)
    before = device.status or CustomDeviceStatus()
    generation = device.metadata.generation
    said = (_applied(device, desired, applied, refusals),)
    return CustomDeviceStatus(
        observed_generation=generation,
        desired_number=desired,
        applied_number=applied,
        conditions=conditions(said, before.conditions, generation, now),
        refusals=refusals[:MAX_REPORTED],
    )


def _refusals(reports: Reports) -> tuple[str, ...]:
    """Each reason once: those of most nodes first."""
    nodes = Counter(text for _, report in reports for text in dict.fromkeys(report.problems))
    return tuple(sorted(nodes, key=lambda text: (-nodes[text], text)))


def _applied(device: CustomDevice, desired: int, applied: int, refusals: tuple[str, ...]) -> Said:
    if not desired:
        why = f'no node that is selected reports a device "{device.spec.device}"'
        return Said("Applied", holds=False, reason="NoDevice", message=why)
    if applied < desired:
        why = f"{applied} of {desired} devices have it" + (f": {refusals[0]}" if refusals else "")
        return Said("Applied", holds=False, reason="NotEverywhere", message=why)
    return Said("Applied", holds=True, reason="Everywhere", message="every device that is meant has it")
