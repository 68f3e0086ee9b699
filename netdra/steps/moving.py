"""Move a netdev into the pod and give it back as it was. Shared by host-device, sriov and rdma.

The kernel's dev_change_net_namespace() (net/core/dev.c) closes the device, forgets its addresses and routes, lets a
bridge or bond lose it, and refuses if its name or an alternative name is taken where it goes. So all of these are
recorded first, and alternative names are taken off on the way. Name, MTU, namespace and the way up go in one message,
which do_setlink() (net/core/rtnetlink.c) takes in that order: the move first, up last.
"""

from __future__ import annotations

import errno
from contextlib import suppress

import msgspec

from netdra.kernel import bpf, host_use, link, pci, unlocked
from netdra.kernel.errors import KernelError, KernelExistsError, KernelMissingError
from netdra.kernel.host_use import Configuration
from netdra.kernel.link import Link
from netdra.model.errors import PermanentError, TemporaryError
from netdra.model.kept import ADDRESSING
from netdra.model.plan import PlannedDevice
from netdra.model.result import CNIInterface
from netdra.steps import functions, identity, programs, rdma_state, reset, restoring, settings
from netdra.steps.contract import Attempts, Order, PodSpace, Site
from netdra.steps.devices import check_driver
from netdra.steps.netdevs import Moved, give_up_at, inside, on_host, seen
from netdra.steps.settings import ChangedSetting, StrandedError


def observe(order: Order, netdev: Link, site: Site, *, with_function: bool = True) -> Moved:
    """The record of a netdev of the host, before it is moved into the pod as the step's interface.

    Args:
        order: the step.
        netdev: the netdev.
        site: where.
        with_function: whether to record the settings that a PF has for it, if it is a VF.

    Raises:
        PermanentError: the pod has an interface of that name already, the host uses the netdev, or it has another
            driver than the one that it was offered with.
        TemporaryError: another sandbox still has objects on its RDMA device.
        KernelError: the kernel refused.
    """
    check_free(order, site)
    has = host_use.configuration(site.host, netdev)
    check_unused(order.called, order.device, netdev, site, has)
    moved = seen(order.if_name, netdev, site, has)
    at = moved.device.pci_address
    rdma_state.check_released(order.called, at, site)
    function = functions.recorded(at, site) if at and with_function else None
    if function is not None:
        before = functions.without_rates(function.before, order.device)
        function = msgspec.structs.replace(function, before=before)
    if order.device is not None:
        check_driver(order.called, order.device, moved.driver, site.sysfs, has_netdev=True)
    return msgspec.structs.replace(
        moved,
        pod_index=_free_index(moved, site),
        reset=reset.policy_of(at, reset.wanted(order.device), site),
        function=function,
        rdma=rdma_state.at(at, site),
    )


def _free_index(moved: Moved, site: Site) -> int:
    """The index in the pod by which a virtual device without a lower link is recognised again; 0 for all others."""
    if moved.device.is_physical or moved.lower:
        return 0
    taken = {entry.index for entry in link.dump(site.inside.sock)}
    return moved.index if moved.index not in taken else max(taken) + 1


def move_in(
    moved: Moved, site: Site, pci_address: str, *, mtu: int | None = None, mac: str | None = None
) -> CNIInterface:
    """Bring the device into the pod under its name there, and up; return it as results have it.

    Raises:
        KernelError: the kernel or the driver refused; the device may be anywhere on the way.
    """
    pod, index = site.inside, _without_alt_names(moved, site)
    new_mac = mac.lower() if mac and mac.lower() != moved.mac else None
    # A device that is to take another MAC stays down for that.
    up = None if new_mac else True
    new_index = moved.pod_index or None
    # The device arrives down, without addresses and routes: the kernel closes it first (dev_change_net_namespace()).
    link.change(site.host, index, netns_fd=pod.namespace.fd, new_index=new_index, name=moved.pod_name, mtu=mtu, up=up)
    if new_mac:
        functions.set_mac(pod.sock, moved.pod_name, new_mac)
        link.change(pod.sock, moved.pod_name, up=True)
    return as_it_is(moved.pod_name, site, pci_address)


