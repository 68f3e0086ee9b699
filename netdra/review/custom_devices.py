"""The errors and warnings of a CustomDevice: whether its facts can be published, and on which devices. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from netdra.exposure import registered
from netdra.exposure.check import node_errors
from netdra.model import names
from netdra.model.custom_device import CustomDevice, CustomDeviceSelector
from netdra.model.findings import Finding, Path, about_object
from netdra.model.suggestions import listed
from netdra.review.topologies import SHOWN
from netdra.review.world import World


def errors(new: CustomDevice) -> Iterator[Finding]:
    """The errors of a CustomDevice by itself."""
    return (about_object("CustomDevice", new.name, finding) for finding in _problems(new))


def warnings(new: CustomDevice, world: World) -> Iterator[Finding]:
    """The warnings for the author of a CustomDevice without errors."""
    others = world.custom_devices.items()
    same = sorted(name for name, other in others if name != new.name and subject(other) == subject(new))
    if same:
        what = f'CustomDevice "{new.name}": {listed(same, SHOWN)} describes the same device for the same provider'
        yield Finding(what=what, hint="merge the two", path=("spec", "device"), code="ND1238")
    if world.nowhere:
        yield about_object("CustomDevice", new.name, Finding(world.nowhere, code="ND1239"))


def subject(device: CustomDevice) -> tuple[object, ...]:
    """The key that CustomDevices for one device have in common."""
    return device.spec.provider, device.spec.device, msgspec.json.encode(device.spec.selector, order="deterministic")


def _problems(new: CustomDevice) -> Iterator[Finding]:
    spec = new.spec
    if not names.is_label(spec.device):
        rule = f"it must be a DNS label of at most {names.MAX_LABEL} characters"
        yield Finding(f'"{spec.device}" is not a valid device name; {rule}', path=("spec", "device"), code="ND1240")
    yield from registered.errors(spec.provider, spec.attributes, spec.capacity, within=("spec",))
    if not spec.attributes and not spec.capacity and not spec.add_if_not_exist:
        yield Finding("one of attributes, capacity or addIfNotExist is required", path=("spec",), code="ND1241")
    chosen = spec.selector or CustomDeviceSelector()
    place: Path = ("spec", "selector")
    if chosen.node_name and not names.is_subdomain(chosen.node_name):
        what = f'"{chosen.node_name}" is not a valid node name; it must be a DNS subdomain'
        yield Finding(what, path=(*place, "nodeName"), code="ND1242")
    if chosen.pool_name and not all(names.is_subdomain(part) for part in chosen.pool_name.split("/")):
        what = f'"{chosen.pool_name}" is not a valid pool name; an example is node-1/enp1s0f0'
        yield Finding(what, path=(*place, "pool.name"), code="ND1243")
    yield from node_errors((*place, "nodeSelector"), chosen.node_selector)
