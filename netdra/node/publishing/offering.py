"""The node's desired publication: interfaces, policies and devices in use → each pool's slices, and the node's report.

Called by `netdra.node.publishing.service` after each change, in the thread that reads the kernel. The cost of a pass
grows with the changes: the devices and slices of an unchanged pool are not made again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from types import MappingProxyType
from typing import Protocol

import msgspec

from netdra.exposure import Exposer
from netdra.exposure.grouping import HeldVF
from netdra.exposure.registered import NOTHING, Registered
from netdra.model.device import ExposureResult, Features, LeftOut, Problem
from netdra.model.identity import PCI
from netdra.model.inventory import Interface, Inventory, InventoryNode, wire_all
from netdra.model.node_network import NodeNetworkStatus
from netdra.model.plan import PlannedDevice
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.registration import DeviceFile, RegistrationOutcome
from netdra.model.resource import ResourceSlice
from netdra.node.hardware import HardwareTable
from netdra.node.publishing import facts, held_vfs, reports
from netdra.node.publishing.facts import DeviceFacts, Gone, PfNames, frozen_names, recall
from netdra.node.publishing.interfaces import Damper
from netdra.node.publishing.plugins import Presence
from netdra.node.publishing.reports import Listed, ReportSource, Row
from netdra.node.publishing.retain import Amounts, PoolContent, retain
from netdra.node.view import HeldDevice, VFTrouble
from netdra.slices.pack import arrange, layout
from netdra.topology.devices import DeviceKey

Slices = tuple[ResourceSlice, ...]


class KernelView(Protocol):
    """The kernel's state of interfaces in other namespaces, and of device files."""

    def left(self, interface: Interface) -> bool:
        """Whether an interface was seen going to another namespace."""

    def on_the_bus(self, address: str, bus: str = PCI) -> bool:
        """Whether there is a device of that address on a bus; also if that is not known."""

    def device_file(self, path: str) -> DeviceFile:
        """The device file at a path."""


class Offered(msgspec.Struct, frozen=True):
    """The changes that a pass found.

    Attributes:
        slices: the slices of each pool that is new or changed; none for a pool that goes.
        devices: the facts of the devices of these pools.
        vfs: by device of pooled VFs of these pools, the facts of its VFs.
        problems: all present problems that an administrator should fix.
        left_out: how many devices of all pools are not published, by reason.
        outcomes: the outcomes of the providers' registrations, of all devices.
        vf_troubles: the troubles of pooled VFs that claims have; `problems` has them, too.
        followed: whether policies or the node's labels differ from those of the pass before.
    """

    slices: dict[str, Slices]
    devices: dict[str, dict[DeviceKey, PlannedDevice]]
    vfs: dict[DeviceKey, tuple[PlannedDevice, ...]]
    problems: tuple[Problem, ...]
    left_out: Mapping[LeftOut, int]
    followed: bool = False
    outcomes: tuple[RegistrationOutcome, ...] = ()
    vf_troubles: tuple[VFTrouble, ...] = ()


class _Source(msgspec.Struct, frozen=True):
    """The source of a pool: exposure's result, the devices that claims hold, and those of them that are gone."""

    part: ExposureResult
    holding: tuple[HeldDevice, ...]
    gone: Gone

    def is_as(self, other: _Source) -> bool:
        """Whether the same pool would come out."""
        return self.part is other.part and (self.holding, self.gone) == (other.holding, other.gone)


class _Made(msgspec.Struct, frozen=True):
    """A pool as it was made last: its slices, their devices' facts, and how many devices held ones keep out."""

    source: _Source
    slices: Slices
    devices: dict[str, DeviceFacts]
    problems: tuple[Problem, ...]
    kept_out: int


_NOTHING = ExposureResult()


