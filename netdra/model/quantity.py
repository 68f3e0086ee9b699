"""Kubernetes quantities (`64`, `10Gi`, `1500m`, `2e3`), exact.

Follows k8s.io/apimachinery/pkg/api/resource: a decimal number with a binary, decimal or exponent suffix. Values are
kept as the text that was written; arithmetic is done on `Decimal`.
"""

from __future__ import annotations

import re
from decimal import Decimal, localcontext
from functools import lru_cache

from netdra.model.errors import InvalidInputError

PATTERN = r"([+-]?(?:\d+\.?\d*|\.\d+))(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?\d{1,3})?"
"""A quantity as a regular expression that Python and RE2 read alike."""
_QUANTITY = re.compile(rf"{PATTERN}\Z", re.ASCII)
_BINARY = {suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {
    suffix: Decimal(10) ** power
    for suffix, power in (
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    )
}
_SCALES = {"": Decimal(1)} | _BINARY | _DECIMAL
_MAX_TEXT = 64

BITS_PER_MBIT = 1_000_000
MOST_MBITS = 1_000_000
"""A larger bandwidth is most likely in bit/s: 1 Tbit/s, in Mbit/s."""


@lru_cache(maxsize=4096)
def parse(text: str | int) -> Decimal:
    """The value of a quantity.

    Raises:
        InvalidInputError: the text is not a quantity.
    """
    parts = _QUANTITY.match(str(text)) if len(str(text)) <= _MAX_TEXT else None
    if parts is None:
        raise InvalidInputError(
            f'"{str(text)[:_MAX_TEXT]}" is not a quantity',
            hint='write a number, with a suffix if need be: "64", "10Gi", "500m"',
            code="ND1535",
        )
    number, suffix = parts.group(1), parts.group(2) or ""
    with localcontext() as context:
        context.prec = 100
        if suffix[:1] in {"e", "E"} and suffix != "E" and suffix != "Ei":
            return Decimal(number).scaleb(int(suffix[1:]))
        return Decimal(number) * _SCALES[suffix]


def render(value: Decimal | int, *, like: str | int = "") -> str:
    """The canonical text of a value: an integer where it is one, else in milli, micro or nano.

    Args:
        value: what to write.
        like: a quantity whose unit is kept: where it is binary (`10Gi`), so is the result, if it can be.
    """
    exact = Decimal(value)
    if str(like).endswith("i") and exact == exact.to_integral_value():
        return _render_binary(int(exact))
    for suffix, power in (("", 0), ("m", 3), ("u", 6), ("n", 9)):
        scaled = exact.scaleb(power)
        if scaled == scaled.to_integral_value():
            return f"{int(scaled)}{suffix}"
    return f"{int(exact.scaleb(9).to_integral_value())}n"


def _render_binary(value: int) -> str:
    for suffix, factor in reversed(_BINARY.items()):
        if value and value % int(factor) == 0:
            return f"{value // int(factor)}{suffix}"
    return str(value)
