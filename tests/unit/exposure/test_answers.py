"""Answers of many selectors at once are those of each of them alone."""

from __future__ import annotations

import pytest

from netdra.cel import compile_selector
from netdra.exposure.answers import ask
from netdra.model import names
from tests.builders import OURS


def facts(alias: str) -> dict[str, str]:
    return {names.qualified("ifName"): "eth0", names.qualified("alias"): alias}


@pytest.mark.parametrize("count", [1, 4, 5, 12])
def test_many_selectors_are_answered_as_each_alone(count: int) -> None:
    selectors = frozenset(compile_selector(f'{OURS}.ifName == "eth{number}"') for number in range(count))
    answers = ask(facts("a"), selectors)
    assert (answers.asked, len(answers.matching), answers.failing) == (selectors, 1, {})


@pytest.mark.parametrize("count", [1, 4, 5, 12])
def test_on_an_attribute_that_is_too_long_each_selector_fails_also_those_of_other_interfaces(count: int) -> None:
    folded = f'{OURS}.alias.replace("1", {OURS}.alias).size() > 1'
    selectors = frozenset(compile_selector(f'{OURS}.ifName == "eth{number}" && {folded}') for number in range(count))
    answers = ask(facts("1" * 100_000), selectors)
    assert answers.matching == frozenset()
    assert frozenset(answers.failing) == selectors
