"""Services, the pods behind them, and EndpointSlices (k8s.io/api/core/v1, discovery/v1), as far as netdra uses them.

Read by `netdra.controller.services.endpoints`; `netdra.services` works out the EndpointSlices.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from netdra.model.core import ExtendedClaim, PodClaim
from netdra.model.meta import ObjectMeta
from netdra.model.names import GROUP
from netdra.model.pod_address import Family
from netdra.model.resource import Wire

DISCOVERY: Literal["discovery.k8s.io/v1"] = "discovery.k8s.io/v1"
NETWORK_LABEL = f"{GROUP}/pod-network"
"""The label of a Service whose endpoints are the pods' addresses on a PodNetwork, with the PodNetwork's name."""
SELECTOR_ANNOTATION = f"{GROUP}/pod-selector"
"""The annotation of such a Service by which its pods are selected, as a label selector: `app=web`."""
SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = f"endpoints.{GROUP}"
"""The value of `MANAGED_BY` by which netdra's EndpointSlices are known."""
KUBERNETES_MANAGERS = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")
"""The values of `MANAGED_BY` of Kubernetes' own EndpointSlices, which stay when a Service's selector is removed."""
HEADLESS = "service.kubernetes.io/headless"
RESERVED_LABELS = frozenset({SERVICE_NAME, MANAGED_BY, HEADLESS})
"""Labels of EndpointSlices that do not come from the Service."""
ZONE = "topology.kubernetes.io/zone"
"""The label of a pod with the zone of its node; the API server sets it when the pod is bound."""
_NOTHING: Mapping[str, str] = MappingProxyType({})


class ServicePort(Wire, frozen=True):
    """A port of a Service; `target_port` is a number, the name of a container's port, or 0 for `port`."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    target_port: int | str = 0
    app_protocol: str | None = None


class ServiceSpec(Wire, frozen=True):
    """How a Service is reached."""

    type: str = "ClusterIP"
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    ip_families: tuple[Family, ...] = ()
    ports: tuple[ServicePort, ...] = ()
    selector: Mapping[str, str] | None = None
    publish_not_ready_addresses: bool = False


class Service(Wire, frozen=True):
    """The fields of a Service that its EndpointSlices depend on; the others are dropped when it is decoded."""

    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()

    @property
    def network(self) -> str:
        """The PodNetwork of its endpoints, "" if it names none."""
        return self.metadata.labels.get(NETWORK_LABEL, "")

    @property
    def selector(self) -> str:
        """The label selector of its pods, "" without one."""
        return self.metadata.annotations.get(SELECTOR_ANNOTATION, "").strip()

    @property
    def is_headless(self) -> bool:
        """Whether it has no address of its own."""
        return self.spec.cluster_ip in ("", "None")


class ContainerPort(Wire, frozen=True):
    """A named or numbered port, to which the targetPort of a Service can refer."""

    container_port: int
    name: str = ""
    protocol: str = "TCP"


class PodContainer(Wire, frozen=True):
    """The ports of a container, and whether it is a sidecar (an init container that is always restarted)."""

    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class ServedPodSpec(Wire, frozen=True):
    """The fields of a pod's spec that endpoints depend on.

    Containers without ports and claims that are made of templates are dropped on reading.
    """

    hostname: str = ""
    subdomain: str = ""
    node_name: str = ""
    containers: tuple[PodContainer, ...] = ()
    init_containers: tuple[PodContainer, ...] = ()
    resource_claims: tuple[PodClaim, ...] = ()

    def __post_init__(self) -> None:
        """Keep the fields that count, and names that many pods have once."""
        setattr_ = msgspec.structs.force_setattr
        for field in ("containers", "init_containers"):
            setattr_(self, field, tuple(container for container in getattr(self, field) if container.ports))
        setattr_(self, "resource_claims", tuple(entry for entry in self.resource_claims if entry.resource_claim_name))
        for field in ("node_name", "hostname", "subdomain"):
            setattr_(self, field, sys.intern(getattr(self, field)))


class PodAddressEntry(Wire, frozen=True):
    """An address of a pod on the cluster's own network, of which only the existence counts."""


class PodCondition(Wire, frozen=True):
    """One aspect of a pod's state."""

    type: str
    status: str


