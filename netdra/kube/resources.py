"""The API server's kinds that netdra uses: each kind's place in its URLs and the type of its objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from netdra.model import claim, crd, kinds, resource, taint_rule, watched_claim
from netdra.model.cni_plugin import CNIPlugin
from netdra.model.core import BareObject, ClusterNode, NodeReadiness, ServiceCIDR
from netdra.model.custom_device import CustomDevice
from netdra.model.meta import ObjectMeta
from netdra.model.neutron_port import NeutronPort
from netdra.model.node_network import NodeInterfaces, NodeNetwork, NodeNetworkReport
from netdra.model.pod_address import PodAddress, WatchedPodAddress
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.rollout import CustomDeviceRollout, DeviceExposurePolicyRollout, NetworkTopologyUsage
from netdra.model.schema import CNIPluginSchema
from netdra.model.service import DISCOVERY, EndpointSlice, ServedPod, Service
from netdra.model.topology import NetworkTopology


class KubernetesObject(Protocol):
    """The least that a type needs to be listed, watched and stored."""

    @property
    def metadata(self) -> ObjectMeta:
        """The name, namespace, uid and resourceVersion by which the object is identified."""


T = TypeVar("T", bound=KubernetesObject)


@dataclass(frozen=True)
class Resource(Generic[T]):
    """A kind as the API server serves it.

    Attributes:
        group_version: `v1` or `<group>/<version>`.
        plural: its name in URLs.
        type: the type of its objects; fields that the type lacks are dropped.
        namespaced: whether its objects are in namespaces.
        renewed: whether its objects are written again and again with the same content, as leases are.
        drawn: the fields of its objects with values that are drawn at random each time.
    """

    group_version: str
    plural: str
    type: type[T]
    namespaced: bool = False
    renewed: bool = False
    drawn: frozenset[str] = frozenset()

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL's path; without a namespace it is that of a namespaced kind's objects in all namespaces."""
        parts = ["/api" if "/" not in self.group_version else "/apis", self.group_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])


class TokenReviewSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A token, and the audiences that it must be for."""

    token: str
    audiences: tuple[str, ...] = ()


class TokenUser(msgspec.Struct, frozen=True, kw_only=True):
    """A token's user; `extra` names the pod and its node."""

    username: str = ""
    extra: dict[str, tuple[str, ...]] = {}


class TokenReviewStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The API server's answer on a token."""

    authenticated: bool = False
    user: TokenUser = TokenUser()
    audiences: tuple[str, ...] = ()
    error: str = ""


class TokenReview(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A review of a token (authentication.k8s.io/v1), which is answered and not stored."""

    spec: TokenReviewSpec
    metadata: ObjectMeta = ObjectMeta()
    status: TokenReviewStatus | None = None
    api_version: str = "authentication.k8s.io/v1"
    kind: str = "TokenReview"


def _custom(kind: crd.CustomKind, type_: type[T]) -> Resource[T]:
    assert kind.type is type_
    return Resource(f"{kind.group}/{crd.VERSION}", kind.plural, type_, namespaced=kind.namespaced)


NODES = Resource("v1", "nodes", ClusterNode)
NODE_READINESS = Resource("v1", "nodes", NodeReadiness)
NODE_NAMES = Resource("v1", "nodes", BareObject)
SERVICE_CIDRS = Resource("networking.k8s.io/v1", "servicecidrs", ServiceCIDR)
SERVICES = Resource("v1", "services", Service, namespaced=True)
SERVED_PODS = Resource("v1", "pods", ServedPod, namespaced=True)
ENDPOINT_SLICES = Resource(DISCOVERY, "endpointslices", EndpointSlice, namespaced=True)
NAMESPACES = Resource("v1", "namespaces", BareObject)
TOKEN_REVIEWS = Resource("authentication.k8s.io/v1", "tokenreviews", TokenReview)
RESOURCE_SLICES = Resource(resource.API_VERSION, "resourceslices", resource.ResourceSlice)
RESOURCE_CLAIMS = Resource(resource.API_VERSION, "resourceclaims", claim.ResourceClaim, namespaced=True)
CLAIM_TEMPLATES = Resource(resource.API_VERSION, "resourceclaimtemplates", claim.ResourceClaimTemplate, namespaced=True)
WATCHED_CLAIMS = Resource(resource.API_VERSION, "resourceclaims", watched_claim.WatchedClaim, namespaced=True)
CLAIM_STATES = Resource(resource.API_VERSION, "resourceclaims", claim.ClaimState, namespaced=True)
DEVICE_CLASSES = Resource(resource.API_VERSION, "deviceclasses", claim.DeviceClass)
DEVICE_TAINT_RULES = Resource(resource.API_VERSION, "devicetaintrules", taint_rule.DeviceTaintRule)
POLICIES = _custom(kinds.POLICY, DeviceExposurePolicy)
TOPOLOGIES = _custom(kinds.TOPOLOGY, NetworkTopology)
SCHEMAS = _custom(kinds.SCHEMA, CNIPluginSchema)
CUSTOM_DEVICES = _custom(kinds.CUSTOM_DEVICE, CustomDevice)
CNI_PLUGINS = _custom(kinds.CNI_PLUGIN, CNIPlugin)
NEUTRON_PORTS = _custom(kinds.NEUTRON_PORT, NeutronPort)
POD_NETWORKS = _custom(kinds.POD_NETWORK, PodNetwork)
POD_ADDRESSES = _custom(kinds.POD_ADDRESS, PodAddress)
NODE_NETWORKS = _custom(kinds.NODE_NETWORK, NodeNetwork)
TOPOLOGY_USAGES = _custom(kinds.TOPOLOGY_USAGE, NetworkTopologyUsage)
POLICY_ROLLOUTS = _custom(kinds.POLICY_ROLLOUT, DeviceExposurePolicyRollout)
CUSTOM_DEVICE_ROLLOUTS = _custom(kinds.CUSTOM_DEVICE_ROLLOUT, CustomDeviceRollout)
WATCHED_ADDRESSES = Resource(POD_ADDRESSES.group_version, POD_ADDRESSES.plural, WatchedPodAddress)
NODE_REPORTS = Resource(NODE_NETWORKS.group_version, NODE_NETWORKS.plural, NodeNetworkReport)
NODE_INTERFACES = Resource(NODE_NETWORKS.group_version, NODE_NETWORKS.plural, NodeInterfaces)
"""NodeNetworks, as far as the controller and `netdra doctor` need them."""
