"""Compare the result of a plugin's ADD with the kernel (decision D55).

Called by `netdra.chain.execute` after the ADD of each binary step. Parts that a result leaves out are not compared.
A part of `prevResult` that a step returns unchanged must be in the kernel as before the ADD: another branch of the
graph may have changed it since. Reads without the kernel's lock of all networks, unless there is a difference.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from netdra.chain.flow import ChainStep
from netdra.kernel import address, link, netns, pci, unlocked
from netdra.kernel.link import HERE
from netdra.kernel.netlink import Socket
from netdra.model import texts
from netdra.model.errors import PermanentError
from netdra.model.result import CNIAddress, CNIInterface, StepResult
from netdra.model.topology import MOVING_TYPES
from netdra.steps import addressing, drift, netdevs
from netdra.steps.allocated import Allocated
from netdra.steps.contract import Site
from netdra.steps.devices import USERSPACE_DRIVERS

TOLERATED: Mapping[str, Mapping[str, str]] = {
    # plugins/meta/tuning, cmdAdd: of the result, it changes the MAC alone.
    "tuning": {
        "MTU": "it sets the MTU and returns the previous result",
        "IPv6 address": "disable_ipv6, an MTU below 1280 and a new MAC (the link goes down) remove IPv6 addresses",
    },
    # userspace-cni: vhost-user and memif interfaces are sockets.
    "userspace": {"interface": "its interface is a socket, not a netdev"},
}
"""The differences that a type makes legitimately, each with the reason."""

_STACKED = frozenset({"ipvlan", "ipvtap", "macsec", "macvlan", "macvtap", "vlan"})  # made on another interface
_PORTS = frozenset({"bond", "bridge", "openvswitch", "team"})  # a port has the MAC and MTU of its master


class Earlier(msgspec.Struct, frozen=True):
    """A step's state before its ADD: the previous result, and its interface if present (MAC and MTU)."""

    result: StepResult
    is_there: bool = False
    mac: str = ""
    mtu: int = 0


def earlier(task: ChainStep, previous: StepResult, site: Site) -> Earlier:
    """The state before a step; only a derived step has its interface, since for a root step it must not exist."""
    sock, name = site.inside.sock, task.step.if_name
    if not task.after or not unlocked.index_of(sock, name):
        return Earlier(previous)
    return Earlier(previous, is_there=True, mac=unlocked.mac_of(sock, name), mtu=unlocked.mtu_of(sock, name))


def check(
    task: ChainStep,
    config: Mapping[str, Any],
    result: StepResult,
    before: Earlier,
    device: Allocated | None,
    site: Site,
) -> None:
    """Check that the pod has the interfaces that a plugin reports, as it reports them, and the allocated device.

    Args:
        task: the step.
        config: its config, without references.
        result: the plugin's.
        before: what the step found.
        device: its device as it was, if it has one for itself.
        site: where.

    Raises:
        PermanentError: there is a difference; undo the step.
        KernelError: the kernel refused.
    """
    if task.after:
        _check_stacked(task, result, before, site)
    differences = tuple(_differences(task, config, result, before, site))
    if differences:
        raise PermanentError(
            f'plugin "{task.step.type}" reported {"; ".join(differences)}',
            hint="correct the step's config, or replace the plugin",
            code="ND2139",
        )
    if device is not None and not _is_moved(task, config, device, site):
        raise PermanentError(
            f'plugin "{task.step.type}" did not move device "{device.device}" into the pod',
            hint="correct the step's config, or replace the plugin",
            code="ND2140",
        )


def _differences(
    task: ChainStep, config: Mapping[str, Any], result: StepResult, before: Earlier, site: Site
) -> Iterator[str]:
    tolerated = TOLERATED.get(task.step.type, {})
    ours = [place for place, interface in enumerate(result.interfaces) if _is_own(task, interface, before, site)]
    for place in ours:
        interface = result.interfaces[place]
        index = _index(site.inside.sock, interface.name)
        if index:
            ips = [ip for ip in result.ips if ip.interface == place]
            yield from _of_interface(task, interface, before, site)
            yield from _of_addresses(ips, index, f'interface "{interface.name}"', tolerated, site)
        elif not (interface.socket_path or "interface" in tolerated or is_in_userspace(task, config, site)):
            yield f'interface "{interface.name}" in the pod, but it does not exist there'
    given = {ip.address for ip in before.result.ips}
    unplaced = [ip for ip in result.ips if ip.interface is None and ip.address not in given]
    if unplaced and not ("interface" in tolerated or is_in_userspace(task, config, site)):
        yield from _of_addresses(unplaced, 0, "", tolerated, site)


def _is_own(task: ChainStep, interface: CNIInterface, before: Earlier, site: Site) -> bool:
    """Whether a step reports an interface of the pod by itself: the one of its name, and each that it does not hand on.

    A plugin should write the pod's path (CNI specification, "ADD Success"). One that names another namespace that
    exists reports on that; with any other text, it is called for the pod.
    """
    if not interface.sandbox or not interface.name:
        return False
    given = _given(interface, before)
    if given is not None and all(
        not value or value == getattr(given, field) for field, value in msgspec.structs.asdict(interface).items()
    ):
        return interface.name == task.step.if_name and before.is_there
    pod = site.inside.path
    if pod == interface.sandbox or interface.name == task.step.if_name:
        return True
    return netns.inode_at(interface.sandbox) in (0, netns.inode_at(pod))


