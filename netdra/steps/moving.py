"""Move a netdev into the pod and give it back as it was. Shared by host-device, sriov and rdma.

The kernel's dev_change_net_namespace() (net/core/dev.c) closes the device, forgets its addresses and routes, lets a
bridge or bond lose it, and refuses if its name or an alternative name is taken where it goes. So all of these are
recorded first, and alternative names are taken off on the way. Name, MTU, namespace and the way up go in one message,
which do_setlink() (net/core/rtnetlink.c) takes in that order: the move first, up last.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

import msgspec

from netdra.kernel import address, bpf, host_use, link, neighbour, pci, pod_namespaces, route, uapi, unlocked
from netdra.kernel.address import Address
from netdra.kernel.bpf import Program
from netdra.kernel.errors import KernelError, KernelExistsError, KernelMissingError
from netdra.kernel.host_use import Configuration
from netdra.kernel.link import Link
from netdra.kernel.neighbour import Neighbour
from netdra.kernel.netlink import Socket
from netdra.kernel.route import Route
from netdra.kernel.sysfs import Sysfs
from netdra.model.errors import PermanentError, TemporaryError
from netdra.model.identity import DeviceIdentity
from netdra.model.kept import ADDRESSING
from netdra.model.plan import PlannedDevice
from netdra.model.policy import ResetPolicy
from netdra.model.result import CNIInterface
from netdra.steps import functions, identity, node_configuration, programs, rdma_state, reset, settings
from netdra.steps.contract import Attempts, Order, PodSpace, Record, Site
from netdra.steps.devices import check_driver
from netdra.steps.functions import FunctionSettings, PhysicalFunction
from netdra.steps.node_configuration import NodeConfiguration
from netdra.steps.rdma_state import RdmaState
from netdra.steps.settings import ChangedSetting, DeviceSettings, StrandedError

# The errors of VF drivers when the PF holds the VF to another MAC.
_MAC_NOT_ALLOWED = (errno.EADDRNOTAVAIL, errno.EPERM)
_CLEANUP = 2.0  # seconds that the kernel may take to give back what was in a namespace that died


class HostAddress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An address that the device had on the host; `broadcast` is None in records of an older netdra.

    The whole of it, and of routes and neighbours, is in `Moved.node`; these are for records of an older netdra, and for
    the pod that keeps them.

    `preferred_until` and `valid_until` are on the monotonic clock, None for ever: a DHCP client, or a router, gave it.
    """

    text: str
    scope: int = 0
    flags: int = 0
    broadcast: str | None = None
    preferred_until: float | None = None
    valid_until: float | None = None

    @property
    def is_valid(self) -> bool:
        """Whether the device would still have it."""
        return self.valid_until is None or self.valid_until - time.monotonic() >= 1


class Moved(Record, frozen=True, kw_only=True):
    """The state of a netdev on the host, and its name in the pod.

    Attributes:
        master: a name.
        index: its index there, by which a virtual one is recognised that a plugin has renamed; 0 if not known.
        lower: the index of the link that it stands on, or of a veth's other end, which stays when it moves; 0 for none.
        lower_here: whether that link is known to be in the host's namespace.
        programs: its BPF programs; None if they are not known, as in records of an older netdra.
        driver: the driver of its PCI function, "" for none, or in records of an older netdra.
        reset: when it is reset as it comes back; "Never" for a device that is not a VF, or of an older netdra.
        function: the settings that its PF has for it, if it is a VF whose step records them nowhere else.
        vfs: the settings that it has for its VFs, if it is a PF.
        node: what the node has configured on it; None if nothing, and in records of an older netdra.
        rdma: its RDMA device, if its step records that nowhere else.
    """

    device: DeviceIdentity
    name: str
    pod_name: str
    mac: str
    mtu: int
    up: bool
    alt_names: tuple[str, ...] = ()
    master: str = ""
    addresses: tuple[HostAddress, ...] = ()
    routes: tuple[Route, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    settings: DeviceSettings | None = None
    index: int = 0
    lower: int = 0
    lower_here: bool = False
    programs: tuple[Program, ...] | None = None
    driver: str = ""
    reset: ResetPolicy = "Never"
    function: FunctionSettings | None = None
    vfs: PhysicalFunction | None = None
    node: NodeConfiguration | None = None
    rdma: RdmaState | None = None

    @property
    def holds(self) -> tuple[str, ...]:
        """The device itself; a virtual one by its name on the host, by which the next pod's step would take it."""
        return (self.key,)

    @property
    def key(self) -> str:
        """A text that no other device has that a step may take from the host."""
        return _key(self.device, self.name)


def key_of(netdev: Link, sysfs: Sysfs) -> str:
    """The key that the record of a netdev of the host would have (`Moved.key`)."""
    return _key(identity.identity_of(netdev, sysfs), netdev.name)


def _key(device: DeviceIdentity, name: str) -> str:
    return device.key or f"{device.kind or 'virtual'}:{name}"


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
        reset=reset.policy_of(at, reset.wanted(order.device), site),
        function=function,
        rdma=rdma_state.at(at, site),
    )


