"""No text of any content becomes markup, and no address leads to another host."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdra.console.markup import MAX_TEXT, Markup, PageAddress, element, join, visible
from tests.unit.console.reading import Page
from tests.unit.console.scene import HOSTILE


def test_a_text_is_escaped_in_content_and_in_attributes() -> None:
    made = element("p", HOSTILE, [HOSTILE, None, 7], title=HOSTILE).text
    assert re.findall(r"<[a-z]+", made) == ["<p"]
    assert "\x1b" not in made
    assert "\u202e" not in made
    page = Page(f"<html>{made}</html>".encode())
    (found,) = page.all("p")
    assert found.attributes == {"title": visible(HOSTILE)}
    assert "".join(found.text) == f"{visible(HOSTILE)}{visible(HOSTILE)}7"


@given(st.text())
def test_any_text_is_one_text(text: str) -> None:
    page = Page(f"<html>{element('b', text, lang=text).text}</html>".encode())
    assert [found.tag for found in page.elements] == ["html", "b"]
    assert page.elements[1].attributes["lang"].replace("\r", "\n") == visible(text).replace("\r", "\n")


@given(st.lists(st.text(), min_size=1), st.dictionaries(st.sampled_from(["a", "b"]), st.text()))
def test_an_address_is_a_path_of_the_own_host(segments: list[str], query: dict[str, str]) -> None:
    path, _, asked = PageAddress(
        "nodes", *(segment.encode(errors="replace").decode() for segment in segments)
    ).text.partition("?")
    assert path.count("/") == 1 + len(segments)
    assert re.fullmatch(r"[/\w.~%-]+", path, re.ASCII)
    assert not asked


def test_invisible_characters_are_shown_and_long_texts_are_cut() -> None:
    assert visible("a\u200bb\u2066c\x00") == "a\\u200bb\\u2066c\\x00"
    assert visible("x" * (MAX_TEXT + 9)) == "x" * MAX_TEXT + "…"


@pytest.mark.parametrize(
    "attributes",
    [{"onclick": "x"}, {"style": "x"}, {"href": "javascript:x"}, {"srcdoc": "x"}, {"title": PageAddress("a")}],
)
def test_an_attribute_with_an_effect_is_refused(attributes: dict[str, str | PageAddress]) -> None:
    with pytest.raises(ValueError, match="attribute"):
        element("a", "x", **attributes)


def test_markup_is_not_escaped_twice() -> None:
    assert join([Markup("<b>"), "<b>"]).text == "<b>&lt;b&gt;"
