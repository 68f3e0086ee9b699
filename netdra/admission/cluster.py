"""The cluster that a verdict goes by: the other objects that matter for the object that is written.

Made by `netdra.admission.copy`, read by the reviews. A worker gets only the part that the review of the object needs
(`narrowed`): it decodes that part for each object, and a cluster may have a thousand topologies. The verdict is the
same as with the whole cluster.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from netdra.admission.messages import AdmissionRequest
from netdra.admission.offers import Offers
from netdra.cel.vocabulary import Added
from netdra.exposure.foresight import InterfaceReports
from netdra.exposure.ranks import RankIndex, Rivals
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate
from netdra.model.custom_device import CustomDevice
from netdra.model.errors import UNREADABLE, InvalidInputError
from netdra.model.names import network_class, network_of_class
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology, NetworkTopologySpec
from netdra.rules.limits import is_claim_within
from netdra.rules.networks import Range, ranges
from netdra.rules.schemas import plugins
from netdra.rules.taken_ranges import TakenRange
from netdra.topology.classes import class_name, every_form, known_classes, parameters
from netdra.topology.selectors import choices, device_claim
from netdra.vocabulary import AddedNames

K = TypeVar("K")
T = TypeVar("T")
_topology = msgspec.json.Decoder(NetworkTopology)
_schema = msgspec.json.Decoder(CNIPluginSchema)
_policy = msgspec.json.Decoder(DeviceExposurePolicy | None)
_pod_network = msgspec.json.Decoder(PodNetwork)
_custom_device = msgspec.json.Decoder(CustomDevice)
_claim = msgspec.json.Decoder(ResourceClaim)
_template = msgspec.json.Decoder(ResourceClaimTemplate)


class Cluster(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cluster's objects by name, as they were just before the write.

    Attributes:
        classes: the DeviceClasses that are there, and those that the controller will make of the topologies.
        users: of the topology that is written: the claims that pods are attached with.
        waiting: how many other claims are allocated through its classes.
        reported: the nodes' reports, as far as the policy that is written or deleted asks for attributes.
        nowhere: why the CustomDevice that is written is applied on no node now; "" if it is, or that is unknown.
        added: the names that policies and CustomDevices add to devices, which selectors may use.
        offers: the devices that nodes report, by the attributes that the topology or claim that is written asks for.
        rivals: of the policy that is written: the others of its rank; None if `policies` has all of them.
        pod_networks: the PodNetworks, of a topology or claim that is written those that it names.
        taken: of the PodNetwork that is written, the ranges that are used for something else.
    """

    topologies: Mapping[str, NetworkTopology] = {}
    schemas: Mapping[str, CNIPluginSchema] = {}
    policies: Mapping[str, DeviceExposurePolicy] = {}
    custom_devices: Mapping[str, CustomDevice] = {}
    classes: Mapping[str, DeviceClass] = {}
    users: tuple[str, ...] = ()
    waiting: int = 0
    nowhere: str = ""
    added: Added = Added()
    reported: InterfaceReports = InterfaceReports()
    offers: Offers = Offers()
    rivals: Rivals | None = None
    pod_networks: Mapping[str, PodNetwork] = {}
    taken: tuple[TakenRange, ...] = ()


NOTHING = Cluster()
"""A cluster without other objects."""


def topologies_of_class(device_class: DeviceClass) -> frozenset[str]:
    """The topologies of a class; none if the class is not ours."""
    named: set[str] = set()
    for config in device_class.spec.config:
        try:
            meant = parameters(config.opaque, "DeviceClass")
        except InvalidInputError:
            continue
        if meant is not None:
            named.add(meant.network_topology_ref.name)
    return frozenset(named)


def read_claim(request: AdmissionRequest) -> ResourceClaim | ResourceClaimTemplate:
    """The claim, or the template, that is written.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError: it cannot be read, or is larger than the API server takes.
    """
    claim = (_template if request.kind.kind == ResourceClaimTemplate.__name__ else _claim).decode(request.object)
    if not is_claim_within(device_claim(claim)[0]):
        raise msgspec.ValidationError("larger than the limit of the API server")
    return claim


