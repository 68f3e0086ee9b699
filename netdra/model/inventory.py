"""What a node's network interfaces are: one `Interface` a device, with every fact that the kernel gives about it.

Made by `netdra.discovery` (from the kernel, a recorded sysfs tree or a capture), read by `netdra.exposure`. A fact that
does not apply has its neutral value ("" , 0, False, -1 for an index or a NUMA node); a fact that could not be read is
named in `unreadable` and has no attribute at all, so a policy that asks for it fails on that device and is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter

import msgspec

from netdra.model import names
from netdra.model.errors import InvalidInputError

STATED = "stated"
"""The host use of an interface of which somebody says that there is one."""
INVENTORY_VERSION = f"{names.GROUP}/inventory-v1"
AttributeValue = bool | int | str | tuple[str, ...]


class Interface(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, cache_hash=True):
    """One network device of the node, with a netdev just now or without (a VF in a pod or under vfio-pci has none).

    `host_use` is what the host itself uses it for (`bridge-port br0`, `vlan-parent`, `address` ...); where that is
    unreadable, it is what is known of it. `representor` is the name of the netdev that stands for a VF on its NIC's
    switch; `port_name` is which port of that switch this one is.
    `no_carrier` is true of one that is set up and has no carrier: its cable or what it stands on is away.
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
    dev_port: int = 0
    numa_node: int = -1
    vendor: str = ""
    product: str = ""
    driver: str = ""
    rdma: bool = False
    rdma_device: str = ""
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
    iommu_group: str = ""
    eswitch_mode: str = ""
    port_name: str = ""
    representor: str = ""
    encapsulation: str = ""
    alias: str = ""
    alt_names: tuple[str, ...] = ()
    ipv4: tuple[str, ...] = ()
    ipv6: tuple[str, ...] = ()
    host_uplink: bool = False
    host_use: tuple[str, ...] = ()
    no_carrier: bool = False
    ifindex: int = 0
    unreadable: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """What the device is known by for good: its PCI address, else its permanent MAC, else its name.

        Some NICs have several netdevs on one PCI function: from the second on, the port's number follows the address,
        and of a representor, which has no function of its own, the port's name follows its PF's.
        """
        if self.type == "representor" and self.pf_pci_address:
            return f"{self.pf_pci_address}/{self.port_name}"
        if self.pci_address and self.dev_port:
            return f"{self.pci_address}/{self.dev_port}"
        return self.pci_address or self.permanent_mac or self.if_name

    @property
    def device_name(self) -> str:
        """The name that the device is published under: `<pf>v<index>` for a VF, whatever its netdev is called."""
        if self.type == "vf" and self.pf_name and self.vf_index >= 0:
            return f"{self.pf_name}v{self.vf_index}"
        return self.if_name or self.identity

    @property
    def in_host_use(self) -> bool:
        """Whether the host itself uses the device, as far as is known: also as a part of its uplink."""
        return bool(self.uses or self.host_uplink)

    @property
    def uses(self) -> tuple[str, ...]:
        """What the host uses the device for, as far as is known; an older capture tells less of it."""
        if self.host_use or not (self.master or self.upper_devices):
            return self.host_use
        ports = (f"port {self.master}",) if self.master else ()
        return (*ports, *(f"parent {each}" for each in self.upper_devices if each != self.master))

    @property
    def host_use_unknown(self) -> bool:
        """Whether the host may use the device in ways that could not be read."""
        return "host_use" in self.unreadable


