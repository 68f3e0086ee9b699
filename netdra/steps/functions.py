"""The settings that a PF has for its VFs: as they are, what differs from before, and how they are restored.

A VF's step records those of its VF. A pod that has a PF can change those of all its VFs, and with a writable sysfs
their number. So the settings of all are recorded before a PF's netdev moves (`netdra.steps.moving`), and restored when
it is back. A VF that a sandbox has by then is left to that sandbox's own record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from netdra.kernel import host_use, link, pci, vf
from netdra.kernel.errors import KernelError, KernelRefusedError
from netdra.kernel.link import Link
from netdra.kernel.netlink import Socket
from netdra.kernel.vf import VF
from netdra.model.plan import PlannedDevice
from netdra.steps import settings
from netdra.steps.contract import Attempts, Record, Site
from netdra.steps.devices import USERSPACE_DRIVERS, netdev_of, netdevs_at
from netdra.steps.settings import StrandedError

_NO_MAC = "00:00:00:00:00:00"
_OF_VLAN = ("qos", "protocol")
_TO_CREATE = 0.25  # seconds that creating one VF may take: the kernel makes them one after the other, uninterruptibly


class FunctionSettings(Record, frozen=True, kw_only=True):
    """A VF, and the settings that its PF has for it; None for settings that are not to be restored."""

    address: str
    pf: str
    index: int
    before: VF


class PhysicalFunction(Record, frozen=True, kw_only=True):
    """All VFs of a PF, by the PF's address; none if it has no VFs."""

    pf: str
    vfs: tuple[FunctionSettings, ...] = ()


class ChangedFunction(NamedTuple):
    """A changed setting of a VF in words, and whether it concerns the VF's next user."""

    text: str
    matters: bool


def physical_function(address: str, site: Site) -> Link | None:
    """The netdev of a PF; its representors in switchdev mode share its address, and are skipped."""
    return netdev_of(site.host, site.sysfs, address)


def seen(address: str, site: Site) -> FunctionSettings | None:
    """All settings that a PF has for its VF just now; None for a device that is not a VF, or if the PF reports none.

    Raises:
        KernelError: the kernel refused.
    """
    pf_address = pci.pf_of(site.sysfs, address)
    pf = physical_function(pf_address, site) if pf_address else None
    functions = pci.virtual_functions(site.sysfs, pf_address) if pf is not None else {}
    if pf is None or not isinstance(functions, dict):
        return None
    index = next((number for number, function in functions.items() if function == address), -1)
    before = vf.find(site.host, pf.index, index)
    return None if before is None else FunctionSettings(address=address, pf=pf_address, index=index, before=before)


def recorded(address: str, site: Site) -> FunctionSettings | None:
    """As `seen`; if another sandbox has the PF just now, the settings from before that."""
    pf_address = pci.pf_of(site.sysfs, address)
    now = seen(address, site) if pf_address else None
    record = site.vfs_before(pf_address) if pf_address and now is None else None
    vfs = msgspec.convert(record, PhysicalFunction).vfs if record is not None else ()
    return now or next((entry for entry in vfs if entry.address == address), None)


def without_rates(before: VF, device: PlannedDevice | None) -> VF:
    """Settings without the rates of a pooled VF, which have a record of their own (`netdra.steps.rated`)."""
    is_rated = device is not None and device.pooled
    return msgspec.structs.replace(before, min_rate=None, max_rate=None) if is_rated else before


def all_of(netdev: Link, address: str, site: Site) -> PhysicalFunction | None:
    """All VFs of a PF just now; None for a device that cannot have VFs.

    Settings of a VF that another sandbox has are that sandbox's: it restores them, maybe before the PF comes back.

    Args:
        netdev: the PF's netdev on the host.
        address: its PCI address, "" for a device that is not on PCI.
        site: where.

    Raises:
        KernelError: the kernel refused.
    """
    if not address or not site.sysfs.exists(f"bus/pci/devices/{address}/sriov_numvfs"):
        return None
    addresses = pci.virtual_functions(site.sysfs, address)
    if not isinstance(addresses, dict) or not addresses:
        return PhysicalFunction(pf=address)
    return PhysicalFunction(
        pf=address,
        vfs=tuple(
            FunctionSettings(
                address=addresses[before.index],
                pf=address,
                index=before.index,
                before=VF(index=before.index) if _user(addresses[before.index], site) else before,
            )
            for before in vf.read(site.host, netdev.index)
            if before.index in addresses
        ),
    )


