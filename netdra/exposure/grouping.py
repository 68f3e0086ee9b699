"""Which interfaces share a pool and its counters: a NIC with its VFs, and all interfaces on top of it (decision D24).

A NIC has no interface below it: a PF, a card, a virtual link. Its pool also has the other ports of its PCI function,
its VFs, their representors, and the interfaces on top of these alone: VLANs, macvlans, VXLANs, a bridge or a bond whose
ports all belong to this NIC. An interface on top of several NICs has a pool of its own, together with the interfaces on
top of it: counters do not reach from one pool into another, so a NIC's `above` lists such interfaces. Called by
`netdra.exposure.expose` for each pass. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from netdra.model import names
from netdra.model.inventory import DEVICE_FILE, Interface

_CABLES = frozenset({"veth", "netkit", "vxcan", "tun"})
"""What connects pods and virtual machines to a bridge: such a port is no NIC, and they come and go."""
_HARDWARE = frozenset({"pf", "vf", "nic", "loopback", DEVICE_FILE})
"""What stands on nothing that is known here."""


class HeldVF(NamedTuple):
    """A VF that a prepared claim has.

    Attributes:
        identity: the VF's.
        device: the device that the claim was allocated; "" for a VF that no claim can be allocated.
        bandwidth: how much of the PF's link it was allocated as a pooled VF, in Mbit/s.
    """

    identity: str
    device: str
    bandwidth: int = 0


class Above(NamedTuple):
    """An interface of another pool that stands on one of this NIC's, by the latter's name."""

    on: str
    interface: Interface


class PoolInterfaces(NamedTuple):
    """The interfaces of one pool.

    Attributes:
        pf_name: the PF's name, which may be known where the PF is not.
        root: the PF, or another interface with none below it.
        vfs: the root's VFs, in order.
        ports: the other ports of the root's PCI function.
        stack: representors, and the interfaces on top of any of these, by name.
        above: the interfaces on top of any of these that are in another pool.
        pool: the pool's name, where the devices in use determine it.
        held: its VFs that claims have.
    """

    pf_name: str
    root: Interface | None
    vfs: tuple[Interface, ...] = ()
    ports: tuple[Interface, ...] = ()
    stack: tuple[Interface, ...] = ()
    above: tuple[Above, ...] = ()
    pool: str = ""
    held: tuple[HeldVF, ...] = ()

    @property
    def others(self) -> tuple[Interface, ...]:
        """All interfaces but the root."""
        return (*self.vfs, *self.ports, *self.stack) if self.ports or self.stack else self.vfs

    @property
    def resolved(self) -> tuple[Interface, ...]:
        """All interfaces that policies are asked of for this group."""
        return (*((self.root,) if self.root else ()), *self.others, *(above.interface for above in self.above))


def pooled(
    node: str, interfaces: Sequence[Interface], in_use: Collection[str], pinned: Mapping[str, str]
) -> list[tuple[str, PoolInterfaces]]:
    """The groups with the names of their pools, in the order of these; a name that is taken gets a digest.

    Args:
        node: the node's name.
        in_use: pools with devices that claims have; a pool of these that has a former name keeps it.
        pinned: by identity, the pools of interfaces whose devices claims have: a stacked interface stays in its pool
            as long as it is in use, even if the interfaces below it have changed.
    """
    named: dict[str, PoolInterfaces] = {}
    for group in _Grouping(node, interfaces, in_use, pinned).groups():
        name = group.pool or _name(node, group.pf_name, group.root, in_use)
        if name in named:
            own = name.rpartition("/")[2]
            name = names.pool(node, f"{own}_{group.root.identity if group.root else group.pf_name}")
        named[name] = group
    return sorted(named.items())


def pool_name(node: str, pf_name: str, root: Interface | None) -> str:
    """The name of a NIC's pool: `<node>/sriov-<pf>`, or `<node>/<type>-<name>` if it is not a PF."""
    return names.pool(node, _own_part(pf_name, root))


def _own_part(pf_name: str, root: Interface | None) -> str:
    kind = "sriov" if root is None or root.type == "pf" else root.type
    return f"{kind}-{root.device_name if root else pf_name}"


def _name(node: str, pf_name: str, root: Interface | None, in_use: Collection[str]) -> str:
    """A NIC's pool; a former name had a dash after the node's name, and a pool in use keeps that name."""
    own = _own_part(pf_name, root)
    if in_use and (former := names.subdomain(f"{node}-{own}")) in in_use:
        return former
    return names.pool(node, own)


