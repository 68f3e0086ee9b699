"""Interfaces that are away while claims hold their devices, and names that must not change under them.

Called by `netdra.node.publishing.offering` with each new inventory. Pure. A PF or a NIC that was moved into a pod is
still there for the node: exposing it as it was keeps its pool, its counters and the names of its VFs as they were, and
costs no write. Only one that went away altogether is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from netdra.model.inventory import Interface
from netdra.node.publishing.facts import Known
from netdra.topology.devices import DeviceKey


class Recalled(msgspec.Struct, frozen=True):
    """The interfaces to expose, and the held devices whose interface is gone."""

    interfaces: tuple[Interface, ...]
    gone: frozenset[DeviceKey]


class PfNames:
    """The names of PFs by their PCI address, for the time when their netdev is elsewhere."""

    def __init__(self, published: Iterable[Known] = ()) -> None:
        """Begin with what was published before this process."""
        self._by_vf = {
            known.interface.pci_address: known.interface.pf_name
            for known in published
            if known.interface.type == "vf" and known.interface.pf_name
        }
        self._by_pf: dict[str, str] = {}

    def complete(self, interfaces: Sequence[Interface], frozen: Mapping[str, str]) -> tuple[Interface, ...]:
        """The interfaces with names of PFs that are known, or that must stay.

        Args:
            interfaces: as the kernel has them.
            frozen: by PCI address, names that devices in use are published under.
        """
        return tuple([self._named(interface, frozen) for interface in interfaces])

    def _named(self, interface: Interface, frozen: Mapping[str, str]) -> Interface:
        if interface.type != "vf":
            name = frozen.get(interface.pci_address) if interface.pci_address and not interface.dev_port else None
            if not name or name == interface.if_name:
                return interface
            return msgspec.structs.replace(interface, if_name=name)
        pf = interface.pf_pci_address
        if interface.pf_name:
            self._by_pf[pf] = interface.pf_name
        name = frozen.get(pf) or interface.pf_name or self._by_pf.get(pf) or self._by_vf.get(interface.pci_address, "")
        return interface if name == interface.pf_name else msgspec.structs.replace(interface, pf_name=name)


def frozen_names(held: Iterable[Known]) -> dict[str, str]:
    """The names of netdevs, by PCI address, that the pools and devices of what is held are called after."""
    names: dict[str, str] = {}
    for known in held:
        interface = known.interface
        if interface.type == "vf":
            names[interface.pf_pci_address] = interface.pf_name
        elif interface.pci_address and not interface.dev_port:
            names[interface.pci_address] = interface.if_name
    return {address: name for address, name in names.items() if address and name}


def recall(
    interfaces: Sequence[Interface],
    held: Mapping[DeviceKey, Known],
    *,
    left: Callable[[Interface], bool],
    on_the_bus: Callable[[str], bool],
) -> Recalled:
    """Put back what is only away.

    Args:
        interfaces: those that are here.
        held: what is known of the devices that claims have.
        left: whether an interface without a PCI device went to another namespace.
        on_the_bus: whether there is a PCI device of that address.
    """
    if not held:
        return Recalled(tuple(interfaces), frozenset())
    names = {interface.if_name for interface in interfaces}
    functions = {(interface.pci_address, interface.dev_port) for interface in interfaces}
    away: dict[str, Interface] = {}
    gone: set[DeviceKey] = set()
    for key, known in held.items():
        last = known.interface
        if (last.pci_address, last.dev_port) in functions if last.pci_address else last.if_name in names:
            continue
        if on_the_bus(last.pci_address) if last.pci_address else left(last):
            away[last.identity] = last
        else:
            gone.add(key)
    back = [interface for interface in away.values() if interface.type != "vf"]
    return Recalled((*interfaces, *back), frozenset(gone))