def give_back(moved: Moved, site: Site, changed: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Bring the device back to the host as it was, from wherever it is; nothing is done if all of that is so already.

    Returns what could not be returned and concerns the host alone: a name taken meanwhile, an address, a route.

    Args:
        moved: the device as it was.
        site: where.
        changed: the differences of the device in state that the steps do not change, in words, beyond those found
            here: a VF is then reset (`netdra.steps.reset`).

    Raises:
        NoTimeError: the device must be reset, and too little time is left for that.
        PermanentError: a device that the machine still has is neither in the pod nor on the host.
        KernelError: the kernel or the driver refused.
    """
    try:
        return _return_device(moved, site, changed)
    except KernelMissingError:
        # Once a virtual device is on the host, any other program may take it by its name, though our steps do not.
        if moved.device.is_physical or (site.pod is not None and inside(moved, site.pod, site) is not None):
            raise
        return (f'device "{moved.name}" came back and is gone again, to another program or for good',)


def _return_device(moved: Moved, site: Site, changed: tuple[str, ...]) -> tuple[str, ...]:
    attempts, function = Attempts(), moved.function
    back = _move_out(moved, site.pod, site) if site.pod is not None else None
    if back is None:
        other = site.holder(moved.key)
        if other:
            return (f'device "{moved.name}" ({moved.key}) is sandbox {other}\'s by now and left alone',)
        changed += _rebind(moved, site)
        names = (moved.name, moved.pod_name) if moved.device.is_physical else (moved.name,)
        back = on_host(moved.device, names, site)
    now = functions.present(function, site) if function is not None else None
    if function is not None:
        attempts.run(lambda: functions.restore_settings(function, site, now))
    attempts.run(lambda: _restore_anywhere(moved, back, site, changed))
    if function is not None and (site.restored or not functions.is_as_before(function, now)):
        attempts.run(lambda: functions.restore_mac(function, site))
    return attempts.result()


def _restore_anywhere(moved: Moved, back: Link | None, site: Site, changed: tuple[str, ...]) -> tuple[str, ...]:
    """Restore a device that is on the host; a VF that is elsewhere, or differs, comes back by its reset."""
    same_settings = False
    if moved.reset != "Never" and identity.liveness(moved.device, site.sysfs).is_present:
        if back is None:
            changed += (f'netdev "{moved.name}" was neither in the pod nor on the host',)
        else:
            settings_now = _changed_settings(moved, back, site)
            same_settings = not settings_now and not restoring.is_changed(moved, back)
            changed += tuple(entry.text for entry in settings_now if entry.holds(unknown=site.hold_unknown))
            changed += tuple(map(programs.words, programs.compare(moved.programs, back, site.host).added))
            changed += _changed_rdma(moved, site)
        if reset.is_due(moved.reset, changed):
            reset.reset(moved.device.pci_address, moved.driver, changed, site)
            back, same_settings = reappeared(moved, site), False
    if back is not None:
        return restoring.restore(moved, back, site, same_settings=same_settings)
    return _nowhere(moved, site)


def _changed_settings(moved: Moved, back: Link, site: Site) -> tuple[ChangedSetting, ...]:
    former = moved.settings
    return () if former is None else tuple(settings.differences(former, back, site.host, site.sysfs))


def _changed_rdma(moved: Moved, site: Site) -> tuple[str, ...]:
    return () if moved.rdma is None else rdma_state.differences(moved.rdma, site)


def _rebind(moved: Moved, site: Site) -> tuple[str, ...]:
    """Give a device whose driver was changed to its own driver; return that in words, nothing if it has its own.

    Raises:
        TemporaryError: a program has it open through vfio.
        StrandedError: the kernel or the driver refused.
    """
    at = moved.device.pci_address
    now = pci.driver_of(site.sysfs, at) if at else ""
    if not moved.driver or now == moved.driver or not identity.liveness(moved.device, site.sysfs).is_present:
        return ()
    text = f"device {at} had driver {now or 'none'}, not {moved.driver}"
    try:
        reset.rebind(at, moved.driver, site)
    except KernelError as problem:
        raise StrandedError(
            f"{text}: {problem.what}",
            hint=f"bind it to {moved.driver} by hand; netdra tries again by itself",
            code=problem.code,
        ) from None
    site.restored.append(text)
    return (text,)


def reappeared(moved: Moved, site: Site) -> Link | None:
    """The netdev of a device that its driver has just been bound to, at once or in a while; None if it does not come.

    Raises:
        KernelError: the kernel refused.
    """

    def find() -> Link | None:
        return identity.find(site.host, site.sysfs, moved.device, moved.name)

    until = min(site.deadline, give_up_at())
    return find() or identity.await_return(site.host_namespace, site.sysfs, moved.device, find, until)


def restore_reappeared(moved: Moved, site: Site) -> tuple[str, ...]:
    """Give the netdev that a driver makes again its old name and settings.

    Returns what could not be restored, in words.

    Raises:
        KernelError: the kernel or the driver refused the MTU or the MAC.
    """
    back = reappeared(moved, site)
    if back is None:
        return (f'netdev "{moved.name}" has not come back with the driver of {moved.device}',)
    return restoring.restore(moved, back, site)


def check_free(order: Order, site: Site) -> None:
    """Refuse a step whose interface the pod has already.

    Raises:
        PermanentError: it has.
    """
    if unlocked.index_of(site.inside.sock, order.if_name):
        raise PermanentError(
            f'{order.called}: the pod has an interface "{order.if_name}" already',
            hint="choose another config.name",
            code="ND2039",
        )


def check_unused(called: str, device: PlannedDevice | None, netdev: Link, site: Site, has: Configuration) -> None:
    """Refuse to take a device from the host that uses it just now, unless its policy allows that (decision D24).

    An allocated device was free when it was offered. Since then an administrator may have made it a port of a bridge,
    or a router may have given it an address.

    Raises:
        PermanentError: the host uses it.
        KernelError: the kernel refused to list them.
    """
    if device is not None and device.allow_host_use:
        return
    used = host_use.read(site.host, netdev, site.sysfs, has)
    configured = ADDRESSING.issuperset(used)
    if used and not (configured and device is not None and device.allow_host_addresses):
        instead = "allowHostAddresses" if configured else "allowHostUse"
        raise PermanentError(
            f'{called}: the host uses device "{netdev.name}": {", ".join(used)}',
            hint=f"take another device; only if the host can do without this one, set {instead} in the policy that "
            "offers it",
            code="ND2040",
        )


def interface(netdev: Link, site: Site, pci_address: str = "") -> CNIInterface:
    """An interface of the pod as a result has it."""
    return CNIInterface(
        name=netdev.name, mac=netdev.address, mtu=netdev.mtu, sandbox=site.inside.path, pci_id=pci_address
    )


def as_it_is(name: str, site: Site, pci_address: str = "") -> CNIInterface:
    """An interface of the pod as it is now.

    Raises:
        KernelError: it is not there.
    """
    pod = site.inside
    mac, mtu = unlocked.mac_of(pod.sock, name), unlocked.mtu_of(pod.sock, name)
    if not mac or not mtu:
        return interface(link.get(pod.sock, name), site, pci_address)
    return CNIInterface(name=name, mac=mac, mtu=mtu, sandbox=pod.path, pci_id=pci_address)


def _without_alt_names(moved: Moved, site: Site) -> int:
    """The index of a device that was seen on the host a moment ago; its alternative names are off."""
    # Without one to remove, its name and its MAC are enough to recognise it, and the link need not be read again.
    if not moved.alt_names and unlocked.mac_of(site.host, moved.name) == moved.mac:
        index = unlocked.index_of(site.host, moved.name)
        if index:
            return index
    netdev = identity.find(site.host, site.sysfs, moved.device, moved.name)
    if netdev is None:
        raise KernelMissingError(errno.ENODEV, f'device "{moved.name}" has just gone from the host')
    # Alternative names move along, and the kernel refuses a move to where one is taken (EEXIST).
    if netdev.alt_names:
        link.delete_alt_names(site.host, netdev.index, netdev.alt_names)
    return netdev.index


def _nowhere(moved: Moved, site: Site) -> tuple[str, ...]:
    if not moved.device.is_physical:
        where = "gone with the namespace that it was in" if site.pod is None else "not in the pod any more"
        return (f'device "{moved.name}" is {where}',)
    there = identity.liveness(moved.device, site.sysfs)
    if there.is_gone:
        return (f'device "{moved.name}" ({moved.device}) is gone from the machine',)
    if there.is_unknown:
        raise TemporaryError(
            f'whether device "{moved.name}" is gone from the machine is unknown: {there.reason}', code="ND2041"
        )
    raise PermanentError(
        f'device "{moved.name}" ({moved.device}) is neither in the pod nor on the host',
        hint="check other network namespaces, and whether its driver is still bound",
        code="ND2042",
    )


def _move_out(moved: Moved, pod: PodSpace, site: Site) -> Link | None:
    """Move the device from the pod to the host, under its old name if that is free; return it as it is there.

    None if the pod does not have it.
    """
    home = site.host_namespace.fd
    there = inside(moved, pod, site)
    if there is None:
        return None
    if there.alt_names:
        # One that stays does not matter, unless the host has it, too: then the move is refused.
        with suppress(KernelError):
            link.delete_alt_names(pod.sock, there.index, there.alt_names)
    # Up at once, unless a setting that is to be restored needs it down. The pod's BPF programs must be detached before.
    same = (there.mtu, there.address, there.permanent_address) == (moved.mtu, moved.mac, moved.device.permanent_mac)
    same = same and not moved.master and (moved.settings is None or settings.may_be_up(moved.settings, there))
    up = True if same and moved.up and not bpf.are_loaded() else None
    try:
        link.change(pod.sock, there.index, netns_fd=home, name=moved.name, up=up)
        return link.get(site.host, moved.name)
    except KernelExistsError:
        # Either it stayed, because its name in the pod is taken on the host too, or it went and kept that name.
        if link.find(pod.sock, there.index) is None:
            return link.get(site.host, there.name)
        spare = f"netdra{there.index}"
        link.change(pod.sock, there.index, netns_fd=home, name=spare)
        return link.get(site.host, spare)
    except KernelError:
        if up is None or link.find(pod.sock, there.index) is not None:
            raise
        return link.get(site.host, moved.name)  # it was moved and could not be brought up: `restore` reports the reason
