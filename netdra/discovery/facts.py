"""The facts of a machine's interfaces, as they are read: links, addresses, devices and how they hang together.

Filled by `live` or `recorded`, kept current by `watch`, turned into interfaces by `assemble`. The key of a link is its
index, that of a VF without a netdev its PCI address.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from netdra.discovery.pairs import Pairs
from netdra.discovery.routes import MadeRoutes
from netdra.kernel.address import Address
from netdra.kernel.link import PAIRED, Link
from netdra.kernel.rdma import GidTable

Key = int | str
"""The key of an interface while it is discovered: its link's index, or its PCI address where it has no link."""

EVERY_LINK = 0
"""The key of a problem that concerns all links; no link has the index 0."""
PROGRAMS = "programs"
"""The name of a link's BPF programs among the problems."""


class SysfsDevice(msgspec.Struct, frozen=True, kw_only=True):
    """The device behind a link, or a VF without a link, from sysfs.

    Attributes:
        address: its PCI address, "" for a device on no PCI bus; then `bus` and `bus_address` are its place.
        vendor: four hexadecimal digits; likewise `product`.
        numa_node: -1 where the machine does not report it.
        pcie_root: "pci0000:00".
        iommu_group: the group's number.
        total_vfs: how many VFs it can have; more than 0 makes it a PF.
        vfs: how many it has, their addresses by index in `functions`.
        pf: the PF's address, for a VF.
        dev_port: which of several netdevs on one PCI function this is, from 0.
        unreadable: field of `Interface` -> why.
    """

    address: str = ""
    bus: str = ""
    bus_address: str = ""
    vendor: str = ""
    product: str = ""
    driver: str = ""
    numa_node: int = -1
    pcie_root: str = ""
    iommu_group: str = ""
    total_vfs: int = 0
    vfs: int = 0
    functions: Mapping[int, str] = {}
    pf: str = ""
    dev_port: int = 0
    unreadable: Mapping[str, str] = {}


NO_DEVICE = SysfsDevice()


