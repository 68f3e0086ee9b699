"""Pseudonyms for the texts of one inventory, one method for each kind of text. Called by `netdra.discovery.capture`.

A text stays only if the kernel, a driver or systemd makes it on every machine. All others are replaced, also
those that no rule here foresees: an unknown text could identify its owner.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping

from netdra.model.inventory import TYPES, Interface, Inventory

NODE = "node"
_MAX_NAME = 15
"""Characters of an interface's name (IFNAMSIZ without the last byte)."""
_MAC_SIZE = 6
_HEXADECIMAL = re.compile(r"[0-9A-Fa-f]{12,40}")
_PORT = r"(?:n(?:p\d{1,3}(?:s\d{1,3})?|\d{1,3}|pf\d{1,3}(?:[vs]f\d{1,4})?))?(?:d\d{1,3})?(?:_\d{1,4})?"
_PLACE = (
    rf"(?:[ob]\d{{1,5}}|(?:P\d{{1,5}})?(?:p\d{{1,3}})?s\d{{1,4}}(?:f\d{{1,3}})?(?:s\d{{1,4}})?{_PORT})(?:v\d{{1,4}})?"
)
_KERNEL_NAMES = (
    "bareudp|bond|br|can|cni|docker|dummy|enc|erspan|eth|geneve|gre|gretap|gtp|hsr|ib|ifb|ip6_vti|ip6gre|ip6gretap|ip6tnl|ip_vti|"
    "ipvlan|ipvtap|macsec|macvlan|macvtap|mic|netkit|nlmon|ppp|sit|tap|team|tun|tunl|usb|vcan|veth|virbr|vlan|vnet|"
    "vrf|vti|vxcan|vxlan|wg|wlan|wwan|xfrm"
)
_COMMON_NAMES = (
    "br-ex|br-int|br-tun|br-local|cilium_host|cilium_net|cilium_vxlan|genev_sys_6081|kube-bridge|kube-ipvs0|"
    "nodelocaldns|ovn-k8s-mp0|ovs-netdev|ovs-system|tailscale0|virbr0-nic|vxlan.calico|vxlan_sys_4789|flannel.1"
)
_KEPT_NAME = re.compile(
    rf"lo|{_COMMON_NAMES}|(?:{_KERNEL_NAMES})\d{{1,4}}|eth\d{{1,3}}_\d{{1,4}}|(?:en|ib|sl|wl|ww){_PLACE}"
)
_VLAN = re.compile(r"(.+)\.([1-9]\d{0,3})")
_CLASSES = re.compile(
    r"(cali|lxc|tailscale|tap|veth|virbr|vnet|vxlan)|(bond|br|dummy|eth|ib|qbr|qvb|qvo|team|vlan)[-_.\d]"
)
_OF_TYPE = {"bridge": "br", "representor": "port", "loopback": "lo", "openvswitch": "ovs", "": "link"}
_MAX_CLASS = 8
_RDMA_DEVICE = re.compile(
    r"(?:bnxt_re|cxgb4_|efa_|erdma_|hfi1_|hns_|i40iw|ionic_|irdma|mana_|mlx4_|mlx5_|mthca|ocrdma|qedr|qib|rxe|siw|"
    rf"usnic_|vmw_pvrdma)\d{{1,4}}|(?:ib|iw|opa|roce|usnic){_PLACE}"
)
_DEVICE_FILE = re.compile(
    r"/dev/(?:net/tun|vfio/vfio|vfio/\d{1,5}|vhost-net|vhost-vsock|infiniband/(?:issm|rdma_cm|ucm|umad|uverbs)\d{0,4})"
)
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,5}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_USB_PORT = r"(?:[12]?\d|3[01])"
_AUXILIARY = "bnxt_en|ena|gve|hns3|i40e|ice|idpf|ionic|ixgbe|mana|mlx5_core|netdevsim|pds_core|sfc"
_BUS_ADDRESS = re.compile(
    rf"\d{{1,3}}-{_USB_PORT}(?:\.{_USB_PORT}){{0,5}}:\d{{1,2}}\.\d{{1,2}}|virtio\d{{1,4}}|(?:{_AUXILIARY})\.[a-z]{{1,8}}\.\d{{1,5}}"
)
_PORT_USE = re.compile(r"([a-z0-9_]+)-(?:port|slave) (\S+)")
_PARENT_USE = re.compile(r"([a-z0-9_]+)-parent")
_USES = frozenset({"address", "route", "xdp", "tcx", "netkit", "stated"})
_MASTERS = frozenset({*TYPES, "bond", "ovs", "other"})
_QUANTITY = re.compile(r"(\d{1,3})(\d{0,12})(m|[kMGTPE]|[KMGTPE]i)?")
_RESOURCE = re.compile(r"cpu|memory|pods|ephemeral-storage|hugepages-\d{1,4}[KMG]i")
_LABEL = re.compile(
    r"(?:beta\.)?kubernetes\.io/(?:arch|os|hostname|instance-type)|topology\.kubernetes\.io/(?:region|zone)|"
    r"node\.kubernetes\.io/instance-type|node-role\.kubernetes\.io/(?:control-plane|infra|master|worker)"
)
_LABEL_VALUE = re.compile(r"true|false|linux|windows|386|amd64|arm|arm64|loong64|ppc64le|riscv64|s390x")
_LOOPBACK = frozenset({"127.0.0.1", "::1"})
_RANGES = {
    # Those for tests and documentation; what the host alone uses stays such an address.
    ("loopback", 4): "127.0.1.0", ("link-local", 4): "169.254.1.0", ("", 4): "198.18.0.0",
    ("loopback", 6): "2001:db8:1::", ("link-local", 6): "fe80::", ("", 6): "2001:db8::",
}  # fmt: skip


