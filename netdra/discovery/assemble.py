"""Facts to interfaces: the type of each, the interfaces below it, whether the host needs it. Pure.

Called by `scan` for all interfaces, and by `watch` for those that a change concerns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from netdra.discovery.facts import EVERY_LINK, NO_DEVICE, PROGRAMS, Key, MachineFacts, SysfsDevice
from netdra.kernel import host_use, uapi
from netdra.kernel.link import Link, SwitchPort, uplink_number
from netdra.kernel.rdma import GidTable
from netdra.model.inventory import HARDWARE, Interface, wired_to

K = TypeVar("K")

OVS_KIND = "openvswitch"
OVS_DATAPATH = "ovs-system"
REPRESENTOR = "representor"

_OWN_TYPES = {"bridge": "bridge", "vlan": "vlan", "bond": "bond"}
_IPV4, _IPV6 = 2, 10
_NO_GIDS = GidTable()
_OF_PF = frozenset({"eswitch_mode"})  # fields that a VF has of its PF
# ARPHRD_* as ip-link(8) calls them
ENCAPSULATIONS = {
    uapi.ARPHRD_ETHER: "ether",
    uapi.ARPHRD_INFINIBAND: "infiniband",
    uapi.ARPHRD_LOOPBACK: "loopback",
    280: "can",
    512: "ppp",
    519: "rawip",
    768: "ipip",
    769: "tunnel6",
    776: "sit",
    778: "gre",
    801: "ieee802.11",
    823: "gre6",
    824: "netlink",
    65534: "none",
}


class Uplinks(NamedTuple):
    """The links that the node's own traffic depends on.

    Attributes:
        links: the links that default routes leave through, with the links below and above them.
        by_rules: those that are among them because of default routes that only policy rules lead to.
    """

    links: frozenset[int]
    by_rules: frozenset[int]

    def changed(self, other: Uplinks) -> frozenset[int]:
        """The links of which one states something else than the other."""
        return (self.links ^ other.links) | (self.by_rules ^ other.by_rules)


def interface(facts: MachineFacts, index: int, uplinks: Uplinks) -> Interface:
    """The interface of one link.

    Args:
        facts: the facts; the link must be among them.
        uplinks: the result of `host_uplinks` on the same facts.
    """
    link = facts.links[index]
    behind = facts.devices.get(index, NO_DEVICE)
    kind = _type(facts, link, behind)
    # The device behind a representor is the PF's function, not one of its own.
    device = msgspec.structs.replace(behind, address="", total_vfs=0, vfs=0) if kind == REPRESENTOR else behind
    master = facts.links.get(link.master)
    master_bridge = _master_bridge(facts, link, master) if master else ""
    pf_name, pf, vf_index = _pf(facts, behind, link.port if kind == REPRESENTOR else None)
    ipv4, ipv6 = _addresses(facts, index) if index in facts.addresses else ((), ())
    stack = _stack(facts, index, kind) if link.kind and kind not in HARDWARE else _NO_STACK
    rdma = facts.rdma.get(device.address, "") or facts.rdma.get(link.name, "")
    gids = facts.gids.get(rdma, _NO_GIDS)
    bridge_name, bridge_type = _bridge(link) if kind == "bridge" else ("", "")
    return Interface(
        if_name=link.name,
        type=kind,
        mac=link.address,
        permanent_mac=link.permanent_address,
        mtu=link.mtu,
        link_speed=facts.speeds.get(index, 0),
        oper_state=link.state,
        pci_address=device.address,
        bus=device.bus,
        bus_address=device.bus_address,
        dev_port=device.dev_port,
        numa_node=device.numa_node if stack is _NO_STACK else stack.numa_node,
        vendor=device.vendor,
        product=device.product,
        driver=_driver(device, link),
        rdma=bool(rdma),
        rdma_device=rdma,
        rdma_mode=facts.rdma_mode if rdma else "",
        gid_entries=gids.entries,
        gid_versions=gids.versions,
        sriov_capable=device.total_vfs > 0,
        num_vfs=device.vfs,
        total_vfs=device.total_vfs,
        pf_name=pf_name,
        pf_pci_address=pf,
        vf_index=vf_index,
        bridge_name=bridge_name,
        bridge_type=bridge_type,
        vlan_filtering=index in facts.vlan_filtering,
        vlan_id=facts.vlan_ids.get(index, 0),
        master=master.name if master else "",
        master_bridge=master_bridge,
        lower_devices=_names(facts, _lower(facts, index)),
        upper_devices=_names(facts, facts.upper(index)),
        pcie_root=device.pcie_root if stack is _NO_STACK else stack.pcie_root,
        pcie_roots=stack.pcie_roots,
        iommu_group=device.iommu_group,
        eswitch_mode=facts.eswitch.get(pf or device.address, ""),
        port_name=link.port_name,
        representor=_representor(facts, pf, vf_index) if kind == "vf" else "",
        encapsulation=ENCAPSULATIONS.get(link.hardware) or f"[{link.hardware}]",
        alias=link.alias,
        alt_names=link.alt_names,
        ipv4=ipv4,
        ipv6=ipv6,
        physnet=_physnet(facts, index, kind, stack) if facts.wired else "",
        host_uplink=index in uplinks.links,
        uplink_by_rules=index in uplinks.by_rules and kind in HARDWARE,
        host_use=_host_use(facts, link, master, master_bridge),
        peer_unknown=index in facts.pairs.unknown,
        no_carrier=link.lacks_carrier,
        ifindex=max(index, 0),
        unreadable=_unreadable(facts, index) if facts.problems or behind.unreadable else (),
    )


def _driver(device: SysfsDevice, link: Link) -> str:
    return device.driver or (OVS_KIND if link.kind == OVS_KIND else "")


def _bridge(link: Link) -> tuple[str, str]:
    """The name and the type of a bridge."""
    return link.name, "ovs" if link.kind == OVS_KIND else "linux"


class _Stack(NamedTuple):
    """The facts that a link without a device of its own takes from the hardware below it.

    Attributes:
        nics: the links of that hardware.
        numa_node: theirs, if it is one; else -1.
        pcie_root: theirs, if it is one; else "".
        pcie_roots: theirs, if there are several.
    """

    nics: tuple[int, ...] = ()
    numa_node: int = -1
    pcie_root: str = ""
    pcie_roots: tuple[str, ...] = ()


_NO_STACK = _Stack()


def _stack(facts: MachineFacts, index: int, kind: str) -> _Stack:
    """The hardware below a link. A bridge has it from its only port with hardware below it, if it has one such port."""
    below = [_nics(facts, closure([lower], lambda link: _below(facts, link))) for lower in _bearing(facts, index)]
    carrying = [nics for nics in below if nics]
    if not carrying or (kind == "bridge" and len(carrying) > 1):
        return _NO_STACK
    nics = tuple(sorted(set().union(*carrying)))
    devices = [facts.devices[nic] for nic in nics]
    nodes = {device.numa_node for device in devices}
    roots = sorted({device.pcie_root for device in devices} - {""})
    return _Stack(
        nics=nics,
        numa_node=nodes.pop() if len(nodes) == 1 else -1,
        pcie_root=roots[0] if len(roots) == 1 else "",
        pcie_roots=tuple(roots) if len(roots) > 1 else (),
    )


def _bearing(facts: MachineFacts, index: int) -> Iterator[int]:
    """The links below a link that are hardware, or stand on something: not the ends of pods' pairs."""
    for lower in _below(facts, index):
        if lower in facts.devices or facts.ports.get(lower) or facts.links[lower].stands_on:
            yield lower


