"""Detect that another machine on the wire has an address of a PodNetwork.

`settle` is called by `netdra.chain.attach` when all steps are done: IPAM programs assign addresses while they run, so
an address is on its interface already, and no container has used it. Only addresses whose pod must not start with a
duplicate are asked for there: a runtime starts no other pod of the node meanwhile. The node's daemon calls `look` for
the others, as soon as the pod has its network. All addresses of a pod are asked for at once, by `netdra.kernel.probe`.
Addresses that `look` finds no duplicate of are announced then; `netdra.chain.announcements` announces all others.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import msgspec

from netdra.chain.flow import ChainStep, tasks
from netdra.chain.report import DuplicateAddress, DuplicateAddressError
from netdra.kernel import address as addresses
from netdra.kernel import link, probe, uapi
from netdra.kernel.errors import KernelError
from netdra.kernel.probe import ProbedLink, WiredAddress
from netdra.model.plan import Plan
from netdra.model.pod_network import REASSIGN, REPORT
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


def settle(graph: Mapping[str, ChainStep], plans: Sequence[Plan], site: Site) -> dict[str, Exception]:
    """Ask for the addresses that a pod must not start with as duplicates, when its steps are all done.

    Args:
        graph: the steps.
        plans: the pod's plans.
        site: where.

    Returns:
        the errors of the steps with such addresses, by the step's key.
    """
    refusing = tuple(entry for entry in _wanted(graph, plans) if entry.on_duplicate == REASSIGN)
    if not refusing or site.pod is None:
        return {}
    with ExitStack() as closing:
        wires = _opened(site.pod, refusing, closing)
        others = _asked(site.pod, refusing, wires, min(SECONDS, site.remaining() * _SHARE))
    return {
        key: DuplicateAddressError([_duplicate(entry, others[entry.place]) for entry in found])
        for key in dict.fromkeys(entry.key for entry in refusing)
        if (found := [entry for entry in refusing if entry.key == key and entry.place in others])
    }


def look(plans: Sequence[Plan], pod: PodSpace) -> tuple[DuplicateAddress, ...]:
    """The addresses of an attached pod, of those that are to be reported, that other machines have, too.

    Args:
        plans: the pod's plans.
        pod: its namespace.
    """
    wanted = tuple(entry for entry in _wanted(tasks(plans), plans) if entry.on_duplicate == REPORT)
    if not wanted:
        return ()
    with ExitStack() as closing:
        wires = _opened(pod, wanted, closing)
        others = _asked(pod, wanted, wires, SECONDS)
        probe.announce(wires, [entry.place for entry in wanted if entry.place not in others])
    return tuple(_duplicate(entry, others[entry.place]) for entry in wanted if entry.place in others)


def _wanted(graph: Mapping[str, ChainStep], plans: Sequence[Plan]) -> Iterator[_Wanted]:
    """The addresses of PodNetworks that the steps have, as they are in the steps' configs."""
    for key, task in graph.items():
        step = task.step
        claim = plans[int(key.partition("/")[0])].claim.uid
        for address in step.assigned:
            yield _Wanted(key, claim, step.pod_network, step.on_duplicate, WiredAddress(step.if_name, address))


def _opened(pod: PodSpace, wanted: Sequence[_Wanted], closing: ExitStack) -> dict[str, ProbedLink]:
    """The pod's interfaces that have neighbours; none if the kernel refuses, for which the pod is not rejected."""
    names = [entry.place.if_name for entry in wanted]
    try:
        wires = pod.namespace.visit(lambda: probe.open_wires(pod.sock, names))
    except KernelError:
        return {}
    for wire in wires.values():
        closing.callback(wire.close)
    return wires


def _asked(
    pod: PodSpace, wanted: Sequence[_Wanted], wires: Mapping[str, ProbedLink], seconds: float
) -> dict[WiredAddress, str]:
    """The addresses that others have, with the others' MACs; "" where the kernel has found one and keeps that."""
    places = [entry.place for entry in wanted]
    others = probe.probe(wires, places, seconds)
    return others | dict.fromkeys(_failed(pod, places, wires) - others.keys(), "")


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
    )
