"""The CEL selectors of claims, templates and classes, each at its place, and the errors in them.

Called by `netdra validate` on files. In a cluster the API server compiles selectors itself, before any webhook.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from netdra.cel import CelCompileError, compile_selector
from netdra.model.claim import (
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
    device_claim,
)
from netdra.model.findings import Finding, Path
from netdra.model.names import DRIVER

Written = ResourceClaim | ResourceClaimTemplate | DeviceClass


def check_selectors(value: Written) -> Iterator[Finding]:
    """Why the API server would refuse the CEL selectors of an object."""
    for path, selector in expressions(value):
        if selector.cel is not None and (problem := check_selector(selector.cel.expression)):
            what = f'{value.kind} "{value.metadata.name}": {problem}'
            yield Finding(what=what, path=(*path, "cel", "expression"), code="ND1351")


def check_selector(expression: str) -> str:
    """Why the API server would refuse a CEL selector, or ""."""
    try:
        compile_selector(expression)
    except CelCompileError as problem:
        return problem.what
    return ""


def expressions(value: Written) -> Iterator[tuple[Path, DeviceSelector]]:
    """The selectors of an object, each with its place."""
    if isinstance(value, DeviceClass):
        yield from _numbered(value.spec.selectors, ("spec", "selectors"))
        return
    wanted, path = device_claim(value)
    for at, request in enumerate(wanted.requests):
        place = (*path, "requests", at)
        if request.exactly is not None:
            yield from _numbered(request.exactly.selectors, (*place, "exactly", "selectors"))
        for number, choice in enumerate(request.first_available):
            yield from _numbered(choice.selectors, (*place, "firstAvailable", number, "selectors"))


def is_for(wanted: DeviceClaim, classes: Collection[str]) -> bool:
    """Whether a claim asks for devices of the driver, by one of its classes or by its own selectors."""
    return any(
        choice.device_class_name in classes or is_about_driver(choice.selectors)
        for request in wanted.requests
        for choice in choices(request)
    )


def choices(request: DeviceRequest) -> Sequence[ExactDeviceRequest | DeviceSubRequest]:
    """A request's alternatives, in the order in which they are tried."""
    return (request.exactly,) if request.exactly is not None else request.first_available


def is_about_driver(selectors: Iterable[DeviceSelector]) -> bool:
    """Whether selectors name the driver."""
    return any(selector.cel is not None and DRIVER in selector.cel.expression for selector in selectors)


def _numbered(selectors: Sequence[DeviceSelector], path: Path) -> Iterator[tuple[Path, DeviceSelector]]:
    return (((*path, at), selector) for at, selector in enumerate(selectors))