def _nics(facts: MachineFacts, links: Iterable[int]) -> set[int]:
    return {link for link in links if link in facts.devices}


def above(facts: MachineFacts, indexes: Iterable[int]) -> set[int]:
    """Links, and all that stand on them and take facts from below."""
    return closure([index for index in indexes if index in facts.links], facts.upper)


def _physnet(facts: MachineFacts, index: int, kind: str, stack: _Stack) -> str:
    """The physical network of a link: its own, or the one network of all hardware below it."""
    own = _wired(facts, index, kind)
    if own or not stack.nics:
        return own
    below = {_wired(facts, nic, _type(facts, facts.links[nic], facts.devices[nic])) for nic in stack.nics}
    return below.pop() if len(below) == 1 else ""


def _wired(facts: MachineFacts, index: int, kind: str) -> str:
    link, device = facts.links[index], facts.devices.get(index, NO_DEVICE)
    pf_name, pf, _ = _pf(facts, device, link.port if kind == REPRESENTOR else None)
    address = "" if kind == REPRESENTOR else device.address
    return wired_to(facts.wired, kind, link.name, address, pf_name, pf)


def function(facts: MachineFacts, address: str) -> Interface:
    """The interface of a VF without a netdev here, or of a function in a tree that has only its bus recorded."""
    device = facts.functions[address]
    is_vf = bool(device.pf or address in facts.vfs)
    pf_name, pf, vf_index = _pf(facts, device)
    rdma = facts.rdma.get(address, "")
    kind = "vf" if is_vf else "pf" if device.total_vfs else "nic"
    return Interface(
        type=kind,
        pci_address=address,
        numa_node=device.numa_node,
        vendor=device.vendor,
        product=device.product,
        driver=device.driver,
        rdma=bool(rdma),
        rdma_device=rdma,
        rdma_mode=facts.rdma_mode if rdma else "",
        sriov_capable=device.total_vfs > 0,
        num_vfs=device.vfs,
        total_vfs=device.total_vfs,
        pf_name=pf_name,
        pf_pci_address=pf,
        vf_index=vf_index,
        pcie_root=device.pcie_root,
        iommu_group=device.iommu_group,
        eswitch_mode=facts.eswitch.get(pf, ""),
        representor=_representor(facts, pf, vf_index),
        physnet=wired_to(facts.wired, kind, address, pf_name, pf) if facts.wired else "",
        unreadable=_unreadable(facts, address),
    )


