"""A netdev that is on the host again becomes what it was there: name, MTU, MAC, settings, addresses, BPF programs.

Called by `moving` and `allocated` when a device has come back, and by `vf_link` in the pod. All parts are tried;
a refusal that concerns the host alone is a note.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from functools import partial

import msgspec

from netdra.kernel import address, link, neighbour, route, unlocked
from netdra.kernel.errors import KernelError, KernelExistsError
from netdra.kernel.link import Link
from netdra.kernel.netlink import Socket
from netdra.steps import functions, node_configuration, programs, rdma_state, settings
from netdra.steps.contract import Attempts, Site
from netdra.steps.netdevs import Moved
from netdra.steps.settings import ChangedSetting, DeviceSettings

# The errors of VF drivers when the PF holds the VF to another MAC.
_MAC_NOT_ALLOWED = (errno.EADDRNOTAVAIL, errno.EPERM)


def restore(moved: Moved, back: Link, site: Site, *, same_settings: bool = False) -> tuple[str, ...]:
    """Make the device, which is on the host, what it was there, and return what could not be restored, in words.

    Args:
        moved: the device as it was.
        back: its netdev now.
        site: where.
        same_settings: whether its settings have just been compared and are as they were.

    Raises:
        NetdraError: the kernel or the driver refused the name, the MTU, the MAC, or a setting that matters to the
            device's next user; all else is restored.
    """
    sock, index = site.host, back.index
    attempts = Attempts()
    attempts.run(lambda: programs.restore(f'netdev "{moved.name}"', moved.programs, back, sock))
    if back.name != moved.name:
        attempts.run(lambda: _restore_name(moved, back, site))
    if moved.mtu != back.mtu:
        attempts.run(lambda: _restore_mtu(site, index, moved.mtu))
    attempts.run(lambda: _restore_mac(moved, back, site))
    _restore_alt_names(moved, back, site, attempts)
    master = link.find(sock, moved.master) if moved.master else None
    if master is not None and back.master != master.index:
        _attempt(attempts, lambda: link.change(sock, index, master=master.index))
    # Before it is up: an address that comes by itself must not come where IPv6 was off.
    left: list[ChangedSetting] = []
    if not same_settings:
        attempts.run(lambda: left.extend(_restore_settings(moved, back, site)))
    name = moved.name if unlocked.index_of(sock, moved.name) == index else back.name
    if moved.up and not unlocked.is_up(sock, name):
        _attempt(attempts, lambda: link.change(sock, index, up=True))
    if left:
        # Some drivers take some settings only while the device is up.
        called, former = f'netdev "{moved.name}"', moved.settings
        attempts.run(lambda: _conclude_settings(called, former, link.get(sock, index), site))
    restore_addressing(moved, index, sock, attempts)
    vfs, rdma = moved.vfs, moved.rdma
    if rdma is not None:
        attempts.run(lambda: rdma_state.restore(rdma, site))
    if vfs is not None:
        attempts.run(lambda: functions.restore_all(vfs, link.get(sock, index), site))
    return attempts.result()


def is_changed(moved: Moved, back: Link) -> bool:
    """Whether the device, as it came back, has been changed since, so that it must be read again."""
    return (
        (moved.name, moved.mtu, moved.mac) != (back.name, back.mtu, back.address)
        or moved.device.permanent_mac != back.permanent_address
        or bool(moved.master)
        or not back.message
    )


def restore_addressing(moved: Moved, index: int, sock: Socket, attempts: Attempts) -> None:
    """Give a link the addresses, routes and neighbours of a record; each refused one becomes a note."""
    if moved.node is not None:
        node_configuration.restore(moved.node, index, sock, attempts)
        return
    present = {entry.text for entry in address.dump(sock, index)} if moved.addresses else set()
    for former in moved.addresses:
        if former.text in present or not former.is_valid:
            continue
        add = partial(address.add, sock, index, former.text, broadcast=former.broadcast)
        add = partial(add, preferred=_left(former.preferred_until), valid=_left(former.valid_until))
        _attempt(attempts, partial(add, scope=former.scope, flags=former.flags))
    for entry in moved.routes:
        _attempt(attempts, partial(route.add, sock, msgspec.structs.replace(entry, index=index)))
    for known in moved.neighbours:
        _attempt(attempts, partial(neighbour.add, sock, index, known))


def _conclude_settings(called: str, former: DeviceSettings | None, netdev: Link, site: Site) -> tuple[str, ...]:
    """Restore the settings once more; return notes on those that still differ."""
    left, reasons = settings.restore(former, netdev, site.host, site.sysfs)
    return settings.conclude(called, left, reasons, hold_unknown=site.hold_unknown)


def _restore_settings(moved: Moved, back: Link, site: Site) -> tuple[ChangedSetting, ...]:
    """Restore the settings; return those that differ anyway."""
    present = link.get(site.host, back.index) if is_changed(moved, back) else back
    return settings.restore(moved.settings, present, site.host, site.sysfs)[0]


def _restore_name(moved: Moved, back: Link, site: Site) -> tuple[str, ...]:
    # A device manager may have given the returned device its old name as an alternative one: it blocks the rename.
    if moved.name in back.alt_names:
        link.delete_alt_names(site.host, back.index, (moved.name,))
    try:
        link.change(site.host, back.index, up=False)  # older kernels rename no device that is up
        link.change(site.host, back.index, name=moved.name)
    except KernelExistsError:
        return (f'name "{moved.name}" is taken on the host by now: the device is called "{back.name}"',)
    return ()


def _restore_mac(moved: Moved, back: Link, site: Site) -> tuple[str, ...]:
    notes: tuple[str, ...] = ()
    if moved.mac != back.address:
        try:
            functions.set_mac(site.host, back.index, moved.mac)
        except KernelError as problem:
            if problem.errno not in _MAC_NOT_ALLOWED:
                raise
            notes = (problem.what,)
    if moved.device.permanent_mac != back.permanent_address:
        # A VF that learned a MAC from its PF has it as its permanent MAC, until its driver resets it again.
        link.change(site.host, back.index, up=True)
        link.change(site.host, back.index, up=False)
    return notes


def _restore_alt_names(moved: Moved, back: Link, site: Site, attempts: Attempts) -> None:
    missing = [name for name in moved.alt_names if name not in back.alt_names]
    if missing:
        _attempt(attempts, lambda: link.add_alt_names(site.host, back.index, missing))
    # They go home with the device, and keep others from the names.
    further = [name for name in back.alt_names if name not in (moved.name, *moved.alt_names)]
    if further:
        _attempt(attempts, lambda: link.delete_alt_names(site.host, back.index, further))


def _restore_mtu(site: Site, index: int, mtu: int) -> None:
    """Some drivers take another MTU only while the device is down; `restore` brings it up again if it was."""
    try:
        link.change(site.host, index, mtu=mtu)
    except KernelError:
        link.change(site.host, index, up=False)
        link.change(site.host, index, mtu=mtu)


def _left(until: float | None) -> int | None:
    return None if until is None else max(0, int(until - time.monotonic()))


def _attempt(attempts: Attempts, act: Callable[[], None]) -> None:
    """Do what concerns the host alone: a refusal is a note, and an error where the kernel is short of something."""

    def noted() -> tuple[str, ...]:
        try:
            act()
        except KernelExistsError:
            pass
        except KernelError as problem:
            if problem.is_short:
                raise
            return (problem.what,)
        return ()

    attempts.run(noted)
