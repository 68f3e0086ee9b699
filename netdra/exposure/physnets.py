"""The physical networks that a node's NICs are wired to: their syntax, and their errors on a node.

Read by the command line (`--physnet physnet2=enp1s0f0,enp1s0f1`, or `physnet2:enp1s0f0,physnet2:enp1s0f1`, as Neutron's
agent has them in `physical_device_mappings`), asked by `netdra.exposure.expose` at each pass. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from netdra.model import names, suggestions
from netdra.model.device import Problem
from netdra.model.errors import InvalidInputError
from netdra.model.inventory import Interface, Inventory

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def read(texts: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """The NICs by physical network, from `PHYSNET=NIC,NIC` or `PHYSNET:NIC,PHYSNET:NIC`.

    Raises:
        InvalidInputError: a text has neither form, or a NIC is in two physical networks.
    """
    nics_of: dict[str, tuple[str, ...]] = {}
    wired: dict[str, str] = {}
    for physnet, nic in (pair for text in texts for pair in _pairs(text)):
        if wired.setdefault(nic, physnet) != physnet:
            raise InvalidInputError(
                f'--physnet: "{nic}" is in {wired[nic]} and in {physnet}',
                hint="a NIC is connected to one physical network; remove it from the other",
                code="ND1449",
            )
        nics_of[physnet] = tuple(dict.fromkeys((*nics_of.get(physnet, ()), nic)))
    return nics_of


def _pairs(text: str) -> list[tuple[str, str]]:
    """The physical networks and NICs of one text.

    Raises:
        InvalidInputError: it is in neither form.
    """
    physnet, equals, listed = text.partition("=")
    if equals:
        pairs = [(physnet, part.strip()) for part in listed.split(",")]
    else:
        # An interface's name has no colon, and a PCI address has some.
        pairs = [(name.strip(), nic.strip()) for name, _, nic in (part.partition(":") for part in text.split(","))]
    if not all(names.is_physnet(name) and _is_nic(nic) and (equals or _is_mapped(nic)) for name, nic in pairs):
        raise InvalidInputError(
            f'--physnet "{text}" is not valid',
            hint="use PHYSNET=NIC or PHYSNET=NIC,NIC, with interface names or PCI addresses: "
            "physnet2=enp1s0f0; or PHYSNET:NIC,PHYSNET:NIC, as in Neutron's physical_device_mappings",
            code="ND1450",
        )
    return pairs


def problems(inventory: Inventory) -> tuple[Problem, ...]:
    """The errors in a node's physical networks, for the operator."""
    physnets = inventory.node.physnets
    if not physnets:
        return ()
    here = {name for interface in inventory.interfaces for name in _names(interface) if name}
    nics = sorted(
        {interface.if_name for interface in inventory.interfaces if interface.pci_address and interface.type != "vf"}
        - {""}
    )
    return tuple(Problem(policy="", message=text) for text in (*_missing(physnets, here, nics), *_twice(inventory)))


def _missing(physnets: Mapping[str, tuple[str, ...]], here: set[str], nics: list[str]) -> Iterator[str]:
    for physnet, named in physnets.items():
        for nic in named:
            if nic not in here:
                hint = suggestions.hint(nic, nics, "its NICs are")
                yield (
                    f'--physnet {physnet}={nic}: the node does not have an interface "{nic}", so '
                    f"{physnet} does not apply to its devices; "
                    f"{hint or 'netdra discover shows what it has'}"
                )


def _twice(inventory: Inventory) -> Iterator[str]:
    """NICs that are in two physical networks, by their name and by their address."""
    wired = inventory.node.wired
    for interface in inventory.interfaces:
        other = wired.get(interface.pci_address, interface.physnet)
        if interface.if_name in wired and other != interface.physnet:
            yield (
                f'--physnet: "{interface.if_name}" is in {interface.physnet} by its name and in '
                f"{other} by its PCI address {interface.pci_address}; the name is used"
            )


def _names(interface: Interface) -> tuple[str, ...]:
    return interface.if_name, interface.pci_address, interface.pf_name, interface.pf_pci_address


def _is_mapped(nic: str) -> bool:
    """Whether a NIC can stand after a colon: a name without one, or a PCI address."""
    return ":" not in nic or _PCI_ADDRESS.fullmatch(nic) is not None


def _is_nic(text: str) -> bool:
    """Whether a text can be the name of an interface; a PCI address is shorter than one may be."""
    is_short = 0 < len(text.encode()) <= names.MAX_IF_NAME
    return is_short and text not in {".", ".."} and not any(sign.isspace() or sign in "/=" for sign in text)
