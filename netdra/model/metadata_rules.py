"""The API server's rules for the metadata of an object in a file: names, labels, annotations.

Called by `netdra.model.documents`. Follows ValidateObjectMeta of k8s.io/apimachinery (pkg/api/validation, 1.37).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netdra.model import names
from netdra.model.findings import Finding, Path
from netdra.model.meta import ObjectMeta

MAX_ANNOTATIONS = 256 * 1024
"""Bytes of all annotations together (TotalAnnotationSizeLimitB)."""
KEY_RULE = "a key is up to 63 letters, digits, -, _ and ., with or without a DNS subdomain and / before it"
VALUE_RULE = "a value is up to 63 letters, digits, -, _ and ., letters or digits at both ends"


def findings(metadata: ObjectMeta, path: Path = ("metadata",)) -> Iterator[Finding]:
    """The errors in labels, annotations, and the namespace; `path` is the place of the metadata."""
    yield from label_findings(metadata.labels, (*path, "labels"))
    place = (*path, "annotations")
    for key in metadata.annotations:
        if not names.is_label_key(key.lower()):
            yield Finding(f"annotation key {quoted_ascii(key)} is not valid", KEY_RULE, (*place, key), code="ND1530")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in metadata.annotations.items())
    if size > MAX_ANNOTATIONS:
        what = f"the annotations are {size} bytes; at most {MAX_ANNOTATIONS} are supported"
        yield Finding(what, "remove some", place, code="ND1531")
    if metadata.namespace and not names.is_label(metadata.namespace):
        rule = "a namespace is up to 63 of a-z, 0-9 and -, letters or digits at both ends"
        yield Finding(
            f"namespace {quoted_ascii(metadata.namespace)} is not valid", rule, (*path, "namespace"), code="ND1532"
        )


def label_findings(labels: Mapping[str, str], path: Path) -> Iterator[Finding]:
    """The errors in the keys and values of labels."""
    for key, value in labels.items():
        if not names.is_label_key(key):
            yield Finding(f"label key {quoted_ascii(key)} is not valid", KEY_RULE, (*path, key), code="ND1533")
        if not names.is_label_value(value):
            yield Finding(
                f"value {quoted_ascii(value)} of label {quoted_ascii(key)} is not valid",
                VALUE_RULE,
                (*path, key),
                code="ND1534",
            )


def quoted_ascii(text: str) -> str:
    """A name of a user's object for an error: in quotes, cut, in ASCII."""
    return f'"{ascii(text[:80])[1:-1]}"'
