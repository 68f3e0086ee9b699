"""Quantities are exact and follow Kubernetes' grammar."""

from decimal import Decimal

import pytest

from netdra.model.errors import InvalidInputError
from netdra.model.quantity import parse, render


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64", "64"),
        (9, "9"),
        ("10Gi", str(10 * 1024**3)),
        ("500m", "0.5"),
        ("2e3", "2000"),
        ("2E3", "2000"),
        ("1E", str(10**18)),
        ("1Ei", str(1024**6)),
        ("-3k", "-3000"),
        (".5", "0.5"),
        ("5.", "5"),
        ("3n", "0.000000003"),
    ],
)
def test_a_quantity_has_the_value_that_kubernetes_gives_it(text: str | int, value: str) -> None:
    assert parse(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1GiB", "--1", "1e", "٣", "1" * 65, "NaN", "1\n"])
def test_an_invalid_quantity_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInputError, match="not a quantity"):
        parse(text)


@pytest.mark.parametrize(("value", "text"), [(64, "64"), (Decimal("0.5"), "500m"), (Decimal("1e3"), "1000")])
def test_a_value_is_rendered_canonically(value: Decimal | int, text: str) -> None:
    assert render(value) == text
    assert parse(text) == value
