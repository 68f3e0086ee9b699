"""The default routes and addresses that routers advertise to an interface of the pod (IPv6, RFC 4861 and 4862).

A router's default route follows the same rule as any other (`addressing.precedes_eth0`): it is the pod's only where a
step requests it. Called by `builtin` and by `netdra.chain.pod_routes` for interfaces that steps make, and by checks.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

from netdra.kernel import address, route, uapi
from netdra.kernel.errors import KernelMissingError
from netdra.kernel.route import Route
from netdra.steps import addressing, sysctl
from netdra.steps.contract import PodSpace


def follow_rule(if_name: str, index: int, pod: PodSpace, *, requested: bool) -> None:
    """Let the default routes that routers advertise to an interface come first, or keep them out of the pod.

    Raises:
        KernelError: the kernel refused.
    """
    name, value = ("ra_defrtr_metric", addressing.first_metric(pod)) if requested else ("accept_ra_defrtr", 0)
    with suppress(KernelMissingError):  # an MTU below 1280, a kernel without IPv6, or one before 5.13
        sysctl.write(pod.namespace, {f"net/ipv6/conf/{if_name}/{name}": str(value)})
    for entry in () if requested else _defaults(index, pod):
        with suppress(KernelMissingError):
            route.delete(pod.sock, entry)


def unrequested(if_name: str, index: int, pod: PodSpace, *, addresses: bool, defaults: bool) -> Iterator[str]:
    """The configuration that a router has given to an interface, in words.

    Args:
        if_name: the interface.
        index: its index.
        pod: the pod's namespace.
        addresses: whether addresses are unrequested.
        defaults: whether default routes are.

    Raises:
        KernelError: the kernel refused.
    """
    for entry in address.dump(pod.sock, index, socket.AF_INET6) if addresses else ():
        if entry.protocol == uapi.IFAPROT_KERNEL_RA:
            yield f'interface "{if_name}" has address {entry.text}, which a router advertised and no step requests'
    for known in _defaults(index, pod) if defaults else ():
        yield (
            f'interface "{if_name}" has a default route via {known.gateway}, which a router advertised and no step '
            "requests"
        )


def _defaults(index: int, pod: PodSpace) -> list[Route]:
    """The default routes through a link that a router advertised."""
    listed = route.dump(pod.sock, socket.AF_INET6, uapi.RT_TABLE_MAIN)
    return [entry for entry in listed if entry.is_default and entry.protocol == uapi.RTPROT_RA and entry.index == index]
