"""What the node is to publish now: interfaces, policies and held devices → each pool's slices, and the node's report.

Asked by `netdra.node.publishing.service` after each change, in the thread that reads the kernel. A pass costs what has
changed: of a pool in which nothing did, neither devices nor slices are made anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import msgspec

from netdra.exposure import Exposer
from netdra.exposure.registered import NOTHING, Registered
from netdra.model.device import ExposureResult, Features, LeftOut, Problem
from netdra.model.inventory import Interface, Inventory, Node, wire
from netdra.model.node_network import NodeNetworkStatus
from netdra.model.plan import PlannedDevice
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import DeviceFile, Outcome
from netdra.model.resource import ResourceSlice
from netdra.node.publishing import facts, reports
from netdra.node.publishing.facts import DeviceFacts, Gone, PfNames, frozen_names, recall
from netdra.node.publishing.interfaces import Damper
from netdra.node.publishing.plugins import Presence
from netdra.node.publishing.reports import Listed, Row, Seen
from netdra.node.publishing.retain import Pool, retain
from netdra.node.view import HeldDevice
from netdra.slices.pack import arrange, layout
from netdra.topology.devices import DeviceKey

Slices = tuple[ResourceSlice, ...]


class KernelView(Protocol):
    """What the kernel can be asked of interfaces that are not here."""

    def left(self, interface: Interface) -> bool:
        """Whether an interface was seen going to another namespace."""

    def on_the_bus(self, address: str) -> bool:
        """Whether there is a PCI device of that address."""

    def device_file(self, path: str) -> DeviceFile:
        """What there is at the path of a device file."""


class Offered(msgspec.Struct, frozen=True):
    """What a pass found different.

    Attributes:
        slices: by pool, those that are new or other than before; none for a pool that goes.
        devices: the facts of the devices of these pools.
        problems: all that an administrator should mend, now.
        left_out: why devices of all pools are not published, and how often.
        outcomes: what became of what providers say, of all devices.
        followed: whether other policies, or labels of the node, were looked at than by the pass before.
    """

    slices: dict[str, Slices]
    devices: dict[str, dict[DeviceKey, PlannedDevice]]
    problems: tuple[Problem, ...]
    left_out: Mapping[LeftOut, int]
    followed: bool = False
    outcomes: tuple[Outcome, ...] = ()


class _Source(msgspec.Struct, frozen=True):
    """What a pool is made from: exposure's result, the devices that claims hold, and those of them that are gone."""

    part: ExposureResult
    holding: tuple[HeldDevice, ...]
    gone: Gone

    def is_as(self, other: _Source) -> bool:
        """Whether the same would come out."""
        return self.part is other.part and (self.holding, self.gone) == (other.holding, other.gone)


class _Made(msgspec.Struct, frozen=True):
    """A pool as it was made last: its slices, what is known of them, and how many devices others keep out."""

    source: _Source
    slices: Slices
    devices: dict[str, DeviceFacts]
    problems: tuple[Problem, ...]
    kept_out: int


_NOTHING = ExposureResult()


