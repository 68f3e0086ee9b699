"""Detect that another machine on the wire has an address of a PodNetwork, before the pod's containers begin.

Called by `netdra.chain.attach` when all steps are done: IPAM programs assign addresses while they run, so an address is
on its interface already, and no container has used it. All addresses of a pod are asked for at once, by
`netdra.kernel.probe`; a pod without addresses of PodNetworks is not looked at. Addresses that are nobody else's are
announced, so neighbours forget where they were before.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from netdra.chain.flow import ChainStep
from netdra.chain.report import DuplicateAddress, DuplicateAddressError
from netdra.kernel import address as addresses
from netdra.kernel import link, probe, uapi
from netdra.kernel.errors import KernelError
from netdra.kernel.probe import ProbedLink, WiredAddress
from netdra.model.plan import Plan
from netdra.model.pod_network import IGNORE, REASSIGN
from netdra.steps.contract import PodSpace, Site

SECONDS = 0.3
"""How long the wire is listened to."""
_SHARE = 1 / 2
"""The part of the time that is left for attaching that listening may take."""


class _Wanted(msgspec.Struct, frozen=True):
    key: str
    claim: str
    network: str
    on_duplicate: str
    place: WiredAddress


def settle(
    graph: Mapping[str, ChainStep], plans: Sequence[Plan], site: Site
) -> dict[str, tuple[DuplicateAddress, ...]]:
    """Ask for the addresses of a pod whose steps are all done, and announce those that no other machine has.

    Args:
        graph: the steps.
        plans: the pod's plans.
        site: where.

    Returns:
        the duplicates of each step that has some, by the step's key.
    """
    wanted = tuple(_wanted(graph, plans))
    if not wanted or site.pod is None:
        return {}
    with ExitStack() as closing:
        wires = _opened(site.pod, wanted, closing)
        asked = [entry.place for entry in wanted if entry.on_duplicate != IGNORE]
        others = probe.probe(wires, asked, min(SECONDS, site.remaining() * _SHARE))
        others |= dict.fromkeys(_failed(site.pod, asked, wires) - others.keys(), "")
        probe.announce(wires, [entry.place for entry in wanted if entry.place not in others])
    found: dict[str, list[DuplicateAddress]] = {}
    for entry in wanted:
        if entry.place in others:
            found.setdefault(entry.key, []).append(_duplicate(entry, others[entry.place]))
    return {key: tuple(duplicates) for key, duplicates in found.items()}


def refused(found: Mapping[str, Sequence[DuplicateAddress]]) -> dict[str, Exception]:
    """The errors of the steps with which the pod must not start, by key."""
    errors: dict[str, Exception] = {}
    for key, duplicates in found.items():
        if any(entry.is_refused for entry in duplicates):
            errors[key] = DuplicateAddressError(duplicates)
    return errors


def _wanted(graph: Mapping[str, ChainStep], plans: Sequence[Plan]) -> Iterator[_Wanted]:
    """The addresses of PodNetworks that the steps have, as they are in the steps' configs."""
    for key, task in graph.items():
        step = task.step
        claim = plans[int(key.partition("/")[0])].claim.uid
        for address in step.assigned:
            yield _Wanted(key, claim, step.pod_network, step.on_duplicate, WiredAddress(step.if_name, address))


def _opened(pod: PodSpace, wanted: Sequence[_Wanted], closing: ExitStack) -> dict[str, ProbedLink]:
    """The pod's interfaces that have neighbours; none if the kernel refuses, which is no reason to refuse the pod."""
    names = [entry.place.if_name for entry in wanted]
    try:
        wires = pod.namespace.visit(lambda: probe.open_wires(pod.sock, names))
    except KernelError:
        return {}
    for wire in wires.values():
        closing.callback(wire.close)
    return wires


def _failed(pod: PodSpace, asked: Sequence[WiredAddress], wires: Mapping[str, ProbedLink]) -> set[WiredAddress]:
    """The addresses that the kernel itself has found to be duplicates: programs may leave its detection on."""
    found: set[WiredAddress] = set()
    for name in {entry.if_name for entry in asked if entry.address.version == 6} & wires.keys():
        try:
            present = addresses.dump(pod.sock, link.get(pod.sock, name).index)
        except KernelError:
            continue
        failed = (entry.text for entry in present if entry.flags & uapi.IFA_F_DADFAILED)
        found |= {WiredAddress(name, ipaddress.ip_interface(text).ip) for text in failed}
    return found & {*asked}


def _duplicate(entry: _Wanted, mac: str) -> DuplicateAddress:
    return DuplicateAddress(
        claim=entry.claim,
        network=entry.network,
        if_name=entry.place.if_name,
        address=str(entry.place.address),
        mac=mac,
        is_refused=entry.on_duplicate == REASSIGN,
    )
