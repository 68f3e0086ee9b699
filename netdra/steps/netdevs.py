"""A netdev as it is before it moves into a pod: recorded, and recognized again in the pod and on the host.

Called by `moving`, `allocated` and the steps that record a netdev. The kernel's dev_change_net_namespace()
(net/core/dev.c) closes the device, forgets its addresses and routes, and lets a bridge or bond lose it. So all of these
are recorded first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from netdra.kernel import host_use, link, neighbour, pci, pod_namespaces, uapi
from netdra.kernel.address import Address
from netdra.kernel.bpf import Program
from netdra.kernel.host_use import Configuration
from netdra.kernel.link import Link
from netdra.kernel.neighbour import Neighbour
from netdra.kernel.route import Route
from netdra.kernel.sysfs import Sysfs
from netdra.model.identity import DeviceIdentity
from netdra.model.policy import ResetPolicy
from netdra.steps import functions, identity, node_configuration, settings
from netdra.steps.contract import PodSpace, Record, Site
from netdra.steps.functions import FunctionSettings, PhysicalFunction
from netdra.steps.node_configuration import NodeConfiguration
from netdra.steps.rdma_state import RdmaState
from netdra.steps.settings import DeviceSettings

_CLEANUP = 2.0  # seconds that the kernel may take to give back what was in a namespace that died


class HostAddress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An address that the device had on the host; `broadcast` is None in records of an older netdra.

    The whole of it, and of routes and neighbours, is in `Moved.node`; these are for records of an older netdra, and for
    the pod that keeps them.

    `preferred_until` and `valid_until` are on the monotonic clock, None for ever: a DHCP client, or a router, gave it.
    """

    text: str
    scope: int = 0
    flags: int = 0
    broadcast: str | None = None
    preferred_until: float | None = None
    valid_until: float | None = None

    @property
    def is_valid(self) -> bool:
        """Whether the device would still have it."""
        return self.valid_until is None or self.valid_until - time.monotonic() >= 1


