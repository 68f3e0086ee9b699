"""Facts of well-known programs by name: the devices that they take from the host, and the traces that they leave.

Used by `execute`. An unknown program may do anything with its device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from netdra.chain.checkpoint import StepState
from netdra.chain.flow import ChainStep
from netdra.cni.errors import PluginError, PluginFailure
from netdra.kernel import link, pci
from netdra.kernel.netlink import Socket
from netdra.model.errors import NetdraError
from netdra.model.plan import PlannedDevice, called
from netdra.model.result import StepResult
from netdra.model.topology import MOVING_TYPES
from netdra.steps import allocated, host_device
from netdra.steps.contract import Site
from netdra.steps.made import check_can_carry
from netdra.topology.binaries import translated

# Plugins that make links and routes in the pod's namespace; their veth on the host goes with its peer.
_IN_THE_POD = frozenset({
    "bridge", "dummy", "ipoib", "ipvlan", "loopback", "macvlan", "ptp", "sbr", "tap", "tuning", "vlan", "vrf",
})  # fmt: skip
_GONE_WITH_IT = _IN_THE_POD | {"bond", "rdma"}
"""The plugins of which nothing is left without the pod's namespace: a device that they have comes home by itself."""
ON_A_MASTER = ("macvlan", "ipvlan", "vlan")
"""The programs that make an interface on the one that their config names as `master`."""
ON_THE_DEVICE = frozenset({"host-device", "sriov"})
"""The programs that change their device alone."""
_ON_THE_HOST = ("ipMasq", "macspoofchk")  # keys with which bridge and ptp write firewall rules there
REFUSED = "refused"
"""The key of a step's undo with its plugin's error, or that of its IPAM plugin, when ADD failed."""
_UNREADABLE = frozenset({6, 7})  # the CNI errors for a config that cannot be decoded, or is invalid
_OVS, _SRIOV = "ovs", "sriov"
_SRIOV_NOTES = "var/lib/cni/sriov/pci"  # below the root in which programs run
_TUNING, _SYSCTL = "tuning", "sysctl"
_TUNED = ("mtu", "mac", "promisc", "allmulti", "txQLen")


def lives_in_the_pod_alone(kind: str, config: Mapping[str, Any]) -> bool:
    """Whether all that a well-known plugin makes with that config is gone with the pod's namespace, except a lease."""
    return kind in _GONE_WITH_IT and not any(config.get(key) for key in _ON_THE_HOST)


def words(failure: PluginFailure) -> dict[str, Any]:
    """A plugin's error as plain JSON."""
    return {"code": failure.code, "message": failure.message, "details": failure.details}


def is_refused(state: StepState, problem: NetdraError) -> bool:
    """Whether a plugin's error on DEL is that of ADD: it cannot read its config, and has never done anything."""
    if not isinstance(problem, PluginError) or state.result is not None or REFUSED not in state.undo:
        return False
    added, deleted = state.undo[REFUSED], words(problem.failure)
    return bool(added == deleted or {added["code"], deleted["code"]} <= _UNREADABLE)


