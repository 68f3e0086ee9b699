"""Which label selectors the API server reads."""

from __future__ import annotations

import pytest

from netdra.services.selector import fault, parse


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


@pytest.mark.parametrize(
    ("text", "selects"),
    [
        ("app=web", "web"),
        ("app==web", "web"),
        ("app!=web", "api none"),
        ("app in (web, api)", "web api"),
        ("app in (web),tier", "web"),
        ("app notin (web),!tier", "none"),
        ("app,tier=", "api"),
        ("tier in (,front)", "web api"),
    ],
)
def test_a_selector_selects_pods_as_the_api_server_does(text: str, selects: str) -> None:
    pods = {"web": {"app": "web", "tier": "front"}, "api": {"app": "api", "tier": ""}, "none": {}}
    assert [name for name, labels in pods.items() if parse(text).matches(labels)] == selects.split()
