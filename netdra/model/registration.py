"""What providers outside of netdra say of a node's devices: from the device registry's socket or from CustomDevices.

Made by `netdra.node.registry` and `netdra.exposure.registered`, published by `netdra.exposure`. A provider's names are
published as `<provider>/<name>`, so they never stand in for netdra's own (decision D47).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from netdra.model.resource import DeviceAttribute, DeviceCapacity


class Registration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What one provider says of one device.

    Attributes:
        provider: the domain of the names below.
        device: the name of a device, or of an interface: then it is about each device of that.
        adds: the interface is to be a device though nobody lists it: policies find it by `registeredBy`.
        pool: the pool that the device must be in, "" for any.
        attributes, capacity: by name without a domain.
        custom_device: the CustomDevice that says so, "" if the registry's socket was told.
    """

    provider: str
    device: str
    adds: bool = False
    pool: str = ""
    attributes: Mapping[str, DeviceAttribute] = {}
    capacity: Mapping[str, DeviceCapacity] = {}
    custom_device: str = ""

    @property
    def source(self) -> str:
        """Who says so, for people."""
        return f'CustomDevice "{self.custom_device}"' if self.custom_device else "the registry's socket"


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What became of a registration on one device of the node, or on an interface that is none.

    Attributes:
        device: the published device, or the interface.
        attributes, capacity: the names under which the device has what was said.
        problem: why not all of it is published; "" if it is.
    """

    provider: str
    device: str
    custom_device: str = ""
    attributes: tuple[str, ...] = ()
    capacity: tuple[str, ...] = ()
    problem: str = ""
