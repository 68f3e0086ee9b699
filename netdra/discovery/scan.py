"""An inventory of all network interfaces, once: of the running kernel, or of a recorded sysfs tree.

Called by the command line, the lab and the daemon's first look; `watch` keeps one current.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Mapping
from operator import attrgetter

import msgspec

from netdra.discovery import assemble, live, recorded
from netdra.discovery.facts import Key, MachineFacts
from netdra.discovery.pairs import SETTLE_SECONDS, Pairs
from netdra.kernel.sysfs import Sysfs
from netdra.model.errors import InvalidInputError
from netdra.model.inventory import Interface, Inventory, InventoryNode

RECORDED = "recorded"
"""The name of a recorded tree's node, unless it is given."""
VANISHED = "interface: vanished"
_NAMES = {field.name: field.encode_name for field in msgspec.structs.fields(Interface)}


def scan(
    node: InventoryNode | None = None, kernel: live.Kernel | None = None, settle: float = SETTLE_SECONDS
) -> Inventory:
    """The interfaces of the network namespace of the calling thread (or of `kernel`), with all facts of the kernel.

    Args:
        node: their node; this machine by its host name if it is not given.
        kernel: sockets to read through; opened and closed here if they are not given.
        settle: for how many seconds the other ends of pairs must stay where they are (`netdra.discovery.pairs`). If the
            node has pairs of which it is not clear at once whose they are, the scan takes so long.

    Raises:
        KernelError: the links cannot be listed at all. A fact that cannot be read is named in its interface and
            counted in the inventory instead.
    """
    if kernel is not None:
        return inventory(node or this_node(), _settled(kernel, settle))
    with live.Kernel() as opened:
        return inventory(node or this_node(), _settled(opened, settle))


def _settled(kernel: live.Kernel, settle: float) -> MachineFacts:
    """The facts, read a second time where the other ends of pairs have to stay where they are for some time."""
    facts = live.read(kernel, pairs=Pairs(settle))
    if facts.pairs.arriving:
        time.sleep(settle)
        facts = live.read(kernel, pairs=facts.pairs)
    return facts


def scan_recorded(root: str, node: InventoryNode | None = None) -> Inventory:
    """The interfaces in a recorded sysfs tree.

    Args:
        root: the folder that stands for /sys.
        node: their node; a tree does not have its server's name.

    Raises:
        InvalidInputError: the folder is not a sysfs tree. Damage in the tree is counted in the inventory.
    """
    sysfs = Sysfs(root)
    if not sysfs.is_folder("class") and not sysfs.is_folder("bus/pci/devices"):
        raise InvalidInputError(
            f'"{root}" is not a sysfs tree: the directories "class" and "bus/pci/devices" do not exist',
            hint="use the directory that replaces /sys",
            code="ND2286",
        )
    return inventory(node or InventoryNode(name=RECORDED), recorded.read(sysfs))


def this_node() -> InventoryNode:
    """This machine, under its host name."""
    return InventoryNode(name=platform.node().lower() or "localhost")


def inventory(node: InventoryNode, facts: MachineFacts) -> Inventory:
    """The facts as an inventory, with the physical networks that the node's NICs are wired to."""
    facts.wired = node.wired
    return collect(node, interfaces(facts), facts)


def interfaces(facts: MachineFacts) -> dict[Key, Interface]:
    """Link index -> interface, and PCI address -> interface of a function without a netdev."""
    uplinks = assemble.host_uplinks(facts)
    assembled: dict[Key, Interface] = {index: assemble.interface(facts, index, uplinks) for index in facts.links}
    assembled.update((address, assemble.function(facts, address)) for address in facts.functions)
    return assembled


def collect(node: InventoryNode, assembled: Mapping[Key, Interface], facts: MachineFacts) -> Inventory:
    """Interfaces as an inventory: sorted by name and PCI address, with the count of facts that could not be read."""
    by_name = attrgetter("if_name", "pci_address", "ifindex")
    ordered = tuple(sorted(assembled.values(), key=by_name))
    return Inventory(
        node=node, interfaces=ordered, unreadable=_unreadable(assembled, facts), vanished=tuple(sorted(facts.gone))
    )


def _unreadable(assembled: Mapping[Key, Interface], facts: MachineFacts) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for key, interface in assembled.items():
        if interface.unreadable:
            counted.update(f"{_NAMES[field]}: {why}" for field, why in assemble.reasons(facts, key).items())
    if facts.gone:
        counted[VANISHED] = len(facts.gone)
    return dict(sorted(counted.items()))