class Offering:
    """The pools as they were made last. For one thread."""

    def __init__(
        self,
        node: str,
        published: Mapping[str, Slices],
        reported: NodeNetworkStatus | None = None,
        hardware: HardwareTable | None = None,
    ) -> None:
        """Begin.

        Args:
            node: the node's name.
            published: the slices that it publishes already, by pool: claims may hold some of their devices.
            reported: the status that it reports already: it has the policy of each device.
            hardware: the hardware of its devices.
        """
        self._node = node
        self._exposer: Exposer | None = None
        self._inputs: tuple[object, ...] = ()
        self._presence: Presence | None = None
        self._lacked: tuple[str, ...] = ()
        self._features = Features()
        self._damper = Damper()
        self._watch = held_vfs.TroubleWatch()
        self._troubles: tuple[VFTrouble, ...] = ()
        self._held_back: tuple[Problem, ...] = ()
        self._made: dict[str, _Made] = {}
        self._previous = dict(published)
        restored = facts.of_slices(
            (resource_slice for slices in published.values() for resource_slice in slices),
            reported or NodeNetworkStatus(),
            (hardware or HardwareTable()).of,
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
        """When another pass is needed though nothing happens; None if never."""
        return min((due for due in (self._damper.due, self._watch.due) if due is not None), default=None)

    def follow(
        self,
        policies: Sequence[DeviceExposurePolicy],
        features: Features,
        presence: Presence | None = None,
        required: Collection[str] = (),
    ) -> None:
        """From now on these policies hold, the API server has these features, and the node these CNI plugins.

        Args:
            policies: all of the cluster.
            features: those of the API server.
            presence: the node's plugins; None if they are not followed.
            required: the programs that topologies need beside those of their root steps.

        A change of a policy's status alone, which the controller writes, does not count: all devices would be made
        again for nothing.
        """
        programs = presence.programs if presence is not None else None
        lacked = tuple(sorted(frozenset(required).difference(programs))) if programs is not None else ()
        self._lacked = lacked
        inputs = (
            tuple((policy.name, policy.metadata.generation, policy.spec) for policy in policies),
            features,
            programs,
            lacked,
        )
        self._presence = presence
        if inputs != self._inputs:
            self._inputs = inputs
            self._features = features
            known = self._exposer.known if self._exposer is not None else None
            self._exposer = Exposer(policies, features=features, programs=programs, lacked=lacked, known=known)

    def update(
        self,
        inventory: Inventory,
        labels: Mapping[str, str],
        held_devices: Sequence[HeldDevice],
        kernel: KernelView,
        now: float,
        registered: Registered = NOTHING,
        allocatable: Mapping[str, str] = MappingProxyType({}),
    ) -> Offered:
        """One pass.

        Args:
            labels: the node's.
            held_devices: the devices that claims have.
            kernel: answers further questions to the kernel.
            now: seconds of a clock that never goes back.
            registered: the providers' registrations of the node's devices.
            allocatable: the node's amounts of the resources that policies read.
        """
        assert self._exposer is not None, "follow comes first"
        claimed = {device.key: self._last[device.key] for device in held_devices if device.key in self._last}
        named = self._pf_names.complete(inventory.interfaces, frozen_names(claimed.values()))
        left = self._left(inventory, kernel)
        named = (*named, *_file_devices(registered, named, claimed.values(), kernel))
        recalled = recall(named, claimed, left=left, on_the_bus=kernel.on_the_bus)
        here_now = recalled.interfaces
        if wired := inventory.node.wired:
            # Discovery knows neither the name of a PF that is away nor the names that are frozen.
            here_now = wire_all(wired, here_now)
        gone = {key: claimed[key] for key in recalled.gone}
        self._bare = _bare_vfs(named)
        interfaces = self._damper.damp(here_now, now)
        in_use = {device.key[0] for device in held_devices if device.key[0] in self._previous}
        node = InventoryNode(name=self._node, labels=labels, allocatable=allocatable, physnets=inventory.node.physnets)
        here = Inventory(node=node, interfaces=interfaces)
        pinned = {device.interface.identity: key[0] for key, device in claimed.items()}
        # Without pooled VFs, the NICs would be created again without a reason.
        pools_vfs = self._exposer.pools_vfs or any(device.facts and device.facts.pooled for device in held_devices)
        held_vfs = [*self._held_vfs(held_devices)] if pools_vfs else []
        parts = self._exposer.pools(here, in_use, pinned, registered, held_vfs)
        self._gone = facts.gone_effects(gone, self._exposer, self._gone)
        changed = self._make_all(parts, held_devices, interfaces)
        self._interfaces = interfaces
        self._troubles = self._watch.troubles(held_devices, interfaces, kernel.on_the_bus, now)
        in_trouble = (device for device in held_devices if device.trouble and not self._is_pool(device.key))
        self._held_back = tuple(map(facts.not_available, in_trouble))
        before, self._followed = self._followed, (self._inputs, dict(labels))
        return Offered(
            slices={pool: self._made[pool].slices if pool in self._made else () for pool in changed},
            devices={pool: self._planned(pool, claimed) for pool in changed},
            vfs=dict(chain.from_iterable(map(self._vfs, changed))),
            problems=self._problems,
            left_out=self._left_out(self._problems),
            followed=before != self._followed,
            outcomes=self._outcomes,
            vf_troubles=self._troubles,
        )

    def _held_vfs(self, held_devices: Iterable[HeldDevice]) -> Iterator[HeldVF]:
        """The VFs of claims.

        A pooled VF in trouble, or one whose claim is gone and whose pod is not undone, does not belong to a device: its
        device gets smaller. Any other device in trouble has a taint.
        """
        for device in held_devices:
            if device.vf:
                is_lost = (device.trouble or not device.is_prepared) and self._is_pool(device.key)
                yield HeldVF(device.vf, "" if is_lost else device.key[1], device.bandwidth)

    def report(
        self, refused: Mapping[DeviceKey, str] = MappingProxyType({}), undone: Iterable[str] = ()
    ) -> NodeNetworkStatus:
        """The status that the node is to report after the last pass.

        Args:
            refused: devices that the API server does not take, with its reason.
            undone: the reports of writes that other clients undo.
        """
        assert self._exposer is not None, "follow comes first"
        by_name = {(interface.identity, interface.device_name): interface for interface in self._interfaces}
        lanes = (device.lane for made in self._made.values() for device in made.source.part.devices)
        pools = (lane.interface for lane in lanes if lane is not None)
        by_name |= {(interface.identity, interface.device_name): interface for interface in pools}
        rows = [row for pool in self._made for row in self._rows(pool, by_name, refused)]
        unwanted = [
            Problem(policy="", message=f'pool "{pool}": device "{name}" is refused by the API server: {why}')
            for (pool, name), why in refused.items()
        ]
        problems = (*self._problems, *unwanted, *(Problem(policy="", message=text) for text in undone))
        plugins = self._presence.programs if self._presence is not None else ()
        missing = reports.missing_plugins(self._listed(), self._presence, self._lacked)
        return reports.status(
            ReportSource(
                rows,
                self._exposer.holding,
                problems,
                self._left_out(problems),
                used_slots=self._used_slots(),
                outcomes=self._outcomes,
                plugins=plugins,
                missing=missing,
            )
        )

    @property
    def _outcomes(self) -> tuple[RegistrationOutcome, ...]:
        return tuple([outcome for made in self._made.values() for outcome in _published(made)])

    @property
    def _problems(self) -> tuple[Problem, ...]:
        homeless = self._exposer.problems if self._exposer else ()
        parts = [problem for made in self._made.values() for problem in made.problems]
        parts += held_vfs.problems(self._troubles)
        parts += self._held_back
        presence = self._presence
        if presence is None or not (presence.lost or presence.unusable):
            return (*homeless, *parts)
        return (*homeless, *parts, *reports.lost_plugins(self._listed(), presence))

    def _listed(self) -> dict[str, Listed]:
        """The CNI plugins that policies list for devices of this node."""
        listed: dict[str, Listed] = {}
        for made in self._made.values():
            held_names = _held_names(made.source)
            for device in made.source.part.devices:
                for plugin in device.plugins:
                    listed[plugin] = listed.get(plugin, Listed()).with_one(allocated=device.name in held_names)
        return listed

    def _left_out(self, problems: Iterable[Problem]) -> Mapping[LeftOut, int]:
        left_out = Counter(problem.left_out for problem in problems if problem.left_out is not None)
        left_out["in-use"] += sum(made.kept_out for made in self._made.values())
        return left_out

    def _used_slots(self) -> int:
        """How many attributes and capacities the fullest device that is published carries."""
        slices = (one for made in self._made.values() for one in made.slices)
        devices = (device for one in slices for device in one.spec.devices)
        return max((len(device.attributes) + len(device.capacity) for device in devices), default=0)

    def _rows(
        self, pool: str, interfaces: Mapping[tuple[str, str], Interface], refused: Container[DeviceKey]
    ) -> Iterator[Row]:
        """The interfaces of a pool, and interfaces that are gone and whose devices claims have."""
        made = self._made[pool]
        held_names = _held_names(made.source)
        devices: dict[str, list[tuple[str, DeviceFacts]]] = {}
        for name in (device.name for resource_slice in made.slices for device in resource_slice.spec.devices):
            last = made.devices.get(name) or self._last.get((pool, name))
            if last is not None and (pool, name) not in refused:
                devices.setdefault(last.interface.identity, []).append((name, last))
        for decision in made.source.part.decisions:
            suffixes = {verdict.suffix for verdict in decision.verdicts}
            base = decision.device_name
            published = tuple(
                reports.device(base, name, last.policy, suffixes, allocated=name in held_names)
                for name, last in devices.pop(decision.interface, ())
            )
            yield Row(interfaces[decision.interface, base], decision, published)
        for name, last in (entry for entries in devices.values() for entry in entries):
            gone = reports.device(last.interface.device_name, name, last.policy, (), allocated=name in held_names)
            yield Row(last.interface, None, (gone,))

    def _left(self, inventory: Inventory, kernel: KernelView) -> Callable[[Interface], bool]:
        """Whether an interface without a PCI device is in another namespace.

        An interface that was away already when this process began counts as being there: where it went was not seen.
        """
        if self._away_from_the_start is None:
            here = {interface.if_name for interface in inventory.interfaces}
            away = {last.interface.if_name for key, last in self._last.items() if key not in self._gone}
            self._away_from_the_start = frozenset(away - here)
        begun = self._away_from_the_start
        return lambda interface: kernel.left(interface) or interface.if_name in begun

    def _make_all(
        self, parts: Mapping[str, ExposureResult], held_devices: Sequence[HeldDevice], interfaces: Sequence[Interface]
    ) -> list[str]:
        """Make the pools that have to be made again; returns those that have changed."""
        by_pool: dict[str, list[HeldDevice]] = {}
        for device in held_devices:
            by_pool.setdefault(device.key[0], []).append(device)
        # A pool without a part is only there for its held devices.
        pools = sorted({*parts, *(pool for pool in by_pool if pool in self._previous)})
        identities: dict[str, Interface] = {}
        changed = set(self._previous).difference(pools)
        for pool in changed:
            self._forget(pool)
        for pool in pools:
            holding = tuple(by_pool.get(pool, ()))
            gone = {device.key: self._gone[device.key] for device in holding if device.key in self._gone}
            source = _Source(parts.get(pool, _NOTHING), holding, gone)
            made = self._made.get(pool)
            if made is not None and source.is_as(made.source):
                continue
            identities = identities or {interface.identity: interface for interface in interfaces}
            if self._make(pool, source, identities):
                changed.add(pool)
        return sorted(changed)

    def _make(self, pool: str, source: _Source, identities: Mapping[str, Interface]) -> bool:
        """Make a pool again; returns whether it has changed."""
        packed = layout(source.part, node=self._node, features=self._features)
        devices = facts.of_part(source.part, identities)
        slices = self._retained(pool, packed.slices, source) if source.holding else packed.slices
        before = self._made.get(pool)
        kept_out = len(_device_names(packed.slices) - _device_names(slices))
        problems = (*source.part.problems, *packed.problems)
        made = self._made[pool] = _Made(source, slices, devices, problems, kept_out)
        held_names = _held_names(source)
        for name in _device_names(self._previous.get(pool, ())):
            if name not in devices and name not in held_names:
                self._last.pop((pool, name), None)
        for name, device in devices.items():
            last = self._last.get((pool, name)) if name in held_names else None
            self._last[pool, name] = facts.still(last, device) if last is not None else device
        self._previous[pool] = slices
        return before is None or (before.slices, before.devices, before.problems) != (slices, devices, made.problems)

    def _retained(self, pool: str, slices: Slices, source: _Source) -> Slices:
        troubles = {device.key[1]: "" for device in source.holding} | {
            # One VF in trouble is not a reason to withhold the others.
            device.key[1]: device.trouble
            for device in source.holding
            if device.trouble and not self._is_pool(device.key)
        }
        retained = retain(_flat(self._previous.get(pool, ())), troubles, _flat(slices), _consumed(source.holding))
        if self._features.device_taints:
            present = _device_names(slices)
            devices = tuple(
                facts.marked(
                    device,
                    here=device.name in present,
                    gone=source.gone.get((pool, device.name)),
                    withdrawn=device.name not in present and not self._is_bare((pool, device.name)),
                    trouble=troubles.get(device.name, ""),
                )
                for device in retained.devices
            )
            retained = PoolContent(retained.sets, devices)
        return tuple(arrange(pool, retained.sets, retained.devices, node=self._node))

    def _is_pool(self, key: DeviceKey) -> bool:
        """Whether a device stands for VFs that are offered together."""
        return key in self._last and self._last[key].interface.is_pool

    def _is_bare(self, key: DeviceKey) -> bool:
        """Whether a device is a VF without a netdev here, so that policies cannot match it."""
        return key in self._last and self._last[key].interface.pci_address in self._bare

    def _planned(self, pool: str, claimed: Mapping[DeviceKey, DeviceFacts]) -> dict[DeviceKey, PlannedDevice]:
        if pool not in self._made:
            return {}
        planned: dict[DeviceKey, PlannedDevice] = {}
        slices = self._made[pool].slices
        for device in (device for resource_slice in slices for device in resource_slice.spec.devices):
            key = pool, device.name
            last = self._last.get(key) or claimed.get(key)
            if last is not None:
                planned[key] = facts.planned(pool, device, last)
        return planned

    def _vfs(self, pool: str) -> Iterator[tuple[DeviceKey, tuple[PlannedDevice, ...]]]:
        """The devices of pooled VFs of a pool, each with its VFs."""
        for resource_slice in self._made[pool].slices if pool in self._made else ():
            for device in resource_slice.spec.devices:
                last = self._last.get((pool, device.name))
                if last is not None and last.vfs:
                    yield (pool, device.name), facts.planned_vfs(pool, device, last)

    def _forget(self, pool: str) -> None:
        made = self._made.pop(pool, None)
        for slices in (self._previous.pop(pool, ()), made.slices if made else ()):
            for resource_slice in slices:
                for device in resource_slice.spec.devices:
                    self._last.pop((pool, device.name), None)


def _published(made: _Made) -> Iterator[RegistrationOutcome]:
    """The outcomes of registrations of a pool's devices: one of a device that a claim has may have to wait."""
    outcomes = made.source.part.outcomes
    if not outcomes:
        return
    wanted = {device.name: device for device in made.source.part.devices}
    there = {device.name: device for resource_slice in made.slices for device in resource_slice.spec.devices}
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


def _flat(slices: Iterable[ResourceSlice]) -> PoolContent:
    packed = tuple(slices)
    return PoolContent(
        tuple(counter_set for resource_slice in packed for counter_set in resource_slice.spec.shared_counters),
        tuple(device for resource_slice in packed for device in resource_slice.spec.devices),
    )


def _device_names(slices: Iterable[ResourceSlice]) -> set[str]:
    return {device.name for resource_slice in slices for device in resource_slice.spec.devices}


def _consumed(holding: Iterable[HeldDevice]) -> Amounts:
    """By device name, what the claims of a pool's held devices consume of their capacities."""
    consumed: Amounts = {}
    for device in holding:
        amounts = consumed.setdefault(device.key[1], {})
        for name, amount in device.consumed.items():
            amounts[name] = amounts.get(name, Decimal(0)) + amount
    return consumed


def _held_names(source: _Source) -> set[str]:
    return {device.key[1] for device in source.holding}


def _bare_vfs(interfaces: Iterable[Interface]) -> frozenset[str]:
    """The PCI addresses of VFs without a netdev."""
    return frozenset(entry.pci_address for entry in interfaces if entry.type == "vf" and not entry.if_name)


def _file_devices(
    registered: Registered, named: Sequence[Interface], claimed: Iterable[DeviceFacts], kernel: KernelView
) -> Iterable[Interface]:
    """The device files that providers registered, beside the node's interfaces and those in pods."""
    in_pods = (last.interface for last in claimed if not last.interface.device_file)
    return registered.file_devices((*named, *in_pods), kernel.device_file)
