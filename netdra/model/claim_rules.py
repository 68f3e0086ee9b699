"""The API server's rules for the claims, templates and DeviceClasses of files.

Called by `netdra.model.documents`. The rules are those of Kubernetes 1.37 (pkg/apis/resource/validation). An object
that comes from the API server has passed them. CEL expressions are compiled by `netdra.topology.selectors`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from netdra.model import metadata_rules, names, quantity, suggestions
from netdra.model.claim import (
    MAX_RESULTS,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimTemplate,
    device_claim,
)
from netdra.model.errors import InvalidInputError
from netdra.model.findings import Finding, Path
from netdra.model.metadata_rules import quoted_ascii

MAX_REQUESTS = 32
MAX_ALTERNATIVES = 8
MAX_ENTRIES = 32
"""Of selectors, constraints, configurations, and requests that one of these names."""
MAX_PARAMETERS = 10 * 1024
"""Bytes of opaque parameters (OpaqueParametersMaxLength)."""
MAX_INTEGER = 2**63 - 1
EFFECTS = ("NoSchedule", "NoExecute", "None")
_EXACTLY = "write {name: …, exactly: {deviceClassName: …}}"
_DOMAIN = "a domain is up to 63 of a-z, 0-9, - and ., letters or digits at both ends"
_OPAQUE = "write opaque: {driver: …, parameters: {…}}"
_SELECTOR = "write cel: {expression: …}"


def findings(value: ResourceClaim | ResourceClaimTemplate | DeviceClass) -> Iterator[Finding]:
    """The errors in a claim, a template, or a class."""
    if isinstance(value, DeviceClass):
        yield from _of_class(value)
        return
    if isinstance(value, ResourceClaimTemplate):
        yield from metadata_rules.findings(value.spec.metadata, ("spec", "metadata"))
    yield from _of_requests(value)
    spec, path = device_claim(value)
    known = [name for request in spec.requests for name in _names_of(request)]
    yield from _too_many(spec.constraints, "constraints", "write several claims", (*path, "constraints"))
    for at, constraint in enumerate(spec.constraints):
        yield from _constraint(constraint, (*path, "constraints", at))
    yield from _too_many(spec.config, "configurations", "write several claims", (*path, "config"))
    for at, config in enumerate(spec.config):
        place = (*path, "config", at)
        yield from _references(config.requests, (*place, "requests"))
        for number, name in enumerate(config.requests):
            if name not in known:
                hint = suggestions.hint(name, known, "the claim's requests are")
                what = f"a configuration names request {quoted_ascii(name)}, which the claim lacks"
                yield Finding(what, hint, (*place, "requests", number), code="ND1477")
        yield from _opaque(config.opaque, place)


def _of_class(value: DeviceClass) -> Iterator[Finding]:
    yield from _selectors(value.spec.selectors, "", ("spec",))
    yield from _too_many(value.spec.config, "configurations", "remove some", ("spec", "config"))
    for at, config in enumerate(value.spec.config):
        yield from _opaque(config.opaque, ("spec", "config", at))
    resource = value.spec.extended_resource_name
    if resource is not None and not names.is_extended_resource(resource):
        what = f"extendedResourceName {quoted_ascii(resource)} is not the name of an extended resource"
        hint = 'write "<domain>/<name>" with a domain other than kubernetes.io'
        yield Finding(what, hint, ("spec", "extendedResourceName"), code="ND1478")


def _constraint(constraint: DeviceConstraint, path: Path) -> Iterator[Finding]:
    yield from _references(constraint.requests, (*path, "requests"))
    fields = {"matchAttribute": constraint.match_attribute, "distinctAttribute": constraint.distinct_attribute}
    given = {field: name for field, name in fields.items() if name is not None}
    if not given:
        yield Finding("a constraint needs an attribute", "add matchAttribute or distinctAttribute", path, code="ND1479")
    for field, name in given.items():
        domain, slash, last = name.partition("/")
        if slash and not (names.is_attribute_domain(domain) and names.is_identifier(last.partition("/")[0])):
            what = f"attribute {quoted_ascii(name)} is not valid"
            hint = f"write <domain>/<name>, e.g. {names.qualified('numaNode')}"
            yield Finding(what, hint, (*path, field), code="ND1480")
        elif not name:
            yield Finding(
                f"{field} must not be empty", f"write e.g. {names.qualified('numaNode')}", (*path, field), code="ND1481"
            )


def _references(requests: Sequence[str], path: Path) -> Iterator[Finding]:
    """The names of requests in a constraint or a configuration."""
    yield from _too_many(requests, "requests", "remove some; no requests means all", path)
    for at, name in enumerate(requests):
        if name in requests[:at]:
            yield Finding(
                f"request {quoted_ascii(name)} is listed twice",
                "remove one of the two",
                (*path, at),
                code="ND1482",
            )


def _opaque(opaque: OpaqueDeviceConfiguration | None, path: Path) -> Iterator[Finding]:
    if opaque is None:
        yield Finding("a configuration needs the field opaque", _OPAQUE, path, code="ND1483")
        return
    place = (*path, "opaque")
    if not _is_driver(opaque.driver):
        yield Finding(f"driver {quoted_ascii(opaque.driver)} is not valid", _DOMAIN, (*place, "driver"), code="ND1484")
    if not isinstance(opaque.parameters, dict):
        yield Finding(
            "opaque parameters must be an object", "write {key: value}", (*place, "parameters"), code="ND1485"
        )
        return
    size = len(json.dumps(opaque.parameters, separators=(",", ":"), ensure_ascii=False, default=str).encode())
    if size > MAX_PARAMETERS:
        what = f"opaque parameters are {size} bytes as JSON; at most {MAX_PARAMETERS} are supported"
        yield Finding(what, "shorten them", (*place, "parameters"), code="ND1486")


def _is_driver(name: str) -> bool:
    """Whether a text is a driver's name, which may have capital letters; also the domain of an attribute."""
    return len(name) <= names.MAX_LABEL and names.is_subdomain(name.lower())