def host_uplinks(facts: MachineFacts) -> Uplinks:
    """The links of default routes and all links above and below them, and which of these only policy rules use."""
    every = _carrying(facts, facts.default_links)
    if facts.default_links == facts.links_for_all:
        return Uplinks(every, frozenset())
    return Uplinks(every, (facts.default_links & every) - _carrying(facts, facts.links_for_all))


def _carrying(facts: MachineFacts, links: Iterable[int]) -> frozenset[int]:
    """Links with the links below and above them."""
    start = [index for index in links if index in facts.links]
    return frozenset((*closure(start, lambda index: _below(facts, index)), *closure(start, facts.upper)))


def closure(start: Iterable[K], step: Callable[[K], Iterable[K]]) -> set[K]:
    """The places that steps lead to, with those of the start."""
    seen: set[K] = set()
    waiting = list(start)
    while waiting:
        index = waiting.pop()
        if index not in seen:
            seen.add(index)
            waiting.extend(step(index))
    return seen


def _lower(facts: MachineFacts, index: int) -> Iterable[int]:
    """As `_below`, without an Open vSwitch bridge's own interfaces, which are ports like others there."""
    if facts.links[index].kind != OVS_KIND:
        return facts.lower(index)
    return (below for below in _below(facts, index) if facts.links[below].kind != OVS_KIND)


def _below(facts: MachineFacts, index: int) -> Iterator[int]:
    """The links below a link. An Open vSwitch bridge is not a master of its ports: its datapath is."""
    yield from facts.lower(index)
    link = facts.links[index]
    if link.kind != OVS_KIND or link.name == OVS_DATAPATH:
        return
    for datapath in (other for other in facts.links.values() if other.name == OVS_DATAPATH):
        for port in facts.ports.get(datapath.index, ()):
            bridge = (facts.ovs_bridges or {}).get(facts.links[port].name, link.name)
            if bridge == link.name:
                yield port


def _type(facts: MachineFacts, link: Link, device: SysfsDevice) -> str:
    if device.pf or device.address in facts.vfs:
        return "vf"
    if link.port is not None and not link.kind:
        return REPRESENTOR
    if device.total_vfs:
        return "pf"
    if link.kind == OVS_KIND:
        return _ovs_type(facts, link)
    if link.kind:
        return _OWN_TYPES.get(link.kind, link.kind)
    return "loopback" if link.flags & uapi.IFF_LOOPBACK else "nic"


def _ovs_type(facts: MachineFacts, link: Link) -> str:
    """A bridge's own interface and other internal ports look alike to the kernel; Open vSwitch's database knows."""
    if link.name == OVS_DATAPATH:
        return OVS_KIND
    if facts.ovs_bridges is None:
        return "bridge"
    return "bridge" if facts.ovs_bridges.get(link.name) == link.name else OVS_KIND


