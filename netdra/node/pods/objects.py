"""As much of a Pod as says which claims it has, and as much of a claim as it takes to prepare and bind it. Pure.

Kept by `netdra.node.pods.tracker` for each pod of the node: there may be hundreds, with claims of other drivers too.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from netdra.kube.resources import Resource
from netdra.model import names
from netdra.model.claim import AllocationResult, DeviceAllocationResult, ResourceClaim, ResourceClaimSpec
from netdra.model.meta import ObjectMeta, OwnerReference
from netdra.model.resource import Wire
from netdra.node.claims.prepared import POD_CLAIM_NAME
from netdra.topology.bind import EXTENDED_RESOURCE_CLAIM

_NEVER = "-"  # no field of Kubernetes is called so

_ANNOTATIONS = (EXTENDED_RESOURCE_CLAIM, POD_CLAIM_NAME)


class _Marks(msgspec.Struct, frozen=True):
    """The one annotation that is looked at."""

    mirror: str = msgspec.field(default="", name="kubernetes.io/config.mirror")


class PodMeta(ObjectMeta, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pod's metadata without what people hang on it, which may be kilobytes for each of hundreds of pods."""

    labels: Mapping[str, str] = msgspec.field(default_factory=dict, name=f"{_NEVER}labels")
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict, name=f"{_NEVER}annotations")
    finalizers: tuple[str, ...] = msgspec.field(default=(), name=f"{_NEVER}finalizers")
    owner_references: tuple[OwnerReference, ...] = msgspec.field(default=(), name=f"{_NEVER}owners")
    marks: _Marks = msgspec.field(default=_Marks(), name="annotations")


class PodClaim(Wire, frozen=True):
    """A claim that a pod names: one that is there, or one that is made for it from a template."""

    name: str
    resource_claim_name: str | None = None


class PodSpec(Wire, frozen=True):
    """The claims that a pod names, in the order that numbers its interfaces."""

    resource_claims: tuple[PodClaim, ...] | None = None
    host_network: bool = False


class MadeClaim(Wire, frozen=True):
    """The claim that was made from a template; none, if the template turned out not to be needed."""

    name: str
    resource_claim_name: str | None = None


class ExtendedClaim(Wire, frozen=True):
    """The claim that the scheduler made for a pod's extended resources."""

    resource_claim_name: str


class PodStatus(Wire, frozen=True):
    """Which claims were made for a pod."""

    resource_claim_statuses: tuple[MadeClaim, ...] | None = None
    extended_resource_claim_status: ExtendedClaim | None = None


class WatchedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of this node."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def is_of(self, uid: str) -> bool:
        """Whether it is the pod that the kubelet knows by this uid, which for a static pod is its mirror's mark."""
        return bool(uid) and uid in (self.metadata.uid, self.metadata.marks.mirror)


PODS = Resource("v1", "pods", WatchedPod, namespaced=True)


def claim_names(pod: WatchedPod) -> tuple[str, ...] | None:
    """The names of a pod's ResourceClaims, the one for extended resources last; None while one is still to be made."""
    made = {each.name: each.resource_claim_name or "" for each in pod.status.resource_claim_statuses or ()}
    found: dict[str, None] = {}
    for each in pod.spec.resource_claims or ():
        name = each.resource_claim_name or made.get(each.name)
        if name is None:
            return None
        if name:
            found[name] = None
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        found[extended.resource_claim_name] = None
    return tuple(found)


def needed(claim: ResourceClaim) -> ResourceClaim:
    """A claim without what preparing and binding it do not need: its wishes, and all that is other drivers'."""
    metadata = claim.metadata
    marked = {name: value for name, value in metadata.annotations.items() if name in _ANNOTATIONS}
    allocation = claim.status.allocation
    devices = DeviceAllocationResult() if allocation is None else allocation.devices
    results = tuple(each for each in devices.results if each.driver == names.DRIVER)
    config = tuple(each for each in devices.config if each.opaque and each.opaque.driver == names.DRIVER)
    ours = DeviceAllocationResult(results=results, config=config if results else ())
    selector = allocation.node_selector if allocation is not None and results else None
    return ResourceClaim(
        metadata=ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            annotations=marked,
            owner_references=metadata.owner_references if EXTENDED_RESOURCE_CLAIM in marked else (),
        ),
        spec=ResourceClaimSpec(),
        status=msgspec.structs.replace(
            claim.status,
            allocation=None if allocation is None else AllocationResult(devices=ours, node_selector=selector),
            devices=(),
        ),
    )


def is_ours(claim: ResourceClaim) -> bool:
    """Whether a claim that was kept has devices of ours."""
    return claim.status.allocation is not None and bool(claim.status.allocation.devices.results)


def is_for(claim: ResourceClaim, uid: str) -> bool:
    """Whether a claim is reserved for a pod."""
    return any(each.uid == uid for each in claim.status.reserved_for)
