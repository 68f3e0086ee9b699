"""The built-in steps by type, and their common parts: typed parameters, IPAM, rates, records as plain JSON.

Called by `netdra.chain`, which writes the record that `observe` returns before it calls `apply`, and calls `undo` with
the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from netdra.cni.plugins import PluginPath
from netdra.kernel import unlocked
from netdra.model.documents import convert
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError
from netdra.model.inventory import DEVICE_FILE
from netdra.model.result import CNIDNS, StepResult
from netdra.steps import addressing, ipam, keeping, rated, routers, slaac, sriov, vf_link
from netdra.steps.addressing import AddedAddressing
from netdra.steps.bond import BOND
from netdra.steps.contract import Builtin, Order, Params, Record, Site
from netdra.steps.device_file import FILE
from netdra.steps.functions import FunctionSettings
from netdra.steps.host_device import HOST_DEVICE
from netdra.steps.ipam import IpamLease
from netdra.steps.keeping import Kept
from netdra.steps.netdevs import Moved
from netdra.steps.rdma_device import RDMA, RdmaMoved
from netdra.steps.slaac import Advertised, SlaacParams
from netdra.steps.sriov import SRIOV, VirtualFunction
from netdra.steps.tuning import TUNING
from netdra.steps.vfio_pci import VFIO_PCI
from netdra.steps.vlan import VLAN
from netdra.steps.vrf import VRF

TYPES: Mapping[str, Builtin[Any, Any]] = {
    "sriov": SRIOV,
    "host-device": HOST_DEVICE,
    "bond": BOND,
    "vlan": VLAN,
    "vrf": VRF,
    "tuning": TUNING,
    "vfio-pci": VFIO_PCI,
    "rdma": RDMA,
    DEVICE_FILE: FILE,
}


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A step with a valid config: only `prepare` makes one."""

    order: Order
    step: Builtin[Any, Any]
    params: Params
    lease: IpamLease | None
    slaac: SlaacParams | None = None


def prepare(order: Order, plugins: PluginPath, timeout: float) -> Prepared:
    """Check a step's config, and that its IPAM plugin is there; touches nothing.

    Raises:
        InvalidInputError: the config is not the type's.
        PluginError: the IPAM plugin is not there.
    """
    step = _of(order.type)
    params = convert(_without_nulls(order.config), step.params, f"{order.called}, config")
    step.prepare(order, params)
    lease = ipam.wanted(order)
    if lease is not None:
        ipam.find(lease, plugins, timeout)
    return Prepared(order=order, step=step, params=params, lease=lease, slaac=slaac.wanted(order))


def observe(prepared: Prepared, site: Site) -> dict[str, Any]:
    """The record for undoing the step, as plain JSON. Changes nothing.

    Raises:
        NetdraError: the step cannot be done as things stand.
    """
    record = prepared.step.observe(prepared.order, prepared.params, site)
    assert isinstance(record, prepared.step.record)
    parts = {
        "step": record,
        "ipam": prepared.lease,
        "rates": rated.observe(prepared.order, site),
        "kept": keeping.observe(prepared.order, _netdev(record), site),
    }
    return {name: msgspec.to_builtins(part) for name, part in parts.items() if part is not None}


def apply(
    prepared: Prepared, undo: Mapping[str, Any], site: Site, amend: Callable[[dict[str, Any]], None]
) -> StepResult:
    """Do the step.

    Args:
        undo: what `observe` returned.
        amend: called with a fuller record when more is known, before the step acts on it.

    Raises:
        NetdraError: it failed; undo it.
    """
    record = msgspec.convert(undo["step"], prepared.step.record)
    result = prepared.step.apply(prepared.order, prepared.params, record, site)
    rated.apply(prepared.order, site)
    _follow_rule(prepared.order, result, site)
    if "kept" in undo:
        result = keeping.apply(prepared.order, msgspec.convert(undo["kept"], Kept), result, site)
    if prepared.lease is not None:
        lease, leased = ipam.add(prepared.lease, result, site, default_route=prepared.order.default_route)
        amend({**undo, "ipam": msgspec.to_builtins(lease)})
        if lease.added is not None:
            ipam.configure(lease.added, site)
            result = _with_lease(prepared.order, result, leased, lease.added)
    if prepared.slaac is not None:
        result = _autoconfigure(prepared.order, prepared.slaac, undo, result, site, amend)
    dns = prepared.params.dns
    return msgspec.structs.replace(result, dns=msgspec.convert(dns, CNIDNS)) if dns else result


def undo(kind: str, record: Mapping[str, Any], site: Site) -> tuple[str, ...]:
    """Undo a step by its record; everything is tried, and all failures are raised together.

    Returns what could not be returned and does not matter for the device's next user.

    Raises:
        PermanentError: something is left to undo.
    """
    step = _of(kind)
    notes: list[str] = []
    undoers: list[tuple[str, type[Any], Callable[[Any, Site], tuple[str, ...] | None]]] = [
        ("kept", Kept, keeping.undo),
        ("ipam", IpamLease, ipam.release),
        (slaac.KEY, Advertised, slaac.undo),
        ("step", step.record, step.undo),
        ("rates", FunctionSettings, rated.undo),
    ]
    problems: list[NetdraError] = []
    for name, type_, undo_part in undoers:
        if name in record:
            try:
                notes += undo_part(msgspec.convert(record[name], type_), site) or ()
            except NetdraError as problem:
                problems.append(problem)
    if len(problems) > 1:
        raise PermanentError("; ".join(problem.what for problem in problems), code=problems[0].code)
    if problems:
        raise problems[0]
    return tuple(dict.fromkeys(notes))


