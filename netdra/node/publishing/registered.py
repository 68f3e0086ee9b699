"""The registrations of this node's devices: CustomDevices that select the node, and those of its device registry.

Used by `netdra.node.publishing.service`, which gives each pass all of them as one `Registered`. Of 5,000 objects few
are for one node, so an object is inspected when it changes, and again when the node's labels change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from netdra.exposure.registered import Registered, of_custom_device
from netdra.kube.store import Change
from netdra.model.custom_device import CustomDevice
from netdra.model.registration import Registration


class NodeRegistrations:
    """The registrations that hold now. One event loop's."""

    def __init__(self, node: str, leased: Callable[[], tuple[Registration, ...]]) -> None:
        """Begin without objects.

        Args:
            node: the node's name.
            leased: the device registry's registrations; the same object while nothing changes.
        """
        self._node = node
        self._leased = leased
        self._objects: dict[str, CustomDevice] = {}
        self._chosen: dict[str, Registration] = {}
        self._labels: Mapping[str, str] = {}
        self._made: tuple[tuple[Registration, ...], Registered] | None = None

    def apply(self, change: Change[CustomDevice], labels: Mapping[str, str]) -> bool:
        """Apply a change of an object; returns whether it changes the node's registrations.

        Args:
            change: the object, before and after.
            labels: the node's.
        """
        before = self._chosen.pop(change.key, None)
        if change.new is None:
            self._objects.pop(change.key, None)
        else:
            self._objects[change.key] = change.new
            chosen = of_custom_device(change.new, self._node, labels)
            if chosen is not None:
                self._chosen[change.key] = chosen
        if self._chosen.get(change.key) == before:
            return False
        self._made = None
        return True

    def registered(self, labels: Mapping[str, str]) -> Registered:
        """All registrations; the same object while nothing changes."""
        if labels != self._labels:
            chosen = {name: of_custom_device(item, self._node, labels) for name, item in self._objects.items()}
            self._chosen = {name: entry for name, entry in chosen.items() if entry is not None}
            self._labels, self._made = labels, None
        leased = self._leased()
        if self._made is None or self._made[0] is not leased:
            self._made = leased, Registered((*self._chosen.values(), *leased))
        return self._made[1]
