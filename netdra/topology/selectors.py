"""The CEL selectors of claims, templates and classes, each at its place, and what is wrong with them.

Called by `netdra validate` on files. In a cluster the API server compiles selectors itself, before any webhook.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netdra.cel import CelCompileError, compile_selector
from netdra.model.claim import DeviceClaim, DeviceClass, DeviceSelector, ResourceClaim, ResourceClaimTemplate
from netdra.model.findings import Finding, Path

Written = ResourceClaim | ResourceClaimTemplate | DeviceClass


def check_selectors(value: Written) -> Iterator[Finding]:
    """Why the API server would refuse the CEL selectors of an object."""
    for path, selector in expressions(value):
        if selector.cel is not None and (problem := check_selector(selector.cel.expression)):
            what = f'{value.kind} "{value.metadata.name}": {problem}'
            yield Finding(what=what, path=(*path, "cel", "expression"))


def check_selector(expression: str) -> str:
    """Why the API server would refuse a CEL selector, or ""."""
    try:
        compile_selector(expression)
    except CelCompileError as problem:
        return problem.what
    return ""


def device_claim(claim: ResourceClaim | ResourceClaimTemplate) -> tuple[DeviceClaim, Path]:
    """The requests of a claim, or of a claim made from a template, and their place in the object."""
    if isinstance(claim, ResourceClaimTemplate):
        return claim.spec.spec.devices, ("spec", "spec", "devices")
    return claim.spec.devices, ("spec", "devices")


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


def _numbered(selectors: Sequence[DeviceSelector], path: Path) -> Iterator[tuple[Path, DeviceSelector]]:
    return (((*path, at), selector) for at, selector in enumerate(selectors))
