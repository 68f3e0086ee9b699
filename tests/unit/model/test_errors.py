"""Texts have one code, at the end of the first line, and a cut text keeps it."""

from __future__ import annotations

import pytest

from netdra.model.errors import InvalidInputError, code_of, shortened, with_code, without_code
from netdra.model.findings import Finding


def test_the_code_is_at_the_end_of_the_first_line() -> None:
    assert with_code("CEL expression is wrong\n  device.x\n  ^", "ND1042") == (
        "CEL expression is wrong (ND1042)\n  device.x\n  ^"
    )
    assert (
        str(InvalidInputError("mode is unknown", hint="use off", code="ND1042")) == "mode is unknown; use off (ND1042)"
    )
    finding = Finding("mode is unknown\nsee below", path=("spec", "mode"), code="ND1042")
    assert finding.text_at_path == "mode is unknown [spec.mode] (ND1042)\nsee below"


def test_a_text_that_quotes_an_error_keeps_the_code_of_the_error() -> None:
    inner = InvalidInputError("the file is empty", code="ND4001")
    outer = InvalidInputError(f"plan: {inner}", hint="write it again", code="ND4002")
    assert str(outer) == "plan: the file is empty (ND4001); write it again"
    assert outer.code == "ND4001"


def test_a_code_is_read_from_a_text_and_removed_from_it() -> None:
    text = "step a failed (ND7107)\nundone: b"
    assert (code_of(text), without_code(text)) == ("ND7107", "step a failed\nundone: b")
    assert (code_of("nothing"), without_code("nothing")) == ("", "nothing")


@pytest.mark.parametrize("length", range(80, 110))
def test_a_cut_text_keeps_its_code(length: int) -> None:
    text = f"{'x' * length} (ND1042)"
    cut = shortened(text, 100)
    assert code_of(cut) == "ND1042"
    assert cut == (text if len(text) <= 100 else f"{'x' * 90}… (ND1042)")


def test_a_cut_text_has_no_second_code_and_one_without_code_has_none() -> None:
    assert shortened(f"first (ND1042)\n{'x' * 100}", 50) == f"first (ND1042)\n{'x' * 34}…"
    assert shortened("x" * 100, 50) == f"{'x' * 49}…"
