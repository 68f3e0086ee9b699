"""What a node says of policies and custom devices, beside the devices that it publishes: annotations on its slices.

Written by the node's publisher in the same write as the slice, so that a report costs none of its own; read by the
controller, which adds up the reports of all nodes for each object's status. A slice reports what its own devices are
of, and what failed on the interfaces behind them; what belongs to no slice stands on any one of the node's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, TypeVar

import msgspec

from netdra.model import names
from netdra.model.errors import InvalidInputError
from netdra.model.meta import ObjectMeta

ANNOTATION = f"{names.GROUP}/policies"
CUSTOM_DEVICES = f"{names.GROUP}/custom-devices"

MAX_TEXTS = 8
MAX_TEXT = 512
"""How many problems of an object one slice tells, and characters of each; a status keeps those of several slices."""
MAX_ANNOTATION = 96 * 1024
"""Kubernetes takes 256 KiB of annotations in all; two of these and those of others fit into it."""

Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one policy comes to in one slice.

    Attributes:
        devices: how many devices of the slice it makes.
        problems: what is wrong with it there, each once.
    """

    devices: Count = 0
    problems: tuple[str, ...] = ()


class CustomDeviceReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one CustomDevice comes to in one slice.

    Attributes:
        desired: how many devices it speaks of.
        applied: how many of them are in the slice with all that it adds.
        problems: why the others are not, each once.
    """

    desired: Count = 0
    applied: Count = 0
    problems: tuple[str, ...] = ()


class ReportedSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whose slice it is."""

    driver: str
    node_name: str = ""


class ReportedSlice(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a ResourceSlice as carries a report; the devices of a thousand nodes are not kept."""

    metadata: ObjectMeta
    spec: ReportedSpec


Report = TypeVar("Report", PolicyReport, CustomDeviceReport)
_policies = msgspec.json.Decoder(dict[str, PolicyReport])
_custom_devices = msgspec.json.Decoder(dict[str, CustomDeviceReport])


def to_text(reports: Mapping[str, Report]) -> str:
    """An annotation's value: reports by the name of what they are about.

    Texts are clipped, and where there are too many left out, those of the last names first: counts are always whole.
    """
    clipped = {name: _clipped(report) for name, report in sorted(reports.items())}
    text = _encoded(clipped)
    for name in reversed(clipped):
        if len(text.encode()) <= MAX_ANNOTATION:
            break
        if clipped[name].problems:
            clipped[name] = msgspec.structs.replace(clipped[name], problems=())
            text = _encoded(clipped)
    return text


def of_slice(found: ReportedSlice) -> Mapping[str, PolicyReport]:
    """A slice's reports by policy; none if it has none.

    Raises:
        InvalidInputError: the annotation cannot be read.
    """
    return _reports(found, ANNOTATION, _policies.decode)


def of_custom_devices(found: ReportedSlice) -> Mapping[str, CustomDeviceReport]:
    """A slice's reports by CustomDevice; none if it has none.

    Raises:
        InvalidInputError: the annotation cannot be read.
    """
    return _reports(found, CUSTOM_DEVICES, _custom_devices.decode)


def _reports(
    found: ReportedSlice, annotation: str, decode: Callable[[str], Mapping[str, Report]]
) -> Mapping[str, Report]:
    try:
        return _read(found.metadata.annotations.get(annotation, ""), annotation, decode)
    except InvalidInputError as problem:
        raise InvalidInputError(f'ResourceSlice "{found.metadata.name}", {problem.what}') from None


def _read(text: str, annotation: str, decode: Callable[[str], Mapping[str, Report]]) -> Mapping[str, Report]:
    if not text:
        return {}
    try:
        return {name: _clipped(report) for name, report in decode(text).items()}
    except msgspec.DecodeError as problem:
        raise InvalidInputError(f"annotation {annotation}: {problem}") from None


def _clipped(report: Report) -> Report:
    """The report with no more text than a status has room for, whoever wrote it."""
    if not report.problems:
        return report
    texts = tuple(dict.fromkeys(text[:MAX_TEXT] for text in report.problems))[:MAX_TEXTS]
    return msgspec.structs.replace(report, problems=texts)


def _encoded(reports: Mapping[str, Report]) -> str:
    return msgspec.json.encode(reports).decode()
