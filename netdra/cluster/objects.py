"""The objects of a cluster that stories are made of, as far as they are read. Read by `netdra.cluster.reading`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from netdra.model import quantity
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.cni_plugin import CNIPlugin
from netdra.model.core import BareObject, ExtendedClaim, NodeTaint, PodClaim
from netdra.model.custom_device import CustomDevice
from netdra.model.names import BANDWIDTH, DRIVER, NEXT_STEP, network_of
from netdra.model.neutron_port import NeutronPort
from netdra.model.node_network import NodeNetwork
from netdra.model.pod_address import PodAddress
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import Device, DeviceTaint, ResourceSlice, Wire, newest
from netdra.model.rollout import DeviceExposurePolicyRollout, NetworkTopologyUsage
from netdra.model.scheduler_version import NEWEST_SCHEDULER, SchedulerVersion
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology
from netdra.model.workload import Workload, WorkloadContainer, WorkloadPodSpec
from netdra.review.world import World, world_of
from netdra.rules.workloads import Objects, known_objects
from netdra.slices.allocator import claim_key

DeviceId = tuple[str, str]
"""A device of netdra: pool and name."""


class StatusCondition(Wire, frozen=True):
    """A condition of an object of Kubernetes, which may lack a reason."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None

    @property
    def time(self) -> str:
        """Since when it has its status, in RFC 3339; "" if that is unknown."""
        return self.last_transition_time or ""


class PodToleration(Wire, frozen=True):
    """Lets a pod run on a node in spite of a taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class SchedulingGate(Wire, frozen=True):
    """Keeps a pod from being scheduled until it is removed."""

    name: str


class PlacedPodSpec(Wire, frozen=True):
    """The part of a pod's spec that determines where it runs and which devices it has."""

    containers: tuple[WorkloadContainer, ...] | None = ()
    init_containers: tuple[WorkloadContainer, ...] | None = ()
    resource_claims: tuple[PodClaim, ...] | None = ()
    host_network: bool | None = False
    node_name: str = ""
    node_selector: Mapping[str, str] | None = None
    affinity: Any = None
    tolerations: tuple[PodToleration, ...] | None = ()
    scheduling_gates: tuple[SchedulingGate, ...] | None = ()


class ContainerState(Wire, frozen=True):
    """A container's name, and its states as the kubelet writes them."""

    name: str = ""
    state: Mapping[str, Any] = {}
    last_state: Mapping[str, Any] = {}

    @property
    def is_running(self) -> bool:
        """Whether it runs."""
        return "running" in self.state

    @property
    def has_run(self) -> bool:
        """Whether it was started once; the kubelet also writes `terminated` for containers that never were."""
        ends = (state.get("terminated") for state in (self.state, self.last_state))
        return self.is_running or any(isinstance(end, Mapping) and bool(end.get("startedAt")) for end in ends)


