"""A DeviceExposurePolicy that is about to be written: whether it can be used, and whether it says what was meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netdra.admission.messages import Verdict
from netdra.exposure.check import check, try_out
from netdra.model.policy import DeviceExposurePolicy, Exposure


def review(new: DeviceExposurePolicy, policies: Mapping[str, DeviceExposurePolicy]) -> Verdict:
    """What stands against a policy, and what its author should know."""
    named = f'DeviceExposurePolicy "{new.name}"'
    errors = tuple(f"{named}: {text}" for text in check(new))
    if not errors:
        try_out(new.spec.selector.cel)
    if errors or new.spec.action != "expose":
        return Verdict(errors)
    return Verdict((), tuple(f"{named}: {text}" for text in (*_unwise(new), *_shadows(new, policies))))


def _unwise(new: DeviceExposurePolicy) -> Iterator[str]:
    exposure = new.spec.exposure or Exposure()
    if not exposure.supported_cni_plugins:
        yield "spec.exposure.supportedCNIPlugins is empty, so no DeviceClass of a NetworkTopology selects its devices"
    if exposure.allow_host_uplink:
        yield "spec.exposure.allowHostUplink: true, so a pod can be given the interface that the node is reached by"


def _shadows(new: DeviceExposurePolicy, policies: Mapping[str, DeviceExposurePolicy]) -> Iterator[str]:
    """Policies of the same persona and rank for the same devices, of which one is never used."""
    for name, other in sorted(policies.items()):
        if name != new.name and other.spec.action == "expose" and _rank(other) == _rank(new):
            winner = min(name, new.name)
            yield f'has the selector, priority and suffix of "{name}", so "{winner}" alone is used; change one of them'


def _rank(policy: DeviceExposurePolicy) -> tuple[object, ...]:
    spec = policy.spec
    suffix = (spec.exposure or Exposure()).device_name_suffix
    return spec.selector.cel.strip(), spec.node_selector, spec.priority, suffix
