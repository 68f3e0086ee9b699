"""What the API server refuses of a claim's requests, told of claims and templates in files.

Called by `netdra.model.documents`. The rules are those of Kubernetes 1.37 (pkg/apis/resource/validation). A claim that
comes from the API server has passed them.
"""

from __future__ import annotations

from collections.abc import Iterator

from netdra.model import names
from netdra.model.claim import (
    MAX_RESULTS,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from netdra.model.findings import Finding, Path

MAX_REQUESTS = 32
MAX_ALTERNATIVES = 8
_EXACTLY = "write {name: …, exactly: {deviceClassName: …}}"


def findings(claim: ResourceClaim | ResourceClaimTemplate) -> Iterator[Finding]:
    """What is wrong with a claim's requests."""
    requests, path = _requests(claim)
    if len(requests) > MAX_REQUESTS:
        yield Finding(f"{len(requests)} requests, and a claim has at most {MAX_REQUESTS}", "write several claims", path)
    yield from _names([request.name for request in requests], "request", path)
    for at, request in enumerate(requests):
        yield from _request(request, (*path, at))


def _request(request: DeviceRequest, path: Path) -> Iterator[Finding]:
    called, exactly, several = f'request "{request.name}"', request.exactly, request.first_available
    if exactly is None and not several:
        yield Finding(f"{called} has neither exactly nor firstAvailable", _EXACTLY, path)
    if exactly is not None and several:
        yield Finding(f"{called} has both exactly and firstAvailable", "remove one of the two", path)
    if exactly is not None:
        yield from _choice(exactly, called, (*path, "exactly"))
    place = (*path, "firstAvailable")
    if len(several) > MAX_ALTERNATIVES:
        what = f"{called} has {len(several)} alternatives, and a request has at most {MAX_ALTERNATIVES}"
        yield Finding(what, "remove some", place)
    yield from _names([choice.name for choice in several], f"{called}: alternative", place)
    for at, choice in enumerate(several):
        yield from _choice(choice, f'request "{request.name}/{choice.name}"', (*place, at))


def _choice(choice: ExactDeviceRequest | DeviceSubRequest, called: str, path: Path) -> Iterator[Finding]:
    """What is wrong with how many devices are wanted, and of which class. A count of 0 is one that is absent."""
    if not names.is_subdomain(choice.device_class_name):
        what = f'{called}: no DeviceClass can be called "{ascii(choice.device_class_name[:80])[1:-1]}"'
        yield Finding(what, "name the DeviceClass of the devices", (*path, "deviceClassName"))
    if choice.allocation_mode == "All" and choice.count:
        what = f"{called}: count {choice.count} beside allocationMode All, which takes all devices that there are"
        yield Finding(what, "remove the count, or the allocationMode", (*path, "count"))
    elif choice.count < 0:
        yield Finding(f"{called}: count {choice.count} is not above 0", "1 is the default", (*path, "count"))


def _names(entries: list[str], called: str, path: Path) -> Iterator[Finding]:
    for at, name in enumerate(entries):
        place = (*path, at, "name")
        if not names.is_label(name):
            quoted = ascii(name[:80])[1:-1]
            rule = "a name is a DNS label: up to 63 of a-z, 0-9 and -, letters or digits at both ends"
            yield Finding(f'{called} "{quoted}": none can have this name', rule, place)
        elif name in entries[:at]:
            yield Finding(f'{called} "{name}" is there twice', "give each a name of its own", place)


def too_many(claim: ResourceClaim | ResourceClaimTemplate) -> Finding | None:
    """Why no claim that asks for so many devices is ever allocated; the API server takes it, the scheduler does not."""
    requests, path = _requests(claim)
    wanted = sum(map(_least, requests))
    if wanted <= MAX_RESULTS:
        return None
    what = f"its requests are for {wanted} devices, and no claim is allocated more than {MAX_RESULTS}"
    return Finding(what, "write several claims", path)


def _requests(claim: ResourceClaim | ResourceClaimTemplate) -> tuple[tuple[DeviceRequest, ...], Path]:
    """The requests of a claim, or of a claim made from a template, and their place in the object."""
    if isinstance(claim, ResourceClaimTemplate):
        return claim.spec.spec.devices.requests, ("spec", "spec", "devices", "requests")
    return claim.spec.devices.requests, ("spec", "devices", "requests")


def _least(request: DeviceRequest) -> int:
    """The fewest devices that a request is met with."""
    choices: list[ExactDeviceRequest | DeviceSubRequest] = [*request.first_available]
    choices += [request.exactly] if request.exactly is not None else []
    return min((1 if choice.allocation_mode == "All" else choice.count or 1 for choice in choices), default=1)
