"""A node's network interfaces: one `Interface` a device, with every fact that the kernel reports.

Made by `netdra.discovery` (from the kernel, a recorded sysfs tree or a capture), read by `netdra.exposure`. A fact that
does not apply has its neutral value ("" , 0, False, -1 for an index or a NUMA node); a fact that could not be read is
named in `unreadable` and has no attribute at all, so a policy that asks for it fails on that device and is reported.
"""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Literal, NamedTuple

import msgspec

from netdra.model import names
from netdra.model.identity import PCI, DeviceIdentity

INVENTORY_VERSION = f"{names.GROUP}/inventory-v1"
DEVICE_FILE = "device-file"
"""The type of what is only a file, and the step that gives it to a pod."""
HARDWARE = frozenset({"nic", "pf", "vf", "representor"})
AttributeValue = bool | int | str | tuple[str, ...]
TYPES = (
    "nic", "pf", "vf", "representor", "loopback", DEVICE_FILE,
    # Kinds of links that the kernel makes (rtnl_link_ops); other drivers have further ones.
    "amt", "bareudp", "batadv", "bond", "bridge", "can", "dsa", "dummy", "erspan", "geneve", "gre", "gretap", "gtp",
    "hsr", "ifb", "ip6erspan", "ip6gre", "ip6gretap", "ip6tnl", "ipip", "ipoib", "ipvlan", "ipvtap", "macsec",
    "macvlan", "macvtap", "netdevsim", "netkit", "nlmon", "openvswitch", "ovpn", "pfcp", "ppp", "rmnet", "sit",
    "team", "tun", "vcan", "veth", "virt_wifi", "vlan", "vrf", "vti", "vti6", "vxcan", "vxlan", "wireguard", "wwan",
    "xfrm",
)  # fmt: skip


