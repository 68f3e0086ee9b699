"""Announce the addresses of a pod's interfaces: neighbours that had them elsewhere use the pod's MAC at once.

`first` is called when a pod has its network, by `netdra.chain.attach` or by the node's daemon after its hook, for all
addresses that steps, IPAM plugins and programs gave it, which are those that the kernel has by then. An interface
without a carrier sends nothing, and a switch may not forward yet: so the node's daemon calls `announce` once more after
`PAUSES`, and when a carrier comes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

from netdra.kernel import address, link, probe, uapi
from netdra.kernel.errors import KernelError
from netdra.kernel.link import Link
from netdra.kernel.probe import IPAddress, WiredAddress
from netdra.model.plan import Plan, PlannedStep
from netdra.model.pod_network import REPORT
from netdra.steps.contract import PodSpace
from netdra.steps.drift import without_carrier

PAUSES = (1.0, 1.0, 1.0, 2.0, 5.0)
"""Seconds between two tries of the interfaces that were not announced a second time yet."""
SLOW = 30.0
"""Seconds between two tries after that."""


def pause(tries: int) -> float:
    """How long to wait before the next call of `announce`, after that many."""
    return PAUSES[tries] if tries < len(PAUSES) else SLOW


def is_late(tries: int) -> bool:
    """Whether an interface should have a carrier by now."""
    return tries >= len(PAUSES) - 1


def first(plans: Sequence[Plan], pod: PodSpace) -> None:
    """Announce a pod's addresses when it is attached; a kernel that refuses does not keep it from starting.

    Addresses whose duplicates are to be reported are left out: they are announced when the wire has been asked.
    """
    steps = [step for plan in plans for step in plan.steps]
    unasked = {place for step in steps if step.on_duplicate == REPORT for place in _assigned(step)}
    certain = {place for step in steps for place in _assigned(step)}
    with suppress(KernelError):
        announce(names_of(plans), pod, lambda place: place not in unasked, certain)


def names_of(plans: Sequence[Plan]) -> frozenset[str]:
    """The interfaces that the steps make or change."""
    return frozenset(step.if_name for plan in plans for step in plan.steps)


def silent(names: Collection[str], pod: PodSpace) -> dict[str, str]:
    """The interfaces that have no carrier, with the reason.

    Args:
        names: the interfaces; those that do not exist are skipped.
        pod: their namespace.

    Raises:
        KernelError: the kernel refused.
    """
    entries = (link.find(pod.sock, name) for name in names)
    reasons = {entry.name: without_carrier(entry) for entry in entries if entry is not None}
    return {name: reason for name, reason in reasons.items() if reason}


def announce(
    names: Collection[str],
    pod: PodSpace,
    wanted: Callable[[WiredAddress], bool] = lambda _: True,
    certain: Collection[WiredAddress] = (),
) -> dict[str, str]:
    """Announce the addresses of interfaces.

    Returns the interfaces to try again, with the reason why they have no carrier; "" if only addresses are not usable.

    Args:
        names: the interfaces; those that do not exist, or have no neighbours, are skipped.
        pod: their namespace.
        wanted: which addresses are announced.
        certain: addresses that are announced although the kernel still searches for duplicates of them.

    Raises:
        KernelError: the kernel refused.
    """
    announced: list[tuple[Link, IPAddress]] = []
    waiting: dict[str, str] = {}
    for name in names:
        entry = link.find(pod.sock, name)
        if entry is None:
            continue
        if reason := without_carrier(entry):
            waiting[entry.name] = reason
        elif probe.can_probe(entry):
            usable, unchecked = _addresses(entry, pod, wanted, certain)
            announced += [(entry, text) for text in usable]
            waiting |= dict.fromkeys([entry.name] if unchecked else (), "")
    if announced:
        pod.namespace.visit(lambda: probe.broadcast(announced))
    return waiting


def _addresses(
    entry: Link, pod: PodSpace, wanted: Callable[[WiredAddress], bool], certain: Collection[WiredAddress]
) -> tuple[list[IPAddress], bool]:
    """The addresses of an interface to announce, and whether the kernel still searches for duplicates of others."""
    usable: list[IPAddress] = []
    unchecked = False
    for held in address.dump(pod.sock, entry.index):
        place = WiredAddress(entry.name, ipaddress.ip_interface(held.text).ip)
        if held.is_link_local or held.flags & uapi.IFA_F_DADFAILED or not wanted(place):
            continue
        if held.flags & uapi.IFA_F_TENTATIVE and place not in certain:
            unchecked = True
        else:
            usable.append(place.address)
    return usable, unchecked


def _assigned(step: PlannedStep) -> Iterator[WiredAddress]:
    return (WiredAddress(step.if_name, text) for text in step.assigned)
