"""The drift of an interface in the pod from the results. Shared by the checks of all steps."""

from __future__ import annotations

import ipaddress

import msgspec

from netdra.kernel import kinds, link
from netdra.kernel.link import Link
from netdra.kernel.netlink import Socket
from netdra.model.result import CNIInterface, StepResult
from netdra.steps import addressing
from netdra.steps.contract import Site


def expected(if_name: str, final: StepResult, site: Site) -> CNIInterface | None:
    """The interface of the pod as the final result has it."""
    inside = site.inside.path
    return next(
        (interface for interface in final.interfaces if interface.name == if_name and interface.sandbox == inside), None
    )


def check_interface(if_name: str, final: StepResult, site: Site) -> tuple[str, ...]:
    """Whether an interface is in the pod, up, and has the MAC, the MTU and the addresses of the final result."""
    sock = site.inside.sock
    netdev = link.find(sock, if_name)
    if netdev is None:
        return (f'interface "{if_name}" does not exist',)
    down = () if netdev.is_up else (f'interface "{if_name}" is down',)
    return (*down, *check_values(netdev, final, site))


def without_carrier(netdev: Link) -> str:
    """Why an interface that steps made sends nothing, in words; "" if it can, or if something else uses its other end.

    A tap has a carrier while a program has it open, and a bridge while it has a port with one.
    """
    if not netdev.is_up:
        return f'interface "{netdev.name}" is down'
    if netdev.lacks_carrier and netdev.kind not in ("tun", "bridge"):
        return f'interface "{netdev.name}" has no carrier (operstate {netdev.state})'
    return ""


def check_values(netdev: Link, final: StepResult, site: Site) -> tuple[str, ...]:
    """Whether an interface that is in the pod has the MAC, the MTU and the addresses of the final result."""
    sock, if_name = site.inside.sock, netdev.name
    wanted = expected(if_name, final, site)
    # A bond's members share its MAC and MTU, with any former values.
    if wanted is None or netdev.master:
        return ()
    drift: list[str] = []
    if wanted.mac and wanted.mac.lower() != netdev.address and not changes_mac(netdev, sock):
        drift.append(f'interface "{if_name}" has MAC {netdev.address}, not {wanted.mac.lower()}')
    if wanted.mtu and wanted.mtu != netdev.mtu:
        drift.append(f'interface "{if_name}" has MTU {netdev.mtu}, not {wanted.mtu}')
    place = final.interfaces.index(wanted)
    addresses = [ip.address for ip in final.ips if ip.interface == place]
    present = addressing.present_addresses(sock, netdev.index) if addresses else set()
    drift += [
        f'interface "{if_name}" has lost address {text}'
        for text in addresses
        if ipaddress.ip_interface(text).with_prefixlen not in present
    ]
    return tuple(drift)


def changes_mac(netdev: Link, sock: Socket) -> bool:
    """Whether an interface is a bond that takes the MAC of its active member, or a VLAN or an ipvlan on such a bond.

    They take the MAC of the interface below (vlan_sync_address(), ipvlan_device_event()).
    """
    lower: Link | None = netdev
    while lower is not None and lower.kind in ("vlan", "ipvlan"):
        lower = link.find(sock, lower.lower)
    return lower is not None and lower.kind == "bond" and kinds.bond_follows_member_of(lower.data)


def with_present_macs(final: StepResult, site: Site) -> StepResult:
    """A result with the present MAC of each interface of the pod whose MAC changes by itself.

    Raises:
        KernelError: the kernel refused.
    """

    def seen(entry: CNIInterface) -> CNIInterface:
        sock = site.inside.sock
        netdev = link.find(sock, entry.name) if entry.mac and entry.sandbox == site.inside.path else None
        if netdev is None or not changes_mac(netdev, sock):
            return entry
        return msgspec.structs.replace(entry, mac=netdev.address)

    return msgspec.structs.replace(final, interfaces=tuple(map(seen, final.interfaces)))