class Interface(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, cache_hash=True):
    """One network device of the node, with a netdev just now or without (a VF in a pod or under vfio-pci has none).

    `host_use` is what the host itself uses it for (`bridge-port br0`, `vlan-parent`, `address` ...); where that is
    unreadable, it is what is known of it. `peer_unknown` is true of the end of a veth, netkit or vxcan pair while it is
    not known whether the other end is in a pod, or will be. `representor` is the name of the netdev that stands for a
    VF on its NIC's switch; `port_name` is which port of that switch this one is.
    `uplink_by_rules` is true of hardware through which default routes leave, and none of them without a policy rule.
    `no_carrier` is true of one that is set up and has no carrier: its cable or its lower device is disconnected.
    `registered_by` is the provider that registered it as a device, which the kernel does not know.
    VFs that are offered together are an interface of the type `vf` with the name of their device in `called`.
    A device that is only a character device has the type `device-file`, the path in `device_file`, the name that its
    provider gave it in `called`, no `if_name`, and in `file_problem` why the file is not available to any pod now.
    `bus` and `bus_address` are the place of a device that is not a PCI function ("usb", "vmbus", "auxiliary",
    "virtio").
    A link above hardware (a bond, a VLAN, a macvlan, a bridge with one uplink) has the PCIe root, NUMA node and
    physical network of that hardware, if it is one; of several PCIe roots, `pcie_roots` has all.
    `rdma_mode` is the node's, of devices with RDMA: "shared" if all network namespaces see all RDMA devices,
    "exclusive" if each is in one. A port of `gid_entries` GIDs enters each address for `gid_versions` versions of RoCE.
    Units: `link_speed` in Mbit/s, `mtu` in bytes. `ifindex` is the kernel's handle of the moment and never identity.
    Its hash is kept, because what exposure remembers is keyed by the interface as it was.
    """

    if_name: str = ""
    type: str = "nic"
    mac: str = ""
    permanent_mac: str = ""
    mtu: int = 0
    link_speed: int = 0
    oper_state: str = ""
    pci_address: str = ""
    bus: str = ""
    bus_address: str = ""
    dev_port: int = 0
    numa_node: int = -1
    vendor: str = ""
    product: str = ""
    driver: str = ""
    rdma: bool = False
    rdma_device: str = ""
    rdma_mode: str = ""
    gid_entries: int = 0
    gid_versions: int = 0
    sriov_capable: bool = False
    num_vfs: int = msgspec.field(default=0, name="numVFs")
    total_vfs: int = msgspec.field(default=0, name="totalVFs")
    pf_name: str = ""
    pf_pci_address: str = ""
    vf_index: int = -1
    bridge_name: str = ""
    bridge_type: str = ""
    vlan_filtering: bool = False
    vlan_id: int = 0
    master: str = ""
    master_bridge: str = ""
    lower_devices: tuple[str, ...] = ()
    upper_devices: tuple[str, ...] = ()
    pcie_root: str = ""
    pcie_roots: tuple[str, ...] = ()
    iommu_group: str = ""
    eswitch_mode: str = ""
    port_name: str = ""
    representor: str = ""
    encapsulation: str = ""
    alias: str = ""
    alt_names: tuple[str, ...] = ()
    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    physnet: str = ""
    host_uplink: bool = False
    uplink_by_rules: bool = False
    host_use: tuple[str, ...] = ()
    peer_unknown: bool = False
    no_carrier: bool = False
    registered_by: str = ""
    device_file: str = ""
    called: str = ""
    file_problem: str = ""
    ifindex: int = 0
    unreadable: tuple[str, ...] = ()

    @property
    def device(self) -> DeviceIdentity:
        """The identity of the device: that of a pool of VFs, of a device file and of a virtual device has no key.

        Some NICs have several netdevs on one PCI function: from the second on, the identity has the port's number, and
        that of a representor, which has no function of its own, has its PF's function and the port's name.
        """
        if self.type == "representor" and self.pf_pci_address:
            bus, address, port = PCI, self.pf_pci_address, self.port_name
        elif self.pci_address:
            bus, address, port = PCI, self.pci_address, str(self.dev_port or "")
        else:
            bus, address, port = self.bus, self.bus_address, str(self.dev_port or "")
        # A virtual link may have a permanent MAC, too: an ipvlan has that of the link below it.
        kind = "" if self.type in HARDWARE else self.type
        return DeviceIdentity(bus=bus, address=address, port=port, permanent_mac=self.permanent_mac, kind=kind)

    @property
    def identity(self) -> str:
        """The text that the device is known by: the key of its identity, else its name."""
        return self.device.key or self.if_name or self.device_file or self.called

    @property
    def device_name(self) -> str:
        """The name that the device is published under: `<pf>v<index>` for a VF, independent of its netdev's name."""
        if self.type == "vf" and self.pf_name and self.vf_index >= 0:
            return f"{self.pf_name}v{self.vf_index}"
        return self.if_name or self.called or self.identity

    @property
    def is_pool(self) -> bool:
        """Whether it stands for VFs that are offered together: it has what they share, and no netdev of its own."""
        return self.type == "vf" and bool(self.called)

    @property
    def in_host_use(self) -> bool:
        """Whether the host itself uses the device, as far as is known: also as a part of its uplink."""
        return bool(self.uses or self.host_uplink)

    @property
    def uses(self) -> tuple[str, ...]:
        """The host's uses of the device, as far as known; an older capture has fewer."""
        if self.host_use or not (self.master or self.upper_devices):
            return self.host_use
        ports = (f"port {self.master}",) if self.master else ()
        return (
            *ports,
            *(f"parent {upper_device}" for upper_device in self.upper_devices if upper_device != self.master),
        )

    @property
    def host_use_unknown(self) -> bool:
        """Whether the host may use the device in ways that could not be read."""
        return "host_use" in self.unreadable


Reach = Literal["always", "if-any", "nodes", "policies"]
"""Where an attribute can be read: on every device, on devices where it says something, on the devices of nodes that are
told of it, or by policies alone."""


class Attribute(NamedTuple):
    """One attribute of a device: its name, its field, its type, and the source that can read it.

    A list is shown as a text, its entries joined by commas: the API's list attributes are behind a gate.
    """

    name: str
    field: str
    type: type[bool | int | str]
    reach: Reach
    listed: bool = False


def _attribute(
    name: str, field: str, kind: type[bool | int | str], reach: Reach = "always", *, listed: bool = False
) -> Attribute:
    return Attribute(names.qualified(name), field, kind, reach, listed)


