"""The sriov step: a virtual function is set up through its PF, moves into the pod, and comes back as it was.

Takes the parameters of the CNI plugin of that name too (`vlanQoS`, `vlanProto`, `link_state`, `min_tx_rate` ...). A VF
without a netdev, because a userspace driver has it, is set up anyway, and its result is a device. A step whose VF
has a port in Neutron takes the port's values (docs/neutron.md). Settings that isolate the port (MAC, VLAN, the spoof
check, a port that is down) must be as the port has them; if the driver refuses another setting, the step notes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from netdra.kernel import pci, vf
from netdra.kernel.link import Link
from netdra.kernel.vf import VF
from netdra.model.errors import InvalidInputError, PermanentError
from netdra.model.plan import PlannedPort
from netdra.model.policy import ResetPolicy
from netdra.model.result import StepDevice, StepResult
from netdra.steps import functions, moving, ported, reset
from netdra.steps.contract import (
    Attempts,
    Builtin,
    Count,
    MacText,
    Mtu,
    Order,
    Params,
    Site,
    appended,
    check_mac,
)
from netdra.steps.devices import USERSPACE_DRIVERS, check_driver, check_isolated, device_nodes, iommu_group, netdev_of
from netdra.steps.drift import check_interface
from netdra.steps.functions import FunctionSettings
from netdra.steps.netdevs import Moved

OnOff = Literal["on", "off"] | bool
VlanNumber = Annotated[int, msgspec.Meta(ge=0, le=4094)]
Priority = Annotated[int, msgspec.Meta(ge=0, le=7)]
Protocol = Literal["802.1q", "802.1Q", "802.1ad"]
LinkState = Literal["auto", "enable", "disable"]


class SriovParams(Params, frozen=True, kw_only=True):
    """The settings that the PF is to have for the VF; a setting that is not given stays. Rates are Mbit/s."""

    vlan: VlanNumber | None = None
    qos: Priority | None = None
    vlan_qos: Priority | None = msgspec.field(default=None, name="vlanQoS")
    proto: Protocol | None = None
    vlan_proto: Protocol | None = None
    mac: MacText | None = None
    spoofchk: OnOff | None = None
    trust: OnOff | None = None
    link_state: LinkState | None = None
    link_state_: LinkState | None = msgspec.field(default=None, name="link_state")
    min_tx_rate: Count | None = None
    max_tx_rate: Count | None = None
    min_tx_rate_: Count | None = msgspec.field(default=None, name="min_tx_rate")
    max_tx_rate_: Count | None = msgspec.field(default=None, name="max_tx_rate")
    mtu: Mtu | None = None
    pci_bus_id: str = msgspec.field(default="", name="pciBusID")
    log_level: str = ""
    log_file: str = ""

    @property
    def wanted_mac(self) -> str | None:
        """The MAC, from wherever it was given."""
        mac = self.runtime_config.get("mac") or self.mac
        return mac.lower() if isinstance(mac, str) else None


class VirtualFunction(FunctionSettings, frozen=True, kw_only=True):
    """A VF as it is: its settings at its PF, which of them the step changes, and its netdev if it has one.

    `driver` is the driver that has the VF; a VF that a userspace driver has is reset unless `reset` is "Never".
    """

    changes: tuple[str, ...] = ()
    moved: Moved | None = None
    driver: str = ""
    reset: ResetPolicy = "Never"

    @property
    def holds(self) -> tuple[str, ...]:
        """The VF's PCI address, under which holders are recorded."""
        return (self.address,)


def _prepare(order: Order, params: SriovParams) -> None:
    params = _with_port(params, order.port)
    if order.port is not None:
        ported.added(order, order.port)
    if params.wanted_mac:
        check_mac(params.wanted_mac, f"{order.called}, mac")
    named = _named(params)
    if order.device is None and not named:
        raise InvalidInputError(
            f"{order.called}: no device was allocated for it", hint="name a VF by pciBusID", code="ND2069"
        )
    if order.device is not None and not order.device.pci_address:
        raise InvalidInputError(
            f'{order.called}: device "{order.device.device}" is not a VF: it does not have a PCI address', code="ND2070"
        )
    if order.device is not None and named and named != order.device.pci_address:
        raise InvalidInputError(
            f'{order.called}: deviceID "{named}" is not that of the allocated device ({order.device.pci_address})',
            code="ND2071",
        )
    if (_first(params.qos, params.vlan_qos) or _protocol(params) == "802.1ad") and not params.vlan:
        raise InvalidInputError(f"{order.called}: qos and proto require vlan", code="ND2072")
    low, high = _rates(params)
    if low and high and low > high:
        raise InvalidInputError(f"{order.called}: minTxRate {low} exceeds maxTxRate {high}", code="ND2073")


