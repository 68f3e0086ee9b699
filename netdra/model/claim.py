"""Claims, their templates, device classes and allocations of resource.k8s.io/v1 (Kubernetes 1.37), field for field.

Read by the allocator (`netdra.slices`), by `netdra.topology` when claims are bound, and by the daemons.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from netdra.model.findings import Path
from netdra.model.meta import ObjectMeta, OwnerReference
from netdra.model.names import DRIVER, network_of
from netdra.model.plan import ClaimReference
from netdra.model.resource import API_VERSION, QuantityText, Wire

MAX_RESULTS = 32
"""How many devices a claim can be allocated (AllocationResultsMaxSize)."""


class CELDeviceSelector(Wire, frozen=True):
    """A CEL expression that is true for the selected devices."""

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
    """Devices of one class: `count` of them, or all."""

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
    """One named request of a claim: exactly this, or the first available of several."""

    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Wire, frozen=True):
    """A constraint on the devices of several requests, to be equal or distinct; no requests means all of the claim."""

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
    """The requests of a claim."""

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

    @property
    def pod_network(self) -> str:
        """The PodNetwork of which it is a share of the addresses; "" for any other device."""
        return network_of(self.pool) if self.driver == DRIVER else ""

    @property
    def is_attachable(self) -> bool:
        """Whether it is a device of one of netdra's nodes, and not a share of a PodNetwork's addresses."""
        return self.driver == DRIVER and not network_of(self.pool)


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


def selected_node(selector: object) -> str:
    """The node of an allocation's selector; "" if it selects no single one.

    The scheduler names the node by a field (pkg/scheduler/framework/plugins/dynamicresources).
    """
    for term in _parts(selector, "nodeSelectorTerms"):
        for field in _parts(term, "matchFields"):
            values = _parts(field, "values")
            head = (field.get("key"), field.get("operator")) if isinstance(field, dict) else ()
            if head == ("metadata.name", "In") and len(values) == 1 and isinstance(values[0], str):
                return values[0]
    return ""


def _parts(value: object, name: str) -> list[object]:
    parts = value.get(name) if isinstance(value, dict) else None
    return parts if isinstance(parts, list) else []


class ResourceClaimConsumerReference(Wire, frozen=True):
    """The user of the claim: usually a pod."""

    resource: str
    name: str
    uid: str
    api_group: str = ""


class NetworkDeviceData(Wire, frozen=True):
    """A network device inside the pod; addresses in CIDR notation."""

    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(Wire, frozen=True):
    """The driver's status of one allocated device. The API server writes `conditions: null` where none exist."""

    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[Any, ...] | None = None
    data: Any = None
    network_data: NetworkDeviceData | None = None


class ResourceClaimStatus(Wire, frozen=True):
    """The allocation, its users, and the reports of drivers."""

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
        """The full name."""
        return ClaimReference(namespace=self.metadata.namespace, name=self.metadata.name, uid=self.metadata.uid)


_SCHEDULING_GROUP = "scheduling.k8s.io"


def is_reserved_for(claim: ResourceClaim, uid: str, pod_group: str = "") -> bool:
    """Whether a claim is reserved for a pod, or for its PodGroup (DRAWorkloadResourceClaims of Kubernetes 1.37).

    Follows IsReservedForPod of k8s.io/dynamic-resource-allocation/resourceclaim: pods do not know their PodGroup's uid.

    Args:
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
    """The allocation of a claim; None until the scheduler has chosen devices."""

    allocation: ClaimUseAllocation | None = None


class ClaimUse(Wire, frozen=True):
    """The part of a ResourceClaim with the devices that it uses: a cluster has many, and most are other drivers'."""

    metadata: ObjectMeta
    status: ClaimUseStatus = ClaimUseStatus()


class ClaimStateStatus(ClaimUseStatus, frozen=True):
    """Whether the claim is allocated, and the drivers' statuses of its devices."""

    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ClaimState(ClaimUse, frozen=True):
    """The part of a ResourceClaim with the devices that it uses, and whether a pod has it."""

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


def device_claim(claim: ResourceClaim | ResourceClaimTemplate) -> tuple[DeviceClaim, Path]:
    """The requests of a claim, or of a claim made from a template, and their place in the object."""
    if isinstance(claim, ResourceClaimTemplate):
        return claim.spec.spec.devices, ("spec", "spec", "devices")
    return claim.spec.devices, ("spec", "devices")


class DeviceClassConfiguration(Wire, frozen=True):
    """Configuration that every device allocated through the class carries."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Wire, frozen=True):
    """The devices of the class, and their configuration."""

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
