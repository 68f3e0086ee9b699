"""The tuning step: change an interface of the pod: MTU, MAC, flags, sysctls, addresses, routes, ethtool settings.

Its parameters are in `tuning_params`. The interface is `dev`, or the one that the step's dependencies made last. The
step is also undone when the pod's namespace is gone and the device is back on the host: rings, features, MTU and MAC
belong to the device, not to the namespace.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from netdra.kernel import link, uapi, unlocked
from netdra.kernel.errors import KernelBusyError, KernelMissingError
from netdra.kernel.link import Link
from netdra.kernel.netlink import Socket
from netdra.kernel.netns import Namespace
from netdra.model.errors import PermanentError
from netdra.model.identity import DeviceIdentity
from netdra.model.result import CNIInterface, StepResult
from netdra.steps import addressing, identity, moving, mtu, netdevs, offload, routing, sysctl
from netdra.steps.addressing import AddedAddressing
from netdra.steps.contract import Attempts, Builtin, Order, Record, Site
from netdra.steps.drift import check_interface
from netdra.steps.offload import Offloads
from netdra.steps.routing import Routing
from netdra.steps.tuning_params import TuningParams, TuningValues, wanted_by


class Tuned(Record, frozen=True, kw_only=True):
    """An interface as it was before it was tuned; None for values that the step does not change."""

    device: DeviceIdentity
    if_name: str
    up: bool
    mtu: int | None = None
    mac: str | None = None
    promisc: bool | None = None
    allmulti: bool | None = None
    txqlen: int | None = None
    sysctl: Mapping[str, str] = {}
    added: AddedAddressing | None = None
    routing: Routing | None = None
    offloads: Offloads = Offloads()

    @property
    def needs_up(self) -> bool:
        """Whether the step adds what only a link that is up has."""
        return self.added is not None or (self.routing is not None and bool(self.routing.neighbours))


def _prepare(order: Order, params: TuningParams) -> None:
    wanted_by(order, params)


def _observe(order: Order, params: TuningParams, site: Site) -> Tuned:
    wanted = wanted_by(order, params)
    pod = site.inside
    netdev = link.find(pod.sock, order.if_name)
    if netdev is None:
        raise PermanentError(
            f'{order.called}: the pod has no interface "{order.if_name}"',
            hint="name one by dev, or let the step depend on the step that makes it",
            code="ND2081",
        )
    _, offloads, _ = offload.state(params.ethtool, netdev.index, netdev.name, pod.namespace, order.called)
    added = addressing.ahead(addressing.missing(wanted.added, netdev.index, pod), pod)
    lacking = routing.missing(wanted.routing, netdev.index, pod)
    return Tuned(
        device=identity.identity_of(netdev, site.sysfs),
        if_name=netdev.name,
        up=netdev.is_up,
        mtu=None if wanted.mtu is None else netdev.mtu,
        mac=None if wanted.mac is None else netdev.address,
        promisc=None if wanted.promisc is None else bool(netdev.flags & uapi.IFF_PROMISC),
        allmulti=None if wanted.allmulti is None else bool(netdev.flags & uapi.IFF_ALLMULTI),
        txqlen=None if wanted.txqlen is None else netdev.txqlen,
        sysctl=sysctl.restorable(pod.namespace, tuple(wanted.sysctl)) if wanted.sysctl else {},
        added=added if added.addresses or added.routes else None,
        routing=None if lacking.is_nothing else lacking,
        offloads=offloads,
    )


def _apply(order: Order, params: TuningParams, tuned: Tuned, site: Site) -> StepResult:
    wanted = wanted_by(order, params)
    pod = site.inside
    index = unlocked.index_of(pod.sock, tuned.if_name)
    if not index:
        raise KernelMissingError(errno.ENODEV, f'interface "{tuned.if_name}" has just gone from the pod')
    if wanted.mac and wanted.mac != tuned.mac:
        _set_mac(pod.sock, index, wanted.mac, up=tuned.up)
    if wanted.settings:
        with mtu.explained(order.called, pod.sock, index, wanted.mtu):
            link.change(pod.sock, index, **wanted.settings)
    offloads, _, lacking = offload.state(params.ethtool, index, tuned.if_name, pod.namespace, order.called)
    site.notes.extend(lacking + offload.change(offloads, index, pod.namespace))
    if wanted.sysctl:
        sysctl.write(pod.namespace, wanted.sysctl)
    if tuned.needs_up and not tuned.up:
        link.change(pod.sock, index, up=True)
    if tuned.added is not None:
        addressing.add(tuned.added, index, pod)
    if tuned.routing is not None:
        routing.add(tuned.routing, index, pod)
    return _result(order, wanted, moving.as_it_is(tuned.if_name, site), site)


def _undo(tuned: Tuned, site: Site) -> tuple[str, ...]:
    attempts, pod = Attempts(), site.pod
    if pod is not None:
        attempts.run(lambda: _undo_in_namespace(tuned, site))
        inside = identity.find(pod.sock, site.sysfs, tuned.device, tuned.if_name, same_mac=False)
        if inside is not None:
            attempts.run(lambda: _undo_on_device(tuned, inside, pod.sock, pod.namespace))
            return attempts.result()
    if not tuned.device.is_physical or (not tuned.device.address and site.holder(tuned.device.key)):
        return attempts.result()
    netdev = netdevs.on_host(tuned.device, (tuned.if_name,), site)
    # The port's number, which the key of its holder has, can be read on the host alone.
    if netdev is not None and not site.holder(identity.identity_of(netdev, site.sysfs).key):
        attempts.run(lambda: _undo_on_device(tuned, netdev, site.host, site.host_namespace))
    return attempts.result()


def _undo_in_namespace(tuned: Tuned, site: Site) -> None:
    """Undo what belongs to the namespace and not to the device."""
    attempts, added = Attempts(), tuned.added
    rules = tuned.routing
    if rules is not None:
        index = unlocked.index_of(site.inside.sock, tuned.if_name)
        attempts.run(lambda: routing.remove(rules, index, site))
    if added is not None:
        attempts.run(lambda: addressing.remove(added, site))
    attempts.run(lambda: sysctl.give_back(site.inside.namespace, tuned.sysctl))
    attempts.result()


def _undo_on_device(tuned: Tuned, netdev: Link, sock: Socket, space: Namespace) -> tuple[str, ...]:
    """Undo what belongs to the device; only differences are set, so a second time does nothing."""
    attempts = Attempts()
    attempts.run(lambda: offload.change(tuned.offloads, netdev.index, space))
    before: dict[str, tuple[Any, Any]] = {
        "mtu": (tuned.mtu, netdev.mtu),
        "promiscuous": (tuned.promisc, bool(netdev.flags & uapi.IFF_PROMISC)),
        "all_multicast": (tuned.allmulti, bool(netdev.flags & uapi.IFF_ALLMULTI)),
        "txqlen": (tuned.txqlen, netdev.txqlen),
    }
    differing: dict[str, Any] = {n: was for n, (was, now) in before.items() if was is not None and was != now}
    for name, value in differing.items():
        attempts.run(partial(link.change, sock, netdev.index, **{name: value}))
    mac = tuned.mac
    if mac is not None and mac != netdev.address:
        attempts.run(lambda: _set_mac(sock, netdev.index, mac, up=netdev.is_up))
    if tuned.needs_up and netdev.is_up and not tuned.up:
        attempts.run(lambda: link.change(sock, netdev.index, up=False))
    return attempts.result()


def _check(order: Order, params: TuningParams, final: StepResult, site: Site) -> tuple[str, ...]:
    later = [msgspec.convert(entry, Tuned) for entry in order.later]
    wanted = _left(wanted_by(order, params), later)
    drift = list(check_interface(order.if_name, _without(final, order.if_name, later), site))
    netdev = link.find(site.inside.sock, order.if_name)
    if netdev is None:
        return tuple(drift)
    for name, value, flag in (
        ("promisc", wanted.promisc, bool(netdev.flags & uapi.IFF_PROMISC)),
        ("allmulti", wanted.allmulti, bool(netdev.flags & uapi.IFF_ALLMULTI)),
        ("txqlen", wanted.txqlen, netdev.txqlen),
    ):
        if value is not None and value != flag:
            drift.append(f'interface "{order.if_name}": {name} is {flag}, not {value}')
    now_set = sysctl.read(site.inside.namespace, tuple(wanted.sysctl)) if wanted.sysctl else {}
    drift += [
        f'sysctl {path} is "{now_set[path]}", not "{value}"'
        for path, value in wanted.sysctl.items()
        if sysctl.normal(now_set[path]) != sysctl.normal(value)
    ]
    lost = addressing.missing(msgspec.structs.replace(wanted.added, addresses=()), netdev.index, site.inside)
    drift += [f"route to {route.destination} is gone" for route in lost.routes]
    drift += routing.drift(wanted.routing, netdev.index, site.inside)
    offloads, now, _ = offload.state(params.ethtool, netdev.index, netdev.name, site.inside.namespace, order.called)
    offloads = offload.without(offloads, [entry.offloads for entry in later])
    return (*drift, *offload.drift(offloads, now, f'interface "{order.if_name}"'))


def _left(wanted: TuningValues, later: Sequence[Tuned]) -> TuningValues:
    """The wanted values that no later step has changed."""
    changed: dict[str, Any] = {
        name: None
        for name in ("promisc", "allmulti", "txqlen")
        if any(getattr(entry, name) is not None for entry in later)
    }
    sysctls = {path: value for path, value in wanted.sysctl.items() if not any(path in entry.sysctl for entry in later)}
    return msgspec.structs.replace(wanted, sysctl=sysctls, **changed)


def _without(final: StepResult, if_name: str, later: Sequence[Tuned]) -> StepResult:
    """The result without an interface's MTU and MAC, if a later step that does not build on this one changed them."""
    changed: dict[str, Any] = {"mtu": 0} if any(entry.mtu is not None for entry in later) else {}
    changed |= {"mac": ""} if any(entry.mac is not None for entry in later) else {}
    interfaces = (
        msgspec.structs.replace(interface, **changed) if interface.name == if_name else interface
        for interface in final.interfaces
    )
    return msgspec.structs.replace(final, interfaces=tuple(interfaces))