def seen(
    pod_name: str, netdev: Link, site: Site, has: Configuration, *, with_settings: bool = True, shared: bool = False
) -> Moved:
    """The record of a netdev of the host as it is just now.

    Settings can only be read where the calling thread's namespace is the netdev's. Of a shared device,
    which others may change, only those are read that have names in netdra.

    Raises:
        KernelError: the kernel refused.
    """
    # The kernel makes the temporary ones itself, of those that have a router's prefix (net/ipv6/addrconf.c).
    addresses = [entry for entry in has.addresses if not entry.is_temporary]
    device = identity.identity_of(netdev, site.sysfs)
    at = device.pci_address
    routes = _lasting_routes(netdev.index, addresses, has.routes)
    # Only where somebody configures the device: each of these questions is one more to the kernel.
    is_configured = bool(routes) or any(map(host_use.counts, addresses))
    node = node_configuration.read(netdev, site.host, with_groups=with_settings) if is_configured else None
    known = () if node is None else (neighbour.permanent(body, netdev.index) for body in node.neighbours)
    return Moved(
        device=device,
        name=netdev.name,
        pod_name=pod_name,
        mac=netdev.address,
        mtu=netdev.mtu,
        up=netdev.is_up,
        alt_names=netdev.alt_names,
        master=link.get(site.host, netdev.master).name if netdev.master else "",
        addresses=tuple(map(_host_address, addresses[: node_configuration.MOST])),
        routes=tuple(routes[: node_configuration.MOST]),
        neighbours=tuple(entry for entry in known if entry is not None),
        settings=settings.read(netdev, site.host, site.sysfs, whole=not shared) if with_settings else None,
        index=netdev.index,
        lower=netdev.lower,
        lower_here=netdev.lower_netns == link.HERE,
        programs=has.programs,
        driver=pci.driver_of(site.sysfs, at) if at else "",
        vfs=functions.all_of(netdev, at, site) if with_settings and netdev.port is None else None,
        node=node,
    )


def inside(moved: Moved, pod: PodSpace, site: Site) -> Link | None:
    """A netdev in the pod, under any name.

    A virtual one is recognised by its lower link, which no pod can give to another link of that kind: a pod may have
    renamed it, given it another MAC, and called another link by its name. Without a lower link, it is the link of its
    name, of its MAC, or of the index that it had.
    """
    device = moved.device
    if device.is_physical:
        return identity.find(pod.sock, site.sysfs, device, moved.pod_name, moved.name, same_mac=False)
    likely = link.find(pod.sock, moved.index if moved.lower else moved.pod_name)
    if likely is not None and _fits(likely, moved, pod, site):
        return likely
    fitting = [entry for entry in link.dump(pod.sock) if _fits(entry, moved, pod, site)]
    signs: tuple[Callable[[Link], bool], ...] = (
        lambda entry: entry.name in (moved.pod_name, moved.name),
        lambda entry: entry.address == device.mac,
        lambda entry: bool(moved.lower) or entry.index == moved.index,
    )
    found = next((entry for sign in signs for entry in fitting if sign(entry)), None)
    return link.find(pod.sock, found.index) if found is not None else None


def _fits(netdev: Link, moved: Moved, pod: PodSpace, site: Site) -> bool:
    """Whether a virtual link of the pod, which was just read, is of a device's kind and has its lower link."""
    if netdev.kind != moved.device.kind or not _stands_on(netdev, moved.lower):
        return False
    if not moved.lower or not moved.lower_here:
        return True
    # Reading a link gives the namespace of its lower link an ID (rtnl_fill_link_netnsid() in net/core/rtnetlink.c).
    return netdev.lower_netns >= 0 and netdev.lower_netns == pod_namespaces.id_of(pod.sock, site.host_namespace.fd)


def _stands_on(netdev: Link, lower: int) -> bool:
    """Whether a link stands on the link of that index, 0 for none.

    Outside of the namespace that it was made in, a link that stands on none, such as a VXLAN, has itself below it
    (nla_put_iflink() in net/core/rtnetlink.c), on kernel 6.12 for one.
    """
    return netdev.lower == lower or (not lower and netdev.lower == netdev.index)


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
    link.change(site.host, index, netns_fd=pod.namespace.fd, name=moved.pod_name, mtu=mtu, up=up)
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
            same_settings = not settings_now and not _is_changed(moved, back)
            changed += tuple(entry.text for entry in settings_now if entry.holds(unknown=site.hold_unknown))
            changed += tuple(map(programs.words, programs.compare(moved.programs, back, site.host).added))
            changed += _changed_rdma(moved, site)
        if reset.is_due(moved.reset, changed):
            reset.reset(moved.device.pci_address, moved.driver, changed, site)
            back, same_settings = reappeared(moved, site), False
    if back is not None:
        return restore(moved, back, site, same_settings=same_settings)
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
            f"{text}: {problem.what}", hint=f"bind it to {moved.driver} by hand; netdra tries again by itself"
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
    return restore(moved, back, site)


