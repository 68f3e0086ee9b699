"""netdra's additions to a step's configuration: its device, the place of its interfaces in the pod, a link monitor.

A topology's author does not know which device the scheduler will give, nor how much of its PF's link. Plugins that
take a PCI address get it as `deviceID`, if the device is the claim's alone: to them it means "move this device"
(decision D55). Plugins that stand on a host interface, or plug into a bridge, want its name under a parameter of their
own. Called by `bind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdra.model.errors import InvalidInputError
from netdra.model.plan import MAX_RATE_KEYS, MIIMON, PlannedDevice, called, has_link_monitor
from netdra.model.topology import Step
from netdra.topology.binaries import translated
from netdra.topology.graph import Graph
from netdra.topology.interfaces import last_maker

INTERFACE_PARAMETERS: Mapping[str, str] = {
    "bridge": "bridge",
    "macvlan": "master",
    "ipvlan": "master",
    "vlan": "master",
    "ipoib": "master",
    "ovs": "bridge",
}
"""Plugin -> the parameter that names the host interface it attaches to (containernetworking/plugins)."""

IN_POD_PARAMETERS: Mapping[str, str] = {
    "bond": "linksInContainer",
    "ipvlan": "linkInContainer",
    "macvlan": "linkInContainer",
    "vlan": "linkInContainer",
}
"""Plugin -> the parameter that says that its interfaces are in the pod, not on the node.

Without it the programs look on the node, also in a step that stands on what other steps brought into the pod.
"""


_BY_ADDRESS = frozenset({"ovs"})
"""The plugins of `INTERFACE_PARAMETERS` that look up a device with a PCI address by that address."""

_DEVICE_IDS = frozenset({"rdma (Binary)"})
"""Plugins that want the PCI address of a device that other steps brought into the pod."""

_ON_WHAT_IS_BEFORE = frozenset({"vlan"})
"""Types that stand on the interface of the only step before them, if their config names no master."""

_LIMITED = frozenset({"sriov (Binary)"})
"""Plugins that limit a VF to a rate. netdra limits it whatever the plugin does; so the plugin knows the limit, too.

The program fails where it cannot guarantee a rate, so that is netdra's part alone (`netdra.steps.rated`).
"""

_DEVICE_KEYS = ("device", "hwaddr", "kernelpath", "pciBusID")
_BOND = "bond"


def supplied(graph: Graph, step: Step) -> str:
    """The required parameter that netdra fills in, so its absence is not a mistake; "" for none."""
    if step.is_root:
        return "deviceID" if step.type == "ib-sriov" else INTERFACE_PARAMETERS.get(step.type, "")
    if step.type in _ON_WHAT_IS_BEFORE:
        return "master" if last_maker(graph, step) else ""
    if step.type == _BOND:
        return "miimon"
    return "deviceID" if step.plugin in _DEVICE_IDS and _only_root(graph, step) else ""


def completed(graph: Graph, step: Step, device: PlannedDevice | None) -> Mapping[str, Any]:
    """The step's configuration with all that its author need not, or must not, write.

    A root step gets the interface of its allocated device. A derived step gets the interface of the only step before
    it. The program of a derived step also gets the place of its interfaces in the pod, or the device that came into it.
    A bond gets a link monitor. Parameters that a program reads differently from netdra are translated.

    Raises:
        InvalidInputError: the configuration names another interface than the allocated one.
    """
    config = step.config
    if step.type == _BOND and not has_link_monitor(config):
        config = {**config, "miimon": MIIMON}
    config = config if step.is_builtin else translated(step.type, config)
    if step.is_root:
        return _standing_on(graph.topology, step, config, device)
    if step.type in _ON_WHAT_IS_BEFORE and not config.get("master") and (maker := last_maker(graph, step)):
        config = {**config, "master": f"{{{{ {maker}.interfaceName }}}}"}
    in_pod = IN_POD_PARAMETERS.get(step.type)
    if in_pod is not None and not step.is_builtin:
        return {in_pod: True, **config}
    if step.plugin in _DEVICE_IDS and "deviceID" not in config and (root := _only_root(graph, step)):
        return {"deviceID": f"{{{{ {root}.pciAddress }}}}", **config}
    return config


def _only_root(graph: Graph, step: Step) -> str:
    """The root step that a step stands on, "" if there are several."""
    above = [root.name for root in graph.roots if root.name in graph.ancestors[step.name]]
    return above[0] if len(above) == 1 else ""


def _standing_on(
    topology: str, step: Step, config: Mapping[str, Any], device: PlannedDevice | None
) -> Mapping[str, Any]:
    parameter = _parameter(step, config, device)
    if step.plugin in _LIMITED and device is not None and device.bandwidth and not _has_rate(config):
        config = {**config, "max_tx_rate": device.bandwidth}
    if device is None or not parameter or not device.if_name:
        return config
    given = config.get(parameter, device.if_name)
    if given != device.if_name:
        raise InvalidInputError(
            f"{called(topology, step.name)}: {parameter} is {given!r}, but the device that was "
            f'allocated is "{device.if_name}"',
            hint=f"leave {parameter} out: it is set to the allocated device",
            code="ND1264",
        )
    return {**config, parameter: device.if_name}


def _has_rate(config: Mapping[str, Any]) -> bool:
    return any(config.get(key) is not None for key in MAX_RATE_KEYS)


def _parameter(step: Step, config: Mapping[str, Any], device: PlannedDevice | None) -> str:
    """The parameter for the name of a root step's device, "" for none."""
    has_address = device is not None and bool(device.own_pci_address)
    if step.plugin == "host-device (Binary)":
        return "" if has_address or any(config.get(key) for key in _DEVICE_KEYS) else "device"
    if step.type in _BY_ADDRESS and has_address:
        return ""
    return INTERFACE_PARAMETERS.get(step.type, "")
