"""A CustomDevice that is about to be written: whether what it adds can be published, and whose it would be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from netdra.admission.messages import Verdict
from netdra.admission.topologies import SHOWN
from netdra.exposure.capacities import MAX_QUANTITY, value_errors
from netdra.exposure.check import node_errors
from netdra.model import names
from netdra.model.custom_device import CustomDevice, CustomDeviceSelector
from netdra.model.resource import MAX_ATTRIBUTES_AND_CAPACITIES, MAX_STRING, DeviceAttribute
from netdra.model.suggestions import listed
from netdra.topology.findings import Finding

_RESERVED = re.compile(r"(.*\.)?(kubernetes|k8s)\.io\Z|dra\.networking\Z")
# semver.org 2.0.0; the API server takes no other form.
_NUMBER = r"(0|[1-9]\d*)"
_WORD = r"(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_WORD}(\.{_WORD})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?\Z", re.ASCII
)


def review(new: CustomDevice, custom_devices: Mapping[str, CustomDevice]) -> Verdict:
    """What stands against a CustomDevice, and what its author should know."""
    named = f'CustomDevice "{new.name}"'
    if errors := tuple(f"{named}: {text}" for text in problems(new)):
        return Verdict(errors)
    return Verdict((), tuple(finding.text for finding in warnings(new, custom_devices)))


def warnings(new: CustomDevice, custom_devices: Mapping[str, CustomDevice]) -> Iterator[Finding]:
    """What the author of a CustomDevice should know though nothing stands against it."""
    same = sorted(
        name for name, other in custom_devices.items() if name != new.name and _subject(other) == _subject(new)
    )
    if same:
        what = f'CustomDevice "{new.name}": {listed(same, SHOWN)} speaks of the same device for the same provider'
        yield Finding(what=what, hint="merge the two", path=("spec", "device"))


def problems(new: CustomDevice) -> Iterator[str]:
    """What stands against a CustomDevice by itself, each with its place before it."""
    spec = new.spec
    if not names.is_attribute_domain(spec.provider):
        yield f'spec.provider: "{spec.provider}" is no domain of up to {names.MAX_LABEL} characters'
    if _RESERVED.match(spec.provider):
        yield f'spec.provider: "{spec.provider}" is not for providers; choose a domain of your own'
    if not names.is_label(spec.device):
        yield f'spec.device: "{spec.device}" is no device\'s name: a DNS label of up to {names.MAX_LABEL} characters'
    used = len(spec.attributes) + len(spec.capacity)
    if used > MAX_ATTRIBUTES_AND_CAPACITIES:
        yield f"spec: {used} attributes and capacities; a device has room for {MAX_ATTRIBUTES_AND_CAPACITIES}"
    if not used and not spec.add_if_not_exist:
        yield "spec: says nothing; give attributes, capacity, or addIfNotExist"
    for name, attribute in spec.attributes.items():
        path = f'spec.attributes["{name}"]'
        yield from _name_errors(path, name)
        yield from _attribute_errors(path, attribute)
    for name, capacity in spec.capacity.items():
        path = f'spec.capacity["{name}"]'
        yield from _name_errors(path, name)
        yield from value_errors(path, capacity)
    yield from node_errors("spec.selector.nodeSelector", (spec.selector or CustomDeviceSelector()).node_selector)


def _name_errors(path: str, name: str) -> Iterator[str]:
    if not names.is_identifier(name):
        yield f'{path}: "{name}" must be up to 32 letters, digits and _, and not begin with a digit'


def _attribute_errors(path: str, attribute: DeviceAttribute) -> Iterator[str]:
    given = {field: value for field in attribute.__struct_fields__ if (value := getattr(attribute, field)) is not None}
    if len(given) != 1:
        yield f"{path}: {len(given)} values; an attribute has exactly one, e.g. string"
        return
    ((field, value),) = given.items()
    each = value if isinstance(value, tuple) else (value,)
    if not each:
        yield f"{path}: a list must not be empty"
    for one in each:
        yield from _value_errors(path, field, one)


def _value_errors(path: str, field: str, value: bool | int | str) -> Iterator[str]:
    if isinstance(value, str):
        if len(value.encode(errors="replace")) > MAX_STRING:
            yield f'{path}: "{value}" is longer than {MAX_STRING} bytes'
        if field.startswith("version") and _VERSION.match(value) is None:
            yield f'{path}: "{value}" is no semantic version, e.g. 1.2.3'
    elif not -MAX_QUANTITY - 1 <= value <= MAX_QUANTITY:
        yield f"{path}: {value} is no 64-bit integer"


def _subject(device: CustomDevice) -> tuple[object, ...]:
    return device.spec.provider, device.spec.device, device.spec.selector
