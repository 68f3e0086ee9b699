"""What can be asked of the API server: each kind's place in its URLs and the type that its objects are read into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from netdra.model import claim, crd, kinds, resource
from netdra.model.cni_plugin import CNIPlugin
from netdra.model.custom_device import CustomDevice
from netdra.model.meta import ObjectMeta
from netdra.model.neutron_port import NeutronPort
from netdra.model.node_network import NodeInterfaces, NodeNetwork, NodeReport
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology


class KubernetesObject(Protocol):
    """Whatever has metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its name and what hangs on it."""


T = TypeVar("T", bound=KubernetesObject)


@dataclass(frozen=True)
class Resource(Generic[T]):
    """A kind as the API server serves it.

    Attributes:
        group_version: `v1` or `<group>/<version>`.
        plural: its name in URLs.
        type: what its objects are read into; fields that the type lacks are not kept.
        namespaced: whether its objects are in namespaces.
    """

    group_version: str
    plural: str
    type: type[T]
    namespaced: bool = False

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL's path; without a namespace a namespaced kind's objects of all namespaces are meant."""
        parts = ["/api" if "/" not in self.group_version else "/apis", self.group_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])


class ClusterNodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a Node's status as policies can read values of."""

    allocatable: dict[str, str] = {}


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True):
    """A Node, as far as netdra looks at it: its uid, which slices belong to, its labels, what is allocatable."""

    metadata: ObjectMeta
    status: ClusterNodeStatus = ClusterNodeStatus()


class TokenReviewSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A token, and for whom it must have been made out."""

    token: str
    audiences: tuple[str, ...] = ()


class TokenUser(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a token is; `extra` names the pod and its node."""

    username: str = ""
    extra: dict[str, tuple[str, ...]] = {}


class TokenReviewStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server says of a token."""

    authenticated: bool = False
    user: TokenUser = TokenUser()
    audiences: tuple[str, ...] = ()
    error: str = ""


class TokenReview(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A question about a token (authentication.k8s.io/v1), which is answered and not stored."""

    spec: TokenReviewSpec
    metadata: ObjectMeta = ObjectMeta()
    status: TokenReviewStatus | None = None
    api_version: str = "authentication.k8s.io/v1"
    kind: str = "TokenReview"


def _custom(kind: crd.CustomKind, type_: type[T]) -> Resource[T]:
    assert kind.type is type_
    return Resource(f"{kind.group}/{crd.VERSION}", kind.plural, type_, namespaced=kind.namespaced)


NODES = Resource("v1", "nodes", ClusterNode)
TOKEN_REVIEWS = Resource("authentication.k8s.io/v1", "tokenreviews", TokenReview)
RESOURCE_SLICES = Resource(resource.API_VERSION, "resourceslices", resource.ResourceSlice)
RESOURCE_CLAIMS = Resource(resource.API_VERSION, "resourceclaims", claim.ResourceClaim, namespaced=True)
CLAIM_USES = Resource(resource.API_VERSION, "resourceclaims", claim.ClaimUse, namespaced=True)
CLAIM_STATES = Resource(resource.API_VERSION, "resourceclaims", claim.ClaimState, namespaced=True)
DEVICE_CLASSES = Resource(resource.API_VERSION, "deviceclasses", claim.DeviceClass)
POLICIES = _custom(kinds.POLICY, DeviceExposurePolicy)
TOPOLOGIES = _custom(kinds.TOPOLOGY, NetworkTopology)
SCHEMAS = _custom(kinds.SCHEMA, CNIPluginSchema)
CUSTOM_DEVICES = _custom(kinds.CUSTOM_DEVICE, CustomDevice)
CNI_PLUGINS = _custom(kinds.CNI_PLUGIN, CNIPlugin)
NEUTRON_PORTS = _custom(kinds.NEUTRON_PORT, NeutronPort)
NODE_NETWORKS = _custom(kinds.NODE_NETWORK, NodeNetwork)
NODE_REPORTS = Resource(NODE_NETWORKS.group_version, NODE_NETWORKS.plural, NodeReport)
NODE_INTERFACES = Resource(NODE_NETWORKS.group_version, NODE_NETWORKS.plural, NodeInterfaces)
"""The same kind, read by the controller and the webhook as far as each needs it."""