class ClusterIndex:
    """The objects by the keys of reviews, kept current at the cost of the changes.

    Attributes:
        ranks: the policies by rank.
        pooling: the names of the policies that pool VFs.
        added: the names that policies and CustomDevices add to devices.
        classes: the classes that the controller makes of the topologies, by name. Of several topologies with a class of
            one name, that of the topology whose name sorts first.
    """

    def __init__(self, cluster: Cluster = NOTHING) -> None:
        """Take a cluster's objects."""
        self.ranks = RankIndex()
        self.pooling: set[str] = set()
        self.added = AddedNames()
        self.classes: dict[str, DeviceClass] = {}
        self._parts: dict[str, _TopologyParts] = {}
        self._made: dict[str, tuple[NetworkTopologySpec, tuple[DeviceClass, ...]]] = {}
        self._using: defaultdict[str, set[str]] = defaultdict(set)
        self._networked: defaultdict[str, set[str]] = defaultdict(set)
        self._offering: defaultdict[str, set[str]] = defaultdict(set)
        self._making: defaultdict[str, set[str]] = defaultdict(set)
        self._handing: list[tuple[str, int, int]] = []
        self._about: defaultdict[object, set[str]] = defaultdict(set)
        for policy in cluster.policies.values():
            self.on_policy(policy.name, None, policy)
        for device in cluster.custom_devices.values():
            self.on_custom_device(device.name, None, device)
        for topology in cluster.topologies.values():
            self.on_topology(topology.name, None, topology)

    def on_policy(self, name: str, old: DeviceExposurePolicy | None, new: DeviceExposurePolicy | None) -> None:
        """Take the change of a policy."""
        self.ranks.update(name, old, new)
        self.added.update(old, new)
        exposure = new.spec.exposure if new is not None else None
        if exposure is not None and exposure.pooled_vfs is not None:
            self.pooling.add(name)
        else:
            self.pooling.discard(name)

    def on_custom_device(self, name: str, old: CustomDevice | None, new: CustomDevice | None) -> None:
        """Take the change of a CustomDevice."""
        self.added.update(old, new)
        _move(self._about, name, [subject(old)] if old else (), [subject(new)] if new else ())

    def on_topology(self, name: str, old: NetworkTopology | None, new: NetworkTopology | None) -> None:
        """Take the change of a topology."""
        if old is not None and new is not None and old.spec == new.spec:
            return
        self._made.pop(name, None)
        before = self._parts.pop(name, _NO_PARTS)
        after = _NO_PARTS if new is None else _parts_of(new)
        if new is not None:
            self._parts[name] = after
        _move(self._using, name, before.plugins, after.plugins)
        _move(self._networked, name, before.networks, after.networks)
        _move(self._offering, name, before.resources, after.resources)
        _move(self._making, name, before.names, after.names)
        if before.ranges:
            del self._handing[bisect_left(self._handing, (name,))]
        if after.ranges:
            insort(self._handing, (name, *_hull(after.ranges)))
        for made in before.names | after.names:
            makers = (other for other in self._making.get(made, ()) if made in self._parts[other].classes)
            first = min(makers, default="")
            if first:
                self.classes[made] = self._parts[first].classes[made]
            else:
                self.classes.pop(made, None)

    def made(self, topology: NetworkTopology) -> tuple[DeviceClass, ...]:
        """The DeviceClasses that follow from a stored topology, in each form that nodes may publish attributes in."""
        known = self._made.get(topology.name)
        if known is None or known[0] != topology.spec:
            known = self._made[topology.name] = topology.spec, every_form(topology)
        return known[1]

    def using(self, plugin: str) -> Collection[str]:
        """The topologies with steps of a plugin, or with it as a step's IPAM plugin."""
        return self._using.get(plugin, ())

    def networked(self, network: str) -> Collection[str]:
        """The topologies with steps on a network."""
        return self._networked.get(network, ())

    def about(self, device: CustomDevice) -> Collection[str]:
        """The CustomDevices that describe the same device for the same provider."""
        return self._about.get(subject(device), ())

    def clashing(self, new: NetworkTopology) -> Iterator[str]:
        """The topologies that may share a class's or an extended resource's name, or addresses, with a new one.

        A class is named `<topology>-<step>`, so if two topologies share a class's name, one's name begins the other's.
        Of those with the same addresses one is enough for each step: it alone is named.
        """
        own = _parts_of(new)
        for made in own.names:
            yield from self._making.get(made, ())
        for resource in own.resources:
            yield from self._offering.get(resource, ())
        yield from self._same_addresses(new.name, own.ranges)

    def _same_addresses(self, new: str, ranges: Sequence[Range]) -> Iterator[str]:
        left: dict[str, list[Range]] = {}
        for handed in ranges:
            left.setdefault(handed.step, []).append(handed)
        first, last = _hull(ranges) if ranges else (1, 0)
        # Comparing the lowest and the highest address is enough to rule out most topologies.
        for name in [name for name, low, high in self._handing if low <= last and first <= high]:
            met = set() if name == new else {our.step for our in _clashing(left, self._parts[name].ranges)}
            if met:
                yield name
                left = {step: ours for step, ours in left.items() if step not in met}
                if not left:
                    return