class Moved(Record, frozen=True, kw_only=True):
    """The state of a netdev on the host, and its name in the pod.

    Attributes:
        master: a name.
        index: its index there, by which a virtual one is recognised that a plugin has renamed; 0 if not known.
        pod_index: its index in the pod, if it is a virtual one without a lower link that a step moves itself, else 0.
        lower: the index of the link that it stands on, or of a veth's other end, which stays when it moves; 0 for none.
        lower_here: whether that link is known to be in the host's namespace.
        programs: its BPF programs; None if they are not known, as in records of an older netdra.
        driver: the driver of its PCI function, "" for none, or in records of an older netdra.
        reset: when it is reset as it comes back; "Never" for a device that is not a VF, or of an older netdra.
        function: the settings that its PF has for it, if it is a VF whose step records them nowhere else.
        vfs: the settings that it has for its VFs, if it is a PF.
        node: what the node has configured on it; None if nothing, and in records of an older netdra.
        rdma: its RDMA device, if its step records that nowhere else.
    """

    device: DeviceIdentity
    name: str
    pod_name: str
    mac: str
    mtu: int
    up: bool
    alt_names: tuple[str, ...] = ()
    master: str = ""
    addresses: tuple[HostAddress, ...] = ()
    routes: tuple[Route, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    settings: DeviceSettings | None = None
    index: int = 0
    pod_index: int = 0
    lower: int = 0
    lower_here: bool = False
    programs: tuple[Program, ...] | None = None
    driver: str = ""
    reset: ResetPolicy = "Never"
    function: FunctionSettings | None = None
    vfs: PhysicalFunction | None = None
    node: NodeConfiguration | None = None
    rdma: RdmaState | None = None

    @property
    def holds(self) -> tuple[str, ...]:
        """The device itself; a virtual one by its name on the host, by which the next pod's step would take it."""
        return (self.key,)

    @property
    def key(self) -> str:
        """A text that no other device has that a step may take from the host."""
        return self.device.key_of(self.name)


def key_of(netdev: Link, sysfs: Sysfs) -> str:
    """The key that the record of a netdev of the host would have (`Moved.key`)."""
    return identity.identity_of(netdev, sysfs).key_of(netdev.name)


def seen(
    pod_name: str, netdev: Link, site: Site, has: Configuration, *, with_settings: bool = True, shared: bool = False
) -> Moved:
    """The record of a netdev of the host as it is just now.

    Settings can only be read where the calling thread's namespace is the netdev's. Of a shared device,
    which others may change, only those are read that have names in netdra.

    Raises:
        KernelError: the kernel refused.
    """
    # The kernel makes the temporary ones itself, of those that have a router's prefix (net/ipv6/addrconf.c).
    addresses = [entry for entry in has.addresses if not entry.is_temporary]
    device = identity.identity_of(netdev, site.sysfs)
    at = device.pci_address
    routes = _lasting_routes(netdev.index, addresses, has.routes)
    # Only for a configured device: each of these reads is one more request to the kernel.
    is_configured = bool(routes) or any(map(host_use.counts, addresses))
    node = node_configuration.read(netdev, site.host, with_groups=with_settings) if is_configured else None
    known = () if node is None else (neighbour.permanent(body, netdev.index) for body in node.neighbours)
    return Moved(
        device=device,
        name=netdev.name,
        pod_name=pod_name,
        mac=netdev.address,
        mtu=netdev.mtu,
        up=netdev.is_up,
        alt_names=netdev.alt_names,
        master=link.get(site.host, netdev.master).name if netdev.master else "",
        addresses=tuple(map(_host_address, addresses[: node_configuration.MOST])),
        routes=tuple(routes[: node_configuration.MOST]),
        neighbours=tuple(entry for entry in known if entry is not None),
        settings=settings.read(netdev, site.host, site.sysfs, whole=not shared) if with_settings else None,
        index=netdev.index,
        lower=netdev.lower,
        lower_here=netdev.lower_netns == link.HERE,
        programs=has.programs,
        driver=pci.driver_of(site.sysfs, at) if at else "",
        vfs=functions.all_of(netdev, at, site) if with_settings and netdev.port is None else None,
        node=node,
    )


def inside(moved: Moved, pod: PodSpace, site: Site) -> Link | None:
    """A netdev in the pod, under any name.

    A virtual one is recognised by its lower link, which no pod can give to another link of that kind: a pod may have
    renamed it, given it another MAC, and called another link by its name. Without a lower link, it is the link of the
    index that the step gave it in the pod, else of its name, of its MAC, or of the index that it had.
    """
    device = moved.device
    if device.is_physical:
        return identity.find(pod.sock, site.sysfs, device, moved.pod_name, moved.name, same_mac=False)
    index = moved.index if moved.lower else moved.pod_index
    likely = link.find(pod.sock, index or moved.pod_name)
    if likely is not None and _fits(likely, moved, pod, site):
        return likely
    fitting = [entry for entry in link.dump(pod.sock) if _fits(entry, moved, pod, site)]
    signs: tuple[Callable[[Link], bool], ...] = (
        lambda entry: entry.name in (moved.pod_name, moved.name),
        lambda entry: entry.address == device.mac,
        lambda entry: bool(moved.lower) or entry.index == moved.index,
    )
    found = next((entry for sign in signs for entry in fitting if sign(entry)), None)
    return link.find(pod.sock, found.index) if found is not None else None


def give_up_at() -> float:
    """Until when to wait for a device that the kernel or its driver is about to bring back, on the monotonic clock."""
    return time.monotonic() + _CLEANUP


def on_host(device: DeviceIdentity, names: tuple[str, ...], site: Site) -> Link | None:
    """A device on the host, under one of these names if it is a virtual one; None if it is not there.

    When the pod's namespace has just gone, it is waited for: the kernel is about to give it back.
    """

    def find() -> Link | None:
        return identity.find(site.host, site.sysfs, device, *names)

    netdev = find()
    if netdev is not None or site.pod is not None or not device.is_physical:
        return netdev
    until = min(site.deadline, give_up_at())
    return identity.await_return(site.host_namespace, site.sysfs, device, find, until)


def _fits(netdev: Link, moved: Moved, pod: PodSpace, site: Site) -> bool:
    """Whether a virtual link of the pod, which was just read, is of a device's kind and has its lower link."""
    if netdev.kind != moved.device.kind or not _stands_on(netdev, moved.lower):
        return False
    if not moved.lower or not moved.lower_here:
        return True
    # Reading a link gives the namespace of its lower link an ID (rtnl_fill_link_netnsid() in net/core/rtnetlink.c).
    return netdev.lower_netns >= 0 and netdev.lower_netns == pod_namespaces.id_of(pod.sock, site.host_namespace.fd)


def _stands_on(netdev: Link, lower: int) -> bool:
    """Whether a link stands on the link of that index, 0 for none.

    Outside of the namespace that it was made in, a link that stands on none, such as a VXLAN, has itself below it
    (nla_put_iflink() in net/core/rtnetlink.c), on kernel 6.12 for one.
    """
    return netdev.lower == lower or (not lower and netdev.lower == netdev.index)


def _host_address(entry: Address) -> HostAddress:
    return HostAddress(
        text=entry.text,
        scope=entry.scope,
        flags=entry.flags,
        broadcast=entry.broadcast,
        preferred_until=_until(entry.preferred),
        valid_until=_until(entry.valid),
    )


def _until(seconds: int | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds


def _lasting_routes(index: int, addresses: Iterable[Address], routes: Iterable[Route]) -> list[Route]:
    """The routes through a link alone that do not come by themselves with its addresses.

    With IFA_F_NOPREFIXROUTE, which network managers give to their addresses, the kernel makes no route to an address's
    network. They make it themselves, as one of the kernel's (RTPROT_KERNEL).
    """
    managed = any(entry.flags & uapi.IFA_F_NOPREFIXROUTE for entry in addresses)
    return [
        entry
        for entry in routes
        if entry.links == (index,) and entry.index == index
        if entry.protocol != uapi.RTPROT_KERNEL or (managed and entry.kind == uapi.RTN_UNICAST)
    ]
