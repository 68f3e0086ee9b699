"""Which label selectors the API server reads."""

from __future__ import annotations

import pytest

from netdra.services.selector import fault


@pytest.mark.parametrize(
    "text",
    [
        "app=web",
        "app==web, tier!=db",
        "example.com/app=web",
        "app in (web, api),tier notin (db)",
        "app",
        "!app",
        "app=",
    ],
)
def test_a_selector_of_valid_requirements(text: str) -> None:
    assert fault(text) is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("app in web", "app in web"),
        ("app=web,", ""),
        ("app=web,=x", "=x"),
        ("app=a b", "app=a b"),
        ("app in (web", "app in (web"),
        ("-app=web", "-app=web"),
        ("app=web,tier=-x", "tier=-x"),
        ("app>5", "app>5"),
    ],
)
def test_the_first_requirement_that_is_not_valid_is_named(text: str, part: str) -> None:
    assert fault(text) == part
