"""What a node says of policies, beside the devices that it publishes: an annotation on its ResourceSlices.

Written by the node's publisher in the same write as the slice, so that a report costs none of its own; read by the
controller, which adds up the reports of all nodes for each policy's status. A slice reports what its own devices are
of, and what failed on the interfaces behind them; what belongs to no slice stands on any one of the node's.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from netdra.model import names
from netdra.model.errors import InvalidInputError
from netdra.model.meta import ObjectMeta

ANNOTATION = f"{names.GROUP}/policies"


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one policy comes to in one slice.

    Attributes:
        devices: how many devices of the slice it makes.
        problems: what is wrong with it there, each once.
    """

    devices: int = 0
    problems: tuple[str, ...] = ()


class ReportedSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whose slice it is."""

    driver: str
    node_name: str = ""


class ReportedSlice(msgspec.Struct, frozen=True, kw_only=True):
    """As much of a ResourceSlice as carries a report; the devices of a thousand nodes are not kept."""

    metadata: ObjectMeta
    spec: ReportedSpec


_decoder = msgspec.json.Decoder(dict[str, PolicyReport])


def to_text(reports: Mapping[str, PolicyReport]) -> str:
    """The annotation's value: reports by policy."""
    return msgspec.json.encode(dict(sorted(reports.items()))).decode()


def of_slice(found: ReportedSlice) -> Mapping[str, PolicyReport]:
    """The reports of a slice by policy; none if it has none.

    Raises:
        InvalidInputError: the annotation cannot be read.
    """
    try:
        return of_text(found.metadata.annotations.get(ANNOTATION, ""))
    except InvalidInputError as problem:
        raise InvalidInputError(f'ResourceSlice "{found.metadata.name}", {problem.what}') from None


def of_text(text: str) -> Mapping[str, PolicyReport]:
    """The reports in an annotation's value; none if it is empty.

    Raises:
        InvalidInputError: it cannot be read.
    """
    if not text:
        return {}
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError as problem:
        raise InvalidInputError(f"annotation {ANNOTATION}: {problem}") from None
