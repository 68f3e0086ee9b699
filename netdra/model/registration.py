"""Facts of providers outside of netdra for a node's devices: from the device registry's socket or from CustomDevices.

Made by `netdra.node.registry` and `netdra.exposure.registered`, published by `netdra.exposure`. A provider's names are
published as `<provider>/<name>`, so they never stand in for netdra's own (decision D47).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from netdra.model.errors import sentence
from netdra.model.resource import MAX_STRING, DeviceAttribute, DeviceCapacity

DEVICES = "/dev"
"""The folder that all device files are in."""
_FILE = re.compile(r"[A-Za-z0-9._:@+,=-]+\Z", re.ASCII)


class Registration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The facts of one provider for one device.

    Attributes:
        provider: the domain of the names below.
        device: the name of a device, or of an interface: then it is about each device of that.
        adds: the interface is to be a device though no policy selects it otherwise: policies find it by `registeredBy`.
        device_file: the device is this character device, e.g. /dev/fpga0, and no interface; `device` is its own name.
        pool: the pool that the device must be in, "" for any.
        attributes, capacity: by name without a domain.
        custom_device: the CustomDevice with these facts, "" for the registry's socket.
    """

    provider: str
    device: str
    adds: bool = False
    device_file: str = ""
    pool: str = ""
    attributes: Mapping[str, DeviceAttribute] = {}
    capacity: Mapping[str, DeviceCapacity] = {}
    custom_device: str = ""

    @property
    def source(self) -> str:
        """The source, for people."""
        return f'CustomDevice "{self.custom_device}"' if self.custom_device else "the registry's socket"


class RegistrationOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The outcome of a registration on one device of the node, or on an interface that is not one.

    Attributes:
        device: the published device, or the interface.
        meant: the name that was registered, the device's or the interface's.
        attributes, capacity: the names under which the device has the registered facts.
        problem: why some of it is not published; "" if all is.
    """

    provider: str
    device: str
    meant: str = ""
    custom_device: str = ""
    attributes: tuple[str, ...] = ()
    capacity: tuple[str, ...] = ()
    problem: str = ""


class DeviceFile(msgspec.Struct, frozen=True):
    """The file at the path of a device file, as far as the node's operator allows it for pods.

    Attributes:
        number: major and minor of the character device; None if it is not given.
        problem: why it is not given, with the rule; "" if it is.
        hint: the next step.
        missing: it is not there now, and is taken when it comes.
    """

    number: tuple[int, int] | None = None
    problem: str = ""
    hint: str = ""
    missing: bool = False

    @property
    def text(self) -> str:
        """The problem with the next step."""
        return sentence(self.problem, self.hint)


def path_error(path: str) -> str:
    """The errors in the path of a device file, without reading the file; "" if it is valid."""
    quoted = path if len(path) <= MAX_STRING else f"{path[:MAX_STRING]}…"
    if len(path) > MAX_STRING:
        return f'"{quoted}" is longer than the {MAX_STRING} characters that can be published'
    parts = path.split("/")
    if parts[:2] != ["", DEVICES.strip("/")] or len(parts) < 3:
        return f'"{quoted}" is not an absolute path below {DEVICES}, such as {DEVICES}/fpga0'
    if any(part in ("", ".", "..") for part in parts[2:]):
        return f'"{quoted}" has an empty part, "." or "..": write the path as it is'
    if not all(_FILE.match(part) for part in parts[2:]):
        return f'"{quoted}" has a character other than letters, digits and . _ : @ + , = -'
    return ""
