"""As much of a Pod as says which claims it has. Kept by `netdra.node.pods.tracker` for each pod of the node."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from netdra.kube.resources import Resource
from netdra.model.meta import ObjectMeta, OwnerReference
from netdra.model.resource import Wire

_NEVER = "-"  # no field of Kubernetes is called so


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
