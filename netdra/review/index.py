"""The objects of a world by the keys of reviews, and the part of a world that the review of one object needs.

Used by the webhook: a worker decodes the part for each object, and a cluster may have a thousand topologies. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from netdra.exposure.ranks import RankIndex
from netdra.model.claim import DeviceClass, ResourceClaim, ResourceClaimTemplate, device_claim
from netdra.model.custom_device import CustomDevice
from netdra.model.names import network_class, network_of_class
from netdra.model.pod_network import PodNetwork
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.schema import CNIPluginSchema
from netdra.model.topology import NetworkTopology, NetworkTopologySpec
from netdra.review.custom_devices import subject
from netdra.review.world import NOTHING, World, topologies_of_class
from netdra.rules.networks import Range, ranges
from netdra.rules.schemas import plugins
from netdra.topology.classes import class_name, every_form, known_classes
from netdra.topology.selectors import choices
from netdra.vocabulary import AddedNames

K = TypeVar("K")
T = TypeVar("T")


class WorldIndex:
    """The objects by the keys of reviews, kept current at the cost of the changes.

    Attributes:
        ranks: the policies by rank.
        pooling: the names of the policies that pool VFs.
        added: the names that policies and CustomDevices add to devices.
        classes: the classes that the controller makes of the topologies, by name. Of several topologies with a class of
            one name, that of the topology whose name sorts first.
    """

    def __init__(self, world: World = NOTHING) -> None:
        """Take a world's objects."""
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
        for policy in world.policies.values():
            self.on_policy(policy.name, None, policy)
        for device in world.custom_devices.values():
            self.on_custom_device(device.name, None, device)
        for topology in world.topologies.values():
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


def narrowed(value: object, world: World, index: WorldIndex | None = None) -> World:
    """The part of the world that the review of an object needs: the findings are those with the whole.

    Args:
        value: the object; None for a policy that is deleted.
        world: the other objects.
        index: that of its objects, or of the same objects a moment later; made here without one.
    """
    narrow = _KINDS.get(type(value))
    return NOTHING if narrow is None else narrow(value, world, WorldIndex(world) if index is None else index)


def _of_topology(new: NetworkTopology, world: World, index: WorldIndex) -> World:
    classes = {name: world.classes[name] for name in _class_names(new) if name in world.classes}
    clashing = {*index.clashing(new)} - {new.name}
    return World(
        topologies=_present(world.topologies, sorted(clashing)),
        schemas=world.schemas,
        policies=_offering(world, index),
        classes=classes,
        users=world.users,
        waiting=world.waiting,
        added=world.added,
        offers=world.offers,
        pod_networks=_present(world.pod_networks, {step.network for step in new.spec.steps}),
    )


def _of_pod_network(new: PodNetwork, world: World, index: WorldIndex) -> World:
    using = sorted(index.networked(new.name))
    return World(topologies=_present(world.topologies, using), pod_networks=world.pod_networks, taken=world.taken)


def _of_claim(claim: ResourceClaim | ResourceClaimTemplate, world: World, index: WorldIndex) -> World:
    wanted, _ = device_claim(claim)
    named = {choice.device_class_name for asked in wanted.requests for choice in choices(asked)}
    classes = {name: world.classes[name] for name in named if name in world.classes}
    meant = {name for device_class in classes.values() for name in topologies_of_class(device_class)}
    topologies = {name: world.topologies[name] for name in meant if name in world.topologies}
    used = {step.pod_network for topology in topologies.values() for step in topology.spec.steps} - {""}
    classes |= _present(world.classes, map(network_class, sorted(used)))
    return World(
        topologies=topologies,
        classes=classes,
        policies=_offering(world, index),
        offers=world.offers,
        pod_networks=_present(world.pod_networks, map(network_of_class, named)),
    )


def _offering(world: World, index: WorldIndex) -> dict[str, DeviceExposurePolicy]:
    """The policies whose devices nodes report, and those that pool VFs."""
    named = {device.policy for offer in world.offers.nodes for device in offer.devices}
    return _present(world.policies, sorted(named | index.pooling))


def _of_schema(new: CNIPluginSchema, world: World, index: WorldIndex) -> World:
    plugin = new.spec.plugin
    schemas = {name: schema for name, schema in world.schemas.items() if schema.spec.plugin == plugin}
    return World(topologies=_present(world.topologies, sorted(index.using(plugin))), schemas=schemas)


def _of_policy(new: DeviceExposurePolicy | None, world: World, index: WorldIndex) -> World:
    """The policies that stand on interfaces that nodes report: no other one affects the new one."""
    standing = {name for seen in world.reported.seen for name in seen.standings}
    return World(
        policies=_present(world.policies, sorted(standing)),
        added=world.added,
        reported=world.reported,
        rivals=index.ranks.of(new) if new is not None else None,
    )


def _of_custom_device(device: CustomDevice, world: World, index: WorldIndex) -> World:
    return World(custom_devices=_present(world.custom_devices, sorted(index.about(device))), nowhere=world.nowhere)


def _present(objects: Mapping[str, T], names: Iterable[str]) -> dict[str, T]:
    """The objects of these names; the index may be of a moment later."""
    return {name: objects[name] for name in names if name in objects}


def _class_names(topology: NetworkTopology) -> Iterator[str]:
    return (class_name(topology.name, step.name) for step in topology.spec.steps)


_KINDS: Mapping[type, Callable[[Any, World, WorldIndex], World]] = {
    NetworkTopology: _of_topology,
    CNIPluginSchema: _of_schema,
    DeviceExposurePolicy: _of_policy,
    type(None): _of_policy,
    CustomDevice: _of_custom_device,
    PodNetwork: _of_pod_network,
    ResourceClaim: _of_claim,
    ResourceClaimTemplate: _of_claim,
}