def _selectors(selectors: Sequence[DeviceSelector], called: str, path: Path) -> Iterator[Finding]:
    place = (*path, "selectors")
    yield from _too_many(selectors, "selectors", "join them with &&", place)
    for at, selector in enumerate(selectors):
        if selector.cel is None:
            yield Finding(f"{called}a selector needs the field cel", _SELECTOR, (*place, at), code="ND1487")


def _tolerations(tolerations: Iterable[DeviceToleration], called: str, path: Path) -> Iterator[Finding]:
    for at, toleration in enumerate(tolerations):
        place = (*path, "tolerations", at)
        if toleration.key and not names.is_label_key(toleration.key):
            what = f"{called}key {quoted_ascii(toleration.key)} of a toleration is not valid"
            yield Finding(what, metadata_rules.KEY_RULE, (*place, "key"), code="ND1488")
        if toleration.operator == "Exists" and toleration.value:
            what = f"{called}a toleration with operator Exists must not have a value"
            yield Finding(what, "remove the value, or write operator: Equal", (*place, "value"), code="ND1489")
        elif not names.is_label_value(toleration.value):
            what = f"{called}value {quoted_ascii(toleration.value)} of a toleration is not valid"
            yield Finding(what, metadata_rules.VALUE_RULE, (*place, "value"), code="ND1490")
        if abs(toleration.toleration_seconds or 0) > MAX_INTEGER:
            what = f"{called}tolerationSeconds {toleration.toleration_seconds} is too large"
            yield Finding(
                what, "leave it out to tolerate the taint forever", (*place, "tolerationSeconds"), code="ND1491"
            )
        if toleration.effect and toleration.effect not in EFFECTS:
            what = f"{called}effect {quoted_ascii(toleration.effect)} is not supported"
            yield Finding(
                what, suggestions.hint(toleration.effect, EFFECTS, "supported:"), (*place, "effect"), code="ND1492"
            )


def _capacity(choice: ExactDeviceRequest | DeviceSubRequest, called: str, path: Path) -> Iterator[Finding]:
    for name, amount in (choice.capacity.requests if choice.capacity is not None else {}).items():
        try:
            quantity.parse(amount)
        except InvalidInputError as problem:
            what = f"{called}capacity {quoted_ascii(name)}: {problem.what}"
            yield Finding(what, problem.hint, (*path, "capacity", "requests", name), code=problem.code)


def _too_many(entries: Sequence[object], noun: str, hint: str, path: Path) -> Iterator[Finding]:
    if len(entries) > MAX_ENTRIES:
        yield Finding(f"{len(entries)} {noun}; at most {MAX_ENTRIES} are supported", hint, path, code="ND1493")


def _names_of(request: DeviceRequest) -> list[str]:
    """The names of a request in constraints and configurations."""
    return [request.name, *(f"{request.name}/{choice.name}" for choice in request.first_available)]