ATTRIBUTES: tuple[Attribute, ...] = (
    _attribute("ifName", "if_name", str),
    _attribute("type", "type", str),
    _attribute("mac", "mac", str),
    _attribute("mtu", "mtu", int),
    _attribute("linkSpeed", "link_speed", int),
    _attribute("operState", "oper_state", str),
    _attribute("pciAddress", "pci_address", str),
    _attribute("numaNode", "numa_node", int),
    _attribute("vendor", "vendor", str),
    _attribute("product", "product", str),
    _attribute("driver", "driver", str),
    _attribute("rdma", "rdma", bool),
    _attribute("sriovCapable", "sriov_capable", bool),
    _attribute("numVFs", "num_vfs", int),
    _attribute("pfName", "pf_name", str),
    _attribute("vfIndex", "vf_index", int),
    _attribute("bridgeName", "bridge_name", str),
    _attribute("bridgeType", "bridge_type", str),
    _attribute("vlanFiltering", "vlan_filtering", bool),
    _attribute("masterBridge", "master_bridge", str),
    _attribute("eswitchMode", "eswitch_mode", str),
    _attribute("representor", "representor", str),
    _attribute("hostUse", "host_use", str, listed=True),
    _attribute(names.SEED_PCIE_ROOT, "pcie_root", str, "if-any"),
    _attribute(names.STANDARD_PCIE_ROOT, "pcie_root", str, "if-any"),
    _attribute(names.STANDARD_PCI_BUS_ID, "pci_address", str),
    _attribute(names.STANDARD_NUMA_NODE, "numa_node", int),
    _attribute("deviceFile", "device_file", str, "if-any"),
    _attribute(names.PHYSNET, "physnet", str, "nodes"),
    _attribute("rdmaDevice", "rdma_device", str, "policies"),
    _attribute(names.RDMA_MODE, "rdma_mode", str, "policies"),
    _attribute("iommuGroup", "iommu_group", str, "policies"),
    _attribute("hostUplink", "host_uplink", bool, "policies"),
    _attribute("encapsulation", "encapsulation", str, "policies"),
    _attribute("ipv4", "ipv4", str, "policies", listed=True),
    _attribute("ipv6", "ipv6", str, "policies", listed=True),
    _attribute("alias", "alias", str, "policies"),
    _attribute("altName", "alt_names", str, "policies", listed=True),
    _attribute("master", "master", str, "policies"),
    _attribute("lowerDevices", "lower_devices", str, "policies", listed=True),
    _attribute("registeredBy", "registered_by", str, "policies"),
)
"""The one table of what is known of an interface under a name (decision D25). Policies select by all of it."""
PUBLISHED_ATTRIBUTES: tuple[str, ...] = tuple(field.name for field in ATTRIBUTES if field.reach in {"always", "if-any"})
"""What devices carry, so that a selector never meets a missing key on one of ours; those in PUBLISHED_IF_ANY may."""
PUBLISHED_IF_ANY = frozenset(field.name for field in ATTRIBUTES if field.reach == "if-any")
"""Left out where they are empty: `matchAttribute` would say of two devices without a PCIe root that they have one. A
device with a file has no PCIe root, so no device has more of them than there are of the other."""
LISTED_ATTRIBUTES = frozenset(field.name for field in ATTRIBUTES if field.listed)
"""Several values joined by commas; one that is too long is cut between two of them."""
PUBLISHED_FIELDS: tuple[tuple[str, str], ...] = tuple(
    (field.name, field.field) for field in ATTRIBUTES if field.reach != "policies" and not field.listed
)
"""Attributes by qualified name with the field that each is of, so far as it can be read back from a device."""
ALWAYS_KNOWN = frozenset(map(names.qualified, ("type", "pfName", "vfIndex")))
"""Attributes that no device lacks, whatever could not be read of it: there is always a type, and what is
no VF, or whose PF is not known, has no PF's name. Generated classes read them without a guard (decision D19)."""
IDENTIFYING = ALWAYS_KNOWN | frozenset(map(names.qualified, ("ifName", "pciAddress", "deviceFile")))
"""Attributes that devices carry whatever a policy says: a node that begins anew knows by them what it has published."""
CHOSEN_ATTRIBUTES: tuple[str, ...] = tuple(
    field.name for field in ATTRIBUTES if field.reach != "policies" and field.name not in IDENTIFYING
)
"""What a policy may choose from: the other attributes that devices carry."""
_NAMES = tuple(field.name for field in ATTRIBUTES)
_VALUES = attrgetter(*(field.field for field in ATTRIBUTES))


