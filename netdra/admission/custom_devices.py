"""A CustomDevice that is about to be written: whether its facts can be published, and on which devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netdra.admission.cluster import subject
from netdra.admission.messages import Verdict
from netdra.admission.topologies import SHOWN
from netdra.exposure.check import node_errors
from netdra.exposure.registered import errors
from netdra.model import names
from netdra.model.custom_device import CustomDevice, CustomDeviceSelector
from netdra.model.findings import Finding
from netdra.model.suggestions import listed


def review(new: CustomDevice, custom_devices: Mapping[str, CustomDevice], nowhere: str = "") -> Verdict:
    """The errors of a CustomDevice, or the warnings for its author.

    Args:
        new: as it will be.
        custom_devices: all of them, by name.
        nowhere: why no node has its device; "" if one has, or that is unknown.
    """
    named = f'CustomDevice "{new.name}"'
    if wrong := tuple(f"{named}: {text}" for text in problems(new)):
        return Verdict(wrong)
    texts = tuple(finding.text for finding in warnings(new, custom_devices))
    return Verdict((), (*texts, f"{named}: {nowhere}") if nowhere else texts)


def warnings(new: CustomDevice, custom_devices: Mapping[str, CustomDevice]) -> Iterator[Finding]:
    """The warnings for the author of a CustomDevice without errors."""
    same = sorted(name for name, other in custom_devices.items() if name != new.name and subject(other) == subject(new))
    if same:
        what = f'CustomDevice "{new.name}": {listed(same, SHOWN)} describes the same device for the same provider'
        yield Finding(what=what, hint="merge the two", path=("spec", "device"))


def problems(new: CustomDevice) -> Iterator[str]:
    """The errors of a CustomDevice by itself, each with its place before it."""
    spec = new.spec
    if not names.is_label(spec.device):
        yield (
            f'spec.device: "{spec.device}" is not a valid device name; it must be a DNS label of at most '
            f"{names.MAX_LABEL} characters"
        )
    yield from errors(spec.provider, spec.attributes, spec.capacity, within="spec.")
    if not spec.attributes and not spec.capacity and not spec.add_if_not_exist:
        yield "spec: one of attributes, capacity or addIfNotExist is required"
    chosen = spec.selector or CustomDeviceSelector()
    if chosen.node_name and not names.is_subdomain(chosen.node_name):
        yield f'spec.selector.nodeName: "{chosen.node_name}" is not a valid node name; it must be a DNS subdomain'
    if chosen.pool_name and not all(names.is_subdomain(part) for part in chosen.pool_name.split("/")):
        yield (
            f'spec.selector["pool.name"]: "{chosen.pool_name}" is not a valid pool name; an example is node-1/enp1s0f0'
        )
    yield from node_errors("spec.selector.nodeSelector", (spec.selector or CustomDeviceSelector()).node_selector)
