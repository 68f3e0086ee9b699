"""An allocated device as it is before a plugin gets it, and how it is restored after any plugin (D27).

Built-in steps record what they change and give it back. A binary only reports that it does so. `netdra.chain.execute`
therefore has the binary's device inspected before ADD and after DEL: differences are restored here, without the plugin.
A device that several claims share is compared around each call of a plugin (D55): it must not change at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from netdra.kernel import address, host_use, link, pci, rdma, route, unlocked, vf
from netdra.kernel.link import Link
from netdra.model.errors import NetdraError
from netdra.model.identity import DeviceIdentity
from netdra.model.plan import PlannedDevice
from netdra.model.policy import ResetPolicy
from netdra.steps import (
    functions,
    identity,
    moving,
    netdevs,
    node_configuration,
    programs,
    rdma_device,
    rdma_state,
    reset,
    restoring,
    settings,
)
from netdra.steps.contract import Record, Site
from netdra.steps.devices import USERSPACE_DRIVERS, check_driver, netdev_for
from netdra.steps.functions import FunctionSettings
from netdra.steps.netdevs import Moved
from netdra.steps.rdma_state import RdmaState
from netdra.steps.settings import StrandedError

_LINK_LOCAL = "fe80:"  # comes and goes with the carrier


class Allocated(Record, frozen=True, kw_only=True):
    """A device as it is.

    Attributes:
        device: its name in its pool, for messages.
        address: its PCI address, "" for none.
        driver: the driver that has it, "" for none.
        netdev: its netdev, if it has one on the host.
        function: the settings that its PF has for it, if it is a VF.
        rdma_device: its RDMA device, where each is in one namespace alone.
        rdma: its RDMA device as it is, in either mode; None without one, or in records of an older netdra.
        shared: other claims may have it, too.
        reset: when it is reset as it comes back; "Never" for a device that is not a VF, or of an older netdra.
    """

    device: str
    address: str = ""
    driver: str = ""
    netdev: Moved | None = None
    function: FunctionSettings | None = None
    rdma_device: str = ""
    rdma: RdmaState | None = None
    shared: bool = False
    reset: ResetPolicy = "Never"

    @property
    def key(self) -> str:
        """A text that no other device has, the same as in the records of built-in steps."""
        if self.netdev is not None and (self.netdev.device.is_physical or not self.address):
            return self.netdev.key
        return self.address

    @property
    def place(self) -> DeviceIdentity | None:
        """Where the device is on its bus; None for a device on no bus."""
        if self.address:
            return DeviceIdentity(bus="pci", address=self.address)
        return self.netdev.device if self.netdev is not None and self.netdev.device.address else None

    @property
    def holds(self) -> tuple[str, ...]:
        """The device; a shared one belongs to no pod."""
        return () if self.shared else (self.key,)


class Difference(msgspec.Struct, frozen=True):
    """How a device differs from its former state, in words; `matters` if not to the host alone, but to its next user.

    `benign` is what others may do to a shared device at any time: plugins bring it up, routing daemons change routes.
    `own` is what netdra's own steps change, too: no reason to reset a VF.
    """

    text: str
    matters: bool = True
    benign: bool = False
    own: bool = False


class Returned(msgspec.Struct, frozen=True):
    """The outcome of a device: restored settings, and those not restored, which concern the host alone."""

    restored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def observe(device: PlannedDevice, if_name: str, site: Site) -> Allocated | None:
    """A device as it is now; None for one that is not there.

    Args:
        device: as it was allocated.
        if_name: the interface that a plugin is to make of it.

    Raises:
        KernelError: the kernel refused.
    """
    at = device.pci_address
    netdev = netdev_for(site.host, site.sysfs, device)
    port = device.identity.port if device.identity is not None else None
    if netdev is None and (port or not (at and site.sysfs.is_folder(f"bus/pci/devices/{at}"))):
        return None
    moved = None
    policy: ResetPolicy = "Never" if device.is_shared else reset.policy_of(at, device.reset, site)
    if netdev is not None:
        has = host_use.configuration(site.host, netdev)
        moved = netdevs.seen(if_name, netdev, site, has, shared=device.is_shared)
        moved = msgspec.structs.replace(moved, reset=policy, rdma=None)
    rdma_name = next((name for name, (parent, _) in rdma.devices(site.sysfs).items() if parent == at), "") if at else ""
    return Allocated(
        device=device.device,
        address=at,
        driver=pci.driver_of(site.sysfs, at) if at else "",
        netdev=moved,
        function=functions.recorded(at, site) if at else None,
        rdma_device=rdma_name if rdma_name and rdma_device.is_exclusive() else "",
        rdma=rdma_state.seen(rdma_name, at, counted=not device.is_shared) if rdma_name else None,
        shared=device.is_shared,
        reset=policy,
    )


def check_unused(called: str, device: PlannedDevice, site: Site) -> Link | None:
    """Refuse a program that takes a device which the host uses just now, as `moving.check_unused` refuses steps.

    Returns the device's netdev, None without one on the host.

    Args:
        called: the step as messages call it.
        device: the device, by its PCI address, name or MAC.
        site: where.

    Raises:
        PermanentError: the host uses it, and its policy does not allow that; or it has another driver than it was
            offered with.
        KernelError: the kernel refused.
    """
    netdev = netdev_for(site.host, site.sysfs, device)
    if netdev is None and device.mac:
        netdev = next((one for one in link.dump(site.host) if one.address == device.mac and not one.master), None)
    if device.pci_address:
        driver = pci.driver_of(site.sysfs, device.pci_address)
        check_driver(called, device, driver, site.sysfs, has_netdev=netdev is not None)
        rdma_state.check_released(called, device.pci_address, site)
    if netdev is not None:
        moving.check_unused(called, device, netdev, site, host_use.configuration(site.host, netdev))
    return netdev


def changes(record: Allocated, site: Site) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """How a shared device differs from its former state: forbidden changes, and changes that others may make."""
    differences = tuple(_differences(record, site))
    return (
        tuple(difference.text for difference in differences if not difference.benign),
        tuple(difference.text for difference in differences if difference.benign),
    )


def without_rates(record: Allocated) -> Allocated:
    """A record without the rates of the device, which are restored separately."""
    if record.function is None:
        return record
    before = msgspec.structs.replace(record.function.before, min_rate=None, max_rate=None)
    return msgspec.structs.replace(record, function=msgspec.structs.replace(record.function, before=before))


def give_back(record: Allocated, site: Site, sharer: Callable[[], str]) -> Returned:
    """Make a device what it was; nothing is done if it is so already, or if another sandbox has it by now.

    Args:
        record: what it was.
        site: where; without the pod's namespace, the devices that were in it are waited for.
        sharer: another sandbox that has the device too, "" for none.

    Raises:
        StrandedError: the device is not what it was; the error names the reasons.
    """
    other = "" if record.shared else site.holder(record.key)
    if other:
        return Returned(notes=(f'device "{record.device}" is sandbox {other}\'s by now and left alone',))
    place = record.place
    if place is not None and identity.liveness(place, site.sysfs).is_gone:
        return Returned(notes=(f'device "{record.device}" ({place}) is gone from the machine',))
    differences = tuple(_differences(record, site))
    foreign = tuple(difference.text for difference in differences if difference.matters and not difference.own)
    if record.driver in USERSPACE_DRIVERS:
        foreign += ("a program had it",)
    must_reset = reset.is_due(record.reset, foreign)
    if not differences and not must_reset:
        return Returned()
    if record.shared and all(difference.benign for difference in differences):
        return Returned(notes=tuple(difference.text for difference in differences))
    other = "" if record.shared else sharer()
    if other:
        return Returned(notes=(f'device "{record.device}" is left as it is: sandbox {other} has it too',))
    if must_reset:
        reset.reset(record.address, record.driver, (), site)
    notes, problems = _restored(record, site)
    left = {difference.text: difference for difference in _differences(record, site)}
    stays = [
        text for text, difference in left.items() if difference.matters and not any(text in note for note in notes)
    ]
    if stays or problems:
        raise StrandedError(
            f'device "{record.device}" cannot be made what it was: {"; ".join(dict.fromkeys((*stays, *problems)))}',
            hint=(
                "it is not available to other claims until then; netdra retries automatically, also "
                "after a manual change"
            ),
            code="ND2010",
        )
    further = tuple(text for text in left if not any(text in note for note in notes))
    restored = tuple(difference.text for difference in differences if difference.text not in left)
    notes = [note for note in notes if not note.startswith(restored)]
    return Returned((*site.restored, *restored), (*notes, *further))


def _differences(record: Allocated, site: Site) -> Iterator[Difference]:
    """The differences, part by part."""
    if record.address:
        now = pci.driver_of(site.sysfs, record.address)
        if now != record.driver:
            yield Difference(f"{record.address} has driver {now or 'none'}, not {record.driver or 'none'}")
    if record.function is not None:
        yield from _of_function(record.function, site)
    if record.rdma is not None:
        yield from map(Difference, rdma_state.differences(record.rdma, site))
    elif record.rdma_device and record.rdma_device not in rdma.devices(site.sysfs):
        yield Difference(f'RDMA device "{record.rdma_device}" is not on the host')
    if record.netdev is not None:
        yield from _of_netdev(record.netdev, site)


def _of_function(record: FunctionSettings, site: Site) -> Iterator[Difference]:
    pf = functions.physical_function(record.pf, site)
    if pf is None:
        return  # its settings went with it
    now = vf.find(site.host, pf.index, record.index) or record.before
    changed = functions.differences(record.before, now, f"VF {record.index} of {pf.name}")
    yield from (Difference(text, matters=matters) for text, matters in changed)


def _of_netdev(moved: Moved, site: Site) -> Iterator[Difference]:
    netdev, on_host = _where(moved, site)
    if netdev is None:
        if moved.device.is_physical:
            yield Difference(f'netdev "{moved.name}" is neither in the pod nor on the host')
        else:
            yield Difference(f'netdev "{moved.name}" is gone', matters=False)
    elif not on_host:
        yield Difference(f'netdev "{moved.name}" is still in the pod, as "{netdev.name}"', own=True)
    else:
        yield from _of_link(_as_it_follows(moved, netdev), netdev, site)


def _of_link(moved: Moved, netdev: Link, site: Site) -> Iterator[Difference]:
    """The differences of a netdev that is on the host."""
    called = f'netdev "{moved.name}"'
    if netdev.name != moved.name:
        yield Difference(f'{called} is called "{netdev.name}"', matters=False)
    if netdev.address != moved.mac:
        yield Difference(f"{called} has MAC {netdev.address}, not {moved.mac}", own=True)
    if netdev.mtu != moved.mtu:
        yield Difference(f"{called} has MTU {netdev.mtu}, not {moved.mtu}", own=True)
    if netdev.is_up != moved.up:
        yield Difference(f"{called} is {'up' if netdev.is_up else 'down'}", matters=False, benign=netdev.is_up)
    master = link.find(site.host, moved.master) if moved.master else None
    if netdev.master != (master.index if master is not None else 0):
        yield Difference(f"{called} is {f'no port of {moved.master}' if moved.master else 'a port'}", matters=False)
    for name in moved.alt_names:
        if name not in netdev.alt_names:
            yield Difference(f'{called} has lost its name "{name}"', matters=False)
    for name in netdev.alt_names:
        if name not in (moved.name, *moved.alt_names):
            yield Difference(f'{called} has another name "{name}"', matters=False, benign=True)
    yield from _of_programs(called, moved, netdev, site)
    yield from _of_settings(called, moved, netdev, site)
    yield from _lost(called, moved, netdev, site)
    changed = functions.differences_of_all(moved.vfs, netdev, site) if moved.vfs is not None else ()
    yield from (Difference(text, matters=matters) for text, matters in changed)


def _of_programs(called: str, moved: Moved, netdev: Link, site: Site) -> Iterator[Difference]:
    changed = programs.compare(moved.programs, netdev, site.host)
    for program in changed.added:
        yield Difference(f"{called} has {programs.words(program)}")
    for program in changed.lost:
        yield Difference(f"{called} has lost {programs.words(program)}", matters=False, benign=True)


def _of_settings(called: str, moved: Moved, netdev: Link, site: Site) -> Iterator[Difference]:
    changes = () if moved.settings is None else settings.differences(moved.settings, netdev, site.host, site.sysfs)
    for changed in changes:
        matters = changed.holds(unknown=site.hold_unknown)
        yield Difference(f"{called} has {changed.text}", matters=matters, benign=changed.benign)


def _lost(called: str, moved: Moved, netdev: Link, site: Site) -> Iterator[Difference]:
    """The addresses, routes and the like that a netdev had and has no longer."""
    if moved.node is not None:
        for text, is_address in node_configuration.lost(moved.node, netdev.index, site.host):
            yield Difference(
                f"{called} has lost {'' if is_address else 'its '}{text}", matters=False, benign=not is_address
            )
        return
    former = [entry.text for entry in moved.addresses if entry.is_valid and not entry.text.startswith(_LINK_LOCAL)]
    present = {entry.text for entry in address.dump(site.host, netdev.index)} if former else set()
    for text in former:
        if text not in present:
            yield Difference(f"{called} has lost address {text}", matters=False)
    routes = route.dump(site.host, through=netdev.index) if moved.routes else []
    for entry in moved.routes:
        if msgspec.structs.replace(entry, index=netdev.index, links=(netdev.index,)) not in routes:
            yield Difference(f"{called} has lost its route to {entry.destination}", matters=False, benign=True)


def _where(moved: Moved, site: Site) -> tuple[Link | None, bool]:
    """A netdev, wherever it is, and whether that is the host.

    A virtual netdev is searched for on the host first: the plugin may have made another one of its kind in the pod.
    """
    virtual = not moved.device.is_physical
    netdev = _virtual_on_host(moved, site) if virtual else None
    if netdev is not None:
        return netdev, True
    netdev = _in_pod(moved, site)
    if netdev is not None:
        return netdev, False
    netdev = netdevs.on_host(moved.device, (moved.name,) if virtual else (moved.name, moved.pod_name), site)
    if netdev is None and virtual:
        netdev = identity.find(site.host, site.sysfs, moved.device, moved.name, same_mac=False)
    return netdev, True


def _virtual_on_host(moved: Moved, site: Site) -> Link | None:
    """A virtual netdev on the host: by its name, or by its index and all else if a plugin has renamed it."""
    netdev = identity.find(site.host, site.sysfs, moved.device, moved.name)
    if netdev is not None or not moved.index:
        return netdev
    there = link.find(site.host, moved.index)
    if there is None or there.kind != moved.device.kind or there.lower != moved.lower:
        return None
    return there if moved.name == there.name or moved.mac == there.address else None


def _in_pod(moved: Moved, site: Site) -> Link | None:
    if site.pod is None:
        return None
    netdev = netdevs.inside(moved, site.pod, site)
    if moved.device.is_physical or not moved.lower:
        return netdev
    # The plugin may have made another one of its kind in the pod, or given the device another name and MAC there.
    if netdev is not None and (not netdev.lower or moved.lower == netdev.lower or moved.mac == netdev.address):
        return netdev
    if moved.device.kind not in link.PAIRED:
        return None
    pairs = (
        entry for entry in link.dump(site.pod.sock) if (entry.kind, entry.lower) == (moved.device.kind, moved.lower)
    )
    return next((entry for entry in pairs if entry.lower_netns >= 0), None)


def _as_it_follows(moved: Moved, netdev: Link) -> Moved:
    """A netdev as it is to be restored: without values that change by themselves."""
    if netdev.kind not in settings.FOLLOWERS:
        return moved
    return msgspec.structs.replace(moved, mac=netdev.address, mtu=netdev.mtu)


def _restored(record: Allocated, site: Site) -> tuple[list[str], list[str]]:
    """Restore all parts, going on where one fails; return notes that concern the host alone, and the failures.

    The driver comes first, for it makes the netdev. Then come the PF's settings, since a VF may take its old MAC only
    when its PF no longer insists on another one; the PF's MAC for it comes last (`netdra.steps.functions`). The RDMA
    device goes before its netdev: without the netdev it does not find its way.
    """
    notes: list[str] = []
    problems: list[str] = []
    function, netdev = _function(record, site), record.netdev

    def attempt(act: Callable[[], tuple[str, ...] | None]) -> None:
        try:
            notes.extend(act() or ())
        except StrandedError as problem:
            problems.extend(problem.reasons)  # the settings themselves are found as differences
        except NetdraError as problem:
            problems.append(problem.what)

    if record.address:
        attempt(lambda: _driver_back(record, site))
    if function is not None:
        attempt(lambda: functions.restore_settings(function, site))
    if record.rdma_device:
        attempt(lambda: rdma_device.bring_back(record.rdma_device, record.rdma, site))
    if netdev is not None:
        attempt(lambda: _netdev_back(netdev, site))
    if function is not None:
        attempt(lambda: functions.restore_mac(function, site))
    state = record.rdma
    if state is not None:
        attempt(lambda: rdma_state.restore(state, site))
    return notes, problems


def _function(record: Allocated, site: Site) -> FunctionSettings | None:
    """The settings that a VF is to have at its PF."""
    former = record.function
    return former and functions.without_forgotten_mac(former, functions.present(former, site), site)


def _driver_back(record: Allocated, site: Site) -> tuple[str, ...]:
    if pci.driver_of(site.sysfs, record.address) == record.driver:
        return ()
    reset.rebind(record.address, record.driver, site)
    return () if record.netdev is None else moving.restore_reappeared(record.netdev, site)


def _netdev_back(moved: Moved, site: Site) -> tuple[str, ...]:
    netdev, on_host = _where(moved, site)
    if netdev is None:
        return ()  # reported as a difference
    if not on_host:
        notes = moving.give_back(msgspec.structs.replace(moved, pod_name=netdev.name), site)
    else:
        moved = _as_it_follows(moved, netdev)
        if not moved.master and netdev.master:
            link.change(site.host, netdev.index, master=0)
        notes = restoring.restore(moved, netdev, site)
    if not moved.up and unlocked.is_up(site.host, moved.name):
        link.change(site.host, moved.name, up=False)
    return notes