def differences(before: VF, now: VF, called: str) -> Iterator[ChangedFunction]:
    """The settings of a VF at its PF that differ from before, without those that its driver did not report before."""
    for field, (words, matters) in settings.FUNCTION.items():
        was, is_ = getattr(before, field), getattr(now, field)
        if before.vlan is None and field in _OF_VLAN:
            continue
        if was is not None and was != is_:
            yield ChangedFunction(f"{called} has {words} {_word(is_)}, not {_word(was)}", matters)


def differing(before: VF, now: VF) -> VF:
    """The former settings that differ now."""
    same_vlan = (before.vlan, before.qos, before.protocol) == (now.vlan, now.qos, now.protocol)
    same_rates = (before.min_rate, before.max_rate) == (now.min_rate, now.max_rate)
    return VF(
        index=before.index,
        mac=None if before.mac == now.mac else before.mac,
        vlan=None if same_vlan else before.vlan,
        qos=before.qos,
        protocol=before.protocol,
        spoof_check=None if before.spoof_check == now.spoof_check else before.spoof_check,
        trust=None if before.trust == now.trust else before.trust,
        link_state=None if before.link_state == now.link_state else before.link_state,
        min_rate=None if same_rates else before.min_rate,
        max_rate=None if same_rates else before.max_rate,
        node_guid=None if before.node_guid == now.node_guid else before.node_guid,
        port_guid=None if before.port_guid == now.port_guid else before.port_guid,
    )


def present(record: FunctionSettings, site: Site) -> VF | None:
    """A VF as its PF has it just now; None if the PF is not on the host, or has no such VF.

    Raises:
        KernelError: the kernel refused.
    """
    pf = physical_function(record.pf, site)
    return vf.find(site.host, pf.index, record.index) if pf is not None else None


def without_forgotten_mac(record: FunctionSettings, now: VF | None, site: Site) -> FunctionSettings:
    """The record without a MAC that the PF has forgotten by itself, and that its VF has no driver to set again.

    A PF forgets the MAC that its VF has set when the VF is reset, as vfio does (drivers/net/ethernet/intel/igb,
    igb_vf_reset_event). Set through the PF, the MAC would be one that no driver of the VF may change.
    """
    has_driver = pci.driver_of(site.sysfs, record.address) not in (*USERSPACE_DRIVERS, "")
    if now is None or now.mac != _NO_MAC or has_driver:
        return record
    return msgspec.structs.replace(record, before=msgspec.structs.replace(record.before, mac=None))


def is_as_before(record: FunctionSettings, now: VF | None) -> bool:
    """Whether a VF has all its former settings at its PF, its MAC among them."""
    return now is not None and not any(differences(record.before, now, ""))


def restore_settings(record: FunctionSettings, site: Site, now: VF | None = None) -> tuple[str, ...]:
    """Give the PF back the settings that it had for its VF. The MAC it forgets instead, so that the VF may set its own.

    A driver may refuse one of them, such as the rates while the PF has no link: the others are restored anyway.

    Args:
        record: the VF as it was.
        site: where.
        now: the VF as its PF has it, if that has just been read.

    Raises:
        NetdraError: the PF's driver refused some; the text has each.
    """
    pf = physical_function(record.pf, site)
    if pf is None:
        return (f"PF {record.pf} of VF {record.address} is gone from the host: its settings went with it",)
    now = now or present(record, site)
    if now is None:
        return (f'PF "{pf.name}" has no VF {record.index} any more',)
    return _restore(record, now, pf, site)


