"""Reads a label selector in the form that the API server reads (k8s.io/apimachinery/pkg/labels, Parse)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from netdra.model.meta import LabelSelector, LabelSelectorRequirement
from netdra.model.names import is_label_key, is_label_value

_OUTSIDE = re.compile(r",(?![^(]*\))")
_EQUALITY = re.compile(r"(?P<key>[^\s=!]+)\s*(?P<operator>==|=|!=)\s*(?P<values>\S*)\Z")
_SET = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)\Z")
_PRESENCE = re.compile(r"(?P<operator>!?)\s*(?P<key>[^\s=!]+)(?P<values>)\Z")


def fault(text: str) -> str | None:
    """The first requirement of a selector that is not valid, None if all are."""
    return next((part for part in _parts(text) if not _is_valid(part)), None)


def parse(text: str) -> LabelSelector:
    """The requirements of a selector that has no fault."""
    return LabelSelector(match_expressions=tuple(map(_requirement, _parts(text))))


def _parts(text: str) -> Iterator[str]:
    return map(str.strip, _OUTSIDE.split(text))


def _match(part: str) -> re.Match[str] | None:
    return _EQUALITY.match(part) or _SET.match(part) or _PRESENCE.match(part)


def _is_valid(part: str) -> bool:
    match = _match(part)
    if match is None or not is_label_key(match["key"]):
        return False
    return all(is_label_value(value) for value in _values(match))


def _values(match: re.Match[str]) -> tuple[str, ...]:
    return tuple(map(str.strip, match["values"].split(",")))


def _requirement(part: str) -> LabelSelectorRequirement:
    match = _match(part)
    assert match is not None
    key, operator = match["key"], match["operator"]
    if operator == "":
        return LabelSelectorRequirement(key=key, operator="Exists")
    if operator == "!":
        return LabelSelectorRequirement(key=key, operator="DoesNotExist")
    is_in = operator in ("=", "==", "in")
    return LabelSelectorRequirement(key=key, operator="In" if is_in else "NotIn", values=_values(match))