def _hull(ranges: Iterable[Range]) -> tuple[int, int]:
    """The lowest and the highest address of ranges, of both IP versions."""
    given = tuple(ranges)
    return min(handed.first for handed in given), max(handed.last for handed in given)


def _clashing(steps: Mapping[str, Iterable[Range]], theirs: Iterable[Range]) -> Iterator[Range]:
    """The ranges of steps that clash with others."""
    return (our for their in theirs for ours in steps.values() for our in ours if our.clashes(their))


class _TopologyParts(NamedTuple):
    """The parts of a topology to compare with others; `names` are those of its classes, also if it has errors."""

    plugins: frozenset[str] = frozenset()
    networks: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    ranges: tuple[Range, ...] = ()
    names: frozenset[str] = frozenset()
    classes: Mapping[str, DeviceClass] = {}


_NO_PARTS = _TopologyParts()


def _parts_of(topology: NetworkTopology) -> _TopologyParts:
    return _TopologyParts(
        plugins=frozenset(plugins(topology.spec.steps)),
        networks=frozenset(step.network for step in topology.spec.steps) - {""},
        resources=frozenset(step.extended_resource_name for step in topology.spec.steps) - {""},
        ranges=tuple(ranges(topology)),
        names=frozenset(class_name(topology.name, step.name) for step in topology.spec.steps if step.is_root),
        classes=known_classes([topology], ()),
    )


def _move(index: dict[K, set[str]], name: str, before: Iterable[K], after: Iterable[K]) -> None:
    """Put a name under other keys than before."""
    for key in before:
        index[key].discard(name)
        if not index[key]:
            del index[key]
    for key in after:
        index.setdefault(key, set()).add(name)


def subject(device: CustomDevice) -> tuple[object, ...]:
    """The key that CustomDevices for one device have in common."""
    return device.spec.provider, device.spec.device, msgspec.json.encode(device.spec.selector, order="deterministic")


def narrowed(request: AdmissionRequest, cluster: Cluster, index: ClusterIndex | None = None) -> Cluster:
    """The part of the cluster that the review of an object needs; none if the object cannot be read: it is refused.

    Args:
        request: the object.
        cluster: the cluster.
        index: that of its objects, or of the same objects a moment later; made here without one.
    """
    narrow = _KINDS.get(request.kind.kind)
    try:
        if narrow is None or request.too_deep:
            return NOTHING
        return narrow(request, cluster, ClusterIndex(cluster) if index is None else index)
    except UNREADABLE:
        return NOTHING