def _restore(record: FunctionSettings, now: VF, pf: Link, site: Site) -> tuple[str, ...]:
    to_set = differing(record.before, now)
    attempts = Attempts()
    if to_set.mac is not None:
        # With any MAC, the VF must be able to set its own again, as it must in a bond: the PF forgets its MAC, and
        # accepts the one that the VF then sets. Some drivers refuse to forget; the VF's next user sets its own.
        try:
            vf.change(site.host, pf.index, VF(index=record.index, mac=_NO_MAC))
        except KernelError as problem:
            attempts.notes.append(problem.what)
    for setting in vf.apart(msgspec.structs.replace(to_set, mac=None)):
        attempts.run(partial(_set, setting, now, pf, site))
    return attempts.result()


def _set(setting: VF, now: VF, pf: Link, site: Site) -> tuple[str, ...]:
    """Give the PF a setting; a limit that the driver has dropped, and does not take without a link, is a note."""
    try:
        vf.change(site.host, pf.index, setting)
    except KernelRefusedError as problem:
        # Drivers drop the rates when the speed of the link changes (drivers/net/ethernet/intel/igb).
        is_dropped = setting.max_rate is not None and not now.max_rate and not now.min_rate
        if not is_dropped or (pf.is_up and not pf.lacks_carrier):
            raise
        return (f'PF "{pf.name}" has no link, and has dropped the rates of VF {now.index}: {problem.what}',)
    return ()


def restore_mac(record: FunctionSettings, site: Site) -> None:
    """Give the PF back the MAC that it had for its VF, unless the VF has set that MAC by itself.

    Raises:
        StrandedError: another setting, which matters to the VF's next user, is not as it was.
        KernelError: the kernel refused.
    """
    pf, now = physical_function(record.pf, site), present(record, site)
    if pf is None or now is None:
        return
    if record.before.mac not in (None, _NO_MAC, now.mac):
        vf.change(site.host, pf.index, VF(index=record.index, mac=record.before.mac))
    without_rates = msgspec.structs.replace(record.before, min_rate=None, max_rate=None)  # `_set` has noted these
    changed = differences(without_rates, now, f"VF {record.index} of {pf.name}")
    left = [difference.text for difference in changed if difference.matters]
    if left:
        raise StrandedError("; ".join(left), hint="set it by hand; netdra tries again by itself", code="ND2027")


def differences_of_all(record: PhysicalFunction, pf: Link, site: Site) -> Iterator[ChangedFunction]:
    """How a PF's VFs differ from before: their number, and the settings of those that no sandbox has.

    Raises:
        KernelError: the kernel refused.
    """
    now = site.sysfs.number(f"bus/pci/devices/{record.pf}/sriov_numvfs")
    if isinstance(now, int) and now != len(record.vfs):
        yield ChangedFunction(f'PF "{pf.name}" has {now} VFs, not {len(record.vfs)}', matters=True)
    for _, _, changed in _changed(record, pf, site):
        yield from changed


def restore_all(record: PhysicalFunction, pf: Link, site: Site) -> tuple[str, ...]:
    """Give a PF that has come back to the host its number of VFs and its settings for them.

    A VF that a sandbox has is left as it is: the sandbox restores it.

    Raises:
        NetdraError: the driver refused some, or VFs are missing or too many and cannot be created or removed.
    """
    attempts = Attempts()
    attempts.run(lambda: _restore_number(record, pf, site))
    for entry, now, changed in _changed(record, pf, site):
        site.restored.extend(difference.text for difference in changed)
        attempts.run(partial(_restore, entry, now, pf, site))
        if entry.before.mac != now.mac:
            attempts.run(partial(_set_own_mac, entry, site))
        attempts.run(partial(restore_mac, entry, site))
    return attempts.result()


