"""A page as a reader finds it: every element with its attributes and text, parsed as HTML."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import NamedTuple

VOID = frozenset({"br", "hr", "input", "link", "meta"})


class Found(NamedTuple):
    """An element."""

    tag: str
    attributes: dict[str, str]
    text: list[str]

    @property
    def words(self) -> str:
        """Its text and that of the elements in it."""
        return " ".join(" ".join(self.text).split())


class Page(HTMLParser):
    """A parsed page; an element that is not closed in its order is an error."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self.elements: list[Found] = []
        self._open: list[Found] = []
        self.feed(text.decode())
        self.close()
        assert not self._open, self._open[-1]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = Found(tag, {name: value or "" for name, value in attrs}, [])
        self.elements.append(found)
        if tag not in VOID:
            self._open.append(found)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for found in self._open:
            found.text.append(data)

    def all(self, tag: str, kind: str = "") -> Iterator[Found]:
        """The elements of a tag, with a class if one is named."""
        for found in self.elements:
            if found.tag == tag and (not kind or kind in found.attributes.get("class", "").split()):
                yield found

    @property
    def words(self) -> str:
        """All text."""
        return next(self.all("html")).words

    @property
    def links(self) -> list[str]:
        """Where links lead."""
        return [found.attributes["href"] for found in self.all("a")]
