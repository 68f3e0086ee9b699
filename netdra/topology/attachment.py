"""What an allocated device adds to the configuration of its root step, where the plugin wants it by a parameter.

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


def with_device(topology: str, step: Step, device: PlannedDevice | None) -> Mapping[str, Any]:
    """The step's configuration with the allocated device's interface in it.

    Raises:
        InvalidInputError: the configuration names another interface than the one that was allocated.
    """
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
