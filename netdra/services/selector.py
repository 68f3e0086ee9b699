"""Checks a label selector in the form that the API server reads (k8s.io/apimachinery/pkg/labels, Parse).

The API server compares pods with it; an invalid one would be rejected with each request.
"""

from __future__ import annotations

import re

from netdra.model.names import is_label_key, is_label_value

_OUTSIDE = re.compile(r",(?![^(]*\))")
_EQUALITY = re.compile(r"(?P<key>[^\s=!]+)\s*(==|=|!=)\s*(?P<values>\S*)\Z")
_SET = re.compile(r"(?P<key>\S+)\s+(in|notin)\s*\((?P<values>[^()]*)\)\Z")
_PRESENCE = re.compile(r"!?\s*(?P<key>[^\s=!]+)(?P<values>)\Z")


def fault(text: str) -> str | None:
    """The first requirement of a selector that is not valid, None if all are."""
    return next((part for part in map(str.strip, _OUTSIDE.split(text)) if not _is_valid(part)), None)


def _is_valid(part: str) -> bool:
    match = _EQUALITY.match(part) or _SET.match(part) or _PRESENCE.match(part)
    if match is None or not is_label_key(match["key"]):
        return False
    return all(is_label_value(value.strip()) for value in match["values"].split(","))
