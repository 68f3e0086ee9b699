"""Quantities and semantic versions as CEL values, and the arithmetic on them.

The engine has no opaque types without protobuf, so both travel as bytes, which no device has otherwise: a letter that
distinguishes them and the canonical text. Two equal values have equal bytes, so `==` holds as in Kubernetes. Used by
`netdra.cel.functions` and, for values of devices, by `netdra.cel.engine`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

from netdra.model import quantity
from netdra.model.errors import InvalidInputError

QUANTITY = b"q"
VERSION = b"v"
_EXACT = Context(prec=200)
_INT64 = range(-(2**63), 2**63)
_SEMVER = (
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?\Z"
)
_LOOSE = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?((?:[-+].*)?)\Z", re.ASCII | re.DOTALL)

SemverKey = tuple[int, int, int, tuple[tuple[int, int | str], ...]]


class Version(str):
    """An attribute value that is a semantic version, not a string."""

    __slots__ = ()


@lru_cache(maxsize=4096)
def of_quantity(text: str | int) -> bytes:
    """A quantity as a CEL value.

    Raises:
        InvalidInputError: the text is not a quantity.
    """
    return pack_decimal(quantity.parse(text))


def pack_decimal(value: Decimal) -> bytes:
    """A number as a CEL quantity, canonical."""
    plain = format(value.normalize(_EXACT), "f") if value else "0"
    return QUANTITY + plain.encode()


def of_version(text: str) -> bytes:
    """A semantic version (semver.org 2.0) as a CEL value.

    Raises:
        InvalidInputError: the text is not a semantic version.
    """
    if re.match(_SEMVER, text, re.ASCII) is None:
        raise InvalidInputError(
            f'"{text[:64]}" is not a semantic version', hint="write major.minor.patch, e.g. 1.2.3", code="ND1557"
        )
    return VERSION + text.encode()


def normalized_version(text: str) -> bytes:
    """A version that may have a `v` before it, leading zeros or missing parts, as `semver(text, true)` takes it.

    Raises:
        InvalidInputError: it is not a version even so.
    """
    parts = _LOOSE.match(text)
    if parts is None:
        return of_version(text)
    core = ".".join(str(int(part or 0)) for part in parts.groups()[:3])
    return of_version(core + parts.group(4))


def decimal(value: bytes) -> Decimal:
    """The number of a CEL quantity; ValueError, which CEL reports, for other bytes."""
    if value[:1] != QUANTITY:
        raise ValueError("not a quantity")
    return Decimal(value[1:].decode())


def semver_parts(value: bytes) -> tuple[int, int, int]:
    """Major, minor and patch of a CEL version; ValueError for other bytes."""
    major, minor, patch, _ = _semver_key(value)
    return major, minor, patch


def compare(left: bytes, right: bytes) -> int:
    """-1, 0 or 1 for two quantities or two versions; ValueError for anything else."""
    key: Callable[[bytes], Any] = decimal if left[:1] == QUANTITY else _semver_key
    first, second = key(left), key(right)
    return int(first > second) - int(first < second)


def as_integer(value: bytes) -> int:
    """A quantity's int64; ValueError where it is fractional or too large."""
    number = decimal(value)
    if not is_integer(value):
        raise ValueError("the quantity is not a 64-bit integer")
    return int(number)


def is_integer(value: bytes) -> bool:
    """Whether a quantity is an int64."""
    number = decimal(value)
    return number == number.to_integral_value() and int(number) in _INT64


def add(left: bytes, right: bytes | int) -> bytes:
    """The sum of two quantities, or of a quantity and an integer."""
    return pack_decimal(_EXACT.add(decimal(left), _number(right)))


def subtract(left: bytes, right: bytes | int) -> bytes:
    """The difference of two quantities, or of a quantity and an integer."""
    return pack_decimal(_EXACT.subtract(decimal(left), _number(right)))


def _number(value: bytes | int) -> Decimal:
    return Decimal(value) if isinstance(value, int) else decimal(value)


def _semver_key(value: bytes) -> SemverKey:
    """The sort key of versions (semver.org, item 11): a release is above its pre-releases, numbers are below words."""
    parts = re.match(_SEMVER, value[1:].decode(), re.ASCII) if value[:1] == VERSION else None
    if parts is None:
        raise ValueError("not a semantic version")
    before = parts.group(4)
    words: tuple[tuple[int, int | str], ...] = ((2, ""),)
    if before is not None:
        words = tuple((0, int(word)) if word.isdigit() else (1, word) for word in before.split("."))
    return int(parts.group(1)), int(parts.group(2)), int(parts.group(3)), words
