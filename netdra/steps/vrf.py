"""The vrf step: an interface of the pod becomes a port of a VRF, whose routing table is apart from the main one.

Takes the parameters of the CNI plugin of that name. The interface is `dev`, or the one that the step's dependencies
made last; the VRF is made if the pod does not have it yet, and deleted with the step that has made it.

The kernel sets an interface down and up when it joins or leaves a VRF (drivers/net/vrf.c, cycle_netdev): it moves the
routes that come with addresses, and forgets the others and, as a rule, the addresses of IPv6. The step restores both.
With the first VRF of a namespace the kernel makes a rule that leads to the tables of VRFs, once: the step adds the rule
where it is gone, and deletes it with the last VRF if it was not there before.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from netdra.kernel import address, kinds, link, route, rule, uapi
from netdra.kernel.errors import KernelExistsError, KernelMissingError
from netdra.kernel.link import Link
from netdra.kernel.netlink import Socket
from netdra.kernel.route import Route
from netdra.model import texts
from netdra.model.errors import InvalidInputError, PermanentError
from netdra.model.result import StepResult
from netdra.model.routing import OWN_TABLES
from netdra.steps import addressing
from netdra.steps.contract import Attempts, Builtin, Order, Params, PodSpace, Record, Site
from netdra.steps.drift import check_interface

_KIND = "vrf"
_FIRST = 1001
"""The first table that is chosen; lower ones are those that people write."""
_SHARED = (uapi.RT_TABLE_DEFAULT, uapi.RT_TABLE_MAIN, uapi.RT_TABLE_LOCAL)


class VrfParams(Params, frozen=True, kw_only=True):
    """Which VRF; `table` is a free one if it is not given."""

    vrfname: str = msgspec.field(default="", name="vrfname")
    table: Annotated[int, msgspec.Meta(ge=1, lt=OWN_TABLES)] | None = None
    dev: str = ""


class InVrf(Record, frozen=True, kw_only=True):
    """An interface as it was before it joined a VRF; `routes` of the main table have no index.

    `made` is whether the step makes the VRF, `ruled` whether the namespace had the rules that lead to VRFs.
    """

    if_name: str
    vrf: str
    table: int
    made: bool
    ruled: bool
    addresses: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()


def _prepare(order: Order, params: VrfParams) -> None:
    if not texts.fits(params.vrfname, "ifname") or params.vrfname == order.if_name:
        raise InvalidInputError(
            f'{order.called}: vrfname "{params.vrfname[:80]}" is not a name for a VRF',
            hint="set vrfname, e.g. blue",
            code="ND2098",
        )
    if params.table in _SHARED:
        raise InvalidInputError(
            f"{order.called}: table {params.table} is not one for a VRF", hint="use another table", code="ND2099"
        )


def _observe(order: Order, params: VrfParams, site: Site) -> InVrf:
    pod = site.inside
    netdev = link.find(pod.sock, order.if_name)
    if netdev is None:
        raise PermanentError(
            f'{order.called}: the pod has no interface "{order.if_name}"',
            hint="name one by dev, or let the step depend on the step that makes it",
            code="ND2100",
        )
    if netdev.master:
        raise PermanentError(f'{order.called}: "{netdev.name}" is a port of another interface already', code="ND2101")
    vrf = link.find(pod.sock, params.vrfname)
    if vrf is not None and vrf.kind != _KIND:
        raise PermanentError(
            f'{order.called}: "{params.vrfname}" exists and is not a VRF', hint="use another vrfname", code="ND2102"
        )
    has = kinds.vrf_table_of(vrf.data) if vrf is not None else 0
    if has and params.table not in (None, has):
        raise PermanentError(
            f'{order.called}: VRF "{params.vrfname}" has table {has}, not {params.table}',
            hint="use one table in all steps of the VRF",
            code="ND2103",
        )
    listed = route.dump(pod.sock, table=uapi.RT_TABLE_MAIN, through=netdev.index)
    return InVrf(
        if_name=netdev.name,
        vrf=params.vrfname,
        table=has or params.table or _free(pod),
        made=vrf is None,
        ruled=any(map(rule.is_for_vrfs, rule.dump(pod.sock))),
        addresses=tuple(
            entry.text
            for entry in address.dump(pod.sock, netdev.index, socket.AF_INET6)
            if entry.scope == uapi.RT_SCOPE_UNIVERSE and entry.valid is None
        ),
        routes=tuple(
            msgspec.structs.replace(path, index=0, links=(), gateways=())
            for entry in listed
            if entry.protocol not in (uapi.RTPROT_KERNEL, uapi.RTPROT_RA)
            for path in entry.paths
            if path.index == netdev.index
        ),
    )


def _apply(order: Order, _: VrfParams, record: InVrf, site: Site) -> StepResult:
    pod = site.inside
    if record.made:
        with suppress(KernelExistsError):  # by another step, which runs at the same time
            link.create(pod.sock, record.vrf, _KIND, kinds.vrf(record.table))
    vrf = link.get(pod.sock, record.vrf)
    link.change(pod.sock, vrf.index, up=True)
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(KernelExistsError):
            rule.add_for_vrfs(pod.sock, family)
    # This sets the interface down and up (cycle_netdev): routes and IPv6 addresses are gone, and are added below.
    link.change(pod.sock, record.if_name, master=vrf.index)
    _restore(record, record.table, pod)
    return order.previous


def _undo(record: InVrf, site: Site) -> tuple[str, ...]:
    if site.pod is None:
        return ()
    attempts, pod = Attempts(), site.pod
    netdev, vrf = link.find(pod.sock, record.if_name), link.find(pod.sock, record.vrf)
    if netdev is not None and vrf is not None and netdev.master == vrf.index:
        attempts.run(lambda: link.change(pod.sock, netdev.index, master=0))
        attempts.run(lambda: _restore(record, uapi.RT_TABLE_MAIN, pod))
    if record.made and vrf is not None and vrf.kind == _KIND and not _ports(pod.sock, vrf.index):
        attempts.run(lambda: _delete(pod.sock, vrf.index))
    if not record.ruled and not any(other.kind == _KIND for other in link.dump(pod.sock)):
        for entry in filter(rule.is_for_vrfs, rule.dump(pod.sock)):
            attempts.run(lambda entry=entry: _delete_rule(pod.sock, entry))  # type: ignore[misc]
    return attempts.result()


def _check(order: Order, params: VrfParams, final: StepResult, site: Site) -> tuple[str, ...]:
    sock = site.inside.sock
    drift = check_interface(order.if_name, final, site)
    netdev, vrf = link.find(sock, order.if_name), link.find(sock, params.vrfname)
    if vrf is None or vrf.kind != _KIND:
        return (*drift, f'VRF "{params.vrfname}" does not exist')
    if not vrf.is_up:
        drift = (*drift, f'VRF "{vrf.name}" is down')
    if params.table is not None and kinds.vrf_table_of(vrf.data) != params.table:
        drift = (*drift, f'VRF "{vrf.name}" has table {kinds.vrf_table_of(vrf.data)}, not {params.table}')
    if netdev is not None and netdev.master != vrf.index:
        drift = (*drift, f'interface "{netdev.name}" is not in VRF "{vrf.name}"')
    return drift


def _restore(record: InVrf, table: int, pod: PodSpace) -> None:
    """Give an interface the addresses and, in a table, the routes that it has lost by joining or leaving."""
    index = link.get(pod.sock, record.if_name).index
    wanted = addressing.AddedAddressing(
        if_name=record.if_name,
        addresses=record.addresses,
        routes=tuple(msgspec.structs.replace(entry, table=table) for entry in record.routes),
    )
    addressing.add(addressing.missing(wanted, index, pod), index, pod)


def _free(pod: PodSpace) -> int:
    """The first table that no rule and no route of the pod names."""
    used = {entry.table for entry in route.dump(pod.sock)} | {entry.table for entry in rule.dump(pod.sock)}
    used |= {kinds.vrf_table_of(netdev.data) for netdev in link.dump(pod.sock) if netdev.kind == _KIND}
    return next(number for number in range(_FIRST, OWN_TABLES) if number not in used)


def _ports(sock: Socket, index: int) -> list[Link]:
    return [netdev for netdev in link.dump(sock) if netdev.master == index]


def _delete(sock: Socket, index: int) -> None:
    with suppress(KernelMissingError):
        link.delete(sock, index)


def _delete_rule(sock: Socket, entry: Any) -> None:
    with suppress(KernelMissingError):
        rule.delete(sock, entry)


VRF = Builtin(
    params=VrfParams, record=InVrf, prepare=_prepare, observe=_observe, apply=_apply, undo=_undo, check=_check
)