class PlacedPodStatus(Wire, frozen=True):
    """The progress of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[StatusCondition, ...] | None = ()
    container_statuses: tuple[ContainerState, ...] | None = ()
    init_container_statuses: tuple[ContainerState, ...] | None = ()
    resource_claim_statuses: tuple[PodClaim, ...] | None = None
    extended_resource_claim_status: ExtendedClaim | None = None

    def condition(self, kind: str) -> StatusCondition | None:
        """The condition of a type, such as "PodScheduled"; None if the kubelet and the scheduler wrote none."""
        return next((found for found in self.conditions or () if found.type == kind), None)

    @property
    def is_ready(self) -> bool:
        """Whether the kubelet reports the condition Ready as True."""
        ready = self.condition("Ready")
        return ready is not None and ready.status == "True"

    @property
    def waiting_reason(self) -> str:
        """Why the first container that does not run waits, as the kubelet states it; "" if none does."""
        states = (container.state.get("waiting") for container in self.container_statuses or ())
        reasons = (state.get("reason") for state in states if isinstance(state, Mapping))
        return next((reason for reason in reasons if isinstance(reason, str) and reason), "")


class PlacedPod(BareObject, frozen=True):
    """A Pod, with its claims and its progress."""

    spec: PlacedPodSpec = PlacedPodSpec()
    status: PlacedPodStatus = PlacedPodStatus()

    @property
    def called(self) -> str:
        """How it is called in texts."""
        return f"Pod {self.metadata.namespace}/{self.metadata.name}"

    @property
    def has_claims(self) -> bool:
        """Whether the pod names a claim, or the scheduler created one for its extended resources."""
        return bool(self.spec.resource_claims) or self.status.extended_resource_claim_status is not None

    def condition(self, kind: str) -> StatusCondition | None:
        """The condition of a type, such as "PodScheduled"; None if the kubelet and the scheduler wrote none."""
        return self.status.condition(kind)

    @property
    def is_running(self) -> bool:
        """Whether all of its containers run."""
        states = self.status.container_statuses or ()
        return bool(states) and all(state.is_running for state in states)

    @property
    def is_ready(self) -> bool:
        """Whether the kubelet reports its condition Ready as True."""
        return self.status.is_ready

    @property
    def has_ended(self) -> bool:
        """Whether its containers have ended for good, or are never started: Kubernetes releases its claims."""
        states = self.status.container_statuses or ()
        has_none = bool(states) and all("terminated" in state.state for state in states)
        return self.status.phase in ("Succeeded", "Failed") or (
            self.metadata.is_ending and (not self.spec.node_name or has_none)
        )

    @property
    def has_run(self) -> bool:
        """Whether one of its containers was started, so that its network was attached."""
        states = (*(self.status.init_container_statuses or ()), *(self.status.container_statuses or ()))
        return any(state.has_run for state in states)

    @property
    def is_waiting(self) -> bool:
        """Whether its containers are still to start."""
        return not (self.is_running or self.has_ended or self.metadata.is_ending)

    @property
    def workload(self) -> Workload:
        """The pod as the rules for workloads take it."""
        spec = WorkloadPodSpec(
            containers=self.spec.containers,
            init_containers=self.spec.init_containers,
            resource_claims=self.spec.resource_claims,
            host_network=self.spec.host_network,
        )
        return Workload(kind="Pod", metadata=self.metadata, pods=1, first=0, spec=spec, place=("spec",))

    def claim_names(self) -> Iterator[tuple[str, str]]:
        """Its claims, as its name for each and the ResourceClaim; "" while that is not created."""
        made = {entry.name: entry.resource_claim_name or "" for entry in self.status.resource_claim_statuses or ()}
        for entry in self.spec.resource_claims or ():
            yield entry.name, entry.resource_claim_name or made.get(entry.name, "")
        extended = self.status.extended_resource_claim_status
        if extended is not None:
            yield "extended resources", extended.resource_claim_name


class PlacementNodeSpec(Wire, frozen=True):
    """The fields of a node that keep pods off it."""

    taints: tuple[NodeTaint, ...] | None = ()
    unschedulable: bool | None = False


class PlacementNodeStatus(Wire, frozen=True):
    """A node's conditions and resources."""

    conditions: tuple[StatusCondition, ...] | None = ()
    allocatable: Mapping[str, str] | None = None


class PlacementNode(BareObject, frozen=True):
    """A Node, as pods are placed on it."""

    spec: PlacementNodeSpec = PlacementNodeSpec()
    status: PlacementNodeStatus = PlacementNodeStatus()


class TaintSelector(Wire, frozen=True):
    """The devices that a DeviceTaintRule taints; an absent field selects all."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class TaintRuleSpec(Wire, frozen=True):
    """A taint, and the devices that it is set on; without a selector none (resource/v1, DeviceTaintRuleSpec)."""

    taint: DeviceTaint
    device_selector: TaintSelector | None = None


class TaintRule(BareObject, frozen=True):
    """A DeviceTaintRule: an administrator's taint on devices."""

    spec: TaintRuleSpec

    def applies_to(self, driver: str, pool: str, device: str) -> bool:
        """Whether it taints a device, as kube-scheduler decides (resourceslice/tracker/tracker.go)."""
        selector = self.spec.device_selector
        if selector is None:
            return False
        pairs = ((selector.driver, driver), (selector.pool, pool), (selector.device, device))
        return all(wanted in (None, present) for wanted, present in pairs)