def _master_bridge(facts: MachineFacts, link: Link, master: Link) -> str:
    if master.kind == "bridge":
        return master.name
    if master.name == OVS_DATAPATH:
        return (facts.ovs_bridges or {}).get(link.name, master.name)
    return ""


def _pf(facts: MachineFacts, device: SysfsDevice, port: SwitchPort | None = None) -> tuple[str, str, int]:
    """The name of a VF's PF ("" if its netdev is not here), its address, and the VF's index on it.

    For a representor, given its port, they are those of the VF that it stands for, if that is a VF of this host.
    """
    if port is not None:
        pf, number = device.address, port.vf if port.controller == 0 else -1
    else:
        pf, number = facts.vfs.get(device.address, (device.pf, -1))
    index = _netdev_of(facts, pf)
    return "" if index is None else facts.links[index].name, pf, number


def _netdev_of(facts: MachineFacts, pf: str) -> int | None:
    """A PF's own netdev: in switchdev mode the representors of its VFs hang on its function too (since Linux 5.8).

    Of two ports that share a function, it is the first port's.
    """
    own = [index for index in facts.by_address.get(pf, ()) if facts.links[index].port is None]
    return min(own, key=lambda index: (facts.devices[index].dev_port, index)) if own else None


def _representor(facts: MachineFacts, pf: str, number: int) -> str:
    """The name of a VF's representor, "" without one here.

    Before Linux 5.8 representors hang on no function. They share the switch with their PF, and the PF's number on it
    distinguishes the representors of two PFs.
    """
    there = [facts.links[index] for index in facts.by_address.get(pf, ())]
    ports = [link for link in there if link.port is not None]
    own = _netdev_of(facts, pf)
    if not ports and own is not None and facts.links[own].switch_id:
        uplink = facts.links[own]
        switch = [link for link in facts.links.values() if link.switch_id == uplink.switch_id]
        ports = [link for link in switch if link.port and link.port.pf in (-1, uplink_number(uplink.port_name))]
    return next((port.name for port in ports if port.port and (port.port.controller, port.port.vf) == (0, number)), "")


def _host_use(facts: MachineFacts, link: Link, master: Link | None, master_bridge: str) -> tuple[str, ...]:
    """The host's own uses of a link. A PF's VFs and their representors are not use of the PF itself."""
    index = link.index
    stacked = facts.stacked.get(index)
    addresses = facts.addresses.get(index)
    routed = index in facts.routed_links
    pod = index in facts.pairs.pods
    programs = facts.programs.get(index, ())
    if not (master or stacked or addresses or routed or link.xdp or pod or programs) or link.flags & uapi.IFF_LOOPBACK:
        return ()
    above = [facts.links[upper] for upper in stacked or () if upper in facts.links]
    return host_use.words(
        link, master, above, addresses or (), routed=routed, reaches_pod=pod, programs=programs, of=master_bridge
    )


def _addresses(facts: MachineFacts, index: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """IPv4 and IPv6 addresses, without link-local ones of IPv6, which every link has."""
    listed = facts.addresses[index]
    ipv4 = tuple(address.text for address in listed if address.family == _IPV4)
    ipv6 = tuple(address.text for address in listed if address.family == _IPV6 and address.scope != uapi.RT_SCOPE_LINK)
    return ipv4, ipv6


def _names(facts: MachineFacts, indexes: Iterable[int]) -> tuple[str, ...]:
    named = [facts.links[index].name for index in indexes if index in facts.links]
    return tuple(sorted(named)) if len(named) > 1 else tuple(named)


def reasons(facts: MachineFacts, key: Key) -> dict[str, str]:
    """Why fields of an interface could not be read."""
    common = facts.problems.get(EVERY_LINK, {})
    if isinstance(key, str):
        of_pf = {field: why for field, why in common.items() if field in _OF_PF}
        return {**of_pf, **facts.functions[key].unreadable}
    device = facts.devices.get(key, NO_DEVICE)
    merged = {**common, **device.unreadable, **facts.problems.get(key, {})}
    # The host does not use a link only if all possible uses of it are known to be absent.
    programs = merged.pop(PROGRAMS, None)
    unknown = programs or next((merged[field] for field in ("host_uplink", "ipv4", "ipv6") if field in merged), None)
    return merged if unknown is None else {**merged, "host_use": unknown}


def _unreadable(facts: MachineFacts, key: Key) -> tuple[str, ...]:
    return tuple(sorted(reasons(facts, key)))
