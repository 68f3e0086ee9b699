"""The palette, light and dark: texts have a contrast of 4.5 to their background, and marks 3 (WCAG 2.2 AA)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import netdra.console

SHEET = (Path(netdra.console.__file__).parent / "console.css").read_text()
_LIGHT, _DARK = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part)) for part in SHEET.split("@media", 1))
_TONES = ("good", "busy", "warn", "bad", "calm")
TEXTS = (
    *((text, back) for text in ("text", "quiet", "link") for back in ("page", "panel", "soft")),
    *((tone, f"{tone}-back") for tone in _TONES),
    *(("text", f"{tone}-back") for tone in _TONES),
    *((tone, "panel") for tone in _TONES),
    *(("on-low", step) for step in ("s0", "s1", "s2")),
    *(("on-high", step) for step in ("s3", "s4")),
    ("panel", "link"),
)
MARKS = (
    *((f"{tone}-fill", back) for tone in _TONES for back in ("page", "panel")),
    *((mark, "page") for mark in ("edge", "s3", "s4")),
)
"""Lighter cells have a border of the colour `edge`."""


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("palette", [_LIGHT, {**_LIGHT, **_DARK}], ids=["light", "dark"])
def test_the_palette_can_be_read(palette: dict[str, str]) -> None:
    weak = {pair for pair in TEXTS if contrast(palette[pair[0]], palette[pair[1]]) < 4.5}
    weak |= {pair for pair in MARKS if contrast(palette[pair[0]], palette[pair[1]]) < 3}
    assert not weak


def test_the_stylesheet_and_the_script_contact_no_other_host_and_insert_no_html() -> None:
    script = (Path(netdra.console.__file__).parent / "console.js").read_text()
    for text in (SHEET, script):
        assert not re.search(r"url\(|@import|https?:|//[a-z]+\.", text)
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", script)