class Offering:
    """What was made of each pool so far. For one thread."""

    def __init__(self, node: str, published: Mapping[str, Slices], reported: NodeNetworkStatus | None = None) -> None:
        """Begin.

        Args:
            node: the node's name.
            published: what it publishes already, by pool: claims may hold some of it.
            reported: what it reports already: which policy made which device.
        """
        self._node = node
        self._exposer: Exposer | None = None
        self._asked: tuple[object, ...] = ()
        self._presence: Presence | None = None
        self._features = Features()
        self._damper = Damper()
        self._made: dict[str, _Made] = {}
        self._previous = dict(published)
        restored = facts.of_slices(
            (one for slices in published.values() for one in slices), reported or NodeNetworkStatus()
        )
        self._last: dict[DeviceKey, DeviceFacts] = restored
        self._gone = facts.published_gone(published.values())
        self._pf_names = PfNames(restored.values())
        self._bare: frozenset[str] = frozenset()
        self._interfaces: Sequence[Interface] = ()
        self._followed: tuple[object, ...] = ()
        self._away_from_the_start: frozenset[str] | None = None

    @property
    def due(self) -> float | None:
        """When another pass is worth it though nothing happens; None if never."""
        return self._damper.due

    def follow(
        self, policies: Sequence[DeviceExposurePolicy], features: Features, presence: Presence | None = None
    ) -> None:
        """From now on these policies hold, the API server takes this, and the node has these CNI plugins.

        What the controller writes in their statuses is no other policy: all devices would be made anew for nothing.
        """
        programs = presence.programs if presence is not None else None
        asked = (
            tuple((policy.name, policy.metadata.generation, policy.spec) for policy in policies),
            features,
            programs,
        )
        self._presence = presence
        if asked != self._asked:
            self._asked = asked
            self._features = features
            self._exposer = Exposer(policies, features=features, programs=programs)

    def update(
        self,
        inventory: Inventory,
        labels: Mapping[str, str],
        held: Sequence[HeldDevice],
        kernel: KernelView,
        now: float,
        registered: Registered = NOTHING,
        allocatable: Mapping[str, str] = MappingProxyType({}),
    ) -> Offered:
        """One pass.

        Args:
            inventory: what the kernel has.
            labels: the node's.
            held: the devices that claims have.
            kernel: what else the kernel can be asked.
            now: seconds of a clock that never goes back.
            registered: what providers say of the node's devices.
            allocatable: what the node has of the resources that policies read.
        """
        assert self._exposer is not None, "follow comes first"
        claimed = {one.key: self._last[one.key] for one in held if one.key in self._last}
        named = self._pf_names.complete(inventory.interfaces, frozen_names(claimed.values()))
        left = self._left(inventory, kernel)
        others = (last.interface for last in claimed.values() if not last.interface.device_file)
        named = (*named, *registered.file_devices((*named, *others), kernel.device_file))
        recalled = recall(named, claimed, left=left, on_the_bus=kernel.on_the_bus)
        here_now = recalled.interfaces
        if wired := inventory.node.wired:
            # Discovery does not know the name of a PF that is away, nor what becomes of a name that is frozen.
            here_now = tuple(wire(wired, interface) for interface in here_now)
        gone = {key: claimed[key] for key in recalled.gone}
        self._bare = frozenset(entry.pci_address for entry in named if entry.type == "vf" and not entry.if_name)
        interfaces = self._damper.damp(here_now, now)
        in_use = {one.key[0] for one in held if one.key[0] in self._previous}
        node = Node(name=self._node, labels=labels, allocatable=allocatable, physnets=inventory.node.physnets)
        here = Inventory(node=node, interfaces=interfaces)
        pinned = {device.interface.identity: key[0] for key, device in claimed.items()}
        parts = self._exposer.pools(here, in_use, pinned, registered)
        self._gone = facts.gone_effects(gone, self._exposer, self._gone)
        changed = self._make_all(parts, held, interfaces)
        self._interfaces = interfaces
        before, self._followed = self._followed, (self._asked, dict(labels))
        return Offered(
            slices={pool: self._made[pool].slices if pool in self._made else () for pool in changed},
            devices={pool: self._planned(pool, claimed) for pool in changed},
            problems=self._problems,
            left_out=self._left_out(self._problems),
            followed=before != self._followed,
            outcomes=self._outcomes,
        )

    def report(self, refused: Mapping[DeviceKey, str] = MappingProxyType({})) -> NodeNetworkStatus:
        """What the node is to say of itself after the last pass.

        Args:
            refused: devices that the API server does not take, with its reason.
        """
        assert self._exposer is not None, "follow comes first"
        by_name = {(interface.identity, interface.device_name): interface for interface in self._interfaces}
        rows = [row for pool in self._made for row in self._rows(pool, by_name, refused)]
        unwanted = [
            Problem(policy="", message=f'pool "{pool}": device "{name}" is refused by the API server: {why}')
            for (pool, name), why in refused.items()
        ]
        problems = (*self._problems, *unwanted)
        plugins = self._presence.programs if self._presence is not None else ()
        missing = reports.missing_plugins(self._listed(), self._presence)
        return reports.status(
            Seen(
                rows,
                self._exposer.holding,
                problems,
                self._left_out(problems),
                outcomes=self._outcomes,
                plugins=plugins,
                missing=missing,
            )
        )

    @property
    def _outcomes(self) -> tuple[Outcome, ...]:
        return tuple([outcome for made in self._made.values() for outcome in _published(made)])

    @property
    def _problems(self) -> tuple[Problem, ...]:
        homeless = self._exposer.problems if self._exposer else ()
        parts = [problem for made in self._made.values() for problem in made.problems]
        presence = self._presence
        if presence is None or not (presence.lost or presence.unusable):
            return (*homeless, *parts)
        return (*homeless, *parts, *reports.lost_plugins(self._listed(), presence))

    def _listed(self) -> dict[str, Listed]:
        """The CNI plugins that policies list for devices of this node."""
        listed: dict[str, Listed] = {}
        for made in self._made.values():
            held = {one.key[1] for one in made.source.holding}
            for device in made.source.part.devices:
                for plugin in device.plugins:
                    listed[plugin] = listed.get(plugin, Listed()).with_one(allocated=device.name in held)
        return listed

    def _left_out(self, problems: Iterable[Problem]) -> Mapping[LeftOut, int]:
        left_out = Counter(problem.left_out for problem in problems if problem.left_out is not None)
        left_out["in-use"] += sum(made.kept_out for made in self._made.values())
        return left_out

    def _rows(
        self, pool: str, interfaces: Mapping[tuple[str, str], Interface], refused: Container[DeviceKey]
    ) -> Iterator[Row]:
        """The interfaces of a pool, and those that are gone and whose devices claims have."""
        made = self._made[pool]
        held = {one.key[1] for one in made.source.holding}
        devices: dict[str, list[tuple[str, DeviceFacts]]] = {}
        for name in (device.name for one in made.slices for device in one.spec.devices):
            last = made.devices.get(name) or self._last.get((pool, name))
            if last is not None and (pool, name) not in refused:
                devices.setdefault(last.interface.identity, []).append((name, last))
        for decision in made.source.part.decisions:
            suffixes = {verdict.suffix for verdict in decision.verdicts}
            base = decision.device_name
            published = tuple(
                reports.device(base, name, last.policy, suffixes, allocated=name in held)
                for name, last in devices.pop(decision.interface, ())
            )
            yield Row(interfaces[decision.interface, base], decision, published)
        for name, last in (entry for entries in devices.values() for entry in entries):
            gone = reports.device(last.interface.device_name, name, last.policy, (), allocated=name in held)
            yield Row(last.interface, None, (gone,))

    def _left(self, inventory: Inventory, kernel: KernelView) -> Callable[[Interface], bool]:
        """Of what was away already when this process began, nobody saw where it went: it is believed as published."""
        if self._away_from_the_start is None:
            here = {interface.if_name for interface in inventory.interfaces}
            away = {last.interface.if_name for key, last in self._last.items() if key not in self._gone}
            self._away_from_the_start = frozenset(away - here)
        begun = self._away_from_the_start
        return lambda interface: kernel.left(interface) or interface.if_name in begun

    def _make_all(
        self, parts: Mapping[str, ExposureResult], held: Sequence[HeldDevice], interfaces: Sequence[Interface]
    ) -> list[str]:
        """Make the pools that have to be made anew, and tell which came out differently."""
        by_pool: dict[str, list[HeldDevice]] = {}
        for one in held:
            by_pool.setdefault(one.key[0], []).append(one)
        # A pool without a part is only there for what is held of it.
        pools = sorted({*parts, *(pool for pool in by_pool if pool in self._previous)})
        identities: dict[str, Interface] = {}
        changed = set(self._previous).difference(pools)
        for pool in changed:
            self._forget(pool)
        for pool in pools:
            holding = tuple(by_pool.get(pool, ()))
            gone = {one.key: self._gone[one.key] for one in holding if one.key in self._gone}
            source = _Source(parts.get(pool, _NOTHING), holding, gone)
            made = self._made.get(pool)
            if made is not None and source.is_as(made.source):
                continue
            identities = identities or {interface.identity: interface for interface in interfaces}
            if self._make(pool, source, identities):
                changed.add(pool)
        return sorted(changed)

    def _make(self, pool: str, source: _Source, identities: Mapping[str, Interface]) -> bool:
        """Make a pool anew, and tell whether it came out differently."""
        packed = layout(source.part, node=self._node, features=self._features)
        devices = facts.of_part(source.part, identities)
        slices = self._held(pool, packed.slices, source) if source.holding else packed.slices
        before = self._made.get(pool)
        kept_out = len(_device_names(packed.slices) - _device_names(slices))
        problems = (*source.part.problems, *packed.problems)
        made = self._made[pool] = _Made(source, slices, devices, problems, kept_out)
        held = {one.key[1] for one in source.holding}
        for name in _device_names(self._previous.get(pool, ())):
            if name not in devices and name not in held:
                self._last.pop((pool, name), None)
        for name, device in devices.items():
            last = self._last.get((pool, name)) if name in held else None
            self._last[pool, name] = facts.still(last, device) if last is not None else device
        self._previous[pool] = slices
        return before is None or (before.slices, before.devices, before.problems) != (slices, devices, made.problems)

    def _held(self, pool: str, slices: Slices, source: _Source) -> Slices:
        held = {one.key[1]: one.trouble for one in source.holding}
        kept = retain(_flat(self._previous.get(pool, ())), held, _flat(slices))
        if self._features.device_taints:
            present = _device_names(slices)
            devices = tuple(
                facts.marked(
                    device,
                    here=device.name in present,
                    gone=source.gone.get((pool, device.name)),
                    withdrawn=device.name not in present and not self._is_bare((pool, device.name)),
                    trouble=held.get(device.name, ""),
                )
                for device in kept.devices
            )
            kept = Pool(kept.sets, devices)
        return tuple(arrange(pool, kept.sets, kept.devices, node=self._node))

    def _is_bare(self, key: DeviceKey) -> bool:
        """Whether a device is a VF without a netdev here, of which policies cannot say whether they want it."""
        return key in self._last and self._last[key].interface.pci_address in self._bare

    def _planned(self, pool: str, claimed: Mapping[DeviceKey, DeviceFacts]) -> dict[DeviceKey, PlannedDevice]:
        if pool not in self._made:
            return {}
        planned: dict[DeviceKey, PlannedDevice] = {}
        for device in (device for one in self._made[pool].slices for device in one.spec.devices):
            key = pool, device.name
            last = self._last.get(key) or claimed.get(key)
            if last is not None:
                planned[key] = facts.planned(pool, device, last)
        return planned

    def _forget(self, pool: str) -> None:
        made = self._made.pop(pool, None)
        for slices in (self._previous.pop(pool, ()), made.slices if made else ()):
            for one in slices:
                for device in one.spec.devices:
                    self._last.pop((pool, device.name), None)


