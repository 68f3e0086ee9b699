"""Virtual interfaces that steps make: their lower interface, the record of one, and its end. Used by bond and vlan."""

from __future__ import annotations

from netdra.kernel import link
from netdra.kernel.errors import KernelMissingError
from netdra.kernel.link import Link
from netdra.model.errors import TemporaryError
from netdra.steps.contract import Record, Site


class Made(Record, frozen=True, kw_only=True):
    """An interface that the pod does not have yet, and the kind that it will be of."""

    if_name: str
    kind: str


def check_can_carry(step: str, lower: Link) -> None:
    """Refuse to make an interface on one that is set down: it would have no carrier.

    Raises:
        TemporaryError: the interface below is down.
    """
    if not lower.is_up:
        raise TemporaryError(
            f'{step}: the interface below it, "{lower.name}", is down, so the pod could not send or receive',
            hint=f"set it up: ip link set {lower.name} up, and in the configuration of the node's network",
            code="ND2038",
        )


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