def _observe(order: Order, params: SriovParams, site: Site) -> VirtualFunction:
    params = _own(params, order)
    address = order.device.pci_address if order.device is not None else _named(params)
    pf_address = pci.pf_of(site.sysfs, address)
    if not pf_address:
        raise PermanentError(
            f"{order.called}: {address} is not a VF of this host", hint="see /sys/bus/pci/devices", code="ND2074"
        )
    index = _index(order, address, pf_address, site)
    pf = functions.physical_function(pf_address, site)
    if pf is None:
        raise PermanentError(
            f"{order.called}: PF {pf_address} of VF {address} has no netdev on the host", code="ND2075"
        )
    now = vf.find(site.host, pf.index, index)
    if now is None:
        raise PermanentError(f'{order.called}: PF "{pf.name}" does not report its VF {index}', code="ND2076")
    driver = pci.driver_of(site.sysfs, address)
    if driver == "vfio-pci":
        check_isolated(order.called, address, site.sysfs)
    return VirtualFunction(
        address=address,
        pf=pf_address,
        index=index,
        before=functions.without_rates(now, order.device),
        changes=_names(_wanted(index, now, params)),
        moved=_netdev(order, address, site),
        driver=driver,
        reset=reset.policy_of(address, reset.wanted(order.device), site),
    )


def _apply(order: Order, params: SriovParams, record: VirtualFunction, site: Site) -> StepResult:
    pf = functions.physical_function(record.pf, site)
    if pf is None:
        raise PermanentError(f"{order.called}: PF {record.pf} has just gone", code="ND2077")
    params = _own(params, order)
    now = vf.find(site.host, pf.index, record.index)
    if now is None:
        raise PermanentError(f'{order.called}: VF {record.index} of PF "{pf.name}" has just gone', code="ND2078")
    wanted = _wanted(record.index, now, params)
    # A setting with the right value is not asked for: a driver may be unable to set even the value that it always has.
    needed = msgspec.structs.replace(functions.differing(wanted, now), mac=wanted.mac)
    may_fail: tuple[VF, ...] = ()
    if order.port is not None:
        needed, may_fail = ported.split(needed, now)
    if order.port is None:
        site.notes.extend(_doubts(wanted, params.mtu, pf, site))
    vf.change(site.host, pf.index, needed)
    for setting in may_fail:
        ported.attempt(setting, now, record.address, pf, site)
    if record.moved is not None:
        mtu = params.mtu if order.port is None else ported.choose_mtu(order, order.port, params.mtu, pf, site)
        inside = moving.move_in(record.moved, site, record.address, mtu=mtu, mac=params.wanted_mac)
        result = appended(order, inside)
        return result if order.port is None else ported.add_addresses(order, order.port, result, site)
    device = StepDevice(
        pci_address=record.address,
        iommu_group=iommu_group(record.address, site.sysfs),
        device_nodes=device_nodes(record.address, site.sysfs),
    )
    result = msgspec.structs.replace(order.previous, devices=(*order.previous.devices, device))
    if order.port is None:
        return result
    return ported.with_addresses(order.port, ported.added(order, order.port), result, None)


def _doubts(wanted: VF, mtu: int | None, pf: Link, site: Site) -> Iterator[str]:
    """Values that drivers accept although the NIC may drop the VF's packets for them, in words."""
    if mtu is not None and mtu > pf.mtu:
        yield f'mtu {mtu} exceeds the {pf.mtu} of PF "{pf.name}": the NIC may drop longer packets of the VF'
    if wanted.mac is not None:
        for other in vf.read(site.host, pf.index):
            if other.index != wanted.index and (other.mac, other.vlan or 0) == (wanted.mac, wanted.vlan or 0):
                yield f'VF {other.index} of PF "{pf.name}" also has MAC {wanted.mac}: frames reach one of the two'