def _changed(
    record: PhysicalFunction, pf: Link, site: Site
) -> Iterator[tuple[FunctionSettings, VF, tuple[ChangedFunction, ...]]]:
    """The VFs of a PF whose settings differ from before, as they are, with the differences."""
    functions = {function.index: function for function in vf.read(site.host, pf.index)} if record.vfs else {}
    for former in record.vfs:
        now = functions.get(former.index)
        entry = without_forgotten_mac(former, now, site)
        changed = () if now is None else tuple(differences(entry.before, now, f"VF {entry.index} of {pf.name}"))
        if changed and now is not None and not _user(entry.address, site):
            yield entry, now, changed


def set_mac(sock: Socket, which: str | int, mac: str) -> None:
    """Give a device its MAC; if its driver refused it at first, the device is down afterwards.

    Many drivers take another MAC only while the device is down. A VF may not change its MAC once its PF holds it to
    one, be it the same, nor after its PF was reset. It learns the PF's MAC, and may change its own again, when its
    driver resets it, which most do when it is brought up, some when it is set down (drivers/net/ethernet/intel/igbvf,
    igbvf_down).

    Raises:
        KernelError: the driver refused it anyway.
    """
    try:
        link.change(sock, which, mac=mac)
    except KernelError:
        link.change(sock, which, up=True)
        link.change(sock, which, up=False)
        if link.get(sock, which).address != mac:
            link.change(sock, which, mac=mac)


def _set_own_mac(entry: FunctionSettings, site: Site) -> None:
    """Give the VF itself the MAC that it had, so that the PF takes it as the VF's own; `restore_mac` does the rest."""
    netdev, mac = netdev_of(site.host, site.sysfs, entry.address), entry.before.mac
    if netdev is None or mac in (None, _NO_MAC):
        return
    with suppress(KernelError):
        set_mac(site.host, netdev.index, mac)
        if netdev.permanent_address not in ("", mac):
            # A VF has the MAC that its PF has for it as its permanent one, from its driver's next reset on.
            link.change(site.host, netdev.index, up=True)
            link.change(site.host, netdev.index, up=False)
        link.change(site.host, netdev.index, up=netdev.is_up)


def _restore_number(record: PhysicalFunction, pf: Link, site: Site) -> tuple[str, ...]:
    """Create VFs that are missing, or remove those that are too many, unless any of them is in use."""
    path = f"bus/pci/devices/{record.pf}/sriov_numvfs"
    now, wanted = site.sysfs.number(path), len(record.vfs)
    addresses = pci.virtual_functions(site.sysfs, record.pf)
    if now == wanted or not isinstance(now, int) or not isinstance(addresses, dict):
        return ()
    what = f'PF "{pf.name}" has {now} VFs, not {wanted}'
    by_hand = f"echo {wanted} > {site.sysfs.root}/{path}"
    used = next(filter(None, (_use(address, site) for address in addresses.values())), "")
    if used:
        raise StrandedError(
            f"{what}, and {used}", hint=f"when no VF is used any more: echo 0, and then {by_hand}", code="ND2028"
        )
    if site.remaining() < _TO_CREATE * wanted:
        raise StrandedError(
            what, hint=f"netdra has no time to create them; create them by hand: {by_hand}", code="ND2029"
        )
    for number in dict.fromkeys((0, wanted) if now else (wanted,)):
        site.sysfs.write(path, str(number))  # drivers take another number only from 0
    site.restored.append(what)
    return ()


def _user(address: str, site: Site) -> str:
    """The other sandbox that has a VF or a port of it, "" for none."""
    return site.holder(address) or site.port_holder(address)


def _use(address: str, site: Site) -> str:
    """Why a VF must not be removed, in words; "" if it is not in use. Its driver may have no netdev on the host."""
    other = _user(address, site)
    if other:
        return f"sandbox {other} has VF {address}"
    netdevs = netdevs_at(site.host, site.sysfs, address)
    for netdev in netdevs:
        used = host_use.read(site.host, netdev, site.sysfs, host_use.configuration(site.host, netdev))
        if used:
            return f'the host uses VF "{netdev.name}": {", ".join(used)}'
    driver = pci.driver_of(site.sysfs, address)
    return f"VF {address} (driver {driver}) has no interface on the host" if driver and not netdevs else ""


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "unknown" if value is None else str(value) or "none"