def release(record: Mapping[str, Any], site: Site) -> None:
    """Give back the lease, which outlives a restart of the machine.

    Raises:
        NetdraError: the IPAM plugin failed.
    """
    if "ipam" in record:
        ipam.release(msgspec.convert(record["ipam"], IpamLease), site)


def release_planned(order: Order, site: Site) -> None:
    """Give back the lease of a step that may have run and has no record.

    Raises:
        NetdraError: the IPAM plugin failed.
    """
    lease = ipam.wanted(order)
    if lease is not None:
        ipam.release(lease, site)


def holds(kind: str, record: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of the devices that a pod has for itself through a step."""
    names: tuple[str, ...] = msgspec.convert(record["step"], _of(kind).record).holds
    return tuple(key for key in names if key)


def written(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The step's own record, of all that `observe` returned."""
    fields: Mapping[str, Any] = record["step"]
    return fields


def check(prepared: Prepared, final: StepResult, site: Site) -> tuple[str, ...]:
    """The step's drift, in words.

    Args:
        prepared: the step.
        final: the merged results of all that builds on it.
        site: where.

    Raises:
        NetdraError: the drift cannot be found out.
    """
    drift: tuple[str, ...] = prepared.step.check(prepared.order, prepared.params, final, site)
    drift += rated.check(prepared.order, site) + vf_link.check(prepared.order, site)
    if prepared.slaac is not None:
        drift += slaac.check(prepared.order, site)
    return drift if prepared.lease is None else (*drift, *ipam.check(prepared.lease, final, site))


def lost_routes(undo: Mapping[str, Any], if_name: str, site: Site) -> tuple[str, ...]:
    """The routes of a step's lease and of its device's own configuration that its interface has lost, in words.

    Args:
        undo: the step's record, as `observe` and `apply` made it.
        if_name: its interface.
        site: where.

    Raises:
        KernelError: the kernel refused.
    """
    lease = msgspec.convert(undo["ipam"], IpamLease) if "ipam" in undo else None
    kept = msgspec.convert(undo["kept"], Kept) if "kept" in undo else Kept()
    leased = lease.added.routes if lease is not None and lease.added is not None else ()
    return addressing.lost_routes(AddedAddressing(if_name=if_name, routes=(*kept.routes, *leased)), site)


def check_vf(order: Order, site: Site) -> tuple[str, ...]:
    """How the VF of a program's step differs from its settings, in words.

    Raises:
        NetdraError: the kernel refused, or the device is not a VF any more.
    """
    return (*rated.check(order, site), *sriov.check_settings(order, site), *vf_link.check(order, site))


def repair_vf(order: Order, site: Site) -> tuple[str, ...]:
    """Restore the settings that a step's VF has lost by a reset, for any executor; return the changes in words.

    Raises:
        KernelError: the kernel or a driver refused.
    """
    return (*sriov.repair_settings(order, site), *vf_link.repair(order, site))


def _of(kind: str) -> Builtin[Any, Any]:
    if kind not in TYPES:
        raise InvalidInputError(
            f'type "{kind}" is not built in', hint=f"built in are {', '.join(TYPES)}", code="ND2018"
        )
    return TYPES[kind]


def _without_nulls(value: Any) -> Any:
    """A config without the keys that have no value: they are as if they were not there, as Go programs read them."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list | tuple) else value


def _netdev(record: Record) -> Moved | None:
    """The netdev that moves with a step, as its record has it."""
    match record:
        case Moved():
            return record
        case VirtualFunction():
            return record.moved
        case RdmaMoved():
            return record.netdev
    return None


def _follow_rule(order: Order, result: StepResult, site: Site) -> None:
    """Apply the rule for default routes to the routers of an interface that a step has made."""
    if result.place_of(order.if_name) == order.previous.place_of(order.if_name):
        return
    index = unlocked.index_of(site.inside.sock, order.if_name)
    if index:
        routers.follow_rule(order.if_name, index, site.inside, requested=order.default_route)


def _autoconfigure(
    order: Order,
    params: SlaacParams,
    undo: Mapping[str, Any],
    result: StepResult,
    site: Site,
    amend: Callable[[dict[str, Any]], None],
) -> StepResult:
    """A step's result with the addresses that routers advertise to its interface."""
    record = slaac.observe(order, site)
    amend({**undo, slaac.KEY: msgspec.to_builtins(record)})
    record = slaac.apply(order, params, record, site)
    amend({**undo, slaac.KEY: msgspec.to_builtins(record)})
    return addressing.described(result, record.addresses, (), result.place_of(order.if_name))


def _with_lease(order: Order, result: StepResult, leased: StepResult, added: AddedAddressing) -> StepResult:
    """A step's result with the leased addresses on its interface."""
    place = result.place_of(order.if_name)
    ips = tuple(
        msgspec.structs.replace(leased_ip, address=address, interface=place)
        for leased_ip, address in zip(leased.ips, added.addresses, strict=True)
    )
    return msgspec.structs.replace(
        result, ips=(*result.ips, *ips), routes=(*result.routes, *leased.routes), dns=leased.dns or result.dns
    )
