"""The effect of a registration on the devices that the node publishes now: their names, and their free slots.

Called by `netdra.node.registry.service` before it accepts a registration. The outcome (`netdra.exposure.registered`)
may differ later, because devices come and go and other providers register.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from netdra.model import suggestions
from netdra.model.plan import PlannedDevice
from netdra.model.registration import Registration
from netdra.model.resource import MAX_ATTRIBUTES_AND_CAPACITIES, Device, ResourceSlice
from netdra.node.registry.shares import RefusedRegistrationError
from netdra.topology.devices import DeviceKey


class Published(Protocol):
    """The devices that a node publishes."""

    passes: int
    """How often it was looked at what is published: nothing else changes that."""

    @property
    def devices(self) -> Mapping[DeviceKey, PlannedDevice]:
        """The facts of each device."""

    @property
    def slices(self) -> Sequence[ResourceSlice]:
        """The slices with the devices."""


class Effect:
    """The published devices by the names that providers may use; read again after each skip the node."""

    def __init__(self, node: Published) -> None:
        self._node = node
        self._seen = -1
        self._by_name: dict[str, list[Device]] = {}

    def check(self, registration: Registration) -> str:
        """Check that a registration has room on a device, and return why it has no effect, or "".

        Raises:
            RefusedRegistrationError: devices are called so, and none has room for all of it.
        """
        if not self._node.passes:
            return ""  # nothing is known of the node yet
        called = self._called(registration.device)
        if not called:
            if registration.adds:
                return ""  # a device of its own, or an interface that no policy offers yet
            likely = suggestions.closest(registration.device, [*self._by_name])
            hint = f'; did you mean "{likely}"?' if likely else ""
            return f'no published device or interface is called "{registration.device}": it counts when one is{hint}'
        wanted = {f"{registration.provider}/{name}" for name in (*registration.attributes, *registration.capacity)}
        count = len(registration.attributes) + len(registration.capacity)
        room = max(_room(device, registration.provider) for device in called)
        # Attributes and capacities that are published already have their place.
        if count > room and not any(wanted <= {*device.attributes, *device.capacity} for device in called):
            raise RefusedRegistrationError(
                f'device: "{registration.device}" has room for {max(room, 0)} attributes and capacities, not {count}; '
                f"a device has {MAX_ATTRIBUTES_AND_CAPACITIES}, and a policy's facts take less with exposure.facts",
                reason="FULL",
                code="ND2205",
            )
        return ""

    def _called(self, name: str) -> list[Device]:
        if self._node.passes != self._seen:
            self._seen, self._by_name = self._node.passes, {}
            devices = self._node.devices
            for one in self._node.slices:
                for device in one.spec.devices:
                    facts = devices.get((one.spec.pool.name, device.name))
                    for called in {device.name, facts.if_name if facts is not None else ""} - {""}:
                        self._by_name.setdefault(called, []).append(device)
        return self._by_name.get(name, [])


def _room(device: Device, provider: str) -> int:
    """How many attributes and capacities of a provider a device has room for, beside those of others."""
    others = [name for name in (*device.attributes, *device.capacity) if not name.startswith(f"{provider}/")]
    return MAX_ATTRIBUTES_AND_CAPACITIES - len(others)