class _Members:
    """A group that is being gathered."""

    __slots__ = ("above", "pf_name", "pool", "ports", "root", "stack", "vfs")

    def __init__(self, pf_name: str, root: Interface | None, pool: str = "") -> None:
        self.pf_name, self.root, self.pool = pf_name, root, pool
        self.vfs: list[Interface] = []
        self.ports: tuple[Interface, ...] = ()
        self.stack: list[Interface] = []
        self.above: list[Above] = []

    def group(self) -> PoolInterfaces:
        """The group as it is."""
        self.vfs.sort(key=lambda vf: vf.vf_index)
        self.stack.sort(key=lambda interface: interface.if_name)
        self.above.sort(key=lambda upper: (upper.on, upper.interface.if_name))
        above, stack = tuple(self.above), tuple(self.stack)
        return PoolInterfaces(self.pf_name, self.root, tuple(self.vfs), self.ports, stack, above, self.pool)


class _Grouping:
    """The interfaces of a node, grouped in one pass."""

    def __init__(
        self, node: str, interfaces: Sequence[Interface], in_use: Collection[str], pinned: Mapping[str, str]
    ) -> None:
        self._node, self._in_use, self._pinned = node, in_use, pinned
        self._gathered: list[_Members] = []
        self._plain: list[Interface] = []
        self._homes: dict[str, _Members] = {}
        virtual: list[Interface] = []
        stacked: list[Interface] = []
        pfs: list[Interface] = []
        for interface in interfaces:
            kind = interface.type
            if kind == "vf" and (interface.pf_name or interface.pf_pci_address):
                virtual.append(interface)
            elif kind == "pf":
                pfs.append(interface)
            elif kind == "representor" or (
                kind not in _HARDWARE and (interface.lower_devices or (pinned and interface.identity in pinned))
            ):
                stacked.append(interface)
            else:
                self._plain.append(interface)
        by_name, by_address = self._place_pfs(pfs)
        self._place_vfs(virtual, by_name, by_address)
        if stacked:
            self._place_stacked(interfaces, stacked, by_address)

    def groups(self) -> list[PoolInterfaces]:
        """All groups."""
        return [
            *[members.group() for members in self._gathered],
            *[PoolInterfaces(interface.if_name, interface) for interface in self._plain],
        ]

    def _root(self, interface: Interface, pool: str = "") -> _Members:
        members = _Members(interface.if_name, interface, pool)
        self._gathered.append(members)
        if interface.if_name:
            self._homes[interface.if_name] = members
        return members

    def _place_pfs(self, pfs: Sequence[Interface]) -> tuple[dict[str, _Members], dict[str, _Members]]:
        """PFs by name and by PCI address; of two ports that share a function, both are the first one's."""
        by_name: dict[str, _Members] = {}
        by_address: dict[str, _Members] = {}
        for pf in sorted(pfs, key=lambda pf: pf.dev_port):
            first = by_address.get(pf.pci_address) if pf.pci_address and pf.dev_port else None
            # A port that is in use may be in a pool of its own, from before its function's other port was there.
            pin = self._pinned.get(pf.identity, "") if first is not None else ""
            if first is None or (pin and pin != self._name(first)):
                members = self._root(pf, pin)
                by_address.setdefault(pf.pci_address, members)
            else:
                members = first
                first.ports = (*first.ports, pf)
                self._homes[pf.if_name] = first
            by_name[pf.if_name] = members
        by_name.pop("", None)
        by_address.pop("", None)
        return by_name, by_address

    def _name(self, members: _Members) -> str:
        return members.pool or _name(self._node, members.pf_name, members.root, self._in_use)

    def _place_vfs(
        self, virtual: Sequence[Interface], by_name: Mapping[str, _Members], by_address: Mapping[str, _Members]
    ) -> None:
        """Each VF with its PF, looked up by the PF's name or, where that is away, by its PCI address."""
        without: dict[str, _Members] = {}
        for vf in virtual:
            members = by_name.get(vf.pf_name) or by_address.get(vf.pf_pci_address)
            if members is None:
                called = vf.pf_name or vf.pf_pci_address
                members = without.get(called)
                if members is None:
                    members = without[called] = _Members(called, None)
                    self._gathered.append(members)
            members.vfs.append(vf)

    def _place_stacked(
        self, interfaces: Sequence[Interface], stacked: Sequence[Interface], by_address: Mapping[str, _Members]
    ) -> None:
        self._by_name = {interface.if_name: interface for interface in interfaces if interface.if_name}
        self._stacked = {interface.if_name: interface for interface in stacked}
        for members in self._gathered:
            self._homes.update((vf.if_name, members) for vf in members.vfs if vf.if_name)
        for interface in self._plain:
            self._root(interface)
        self._plain = []
        pools = {self._name(members): members for members in self._gathered} if self._pinned else {}
        for interface in stacked:
            self._place(interface, by_address, pools)
        for interface in stacked:
            self._note_above(interface)

    def _place(
        self, interface: Interface, by_address: Mapping[str, _Members], pools: Mapping[str, _Members]
    ) -> _Members:
        """The group of a stacked interface: that of the interfaces below if they share one, else one of its own."""
        home = self._homes.get(interface.if_name)
        if home is not None:
            return home
        if interface.type == "representor":
            home = by_address.get(interface.pf_pci_address)
        else:
            home = self._common(interface, by_address, pools)
        pin = self._pinned.get(interface.identity, "")
        if pin and (home is None or pools.get(pin) is not home):
            home = pools.get(pin)
        if home is None:
            return self._root(self._trimmed(interface), pin)
        home.stack.append(self._trimmed(interface))
        self._homes[interface.if_name] = home
        return home

    def _common(
        self, interface: Interface, by_address: Mapping[str, _Members], pools: Mapping[str, _Members]
    ) -> _Members | None:
        members: dict[int, _Members] = {}
        # Meanwhile it is in no group that counts, in case names go in a circle.
        pending = self._homes[interface.if_name] = _Members(interface.if_name, None)
        for name in self._lower(interface):
            below = self._stacked.get(name)
            home = self._place(below, by_address, pools) if below is not None else self._homes.get(name)
            if home is not None and home is not pending:
                members[id(home)] = home
        del self._homes[interface.if_name]
        return next(iter(members.values())) if len(members) == 1 else None

    def _note_above(self, interface: Interface) -> None:
        """Note an interface in the other groups that have something below it."""
        home = self._homes[interface.if_name]
        visited: set[str] = set()
        waiting = list(self._lower(interface))
        while waiting:
            name = waiting.pop()
            if name in visited or name not in self._homes:
                continue
            visited.add(name)
            other = self._homes[name]
            if other is not home:
                other.above.append(Above(name, self._trimmed(interface)))
            waiting += self._lower(self._by_name[name])

    def _lower(self, interface: Interface) -> Iterator[str]:
        """The interfaces below an interface, without a bridge's ports that are cables to pods and virtual machines."""
        for name in interface.lower_devices:
            lower = self._by_name.get(name)
            if lower is not None and not (lower.type in _CABLES and lower.master == interface.if_name):
                yield name

    def _trimmed(self, interface: Interface) -> Interface:
        """An interface without such cables: it stays the same when these come and go, and so do its NIC's devices."""
        lower = tuple(self._lower(interface))
        return (
            interface
            if len(lower) == len(interface.lower_devices)
            else msgspec.structs.replace(interface, lower_devices=lower)
        )