def _of_requests(claim: ResourceClaim | ResourceClaimTemplate) -> Iterator[Finding]:
    """The errors in a claim's requests."""
    requests, path = _requests(claim)
    if len(requests) > MAX_REQUESTS:
        yield Finding(
            f"{len(requests)} requests, and a claim has at most {MAX_REQUESTS}",
            "write several claims",
            path,
            code="ND1494",
        )
    yield from _names([request.name for request in requests], "request", path)
    for at, request in enumerate(requests):
        yield from _request(request, (*path, at))


def _request(request: DeviceRequest, path: Path) -> Iterator[Finding]:
    called, exactly, several = f'request "{request.name}"', request.exactly, request.first_available
    if exactly is None and not several:
        yield Finding(f"{called} has neither exactly nor firstAvailable", _EXACTLY, path, code="ND1495")
    if exactly is not None and several:
        yield Finding(f"{called} has both exactly and firstAvailable", "remove one of the two", path, code="ND1496")
    if exactly is not None:
        yield from _choice(exactly, called, (*path, "exactly"))
    place = (*path, "firstAvailable")
    if len(several) > MAX_ALTERNATIVES:
        what = f"{called} has {len(several)} alternatives, and a request has at most {MAX_ALTERNATIVES}"
        yield Finding(what, "remove some", place, code="ND1497")
    yield from _names([choice.name for choice in several], f"{called}: alternative", place)
    for at, choice in enumerate(several):
        yield from _choice(choice, f'request "{request.name}/{choice.name}"', (*place, at))


def _choice(choice: ExactDeviceRequest | DeviceSubRequest, called: str, path: Path) -> Iterator[Finding]:
    """The errors in how many devices are wanted, and of which class. A count of 0 is one that is absent."""
    if not names.is_subdomain(choice.device_class_name):
        what = f'{called}: no DeviceClass can be called "{ascii(choice.device_class_name[:80])[1:-1]}"'
        yield Finding(what, "name the DeviceClass of the devices", (*path, "deviceClassName"), code="ND1498")
    if choice.allocation_mode == "All" and choice.count:
        what = f"{called}: count {choice.count} beside allocationMode All, which takes all available devices"
        yield Finding(what, "remove the count, or the allocationMode", (*path, "count"), code="ND1499")
    elif choice.count < 0:
        yield Finding(
            f"{called}: count {choice.count} is not above 0", "1 is the default", (*path, "count"), code="ND1500"
        )
    elif choice.count > MAX_INTEGER:
        yield Finding(
            f"{called}: count {choice.count} is too large",
            f"write at most {MAX_RESULTS}",
            (*path, "count"),
            code="ND1501",
        )
    yield from _selectors(choice.selectors, f"{called}: ", path)
    yield from _tolerations(choice.tolerations, f"{called}: ", path)
    yield from _capacity(choice, f"{called}: ", path)


def _names(entries: list[str], called: str, path: Path) -> Iterator[Finding]:
    for at, name in enumerate(entries):
        place = (*path, at, "name")
        if not names.is_label(name):
            quoted = ascii(name[:80])[1:-1]
            rule = "a name is a DNS label: up to 63 of a-z, 0-9 and -, letters or digits at both ends"
            yield Finding(f'{called} "{quoted}": none can have this name', rule, place, code="ND1502")
        elif name in entries[:at]:
            yield Finding(f'{called} "{name}" occurs twice', "give each a name of its own", place, code="ND1503")


def too_many(claim: ResourceClaim | ResourceClaimTemplate) -> Finding | None:
    """Why no claim that asks for so many devices is ever allocated; the API server takes it, the scheduler does not."""
    requests, path = _requests(claim)
    wanted = sum(map(_least, requests))
    if wanted <= MAX_RESULTS:
        return None
    what = f"its requests are for {wanted} devices, and no claim is allocated more than {MAX_RESULTS}"
    return Finding(what, "write several claims", path, code="ND1504")


def _requests(claim: ResourceClaim | ResourceClaimTemplate) -> tuple[tuple[DeviceRequest, ...], Path]:
    """The requests of a claim, or of a claim made from a template, and their place in the object."""
    spec, path = device_claim(claim)
    return spec.requests, (*path, "requests")


def _least(request: DeviceRequest) -> int:
    """The fewest devices that a request is met with."""
    choices: list[ExactDeviceRequest | DeviceSubRequest] = [*request.first_available]
    choices += [request.exactly] if request.exactly is not None else []
    return min((1 if choice.allocation_mode == "All" else choice.count or 1 for choice in choices), default=1)
