"""What is known of well-known programs by their names: what they take from the host, and what they leave there.

Used by `execute`. Of a program that nobody knows, the cautious is true: it may do anything with its device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdra.chain.flow import ChainStep
from netdra.kernel import link
from netdra.kernel.netlink import Socket
from netdra.model.plan import PlannedDevice, called
from netdra.model.topology import MOVING_TYPES
from netdra.steps import allocated
from netdra.steps.contract import Site

# Plugins that make links and routes in the pod's namespace; their veth on the host goes with its peer.
_IN_THE_POD = frozenset({
    "bridge", "dummy", "ipoib", "ipvlan", "loopback", "macvlan", "ptp", "sbr", "tap", "tuning", "vlan", "vrf",
})  # fmt: skip
ON_THE_DEVICE = frozenset({"host-device", "sriov"})
"""The programs that change their device alone."""
_ON_THE_HOST = ("ipMasq", "macspoofchk")  # keys with which bridge and ptp write firewall rules there
_OVS = "ovs"


def lives_in_the_pod_alone(kind: str, config: Mapping[str, Any]) -> bool:
    """Whether all that a well-known plugin makes with that config is gone with the pod's namespace, except a lease."""
    return kind in _IN_THE_POD and not any(config.get(key) for key in _ON_THE_HOST)


def is_without_its_bridge(task: ChainStep, config: Mapping[str, Any]) -> bool:
    """Whether the Open vSwitch bridge of a step's port was deleted; a bridge has an interface of its name."""
    bridge = config.get("bridge")
    if task.step.type != _OVS or not isinstance(bridge, str) or not bridge:
        return False
    with Socket() as sock:  # programs are called beside each other
        return link.find(sock, bridge) is None


def check_unused(task: ChainStep, config: Mapping[str, Any], site: Site) -> None:
    """Refuse a program that takes a device which the host uses just now, as the built-in steps are refused (D24).

    Raises:
        PermanentError: the host uses it, and its policy does not allow that.
        KernelError: the kernel refused to list the uses.
    """
    device = _taken(task, config)
    if device is not None:
        allocated.check_unused(f"{called(task.topology, task.step.name)} ({task.step.type} binary)", device, site)


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
