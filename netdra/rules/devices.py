"""The devices that a claim could be allocated, as slices or nodes' reports have them, and their selectors.

Called by `forecasts`, with the devices that `netdra validate` and the webhook know. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from netdra.cel import CelCompileError, CelEvaluationError, DeviceVariables, Version, compile_selector, device_variables
from netdra.cel import guarded as with_guards
from netdra.model import names
from netdra.model.claim import ExactDeviceRequest
from netdra.model.errors import InvalidInputError
from netdra.model.plan import PlannedDevice
from netdra.model.resource import Device, DeviceAttribute, ResourceSlice, newest
from netdra.topology.devices import from_slices

MOST_DEVICES = 4096
"""How many devices are compared with selectors; more of them hardly differ."""


class PossibleDevice(msgspec.Struct, frozen=True, eq=False):
    """A device that could be allocated.

    Attributes:
        node: the node that has it.
        shown: the node as messages call it.
        published: the device as it is published.
        planned: its facts.
        is_whole: whether `published` has its name and all of its attributes; else what is missing is unknown.
    """

    node: str
    shown: str
    published: Device
    planned: PlannedDevice
    is_whole: bool = True

    @property
    def called(self) -> str:
        """The device, as messages call it."""
        name = self.published.name if self.is_whole else self.planned.if_name
        return f'device "{name}" of {self.shown}' if name else f"a device of {self.shown}"


def possible_devices(
    slices: Iterable[ResourceSlice], reported: Mapping[str, str] | None = None
) -> list[PossibleDevice]:
    """The driver's devices in slices, at most `MOST_DEVICES`.

    Args:
        slices: as they are published.
        reported: for slices that stand for nodes' reports, the names of the nodes, "" for one that must not be named.
    """
    ours = [
        entry for entry in slices if entry.spec.driver == names.DRIVER and not names.network_of(entry.spec.pool.name)
    ]
    planned = from_slices(ours)
    every = (
        PossibleDevice(node, _shown(node, reported), device, planned[pool, device.name], reported is None)
        for pool, current in newest(ours).items()
        for part in current
        for node in (part.spec.node_name or "",)
        for device in part.spec.devices
    )
    return list(itertools.islice(every, MOST_DEVICES))


def _shown(node: str, reported: Mapping[str, str] | None) -> str:
    name = node if reported is None else reported.get(node, "")
    return f'node "{name}"' if name else "a node"


def attributes(device: PossibleDevice) -> dict[str, Any]:
    """The values of a device's attributes, by qualified name."""
    return {names.qualified(name): attribute.value for name, attribute in device.published.attributes.items()}


Selector = Callable[[DeviceVariables], bool]


@lru_cache(maxsize=256)
def _selector(expression: str) -> Selector | None:
    try:
        return compile_selector(with_guards(expression)).matches
    except (CelCompileError, InvalidInputError):
        return None


def _holds(matches: Selector, device: PossibleDevice) -> bool:
    attributes = {name: _of_cel(attribute) for name, attribute in device.published.attributes.items()}
    capacity = {name: amount.value for name, amount in device.published.capacity.items()}
    try:
        shared = bool(device.published.allow_multiple_allocations)
        return matches(device_variables(names.DRIVER, attributes, capacity, shared=shared))
    except (CelEvaluationError, InvalidInputError):
        return False


def is_matched(device: PossibleDevice, expression: str) -> bool:
    """Whether a selector is true of a device; one that does not compile, or has no answer, is not."""
    matches = _selector(expression)
    return matches is not None and _holds(matches, device)


def is_requested(device: PossibleDevice, request: ExactDeviceRequest) -> bool:
    """Whether a device is matched by all selectors of a claim's request."""
    return all(
        is_matched(device, selector.cel.expression) for selector in request.selectors if selector.cel is not None
    )


def _of_cel(attribute: DeviceAttribute) -> Any:
    if attribute.version is not None:
        return Version(attribute.version)
    value = attribute.value
    return "" if value is None else value