def _result(order: Order, wanted: TuningValues, now: CNIInterface, site: Site) -> StepResult:
    """The previous result with the interface as it is now, and with the addresses and routes that the step adds."""
    previous = order.previous
    places = [
        place
        for place, interface in enumerate(previous.interfaces)
        if interface.name == order.if_name and interface.sandbox == site.inside.path
    ]
    if places:
        place = places[-1]
        changed = msgspec.structs.replace(previous.interfaces[place], mac=now.mac, mtu=now.mtu)
        interfaces: tuple[CNIInterface, ...] = (
            *previous.interfaces[:place],
            changed,
            *previous.interfaces[place + 1 :],
        )
    else:
        place = len(previous.interfaces)
        interfaces = (*previous.interfaces, now)
    result = msgspec.structs.replace(previous, interfaces=interfaces)
    return addressing.described(result, wanted.added.addresses, wanted.added.routes, place)


def _set_mac(sock: Socket, index: int, mac: str, *, up: bool) -> None:
    """Set the MAC; drivers that take it only while the device is down get it then."""
    try:
        link.change(sock, index, mac=mac)
    except KernelBusyError:
        link.change(sock, index, up=False)
        link.change(sock, index, mac=mac)
        link.change(sock, index, up=up)


TUNING = Builtin(
    params=TuningParams,
    record=Tuned,
    prepare=_prepare,
    observe=_observe,
    apply=_apply,
    undo=_undo,
    check=_check,
)
