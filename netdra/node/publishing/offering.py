"""What the node is to publish now: interfaces, policies and held devices → each pool's slices, with their reports.

Asked by `netdra.node.publishing.service` after each change, in the thread that reads the kernel. A pass costs what has
changed: of a pool in which nothing did, neither devices nor slices are made anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from netdra.exposure import Exposer
from netdra.model.device import ExposureResult, Features, LeftOut, Problem
from netdra.model.inventory import Interface, Inventory, Node
from netdra.model.plan import PlannedDevice
from netdra.model.policy import DeviceExposurePolicy
from netdra.model.resource import ResourceSlice
from netdra.node.publishing import facts, reports, taints
from netdra.node.publishing.damping import Damper
from netdra.node.publishing.facts import Known
from netdra.node.publishing.keep import Pool, keep
from netdra.node.publishing.recall import PfNames, frozen_names, recall
from netdra.node.publishing.taints import Gone
from netdra.node.view import HeldDevice
from netdra.slices.pack import arrange, layout
from netdra.topology.devices import DeviceKey

Slices = tuple[ResourceSlice, ...]


class Surroundings(Protocol):
    """What the kernel can be asked of interfaces that are not here."""

    def left(self, interface: Interface) -> bool:
        """Whether an interface was seen going to another namespace."""

    def on_the_bus(self, address: str) -> bool:
        """Whether there is a PCI device of that address."""


class Offered(msgspec.Struct, frozen=True):
    """What a pass found different.

    Attributes:
        slices: by pool, those that are new or other than before; none for a pool that goes.
        devices: the facts of the devices of these pools.
        problems: all that an administrator should mend, now.
        left_out: why devices of all pools are not published, and how often.
    """

    slices: dict[str, Slices]
    devices: dict[str, dict[DeviceKey, PlannedDevice]]
    problems: tuple[Problem, ...]
    left_out: Mapping[LeftOut, int]


class _Source(msgspec.Struct, frozen=True):
    """What a pool is made from: what exposure says, who holds what, and what of that is gone."""

    part: ExposureResult
    holding: tuple[HeldDevice, ...]
    gone: Gone

    def is_as(self, other: _Source) -> bool:
        """Whether the same would come out."""
        return self.part is other.part and (self.holding, self.gone) == (other.holding, other.gone)


class _Made(msgspec.Struct, frozen=True):
    """A pool as it was made last: its slices without reports, what these tell, and how many devices others keep out."""

    source: _Source
    slices: Slices
    known: dict[str, Known]
    problems: tuple[Problem, ...]
    kept_out: int


_NOTHING = ExposureResult()


class Offering:
    """What was made of each pool so far. For one thread."""

    def __init__(self, node: str, published: Mapping[str, Slices]) -> None:
        """Begin.

        Args:
            node: the node's name.
            published: what it publishes already, by pool: claims may hold some of it.
        """
        self._node = node
        self._exposer: Exposer | None = None
        self._asked: tuple[object, ...] = ()
        self._features = Features()
        self._damper = Damper()
        self._made: dict[str, _Made] = {}
        self._previous = dict(published)
        restored = facts.of_slices(one for slices in published.values() for one in slices)
        self._last: dict[DeviceKey, Known] = restored
        self._gone = taints.published_gone(published.values())
        self._pf_names = PfNames(restored.values())
        self._bare: frozenset[str] = frozenset()
        self._carried: tuple[str, tuple[Problem, ...]] = ("", ())
        self._away_from_the_start: frozenset[str] | None = None

    @property
    def due(self) -> float | None:
        """When another pass is worth it though nothing happens; None if never."""
        return self._damper.due

    def follow(self, policies: Sequence[DeviceExposurePolicy], features: Features) -> None:
        """From now on these policies hold, and the API server takes this.

        What the controller writes in their statuses is no other policy: all devices would be made anew for nothing.
        """
        asked = (tuple((policy.name, policy.spec) for policy in policies), features)
        if asked != self._asked:
            self._asked = asked
            self._features = features
            self._exposer = Exposer(policies, features=features)

    def update(
        self,
        inventory: Inventory,
        labels: Mapping[str, str],
        held: Sequence[HeldDevice],
        surroundings: Surroundings,
        now: float,
    ) -> Offered:
        """One pass.

        Args:
            inventory: what the kernel has.
            labels: the node's.
            held: the devices that claims have.
            surroundings: what else the kernel can be asked.
            now: seconds of a clock that never goes back.
        """
        assert self._exposer is not None, "follow comes first"
        claimed = {one.key: self._last[one.key] for one in held if one.key in self._last}
        named = self._pf_names.complete(inventory.interfaces, frozen_names(claimed.values()))
        left = self._left(inventory, surroundings)
        recalled = recall(named, claimed, left=left, on_the_bus=surroundings.on_the_bus)
        gone = {key: claimed[key] for key in recalled.gone}
        self._bare = frozenset(each.pci_address for each in named if each.type == "vf" and not each.if_name)
        interfaces = self._damper.damp(recalled.interfaces, now)
        in_use = {one.key[0] for one in held if one.key[0] in self._previous}
        here = Inventory(node=Node(name=self._node, labels=labels), interfaces=interfaces)
        pinned = {known.interface.identity: key[0] for key, known in claimed.items()}
        parts = self._exposer.pools(here, in_use, pinned)
        self._gone = taints.gone_effects(gone, self._exposer, self._gone)
        changed = self._make_all(parts, held, interfaces)
        problems = (*self._exposer.problems, *[each for made in self._made.values() for each in made.problems])
        left_out = Counter(each.left_out for each in problems if each.left_out is not None)
        left_out["in-use"] += sum(made.kept_out for made in self._made.values())
        return Offered(
            slices={pool: self._slices(pool) for pool in changed},
            devices={pool: self._planned(pool, claimed) for pool in changed},
            problems=problems,
            left_out=left_out,
        )

    def _left(self, inventory: Inventory, surroundings: Surroundings) -> Callable[[Interface], bool]:
        """Of what was away already when this process began, nobody saw where it went: it is believed as published."""
        if self._away_from_the_start is None:
            here = {interface.if_name for interface in inventory.interfaces}
            away = {known.interface.if_name for key, known in self._last.items() if key not in self._gone}
            self._away_from_the_start = frozenset(away - here)
        begun = self._away_from_the_start
        return lambda interface: surroundings.left(interface) or interface.if_name in begun

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
        return sorted(changed | self._carry())

    def _make(self, pool: str, source: _Source, identities: Mapping[str, Interface]) -> bool:
        """Make a pool anew, and tell whether it came out differently."""
        packed = layout(source.part, node=self._node, features=self._features)
        known = facts.of_part(source.part, identities)
        slices = self._held(pool, packed.slices, source) if source.holding else packed.slices
        before = self._made.get(pool)
        kept_out = len(_device_names(packed.slices) - _device_names(slices))
        problems = (*source.part.problems, *packed.problems)
        made = self._made[pool] = _Made(source, slices, known, problems, kept_out)
        held = {one.key[1] for one in source.holding}
        for name in _device_names(self._previous.get(pool, ())):
            if name not in known and name not in held:
                self._last.pop((pool, name), None)
        # What is held is remembered as it was when it was allocated; who offers it may change.
        for name, one in known.items():
            last = self._last.get((pool, name)) if name in held else None
            self._last[pool, name] = Known(last.interface, one.policy, one.allow_host_use) if last is not None else one
        self._previous[pool] = slices
        return before is None or (before.slices, before.known, before.problems) != (slices, known, made.problems)

    def _carry(self) -> set[str]:
        """Have one pool tell what belongs to no slice; return the pools that tell otherwise than before."""
        homeless = list(self._exposer.problems if self._exposer else ())
        homeless += [problem for made in self._made.values() if not made.slices for problem in made.problems]
        carrier = min((pool for pool, made in self._made.items() if made.slices), default="")
        before, self._carried = self._carried, (carrier, tuple(homeless))
        if before == self._carried:
            return set()
        return {pool for pool in (before[0], carrier) if pool in self._made}

    def _slices(self, pool: str) -> Slices:
        """A pool's slices as they are to be published, with what they report."""
        if pool not in self._made:
            return ()
        made, (carrier, homeless) = self._made[pool], self._carried
        problems = (*made.problems, *homeless) if pool == carrier else made.problems
        # What is held counts for the policy that offered it.
        policies = {one.key[1]: self._last[one.key].policy for one in made.source.holding if one.key in self._last}
        policies |= {name: one.policy for name, one in made.known.items()}
        return reports.annotated(made.slices, policies, problems)

    def _held(self, pool: str, slices: Slices, source: _Source) -> Slices:
        held = {one.key[1]: one.trouble for one in source.holding}
        kept = keep(_flat(self._previous.get(pool, ())), held, _flat(slices))
        if self._features.device_taints:
            present = _device_names(slices)
            devices = tuple(
                taints.marked(
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

    def _planned(self, pool: str, claimed: Mapping[DeviceKey, Known]) -> dict[DeviceKey, PlannedDevice]:
        if pool not in self._made:
            return {}
        planned: dict[DeviceKey, PlannedDevice] = {}
        for device in (each for one in self._made[pool].slices for each in one.spec.devices):
            key = pool, device.name
            known = claimed.get(key) or self._last.get(key)
            if known is not None:
                planned[key] = facts.planned(pool, device, known)
        return planned

    def _forget(self, pool: str) -> None:
        made = self._made.pop(pool, None)
        for slices in (self._previous.pop(pool, ()), made.slices if made else ()):
            for one in slices:
                for device in one.spec.devices:
                    self._last.pop((pool, device.name), None)


def _flat(slices: Iterable[ResourceSlice]) -> Pool:
    found = tuple(slices)
    return Pool(
        tuple(one for each in found for one in each.spec.shared_counters),
        tuple(device for each in found for device in each.spec.devices),
    )


def _device_names(slices: Iterable[ResourceSlice]) -> set[str]:
    return {device.name for one in slices for device in one.spec.devices}