def _given(interface: CNIInterface, before: Earlier) -> CNIInterface | None:
    return next(
        (
            given
            for given in before.result.interfaces
            if (given.name, given.sandbox) == (interface.name, interface.sandbox)
        ),
        None,
    )


def _of_interface(task: ChainStep, interface: CNIInterface, before: Earlier, site: Site) -> Iterator[str]:
    sock, name, given = site.inside.sock, interface.name, _given(interface, before)
    handed_on = given if before.is_there and name == task.step.if_name else None
    mac, mtu = _spelled(interface.mac), interface.mtu
    if handed_on is not None and mac == _spelled(handed_on.mac):
        mac = mac and before.mac
    if handed_on is not None and mtu == handed_on.mtu:
        mtu = mtu and before.mtu
    mtu = 0 if "MTU" in TOLERATED.get(task.step.type, {}) else mtu
    pci_id = "" if given is not None and given.pci_id == interface.pci_id else interface.pci_id.lower()
    if not pci_id and mac in ("", unlocked.mac_of(sock, name)) and mtu in (0, unlocked.mtu_of(sock, name)):
        return
    there = link.get(sock, name)
    if there.port_kind not in _PORTS:
        if mac and mac != there.address and not drift.changes_mac(there, sock):
            yield f'MAC {mac} for interface "{name}", but it has {there.address}'
        if mtu and mtu != there.mtu:
            yield f'MTU {mtu} for interface "{name}", but it has {there.mtu}'
    if pci_id and there.parent_bus == "pci" and there.parent != pci_id:
        yield f'PCI address {pci_id} for interface "{name}", but it has {there.parent}'


def _of_addresses(
    ips: Collection[CNIAddress], index: int, called: str, tolerated: Mapping[str, str], site: Site
) -> Iterator[str]:
    """The addresses that are not on the interface of that index, or if it is 0, on none of the pod."""
    wanted = [ipaddress.ip_interface(ip.address) for ip in ips]
    # Link-local addresses come and go with the carrier.
    reported = [
        entry.with_prefixlen
        for entry in wanted
        if entry.version == 4 or not (entry.is_link_local or "IPv6 address" in tolerated)
    ]
    if not reported:
        return
    present = (
        addressing.present_addresses(site.inside.sock, index)
        if index
        else {texts.cidr(entry.text) for entry in address.dump(site.inside.sock)}
    )
    for text in reported:
        if text in present:
            continue
        if index:
            yield f"address {text} for {called}, but it has {', '.join(sorted(present)) or 'none'}"
        else:
            yield f"address {text}, but no interface of the pod has it"


def is_in_userspace(task: ChainStep, config: Mapping[str, Any], site: Site) -> bool:
    """Whether a step's PCI device has no netdev for the pod: a userspace driver has it, or it is a vDPA device."""
    device = task.step.device
    at = (device.pci_address if device is not None else "") or config.get("deviceID") or config.get("pciBusID")
    if not isinstance(at, str) or not texts.fits(at, "pci"):
        return False
    if pci.driver_of(site.sysfs, at) in USERSPACE_DRIVERS:
        return True
    listed = site.sysfs.names(f"bus/pci/devices/{at}")
    return isinstance(listed, list) and any(entry.startswith("vdpa") for entry in listed)


def _is_moved(task: ChainStep, config: Mapping[str, Any], device: Allocated, site: Site) -> bool:
    """Whether a device is in the pod; it need not be if its plugin does not move it, or it has no netdev."""
    if task.step.type not in MOVING_TYPES or device.netdev is None or is_in_userspace(task, config, site):
        return True
    return netdevs.inside(device.netdev, site.inside, site) is not None


def _check_stacked(task: ChainStep, result: StepResult, before: Earlier, site: Site) -> None:
    """Check that a derived step's interfaces stand on the pod's: a program may have ignored that in its config."""
    given = {interface.name for interface in before.result.interfaces}
    given |= {task.step.if_name} if before.is_there else set()
    made = {interface.name for interface in result.interfaces if interface.sandbox == site.inside.path}
    for name in sorted({task.step.if_name, *made} - given):
        netdev = link.find(site.inside.sock, name) if _index(site.inside.sock, name) else None
        if netdev is not None and netdev.kind in _STACKED and netdev.lower and netdev.lower_netns != HERE:
            raise PermanentError(
                f'"{name}" was created on an interface of the node, not of the pod',
                hint=f'check whether this version of "{task.step.type}" supports interfaces inside the pod',
                code="ND2141",
            )


def _index(sock: Socket, name: str) -> int:
    """The index of an interface, 0 for none; a result may name one that cannot exist."""
    return unlocked.index_of(sock, name) if texts.fits(name, "ifname") else 0


def _spelled(mac: str) -> str:
    return mac.lower().replace("-", ":")