_READY = PodCondition(type="Ready", status="True")
_ONLY_READY = (_READY,)
_ANY_ADDRESS = (PodAddressEntry(),)


class ServedPodStatus(Wire, frozen=True):
    """The fields of a pod's status that endpoints depend on; other conditions than `Ready` are dropped on reading."""

    phase: str = ""
    pod_ips: tuple[PodAddressEntry, ...] = msgspec.field(default=(), name="podIPs")
    conditions: tuple[PodCondition, ...] = ()
    resource_claim_statuses: tuple[PodClaim, ...] = ()
    extended_resource_claim_status: ExtendedClaim | None = None

    def __post_init__(self) -> None:
        """Keep one condition and one address, and those once."""
        msgspec.structs.force_setattr(self, "phase", sys.intern(self.phase))
        msgspec.structs.force_setattr(self, "conditions", _ONLY_READY if _READY in self.conditions else ())
        msgspec.structs.force_setattr(self, "pod_ips", _ANY_ADDRESS if self.pod_ips else ())


class ServedPodMeta(ObjectMeta, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pod's metadata without the fields that endpoints do not depend on.

    No field of Kubernetes begins with a dash, so these are never read.
    """

    generate_name: str = msgspec.field(default="", name="-generateName")
    generation: int = msgspec.field(default=0, name="-generation")
    creation_timestamp: str | None = msgspec.field(default=None, name="-creationTimestamp")
    annotations: Mapping[str, str] = msgspec.field(default=_NOTHING, name="-annotations")
    finalizers: tuple[str, ...] = msgspec.field(default=(), name="-finalizers")
    owner_references: tuple[()] = msgspec.field(default=(), name="-ownerReferences")

    def __post_init__(self) -> None:
        """Keep names and labels that many pods have once."""
        labels = {sys.intern(key): sys.intern(value) for key, value in self.labels.items()}
        msgspec.structs.force_setattr(self, "labels", labels)
        for field in ("name", "namespace"):
            msgspec.structs.force_setattr(self, field, sys.intern(getattr(self, field)))


class ServedPod(Wire, frozen=True):
    """A pod, as the controller keeps it."""

    metadata: ServedPodMeta
    spec: ServedPodSpec = ServedPodSpec()
    status: ServedPodStatus = ServedPodStatus()

    @property
    def is_ready(self) -> bool:
        """Whether the kubelet reports it as ready."""
        return bool(self.status.conditions)

    @property
    def has_network(self) -> bool:
        """Whether its network is set up and not taken down for good."""
        return bool(self.status.pod_ips) and self.status.phase not in ("Succeeded", "Failed")

    @property
    def has_claims(self) -> bool:
        """Whether it has a claim, and so perhaps an address of a PodNetwork."""
        return next(self.claims, None) is not None

    @property
    def claims(self) -> Iterator[str]:
        """The names of its claims."""
        yield from (entry.resource_claim_name for entry in self.spec.resource_claims if entry.resource_claim_name)
        made = self.status.resource_claim_statuses
        yield from (entry.resource_claim_name for entry in made if entry.resource_claim_name)
        extended = self.status.extended_resource_claim_status
        if extended is not None:
            yield extended.resource_claim_name


class TargetReference(Wire, frozen=True):
    """The pod of an endpoint."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EndpointConditions(Wire, frozen=True):
    """Whether an endpoint can be used."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(Wire, frozen=True):
    """An address behind a Service."""

    addresses: tuple[str, ...]
    conditions: EndpointConditions = EndpointConditions()
    hostname: str = ""
    node_name: str = ""
    zone: str = ""
    target_ref: TargetReference | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The endpoint's identity: its pod and address."""
        return (self.target_ref.uid if self.target_ref is not None else "", *self.addresses)


class EndpointPort(Wire, frozen=True):
    """A port of all endpoints of a slice."""

    name: str = ""
    protocol: str = "TCP"
    port: int | None = None
    app_protocol: str | None = None


class EndpointSlice(Wire, frozen=True):
    """Endpoints of a Service of one address family with the same ports. The API server writes `null` for none."""

    metadata: ObjectMeta
    address_type: str
    endpoints: tuple[Endpoint, ...] | None
    ports: tuple[EndpointPort, ...] | None
    api_version: Literal["discovery.k8s.io/v1"] = DISCOVERY
    kind: Literal["EndpointSlice"] = "EndpointSlice"
