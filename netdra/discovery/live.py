"""The running kernel to facts: dumps over netlink for the facts of all links at once, sysfs for the rest.

Netlink has all facts of virtual links, so sysfs is read only for links that have a device. Called by `scan`, and by
`watch` for the links that an event names.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack, suppress

from netdra.discovery import devices, ovs
from netdra.discovery.assemble import OVS_KIND
from netdra.discovery.facts import EVERY_LINK, PROGRAMS, Key, MachineFacts, SysfsDevice
from netdra.discovery.pairs import Pairs
from netdra.discovery.routes import MadeRoutes
from netdra.kernel import address, bpf, devlink, ethtool, kinds, link, netns, rdma, route, uapi
from netdra.kernel.address import Address
from netdra.kernel.closing import Closing
from netdra.kernel.errors import KernelBusyError, KernelError, KernelInterruptedError, KernelMissingError, errno_name
from netdra.kernel.link import Link
from netdra.kernel.netlink import NETLINK_GENERIC, Socket
from netdra.kernel.netns import Namespace
from netdra.kernel.pod_namespaces import PodNamespaces
from netdra.kernel.sysfs import Sysfs

_DUMP_ATTEMPTS = 3


class Kernel(Closing):
    """The sockets and files that the kernel is read through, in the network namespace of the thread that opens them.

    Attributes:
        sysfs: where /sys is.
        ovs_database: where Open vSwitch's database listens.
        pods: the namespaces of pods, as far as they have ids here.
    """

    def __init__(self, sysfs: Sysfs | None = None, ovs_database: str = ovs.DATABASE) -> None:
        """Open the sockets.

        Raises:
            KernelError: rtnetlink is not available.
        """
        self.sysfs = sysfs or Sysfs()
        self.ovs_database = ovs_database
        self.pods = PodNamespaces()
        with ExitStack() as opened:
            self.route = opened.enter_context(Socket())
            self.generic = opened.enter_context(Socket(NETLINK_GENERIC))
            self._namespace = opened.enter_context(Namespace.current())
            opened.pop_all()

    def close(self) -> None:
        """Close the sockets; closing twice is not an error."""
        self.route.close()
        self.generic.close()
        self._namespace.close()

    def visit(self, work: Callable[[], None]) -> None:
        """Call `work` in the namespace, for objects that the kernel looks up in the calling thread's namespace.

        Raises:
            KernelError: the namespace cannot be entered.
        """
        if netns.inode_at() == self._namespace.inode:
            work()
        else:
            self._namespace.visit(work)


def read(kernel: Kernel, known: MachineFacts | None = None, pairs: Pairs | None = None) -> MachineFacts:
    """All facts of the namespace.

    While links come and go faster than all can be listed, addresses and speeds are read link by link, and links that
    the last attempt lacks one by one; `stale` states so.

    Args:
        kernel: where to read.
        known: the facts of the reading before, which stand in for addresses and routes that cannot be listed.
        pairs: the ends of pairs that are known already, or a new object.

    Raises:
        KernelError: the links cannot be listed; other failures are noted in the facts.
    """
    facts = MachineFacts(pairs)
    _read_links(kernel, facts, known or MachineFacts())
    facts.pairs.keep(facts.links.keys())
    _read_addresses(kernel, facts, known)
    _read_routes(kernel, facts, known)
    _read_speeds(kernel, facts, known)
    read_rdma(kernel, facts)
    for netdev in facts.links.values():
        read_device(kernel, facts, netdev)
    for pf in devices.other_pfs(kernel.sysfs, facts.by_address):
        facts.put_pf(devices.function(kernel.sysfs, pf))
    for pf in facts.pfs:
        _read_eswitch(kernel, facts, pf)
    read_functions(kernel, facts)
    read_ovs(kernel, facts)
    read_pods(kernel, facts)
    read_programs(kernel, facts, facts.links)
    judge_pairs(facts)
    return facts


def put_link(facts: MachineFacts, netdev: Link) -> None:
    """Add a link with the facts of its kind."""
    facts.put(netdev)
    if netdev.kind == "bridge":
        facts.vlan_filtering.discard(netdev.index)
        if kinds.vlan_filtering_of(netdev.data):
            facts.vlan_filtering.add(netdev.index)
    elif netdev.kind == "vlan":
        facts.vlan_ids[netdev.index] = kinds.vlan_id_of(netdev.data)


def _read_links(kernel: Kernel, facts: MachineFacts, known: MachineFacts) -> None:
    """All links; if they change during each dump, also those that are known or have a folder in sysfs, one by one."""
    bodies, complete = link.dump_raw(kernel.route)
    for body in bodies:
        put_link(facts, link.parse(body))
    if complete:
        return
    facts.stale.add("links")
    names = {netdev.name for netdev in facts.links.values()}
    others: list[int | str] = [*(known.links.keys() - facts.links.keys()), *kernel.sysfs.listing("class/net")]
    for missing in others:
        if missing not in names and (netdev := link.find(kernel.route, missing)) is not None:
            put_link(facts, netdev)


def _read_addresses(kernel: Kernel, facts: MachineFacts, known: MachineFacts | None) -> None:
    """The addresses of all links."""
    try:
        try:
            listed = address.dump(kernel.route, attempts=_DUMP_ATTEMPTS)
        except KernelInterruptedError:
            facts.stale.add("addresses")
            listed = [entry for index in facts.links for entry in _addresses_of(kernel, index)]
    except KernelError as problem:
        former = _fall_back(facts, known, "addresses", ("ipv4", "ipv6"), problem).addresses
        listed = [entry for index in facts.links for entry in former.get(index, ())]
    for entry in listed:
        facts.addresses.setdefault(entry.index, []).append(entry)


def _fall_back(
    facts: MachineFacts, known: MachineFacts | None, what: str, fields: tuple[str, ...], problem: KernelError
) -> MachineFacts:
    """Take the facts that stand in for those that cannot be listed; without any, note that they cannot be read."""
    facts.stale.add(what)
    if known is not None and not known.problems.get(EVERY_LINK, {}).keys() & set(fields):
        return known
    facts.note(EVERY_LINK, fields, errno_name(problem.errno))
    return MachineFacts()


def _addresses_of(kernel: Kernel, index: int) -> list[Address]:
    try:
        return address.dump(kernel.route, index)
    except KernelMissingError:
        return []


def _read_routes(kernel: Kernel, facts: MachineFacts, known: MachineFacts | None) -> None:
    """The routes of all tables that did not come with an address."""
    try:
        facts.routes = MadeRoutes(route.dump_made(kernel.route))
    except KernelError as problem:
        facts.routes = _fall_back(facts, known, "routes", ("host_uplink",), problem).routes
    facts.note_routes()


def read_routes_through(kernel: Kernel, facts: MachineFacts, index: int) -> None:
    """The routes through one link, after a change of which the kernel sends no messages."""
    try:
        unsure = facts.routes.replace_link(index, route.dump_made(kernel.route, through=index))
        if unsure:  # a node with several links for one destination of one priority
            facts.routes.reorder(unsure, route.dump_made(kernel.route))
    except KernelMissingError:
        facts.routes.drop_link(index)
    except KernelError:
        facts.stale.add("routes")


def read_routes_of(kernel: Kernel, facts: MachineFacts, keys: Collection[bytes]) -> None:
    """The routes of some keys, after a change that the kernel's messages do not identify."""
    try:
        facts.routes.reorder(keys, route.dump_made(kernel.route))
    except KernelError:
        facts.stale.add("routes")