def attributes(interface: Interface) -> dict[str, AttributeValue]:
    """An interface's facts as attributes under their qualified names, without those that could not be read."""
    values = dict(zip(_NAMES, _VALUES(interface), strict=True))
    for name in LISTED_ATTRIBUTES:
        values[name] = ",".join(values[name])
    if interface.unreadable:
        for field in ATTRIBUTES:
            if field.field in interface.unreadable and field.name not in ALWAYS_KNOWN:
                del values[field.name]
    return values


class InventoryNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The node that an inventory is of.

    Attributes:
        name: its Kubernetes name.
        physnets: by physical network, the NICs of the node that are wired to it, by name or PCI address.
    """

    name: str
    labels: Mapping[str, str] = {}
    allocatable: Mapping[str, str] = {}
    physnets: Mapping[str, tuple[str, ...]] = {}

    @property
    def wired(self) -> Mapping[str, str]:
        """By NIC, as it is named in `physnets`, the physical network that it is wired to."""
        return {nic: physnet for physnet, nics in self.physnets.items() for nic in nics}


def wired_to(wired: Mapping[str, str], kind: str, *nics: str) -> str:
    """The physical network of an interface: its own, or that of its PF; "" for none.

    Args:
        wired: physical network by NIC (`InventoryNode.wired`).
        kind: the interface's type. A representor of a function on a NIC's switch is wired to nothing.
        nics: the names and PCI addresses of the interface and its PF, the interface's own first.
    """
    if kind == "representor":
        return ""
    return next((wired[nic] for nic in nics if nic in wired), "")


def wire(wired: Mapping[str, str], interface: Interface) -> Interface:
    """An interface with the physical network that it is wired to now: itself if it already has it."""
    nics = (interface.if_name, interface.pci_address, interface.pf_name, interface.pf_pci_address)
    physnet = wired_to(wired, interface.type, *nics)
    return interface if physnet == interface.physnet else msgspec.structs.replace(interface, physnet=physnet)


def wire_all(wired: Mapping[str, str], interfaces: Iterable[Interface]) -> tuple[Interface, ...]:
    """Interfaces with the physical networks that they are wired to now, also those that stand on others.

    Args:
        wired: physical network by NIC (`InventoryNode.wired`).
        interfaces: all of a node: one that stands on NICs of one physical network is of that network.
    """
    first = [wire(wired, interface) for interface in interfaces]
    by_name = {interface.if_name: interface for interface in first if interface.if_name}
    return tuple(_wire_stacked(interface, by_name) for interface in first)


def _wire_stacked(interface: Interface, by_name: Mapping[str, Interface]) -> Interface:
    if interface.physnet or interface.type in HARDWARE or not (interface.pcie_root or interface.pcie_roots):
        return interface
    below: set[str] = set()
    seen, todo = {interface.if_name}, [interface]
    while todo:
        for name in todo.pop().lower_devices:
            lower = by_name.get(name)
            if lower is None or name in seen:
                continue
            seen.add(name)
            if lower.type in HARDWARE:
                below.add(lower.physnet)
            else:
                todo.append(lower)
    return msgspec.structs.replace(interface, physnet=below.pop()) if len(below) == 1 and "" not in below else interface


class Inventory(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All network devices of one node at one moment, sorted by name and PCI address.

    Attributes:
        api_version: the version of this format, for captures that outlive the program that wrote them.
        node: whose devices these are.
        unreadable: how often each kind of fact could not be read ("linkSpeed: EINVAL" -> 3), for the report.
        vanished: interfaces that are named, and of which nothing could be read any more.
    """

    node: InventoryNode
    interfaces: tuple[Interface, ...]
    unreadable: Mapping[str, int] = {}
    vanished: tuple[str, ...] = ()
    api_version: str = INVENTORY_VERSION
