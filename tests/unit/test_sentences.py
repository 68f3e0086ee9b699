"""A cause and the next step are one text with punctuation between them, in every output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import netdra
from netdra.model.errors import InvalidInputError, NetdraError, PermanentError, TemporaryError, sentence
from netdra.model.findings import Finding, refuse

ROOT = Path(netdra.__file__).parent


@pytest.mark.parametrize(
    ("what", "hint", "text"),
    [
        ("the device is gone", "", "the device is gone"),
        ("the device is gone", "plug it in", "the device is gone; plug it in"),
        ("The device is gone.", "Plug it in.", "The device is gone. Plug it in."),
        ("the device is gone;", "plug it in", "the device is gone; plug it in"),
        ("which device?", "name one", "which device? name one"),
        ("a\nb", "c", "a\nb; c"),
    ],
)
def test_a_cause_and_a_hint_are_separated_by_punctuation(what: str, hint: str, text: str) -> None:
    assert sentence(what, hint) == Finding(what, hint).text == text
    for kind in (NetdraError, InvalidInputError, PermanentError, TemporaryError):
        assert str(kind(what, hint=hint)) == text
    with pytest.raises(InvalidInputError) as refused:
        refuse([Finding(what, hint)])
    assert str(refused.value) == text


def test_no_module_joins_a_cause_and_a_hint_in_its_own_way() -> None:
    joined = re.compile(r"\{[\w.]*\b(what|problem)\}[^{}\w]*\{[\w.]*\bhint\}")
    found = {
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in ROOT.rglob("*.py")
        for match in joined.finditer(path.read_text())
    }
    assert {each.partition(":")[0] for each in found} == {"model/errors.py"}, found