class MemberPlace(NamedTuple):
    """Where a member of a group stands; the root has none.

    Attributes:
        on: the members without the root that it stands on, however far below, by their places.
        on_root: whether it stands on the root; a stacked member that stands on nothing known here does.
        shares_function: it is another port of the root's function while that has VFs, which count for all ports.
    """

    on: frozenset[int]
    on_root: bool
    shares_function: bool = False


def member_places(group: PoolInterfaces) -> list[MemberPlace]:
    """Where each member of a group stands, without the root."""
    with_vfs = bool(group.vfs or (group.root and group.root.num_vfs))
    members = [MemberPlace(frozenset(), on_root=True) for _ in group.vfs]
    members += [MemberPlace(frozenset(), on_root=with_vfs, shares_function=with_vfs) for _ in group.ports]
    if not group.stack:
        return members
    others = (*group.vfs, *group.ports, *group.stack)
    places = {other.if_name: place for place, other in enumerate(others) if other.if_name}
    root = group.root.if_name if group.root else ""
    for place in range(len(members), len(others)):
        members.append(_stands(place, others, places, root, members))
    return members


def _stands(
    place: int, others: Sequence[Interface], places: Mapping[str, int], root: str, hardware: Sequence[MemberPlace]
) -> MemberPlace:
    on: set[int] = set()
    on_root = False
    waiting = [*others[place].lower_devices]
    while waiting:
        name = waiting.pop()
        on_root = on_root or name == root
        below = places.get(name, place)
        if below == place or below in on:
            continue
        if others[below].type in _HARDWARE and hardware[below].on_root:
            on_root = True
        if others[below].type in _HARDWARE and hardware[below].shares_function:
            continue
        on.add(below)
        waiting += others[below].lower_devices if others[below].type not in _HARDWARE else ()
    return MemberPlace(frozenset(on), on_root=on_root or not on)
