"""Virtual interfaces that steps make: the record of one, and its end. Used by bond and vlan."""

from __future__ import annotations

from netdra.kernel import link
from netdra.kernel.errors import KernelMissingError
from netdra.steps.contract import Record, Site


class Made(Record, frozen=True, kw_only=True):
    """An interface that the pod does not have yet, and the kind that it will be of."""

    if_name: str
    kind: str


def unmake(made: Made, site: Site) -> None:
    """Delete the interface; one that is not there, or has gone with the namespace, is not an error.

    Raises:
        KernelError: the kernel refused.
    """
    netdev = link.find(site.pod.sock, made.if_name) if site.pod is not None else None
    if site.pod is None or netdev is None or netdev.kind != made.kind:
        return
    try:
        link.delete(site.pod.sock, netdev.index)
    except KernelMissingError:
        return