def _of_topology(request: AdmissionRequest, cluster: Cluster, index: ClusterIndex) -> Cluster:
    new = _topology.decode(request.object)
    classes = {name: cluster.classes[name] for name in _class_names(new) if name in cluster.classes}
    clashing = {*index.clashing(new)} - {new.name}
    return Cluster(
        topologies=_present(cluster.topologies, sorted(clashing)),
        schemas=cluster.schemas,
        policies=_offering(cluster, index),
        classes=classes,
        users=cluster.users,
        waiting=cluster.waiting,
        added=cluster.added,
        offers=cluster.offers,
        pod_networks=_present(cluster.pod_networks, {step.network for step in new.spec.steps}),
    )


def _of_pod_network(request: AdmissionRequest, cluster: Cluster, index: ClusterIndex) -> Cluster:
    using = sorted(index.networked(_pod_network.decode(request.object).name))
    return Cluster(
        topologies=_present(cluster.topologies, using), pod_networks=cluster.pod_networks, taken=cluster.taken
    )


def _of_claim(request: AdmissionRequest, cluster: Cluster, index: ClusterIndex) -> Cluster:
    wanted, _ = device_claim(read_claim(request))
    named = {choice.device_class_name for asked in wanted.requests for choice in choices(asked)}
    classes = {name: cluster.classes[name] for name in named if name in cluster.classes}
    meant = {name for device_class in classes.values() for name in topologies_of_class(device_class)}
    topologies = {name: cluster.topologies[name] for name in meant if name in cluster.topologies}
    used = {step.pod_network for topology in topologies.values() for step in topology.spec.steps} - {""}
    classes |= _present(cluster.classes, map(network_class, sorted(used)))
    return Cluster(
        topologies=topologies,
        classes=classes,
        policies=_offering(cluster, index),
        offers=cluster.offers,
        pod_networks=_present(cluster.pod_networks, map(network_of_class, named)),
    )


def _offering(cluster: Cluster, index: ClusterIndex) -> dict[str, DeviceExposurePolicy]:
    """The policies whose devices nodes report, and those that pool VFs."""
    named = {device.policy for offer in cluster.offers.nodes for device in offer.devices}
    return _present(cluster.policies, sorted(named | index.pooling))


def _of_schema(request: AdmissionRequest, cluster: Cluster, index: ClusterIndex) -> Cluster:
    plugin = _schema.decode(request.object).spec.plugin
    schemas = {name: schema for name, schema in cluster.schemas.items() if schema.spec.plugin == plugin}
    return Cluster(topologies=_present(cluster.topologies, sorted(index.using(plugin))), schemas=schemas)


def _of_policy(request: AdmissionRequest, cluster: Cluster, index: ClusterIndex) -> Cluster:
    """The policies that stand on interfaces that nodes report: no other one affects the new one."""
    new = _policy.decode(request.object)
    standing = {name for seen in cluster.reported.seen for name in seen.standings}
    return Cluster(
        policies=_present(cluster.policies, sorted(standing)),
        added=cluster.added,
        reported=cluster.reported,
        rivals=index.ranks.of(new) if new is not None else None,
    )


def _of_custom_device(request: AdmissionRequest, cluster: Cluster, index: ClusterIndex) -> Cluster:
    device = _custom_device.decode(request.object)
    return Cluster(
        custom_devices=_present(cluster.custom_devices, sorted(index.about(device))), nowhere=cluster.nowhere
    )


def _present(objects: Mapping[str, T], names: Iterable[str]) -> dict[str, T]:
    """The objects of these names; the index may be of a moment later."""
    return {name: objects[name] for name in names if name in objects}


def _class_names(topology: NetworkTopology) -> Iterator[str]:
    return (class_name(topology.name, step.name) for step in topology.spec.steps)


_KINDS: Mapping[str, Callable[[AdmissionRequest, Cluster, ClusterIndex], Cluster]] = {
    "NetworkTopology": _of_topology,
    "CNIPluginSchema": _of_schema,
    "DeviceExposurePolicy": _of_policy,
    "CustomDevice": _of_custom_device,
    "PodNetwork": _of_pod_network,
    "ResourceClaim": _of_claim,
    "ResourceClaimTemplate": _of_claim,
}