def _undo(record: VirtualFunction, site: Site) -> tuple[str, ...]:
    other = site.holder(record.address)
    if other:
        return (f"VF {record.address} is sandbox {other}'s by now and left alone",)
    # The PF first: a driver lets its VF take the old MAC only when the PF no longer insists on another.
    attempts, moved = Attempts(), record.moved
    now = functions.present(record, site)
    changed = _foreign(record, now)
    former = functions.without_forgotten_mac(record, now, site)
    attempts.run(lambda: functions.restore_settings(former, site, now))
    if moved is not None:
        attempts.run(lambda: moving.give_back(moved, site, changed))
    elif record.driver in USERSPACE_DRIVERS and record.reset != "Never":
        attempts.run(lambda: reset.reset(record.address, record.driver, (), site))
    # A reset, and the VF's own MAC, have changed the settings once more.
    if site.restored or not functions.is_as_before(former, now):
        attempts.run(lambda: functions.restore_mac(former, site))
    return attempts.result()


def _foreign(record: VirtualFunction, now: VF | None) -> tuple[str, ...]:
    """The settings of the VF at its PF that were changed by others than the step, in words."""
    if now is None:
        return ()
    before = msgspec.structs.replace(record.before, **dict.fromkeys(record.changes))
    changed = functions.differences(before, now, f"VF {record.address}")
    return tuple(text for text, matters in changed if matters)


def _check(order: Order, params: SriovParams, final: StepResult, site: Site) -> tuple[str, ...]:
    address = order.device.pci_address if order.device is not None else _named(params)
    drift = list(_check_settings(order, params, site))
    if not any(interface.pci_id == address for interface in final.interfaces):
        return tuple(drift)
    drift += check_interface(order.if_name, final, site)
    if order.port is not None and order.port.assign_addresses:
        drift += ported.lost_routes(order, order.port, site)
    return tuple(drift)


def check_settings(order: Order, site: Site) -> tuple[str, ...]:
    """Whether a VF that a program set up through its PF has the settings of the program's config, in words.

    Raises:
        KernelError: the kernel refused.
    """
    params = _of_program(order)
    return () if params is None else _check_settings(order, params, site)


def repair_settings(order: Order, site: Site) -> tuple[str, ...]:
    """Give the PF the settings that it has lost for a step's VF; return what was done, in words.

    Raises:
        KernelError: the PF's driver refused one.
    """
    params = _of_program(order)
    held = None if params is None else _held(order, params, site)
    lost = () if held is None else _lost(order, held)
    if held is None or not lost:
        return ()
    kept = {name: None for name in ported.SETTINGS if name not in lost}
    vf.change(site.host, held.pf.index, msgspec.structs.replace(held.wanted, **kept))
    return tuple(
        f"VF {held.address}: {name.replace('_', ' ')} was set to {getattr(held.wanted, name)}" for name in lost
    )


class _Held(NamedTuple):
    """A VF's settings: as its PF holds them now, and as they are to be."""

    address: str
    pf: Link
    now: VF
    wanted: VF


def _held(order: Order, params: SriovParams, site: Site) -> _Held | None:
    """The settings of a step's VF; None if it has no PF on the host."""
    params = _own(params, order)
    address = order.device.pci_address if order.device is not None else _named(params)
    pf_address = pci.pf_of(site.sysfs, address)
    pf = functions.physical_function(pf_address, site) if pf_address else None
    if pf is None:
        return None
    index = _index(order, address, pf_address, site)
    now = vf.find(site.host, pf.index, index) or VF(index=index)
    return _Held(address, pf, now, _wanted(index, now, params))


def _lost(order: Order, held: _Held) -> tuple[str, ...]:
    """The names of the settings that are not as they are to be."""
    values = ((name, getattr(held.wanted, name), getattr(held.now, name)) for name in ported.SETTINGS)
    return tuple(
        name
        for name, value, now in values
        if value not in (None, now) and not ported.is_known(order, held.address, name, value, now)
    )


def _check_settings(order: Order, params: SriovParams, site: Site) -> tuple[str, ...]:
    held = _held(order, params, site)
    if held is None:
        address = order.device.pci_address if order.device is not None else _named(params)
        return (f"VF {address} has no PF on the host",)
    return tuple(
        f"VF {held.address}: {name.replace('_', ' ')} is {getattr(held.now, name)}, not {getattr(held.wanted, name)}"
        for name in _lost(order, held)
    )


