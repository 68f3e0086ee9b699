"""Events of the kernel to facts: reads again what they are about, and collects the interfaces that they concern.

Called by `watch` with each batch of events. Only the link that an event names is read again; its relatives (master,
ports, links stacked on it, PF and VFs) are assembled again, for its name and state are part of their facts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from netdra.discovery import live
from netdra.discovery.assemble import OVS_KIND
from netdra.discovery.facts import EVERY_LINK, Key, MachineFacts, SysfsDevice
from netdra.kernel import link, pci
from netdra.kernel.link import HERE, PAIRED
from netdra.kernel.monitor import AddressEvent, DeviceEvent, Event, LinkEvent, RouteEvent


def apply_events(
    kernel: live.Kernel,
    facts: MachineFacts,
    events: Iterable[Event],
    device_events: Iterable[DeviceEvent],
    settled: Collection[int] = (),
) -> set[Key]:
    """Bring facts up to date with events, and return the keys of the interfaces that may have changed.

    Args:
        settled: ends of pairs to be read again: their other ends have been at one place for long enough.
    """
    batch = _Batch(kernel, facts)
    batch.pairs |= set(settled)
    common = dict(facts.problems.get(EVERY_LINK, {}))
    links: dict[int, LinkEvent] = {}
    for event in events:
        if isinstance(event, LinkEvent):
            links[event.link.index] = event  # of several on one link the last has all
            batch.note_loss(event)
        elif isinstance(event, AddressEvent):
            batch.address(event)
        else:
            batch.route(event)
    for event in links.values():
        batch.link(event)
    for device_event in device_events:
        batch.device(device_event)
    batch.finish()
    if facts.problems.get(EVERY_LINK, {}) != common:
        return {*facts.links, *facts.functions, *batch.concerned}
    return batch.concerned


class _Batch:
    """The reads that a batch of events makes necessary, gathered so that each is done once."""

    def __init__(self, kernel: live.Kernel, facts: MachineFacts) -> None:
        self.kernel = kernel
        self.facts = facts
        self.concerned: set[Key] = set()
        self.routes = False
        self.unclear: set[int] = set()
        self.unsure: set[bytes] = set()
        self.pairs: set[int] = set()
        self.far = False
        self.open_vswitch = False
        self.rdma = False
        self.pfs: set[str] = set()
        self.read_anew: set[int] = set()

    def note_loss(self, event: LinkEvent) -> None:
        """Note a link that was set down or went, also if it is back at the end of the batch."""
        if event.gone or not event.link.is_up:
            self.unclear.add(event.link.index)

    def link(self, event: LinkEvent) -> None:
        facts, index = self.facts, event.link.index
        old = facts.links.get(index)
        self.concerned |= facts.around(index)
        self.open_vswitch = self.open_vswitch or any(
            link is not None and OVS_KIND in (link.kind, link.port_kind) for link in (old, event.link)
        )
        if event.gone or old is None or old.name != event.link.name:
            self._note_moved_device(facts.devices.get(index))
        if event.gone or old is None:
            # One end of a pair came or went: the kernel sends nothing about the other end, whose peer is elsewhere now.
            self.pairs |= {end.lower for end in (old, event.link) if end is not None and end.kind in PAIRED}
        if event.link.kind in PAIRED and event.link.peer_netns == HERE and not event.link.lower:
            # The kernel makes the ends of a pair one after the other, and reports the first before they are connected;
            # no message follows (veth_newlink(), netkit_new_link()).
            self.pairs.add(index)
        if event.gone:
            facts.routes.drop_link(index)
            self.routes = True
            facts.drop(index, moved=event.moved)
            if event.moved:
                facts.moved.add(index)
            return
        facts.moved.discard(index)
        live.put_link(facts, event.link)
        self.read_anew.add(index)
        self.far = self.far or event.link.peer_netns >= 0
        live.read_speed(self.kernel, facts, index)
        live.read_device(self.kernel, facts, event.link)
        self.concerned |= facts.around(index)
        if old is None:
            self._note_moved_device(facts.devices.get(index))

    def address(self, event: AddressEvent) -> None:
        index, text = event.address.index, event.address.text
        others = [entry for entry in self.facts.addresses.get(index, ()) if entry.text != text]
        self.facts.addresses[index] = others if event.gone else [*others, event.address]
        self.concerned.add(index)
        if event.gone:
            self.unclear.add(index)

    def route(self, event: RouteEvent) -> None:
        """Count a route.

        One that takes the place of the first of its key, after routes have gone without a message, took that of another
        one than is known.
        """
        self.facts.routes.apply(event)
        if event.replaces and self.unclear and not event.route.is_ipv6:
            self.unsure.add(event.route.key)
        self.routes = True

    def device(self, event: DeviceEvent) -> None:
        """Read a device again: devices come, go, and change drivers or VFs without an event of a link."""
        self.rdma = self.rdma or event.subsystem == "infiniband"
        address = event.path.rpartition("/")[2]
        if event.subsystem != "pci" or not pci.is_address(address):
            return
        for index in tuple(self.facts.by_address.get(address, ())):
            live.read_device(self.kernel, self.facts, self.facts.links[index])
            self.concerned.add(index)
        pf = live.pf_of(self.kernel, self.facts, address)
        if pf:
            self.pfs.add(pf)

    def finish(self) -> None:
        """Do the reads of the batch as a whole."""
        facts = self.facts
        self._read_pairs()
        if self.read_anew:
            live.read_programs(self.kernel, facts, self.read_anew)
        # IPv4 routes go without messages when their link is set down, and when the address is deleted that they are
        # sent from (fib_sync_down_dev(), fib_sync_down_addr() in net/ipv4/fib_semantics.c).
        for index in self.unclear & facts.routes.links:
            live.read_routes_through(self.kernel, facts, index)
            self.routes = True
        if self.unsure:
            live.read_routes_of(self.kernel, facts, self.unsure)
        if self.routes:
            self.concerned |= facts.note_routes()
        if self.pfs:
            self._read_pfs()
        if self.rdma:
            self._read_rdma()
        if self.open_vswitch:
            live.read_ovs(self.kernel, facts)
            self.concerned |= {index for index, link in facts.links.items() if OVS_KIND in (link.kind, link.port_kind)}

    def _read_pairs(self) -> None:
        """Read the ends again whose other ends came or went, and which of the namespaces that pairs lead to are pods'.

        A runtime names a pod's namespace before anything is put into it: of a link that leads there it can be known.
        """
        facts = self.facts
        for index in self.pairs & facts.links.keys():
            if (netdev := link.find(self.kernel.route, index)) is not None:
                live.put_link(facts, netdev)
                self.far = self.far or netdev.peer_netns >= 0
                self.concerned.add(index)
        if self.far:
            self.concerned |= live.read_pods(self.kernel, facts)
        self.concerned |= live.judge_pairs(facts)

    def _note_moved_device(self, device: SysfsDevice | None) -> None:
        """Note that a device's netdev came, went or has another name: this changes its PF, VFs and RDMA device."""
        if device is None:
            return
        self.rdma = True
        pf = device.pf or (device.address if device.total_vfs else "")
        if pf:
            self.pfs.add(pf)

    def _read_pfs(self) -> None:
        facts = self.facts
        self.concerned |= set(facts.functions)
        for pf in self.pfs:
            live.read_pf(self.kernel, facts, pf)
            for address in (pf, *(facts.pfs[pf].functions.values() if pf in facts.pfs else ())):
                self.concerned |= facts.by_address.get(address, set())
        live.read_functions(self.kernel, facts)
        self.concerned |= set(facts.functions)

    def _read_rdma(self) -> None:
        facts = self.facts
        before, mode = facts.rdma, facts.rdma_mode
        live.read_rdma(self.kernel, facts)
        owners = {owner for owner, _ in before.items() ^ facts.rdma.items()}
        if mode != facts.rdma_mode:
            owners |= facts.rdma.keys()
        self.concerned |= {index for index, link in facts.links.items() if owners and link.name in owners}
        for owner in owners:
            self.concerned |= facts.by_address.get(owner, set())
            if owner in facts.functions:
                self.concerned.add(owner)
