"""A VF in the pod that has lost its link though its PF has one: it is reported, and repaired on request.

A VF is dead after a reset (FLR) of its own, and may be so after its PF was down or was reset. Some drivers continue
only when their netdev is set down and up (drivers/net/ethernet/intel/igbvf); the settings at the PF are all there.

Called by `netdra.steps.builtin` after the step's own check, for any executor.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from netdra.kernel import host_use, link, pci
from netdra.kernel.link import Link
from netdra.steps import functions, netdevs, restoring
from netdra.steps.contract import Attempts, Order, Site

_PATIENCE = 4.0  # seconds: drivers of VFs check their link every two (igbvf_watchdog_task)
_EVERY = 0.1


class _Dead(NamedTuple):
    """A VF without a link: its PCI address, its netdev in the pod, and its PF on the host."""

    address: str
    netdev: Link
    pf: Link


def check(order: Order, site: Site) -> tuple[str, ...]:
    """Whether the step's VF has a link if its PF has one, in words; one that has just come up is waited for.

    Raises:
        KernelError: the kernel refused.
    """
    dead = _dead(order, site)
    if dead is None or _has_link(dead, site):
        return ()
    return (f'VF {dead.address} has no link, though its PF "{dead.pf.name}" has one',)


def repair(order: Order, site: Site) -> tuple[str, ...]:
    """Set a dead VF down and up, and give all that is in the pod its addresses and routes back; return what was done.

    Raises:
        KernelError: the kernel refused.
    """
    dead = _dead(order, site)
    if dead is None or _has_link(dead, site):
        return ()
    pod = site.inside
    # As `moving` sees the host.
    inside = msgspec.structs.replace(site, host=pod.sock, host_namespace=pod.namespace)
    before = [
        netdevs.seen(
            netdev.name,
            netdev,
            inside,
            host_use.configuration(pod.sock, netdev, with_programs=False),
            with_settings=False,
        )
        for netdev in link.dump(pod.sock)
        if netdev.is_up
    ]
    # The kernel then drops routes over routers, and IPv6 addresses without keep_addr_on_down; IPv4 addresses stay.
    link.change(pod.sock, dead.netdev.index, up=False)
    link.change(pod.sock, dead.netdev.index, up=True)
    revived = _has_link(dead, site)
    attempts = Attempts()
    for moved in before:
        restoring.restore_addressing(moved, moved.index, pod.sock, attempts)
    what = f'VF {dead.address}: interface "{order.if_name}" was set down and up'
    return (f"{what}; it has {'its link again' if revived else 'still no link'}", *attempts.result())


def _dead(order: Order, site: Site) -> _Dead | None:
    """The VF that the step brought, if it has no link just now and should have one."""
    pod = site.pod
    if pod is None or any(interface.name == order.if_name for interface in order.previous.interfaces):
        return None
    netdev = link.find(pod.sock, order.if_name)
    if netdev is None or not netdev.parent or not netdev.lacks_carrier:
        return None
    pf_address = pci.pf_of(site.sysfs, netdev.parent)
    pf = functions.physical_function(pf_address, site) if pf_address else None
    if pf is None or not pf.is_up or pf.lacks_carrier:
        return None
    seen = functions.seen(netdev.parent, site)
    return None if seen is None or seen.before.link_state == "disable" else _Dead(netdev.parent, netdev, pf)


def _has_link(dead: _Dead, site: Site) -> bool:
    """Whether a VF has a link, at once or in a while."""
    until = min(site.deadline, time.monotonic() + _PATIENCE)
    while True:
        netdev = link.find(site.inside.sock, dead.netdev.index)
        if netdev is None or not netdev.lacks_carrier:
            return True
        if time.monotonic() >= until:
            return False
        time.sleep(_EVERY)