def is_usual_name(name: str) -> bool:
    """Whether an interface has the name on every machine: the kernel, systemd or usual software makes it."""
    return _KEPT_NAME.fullmatch(name) is not None


class Pseudonyms:
    """The pseudonyms of one inventory, numbered in the order in which the values first appear."""

    def __init__(self, inventory: Inventory) -> None:
        self._node = inventory.node.name
        self._pseudonyms: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._types: dict[str, str] = {}
        self._originals = frozenset(value for each in inventory.interfaces for value in _addresses(each))
        for interface in inventory.interfaces:
            self._types.setdefault(interface.if_name, interface.type)
            for mac in (interface.mac, interface.permanent_mac):
                self.mac(mac)

    def mac(self, mac: str) -> str:
        """A locally administered address of the same length; all zeros mean none and stay."""
        if not mac.strip("0:"):
            return mac
        digits = _digits(mac)
        is_mac = _HEXADECIMAL.fullmatch(digits) is not None and len(digits) % 2 == 0
        size = len(digits) // 2 if is_mac else _MAC_SIZE
        return self._pseudonym("mac", digits if is_mac else mac, lambda number: _mac(number, size))

    def name(self, name: str) -> str:
        """The name of an interface: those that the kernel and systemd make stay, with a made-up MAC address in them.

        All others become their class and a number: what they begin with if that is a usual word, else the type.
        """
        if not name or _KEPT_NAME.fullmatch(name):
            return name
        vlan = _VLAN.fullmatch(name)
        if vlan is not None and (vlan[1] in self._types or _KEPT_NAME.fullmatch(vlan[1])):
            on_top = f"{self.name(vlan[1])}.{vlan[2]}"
            return on_top if len(on_top) <= _MAX_NAME else self._numbered("vlan", name)
        if _HEXADECIMAL.fullmatch(name[3:]) and name[:3] in {"enx", "ibx", "slx", "wlx", "wwx"}:
            return name[:3] + self.mac(name[3:]).replace(":", "")
        usual = _CLASSES.match(name)
        if usual is not None:
            return self._numbered(usual[1] or usual[2], name)
        kind = self.type(self._types.get(name, ""))
        return self._numbered(_OF_TYPE.get(kind, kind)[:_MAX_CLASS].rstrip("-"), name)

    def rdma_device(self, name: str) -> str:
        """The name of an RDMA device: of its driver or its place, or made up."""
        if _RDMA_DEVICE.fullmatch(name):
            return name
        return self._numbered("rdma", name)

    def address(self, text: str) -> str:
        """An address of the ranges for tests and documentation, with the same prefix length and scope."""
        try:
            interface = ipaddress.ip_interface(text)
        except ValueError:
            return self._numbered("address", text)
        host = interface.ip
        length = interface.network.prefixlen
        if str(host) in _LOOPBACK:
            return f"{host}/{length}"
        scope = "loopback" if host.is_loopback else "link-local" if host.is_link_local else ""
        start = ipaddress.ip_address(_RANGES[scope, host.version])
        return f"{self._pseudonym(str(start), str(host), lambda number: str(start + number))}/{length}"

    def type(self, text: str) -> str:
        """A type of interface that netdra knows, or made up."""
        return text if text in TYPES or text == "virtual" else self._numbered("type", text)

    def use(self, text: str) -> str:
        """A use by the host, with the name in it as `name` has it."""
        port, parent = _PORT_USE.fullmatch(text), _PARENT_USE.fullmatch(text)
        if port is not None and port[1] in _MASTERS:
            return text[: port.start(2)] + self.name(port[2])
        known = text in _USES or (parent is not None and parent[1] in _MASTERS)
        return text if known else self._numbered("use", text)

    def place(self, text: str) -> str:
        """A PCI address as it is; any other text made up."""
        return text if _PCI_ADDRESS.fullmatch(text) else self._numbered("pci", text)

    def bus_address(self, text: str) -> str:
        """A place on another bus, as it is if it is counted (USB, virtio, auxiliary); a GUID is made up."""
        return text if _BUS_ADDRESS.fullmatch(text) and not _has_mac(text) else self._numbered("place", text)

    def wired(self, text: str) -> str:
        """A NIC by its name or its PCI address."""
        return text if _PCI_ADDRESS.fullmatch(text) else self.name(text)

    def device_file(self, path: str) -> str:
        """A device file that the kernel's own drivers make, or made up."""
        return path if not path or _DEVICE_FILE.fullmatch(path) else f"/dev/{self._numbered('file', path)}"

    def labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Labels of a node: Kubernetes' own keys stay, and so do values that are Kubernetes' own."""
        return {
            key if _LABEL.fullmatch(key) else self._numbered("label", key): self._label_value(value)
            for key, value in labels.items()
        }

    def resources(self, resources: Mapping[str, str]) -> dict[str, str]:
        """The allocatable resources of a node: Kubernetes' own resources stay, and so do three digits of amounts."""
        return {
            key if _RESOURCE.fullmatch(key) else f"example.com/{self._numbered('resource', key)}": _rounded(value)
            for key, value in resources.items()
        }

    def other(self, kind: str, text: str, kept: re.Pattern[str] | None = None) -> str:
        """A text of a kind, as it is if all of it is of the pattern, and else made up."""
        return text if kept is not None and kept.fullmatch(text) and not _has_mac(text) else self._numbered(kind, text)

    def _label_value(self, value: str) -> str:
        if value == self._node:
            return NODE
        return value if _LABEL_VALUE.fullmatch(value) else self._numbered("value", value)

    def _numbered(self, kind: str, text: str) -> str:
        return self._pseudonym(kind, text, lambda number: f"{kind}-{number}")

    def _pseudonym(self, kind: str, value: str, make: Callable[[int], str]) -> str:
        if not value:
            return value
        key = (kind, value)
        if key not in self._pseudonyms:
            made = ""
            while not made or made in self._originals:
                self._counts[kind] = self._counts.get(kind, 0) + 1
                made = make(self._counts[kind])
            self._pseudonyms[key] = made
        return self._pseudonyms[key]


def _addresses(interface: Interface) -> tuple[str, ...]:
    """The addresses of an interface, none of which is a pseudonym of another one."""
    hosts = (text.partition("/")[0] for text in (*interface.ipv4, *interface.ipv6))
    return (interface.mac, interface.permanent_mac, *hosts)


def _rounded(quantity: str) -> str:
    parts = _QUANTITY.fullmatch(quantity)
    return "0" if parts is None else f"{parts[1]}{'0' * len(parts[2])}{parts[3] or ''}"


def _digits(mac: str) -> str:
    return re.sub(r"[:.\-]", "", mac).lower()


def _has_mac(text: str) -> bool:
    return _HEXADECIMAL.search(_digits(text)) is not None


def _mac(number: int, size: int) -> str:
    return (b"\x02" + number.to_bytes(size - 1, "big")).hex(":")