def read_speed(kernel: Kernel, facts: MachineFacts, index: int) -> None:
    """The speed of one link; most virtual ones have none.

    A link that is down has none either, as in sysfs: the speed that its driver reports then may change without any
    event.
    """
    facts.speeds.pop(index, None)
    if not facts.links[index].flags & uapi.IFF_UP:
        return
    try:
        speed = ethtool.speed(kernel.generic, index)
    except KernelError:
        return
    if speed:
        facts.speeds[index] = speed


def read_device(kernel: Kernel, facts: MachineFacts, netdev: Link) -> None:
    """The device behind a link, if it has one.

    Kernels before 5.14 name no parent over netlink: a link without a kind is then looked up by its name.
    """
    device: SysfsDevice | None = None
    if netdev.parent and netdev.parent_bus:
        device = devices.behind_parent(kernel.sysfs, netdev.name, netdev.parent_bus, netdev.parent)
    elif not netdev.kind and not netdev.flags & uapi.IFF_LOOPBACK:
        device = devices.behind_link(kernel.sysfs, netdev.name)
    if device is not None:
        facts.put_device(netdev.index, device)


def read_pf(kernel: Kernel, facts: MachineFacts, pf: str) -> None:
    """A PF and its VFs, whether it has a netdev here or not; one that cannot be read is as it was (decision D59)."""
    for index in tuple(facts.by_address.get(pf, ())):
        read_device(kernel, facts, facts.links[index])
    function = devices.function(kernel.sysfs, pf)
    if function.total_vfs:
        facts.put_pf(function)
        _read_eswitch(kernel, facts, pf)
    elif function.unreadable.get("total_vfs", devices.GONE) == devices.GONE:
        facts.drop_pf(pf)


def pf_of(kernel: Kernel, facts: MachineFacts, address: str) -> str:
    """A PCI device's own address if it is a PF, its PF's if it is a VF; "" if it is neither. It may be gone."""
    if address in facts.pfs:
        return address
    if address in facts.vfs:
        return facts.vfs[address][0]
    function = devices.function(kernel.sysfs, address)
    return function.pf or (address if function.total_vfs else "")


def read_functions(kernel: Kernel, facts: MachineFacts) -> None:
    """The VFs of all PFs that have no netdev here: they are in a pod, or another driver has them."""
    missing = {vf for pf in facts.pfs.values() for vf in pf.functions.values() if not facts.by_address.get(vf)}
    facts.functions = {vf: devices.function(kernel.sysfs, vf) for vf in sorted(missing)}


