"""An inventory as one JSON text that can be kept, sent with a bug report and read again, anonymous if that is wanted.

Called by `netdra capture`; `netdra.model.documents.inventory_of` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from netdra.discovery.assemble import ENCAPSULATIONS
from netdra.discovery.pseudonyms import NODE, Pseudonyms
from netdra.discovery.recorded import NOT_RECORDED
from netdra.discovery.scan import VANISHED
from netdra.kernel.devlink import ESWITCH_MODES
from netdra.kernel.link import OPER_STATES
from netdra.kernel.rdma import NETNS_MODES
from netdra.model.inventory import Interface, Inventory, InventoryNode

_TextOf = Callable[[Pseudonyms, str], str]


def to_text(inventory: Inventory) -> str:
    """The inventory as indented JSON that ends with a line break."""
    return msgspec.json.format(msgspec.json.encode(inventory), indent=2).decode() + "\n"


def anonymize(inventory: Inventory) -> Inventory:
    """The same inventory without texts that identify its owner or its hardware.

    One value becomes one pseudonym everywhere: equal values stay equal, others stay different, and relations by name
    stay. Numbers stay. A text stays if the kernel, a driver or systemd makes it on every machine (docs/discovery.md).
    """
    pseudonyms = Pseudonyms(inventory)
    interfaces = tuple(_interface(pseudonyms, interface) for interface in inventory.interfaces)
    counted: dict[str, int] = {}
    for what, count in inventory.unreadable.items():
        said = pseudonyms.other("fact", what, _FACT)
        counted[said] = counted.get(said, 0) + count
    return Inventory(
        node=_node(pseudonyms, inventory.node),
        interfaces=interfaces,
        unreadable=counted,
        vanished=tuple(map(pseudonyms.name, inventory.vanished)),
    )


def _node(pseudonyms: Pseudonyms, node: InventoryNode) -> InventoryNode:
    physnets = {
        pseudonyms.other("physnet", physnet): tuple(map(pseudonyms.wired, nics))
        for physnet, nics in node.physnets.items()
    }
    return InventoryNode(
        name=NODE,
        labels=pseudonyms.labels(node.labels),
        allocatable=pseudonyms.resources(node.allocatable),
        physnets=physnets,
    )


def _interface(pseudonyms: Pseudonyms, interface: Interface) -> Interface:
    changes: dict[str, Any] = {}
    for field in Interface.__struct_fields__:
        value = getattr(interface, field)
        text_of = _TEXTS.get(field, _unknown(field))
        if isinstance(value, str):
            changes[field] = text_of(pseudonyms, value)
        elif isinstance(value, tuple):
            changes[field] = tuple(text_of(pseudonyms, entry) for entry in value)
    return msgspec.structs.replace(interface, **changes)


def _unknown(field: str) -> _TextOf:
    """The replacement of a field that the table below lacks."""
    return lambda pseudonyms, text: pseudonyms.other(field, text)


def _made_up(kind: str) -> _TextOf:
    return lambda pseudonyms, text: pseudonyms.other(kind, text)


def _kept(field: str, pattern: str) -> _TextOf:
    compiled = re.compile(pattern)
    return lambda pseudonyms, text: pseudonyms.other(field, text, compiled)


def _one_of(field: str, *words: str) -> _TextOf:
    return _kept(field, "|".join(map(re.escape, words)))


_FIELDS = "|".join(map(re.escape, (*Interface.__struct_encode_fields__, *Interface.__struct_fields__)))
_FACT = re.compile(rf"{re.escape(VANISHED)}|(?:{_FIELDS}): (?:E[A-Z0-9]{{1,15}}|{re.escape(NOT_RECORDED)})")
_IDENTIFIER = "[0-9a-f]{4}"

_TEXTS: Mapping[str, _TextOf] = {
    "if_name": Pseudonyms.name,
    "type": Pseudonyms.type,
    "mac": Pseudonyms.mac,
    "permanent_mac": Pseudonyms.mac,
    "oper_state": _one_of("state", *OPER_STATES),
    "pci_address": Pseudonyms.place,
    "bus": _one_of(
        "bus", "auxiliary", "mdio_bus", "of_platform", "pci", "platform", "sdio", "usb", "virtio", "vmbus", "xen"
    ),
    "bus_address": Pseudonyms.bus_address,
    "vendor": _kept("vendor", _IDENTIFIER),
    "product": _kept("product", _IDENTIFIER),
    # Each kernel module names its driver, so a list is not possible. MAC addresses and hosts' names do not match the
    # pattern.
    "driver": _kept("driver", "[A-Za-z][A-Za-z0-9_]*|(?:pci|uio|vfio|virtio)-(?:net|pci|stub)"),
    "rdma_device": Pseudonyms.rdma_device,
    "rdma_mode": _one_of("rdma-mode", *NETNS_MODES),
    "pf_name": Pseudonyms.name,
    "pf_pci_address": Pseudonyms.place,
    "bridge_name": Pseudonyms.name,
    "bridge_type": _one_of("bridge-type", "linux", "ovs"),
    "master": Pseudonyms.name,
    "master_bridge": Pseudonyms.name,
    "lower_devices": Pseudonyms.name,
    "upper_devices": Pseudonyms.name,
    "pcie_root": _kept("root", "pci[0-9a-f]{4,5}:[0-9a-f]{2}"),
    "pcie_roots": _kept("root", "pci[0-9a-f]{4,5}:[0-9a-f]{2}"),
    "iommu_group": _kept("group", r"\d{1,6}"),
    "eswitch_mode": _one_of("mode", *ESWITCH_MODES),
    "port_name": _kept("port", r"p?\d{1,3}|(?:c\d{1,3})?pf\d{1,3}(?:[vs]f\d{1,4})?"),
    "representor": Pseudonyms.name,
    "encapsulation": _kept("encapsulation", "|".join((*map(re.escape, ENCAPSULATIONS.values()), r"\[\d{1,5}\]"))),
    "alias": _made_up("alias"),
    "alt_names": Pseudonyms.name,
    "ipv4": Pseudonyms.address,
    "ipv6": Pseudonyms.address,
    "physnet": _made_up("physnet"),
    "host_use": Pseudonyms.use,
    "registered_by": _made_up("provider"),
    "device_file": Pseudonyms.device_file,
    "called": _made_up("device"),
    "file_problem": _made_up("problem"),
    "unreadable": _one_of("field", *Interface.__struct_fields__),
}
"""By field of an interface, what becomes of its text; every field that holds text is here."""
