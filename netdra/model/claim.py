"""Claims, their templates, device classes and allocations of resource.k8s.io/v1 (Kubernetes 1.37), field for field.

Read by the allocator (`netdra.slices`), by `netdra.topology` when claims are bound, and by the daemons.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from netdra.model.meta import ObjectMeta, OwnerReference
from netdra.model.names import DRIVER
from netdra.model.plan import ClaimReference
from netdra.model.resource import API_VERSION, QuantityText, Wire

MAX_RESULTS = 32
"""How many devices a claim can be allocated (AllocationResultsMaxSize)."""
MAX_FAILURE = 1024
"""How many characters are kept of the message of a device that is not ready."""


class CELDeviceSelector(Wire, frozen=True):
    """A CEL expression that is true for the devices that are meant."""

    expression: str


class DeviceSelector(Wire, frozen=True):
    """One condition on a device; all selectors of a request and of its class must hold."""

    cel: CELDeviceSelector | None = None


class DeviceToleration(Wire, frozen=True):
    """Lets a request take a device in spite of a taint; an empty key with `Exists` tolerates all."""

    key: str = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(Wire, frozen=True):
    """How much of each capacity a request wants."""

    requests: Mapping[str, QuantityText] = {}


class ExactDeviceRequest(Wire, frozen=True):
    """Devices of one class: `count` of them, or all that there are."""

    device_class_name: str
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: Literal["ExactCount", "All", ""] = ""
    count: int = 0
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(Wire, frozen=True):
    """One of the alternatives of a request, tried in order."""

    name: str
    device_class_name: str
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: Literal["ExactCount", "All", ""] = ""
    count: int = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceRequest(Wire, frozen=True):
    """One named wish of a claim: exactly this, or the first of several that can be had."""

    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Wire, frozen=True):
    """What the devices of several requests must have in common, or must not; no requests means all of the claim."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueDeviceConfiguration(Wire, frozen=True):
    """Parameters that only the named driver understands."""

    driver: str
    parameters: Any


class DeviceClaimConfiguration(Wire, frozen=True):
    """Configuration that a claim's author gives; no requests means all of the claim."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Wire, frozen=True):
    """What a claim asks for."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Wire, frozen=True):
    """The immutable part of a claim."""

    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(Wire, frozen=True):
    """One allocated device. `request` is `main` or `main/alternative`; share and consumption only on shared devices."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: Mapping[str, QuantityText] = {}
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


class DeviceAllocationConfiguration(Wire, frozen=True):
    """Configuration as it stood when the claim was allocated, with where it came from."""

    source: Literal["FromClass", "FromClaim"]
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(Wire, frozen=True):
    """Which devices were allocated, with which configuration."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Wire, frozen=True):
    """A claim's allocation and the nodes on which it can be used."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: Any = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(Wire, frozen=True):
    """Who uses the claim: a pod as a rule."""

    resource: str
    name: str
    uid: str
    api_group: str = ""


class NetworkDeviceData(Wire, frozen=True):
    """What a network device became inside the pod; addresses in CIDR notation."""

    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(Wire, frozen=True):
    """What the driver says of one allocated device. The API server writes `conditions: null` where there are none."""

    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[Any, ...] | None = None
    data: Any = None
    network_data: NetworkDeviceData | None = None


class ResourceClaimStatus(Wire, frozen=True):
    """The allocation, who uses it, and what the drivers report."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Wire, frozen=True, omit_defaults=False):
    """A claim for devices."""

    metadata: ObjectMeta
    spec: ResourceClaimSpec
    status: ResourceClaimStatus = ResourceClaimStatus()
    api_version: Literal["resource.k8s.io/v1"] = API_VERSION
    kind: Literal["ResourceClaim"] = "ResourceClaim"

    @property
    def reference(self) -> ClaimReference:
        """What it is called."""
        return ClaimReference(namespace=self.metadata.namespace, name=self.metadata.name, uid=self.metadata.uid)


_SCHEDULING_GROUP = "scheduling.k8s.io"


def is_reserved_for(claim: ResourceClaim, uid: str, pod_group: str = "") -> bool:
    """Whether a claim is reserved for a pod, or for its PodGroup (DRAWorkloadResourceClaims of Kubernetes 1.37).

    Follows IsReservedForPod of k8s.io/dynamic-resource-allocation/resourceclaim: pods do not know their PodGroup's uid.

    Args:
        claim: the claim.
        uid: the pod's uid.
        pod_group: the name of the pod's PodGroup, "" for none.
    """
    return any(
        user.uid == uid
        or (
            bool(pod_group)
            and (user.api_group, user.resource, user.name) == (_SCHEDULING_GROUP, "podgroups", pod_group)
        )
        for user in claim.status.reserved_for
    )


class ClaimUseDevices(Wire, frozen=True):
    """The configuration that a claim's devices were allocated with."""

    config: tuple[DeviceAllocationConfiguration, ...] = ()