def _read_eswitch(kernel: Kernel, facts: MachineFacts, pf: str) -> None:
    """The eswitch mode of a PF; devices and kernels without devlink have none."""
    try:
        facts.eswitch[pf] = devlink.eswitch_mode(kernel.generic, pf)
    except KernelMissingError:
        facts.eswitch.pop(pf, None)
    except KernelError as problem:
        facts.eswitch.pop(pf, None)
        if not problem.is_unsupported:
            for index in facts.by_address.get(pf, ()):
                facts.note(index, ("eswitch_mode",), errno_name(problem.errno))


def read_rdma(kernel: Kernel, facts: MachineFacts) -> None:
    """Read the RDMA devices, by PCI address and by netdev, their GID tables and the machine's mode."""
    put_rdma(kernel.sysfs, facts)
    facts.rdma_mode = rdma.system_mode() if facts.rdma else ""


def put_rdma(sysfs: Sysfs, facts: MachineFacts) -> None:
    """Add the RDMA devices of sysfs; a device's GID table is read once, its size does not change."""
    facts.rdma = by_owner(rdma.devices(sysfs))
    used = sorted(set(facts.rdma.values()))
    facts.gids = {name: facts.gids.get(name) or rdma.gid_table(sysfs, name) for name in used}


def by_owner(by_name: dict[str, tuple[str, str]]) -> dict[str, str]:
    """RDMA devices by PCI address and by netdev; the first by name where several share one."""
    owners: dict[str, str] = {}
    for name, owned in sorted(by_name.items()):
        for owner in filter(None, owned):
            owners.setdefault(owner, name)
    return owners


def read_ovs(kernel: Kernel, facts: MachineFacts) -> None:
    """The bridges of Open vSwitch, asked only where it has interfaces."""
    if any(netdev.kind == OVS_KIND for netdev in facts.links.values()):
        facts.ovs_bridges = ovs.bridges(kernel.ovs_database)


def read_pods(kernel: Kernel, facts: MachineFacts) -> set[Key]:
    """Read which of the namespaces that pairs of links lead to are pods'; returns the links to which it is new.

    Of a link that leads to another namespace, the host's use is unknown while this cannot be read.
    """
    far = {index: netdev.peer_netns for index, netdev in facts.links.items() if netdev.peer_netns >= 0}
    if not far:
        return set()
    before = facts.pods or frozenset()
    try:
        facts.pods = kernel.pods.ids(kernel.route)
    except KernelError as problem:
        facts.pods = None
        facts.stale.add("pods")
        for index in far:
            facts.note(index, ("host_use",), errno_name(problem.errno))
        return set(far)
    unclear: set[Key] = {index for index in far if "host_use" in facts.problems.get(index, {})}
    for index in far:
        facts.clear_problem(index, "host_use")
    return unclear | {index for index, number in far.items() if number in before ^ facts.pods}


def read_programs(kernel: Kernel, facts: MachineFacts, indexes: Iterable[int]) -> None:
    """Which of these links have BPF programs that their messages do not show.

    While that cannot be read, the host's use is unknown, except for a user without rights, who cannot take devices.
    """
    for index in indexes:
        facts.programs.pop(index, None)

    links = [facts.links[index] for index in indexes if index in facts.links]

    def read_each() -> None:
        for netdev in links:
            with suppress(KernelMissingError):  # gone: its event comes
                if not netdev.flags & uapi.IFF_LOOPBACK and (words := bpf.uses(netdev.index, netdev.kind)):
                    facts.programs[netdev.index] = words

    try:
        if bpf.are_loaded():
            kernel.visit(read_each)
    except KernelError as problem:
        if os.geteuid() == 0:
            facts.note(EVERY_LINK, (PROGRAMS,), errno_name(problem.errno))
        if isinstance(problem, KernelBusyError):
            facts.stale.add("programs")


def judge_pairs(facts: MachineFacts) -> set[int]:
    """Work out now whose the ends of pairs are; returns those of which something else is known than before."""
    return facts.pairs.judge(facts.pods, time.monotonic())


def _read_speeds(kernel: Kernel, facts: MachineFacts, known: MachineFacts | None) -> None:
    up = {index for index, netdev in facts.links.items() if netdev.flags & uapi.IFF_UP}
    try:
        speeds = ethtool.speeds(kernel.generic, attempts=_DUMP_ATTEMPTS)
    except KernelInterruptedError:
        facts.stale.add("speeds")
        for index in up:
            read_speed(kernel, facts, index)
        return
    except KernelBusyError as problem:
        speeds = _fall_back(facts, known, "speeds", ("link_speed",), problem).speeds
    except KernelError as problem:  # a kernel without ethtool over netlink
        facts.note(EVERY_LINK, ("link_speed",), errno_name(problem.errno))
        return
    facts.speeds = {index: speed for index, speed in speeds.items() if index in up}
