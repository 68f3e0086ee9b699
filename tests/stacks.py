"""NICs with their upper devices (VLANs, macvlans, bonds, bridges), and which may be used together: decision D24.

The unit tests add counters up over these, the cluster tests have the real scheduler place pods on them. `Truth` states
in words of networking what may be in use together; it knows no counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from netdra.exposure import expose
from netdra.model.device import ExposedDevice, ExposureResult
from netdra.model.inventory import Interface, Inventory
from netdra.model.policy import DeviceExposurePolicy
from tests.builders import exclude, inventory, named, pf, policy, vf

MASTERS = ("bond", "bridge")


@dataclass(frozen=True)
class Way:
    """How an interface is offered by one policy: "shared", "exclusive" or "both"; `group` is its exclusionGroup."""

    kind: str
    group: str = ""


@dataclass(frozen=True)
class Upper:
    """An interface that stands on others."""

    kind: str
    name: str
    on: tuple[str, ...]


@dataclass(frozen=True)
class Stack:
    """A machine: PFs by name with how many VFs each has, their upper devices, how each is offered, the exclusions."""

    pfs: dict[str, int]
    uppers: tuple[Upper, ...] = ()
    ways: Mapping[str, tuple[Way, ...]] = field(default_factory=dict)
    excluded: frozenset[str] = frozenset()
    node: str = "worker-1"

    @property
    def names(self) -> tuple[str, ...]:
        """All interfaces."""
        vfs = (f"{name}v{index}" for name, count in self.pfs.items() for index in range(count))
        return (*self.pfs, *vfs, *(each.name for each in self.uppers))

    def inventory(self) -> Inventory:
        """The interfaces with the relations that the kernel would report."""
        above: dict[str, list[str]] = {name: [] for name in self.names}
        masters: dict[str, str] = {}
        uses: dict[str, list[str]] = {name: [] for name in self.names}
        for upper in self.uppers:
            for name in upper.on:
                above[name].append(upper.name)
                if upper.kind in MASTERS:
                    masters[name] = upper.name
                    uses[name].append(f"{'bond-slave' if upper.kind == 'bond' else 'bridge-port'} {upper.name}")
                else:
                    uses[name].append(f"{upper.kind}-parent")

        def relations(name: str) -> dict[str, Any]:
            return {
                "master": masters.get(name, ""),
                "upper_devices": tuple(above[name]),
                "host_use": tuple(dict.fromkeys(uses[name])),
            }

        found: list[Interface] = []
        for bus, (name, count) in enumerate(self.pfs.items(), 3):
            parent = pf(name, vfs=count, bus=bus, **relations(name))
            found += [parent, *(vf(parent, index, **relations(f"{name}v{index}")) for index in range(count))]
        for each in self.uppers:
            # A bridge has a cable to a pod, too, which is none of a NIC's.
            cable = Interface(if_name=f"{each.name}-pod", type="veth", master=each.name, upper_devices=(each.name,))
            cables = (cable,) if each.kind == "bridge" else ()
            lower = (*each.on, *(cable.if_name for cable in cables))
            found += [
                Interface(if_name=each.name, type=each.kind, lower_devices=lower, **relations(each.name)),
                *cables,
            ]
        return inventory(*found, node=self.node)

    def policies(self) -> list[DeviceExposurePolicy]:
        """One a way, which allows that the host uses the interface, and the excludes."""
        found = [
            policy_of(way, f"p-{place}-{number}", named(name))
            for place, name in enumerate(self.names)
            for number, way in enumerate(self.ways.get(name, ()))
        ]
        return found + [exclude(f"x-{place}", named(name)) for place, name in enumerate(sorted(self.excluded))]

    def exposed(self) -> ExposureResult:
        """The devices that netdra makes of it."""
        return expose(self.inventory(), self.policies())

    def below(self, name: str) -> set[str]:
        """All that an interface stands on, however far below; a VF stands on its PF."""
        direct = {pf for pf, count in self.pfs.items() for index in range(count) if name == f"{pf}v{index}"}
        direct |= {on for each in self.uppers if each.name == name for on in each.on}
        return direct.union(*(self.below(each) for each in direct))


def policy_of(way: Way, name: str, cel: str) -> DeviceExposurePolicy:
    """The policy of a way."""
    plugins = {"shared": [False], "exclusive": [True], "both": [False, True]}[way.kind]
    exposure: dict[str, Any] = {
        "deviceNameSuffix": f"-{name}",
        "exclusionGroup": way.group,
        "allowHostUse": True,
        "supportedCNIPlugins": [{"name": f"p{index}", "exclusive": each} for index, each in enumerate(plugins)],
    }
    if way.kind != "exclusive":
        exposure |= {
            "allowMultipleAllocations": True,
            "capacity": {"ports": {"value": 8, "requestPolicy": {"default": 1}}},
        }
    return policy(name, cel, **exposure)


class Truth:
    """Which devices of a machine may be used together."""

    def __init__(self, stack: Stack, devices: Iterable[ExposedDevice]) -> None:
        self._stack = stack
        self._groups = {
            f"p-{place}-{number}": way.group
            for place, name in enumerate(stack.names)
            for number, way in enumerate(stack.ways.get(name, ()))
        }
        self._below = {name: stack.below(name) for name in stack.names}
        names = {each.identity: each.if_name for each in stack.inventory().interfaces}
        self._of = {device.name: names[device.interface] for device in devices}

    def allows(self, devices: Sequence[ExposedDevice]) -> bool:
        """Whether these devices may be in use together."""
        return all(map(self._is_free, devices)) and all(self._beside(*each) for each in combinations(devices, 2))

    def _is_free(self, device: ExposedDevice) -> bool:
        """Whether a device may be in use at all: what it would take away must not be protected."""
        if device.shared:
            return True
        own = self._of[device.name]
        on_it = [name for name in self._stack.names if own in self._below[name]]
        vfs = {each.if_name for each in self._stack.inventory().interfaces if each.type == "vf" and each.in_host_use}
        used = {name for name in on_it if name in vfs and own in self._stack.pfs}
        return not (used or self._stack.excluded.intersection(on_it))

    def _beside(self, one: ExposedDevice, other: ExposedDevice) -> bool:
        mine, its = self._of[one.name], self._of[other.name]
        if mine == its:
            group = self._groups[one.policy]
            return one.shared and other.shared and not (group and group == self._groups[other.policy])
        taken = (not one.shared and mine in self._below[its]) or (not other.shared and its in self._below[mine])
        return not taken