def _of_program(order: Order) -> SriovParams | None:
    """A step's config as parameters; None if it is of another type, or has what only a program knows."""
    try:
        return msgspec.convert(order.config, SriovParams) if order.type == "sriov" else None
    except msgspec.ValidationError:
        return None


def _with_port(params: SriovParams, port: PlannedPort | None) -> SriovParams:
    """The parameters with the values of the VF's port in Neutron; the MTU depends on the PF (`netdra.steps.ported`)."""
    if port is None:
        return params
    settings = port.settings
    return msgspec.structs.replace(
        params,
        mac=settings.mac,
        vlan=settings.vlan,
        spoofchk=settings.spoofchk,
        trust=settings.trust,
        link_state=settings.link_state,
        min_tx_rate=settings.min_tx_rate,
        max_tx_rate=settings.max_tx_rate,
    )


def _own(params: SriovParams, order: Order) -> SriovParams:
    """The parameters, or the port's values, that the step carries out itself.

    A VF that was allocated bandwidth gets its rates otherwise (`netdra.steps.rated`).
    """
    params = _with_port(params, order.port)
    if order.device is None or not order.device.bandwidth:
        return params
    return msgspec.structs.replace(params, min_tx_rate=None, max_tx_rate=None, min_tx_rate_=None, max_tx_rate_=None)


def _wanted(index: int, now: VF, params: SriovParams) -> VF:
    """The settings to set. VLAN with priority and protocol go together, and so do the two rates."""
    vlan = params.vlan
    low, high = _rates(params)
    rated = low is not None or high is not None
    return VF(
        index=index,
        mac=params.wanted_mac,
        vlan=vlan,
        qos=_first(params.qos, params.vlan_qos, 0),
        protocol=_protocol(params),
        spoof_check=_is_on(params.spoofchk),
        trust=_is_on(params.trust),
        link_state=params.link_state or params.link_state_,
        min_rate=_first(low, now.min_rate, 0) if rated else None,
        max_rate=_first(high, now.max_rate, 0) if rated else None,
    )


def _names(wanted: VF) -> tuple[str, ...]:
    """The settings that the step changes itself, as `VF` names them."""
    names = [name for name in ported.SETTINGS if getattr(wanted, name) is not None]
    return (*names, *(("qos", "protocol") if "vlan" in names else ()))


def _netdev(order: Order, address: str, site: Site) -> Moved | None:
    """The VF's netdev, before it is moved; None if a userspace driver has the VF."""
    netdev = netdev_of(site.host, site.sysfs, address)
    if netdev is not None:
        return moving.observe(order, netdev, site, with_function=False)
    driver = pci.driver_of(site.sysfs, address)
    if order.device is not None:
        check_driver(order.called, order.device, driver, site.sysfs, has_netdev=False)
    if driver in USERSPACE_DRIVERS:
        return None
    raise PermanentError(
        f"{order.called}: VF {address} has no netdev on the host (driver: {driver or 'none'})",
        hint="see whether another pod has it, and whether its driver is loaded",
        code="ND2079",
    )


def _index(order: Order, address: str, pf_address: str, site: Site) -> int:
    functions = pci.virtual_functions(site.sysfs, pf_address)
    numbers = (
        [number for number, function in functions.items() if function == address] if isinstance(functions, dict) else []
    )
    if not numbers:
        raise PermanentError(f"{order.called}: PF {pf_address} does not list VF {address}", code="ND2080")
    return numbers[0]


def _named(params: SriovParams) -> str:
    device_id = params.runtime_config.get("deviceID")
    return params.pci_bus_id or params.device_id or (device_id if isinstance(device_id, str) else "")


def _rates(params: SriovParams) -> tuple[int | None, int | None]:
    return _first(params.min_tx_rate, params.min_tx_rate_), _first(params.max_tx_rate, params.max_tx_rate_)


def _protocol(params: SriovParams) -> str:
    return (params.proto or params.vlan_proto or "802.1q").lower()


def _is_on(value: OnOff | None) -> bool | None:
    return None if value is None else value in (True, "on")


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


SRIOV = Builtin(
    params=SriovParams,
    record=VirtualFunction,
    prepare=_prepare,
    observe=_observe,
    apply=_apply,
    undo=_undo,
    check=_check,
)
