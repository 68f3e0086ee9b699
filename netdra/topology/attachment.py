"""What netdra adds to a step's configuration: the allocated device, or that the pod has what the step names.

A topology's author does not know which device the scheduler will give. Plugins that take a PCI address get it as
`deviceID`; those that stand on a host interface, or plug into a bridge, want its name under a parameter of their own.
Called by `bind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netdra.model.errors import InvalidInputError
from netdra.model.plan import PlannedDevice, called
from netdra.model.topology import Step

INTERFACE_PARAMETERS: Mapping[str, str] = {
    "bridge": "bridge",
    "macvlan": "master",
    "ipvlan": "master",
    "vlan": "master",
}
"""Plugin -> the parameter that names the host interface it attaches to (containernetworking/plugins)."""

IN_POD_PARAMETERS: Mapping[str, str] = {
    "bond": "linksInContainer",
    "ipvlan": "linkInContainer",
    "macvlan": "linkInContainer",
    "vlan": "linkInContainer",
}
"""Plugin -> the parameter that says that the interfaces which it names are in the pod, not on the node.

Without it the programs look on the node, also in a step that stands on what other steps brought into the pod.
"""


def completed(topology: str, step: Step, device: PlannedDevice | None) -> Mapping[str, Any]:
    """The step's configuration with what its author need not, or must not, say of where its interfaces are.

    That is the allocated device's interface for a root step; that they are in the pod for a derived step's program.

    Raises:
        InvalidInputError: the configuration names another interface than the one that was allocated.
    """
    in_pod = IN_POD_PARAMETERS.get(step.type)
    if in_pod is not None and not step.is_root and not step.is_builtin:
        return {in_pod: True, **step.config}
    parameter = INTERFACE_PARAMETERS.get(step.type)
    if device is None or parameter is None or not device.if_name:
        return step.config
    given = step.config.get(parameter, device.if_name)
    if given != device.if_name:
        raise InvalidInputError(
            f"{called(topology, step.name)}: {parameter} is {given!r}, but the device that was "
            f'allocated is "{device.if_name}"',
            hint=f"leave {parameter} out: it is set to the allocated device",
        )
    return {**step.config, parameter: device.if_name}
