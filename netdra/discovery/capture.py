"""An inventory as one JSON text that can be kept, sent with a bug report and read again, anonymous if that is wanted.

Called by `netdra capture`; `netdra.model.documents.inventory` reads the text.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

import msgspec

from netdra.model.inventory import Interface, Inventory, InventoryNode

_HEXADECIMAL_MAC = re.compile(r"[0-9a-f]{12,40}")
_ANONYMOUS_NODE = "node"


def to_text(inventory: Inventory) -> str:
    """The inventory as indented JSON that ends with a line break."""
    return msgspec.json.format(msgspec.json.encode(inventory), indent=2).decode() + "\n"


def anonymize(inventory: Inventory) -> Inventory:
    """The same inventory with made-up MAC and IP addresses, aliases and node name.

    One value becomes one pseudonym everywhere, so equal values stay equal. Names of interfaces and PCI addresses
    stay, but a MAC address in a name (`enx0242ac110002`) is replaced like the address itself.
    """
    names = _Pseudonyms(inventory)
    interfaces = tuple(names.interface(interface) for interface in inventory.interfaces)
    labels = {key: value.replace(inventory.node.name, _ANONYMOUS_NODE) for key, value in inventory.node.labels.items()}
    vanished = tuple(map(names.name, inventory.vanished))
    node = InventoryNode(name=_ANONYMOUS_NODE, labels=labels)
    return msgspec.structs.replace(inventory, node=node, interfaces=interfaces, vanished=vanished)


class _Pseudonyms:
    """The pseudonyms of one inventory, numbered in the order in which the values first appear."""

    def __init__(self, inventory: Inventory) -> None:
        self._pseudonyms: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._macs: dict[str, str] = {}
        for interface in inventory.interfaces:
            for mac in (interface.mac, interface.permanent_mac):
                self._macs[mac.replace(":", "")] = self.mac(mac).replace(":", "")

    def interface(self, interface: Interface) -> Interface:
        return msgspec.structs.replace(
            interface,
            if_name=self.name(interface.if_name),
            mac=self.mac(interface.mac),
            permanent_mac=self.mac(interface.permanent_mac),
            pf_name=self.name(interface.pf_name),
            bridge_name=self.name(interface.bridge_name),
            master=self.name(interface.master),
            master_bridge=self.name(interface.master_bridge),
            lower_devices=tuple(map(self.name, interface.lower_devices)),
            upper_devices=tuple(map(self.name, interface.upper_devices)),
            alias=self._pseudonym("alias", interface.alias, lambda number: f"alias-{number}"),
            alt_names=tuple(map(self.name, interface.alt_names)),
            ipv4=tuple(map(self.address, interface.ipv4)),
            ipv6=tuple(map(self.address, interface.ipv6)),
        )

    def mac(self, mac: str) -> str:
        """A locally administered address of the same length; all zeros mean none and stay."""
        if not mac.strip("0:"):
            return mac
        size = mac.count(":") + 1
        return self._pseudonym("mac", mac, lambda number: (b"\x02" + number.to_bytes(size - 1, "big")).hex(":"))

    def name(self, name: str) -> str:
        """A name in which only MAC addresses of this inventory are replaced."""
        return _HEXADECIMAL_MAC.sub(lambda match: self._macs.get(match.group(), match.group()), name)

    def address(self, text: str) -> str:
        """An address of the ranges for tests and documentation, with the same prefix length; loopback stays."""
        interface = ipaddress.ip_interface(text)
        if interface.is_loopback:
            return text
        start = "198.18.0.0" if interface.version == 4 else "2001:db8::"
        host = self._pseudonym(start, str(interface.ip), lambda number: str(ipaddress.ip_address(start) + number))
        return f"{host}/{interface.network.prefixlen}"

    def _pseudonym(self, kind: str, value: str, make: Callable[[int], str]) -> str:
        if not value:
            return value
        key = f"{kind} {value}"
        if key not in self._pseudonyms:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._pseudonyms[key] = make(self._counts[kind])
        return self._pseudonyms[key]