class EventObject(Wire, frozen=True):
    """The object that an event is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventSeriesState(Wire, frozen=True):
    """How often an event occurred, and when last."""

    count: int = 0
    last_observed_time: str | None = None


class ClusterEvent(Wire, frozen=True):
    """An event (v1), written by either API."""

    metadata: Any = None
    involved_object: EventObject = EventObject()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: EventSeriesState | None = None

    @property
    def is_of_pod_or_claim(self) -> bool:
        """Whether it is about a pod or a claim."""
        return self.involved_object.kind in ("Pod", "ResourceClaim")

    @property
    def time(self) -> str:
        """When it occurred last, in RFC 3339, "" if that is unknown."""
        last = self.series.last_observed_time if self.series is not None else None
        return _seconds(last or self.last_timestamp or self.event_time or self.first_timestamp or "")

    @property
    def next_step(self) -> str:
        """The next step, which netdra writes as an annotation; "" if none."""
        annotations = self.metadata.get("annotations") if isinstance(self.metadata, Mapping) else None
        step = annotations.get(NEXT_STEP) if isinstance(annotations, Mapping) else None
        return step if isinstance(step, str) else ""

    @property
    def times(self) -> int:
        """How often it occurred."""
        return max(self.count or 1, self.series.count if self.series is not None else 1)


class DeviceInSlice(msgspec.Struct, frozen=True):
    """A device of netdra with the slice that publishes it."""

    device: Device
    node: str
    pool: str

    def attribute(self, name: str) -> Any:
        """The value of an attribute of dra.networking; None if the device has none."""
        attribute = self.device.attributes.get(f"{DRIVER}/{name}") or self.device.attributes.get(name)
        return attribute.value if attribute is not None else None


class ClusterState(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The objects that were read from a cluster.

    Attributes:
        drivers: the pods of `netdra node`.
        unread: by the plural of a kind, why it could not be read; its objects are unknown, not absent.
        version: that of Kubernetes.
        server_time: the time by the API server's clock, in RFC 3339.
    """

    pods: Sequence[PlacedPod] = ()
    claims: Sequence[ResourceClaim] = ()
    templates: Sequence[ResourceClaimTemplate] = ()
    classes: Sequence[DeviceClass] = ()
    slices: Sequence[ResourceSlice] = ()
    nodes: Sequence[PlacementNode] = ()
    node_networks: Sequence[NodeNetwork] = ()
    topologies: Sequence[NetworkTopology] = ()
    usages: Sequence[NetworkTopologyUsage] = ()
    policies: Sequence[DeviceExposurePolicy] = ()
    schemas: Sequence[CNIPluginSchema] = ()
    custom_devices: Sequence[CustomDevice] = ()
    rollouts: Sequence[DeviceExposurePolicyRollout] = ()
    plugins: Sequence[CNIPlugin] = ()
    ports: Sequence[NeutronPort] = ()
    networks: Sequence[PodNetwork] = ()
    addresses: Sequence[PodAddress] = ()
    taint_rules: Sequence[TaintRule] = ()
    drivers: Sequence[PlacedPod] = ()
    events: Sequence[ClusterEvent] = ()
    unread: Mapping[str, str] = {}
    version: SchedulerVersion = NEWEST_SCHEDULER
    server_time: str = ""

    def pod(self, namespace: str, name: str) -> PlacedPod | None:
        """The pod of this name; None if it is absent or unread (see `unread`). A search through all pods."""
        return next((pod for pod in self.pods if _key(pod) == (namespace, name)), None)

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim of this name, from an index; None if it is absent or unread."""
        return self._claims.get((namespace, name))

    def topology(self, name: str) -> NetworkTopology | None:
        """The topology of this name; None if it is absent or unread."""
        return next((topology for topology in self.topologies if topology.name == name), None)

    def node(self, name: str) -> PlacementNode | None:
        """The Node of this name, from an index; None if it is absent or unread."""
        return self._nodes.get(name)

    def report(self, node: str) -> NodeNetwork | None:
        """A node's NodeNetwork."""
        return self._reports.get(node)

    def driver_of(self, node: str) -> PlacedPod | None:
        """The pod of the driver on a node."""
        return self._drivers.get(node)

    def could_read(self, *plurals: str) -> bool:
        """Whether the objects of these kinds are known."""
        return not any(plural in self.unread for plural in plurals)

    def events_of(self, kind: str, name: str, namespace: str = "", uid: str = "") -> list[ClusterEvent]:
        """The events of an object, the oldest first; those of a former object of its name are left out."""
        about = (
            event
            for event in self.events
            if (event.involved_object.kind, event.involved_object.name) == (kind, name)
            and (not namespace or event.involved_object.namespace == namespace)
            and (not uid or event.involved_object.uid in ("", uid))
        )
        return sorted(about, key=lambda event: event.time)

    @cached_property
    def _claims(self) -> Mapping[tuple[str, str], ResourceClaim]:
        return {_key(claim): claim for claim in self.claims}

    @cached_property
    def addresses_by_claim(self) -> Mapping[str, list[PodAddress]]:
        """The PodAddresses by the uids of their claims."""
        found: dict[str, list[PodAddress]] = {}
        for address in self.addresses:
            if address.spec.claim is not None:
                found.setdefault(address.spec.claim.uid, []).append(address)
        return found

    @cached_property
    def _nodes(self) -> Mapping[str, PlacementNode]:
        return {node.metadata.name: node for node in self.nodes}

    @cached_property
    def _reports(self) -> Mapping[str, NodeNetwork]:
        return {report.name: report for report in self.node_networks}

    @cached_property
    def _drivers(self) -> Mapping[str, PlacedPod]:
        # During an update, or after an eviction, a node has two; the one that is Ready, or has not ended, counts.
        ordered = sorted(self.drivers, key=lambda pod: (pod.is_ready, not pod.has_ended))
        return {pod.spec.node_name: pod for pod in ordered}

    @cached_property
    def world(self) -> World:
        """The objects by which a topology is reviewed; the webhook compares it with others."""
        return world_of([*self.policies, *self.schemas, *self.custom_devices, *self.networks])

    @cached_property
    def known(self) -> Objects:
        """The objects as the rules for workloads take them."""
        objects = known_objects([*self.topologies, *self.classes, *self.claims, *self.templates])
        return Objects(claims=objects.claims, topologies=objects.topologies, classes=objects.classes, where="")

    @cached_property
    def devices(self) -> Mapping[DeviceId, DeviceInSlice]:
        """The devices that nodes' netdra publishes now, with the taints of DeviceTaintRules."""
        ours = newest(
            one for one in self.tainted_slices if one.spec.driver == DRIVER and not network_of(one.spec.pool.name)
        )
        return {
            (pool, device.name): DeviceInSlice(device, one.spec.node_name or "", pool)
            for pool, slices in ours.items()
            for one in slices
            for device in one.spec.devices
        }

    @cached_property
    def offering_nodes(self) -> frozenset[str]:
        """The nodes that publish devices of netdra."""
        return frozenset(found.node for found in self.devices.values())

    @cached_property
    def pool_bandwidth(self) -> Mapping[str, int]:
        """The bandwidth in the counters of each pool, in Mbit/s."""
        return {
            one.spec.pool.name: int(quantity.parse(counter_set.counters[BANDWIDTH].value))
            for one in self.slices
            if one.spec.driver == DRIVER
            for counter_set in one.spec.shared_counters
            if BANDWIDTH in counter_set.counters
        }

    @cached_property
    def applied_rules(self) -> tuple[TaintRule, ...]:
        """The DeviceTaintRules that taint a device of netdra."""
        devices = self.devices
        return tuple(rule for rule in self.taint_rules if any(rule.applies_to(DRIVER, *place) for place in devices))

    @cached_property
    def tainted_slices(self) -> tuple[ResourceSlice, ...]:
        """The slices, their devices with the taints of DeviceTaintRules."""
        return tuple(_tainted(one, self.taint_rules) for one in self.slices) if self.taint_rules else (*self.slices,)

    @cached_property
    def holders(self) -> Mapping[DeviceId, tuple[ResourceClaim, ...]]:
        """The claims that netdra's devices are allocated to."""
        held: dict[DeviceId, dict[str, ResourceClaim]] = {}
        for claim in self.claims:
            allocation = claim.status.allocation
            for result in allocation.devices.results if allocation is not None else ():
                if result.is_attachable and not result.admin_access:
                    held.setdefault((result.pool, result.device), {})[claim_key(claim)] = claim
        return {device: tuple(claims.values()) for device, claims in held.items()}


def _key(entry: PlacedPod | ResourceClaim) -> tuple[str, str]:
    return entry.metadata.namespace, entry.metadata.name


def _seconds(time: str) -> str:
    """A time of the API without fractions of a second."""
    whole, point, _ = time.partition(".")
    return f"{whole}Z" if point else time


def _tainted(one: ResourceSlice, rules: Sequence[TaintRule]) -> ResourceSlice:
    devices = tuple(
        msgspec.structs.replace(device, taints=(*device.taints, *_taints(one, device, rules)))
        for device in one.spec.devices
    )
    return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, devices=devices))


def _taints(one: ResourceSlice, device: Device, rules: Sequence[TaintRule]) -> Iterator[DeviceTaint]:
    place = (one.spec.driver, one.spec.pool.name, device.name)
    return (rule.spec.taint for rule in rules if rule.applies_to(*place))