class ClaimUseAllocation(Wire, frozen=True):
    """A claim's allocation, of which only the configuration is kept."""

    devices: ClaimUseDevices = ClaimUseDevices()


class ClaimUseStatus(Wire, frozen=True):
    """Whether the claim is allocated."""

    allocation: ClaimUseAllocation | None = None


class ClaimUse(Wire, frozen=True):
    """As much of a ResourceClaim as tells what it uses: a cluster has many, and most are other drivers'."""

    metadata: ObjectMeta
    status: ClaimUseStatus = ClaimUseStatus()


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


class DeviceReadiness(Wire, frozen=True):
    """As much of a driver's report on an allocated device as tells whether the device is ready."""

    driver: str = ""
    pool: str = ""
    conditions: tuple[DeviceCondition, ...] | None = None
    data: DeviceData | None = None

    @property
    def failure(self) -> DeviceCondition | None:
        """The condition by which a device of netdra is not ready; None if it is ready, or another driver's."""
        if self.driver != DRIVER:
            return None
        return next((entry for entry in self.conditions or () if (entry.type, entry.status) == _NOT_READY), None)


_NOT_READY = ("Ready", "False")
_NOTHING: Mapping[str, str] = MappingProxyType({})


class WatchedClaimStatus(ClaimUseStatus, frozen=True):
    """Whether the claim is allocated, and its devices that are not ready.

    Devices that are ready, and those of other drivers, are dropped on reading: a cluster has many, and the controller
    keeps every claim.
    """

    devices: tuple[DeviceReadiness, ...] = ()

    def __post_init__(self) -> None:
        """Drop devices that are ready, and those of other drivers."""
        if self.devices:
            kept = tuple(_failed(device, failure) for device in self.devices if (failure := device.failure))
            msgspec.structs.force_setattr(self, "devices", kept)


def _failed(device: DeviceReadiness, failure: DeviceCondition) -> DeviceReadiness:
    """A device with its failure alone, whose message is cut: it may be 32 KiB for each of 32 devices."""
    short = msgspec.structs.replace(failure, message=failure.message[:MAX_FAILURE])
    return msgspec.structs.replace(device, conditions=(short,))


class WatchedClaimMeta(ObjectMeta, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A claim's metadata without labels, annotations and finalizers, which a controller of many claims does not read.

    No field of Kubernetes begins with a dash, so these are never in what is read.
    """

    labels: Mapping[str, str] = msgspec.field(default=_NOTHING, name="-labels")
    annotations: Mapping[str, str] = msgspec.field(default=_NOTHING, name="-annotations")
    finalizers: tuple[str, ...] = msgspec.field(default=(), name="-finalizers")


class WatchedClaim(ClaimUse, frozen=True):
    """As much of a ResourceClaim as tells what it uses, and which of its devices are not ready."""

    metadata: WatchedClaimMeta
    status: WatchedClaimStatus = WatchedClaimStatus()


class ClaimStateStatus(ClaimUseStatus, frozen=True):
    """Whether the claim is allocated, and what drivers say of its devices."""

    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ClaimState(ClaimUse, frozen=True):
    """As much of a ResourceClaim as tells what it uses, and whether a pod has it."""

    status: ClaimStateStatus = ClaimStateStatus()


class ResourceClaimTemplateSpec(Wire, frozen=True):
    """The claim that is made for each pod."""

    spec: ResourceClaimSpec
    metadata: ObjectMeta = ObjectMeta()


class ResourceClaimTemplate(Wire, frozen=True, omit_defaults=False):
    """A template that pods get claims of their own from."""

    metadata: ObjectMeta
    spec: ResourceClaimTemplateSpec
    api_version: Literal["resource.k8s.io/v1"] = API_VERSION
    kind: Literal["ResourceClaimTemplate"] = "ResourceClaimTemplate"


class DeviceClassConfiguration(Wire, frozen=True):
    """Configuration that every device allocated through the class carries."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Wire, frozen=True):
    """Which devices the class is of, and what they carry."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Wire, frozen=True, omit_defaults=False):
    """A named kind of device that claims ask for."""

    metadata: ObjectMeta
    spec: DeviceClassSpec
    api_version: Literal["resource.k8s.io/v1"] = API_VERSION
    kind: Literal["DeviceClass"] = "DeviceClass"


UNUSED_FIELDS: Mapping[type, frozenset[str]] = {
    ObjectMeta: frozenset({"managedFields", "selfLink", "deletionGracePeriodSeconds"}),
    OwnerReference: frozenset({"blockOwnerDeletion"}),
    ExactDeviceRequest: frozenset({"derivedAttributes"}),
    DeviceSubRequest: frozenset({"derivedAttributes"}),
}
"""Fields of Kubernetes 1.37 that files may have, and that netdra has no use for."""