def give_up_at() -> float:
    """Until when to wait for a device that the kernel or its driver is about to bring back, on the monotonic clock."""
    return time.monotonic() + _CLEANUP


def check_free(order: Order, site: Site) -> None:
    """Refuse a step whose interface the pod has already.

    Raises:
        PermanentError: it has.
    """
    if unlocked.index_of(site.inside.sock, order.if_name):
        raise PermanentError(
            f'{order.called}: the pod has an interface "{order.if_name}" already', hint="choose another config.name"
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


def on_host(device: DeviceIdentity, names: tuple[str, ...], site: Site) -> Link | None:
    """A device on the host, under one of these names if it is a virtual one; None if it is not there.

    When the pod's namespace has just gone, it is waited for: the kernel is about to give it back.
    """

    def find() -> Link | None:
        return identity.find(site.host, site.sysfs, device, *names)

    netdev = find()
    if netdev is not None or site.pod is not None or not device.is_physical:
        return netdev
    until = min(site.deadline, give_up_at())
    return identity.await_return(site.host_namespace, site.sysfs, device, find, until)


def _without_alt_names(moved: Moved, site: Site) -> int:
    """The index of a device that was seen on the host a moment ago; its alternative names are off."""
    # With none to take off, its name and its MAC are enough to recognise it, and the link need not be read anew.
    if not moved.alt_names and unlocked.mac_of(site.host, moved.name) == moved.mac:
        index = unlocked.index_of(site.host, moved.name)
        if index:
            return index
    netdev = identity.find(site.host, site.sysfs, moved.device, moved.name)
    if netdev is None:
        raise KernelMissingError(errno.ENODEV, f'device "{moved.name}" has just gone from the host')
    if netdev.alt_names:
        link.delete_alt_names(site.host, netdev.index, netdev.alt_names)
    return netdev.index


def _nowhere(moved: Moved, site: Site) -> tuple[str, ...]:
    if not moved.device.is_physical:
        return (f'device "{moved.name}" is gone with the namespace that it was in',)
    there = identity.liveness(moved.device, site.sysfs)
    if there.is_gone:
        return (f'device "{moved.name}" ({moved.device}) is gone from the machine',)
    if there.is_unknown:
        raise TemporaryError(f'whether device "{moved.name}" is gone from the machine is unknown: {there.reason}')
    raise PermanentError(
        f'device "{moved.name}" ({moved.device}) is neither in the pod nor on the host',
        hint="check other network namespaces, and whether its driver is still bound",
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
    # Up at once, if it need not be down for what is to be restored. The pod's BPF programs must be off before.
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
        return link.get(site.host, moved.name)  # it went and could not be brought up: `restore` tells why


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


def _is_changed(moved: Moved, back: Link) -> bool:
    """Whether the device, as it came back, has been changed since, so that it must be read again."""
    return (
        (moved.name, moved.mtu, moved.mac) != (back.name, back.mtu, back.address)
        or moved.device.permanent_mac != back.permanent_address
        or bool(moved.master)
        or not back.message
    )


def _conclude_settings(called: str, former: DeviceSettings | None, netdev: Link, site: Site) -> tuple[str, ...]:
    """Restore the settings once more; return notes on those that still differ."""
    left, reasons = settings.restore(former, netdev, site.host, site.sysfs)
    return settings.conclude(called, left, reasons, hold_unknown=site.hold_unknown)


def _restore_settings(moved: Moved, back: Link, site: Site) -> tuple[ChangedSetting, ...]:
    """Restore the settings; return those that differ anyway."""
    present = link.get(site.host, back.index) if _is_changed(moved, back) else back
    return settings.restore(moved.settings, present, site.host, site.sysfs)[0]


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


def _host_address(entry: Address) -> HostAddress:
    return HostAddress(
        text=entry.text,
        scope=entry.scope,
        flags=entry.flags,
        broadcast=entry.broadcast,
        preferred_until=_until(entry.preferred),
        valid_until=_until(entry.valid),
    )


def _until(seconds: int | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds


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


def _lasting_routes(index: int, addresses: Iterable[Address], routes: Iterable[Route]) -> list[Route]:
    """The routes through a link alone that do not come by themselves with its addresses.

    With IFA_F_NOPREFIXROUTE, which network managers give to their addresses, the kernel makes no route to an address's
    network. They make it themselves, as one of the kernel's (RTPROT_KERNEL).
    """
    managed = any(entry.flags & uapi.IFA_F_NOPREFIXROUTE for entry in addresses)
    return [
        entry
        for entry in routes
        if entry.links == (index,) and entry.index == index
        if entry.protocol != uapi.RTPROT_KERNEL or (managed and entry.kind == uapi.RTN_UNICAST)
    ]
