"""The rates of a pooled VF, which are its claim's bandwidth, for any step that takes the VF and any executor.

Called by `netdra.steps.builtin` and, for programs, by `netdra.chain.execute`, after the step itself: a driver that is
bound to the VF, or a program, may reset its rates. The PF limits the VF to its allocated bandwidth, and guarantees as
much where its driver can. A driver that can do neither fails the step: the other claims of the PF were promised their
parts of the link, and only limits on all VFs keep these promises. Few drivers guarantee a rate, so a step continues
without the guarantee, and notes that.

Some drivers (drivers/net/ethernet/intel/igb, ixgbe) change no rate while the PF has no link, not even to none. A pod
must be able to end then anyway. So a VF may keep a limit, and each claim has its rates set, also one without
bandwidth.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from netdra.kernel import vf
from netdra.kernel.errors import KernelMissingError, KernelRefusedError
from netdra.kernel.link import Link
from netdra.kernel.vf import VF
from netdra.model.errors import PermanentError
from netdra.model.plan import MAX_RATE_KEYS, MIN_RATE_KEYS
from netdra.steps import functions, ported
from netdra.steps.contract import Order, Site
from netdra.steps.functions import FunctionSettings


class Rates(NamedTuple):
    """The rates of a VF, in Mbit/s: `least` is guaranteed (0 for nothing), and `most` is never exceeded.

    `must` reports that the step's config asks for the guarantee, so that the step fails without it.
    """

    least: int
    most: int
    must: bool = False


def wanted(order: Order) -> Rates | None:
    """The rates of a step's device; None if it is not a pooled VF, or has no bandwidth and the step sets rates itself.

    A rate of the step's config or of the VF's port in Neutron counts if it is below the allocated one. The
    rules refuse a config that states more (`netdra.rules.values`).
    """
    if order.device is None or not order.device.pooled:
        return None
    bandwidth = order.device.bandwidth
    least: int | None = None
    most: int | None = None
    if order.port is not None:
        settings = order.port.settings
        least, most = settings.min_tx_rate or None, settings.max_tx_rate or None
    elif order.type == "sriov":
        least, most = _first(order, MIN_RATE_KEYS), _first(order, MAX_RATE_KEYS)
    if not bandwidth:
        return Rates(0, 0) if order.port is None and (least, most) == (None, None) else None
    high = min(most or bandwidth, bandwidth)
    return Rates(
        least=min(bandwidth if least is None else least, high),
        most=high,
        must=order.port is None and bool(least),
    )


def observe(order: Order, site: Site) -> FunctionSettings | None:
    """A step's VF with the rates that it has, to be recorded before they are set; None if none are to be set.

    Raises:
        PermanentError: the device is not a VF, or its PF reports none.
        KernelError: the kernel refused.
    """
    rates = wanted(order)
    return None if rates is None else _seen(order, rates, site)


def apply(order: Order, site: Site) -> None:
    """Set the rates of a step's VF; `site` gets a note if its driver guarantees none, or leaves an old limit.

    Raises:
        PermanentError: the driver does not limit the VF, or does not guarantee the rate that the config asks for.
        KernelError: the PF or the VF is gone, or the driver is busy.
    """
    rates = wanted(order)
    seen = None if rates is None else _seen(order, rates, site)
    if rates is None or seen is None:
        return
    pf = functions.physical_function(seen.pf, site)
    assert pf is not None, "it was there a moment ago"
    least, most = seen.before.min_rate or 0, seen.before.max_rate or 0
    if (least, most) == (rates.least, rates.most):
        return
    if not rates.most:
        site.notes.extend(
            _restored(msgspec.structs.replace(seen, before=VF(index=seen.index, min_rate=0, max_rate=0)), site)
        )
        return
    try:
        vf.change(site.host, pf.index, VF(index=seen.index, min_rate=rates.least, max_rate=rates.most))
    except KernelMissingError:
        raise
    except KernelRefusedError as problem:
        if rates.must or rates.least == least:
            raise _refused(order, pf, seen, rates, problem) from None
        note = f"{ported.noted(seen.address, 'min_rate')}{least}, not {rates.least}: {problem.what}"
        if most != rates.most:
            _limit(order, pf, seen, rates._replace(least=least), site)
        site.notes.append(note)


def check(order: Order, site: Site) -> tuple[str, ...]:
    """The rates that differ from those of `apply`, in words.

    Raises:
        PermanentError: the device is not a VF any more.
        KernelError: the kernel refused.
    """
    rates = wanted(order)
    seen = None if rates is None else _seen(order, rates, site)
    if rates is None or seen is None:
        return ()
    return tuple(
        f"VF {seen.address}: {name.replace('_', ' ')} is {now}, not {value}"
        for name, value, now in (
            ("min_rate", rates.least, seen.before.min_rate),
            ("max_rate", rates.most, seen.before.max_rate),
        )
        if value != (now or 0) and not ported.is_known(order, seen.address, name, value, now)
    )


def undo(record: FunctionSettings | None, site: Site) -> tuple[str, ...]:
    """Give the VF the rates back that it had by a record, and nothing else of that; done already is not an error.

    Returns what could not be returned while the PF has no link.

    Raises:
        KernelError: the PF's driver refused.
    """
    if record is None:
        return ()
    other = site.holder(record.address)
    if other:
        return (f"VF {record.address} is sandbox {other}'s by now and left alone",)
    before = VF(index=record.index, min_rate=record.before.min_rate, max_rate=record.before.max_rate)
    return _restored(msgspec.structs.replace(record, before=before), site)


def _restored(record: FunctionSettings, site: Site) -> tuple[str, ...]:
    """Set the rates of a record; a driver that refuses that without a link is a note."""
    try:
        return functions.restore_settings(record, site)
    except KernelRefusedError as problem:
        pf = functions.physical_function(record.pf, site)
        if pf is None or (pf.is_up and not pf.lacks_carrier):
            raise
        keeps = f'VF {record.address} keeps its rates, because PF "{pf.name}" has no link'
        return (f"{keeps}: {problem.what}",)


def _limit(order: Order, pf: Link, seen: FunctionSettings, rates: Rates, site: Site) -> None:
    try:
        vf.change(site.host, pf.index, VF(index=seen.index, min_rate=rates.least, max_rate=rates.most))
    except KernelMissingError:
        raise
    except KernelRefusedError as problem:
        raise _refused(order, pf, seen, rates, problem) from None


def _refused(
    order: Order, pf: Link, seen: FunctionSettings, rates: Rates, problem: KernelRefusedError
) -> PermanentError:
    limit = f"guaranteed {rates.least} and limited to {rates.most}" if rates.must else f"limited to {rates.most}"
    return PermanentError(
        f"{order.called}: VF {seen.address} cannot be {limit} Mbit/s, the bandwidth of its claim: {problem.what}",
        hint=f'check that PF "{pf.name}" has a link (ip link show {pf.name}), and that its driver supports the limit '
        "(dmesg); a claim without bandwidth needs no limit",
        code=problem.code,
    )


def _seen(order: Order, rates: Rates, site: Site) -> FunctionSettings | None:
    """The VF as its PF has it; None if its PF cannot be asked, which is an error only where there is a limit to set."""
    assert order.device is not None
    seen = functions.seen(order.device.pci_address, site)
    if seen is None and rates.most:
        raise PermanentError(
            f"{order.called}: {order.device.pci_address} was allocated bandwidth, but no PF of this host reports it as "
            "a VF",
            code="ND2048",
        )
    return seen


def _first(order: Order, keys: tuple[str, ...]) -> Any:
    return next((order.config[key] for key in keys if order.config.get(key) is not None), None)