def as_tuned(config: Mapping[str, Any], later: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A program's config for CHECK, with its values as later tuning steps on its interface have set them again.

    `vlan` and `tuning` (containernetworking/plugins) compare the interface with their own config on CHECK.
    """
    tuned = dict(config)
    for entry in later:
        values = translated(_TUNING, entry)
        tuned |= {key: values[key] for key in _TUNED if tuned.get(key) is not None and values.get(key) is not None}
        settings, newer = tuned.get(_SYSCTL), values.get(_SYSCTL)
        if isinstance(settings, Mapping) and isinstance(newer, Mapping):
            tuned[_SYSCTL] = {key: newer.get(key, value) for key, value in settings.items()}
    return tuned


def without_main_routes(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A step's config without the routes of the main table, which a later program has moved to another one."""
    routes = config.get("routes")
    if not isinstance(routes, list | tuple):
        return config
    return {**config, "routes": [route for route in routes if isinstance(route, Mapping) and route.get("table")]}


def with_mtu(task: ChainStep, config: Mapping[str, Any], result: StepResult, pod: str) -> StepResult:
    """A program's result with the MTU that `tuning` has set: it hands its prevResult on with the former one.

    cmdAdd() in containernetworking/plugins, plugins/meta/tuning/tuning.go, renews the MAC alone.
    """
    mtu = config.get("mtu")
    if task.step.type != _TUNING or not isinstance(mtu, int) or not mtu:
        return result
    interfaces = tuple(
        msgspec.structs.replace(interface, mtu=mtu)
        if (interface.name, interface.sandbox) == (task.step.if_name, pod)
        else interface
        for interface in result.interfaces
    )
    return msgspec.structs.replace(result, interfaces=interfaces)


def is_without_its_bridge(task: ChainStep, config: Mapping[str, Any]) -> bool:
    """Whether the Open vSwitch bridge of a step's port was deleted; a bridge has an interface of its name."""
    bridge = config.get("bridge")
    if task.step.type != _OVS or not isinstance(bridge, str) or not bridge:
        return False
    with Socket() as sock:  # programs are called beside each other
        return link.find(sock, bridge) is None


def remove_veth(task: ChainStep, state: StepState, site: Site) -> None:
    """Remove the veth in the pod that a program's result names, and its other end with it.

    Raises:
        KernelError: the kernel refused.
    """
    if site.pod is None or state.result is None:
        return
    made = {interface.name for interface in state.result.interfaces if interface.sandbox == site.pod.path}
    netdev = link.find(site.pod.sock, task.step.if_name) if task.step.if_name in made else None
    if netdev is not None and netdev.kind == "veth":
        link.delete(site.pod.sock, netdev.index)


def forget_device(task: ChainStep, config: Mapping[str, Any], site: Site, netns: str) -> None:
    """Remove sriov-cni's note that a namespace has a VF, which it leaves where its DEL fails.

    While the namespace exists, sriov-cni rejects the VF for any pod (IsAllocated() in pkg/utils/pci_allocator.go).
    """
    device = task.step.device
    address = str(device.pci_address if device is not None else config.get("deviceID"))
    if task.step.type != _SRIOV or not pci.is_address(address):
        return
    note = Path(site.plugins.root) / _SRIOV_NOTES / address
    with suppress(OSError):
        if note.read_text(errors="replace") == netns:
            note.unlink()


def check_unused(task: ChainStep, config: Mapping[str, Any], site: Site) -> None:
    """Refuse a program, as built-in steps, whose device is not there, or which takes one that the host uses (D24).

    Raises:
        PermanentError: the device is not on the host, or the host uses it, and its policy does not allow that.
        KernelError: the kernel refused to list the uses.
    """
    device = _taken(task, config)
    if device is None:
        return
    step = f"{called(task.topology, task.step.name)} ({task.step.type} binary)"
    netdev = allocated.check_unused(step, device, site)
    if netdev is not None or device is not task.step.device or task.step.type not in ON_THE_DEVICE:
        return
    # A program's DEL may fail for a device that it never had. Then no record exists to compare with.
    known, at = device.identity, device.pci_address
    if not at and (known is not None or device.if_name):
        raise host_device.not_there(step, device, site)
    if known is not None and (known.port or site.sysfs.liveness(f"bus/pci/devices/{at}").is_gone):
        raise host_device.not_there(step, device, site)


def check_lower(task: ChainStep, config: Mapping[str, Any], site: Site) -> None:
    """Refuse a program of a root step that makes an interface on one of the node which is down.

    Raises:
        TemporaryError: it is down.
    """
    master = config.get("master")
    if task.after or task.step.type not in ON_A_MASTER or not isinstance(master, str) or not master:
        return
    lower = link.find(site.host, master)
    if lower is not None:  # its plugin reports an interface that does not exist
        check_can_carry(f"{called(task.topology, task.step.name)} ({task.step.type} binary)", lower)


def _taken(task: ChainStep, config: Mapping[str, Any]) -> PlannedDevice | None:
    """The device that a program takes from the host: one that it is given as the pod's own, or that its config names.

    A program that stands on its device or makes links in the pod takes none; any other may move what `deviceID` names.
    """
    kind, device = task.step.type, task.step.device
    if task.after or (device is not None and device.is_shared):
        return None
    if device is not None:
        moves = kind in MOVING_TYPES or (device.pci_address and kind not in _IN_THE_POD)
        return device if moves else None
    if kind not in MOVING_TYPES:
        return None
    named = {key: value for key, value in config.items() if isinstance(value, str)}
    return PlannedDevice(
        request="",
        pool="",
        device=task.step.name,
        if_name=named.get("device", ""),
        pci_address=named.get("pciBusID") or named.get("deviceID", ""),
        mac=named.get("hwaddr", "").lower(),
    )