class MachineFacts:
    """The facts of one machine (or one network namespace) at one moment.

    Attributes:
        links: by index.
        ports: index of a master -> indexes of its ports.
        stacked: index of a link -> indexes of the links that stand on it.
        addresses: index of a link -> its IP addresses.
        speeds: index of a link -> Mbit/s.
        routes: the routes that an administrator or a program made, default ones included.
        default_links: the links that default routes leave through; set by `note_routes`, as `routed_links`.
        links_for_all: those of them through which one leaves that needs no policy rule; set by `note_routes`.
        routed_links: the links that any of the routes leaves through.
        devices: index of a link -> the device behind it; set by `put_device`.
        by_address: PCI address -> the links on that device.
        pfs: PFs by PCI address, with a netdev here or without.
        vfs: PCI address of a VF -> its PF's address, and its index on it.
        functions: VFs that have no netdev here, by PCI address.
        rdma: PCI address or netdev name -> RDMA device.
        rdma_mode: the machine's (`netdra.kernel.rdma.netns_mode`), "" without an RDMA device, or if it is unknown.
        gids: RDMA device -> the GID table of its first port.
        eswitch: PCI address of a PF -> mode.
        ovs_bridges: Open vSwitch bridges by the names of their ports; None where they cannot be known.
        vlan_filtering: indexes of the bridges that filter VLANs.
        vlan_ids: index of a VLAN link -> its id.
        programs: index of a link -> the words of its BPF programs besides XDP (`netdra.kernel.bpf.uses`).
        problems: index of a link (or EVERY_LINK) -> field of `Interface`, or PROGRAMS -> why it could not be read.
        gone: the interfaces that are listed but cannot be read.
        moved: indexes of links that continued in another namespace; emptied by the reader.
        stale: the kinds of facts that could not be read whole of one moment ("links", "addresses", "speeds", "routes",
            "pods", "programs"): the former facts and those that could be read one by one are in their place.
        pods: the ids of the namespaces of pods that pairs of links lead to (`netdra.kernel.pod_namespaces`); None while
            they cannot be read.
        pairs: the ends of pairs of links, and whose they are.
        wired: physical networks by NIC, which cannot be read from the machine (`netdra.model.inventory.InventoryNode`).
    """

    def __init__(self, pairs: Pairs | None = None) -> None:
        """Begin without facts.

        Args:
            pairs: those of the facts before.
        """
        self.pairs = pairs or Pairs()
        self.links: dict[int, Link] = {}
        self.ports: defaultdict[int, set[int]] = defaultdict(set)
        self.stacked: defaultdict[int, set[int]] = defaultdict(set)
        self.addresses: dict[int, list[Address]] = {}
        self.speeds: dict[int, int] = {}
        self.routes = MadeRoutes()
        self.default_links: frozenset[int] = frozenset()
        self.links_for_all: frozenset[int] = frozenset()
        self.routed_links: frozenset[int] = frozenset()
        self.devices: dict[int, SysfsDevice] = {}
        self.by_address: dict[str, set[int]] = {}
        self.pfs: dict[str, SysfsDevice] = {}
        self.vfs: dict[str, tuple[str, int]] = {}
        self.functions: dict[str, SysfsDevice] = {}
        self.rdma: dict[str, str] = {}
        self.rdma_mode = ""
        self.gids: dict[str, GidTable] = {}
        self.eswitch: dict[str, str] = {}
        self.ovs_bridges: Mapping[str, str] | None = None
        self.vlan_filtering: set[int] = set()
        self.vlan_ids: dict[int, int] = {}
        self.programs: dict[int, tuple[str, ...]] = {}
        self.problems: dict[int, dict[str, str]] = {}
        self.gone: list[str] = []
        self.moved: set[int] = set()
        self.stale: set[str] = set()
        self.pods: frozenset[int] | None = frozenset()
        self.wired: Mapping[str, str] = {}

    def put(self, link: Link) -> None:
        """Add a link, or replace its facts."""
        old = self.links.get(link.index)
        if old is not None:
            self._part(old)
        self.links[link.index] = link
        if link.master:
            self.ports[link.master].add(link.index)
        below = link.stands_on
        if below:
            self.stacked[below].add(link.index)
        if link.kind in PAIRED:
            self.pairs.put(link)

    def put_device(self, index: int, device: SysfsDevice) -> None:
        """Add the device behind a link, or replace its facts."""
        self._part_device(index)
        self.devices[index] = device
        if device.address:
            self.by_address.setdefault(device.address, set()).add(index)
        if device.total_vfs:
            self.put_pf(device)

    def put_pf(self, device: SysfsDevice) -> None:
        """Add a PF, or replace its facts; its netdev need not be here.

        If its VFs cannot be read, they are those that it had: pods may have them (decision D59).
        """
        former = self.pfs.get(device.address)
        if former is not None and "num_vfs" in device.unreadable:
            device = msgspec.structs.replace(device, vfs=former.vfs, functions=former.functions)
        self.drop_pf(device.address)
        self.pfs[device.address] = device
        self.vfs.update((address, (device.address, number)) for number, address in device.functions.items())

    def drop_pf(self, pf: str) -> None:
        """Forget that a device is a PF."""
        device = self.pfs.pop(pf, NO_DEVICE)
        for address in device.functions.values():
            self.vfs.pop(address, None)

    def drop(self, index: int, *, moved: bool = False) -> None:
        """Forget a link and all facts by its index; `moved` is whether it continues in another namespace."""
        old = self.links.pop(index, None)
        if old is not None:
            self._part(old)
        self.pairs.drop(index, moved=moved)
        self._part_device(index)
        for by_index in (self.addresses, self.speeds, self.problems, self.vlan_ids, self.programs):
            by_index.pop(index, None)
        self.vlan_filtering.discard(index)

    def lower(self, index: int) -> Iterator[int]:
        """The links that a link stands on: its ports, and the link below it."""
        yield from self.ports.get(index, ())
        link = self.links.get(index)
        below = link.stands_on if link else 0
        if below in self.links and below not in self.ports.get(index, ()):
            yield below

    def upper(self, index: int) -> Iterator[int]:
        """The links that stand on a link: its master, and those stacked on it."""
        link = self.links.get(index)
        if link and link.master in self.links:
            yield link.master
        yield from self.stacked.get(index, ())

    def around(self, index: int) -> set[int]:
        """A link and all links that touch it: their interfaces change when it does."""
        return {index, *self.lower(index), *self.upper(index)}

    def note_routes(self) -> frozenset[int]:
        """Take over the links of the routes; returns the links that came to them or left them."""
        before, self.routed_links = self.routed_links, self.routes.links
        self.default_links = self.routes.default_links
        self.links_for_all = self.routes.links_for_all
        return before ^ self.routed_links

    def note(self, key: int, fields: Iterable[str], why: str) -> None:
        """Note that fields could not be read."""
        self.problems.setdefault(key, {}).update(dict.fromkeys(fields, why))

    def clear_problem(self, key: int, field: str) -> None:
        """Forget that a field could not be read: it could now."""
        self.problems.get(key, {}).pop(field, None)

    def _part_device(self, index: int) -> None:
        device = self.devices.pop(index, None)
        if device is not None and device.address:
            self.by_address[device.address].discard(index)

    def _part(self, link: Link) -> None:
        self.ports[link.master].discard(link.index)
        self.stacked[link.stands_on].discard(link.index)
