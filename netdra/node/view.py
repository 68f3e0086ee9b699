"""The view of each other that the daemon's halves have: the node's devices one way, the held devices the other.

The publishing half of the daemon is a `NodeView`, and gives the kubelet's services each `DeviceHealth`; the half that
keeps pods and claims is a `Holder`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Protocol

import msgspec

from netdra.model.plan import ClaimReference, PlannedDevice
from netdra.model.resource import ResourceSlice
from netdra.model.topology import NetworkTopology
from netdra.node.hardware import HardwareTable
from netdra.topology.devices import DeviceKey


class NodeView(Protocol):
    """The node as it is now."""

    @property
    def devices(self) -> Mapping[DeviceKey, PlannedDevice]:
        """The facts of each published device, by pool and name; of a held device also after it is gone."""

    @property
    def vfs(self) -> Mapping[DeviceKey, Sequence[PlannedDevice]]:
        """By device of pooled VFs, the facts of the VFs that a claim of it can be given, held or not."""

    @property
    def hardware(self) -> HardwareTable:
        """The hardware of each published device, and the former hardware of its name."""

    @property
    def slices(self) -> Sequence[ResourceSlice]:
        """The slices that are to be published: counter sets, and devices with the counters that they consume."""

    @property
    def topologies(self) -> Mapping[str, NetworkTopology]:
        """All NetworkTopologies, by name."""

    @property
    def labels(self) -> Mapping[str, str] | None:
        """The labels of the node's Node; None while they are not known."""

    @property
    def ready(self) -> bool:
        """Whether the kernel has been read once, and policies and topologies are known: the view is complete."""


class HeldDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that a claim of this node has, from its allocation until it is returned, or that is in trouble.

    Attributes:
        key: pool and name.
        claim: the claim's uid; "" for a shared device that a plugin has changed while no claim has it.
        trouble: why it cannot be returned yet, or a plugin's change of it, which its taint reports too; "" without any.
        is_prepared: whether the claim's record is there. Else only a sandbox's checkpoint has the device: the claim may
            be deallocated by now, and its device belongs to no claim until it is returned.
        facts: the device as it was when the claim got it; None where that does not matter.
        reference: the claim's name with its uid; None where that does not matter.
    """

    key: DeviceKey
    claim: str
    trouble: str = ""
    is_prepared: bool = True
    facts: PlannedDevice | None = None
    reference: ClaimReference | None = None

    @property
    def vf(self) -> str:
        """The PCI address of the VF that the claim has, "" for a device that is not a VF."""
        return vf_of(self.facts) if self.facts is not None else ""

    @property
    def bandwidth(self) -> int:
        """How much of its PF's link the claim was allocated with a pooled VF, in Mbit/s."""
        return self.facts.bandwidth if self.facts is not None else 0

    @property
    def consumed(self) -> Mapping[str, Decimal]:
        """How much the claim consumes of each capacity of the device, by qualified name, as far as that is known."""
        return self.facts.consumed if self.facts is not None else {}


HeldKey = tuple[DeviceKey, str, str]
"""A device that a claim has: its pool and name, the claim's uid, and the PCI address if it is a VF."""


def vf_of(device: PlannedDevice) -> str:
    """The PCI address of a device that is a VF, "" of another."""
    return device.pci_address if device.type == "vf" else ""


class VFTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """The trouble of one pooled VF while a claim has it.

    Attributes:
        vf: the VF's PCI address.
        name: the VF's name, `<pf>v<index>`.
        reason: one word for programs: `VFGone`, `VFWithoutDriver`, `VFWithoutCarrier` or `VFNotGivenBack`.
        message: the trouble for people, with the claim and the VF.
    """

    claim: ClaimReference
    vf: str
    name: str
    reason: str
    message: str


class DeviceHealth(msgspec.Struct, frozen=True):
    """The health of a published device; `message` has the problem of one that is not healthy."""

    pool: str
    device: str
    healthy: bool
    message: str = ""


class Holder(Protocol):
    """The part that knows the held devices."""

    @property
    def held(self) -> Sequence[HeldDevice]:
        """Devices that claims of this node's pods were allocated, and devices that could not be returned."""


class Recorded(Protocol):
    """The devices that the records of claims have: `netdra.node.claims.records`."""

    @property
    def held(self) -> AbstractSet[HeldKey]:
        """The devices."""

    def changed(self, mark: int) -> tuple[int, frozenset[HeldKey] | None]:
        """The devices that came or went since a mark, as `netdra.ops.file_cache.ChangeLog.since`."""


class SandboxHolder(Holder, Protocol):
    """A holder that distinguishes the devices that only sandboxes have."""

    def has_sandbox(self, claim: str) -> bool:
        """Whether a sandbox has a claim, by uid, or is just being attached with it."""

    def unrecorded(self, recorded: Recorded) -> Sequence[HeldDevice]:
        """The devices of sandboxes that no claim's record has.

        Args:
            recorded: the devices of all records.
        """
