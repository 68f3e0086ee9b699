"""ResourceClaims as the controller keeps all of a cluster's: their use, their failures, and shares of PodNetworks.

Other fields are dropped on reading, for a cluster has many claims, and most are other drivers'.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from netdra.model.claim import (
    CapacityRequirements,
    ClaimUse,
    ClaimUseAllocation,
    ClaimUseDevices,
    ClaimUseStatus,
    selected_node,
)
from netdra.model.meta import ObjectMeta
from netdra.model.names import DRIVER, network_of, network_of_class
from netdra.model.resource import QuantityText, Wire

MAX_FAILURE = 1024
"""How many characters are kept of the message of a device that is not ready."""


class DeviceCondition(Wire, frozen=True):
    """One aspect of an allocated device, as its driver reports it."""

    type: str = ""
    status: str = ""
    message: str = ""
    last_transition_time: str = ""


class DeviceData(Wire, frozen=True):
    """The policy that offers a device of netdra, and its addresses that other machines use; others write anything."""

    policy: Any = ""
    duplicates: Any = ()


class InterfaceReport(Wire, frozen=True):
    """That a pod has a device's interface; its values are dropped on reading."""


class DeviceReadiness(Wire, frozen=True):
    """The part of a driver's report on an allocated device with its readiness."""

    driver: str = ""
    pool: str = ""
    conditions: tuple[DeviceCondition, ...] | None = None
    data: DeviceData | None = None
    network_data: InterfaceReport | None = None

    @property
    def failure(self) -> DeviceCondition | None:
        """The condition by which a device of netdra is not ready; None if it is ready, or another driver's."""
        if self.driver != DRIVER:
            return None
        return next((entry for entry in self.conditions or () if (entry.type, entry.status) == _NOT_READY), None)


_NOT_READY = ("Ready", "False")
_NOTHING: Mapping[str, str] = MappingProxyType({})


class AddressShare(Wire, frozen=True):
    """A share of the addresses of a PodNetwork that a claim was allocated."""

    driver: str = ""
    pool: str = ""
    consumed_capacity: Mapping[str, QuantityText] = {}


class WatchedDevices(ClaimUseDevices, frozen=True):
    """The configuration of a claim's devices, and its shares of PodNetworks; other devices are dropped on reading."""

    results: tuple[AddressShare, ...] = ()

    def __post_init__(self) -> None:
        """Drop other devices."""
        if self.results:
            kept = tuple(share for share in self.results if share.driver == DRIVER and network_of(share.pool))
            for share in kept:
                msgspec.structs.force_setattr(share, "pool", sys.intern(share.pool))
            msgspec.structs.force_setattr(self, "results", kept)


class WatchedAllocation(ClaimUseAllocation, frozen=True):
    """A claim's allocation, and its node; "" if it is on no single one. No field of Kubernetes begins with a dash."""

    devices: WatchedDevices = WatchedDevices()
    node_selector: Any = None
    node: str = msgspec.field(default="", name="-node")

    def __post_init__(self) -> None:
        """Keep the node alone of the selector."""
        if self.node_selector is not None:
            msgspec.structs.force_setattr(self, "node", sys.intern(selected_node(self.node_selector)))
            msgspec.structs.force_setattr(self, "node_selector", None)


class WatchedExactRequest(Wire, frozen=True):
    """The class and the amount of a request."""

    device_class_name: str = ""
    count: int = 0
    capacity: CapacityRequirements | None = None


class WatchedRequest(Wire, frozen=True):
    """A request of a claim, if it is exactly this."""

    exactly: WatchedExactRequest | None = None


class WatchedDeviceClaim(Wire, frozen=True):
    """The requests for addresses of PodNetworks; others are dropped on reading."""

    requests: tuple[WatchedRequest, ...] = ()

    def __post_init__(self) -> None:
        """Drop other requests."""
        if self.requests:
            kept = tuple(
                request
                for request in self.requests
                if request.exactly is not None and network_of_class(request.exactly.device_class_name)
            )
            msgspec.structs.force_setattr(self, "requests", kept)


class WatchedClaimSpec(Wire, frozen=True):
    """The requests of a claim for addresses of PodNetworks."""

    devices: WatchedDeviceClaim = WatchedDeviceClaim()


class WatchedClaimStatus(ClaimUseStatus, frozen=True):
    """Whether the claim is allocated, whether a pod has its network, and its devices that are not ready.

    Devices that are ready, and those of other drivers, are dropped on reading: a cluster has many, and the controller
    keeps every claim.
    """

    allocation: WatchedAllocation | None = None
    devices: tuple[DeviceReadiness, ...] = ()
    is_attached: bool = msgspec.field(default=False, name="-attached")

    def __post_init__(self) -> None:
        """Drop devices that are ready, and those of other drivers."""
        if self.devices:
            attached = any(device.driver == DRIVER and device.network_data is not None for device in self.devices)
            msgspec.structs.force_setattr(self, "is_attached", attached)
            kept = tuple(_failed(device, failure) for device in self.devices if (failure := device.failure))
            msgspec.structs.force_setattr(self, "devices", kept)


def _failed(device: DeviceReadiness, failure: DeviceCondition) -> DeviceReadiness:
    """A device with its failure alone, whose message is cut: it may be 32 KiB for each of 32 devices."""
    short = msgspec.structs.replace(failure, message=failure.message[:MAX_FAILURE])
    return msgspec.structs.replace(device, conditions=(short,), network_data=None)


class WatchedClaimMeta(ObjectMeta, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A claim's metadata without labels, annotations and finalizers, which a controller of many claims does not read.

    No field of Kubernetes begins with a dash, so these are never read.
    """

    labels: Mapping[str, str] = msgspec.field(default=_NOTHING, name="-labels")
    annotations: Mapping[str, str] = msgspec.field(default=_NOTHING, name="-annotations")
    finalizers: tuple[str, ...] = msgspec.field(default=(), name="-finalizers")


class WatchedClaim(ClaimUse, frozen=True):
    """The part of a ResourceClaim with the devices that it uses, and which of them are not ready."""

    metadata: WatchedClaimMeta
    spec: WatchedClaimSpec = WatchedClaimSpec()
    status: WatchedClaimStatus = WatchedClaimStatus()