def _published(made: _Made) -> Iterator[Outcome]:
    """What became of what providers say of a pool's devices: one that a claim has may have to wait for it."""
    outcomes = made.source.part.outcomes
    if not outcomes:
        return
    wanted = {device.name: device for device in made.source.part.devices}
    there = {device.name: device for one in made.slices for device in one.spec.devices}
    for outcome in outcomes:
        device, published = wanted.get(outcome.device), there.get(outcome.device)
        if outcome.problem or device is None:
            yield outcome
        elif published is None:
            yield msgspec.structs.replace(outcome, problem="the device is not published")
        elif any(published.capacity.get(name) != device.capacity[name] for name in outcome.capacity) or any(
            published.attributes.get(name) != device.registered[name] for name in outcome.attributes
        ):
            yield msgspec.structs.replace(outcome, problem="a claim has the device: it waits until that gives it back")
        else:
            yield outcome


def _flat(slices: Iterable[ResourceSlice]) -> Pool:
    packed = tuple(slices)
    return Pool(
        tuple(one for resource_slice in packed for one in resource_slice.spec.shared_counters),
        tuple(device for resource_slice in packed for device in resource_slice.spec.devices),
    )


def _device_names(slices: Iterable[ResourceSlice]) -> set[str]:
    return {device.name for one in slices for device in one.spec.devices}
