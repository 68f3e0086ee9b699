"""Kubernetes' core kinds (k8s.io/api/core/v1), with the fields that netdra reads; others are dropped on reading."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from netdra.model.meta import ObjectMeta
from netdra.model.resource import Wire

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""The taint of a node that an administrator has shut down."""


class BareObject(Wire, frozen=True):
    """An object of any kind, of which the metadata is enough."""

    metadata: ObjectMeta


class PodClaim(Wire, frozen=True):
    """A claim of a pod by the pod's name for it, in its spec or its status.

    Attributes:
        resource_claim_name: an existing claim; in the status the claim that was made, none if none was needed.
        resource_claim_template_name: the template of which the claim is made.
    """

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGroup(Wire, frozen=True):
    """The PodGroup with which a pod is scheduled."""

    pod_group_name: str | None = None


class PodSpec(Wire, frozen=True):
    """A pod's claims, in the order that numbers its interfaces, its PodGroup, and where it runs.

    `host_network` reports that it has no network namespace of its own.
    """

    resource_claims: tuple[PodClaim, ...] | None = None
    host_network: bool = False
    scheduling_group: SchedulingGroup | None = None
    node_name: str = ""


class ExtendedClaim(Wire, frozen=True):
    """The claim that the scheduler made for a pod's extended resources."""

    resource_claim_name: str


class PodStatus(Wire, frozen=True):
    """The claims that were made for a pod, and whether it has ended."""

    phase: str = ""
    resource_claim_statuses: tuple[PodClaim, ...] | None = None
    extended_resource_claim_status: ExtendedClaim | None = None


class ClusterPod(BareObject, frozen=True):
    """The fields of a Pod that claims and their state depend on; the others are dropped when it is decoded."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeInfo(Wire, frozen=True):
    """The versions of a node's software."""

    kubelet_version: str = ""
    container_runtime_version: str = ""


class ClusterNodeStatus(Wire, frozen=True):
    """A Node's status: the resources that policies can read, and its software."""

    allocatable: Mapping[str, str] = {}
    node_info: NodeInfo = NodeInfo()


class ClusterNodeSpec(Wire, frozen=True):
    """The addresses of a node's pods on the cluster's network, if the cluster assigns them by node."""

    pod_cidrs: tuple[str, ...] | None = msgspec.field(default=None, name="podCIDRs")


class NodeWithoutStatus(BareObject, frozen=True):
    """A Node: its uid, which owns slices, its labels and annotations, and the addresses of its pods."""

    spec: ClusterNodeSpec = ClusterNodeSpec()


class ClusterNode(NodeWithoutStatus, frozen=True):
    """A Node and its status."""

    status: ClusterNodeStatus = ClusterNodeStatus()


class ServiceCIDRSpec(Wire, frozen=True):
    """The subnets of Services."""

    cidrs: tuple[str, ...] = ()


class ServiceCIDR(BareObject, frozen=True):
    """The addresses of Services (networking.k8s.io/v1)."""

    spec: ServiceCIDRSpec = ServiceCIDRSpec()


class NodeCondition(Wire, frozen=True):
    """One aspect of a node's state."""

    type: str
    status: str


class NodeTaint(Wire, frozen=True):
    """Keeps pods that do not tolerate it off a node."""

    key: str
    value: str = ""
    effect: str = ""


class NodeState(Wire, frozen=True):
    """A node's state, from its kubelet and its administrators."""

    conditions: tuple[NodeCondition, ...] = ()


class NodeStateSpec(Wire, frozen=True):
    """A node's taints."""

    taints: tuple[NodeTaint, ...] = ()


class NodeReadiness(BareObject, frozen=True):
    """A Node: whether its kubelet answers, or an administrator has declared it out of service."""

    spec: NodeStateSpec = NodeStateSpec()
    status: NodeState = NodeState()

    @property
    def may_run_pods(self) -> bool:
        """Whether pods may run on it that its kubelet cannot end now.

        An administrator sets the taint once the machine is shut down (Kubernetes' non-graceful node shutdown).
        """
        return not self.is_ready and not any(taint.key == OUT_OF_SERVICE for taint in self.spec.taints)

    @property
    def is_off(self) -> bool:
        """Whether an administrator has declared it out of service, and its kubelet does not answer."""
        return not self.is_ready and any(taint.key == OUT_OF_SERVICE for taint in self.spec.taints)

    @property
    def is_ready(self) -> bool:
        """Whether its kubelet answers."""
        return any((entry.type, entry.status) == ("Ready", "True") for entry in self.status.conditions)
