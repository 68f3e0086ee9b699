"""ResourceClaims as the controller keeps all of a cluster's: their use, their failures, and netdra's devices.

A claim's addresses follow from these and its topologies (`WatchedClaim.known`). Other fields are dropped on reading,
for a cluster has many claims, and most are other drivers'.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from netdra.model.claim import (
    AllocationResult,
    CapacityRequirements,
    ClaimUse,
    ClaimUseAllocation,
    ClaimUseDevices,
    ClaimUseStatus,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    selected_node,
)
from netdra.model.meta import ObjectMeta
from netdra.model.names import (
    DRIVER,
    EXTENDED_RESOURCE_CLAIM,
    POD_CLAIM_NAME,
    network_of,
    network_of_class,
)
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
POD = "v1", "Pod"
_NOTHING: Mapping[str, str] = MappingProxyType({})


class WatchedResult(Wire, frozen=True):
    """A device of netdra that a claim was allocated, or a share of the addresses of a PodNetwork."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    admin_access: bool | None = None
    consumed_capacity: Mapping[str, QuantityText] = {}

    @property
    def pod_network(self) -> str:
        """The PodNetwork of which it is a share of the addresses; "" for any other device."""
        return network_of(self.pool)


class WatchedDevices(ClaimUseDevices, frozen=True):
    """The configuration of a claim's devices, and those of netdra; other devices are dropped on reading."""

    results: tuple[WatchedResult, ...] = ()

    def __post_init__(self) -> None:
        """Drop other devices, and keep each name once."""
        if self.results:
            kept = tuple(result for result in self.results if result.driver == DRIVER)
            for result in kept:
                for field in ("request", "driver", "pool"):
                    msgspec.structs.force_setattr(result, field, sys.intern(getattr(result, field)))
                if not result.pod_network:
                    msgspec.structs.force_setattr(result, "consumed_capacity", _NOTHING)
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


class WatchedConsumer(Wire, frozen=True):
    """A user of the claim."""

    resource: str = ""
    uid: str = ""


class WatchedClaimStatus(ClaimUseStatus, frozen=True):
    """Whether the claim is allocated, whether a pod has its network, and its devices that are not ready.

    Attributes:
        pod: the uid of the first pod that it is reserved for; "" if it was made for a pod.

    Devices that are ready, and those of other drivers, are dropped on reading: a cluster has many, and the controller
    keeps every claim.
    """

    allocation: WatchedAllocation | None = None
    devices: tuple[DeviceReadiness, ...] = ()
    is_attached: bool = msgspec.field(default=False, name="-attached")
    reserved_for: tuple[WatchedConsumer, ...] = ()
    pod: str = msgspec.field(default="", name="-pod")

    def __post_init__(self) -> None:
        """Drop devices that are ready, and those of other drivers; keep the first pod alone of the users."""
        if self.reserved_for:
            pods = (consumer.uid for consumer in self.reserved_for if consumer.resource == "pods")
            msgspec.structs.force_setattr(self, "pod", next(pods, ""))
            msgspec.structs.force_setattr(self, "reserved_for", ())
        if self.devices:
            attached = any(device.driver == DRIVER and device.network_data is not None for device in self.devices)
            msgspec.structs.force_setattr(self, "is_attached", attached)
            kept = tuple(_failed(device, failure) for device in self.devices if (failure := device.failure))
            msgspec.structs.force_setattr(self, "devices", kept)


def _failed(device: DeviceReadiness, failure: DeviceCondition) -> DeviceReadiness:
    """A device with its failure alone, whose message is cut: it may be 32 KiB for each of 32 devices."""
    short = msgspec.structs.replace(failure, message=failure.message[:MAX_FAILURE])
    return msgspec.structs.replace(device, conditions=(short,), network_data=None)


class WatchedAnnotations(Wire, frozen=True):
    """The annotations by which a claim's addresses and devices follow."""

    pod_claim_name: str | None = msgspec.field(default=None, name=POD_CLAIM_NAME)
    extended_resource_claim: str | None = msgspec.field(default=None, name=EXTENDED_RESOURCE_CLAIM)

    def __post_init__(self) -> None:
        """Keep each name once."""
        for field in ("pod_claim_name", "extended_resource_claim"):
            if text := getattr(self, field):
                msgspec.structs.force_setattr(self, field, sys.intern(text))


class WatchedClaimMeta(ObjectMeta, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A claim's metadata without labels, finalizers and other annotations, which a controller of many claims skips.

    No field of Kubernetes begins with a dash, so these are never read.
    """

    labels: Mapping[str, str] = msgspec.field(default=_NOTHING, name="-labels")
    annotations: Mapping[str, str] = msgspec.field(default=_NOTHING, name="-annotations")
    finalizers: tuple[str, ...] = msgspec.field(default=(), name="-finalizers")
    known_annotations: WatchedAnnotations = msgspec.field(default=WatchedAnnotations(), name="annotations")


class WatchedClaim(ClaimUse, frozen=True):
    """The part of a ResourceClaim with the devices that it uses, and which of them are not ready."""

    metadata: WatchedClaimMeta
    spec: WatchedClaimSpec = WatchedClaimSpec()
    status: WatchedClaimStatus = WatchedClaimStatus()

    def __post_init__(self) -> None:
        """Drop the user of a claim that was made for a pod."""
        if self.status.pod and any((owner.api_version, owner.kind) == POD for owner in self.metadata.owner_references):
            msgspec.structs.force_setattr(self.status, "pod", "")

    @property
    def known(self) -> ResourceClaim:
        """The claim as far as it is kept: without requests, names of devices, node, users and drivers' statuses."""
        annotations = self.metadata.known_annotations
        named = (
            (POD_CLAIM_NAME, annotations.pod_claim_name),
            (EXTENDED_RESOURCE_CLAIM, annotations.extended_resource_claim),
        )
        allocation = self.status.allocation
        return ResourceClaim(
            metadata=ObjectMeta(
                name=self.metadata.name,
                namespace=self.metadata.namespace,
                uid=self.metadata.uid,
                owner_references=self.metadata.owner_references,
                annotations={name: text for name, text in named if text is not None},
            ),
            spec=ResourceClaimSpec(),
            status=ResourceClaimStatus(allocation=_known(allocation) if allocation is not None else None),
        )


def _known(allocation: WatchedAllocation) -> AllocationResult:
    results = tuple(
        DeviceRequestAllocationResult(
            request=result.request, driver=result.driver, pool=result.pool, device="", admin_access=result.admin_access
        )
        for result in allocation.devices.results
    )
    return AllocationResult(devices=DeviceAllocationResult(results=results, config=allocation.devices.config))
