"""Vale, built by the test bed, finds the forms that the style forbids and accepts those that replace them."""

from __future__ import annotations

import pytest

from testbed.prose import Text, check


def rules(text: str) -> set[str]:
    return {
        remark.rule.removeprefix("Netdra.")
        for remark in check([], [Text("x.py", "f", "Fine."), Text("x.py", "g", text)])
    }


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("type x is no CNI plugin's name", "Negation"),
        ("'networking.dra.io/v1' is none of the words that are known", "Negation"),
        ("A value that there is not is an error", "Negation"),
        ("there is no DeviceClass of this name", "Negation"),
        ("its name is none", "Negation"),
        ("What is done is written down.", "Sentences"),
        ("It ends. Who asks must show a certificate.", "Sentences"),
        ("whoever has it", "Pronouns"),
        ("the result of what was changed", "Pronouns"),
        ("what was changed is lost", "Pronouns"),
        ("Keep everybody's status", "Pronouns"),
        ("the result of the policies is told", "Words"),
        ("`netdra plan` tells more", "Words"),
        ("what policies come to", "Words"),
        ("an expression that fails on a device gives the claim up", "Words"),
        ("the claim is given up", "Words"),
        ("plugin schemas that are brought along", "Words"),
        ("the former lease is given back", "Words"),
        ("a SRIOV device", "Terms"),
    ],
)
def test_a_forbidden_form_is_found(text: str, rule: str) -> None:
    assert rule in rules(text)


@pytest.mark.parametrize(
    "text",
    [
        'apiVersion "networking.dra.io/v1" is not supported; use "networking.dra.io/v1alpha1"',
        "18 interfaces: not matched by any policy. 1 policy could not be evaluated.",
        "if the expression fails on any device, the scheduler cannot allocate the claim",
        "Unknown values are rejected.",
        '"x" is not a valid CNI plugin name',
        "the interface is no longer offered",
        "did you mean `tell`?",
        "What is the name of the device?",
        "{path} exists but is not a socket",
    ],
)
def test_the_form_that_replaces_it_is_accepted(text: str) -> None:
    assert rules(text) == set()


def test_a_finding_has_the_file_and_the_place_of_its_text() -> None:
    copied = [Text("a.py", "f", "fine"), Text("a.py", "g", "is no socket"), Text("b.py", "h", "tells\nmore")]
    assert [(remark.file, remark.place) for remark in check([], copied)] == [("a.py", "g"), ("b.py", "h")]
