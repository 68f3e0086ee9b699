"""Rules of `tests.following` for selectors, files, and what a topology has beside its steps' parameters.

`RULES` correct the object that a line names; `OF_FILES` correct a file around it, for hints about another object.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests import corrections
from tests.corrections import Correction, Place, Value, holder

FileCorrection = Callable[[list[Value], Value, Place, re.Match[str]], bool]
"""As a correction, with the objects of the file before the others."""


def rewrite(pattern: str, new: str) -> Correction:
    """Rewrites the text at the place."""
    return corrections.put(lambda text: re.sub(pattern, new, text))


def remove_fields(value: Value, path: Place, found: re.Match[str]) -> bool:
    """A field access of an expression."""
    inner = holder(value, path)
    inner[path[-1]] = inner[path[-1]].replace(f".{found['meant']}", "")
    return True


def keep_first(count: int) -> Correction:
    """The first entries of the list at the place."""

    def act(value: Value, path: Place, _: re.Match[str]) -> bool:
        del holder(value, path)[path[-1]][count:]
        return True

    return act


def add_attribute(documents: list[Value], _value: Value, path: Place, found: re.Match[str]) -> bool:
    """A policy that adds the attribute that a selector reads."""
    documents.append(
        {
            "apiVersion": "networking.dra.io/v1alpha1",
            "kind": "DeviceExposurePolicy",
            "metadata": {"name": "labelled"},
            "spec": {
                "selector": {"cel": 'device.attributes["dra.networking"].ifName == "enp3s0f0"'},
                "exposure": {
                    "supportedCNIPlugins": [{"name": "host-device", "exclusive": True}],
                    "additionalAttributes": {found["meant"]: "a7"},
                },
            },
        }
    )
    return "cel" in path


RULES: tuple[tuple[re.Pattern[str], Correction], ...] = (
    (re.compile(r"; `netdra discover` shows the attributes of interfaces\Z"), rewrite(r"\]\.\w+", "].mac")),
    (re.compile(r'; \w+ is the value itself: remove "(?P<meant>\w+)"\Z'), remove_fields),
    (re.compile(r"; use \.\? to read it\Z"), rewrite(r"\.(\w+\.\w+\()", r".?\1")),
    (
        re.compile(r"; compare quantities with isGreaterThan\(\), "),
        rewrite(r">= (\d+)", r'.compareTo(quantity("\1")) >= 0'),
    ),
    (
        re.compile(r"; did you mean device\.capacity\["),
        rewrite(r"attributes(\[[^]]+\]\.\w+)", r"capacity\1"),
    ),
    (re.compile(r"; write it as net\.core\.somaxconn or net"), corrections.put("net.core.somaxconn")),
    (re.compile(r"; list fewer plugins, or "), keep_first(3)),
)

OF_FILES: tuple[tuple[re.Pattern[str], FileCorrection], ...] = (
    (re.compile(r'attribute "(?P<meant>\w+)" of .*; a policy can set it with additionalAttributes\Z'), add_attribute),
)