_PLAIN_ATTRIBUTES: tuple[tuple[str, str], ...] = (
    ("ifName", "if_name"),
    ("type", "type"),
    ("mac", "mac"),
    ("mtu", "mtu"),
    ("linkSpeed", "link_speed"),
    ("operState", "oper_state"),
    ("pciAddress", "pci_address"),
    ("numaNode", "numa_node"),
    ("vendor", "vendor"),
    ("product", "product"),
    ("driver", "driver"),
    ("rdma", "rdma"),
    ("sriovCapable", "sriov_capable"),
    ("numVFs", "num_vfs"),
    ("pfName", "pf_name"),
    ("vfIndex", "vf_index"),
    ("bridgeName", "bridge_name"),
    ("bridgeType", "bridge_type"),
    ("vlanFiltering", "vlan_filtering"),
    ("masterBridge", "master_bridge"),
)
_STANDARD_ATTRIBUTES: tuple[tuple[str, str], ...] = (
    (names.SEED_PCIE_ROOT, "pcie_root"),
    (names.STANDARD_PCIE_ROOT, "pcie_root"),
    (names.STANDARD_PCI_BUS_ID, "pci_address"),
    (names.STANDARD_NUMA_NODE, "numa_node"),
)
_FURTHER_ATTRIBUTES: tuple[tuple[str, str], ...] = (
    ("rdmaDevice", "rdma_device"),
    ("iommuGroup", "iommu_group"),
    ("hostUplink", "host_uplink"),
    ("encapsulation", "encapsulation"),
    ("eswitchMode", "eswitch_mode"),
    ("ipv4", "ipv4"),
    ("ipv6", "ipv6"),
    ("alias", "alias"),
    ("altName", "alt_names"),
    ("master", "master"),
    ("hostUse", "host_use"),
    ("representor", "representor"),
)
BASE_ATTRIBUTES: tuple[str, ...] = tuple(
    names.qualified(name) for name, _ in (*_PLAIN_ATTRIBUTES, *_STANDARD_ATTRIBUTES)
)
"""Published on every device, so that a selector never meets a missing key on one of ours (decision D6)."""
FURTHER_ATTRIBUTES: tuple[str, ...] = tuple(names.qualified(name) for name, _ in _FURTHER_ATTRIBUTES)
"""Published in this order as far as the API's limit of 32 attributes and capacities leaves room."""
LISTED_ATTRIBUTES = frozenset(names.qualified(name) for name in ("ipv4", "ipv6", "altName", "hostUse"))
"""Several values joined by commas; one that is too long is cut between two of them."""
_ALL_ATTRIBUTES = tuple(
    (names.qualified(name), field) for name, field in (*_PLAIN_ATTRIBUTES, *_STANDARD_ATTRIBUTES, *_FURTHER_ATTRIBUTES)
)
PUBLISHED_FIELDS: tuple[tuple[str, str], ...] = tuple(
    (name, field) for name, field in _ALL_ATTRIBUTES if field not in {"ipv4", "ipv6", "alt_names", "host_use"}
)
"""Attributes by qualified name with the field that each is of, so far as it can be read back from one."""
_NAMES = tuple(name for name, _ in _ALL_ATTRIBUTES)
_VALUES = attrgetter(*(field for _, field in _ALL_ATTRIBUTES))


def attributes(interface: Interface) -> dict[str, AttributeValue]:
    """An interface's facts as attributes under their qualified names, without those that could not be read.

    Lists are joined by commas: the API's list attributes are behind a gate, and these are for reading, not for sets.
    """
    found = dict(zip(_NAMES, _VALUES(interface), strict=True))
    for name in LISTED_ATTRIBUTES:
        found[name] = ",".join(found[name])
    if interface.unreadable:
        for name, field in _ALL_ATTRIBUTES:
            if field in interface.unreadable:
                del found[name]
    return found


def with_host_use(inventory: Inventory, used: Iterable[str]) -> Inventory:
    """An inventory of which somebody says what could not be read: which interfaces the host uses, and no others.

    For recorded trees, where files tell neither addresses nor routes. What is known stays: a port of a bridge is one.

    Args:
        inventory: as it was read.
        used: the names of interfaces that the host uses, as its uplink or otherwise; none of them that is there needs
            to be named for what the tree itself tells.

    Raises:
        InvalidInputError: there is no interface of that name.
    """
    named = frozenset(used)
    unknown = sorted(named - {interface.if_name for interface in inventory.interfaces})
    if unknown:
        raise InvalidInputError(
            f'node "{inventory.node.name}" has no interface "{unknown[0]}"',
            hint="name interfaces as `netdra discover` lists them",
        )
    settled = ("host_uplink", "host_use")
    interfaces = tuple(
        msgspec.structs.replace(
            each,
            host_uplink=each.host_uplink or each.if_name in named,
            host_use=(*each.host_use, STATED) if each.if_name in named else each.host_use,
            unreadable=tuple(field for field in each.unreadable if field not in settled),
        )
        for each in inventory.interfaces
    )
    counted = {
        what: count
        for what, count in inventory.unreadable.items()
        if what.partition(":")[0] not in {"hostUplink", "hostUse"}
    }
    return msgspec.structs.replace(inventory, interfaces=interfaces, unreadable=counted)


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """The node that an inventory is of: its Kubernetes name and labels."""

    name: str
    labels: Mapping[str, str] = {}


class Inventory(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All network devices of one node at one moment, sorted by name and PCI address.

    Attributes:
        api_version: the version of this format, for captures that outlive the program that wrote them.
        node: whose devices these are.
        interfaces: the devices.
        unreadable: how often each kind of fact could not be read ("linkSpeed: EINVAL" -> 3), for the report.
    """

    node: Node
    interfaces: tuple[Interface, ...]
    unreadable: Mapping[str, int] = {}
    api_version: str = INVENTORY_VERSION
