"""What preparing and publishing know of each other: the node's devices one way, which of them are held the other.

The publishing half of the daemon is a `NodeView`, and tells the kubelet's services of each `DeviceHealth`; the half
that keeps pods and claims is a `Holder`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from netdra.model.plan import PlannedDevice
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.topology.devices import DeviceKey


class NodeView(Protocol):
    """The node as it is now."""

    @property
    def devices(self) -> Mapping[DeviceKey, PlannedDevice]:
        """The facts of each device that is published, by pool and name; of one that is held, also after it is gone."""

    @property
    def slices(self) -> Sequence[ResourceSlice]:
        """What is to be published: counter sets, and devices with what they consume of them."""

    @property
    def topologies(self) -> Mapping[str, NetworkTopology]:
        """All NetworkTopologies, by name."""

    @property
    def ready(self) -> bool:
        """Whether the kernel has been read once and policies and topologies are known; before it, nobody can say."""


class HeldDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that a claim of this node has, from its allocation until it is given back.

    Attributes:
        key: pool and name.
        claim: the claim's uid.
        trouble: why it cannot be given back yet, "" while it can: it is tainted with this.
    """

    key: DeviceKey
    claim: str
    trouble: str = ""


class DeviceHealth(msgspec.Struct, frozen=True):
    """How a published device is; `message` says what is wrong with one that is not healthy."""

    pool: str
    device: str
    healthy: bool
    message: str = ""


class Holder(Protocol):
    """Who knows which devices are held."""

    @property
    def held(self) -> Sequence[HeldDevice]:
        """Devices that claims of this node's pods were allocated, and those that could not be given back."""
